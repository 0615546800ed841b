"""The page of capability levels claims nothing without a test that is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "capability-levels.md").read_text()
STATES = ("here", "in part", "missing")


def rows() -> list[tuple[str, ...]]:
    """Level, item, state, how, shown by."""
    found, level = [], ""
    for line in PAGE.splitlines():
        if line.startswith("## "):
            level = line.removeprefix("## ").partition(":")[0]
        elif line.startswith("| ") and not line.startswith("| item |"):
            found.append((level, *[cell.strip() for cell in line.strip("|").split(" | ")]))
    return found


def test_every_level_has_items() -> None:
    assert {row[0] for row in rows()} == {f"Level {number}" for number in ("I", "II", "III", "IV", "V")}
    assert all(len(row) == 5 for row in rows())


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_what_is_claimed_has_a_test_and_what_is_missing_says_so(row: tuple[str, ...]) -> None:
    _, _, state, _, shown = row
    assert state in STATES
    if state == "missing":
        assert shown == "—"
        return
    files, names = re.findall(r"`(tests/[\w/]+\.py)`", shown), re.findall(r"`(test_\w+)`", shown)
    assert len(files) == len(names) == 1, shown
    assert f"def {names[0]}(" in (ROOT / files[0]).read_text(), f"{files[0]} has no {names[0]}"


def test_the_summary_is_that_of_the_tables() -> None:
    lacking = {row[0] for row in rows() if row[2] == "missing"}
    assert lacking == {"Level III", "Level V"}, "change the paragraph that begins with 'In short'"
