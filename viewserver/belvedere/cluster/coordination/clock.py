"""The time that leases are measured with (`now`), and the time that a machine is told (`Clock`).

A machine is told milliseconds that never go back, and that do not stand still after a jump. A clock that is set forward
moves on at once. One that is set back cannot be followed without going back, so time goes on at half its speed until
the clock has caught up; if that would take long, the machine is thrown away instead (`lost`), and a new incarnation
begins with the clock as it is. A machine dates events by the last time that it was told; a process that was paused
tells the time before anything else (`overdue`), or what happens next would be dated before the pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FARTHEST_MS = 5_000
"""Farther behind than this is not caught up with: a leader's clock must not be off by more."""


def now() -> float:
    """Seconds; the clock that also runs while the machine sleeps, where there is one. Leases end meanwhile."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


OVERDUE_SECONDS = 0.3
"""Ticks come every tenth of a second; after a longer time without one the process was paused."""


class Clock:
    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        overdue: float = OVERDUE_SECONDS,
    ) -> None:
        self._wall, self._monotonic, self._overdue = wall, monotonic, overdue
        self._at = monotonic()
        self._now = wall() * 1000
        self.lost = False

    def now(self) -> int:
        at, wall = self._monotonic(), self._wall() * 1000
        passed, self._at = max(0.0, (at - self._at) * 1000), at
        self.lost = self.lost or self._now - wall > FARTHEST_MS
        self._now = max(wall, self._now + passed / 2)
        return int(self._now)

    def overdue(self) -> bool:
        """Whether the time was last asked for so long ago that the process must have been paused."""
        return self._monotonic() - self._at > self._overdue
