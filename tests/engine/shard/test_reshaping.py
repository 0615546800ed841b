"""Catalogs that come, go, come back, and fail: a shard goes on as one that has just begun with that catalog would."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.shard.pool import Circuit, History, Pool, ShardCatalog, Written, plan
from tests.engine.test_engine import CATALOG, QUERIES, R, S

EPOCHS = 6


@pytest.mark.parametrize(
    ("kept", "dropped"),
    [
        ("aggregate", "left"),  # the rows of a join side come back beside groups that aggregates keep
        ("inner", "aggregate"),  # the other way round
        ("inner", "left_if"),  # what a join counts for rows comes back beside rows that another one keeps
        ("left", "full_if"),
        ("self", "exists"),
    ],
)
def test_epochs_that_are_done_again_with_the_catalog_before_a_drop(kept: str, dropped: str) -> None:
    for seed in range(3):
        assert _taken_back(seed, kept, dropped, forget=False) == _taken_back(seed, kept, dropped, forget=True)


def _taken_back(seed: int, kept: str, dropped: str, forget: bool) -> list[Written]:
    """What is written when the epoch that drops a view and the one before are given up and done again. `forget`: by
    a server that holds nothing any more."""
    views = plan(CATALOG, {name: QUERIES[name] for name in (kept, dropped)})
    before = ShardCatalog((R, S), (Circuit(1, views),))
    after = ShardCatalog((R, S), (Circuit(1, views[:1]),))
    pool, history = Pool(np.random.default_rng(seed), 1), History(seed, (R, S))
    pool.configure(before)
    written = [pool.epoch(1, {name: [history.changes(name, 60)] for name in ("r", "s")})]
    attempts = [{"s": [history.changes("s", 3)]}, {"s": [history.changes("s", 3)]}]
    for epoch, (catalog, changes) in enumerate(zip((before, after), attempts, strict=True), 2):
        pool.configure(catalog)
        pool.begin(epoch, changes, {})
        for stage in range(pool.shards[0].stages):
            pool.stage(stage)
        written.append(pool.finish()[1])
    pool.undo()
    if forget:
        pool.shards[0].evict()
    pool.configure(before)
    assert pool.epoch(2, attempts[0]) == written[1], "a repeated epoch wrote something else"
    written += [pool.epoch(epoch, history.step()) for epoch in range(3, EPOCHS)]
    return written
