"""`Transport`: how members talk. Implementations: `loopback.py` (in memory, tests), `flight.py` (Arrow Flight).

`send` queues a message; messages of one sender to one receiver arrive in order, at least once: the sender repeats until
the receiver has answered or the peer is forgotten. Batches (`payload`) travel in the same order as control messages.
`call` is a request with an answer (reads, status, DDL); it is tried once and raises `PeerUnavailable` when it fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from belvedere.protocol.messages import Message
from belvedere.protocol.ring import MemberId

Receiver = Callable[[MemberId, Message, memoryview | None], None]
"""(sender, message, payload). Called by threads of the transport; when it returns, the message counts as received."""

Handler = Callable[[bytes], bytes]
"""Answers a call. A `BelvedereError` that it raises reaches the caller as the same class with the same text."""


class Transport(Protocol):
    @property
    def address(self) -> str:
        """Where others reach this process, e.g. `grpc://127.0.0.1:41234`."""

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None: ...

    def know(self, peer: MemberId, address: str) -> None:
        """From now on messages to this member go there."""

    def send(self, peer: MemberId, message: Message, payload: bytes | None = None) -> None:
        """Never blocks. To a peer that is not known, or forgotten: dropped."""

    def forget(self, peer: MemberId) -> None:
        """Drop what is queued for a member that is gone."""

    def backlog(self) -> int:
        """Bytes that are queued and not yet received by their receivers."""

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes: ...

    def close(self) -> None: ...
