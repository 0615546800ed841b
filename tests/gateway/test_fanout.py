"""The ring of a subscribed view: where a subscriber that comes back joins, and when it is too late for that."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from belvedere.errors import SlowReader
from belvedere.gateway.databases import GatewayDatabase
from belvedere.gateway.fanout import Fanout


class Upstream:
    """A subscription on which nothing happens until it is closed."""

    epoch = 10

    def __init__(self) -> None:
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        self.closed.wait(30)
        return iter(())

    def close(self) -> None:
        self.closed.set()


class Database:
    def __init__(self) -> None:
        self.upstream = Upstream()
        self.db = self

    def subscribe(self, view: str, **_: object) -> Upstream:
        return self.upstream


async def ring(most: int = 1 << 20) -> Fanout:
    made = Fanout(cast(GatewayDatabase, Database()), "spend", most)
    await made.ready()
    return made


def told(made: Fanout, *epochs: int, size: int = 10) -> None:
    for epoch in epochs:
        made._append(epoch, f"{epoch}".encode().ljust(size))


async def rest(made: Fanout, place: int, reached: int = -1) -> list[int]:
    """What a subscriber at that place gets now."""
    found: list[int] = []
    async for data in made.follow(place, reached):
        found += [int(part) for part in data.split()]
        if found and found[-1] == made.position:
            return found
    return found


def test_who_comes_back_gets_what_came_after_and_nothing_twice() -> None:
    async def run() -> None:
        made = await ring()
        told(made, 20, 30, 40)
        for after, expected in ((10, [20, 30, 40]), (20, [30, 40]), (25, [30, 40]), (39, [40])):
            place = made.place_after(after)
            assert place is not None
            assert await rest(made, place) == expected
        assert made.place_after(40) == made.place_after(1000) == made.next_number
        assert made.place_after(9) is None, "the ring began at 10"
        made.stop()

    asyncio.run(run())


def test_who_was_told_of_an_epoch_before_the_ring_had_it_is_not_told_again() -> None:
    async def run() -> None:
        made = await ring()
        place = made.next_number
        told(made, 20, 30, 40)
        for reached, expected in ((19, [20, 30, 40]), (20, [30, 40]), (25, [30, 40]), (39, [40])):
            assert await rest(made, place, reached) == expected
        made.stop()

    asyncio.run(run())


def test_what_left_the_ring_is_not_skipped() -> None:
    async def run() -> None:
        made = await ring(most=50)
        place = made.place_after(10)
        told(made, *range(20, 100, 10))
        assert made.floor == 40, "five of ten bytes are kept: 50 to 90"
        assert made.place_after(30) is None and made.place_after(39) is None
        kept = made.place_after(40)
        assert kept is not None and await rest(made, kept) == [50, 60, 70, 80, 90]
        assert place is not None
        with pytest.raises(SlowReader, match="after epoch 40 are kept"):
            await rest(made, place)
        made.stop()

    asyncio.run(run())


def test_a_slow_one_gets_bounded_parts_and_others_are_not_affected() -> None:
    async def run() -> None:
        made = await ring(most=10 << 20)
        told(made, *range(20, 50), size=40_000)
        sizes = []
        async for data in made.follow(0, -1):
            sizes.append(len(data))
            if sum(sizes) == 30 * 40_000:
                break
        assert max(sizes) <= 64 << 10
        made.stop(ValueError("the end"))
        with pytest.raises(ValueError, match="the end"):
            async for _ in made.follow(made.next_number, -1):
                pass

    asyncio.run(run())
