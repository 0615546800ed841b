"""Messages wait until their receiver is known and the session certainly lives, and keep their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from belvedere.cluster.transport.peers import Peers
from belvedere.protocol.messages import Member, Released, Role
from belvedere.protocol.ring import MemberId

A, B = MemberId("a-1"), MemberId("b-1")


@dataclass
class Wire:
    """A transport that only notes what it is told."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def know(self, peer: MemberId, address: str) -> None:
        assert address

    def send(self, peer: MemberId, message: Any, payload: Any = None) -> None:
        self.sent.append((peer, message.member))

    def forget(self, peer: MemberId) -> None:
        self.forgotten.append(peer)


def member(name: MemberId) -> Member:
    return Member(name, Role.VIEWSERVER, f"grpc://{name}")


def said(word: str) -> Released:
    return Released(MemberId(word))


def make(lease: list[bool]) -> tuple[Peers, Wire]:
    wire = Wire()
    return Peers(wire, lambda: lease[0]), wire  # type: ignore[arg-type]


def test_a_message_to_a_member_that_is_not_known_yet_waits_for_it() -> None:
    peers, wire = make([True])
    peers.listed([member(A)])
    peers.send(B, said("1"))
    peers.send(A, said("2"))
    peers.send(B, said("3"))
    assert wire.sent == [(A, "2")]
    peers.listed([member(A), member(B)])
    assert wire.sent == [(A, "2"), (B, "1"), (B, "3")]


def test_nothing_leaves_while_the_session_may_have_ended() -> None:
    lease = [True]
    peers, wire = make(lease)
    peers.listed([member(A)])
    lease[0] = False
    peers.send(A, said("1"))
    peers.flush()
    lease[0] = True
    peers.send(A, said("2"))
    assert wire.sent == [], "what was held back goes first"
    peers.flush()
    assert wire.sent == [(A, "1"), (A, "2")]


def test_a_member_that_is_gone_is_forgotten_for_ever() -> None:
    lease = [False]
    peers, wire = make(lease)
    peers.listed([member(A), member(B)])
    peers.send(A, said("1"))
    peers.send(B, said("2"))
    peers.listed([member(B)])
    peers.send(A, said("3"))
    lease[0] = True
    peers.flush()
    assert wire.sent == [(B, "2")]
    assert wire.forgotten == [A]
    assert peers.held() == 0
