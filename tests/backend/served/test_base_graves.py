"""Tombstones of base rows stay as long as late changes may come, and no longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from belvedere.backend.served import base_rows
from belvedere.backend.served.base_rows import TOMBSTONE_RETENTION_US
from belvedere.backend.served.lmdb_store import LmdbStore
from tests.backend.served.base_rows import ORDERS, Change, changes_of
from tests.backend.served.test_recent import entries
from tests.backend.served.test_reopening import rows, wait_for

DAY = 86_400_000_000
LATER = TOMBSTONE_RETENTION_US + DAY


class Clock:
    def __init__(self) -> None:
        self.now = 100 * DAY

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[LmdbStore]:
    made = LmdbStore(tmp_path, clock=clock, collect_pause=0.0)
    made.base.create_table(ORDERS)
    yield made
    made.close()


def put(store: LmdbStore, *changes: Change, own_clock: bool = True) -> None:
    store.base.put("orders", changes_of(changes), own_clock=own_clock)
    store.base.flush()


def bury(store: LmdbStore) -> list[int]:
    """Returns how many rows, and notes of tombstones, there are."""
    store.base._rows.bury()
    return entries(store, "base_rows", "base_graves")


def test_rows_that_come_and_go_leave_nothing_behind(
    store: LmdbStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_rows, "_STEP_KEYS", 30)
    for round in range(5):
        numbers = range(100 * round, 100 * round + 100)
        put(store, *(Change(number, {"a": 1}) for number in numbers))
        put(store, *(Change(number, None) for number in numbers))
        assert entries(store, "base_rows", "base_graves") == [100, 100] and not rows(store.base)
        clock.now += LATER
        assert bury(store) == [0, 0]


def test_a_tombstone_stays_while_late_changes_may_come(store: LmdbStore, clock: Clock) -> None:
    put(store, Change(1, {"a": 1}, clock.now - 5), own_clock=False)
    put(store, Change(1, None, clock.now), own_clock=False)
    clock.now += TOMBSTONE_RETENTION_US - DAY
    assert bury(store) == [1, 1]
    put(store, Change(1, {"a": 2}, 100 * DAY - 1), own_clock=False)
    assert not rows(store.base)
    clock.now += 2 * DAY
    assert bury(store) == [0, 0]


def test_rows_that_live_again_or_died_again_are_not_touched(store: LmdbStore, clock: Clock) -> None:
    put(store, Change(1, None), Change(2, None), Change(3, None))
    clock.now += TOMBSTONE_RETENTION_US - DAY
    put(store, Change(1, {"a": 1}), Change(2, {"a": 2}))
    put(store, Change(2, None), Change(4, {"a": 4}))
    clock.now += 2 * DAY
    assert bury(store) == [3, 1] and rows(store.base) == {1: 1, 4: 4}
    clock.now += LATER
    assert bury(store) == [2, 0] and rows(store.base) == {1: 1, 4: 4}


def test_notes_of_a_dropped_table_go_as_well(store: LmdbStore, clock: Clock) -> None:
    put(store, Change(1, None), Change(2, {"a": 2}))
    store.base.drop_table("orders")
    wait_for(lambda: entries(store, "base_rows", "dropped") == [0, 0])
    clock.now += LATER
    assert bury(store) == [0, 0]


def test_the_store_buries_by_itself(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_rows, "_FLUSH_SECONDS", 0.01)
    store = LmdbStore(tmp_path, clock=clock)
    store.base.create_table(ORDERS)
    put(store, Change(1, None))
    clock.now += LATER
    wait_for(lambda: entries(store, "base_rows", "base_graves") == [0, 0])
    store.close()
