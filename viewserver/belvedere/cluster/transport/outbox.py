"""What a transport has queued for one peer, and the thread that delivers it.

    put ──▶ queue ──frame──▶ deliver ──returned──▶ removed from the queue
                     ▲           │
                     └──pause────┘ PeerUnavailable: the same frame again, in a while

An entry leaves the queue only when a delivery that held it has returned, so it arrives at least once; frames are
prefixes of the queue and are delivered one after the other, so entries arrive in order. Everything that was queued
while a frame was on its way goes into the next frame: the busier a peer is, the fewer deliveries an entry costs.

One thread per peer: a peer that does not answer holds up its own queue and nothing else.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from belvedere.retry import Backoff

FRAME_BYTES = 8 << 20
FRAME_ENTRIES = 1_000
REST_AFTER = 0.5
"""Seconds without anything to deliver after which a connection is given back."""
ENTRY_BYTES = 64
"""What an entry counts beside its bytes."""


@dataclass(frozen=True)
class OutboxEntry:
    """A message on its way. `number` grows with every message of a transport: receivers tell repeats by it."""

    number: int
    head: bytes
    payload: memoryview | None

    @property
    def size(self) -> int:
        return len(self.head) + (0 if self.payload is None else self.payload.nbytes) + ENTRY_BYTES


class OutboxLink(Protocol):
    """The way to one peer. Only `abandon` is called by other threads than the one that delivers."""

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        """Returns when the peer has received all entries; raises when it may not have."""

    def rest(self) -> None:
        """There is nothing to deliver for now, or for ever: give back what is costly."""

    def abandon(self) -> None:
        """Interrupt the delivery that is under way: nobody waits for it any more."""


class Outbox:
    def __init__(self, name: str, link: OutboxLink) -> None:
        self._link = link
        self._changed = threading.Condition()
        self._queue: deque[OutboxEntry] = deque()
        self._bytes = 0
        self._closed = False
        self._hurried = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, entry: OutboxEntry) -> None:
        with self._changed:
            if not self._closed:
                self._queue.append(entry)
                self._bytes += entry.size
                self._changed.notify_all()

    def backlog(self) -> int:
        return self._bytes

    def hurry(self) -> None:
        """The peer may be there again: do not wait for the end of the pause."""
        self._hurried.set()

    def trouble(self) -> str:
        """Why the last delivery failed; empty if it did not."""
        return self._trouble

    def close(self) -> None:
        """Drop what is queued. A delivery that is under way is interrupted, not waited for."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._bytes = 0
            self._changed.notify_all()
        self._hurried.set()
        self._link.abandon()

    def join(self, timeout: float) -> bool:
        """Wait for the thread of a closed outbox; False if its last delivery has not returned in time."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        pauses = Backoff(0.02, 2.0)
        while frame := self._next_frame():
            try:
                self._link.deliver(frame)
            except Exception as error:  # whatever it is: what was not received stays queued, and `trouble` tells
                self._trouble = str(error) or type(error).__name__
                self._hurried.wait(pauses.next())
                self._hurried.clear()
            else:
                self._trouble = ""
                pauses.reset()
                self._received(frame)
        self._link.rest()

    def _next_frame(self) -> list[OutboxEntry]:
        """The entries to deliver next; none when the outbox was closed."""
        if not self._await_entries(REST_AFTER):
            self._link.rest()
            self._await_entries(None)
        with self._changed:
            frame: list[OutboxEntry] = []
            size = 0
            for entry in itertools.islice(self._queue, FRAME_ENTRIES):
                size += entry.size
                if frame and size > FRAME_BYTES:
                    break
                frame.append(entry)
            return frame

    def _await_entries(self, timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._queue) or self._closed, timeout)

    def _received(self, frame: Sequence[OutboxEntry]) -> None:
        with self._changed:
            if self._closed:
                return
            for _ in frame:
                self._bytes -= self._queue.popleft().size
