"""How fast rows are read that were there before: as fast as the views in service stay fresh.

An epoch takes what a load brings together with what the log brings, so how long a batch of the load takes from INPUT to
a commit is how old views get by it. A loader keeps so many batches on their way that this stays below a target: one
more after each batch that was in time, half as many after one that was late, never less than one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from belvedere.backend.seam import Committed, CommittedAt
from belvedere.errors import Unavailable
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.retry import Superseded

TARGET_S = 2.0
MOST = 16
"""Batches of one loader on their way: some tens of megabytes."""
_LOOK_S = 0.05


class CommittedView:
    """What is committed, asked for at most so often by all who wait in this process. Thread-safe."""

    def __init__(self, committed: Committed, every_s: float = _LOOK_S, now: Callable[[], float] = time.monotonic):
        self._committed, self._every, self._now = committed, every_s, now
        self._lock = threading.Lock()
        self._known, self._until = CommittedAt(-1, {}), -1.0

    def __call__(self) -> CommittedAt:
        with self._lock:
            if self._now() >= self._until:
                self._known = self._committed()
                self._until = self._now() + self._every
            return self._known


class LoadPace:
    """Of the batches of one source, in their order. `wait`: seconds to sleep; true ends the load."""

    def __init__(
        self,
        source: SourceId,
        committed: Committed,
        wait: Callable[[float], bool],
        target_s: float = TARGET_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._committed, self._wait, self._target, self._now = source, committed, wait, target_s, now
        self._under_way: deque[tuple[int, float]] = deque()
        self.window = 1

    def pushed(self, seq: int) -> None:
        """A batch is in INPUT. Returns when the next one may follow."""
        self._under_way.append((seq, self._now()))
        self._settle()
        while len(self._under_way) >= self.window:
            if self._wait(_LOOK_S):
                raise Superseded
            self._settle()

    def _settle(self) -> None:
        try:
            reached = self._committed().positions.get(self._source, START)
        except Unavailable:
            return  # asked again
        while self._under_way and self._under_way[0][0] <= reached:
            _, pushed = self._under_way.popleft()
            late = self._now() - pushed > self._target
            self.window = max(1, self.window // 2) if late else min(MOST, self.window + 1)


def wait_until_committed(
    wanted: dict[SourceId, Seq], alive: Callable[[], set[SourceId]], committed: Committed, wait: Callable[[float], bool]
) -> CommittedAt:
    """Until an epoch has all of these positions. `alive`: sources that somebody still knows; one that was forgotten
    meanwhile has ended and is committed."""
    while True:
        known = committed()
        behind = {source for source, seq in wanted.items() if known.positions.get(source, START) < seq}
        if not behind or not behind & alive():
            return known
        if wait(_LOOK_S):
            raise Superseded
