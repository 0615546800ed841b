"""Items that do not fit into memory come back from a file that has no name."""

from __future__ import annotations

from pathlib import Path

import pytest

from belvedere.spill import Budget, Spill, as_it_is


def spill(budget: Budget) -> Spill[bytes]:
    return Spill(budget, as_it_is, as_it_is)


def test_items_come_back_from_memory_and_from_the_file_as_often_as_wanted(tmp_path: Path) -> None:
    budget = Budget(25, tmp_path / "made when needed")
    items = [bytes([i]) * 10 for i in range(6)]
    spills = spill(budget)
    held = [spills.hold(item, len(item)) for item in items]
    assert (budget.used, budget.spills, budget.spilled_bytes) == (20, 4, 40)
    for _ in range(2):
        assert [spills.fetch(one) for one in reversed(held)] == items[::-1]
    assert list((tmp_path / "made when needed").iterdir()) == [], "the file has no name"


def test_what_is_released_makes_room_in_memory_and_on_the_disk(tmp_path: Path) -> None:
    budget = Budget(10, tmp_path)
    spills = spill(budget)
    first, second, third = (spills.hold(bytes(10), 10) for _ in range(3))
    spills.release(first)
    assert budget.used == 0
    spills.release(second)
    assert spills.spilled and spills.fetch(third) == bytes(10)
    spills.release(third)
    assert not spills.spilled, "nothing is in the file any more, so it is gone"
    assert spills.fetch(spills.hold(b"again", 5)) == b"again"


def test_several_share_a_budget_and_one_that_is_thrown_away_gives_it_back(tmp_path: Path) -> None:
    budget = Budget(10, tmp_path)
    one, other = spill(budget), spill(budget)
    one.hold(bytes(8), 8)
    held = other.hold(bytes(8), 8)
    assert other.spilled and not one.spilled
    del one
    assert budget.used == 0
    other.close()
    assert not other.spilled
    assert other.fetch(other.hold(bytes(8), 8)) == bytes(8) and budget.used == 8
    del held


def test_an_empty_item_is_an_item(tmp_path: Path) -> None:
    for limit in (0, -1):
        spills = spill(Budget(limit, tmp_path))
        held = spills.hold(b"", 0)
        assert spills.fetch(held) == b""
        spills.release(held)


def test_no_room_is_told_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    spills = spill(Budget(0, tmp_path / "file"))
    with pytest.raises(OSError):
        spills.hold(b"x", 1)
    assert not spills.spilled
