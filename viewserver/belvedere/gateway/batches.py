"""Point reads that come at the same time are one call to the pool.

While a call is on its way, those that come meanwhile gather and go together with the next one. So a gateway that is
idle answers at once, and a busy one makes fewer calls, each for more rows: a call costs its pool and itself far more
than a row."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from belvedere.gateway.api import Answer, Call

AT_ONCE = 2
"""Calls on their way for one relation."""
MOST = 128

Together = Callable[[Sequence[Call]], Sequence[Answer | Exception]]
InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Batches:
    """In the event loop."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._waiting: dict[str, list[tuple[Call, asyncio.Future[Answer]]]] = {}
        self._working: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, relation: str, call: Call, together: Together) -> Answer:
        """The answer to a call, made together with others of the same relation."""
        place: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(relation, []).append((call, place))
        if self._working.get(relation, 0) < AT_ONCE:
            self._working[relation] = self._working.get(relation, 0) + 1
            task = asyncio.create_task(self._work(relation, together))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await place

    async def _work(self, relation: str, together: Together) -> None:
        try:
            while taken := self._take(relation):
                calls = [call for call, _ in taken]
                answers: Sequence[Answer | Exception]
                try:
                    answers = await self._in_thread(lambda calls=calls: together(calls))  # type: ignore[misc]
                except Exception as error:
                    answers = [error] * len(taken)
                for (_, place), answer in zip(taken, answers, strict=True):
                    if place.done():
                        continue  # nobody waits for it any more
                    if isinstance(answer, Answer):
                        place.set_result(answer)
                    else:
                        place.set_exception(answer)
        finally:
            self._working[relation] -= 1
            if not self._working[relation]:
                del self._working[relation]

    def _take(self, relation: str) -> list[tuple[Call, asyncio.Future[Answer]]]:
        waiting = self._waiting.get(relation, [])
        taken, rest = waiting[:MOST], waiting[MOST:]
        if rest:
            self._waiting[relation] = rest
        else:
            self._waiting.pop(relation, None)
        return taken
