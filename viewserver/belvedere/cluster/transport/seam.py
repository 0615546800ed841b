"""`Transport`: how members talk. Implementations: `loopback.py` (in memory, tests), `flight.py` (Arrow Flight).

`send` queues a message; messages of one sender to one receiver arrive in order, at least once: the sender repeats until
the receiver has answered or the peer is forgotten. Batches (`payload`) travel in the same order as control messages.
A message is for a member, not for an address: a process that took over the address of another one does not get it.
`call` is a request with an answer (reads, status, DDL); it is tried once and raises `PeerUnavailable` when it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

import pyarrow as pa

from belvedere.protocol.messages import Message
from belvedere.protocol.ring import MemberId

Payload: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Contiguous bytes; not copied by `send`, so they must not be changed afterwards."""

Receiver = Callable[[MemberId, Message, memoryview | None], None]
"""(sender, message, payload). Called by threads of the transport; when it returns, the message counts as received.
Messages of one sender come one at a time, those of different senders at the same time. It should only hand the message
on: until it returns, nothing else of this sender arrives. If it raises, the message comes again after a pause."""

Handler = Callable[[bytes], bytes]
"""Answers a call. A `BelvedereError` that it raises reaches the caller as the same class with the same text."""


class Transport(Protocol):
    @property
    def address(self) -> str:
        """Where others reach this process, e.g. `grpc://127.0.0.1:41234`."""

    def start(self, receiver: Receiver, handlers: dict[str, Handler]) -> None: ...

    def know(self, peer: MemberId, address: str) -> None:
        """From now on messages to this member go there."""

    def send(self, peer: MemberId, message: Message, payload: Payload | None = None) -> None:
        """Never blocks. To a peer that is not known, or forgotten: dropped."""

    def forget(self, peer: MemberId) -> None:
        """Drop what is queued for a member that is gone."""

    def backlog(self, peers: Iterable[MemberId] | None = None) -> int:
        """Bytes that are queued, for these peers or for all, and not yet received by them."""

    def drain(self, timeout: float) -> bool:
        """Wait until everything that is queued was received; False if it was not in time."""

    def troubles(self) -> dict[MemberId, str]:
        """Peers that the last delivery did not reach, with the reason, for people."""

    def call(self, address: str, name: str, request: bytes, timeout: float) -> bytes: ...

    def close(self) -> None:
        """Drops what is still queued (see `drain`). No receiver and no handler is called after it returned, unless
        they were already running."""
