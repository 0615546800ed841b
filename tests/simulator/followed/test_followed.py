"""Loads and reloads in simulated histories: none goes wrong, and the judge notices when a rule is missing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulator.followed import bugs, history

SEEDS = 60
LONG_SEEDS = 5000
BUG_SEEDS = 100
FIRST = {
    "a correction in the order of its coming": 135,
    "corrected rows are not looked at again": 405,
    "scanned cells count as written": 435,
    "a reload does not wait for the log": 200,
}
"""Where to begin, if that saves many histories."""


def test_histories() -> None:
    effects: Counter[str] = Counter()
    corrected = 0
    for seed in range(SEEDS):
        outcome = history.run(seed)
        assert not outcome.wrong, f"seed {seed}: {outcome.wrong}"
        effects += outcome.effects
        corrected += outcome.corrected
    for effect in ("killed", "doubled", "lost delete", "bulk load", "compacted", "rows there before"):
        assert effects[effect] > 20, effects
    assert corrected > 20


@pytest.mark.long
def test_many_histories() -> None:
    wrong = [outcome for outcome in map(history.run, range(SEEDS, LONG_SEEDS)) if outcome.wrong]
    assert not wrong


@pytest.mark.parametrize("bug", bugs.BUGS)
def test_a_known_bug_is_caught(bug: str) -> None:
    first = FIRST.get(bug, 0)
    for seed in range(first, first + BUG_SEEDS):
        with bugs.switched_on(bug):
            outcome = history.run(seed)
        if outcome.wrong:
            break
    else:
        raise AssertionError(f"{bug}: {BUG_SEEDS} histories and nothing is wrong")
    assert "hbase has" in outcome.wrong
    assert not history.run(seed).wrong, "the same history without the bug must be right"


def test_histories_are_the_same_again() -> None:
    one, other = history.run(3), history.run(3)
    assert (one.effects, one.corrected) == (other.effects, other.corrected)
