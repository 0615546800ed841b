"""Many waiters are woken in rounds: all of them, and others get their turn between."""

from __future__ import annotations

import asyncio
import itertools

from belvedere.gateway import rounds
from belvedere.gateway.rounds import Rounds


def test_everybody_is_woken_and_others_get_their_turn_between() -> None:
    async def run() -> None:
        found, woken = Rounds(asyncio.get_running_loop()), 0

        async def one() -> None:
            nonlocal woken
            await found.wait()
            woken += 1

        tasks = [asyncio.create_task(one()) for _ in range(10 * rounds.AT_ONCE)]
        await asyncio.sleep(0)
        found.begin()
        seen = [woken]
        while woken < len(tasks):
            await asyncio.sleep(0)
            seen.append(woken)
        assert max(after - before for before, after in itertools.pairwise(seen)) <= rounds.AT_ONCE
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_news_during_a_round_is_a_round_of_its_own() -> None:
    async def run() -> None:
        found, told, news = Rounds(asyncio.get_running_loop()), 0, 0

        async def one() -> None:
            nonlocal told
            seen = 0
            while seen < 50:
                if seen == news:
                    await found.wait()
                else:
                    seen = news
            told += 1

        tasks = [asyncio.create_task(one()) for _ in range(100)]
        for number in range(1, 51):
            news = number
            found.begin()
            await asyncio.sleep(0 if number % 3 else 0.002)
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)
        assert told == 100

    asyncio.run(run())


def test_who_goes_away_while_it_waits_disturbs_nobody() -> None:
    async def run() -> None:
        found = Rounds(asyncio.get_running_loop())
        gone, there = asyncio.create_task(found.wait()), asyncio.create_task(found.wait())
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        found.begin()
        async with asyncio.timeout(20):
            await there
        found.begin()

    asyncio.run(run())


def test_a_round_rests_for_as_long_as_it_took() -> None:
    """Time is counted by a loop of its own: a round that took a second leaves a second to the others."""

    class Loop:
        def __init__(self) -> None:
            self.now, self.later = 0.0, list[tuple[float, object]]()

        def time(self) -> float:
            return self.now

        def call_soon(self, function: object) -> None:
            self.now += 1.0
            function()  # type: ignore[operator]

        def call_later(self, seconds: float, function: object) -> None:
            self.later.append((seconds, function))

        def create_future(self) -> asyncio.Future[None]:
            return made.create_future()

    made = asyncio.new_event_loop()
    loop = Loop()
    found = Rounds(loop)  # type: ignore[arg-type]
    found._waiting = [loop.create_future() for _ in range(2 * rounds.AT_ONCE)]
    found.begin()
    assert [seconds for seconds, _ in loop.later] == [2.0]
    found.begin()
    assert len(loop.later) == 1, "news during the rest waits for its end"
    loop.later[0][1]()  # type: ignore[operator]
    assert len(loop.later) == 2
    made.close()
