"""Which pools are due: each at most once at a time, soon after a change, later by itself, later still after errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from belvedere_operator.reconcile.resources import PoolKey

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 60.0
GATHER_S = 0.15
"""A file of manifests arrives one by one: what comes within this time is one round, and so one change of the pool."""
APART_S = 0.5
"""From the end of a round to the beginning of the next one: a long file is a few rounds, not hundreds."""


class Queue:
    """Keys with the time when they are due. A key that is being worked on is not given out again meanwhile."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: dict[PoolKey, float] = {}
        self._busy: set[PoolKey] = set()
        self._failures: dict[PoolKey, int] = {}
        self._ended: dict[PoolKey, float] = {}
        self._changed = threading.Condition()
        self._closed = False

    def add(self, key: PoolKey, after: float = GATHER_S) -> None:
        """An earlier time counts; a later one than what is planned does not."""
        at = self._clock() + after
        with self._changed:
            at = max(at, self._ended.get(key, at - APART_S) + APART_S)
            self._due[key] = min(at, self._due.get(key, at))
            self._changed.notify_all()

    def take(self) -> PoolKey | None:
        """The next that is due, when it is; None when there is nothing more to do."""
        with self._changed:
            while not self._closed:
                now = self._clock()
                ready = sorted((at, key) for key, at in self._due.items() if key not in self._busy)
                if ready and ready[0][0] <= now:
                    key = ready[0][1]
                    del self._due[key]
                    self._busy.add(key)
                    return key
                self._changed.wait(ready[0][0] - now if ready else None)
        return None

    def done(self, key: PoolKey, again_after: float | None) -> None:
        """A round went well; None: nothing is to be done until something changes."""
        with self._changed:
            self._busy.discard(key)
            self._failures.pop(key, None)
            ended = self._ended[key] = self._clock()
            if key in self._due:
                self._due[key] = max(self._due[key], ended + APART_S)
            self._changed.notify_all()
        if again_after is not None:
            self.add(key, again_after)

    def failed(self, key: PoolKey) -> float:
        """The pause until it is tried again, twice as long each time."""
        with self._changed:
            self._busy.discard(key)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self._changed.notify_all()
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (failures - 1))
        self.add(key, pause)
        return pause

    def __len__(self) -> int:
        with self._changed:
            return len(self._due)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
