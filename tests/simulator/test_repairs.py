"""Histories in which rows of the store are damaged and repaired, while members come and go and the same rows change."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulator import repairing, runner
from tests.simulator.history import History

SEEDS = range(20)


@pytest.fixture(scope="module")
def effects() -> Counter[str]:
    """Over all seeds, none of which goes wrong."""
    found: Counter[str] = Counter()
    for seed in SEEDS:
        history = History(seed, theme=repairing.THEME)
        try:
            found.update(history.run().effects)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return found


@pytest.mark.parametrize(
    ("effect", "least"),
    [
        ("damage: view, gone", 5),
        ("damage: view, extra", 2),
        ("damage: view, as before", 1),
        ("damage: view, another row's", 2),
        ("damage: state, gone", 2),
        ("damage: state, as before", 2),
        ("damage: delta, gone", 1),
        ("repair taken", 25),
        ("repair refused", 1),
        ("repair: look again", 10),
        ("repair: wrong rows of views", 20),
        ("repair: wrong rows of state", 20),
        ("repaired", 10),
    ],
)
def test_it_happens(effects: Counter[str], effect: str, least: int) -> None:
    assert effects[effect] >= least


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(10))
def test_no_history_goes_wrong(chunk: int) -> None:
    for seed in range(100 + 40 * chunk, 140 + 40 * chunk):
        outcome = runner.run(seed, theme=repairing.THEME)
        assert not outcome.wrong, f"seed {seed}: {outcome.wrong}"
