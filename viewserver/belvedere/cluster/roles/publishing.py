"""Committed epochs that are not published yet: a queue between the coordinator's loop and the thread that writes them.

A later epoch covers an earlier one, so when the store is slow most of them are never published. Those from which on
names mean something else always are (the catalog changes, a build is complete), and all in their order: so whoever was
told of any epoch finds what names meant in it in the newest published one up to it, as soon as a later one is there.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from belvedere.protocol.messages import EpochPlan
from belvedere.protocol.naming import Names, names_of

MOST = 256
"""Epochs that wait. Changes of the catalog need the store, too: while it is away there are hardly any."""


@dataclass(frozen=True)
class _Entry:
    plan: EpochPlan
    turn: bool
    """Whether it is the first one in which names mean what they do."""


class Unpublished:
    """Thread-safe. One thread publishes, while there is something: `add` tells when it has to begin."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._out: _Entry | None = None
        self._names: Names | None = None
        self._running = False

    def add(self, plan: EpochPlan) -> bool:
        """The epoch is committed. Whether somebody has to begin with `next`."""
        names = names_of(plan)
        with self._lock:
            turn, self._names = names != self._names, names
            if self._entries and (len(self._entries) >= MOST or not self._entries[-1].turn):
                turn = self._entries.pop().turn or turn
            self._entries.append(_Entry(plan, turn))
            begin, self._running = not self._running, True
            return begin

    def next(self) -> EpochPlan | None:
        """What to publish now; after that ask again. None: nothing, until `add` says so."""
        with self._lock:
            self._out = self._entries.popleft() if self._entries else None
            self._running = self._out is not None
            return None if self._out is None else self._out.plan

    def failed(self) -> None:
        """What `next` gave is not published, as far as is known."""
        with self._lock:
            if self._out is not None and (self._out.turn or not self._entries):
                self._entries.appendleft(self._out)
            self._out = None

    @property
    def waiting(self) -> bool:
        """Whether there is something that is not known to be published: also what `next` gave last, until it is asked
        again."""
        with self._lock:
            return bool(self._entries) or self._out is not None
