"""View groups computed anew from the rows of base tables have, byte for byte, what a pool has after any history."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from belvedere.cluster.roles.work import encode_keys
from belvedere.engine.delta import Changes
from belvedere.engine.expr.literal import vec_of
from belvedere.engine.recomputation import Means, Recipe, Recomputation, compute
from belvedere.engine.shard import BUCKETS
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import BIGINT, DOUBLE, STRING, Column
from tests.engine.shard.pool import History, MemoryStore, Pool, ShardCatalog, StagedGroup, plan
from tests.engine.shard.test_random_views import Replay, epochs_of, failing_epochs_of
from tests.engine.shard.test_slices import BASE, OVER
from tests.engine.test_engine import CATALOG, QUERIES, R, S

Rows = dict[str, dict[bytes, bytes]]


def recomputed(
    store: MemoryStore, catalog: ShardCatalog, groups: Collection[int], epoch: int, slices: int, below: bool = True
) -> Rows:
    recipe = Recipe(catalog, frozenset(groups), epoch, slices, below)
    found: Rows = {}
    for write in Recomputation(recipe, Means(store, encode_keys, model=store)).run():
        rows = found.setdefault(write.table, {})
        for key, value in zip(write.ids, write.values.to_pylist(), strict=True):
            assert key.tobytes() not in rows, f"{write.table}: a row comes twice"
            assert value is not None
            rows[key.tobytes()] = value
    return found


def stored(store: MemoryStore, below: int = 1 << 60) -> Rows:
    """All but DELTA."""
    tables = {name: store.rows(name, below) for name in store.tables if not name.startswith("delta ")}
    return {name: rows for name, rows in tables.items() if rows}


def check(pool: Pool, epoch: int, slices: int = 1, below: bool = True) -> None:
    pool.flush()
    wanted = stored(pool.store)
    found = recomputed(pool.store, pool.catalog, [g.number for g in pool.catalog.view_groups], epoch, slices, below)
    assert found.keys() == wanted.keys()
    for table in wanted:
        assert found[table] == wanted[table], table


def history_of(seed: int, names: list[str], steps: int = 8, **shape: int) -> tuple[Pool, int]:
    """Views of one group, and one over some of them, after random puts and deletes on two servers."""
    first = plan(CATALOG, {n: QUERIES[n] for n in dict.fromkeys([*BASE, *names])})
    catalog: Catalog = CATALOG
    for name in BASE:
        catalog = catalog.with_view(ViewDef(name, QUERIES[name], bind_query(QUERIES[name], CATALOG)))
    over = plan(catalog, OVER, first)
    leaves = tuple(view for view in first if view.name in BASE)
    pool = Pool(np.random.default_rng(seed), 2)
    groups = (StagedGroup(1, first), StagedGroup(2, over, leaves))
    pool.configure(ShardCatalog((R, S), groups))
    history = History(seed, (R, S), **shape)
    epoch = 0
    for _ in range(steps):
        epoch += 1
        pool.epoch(epoch, history.step(), {2: (0, BUCKETS), 1: (0, BUCKETS)} if epoch == 1 else {})
    return pool, epoch


@pytest.mark.parametrize("name", [n for n in QUERIES if n not in BASE])
def test_views_of_every_kind(name: str) -> None:
    pool, epoch = history_of(1, [name])
    check(pool, epoch, 1)
    check(pool, epoch, 5)
    check(pool, epoch, 3, below=False)


@pytest.mark.parametrize("seed", range(3))
def test_views_that_share_state(seed: int) -> None:
    pool, epoch = history_of(seed, list(QUERIES), 14)
    for slices in (1, 2, 13):
        check(pool, epoch, slices)


@pytest.mark.parametrize("seed", range(12))
def test_random_views(seed: int) -> None:
    for epochs in (epochs_of(seed), failing_epochs_of(seed)):
        replay = Replay(*epochs)
        pool = replay.run_pool(seed, [2, 1, 3])
        check(pool, pool.committed, 1)
        check(pool, pool.committed, 1 + seed % 4)


BIG = TableDef(
    "big", (Column("id", BIGINT, False), Column("g", BIGINT), Column("v", DOUBLE), Column("t", STRING)), ("id",)
)
BIG_CATALOG = Catalog({"big": BIG})
BIG_QUERIES = {
    "extremes": "SELECT g, min(v) AS a, max(t) AS b, count(DISTINCT v) AS c, sum(DISTINCT v) AS d FROM big GROUP BY g",
    "pairs": "SELECT a.id, b.id AS other FROM big a JOIN big b ON a.g = b.v",
    "lonely": "SELECT a.id, b.v FROM big a LEFT JOIN big b ON a.g = b.g AND a.v < b.v - 900",
}


def big_pool(seed: int, keys: int, steps: int) -> tuple[Pool, int]:
    views = plan(BIG_CATALOG, BIG_QUERIES)
    pool = Pool(np.random.default_rng(seed), 2)
    pool.configure(ShardCatalog((BIG,), (StagedGroup(1, views),)))
    history = History(seed, (BIG,), keys=keys, groups=2, values=tuple(float(i) for i in range(1000)))
    for epoch in range(1, steps + 1):
        # it grows, and shrinks again by most of it: groups whose pages are more than their rows would get now
        most = 700 if epoch < steps - 2 else 20
        changes = {"big": [history.changes("big", most)]} if epoch < steps - 2 else {"big": [_deletes(history)]}
        pool.epoch(epoch, changes, {1: (0, BUCKETS)} if epoch == 1 else {})
    return pool, steps


def _deletes(history: History) -> Changes:
    """Of a fifth of the rows that are there."""
    known = list(history.rows["big"])[::5]
    changes = history.changes("big", len(known))
    for key in known:
        history.rows["big"].pop(key, None)
    columns = (vec_of(known, BIGINT), *changes.columns[1:])
    return replace(changes, columns=columns, delete=np.ones(len(known), np.bool_))


def test_big_groups_have_the_pages_that_are_there() -> None:
    pool, epoch = big_pool(3, 3000, 9)
    assert any(" pages " in table for table in stored(pool.store))
    recipe = Recipe(pool.catalog, frozenset([1]), epoch)
    unled = Recomputation(recipe, Means(pool.store, encode_keys)).run()
    pages = {write.table: set(map(bytes, write.ids)) for write in unled if " pages " in write.table}
    there = {table: set(rows) for table, rows in stored(pool.store).items() if " pages " in table}
    assert pages != there, "the sizes alone give these pages, so nothing is shown"
    check(pool, epoch, 1)
    check(pool, epoch, 4)


def test_a_slice_gives_the_same_every_time() -> None:
    pool, epoch = history_of(5, list(QUERIES))
    recipe = Recipe(pool.catalog, frozenset([1, 2]), epoch, 3)
    means = Means(pool.store, encode_keys)
    for part in recipe.parts()[:1]:
        for number in range(3):
            given = []
            for _ in range(2):
                sent: list[bytes] = []
                writes = compute(recipe, part, number, iter(()), means, lambda out, to=sent: to.append(out.payload))
                given.append((sent, [(w.table, w.ids.tobytes(), w.values.to_pylist()) for w in writes]))
            assert given[0] == given[1]


@pytest.mark.parametrize("torment", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_view_group_computed_aside_takes_what_changed_since(seed: int, torment: bool) -> None:
    """It is computed at one epoch while rows change, begins slice by slice while rows change, and then holds what is
    right; also where servers come and go and attempts are given up, and for a view over a view."""
    rng = np.random.default_rng([seed, torment])
    below = plan(CATALOG, {n: QUERIES[n] for n in BASE})
    catalog: Catalog = CATALOG
    for name in BASE:
        catalog = catalog.with_view(ViewDef(name, QUERIES[name], bind_query(QUERIES[name], CATALOG)))
    aside = plan(catalog, {**{n: q for n, q in QUERIES.items() if n not in BASE}, **OVER}, below)
    pool = Pool(rng, 2)
    history = History(seed, (R, S), keys=200)
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, below),)))
    for epoch in range(1, 5):
        pool.epoch(epoch, history.step(60))
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, below), StagedGroup(2, aside, below))))
    since = 10
    pool.epoch(since, history.step(30), {2: (0, 0, since)}, dormant=[2])
    for epoch in range(20, 24):
        pool.epoch(epoch, history.step(30), {2: (0, 0, since)}, dormant=[2])
    recipe = Recipe(pool.catalog, frozenset([2]), since, 3, below=False)
    for write in Recomputation(recipe, Means(pool.store, encode_keys)).run():
        pool.store.write(since + 1, [write])
    epoch = 30
    bounds = [0, 1000, 1001, 9000, BUCKETS]
    for first, stop in itertools.pairwise(bounds):
        epoch += 1
        if torment:
            pool.begin(epoch, changes := history.step(30), {2: (first, stop, since)})
            for stage in range(int(rng.integers(0, pool.shards[0].stages + 1))):
                pool.stage(stage)
            pool.undo()
            pool.resize(int(rng.integers(1, 4)))
        else:
            changes = history.step(30)
        pool.epoch(epoch, changes, {2: (first, stop, since)})
    check(pool, epoch)
    for _ in range(3):
        epoch += 1
        pool.epoch(epoch, history.step(30))
    check(pool, epoch)
