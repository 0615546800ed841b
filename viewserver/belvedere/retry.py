"""Trying again, one way for everybody: how long in all (`Deadline`), how long between two tries (`Backoff`), and who
decides that there is another one (`Retry`).

    try ──returned──▶ done
     ▲ └──raised one of `on`──▶ is it wanted, is there time? ──no──▶ `Superseded`, or the error with what gave up
     └──────────pause, twice as long as the one before──────────yes─┘

Clock and sleep are given by whoever wants to be awake when something else happens, and by tests: nothing here waits
but through them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from belvedere import errors

T = TypeVar("T")
Now = Callable[[], float]
Sleep = Callable[[float], object]
"""Seconds. A true answer (`Event.wait` of what ends a process) says that there is no point in another try."""


class Superseded(Exception):
    """Nobody wants the result any more."""


class Deadline:
    """A moment by which a call must be done; None: it may take for ever. `renewable`: nobody asked for just this time,
    so it begins anew with every part of a long answer."""

    def __init__(self, seconds: float | None, *, renewable: bool = False, now: Now = time.monotonic) -> None:
        self.seconds, self.renewable = seconds, renewable
        self._now = now
        self._end = None if seconds is None else now() + seconds

    def progressed(self) -> None:
        """A part of what was asked for has come."""
        if self.renewable and self.seconds is not None:
            self._end = self._now() + self.seconds

    def left(self, most: float) -> float:
        return most if self._end is None else max(0.0, min(most, self._end - self._now()))

    @property
    def over(self) -> bool:
        return self._end is not None and self._now() >= self._end


class Backoff:
    """Pauses between tries: each is twice the one before, up to a limit."""

    def __init__(self, first: float = 0.05, longest: float = 2.0) -> None:
        self._first, self._longest = first, longest
        self._next = first

    def next(self) -> float:
        pause = self._next
        self._next = min(self._longest, pause * 2)
        return pause

    def reset(self) -> None:
        self._next = self._first


class Outage(Protocol):
    """Where people see why something is tried again."""

    def set(self, reason: str) -> None: ...
    def clear(self) -> None: ...


class Retry:
    """The tries of one thing. `run` makes them; who makes them itself, part by part, calls `failed` and `progressed`.

    `on`: errors after which there is another try; others pass. `wanted` is asked before each try. `what` names the
    thing in the error of one that has no time left. `outage` shows the error meanwhile."""

    def __init__(
        self,
        what: str = "",
        *,
        on: tuple[type[Exception], ...] = (errors.Unavailable,),
        deadline: Deadline | None = None,
        backoff: Backoff | None = None,
        wanted: Callable[[], bool] = lambda: True,
        outage: Outage | None = None,
        sleep: Sleep = time.sleep,
    ) -> None:
        self.on = on
        self._what, self._deadline, self._wanted, self._outage = what, deadline, wanted, outage
        self._backoff = Backoff() if backoff is None else backoff
        self._sleep = sleep

    def run(self, attempt: Callable[[], T]) -> T:
        while True:
            self.begin()
            try:
                result = attempt()
            except self.on as error:
                self.failed(error)
            else:
                self.succeeded()
                return result

    def begin(self) -> None:
        """Before a try."""
        if not self._wanted():
            raise Superseded

    def failed(self, error: Exception) -> None:
        """Pause before the next try; raises if there is none."""
        if self._outage is not None:
            self._outage.set(str(error))
        pause = self._backoff.next()
        if self._deadline is not None and self._deadline.left(pause) < pause:
            if not self._what:
                raise error
            raise type(error)(f"{self._what}: gave up after {self._deadline.seconds:g} s: {error}") from error
        if self._sleep(pause):
            raise error

    def progressed(self) -> None:
        """A part of it has come: time and pauses begin anew."""
        self._backoff.reset()
        if self._deadline is not None:
            self._deadline.progressed()

    def succeeded(self) -> None:
        if self._outage is not None:
            self._outage.clear()


def poll(
    condition: Callable[[], bool],
    deadline: Deadline,
    backoff: Backoff,
    sleep: Sleep = time.sleep,
) -> bool:
    """Until the condition holds, where nobody would tell; false if it did not in time."""
    while not condition():
        if deadline.over:
            return False
        sleep(deadline.left(backoff.next()))
    return True
