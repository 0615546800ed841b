"""The session at a ZooKeeper that stops answering without a word, on a link that does no I/O."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from belvedere.cluster.coordination.clock import now
from belvedere.cluster.coordination.lease import Lease
from belvedere.cluster.coordination.nodes import PoolNodes
from belvedere.cluster.coordination.requests import Announce, Children, Get, Request, Stat
from belvedere.cluster.coordination.seam import SessionState
from belvedere.cluster.coordination.session import SessionCoordination
from belvedere.errors import CoordinationUnavailable
from tests.cluster.coordination_worlds import Ear

TIMEOUT = 1.2


class QuietLink:
    """Its server answers until it is told not to, and its connection never breaks."""

    def __init__(self, number: int, lock: threading.RLock, announce: Announce) -> None:
        self.lease = Lease(TIMEOUT)
        self.key = f"link-{number}"
        self.ready = False
        self.problem = ""
        self.answers = True
        self.drops = 0
        self.stopped = threading.Event()
        self._number = number
        self._lock = lock
        self._announce = announce

    @property
    def lost(self) -> bool:
        return self.lease.state is SessionState.LOST

    @property
    def identity(self) -> tuple[int, bytes] | None:
        return self._number, b""

    def open(self) -> None:
        self.lease.connected(now())
        self._announce(self, None)

    def heartbeat(self, path: str) -> None:
        if self.answers:
            with self._lock:
                self._announce(self, self.lease.answered(now(), now()))

    def ask(self, request: Request) -> Any:
        if not self.answers:
            raise CoordinationUnavailable("no answer")
        self.heartbeat("")
        if isinstance(request, Children):
            return []
        return (b"", Stat(0, 0, 0)) if isinstance(request, Get) else Stat(0, 0, 0)

    def ask_all(self, requests: Iterable[Request]) -> list[Any]:
        return [self.ask(request) for request in requests]

    def drop(self) -> None:
        self.drops += 1

    def stop(self) -> None:
        self.stopped.set()


def test_a_silent_server_is_dropped_once_and_its_session_replaced() -> None:
    links: list[QuietLink] = []

    def make_link(lock: threading.RLock, announce: Announce) -> QuietLink:
        links.append(QuietLink(len(links), lock, announce))
        return links[-1]

    one = SessionCoordination(PoolNodes("nowhere:1", "pool", protected=False), TIMEOUT, make_link)
    session = Ear()
    one.on_session(session)
    one.start(10.0)
    session.wait_last(SessionState.CONNECTED)
    assert one.lease_valid()
    (first,) = links
    assert first.drops == 0
    first.answers = False
    session.wait(lambda heard: SessionState.SUSPENDED in heard)
    session.wait_last(SessionState.CONNECTED)
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST, SessionState.CONNECTED]
    assert first.drops == 1
    assert first.stopped.wait(60.0)
    assert len(links) == 2
    first.answers = True
    first.heartbeat("")  # what an old session says is of no interest any more
    assert one.read() is not None
    one.close()
    assert links[1].stopped.is_set()
    assert session.heard[3:] == [SessionState.CONNECTED]


def test_an_answer_in_time_resumes_the_same_session() -> None:
    links: list[QuietLink] = []

    def make_link(lock: threading.RLock, announce: Announce) -> QuietLink:
        links.append(QuietLink(len(links), lock, announce))
        return links[-1]

    one = SessionCoordination(PoolNodes("nowhere:1", "pool", protected=False), TIMEOUT, make_link)
    session = Ear()
    one.on_session(session)
    one.start(10.0)
    links[0].answers = False
    session.wait_last(SessionState.SUSPENDED)
    with pytest.raises(CoordinationUnavailable, match="the session is suspended"):
        one.read()
    links[0].answers = True
    session.wait_last(SessionState.CONNECTED)
    assert session.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
    assert len(links) == 1
    assert links[0].drops == 1
    one.close()
