"""Random schemas, queries and histories: after every epoch, every view equals its query over the base tables.

Seeds are fixed, so a run is repeatable; a failure names its seed and the command that replays it and makes it small.
`BELVEDERE_HISTORIES` changes how many there are, `BELVEDERE_FIRST_SEED` where they start (to look for more).
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.oracle.duck import Oracle
from tests.properties.case import attempt, generate

HISTORIES = int(os.environ.get("BELVEDERE_HISTORIES", "2000"))
FIRST = int(os.environ.get("BELVEDERE_FIRST_SEED", "0"))
CHUNK = 25
"""Histories per test: enough to spread over processes, few enough to see where time goes."""
ALWAYS = 300
"""So many of them are in every run, the others in long ones."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle()
    yield made
    made.close()


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=() if first < FIRST + ALWAYS else pytest.mark.long)
        for first in range(FIRST, FIRST + HISTORIES, CHUNK)
    ],
)
def test_views_equal_recomputation_after_every_epoch(first: int, oracle: Oracle) -> None:
    seeds = range(first, min(first + CHUNK, FIRST + HISTORIES))
    print(f"seeds {seeds.start} to {seeds.stop - 1}")
    for seed in seeds:
        error = attempt(generate(seed), oracle)
        if error is not None:
            replay = f"python -m tests.properties.replay {seed}"
            raise AssertionError(f"seed {seed}: {error}\nreplay, and make it small: {replay}") from error
