"""Virtual time: a heap of things that will happen. Nothing waits, nothing runs in parallel, and ties are broken by age.

Times are whole microseconds since the beginning of the history; members see milliseconds (`Scheduler.clock`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

MS = 1_000
SECOND = 1_000_000
START_MS = 1_000_000
"""What clocks show when a history begins, in milliseconds: epochs are named by it."""

Action = Callable[[], None]


class Scheduler:
    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._heap: list[tuple[int, int, Action]] = []
        self._count = 0

    def at(self, time: int, action: Action) -> None:
        self._count += 1
        heapq.heappush(self._heap, (max(time, self.now), self._count, action))

    def after(self, delay: int, action: Action) -> None:
        self.at(self.now + delay, action)

    def clock(self) -> int:
        """The true time in milliseconds."""
        return START_MS + self.now // MS

    def run_until(self, time: int, done: Callable[[], bool] | None = None) -> bool:
        """Let things happen up to this time, or until `done` (asked after each of them); true if it is."""
        heap = self._heap
        while heap and heap[0][0] <= time:
            self.now, _, action = heapq.heappop(heap)
            self.steps += 1
            action()
            if done is not None and done():
                return True
        self.now = max(self.now, time)
        return False
