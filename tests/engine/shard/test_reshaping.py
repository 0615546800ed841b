"""Catalogs that come, go, come back, and fail: a shard goes on as one that has just begun with that catalog would."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from belvedere.engine import shard as shard_module
from belvedere.engine.shard import BUCKETS
from tests.engine.shard.pool import History, Pool, ShardCatalog, StagedGroup, Written, plan
from tests.engine.shard.test_shard import check_views
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
    before = ShardCatalog((R, S), (StagedGroup(1, views),))
    after = ShardCatalog((R, S), (StagedGroup(1, views[:1]),))
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


@pytest.mark.parametrize("at", range(0, 24, 5))
@pytest.mark.parametrize("undone", [False, True])
def test_a_catalog_that_could_not_be_taken_is_taken_when_it_comes_again(
    monkeypatch: pytest.MonkeyPatch, at: int, undone: bool
) -> None:
    """`undone`: the epoch before, which is not committed, is given up in between and gets other rows."""
    old = plan(CATALOG, {name: QUERIES[name] for name in ("aggregate", "inner")})
    new = plan(CATALOG, {name: QUERIES[name] for name in ("left_if", "strings", "distinct", "total")})
    first = ShardCatalog((R, S), (StagedGroup(1, old),))
    second = ShardCatalog((R, S), (StagedGroup(1, old[1:]), StagedGroup(2, new)))
    made = shard_module.make
    written = []
    for fails in (False, True):
        pool, history = Pool(np.random.default_rng(4), 1), History(5, (R, S))
        pool.configure(first)
        pool.epoch(1, history.step(most=40))
        attempts = [history.step(most=40), history.step(most=40)]
        pool.begin(2, attempts[0], {})
        for stage in range(pool.shards[0].stages):
            pool.stage(stage)
        changes, _ = pool.finish()
        if fails:
            left = iter(range(at))

            def fail(*args: Any, left: Iterator[int] = left) -> Any:
                if next(left, None) is None:
                    raise MemoryError("no room")
                return made(*args)

            with monkeypatch.context() as patch:
                patch.setattr(shard_module, "make", fail)
                with pytest.raises(MemoryError):
                    pool.configure(second)
        if undone:
            pool.undo()
            pool.configure(first)
            written.append(pool.epoch(2, attempts[1]))
        else:
            pool.store.write(2, changes[0])
            pool.commit(2)
        pool.configure(second)
        written.append(pool.epoch(3, history.step(most=40), {2: (0, BUCKETS)}))
        written.append(pool.epoch(4, history.step(most=40)))
    assert written[: len(written) // 2] == written[len(written) // 2 :]


def test_a_shard_that_could_not_begin_begins_when_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it held was evicted, and the operators could not be made anew."""
    views = plan(CATALOG, {name: QUERIES[name] for name in ("aggregate", "inner")})
    pool, history = Pool(np.random.default_rng(4), 1, memory_limit=64), History(5, (R, S))
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, views),)))
    pool.epoch(1, history.step(most=40))
    with monkeypatch.context() as patch:
        patch.setattr(shard_module, "make", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            pool.begin(2, {}, {})
        pool.undo()
        with pytest.raises(ZeroDivisionError):
            pool.begin(2, {}, {})
    pool.epoch(2, history.step(most=40))
    check_views(pool, views, history, QUERIES)
