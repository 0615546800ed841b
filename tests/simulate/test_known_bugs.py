"""The simulator has teeth: whichever rule is switched off, a history goes wrong soon."""

from __future__ import annotations

import pytest

from belvedere.simulate import bugs, runner

SEEDS = 200


@pytest.mark.parametrize("bug", bugs.BUGS)
def test_a_known_bug_is_caught(bug: str) -> None:
    caught = next(runner.run_many(0, SEEDS, bug), None)
    assert caught is not None, f"{bug}: {SEEDS} histories and nothing wrong"
    assert not runner.run(caught.seed).wrong, "the same history without the bug must be right"


def test_all_rules_have_a_bug() -> None:
    assert len(bugs.BUGS) == 15
