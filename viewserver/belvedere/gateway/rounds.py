"""Waking a thousand waiters without stopping everything else.

To write to a thousand subscribers takes tens of milliseconds. If all of them are woken at once, a request that needs
the event loop three times waits for three such rounds: writers then slow down with the number of subscribers. So some
are woken at a time, with a look at sockets between, and a round rests for as long as it took: half of the loop is for
the others. What comes meanwhile goes together in the next round, so subscribers lose no throughput by it."""

from __future__ import annotations

import asyncio
from collections import deque

AT_ONCE = 32


class Rounds:
    """In one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[asyncio.Future[None]] = []
        self._woken: deque[asyncio.Future[None]] = deque()
        self._busy = self._again = False
        self._began = 0.0

    async def wait(self) -> None:
        """Until the next round. Who has seen all there is waits; nothing can come between the look and the call."""
        place = self._loop.create_future()
        self._waiting.append(place)
        await place

    def begin(self) -> None:
        """There is news for all who wait, and for those who will wait until the round gets to them."""
        if self._busy:
            self._again = True
            return
        self._busy, self._again = True, False
        self._began = self._loop.time()
        self._woken.extend(self._waiting)
        self._waiting.clear()
        self._go_on()

    def _go_on(self) -> None:
        for _ in range(min(AT_ONCE, len(self._woken))):
            place = self._woken.popleft()
            if not place.done():  # it may have gone away
                place.set_result(None)
        self._loop.call_soon(self._go_on if self._woken else self._rest)

    def _rest(self) -> None:
        self._loop.call_later(self._loop.time() - self._began, self._over)

    def _over(self) -> None:
        self._busy = False
        if self._again:
            self.begin()
