"""How much may be at work: requests and subscriptions, of one caller and of all.

A request that finds no place waits in a queue, in order; one that finds no place in the queue is told to come back.
All of it is in the event loop, so nothing here needs a lock."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from dataclasses import dataclass

from belvedere.errors import OutOfTime, TooManyRequests


@dataclass(frozen=True, slots=True)
class Limits:
    """What docs/design/gateway.md calls the limits."""

    body_bytes: int = 64 << 20
    body_seconds: float = 30.0
    request_seconds: float = 60.0
    send_seconds: float = 30.0
    """How long a client may take nothing of what it is sent."""
    requests: int = 256
    requests_of_caller: int = 32
    queue: int = 256
    subscriptions: int = 10_000
    subscriptions_of_caller: int = 1_100
    connections: int = 20_000
    idle_seconds: float = 75.0
    change_bytes: int = 16 << 20
    threads: int = 32


class Places:
    """Places for requests."""

    def __init__(self, all: int, of_caller: int, queue: int) -> None:
        self._all, self._of_caller, self._queue = all, of_caller, queue
        self.busy = 0
        self._of: Counter[str] = Counter()
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, caller: str) -> bool:
        """Whether there is one now; if so, it is taken."""
        if self.busy >= self._all or self._of[caller] >= self._of_caller:
            return False
        self.busy += 1
        self._of[caller] += 1
        return True

    async def wait(self, caller: str, seconds: float) -> None:
        """Until there is one, which is taken."""
        if len(self._waiting) >= self._queue:
            raise TooManyRequests(
                f"{self.busy} requests are at work and {len(self._waiting)} wait; try again in a moment"
            )
        place = asyncio.get_running_loop().create_future()
        entry = (caller, place)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(seconds):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self.free(caller)  # it was given at the very moment
            elif entry in self._waiting:
                self._waiting.remove(entry)
            if isinstance(error, TimeoutError):
                raise OutOfTime(f"no place became free in {seconds:g} s: too many requests are at work") from None
            raise

    def free(self, caller: str) -> None:
        """Give a place back; the first in the queue who may have one gets it."""
        self.busy -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]
        for entry in list(self._waiting):
            if self.busy >= self._all:
                return
            if self._of[entry[0]] < self._of_caller:
                self._waiting.remove(entry)
                if not entry[1].done():
                    self.busy += 1
                    self._of[entry[0]] += 1
                    entry[1].set_result(None)


class Seats:
    """Places for subscriptions, which nobody waits for."""

    def __init__(self, all: int, of_caller: int) -> None:
        self._all, self._of_caller = all, of_caller
        self.taken = 0
        self._of: Counter[str] = Counter()

    def take(self, caller: str) -> None:
        if self.taken >= self._all:
            raise TooManyRequests(f"{self.taken} subscriptions are open, which is all that there may be", 5.0)
        if self._of[caller] >= self._of_caller:
            raise TooManyRequests(
                f"{caller!r} has {self._of[caller]} subscriptions open, which is all it may have", 5.0
            )
        self.taken += 1
        self._of[caller] += 1

    def free(self, caller: str) -> None:
        self.taken -= 1
        self._of[caller] -= 1
        if not self._of[caller]:
            del self._of[caller]
