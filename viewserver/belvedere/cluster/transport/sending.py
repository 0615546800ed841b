"""The half of a transport that all implementations share: whom it knows, and an outbox for each of them."""

from __future__ import annotations

import abc
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterable

from belvedere import errors
from belvedere.cluster.transport.outbox import Outbox, OutboxEntry, OutboxLink
from belvedere.cluster.transport.seam import Payload
from belvedere.protocol import wire
from belvedere.protocol.messages import Message
from belvedere.protocol.ring import MemberId
from belvedere.retry import Backoff, Deadline, poll

LARGEST_PAYLOAD = (2 << 30) - (1 << 20)
"""Bytes: what Flight can carry at once."""
LINGER = 0.5
"""Seconds that `close` waits for deliveries that are under way."""


Locate = Callable[[], str]
"""The address of a peer; `PeerUnavailable` if it was forgotten."""


class Sending(abc.ABC):
    def __init__(self, member: MemberId) -> None:
        self._member = member
        self._instance = uuid.uuid4().hex
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._addresses: dict[MemberId, str] = {}
        self._outboxes: dict[MemberId, Outbox] = {}
        self._closed = False
        self._last: tuple[Message, bytes] | None = None
        """What was sent last, and its bytes."""

    @property
    def member(self) -> MemberId:
        return self._member

    def know(self, peer: MemberId, address: str) -> None:
        with self._lock:
            if self._closed or self._addresses.get(peer) == address:
                return
            self._addresses[peer] = address
            outbox = self._outboxes.get(peer)
        if outbox is not None:
            outbox.hurry()

    def send(self, peer: MemberId, message: Message, payload: Payload | None = None) -> None:
        head = self._encoded(message)
        view = None if payload is None else memoryview(payload).cast("B")
        if view is not None and view.nbytes > LARGEST_PAYLOAD:
            raise errors.DataError(f"a batch of {view.nbytes} bytes for {peer}; at most {LARGEST_PAYLOAD}, split it")
        with self._lock:  # also around `put`: entries enter a queue in the order of their numbers
            if peer not in self._addresses:
                return
            outbox = self._outboxes.get(peer)
            if outbox is None:
                outbox = self._outboxes[peer] = self._open_outbox(peer)
            outbox.put(OutboxEntry(next(self._numbers), head, view))

    def _encoded(self, message: Message) -> bytes:
        """A leader tells everyone the same: it is written once. (Messages are immutable, and it is held, so it is the
        same one. Threads that get in each other's way here encode it again.)"""
        last = self._last
        if last is not None and last[0] is message:
            return last[1]
        head = wire.encode(message)
        self._last = (message, head)
        return head

    def forget(self, peer: MemberId) -> None:
        with self._lock:
            self._addresses.pop(peer, None)
            outbox = self._outboxes.pop(peer, None)
        if outbox is not None:
            outbox.close()

    def backlog(self, peers: Iterable[MemberId] | None = None) -> int:
        with self._lock:
            outboxes = self._outboxes
            wanted = outboxes.values() if peers is None else [outboxes[peer] for peer in peers if peer in outboxes]
            return sum(outbox.backlog() for outbox in wanted)

    def troubles(self) -> dict[MemberId, str]:
        """Peers that the last delivery did not reach, with the reason, for people."""
        with self._lock:
            found = {peer: outbox.trouble() for peer, outbox in self._outboxes.items()}
        return {peer: trouble for peer, trouble in found.items() if trouble}

    def drain(self, timeout: float) -> bool:
        """Wait until everything that is queued was received; False if it was not in time."""
        return poll(lambda: not self.backlog(), Deadline(timeout), Backoff(0.002, 0.002))

    @abc.abstractmethod
    def _link(self, peer: MemberId, locate: Locate) -> OutboxLink:
        """A new way to this peer; `locate` tells where it is by now."""

    def _open_outbox(self, peer: MemberId) -> Outbox:
        def locate() -> str:
            address = self._addresses.get(peer)
            if address is None:
                raise errors.PeerUnavailable(f"member {peer} is forgotten")
            return address

        return Outbox(f"send {self._member} to {peer}", self._link(peer, locate))

    def _stop_sending(self) -> None:
        with self._lock:
            self._closed = True
            outboxes = list(self._outboxes.values())
            self._addresses.clear()
            self._outboxes.clear()
        for outbox in outboxes:
            outbox.close()
        deadline = time.monotonic() + LINGER
        for outbox in outboxes:
            outbox.join(max(deadline - time.monotonic(), 0.0))
