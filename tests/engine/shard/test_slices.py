"""View groups that are built by slices, beside others and through ordinary epochs, hold what they would have held."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from belvedere.engine.shard import BUCKETS, quarantine_table, view_table
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, ViewDef
from tests.engine.shard.pool import History, Pool, ShardCatalog, StagedGroup, plan
from tests.engine.shard.test_shard import check_views
from tests.engine.test_engine import CATALOG, QUERIES, R, S

OVER = {
    "count_of_left": "SELECT k, count(*) AS n, sum(v) AS t FROM left GROUP BY k",
    "join_over": "SELECT a.x, a.n, s.j FROM aggregate a JOIN s ON a.x = s.y",
    "all_over": "SELECT count(*) AS c, sum(n) AS n FROM aggregate",
    "pick_over": "SELECT x, n FROM aggregate WHERE n > 1",
}
BASE = ["aggregate", "left"]


def build(
    seed: int, servers: int, names: list[str], cuts: int, torment: bool, late: bool = False
) -> tuple[list[object], Pool]:
    """A view group of base views in service, then one of the named views built in slices while rows change."""
    rng = np.random.default_rng(seed + 10 * servers + cuts)
    queries = QUERIES | OVER
    first = plan(CATALOG, {n: QUERIES[n] for n in BASE})
    catalog: Catalog = CATALOG
    for name in BASE:
        catalog = catalog.with_view(ViewDef(name, QUERIES[name], bind_query(QUERIES[name], CATALOG)))
    second = plan(catalog, {n: queries[n] for n in names}, first)
    over = tuple(v for v in first if any(n in OVER for n in names))
    pool = Pool(rng, servers)
    pool.late = late
    history = History(seed, (R, S))
    one = StagedGroup(1, first)
    pool.configure(ShardCatalog((R, S), (one,)))
    epoch = 0
    written: list[object] = []
    for _ in range(4):
        epoch += 1
        written.append(pool.epoch(epoch, history.step()))
    pool.configure(ShardCatalog((R, S), (one, StagedGroup(2, second, over))))
    steps = np.random.default_rng(seed)
    bounds = [0, *sorted(steps.choice(np.arange(1, BUCKETS), cuts - 1, replace=False).tolist()), BUCKETS]
    for start, stop in itertools.pairwise(bounds):
        epoch += 1
        changes = history.step()
        if torment and rng.random() < 0.5:
            pool.begin(epoch, changes, {2: (start, stop)})
            for stage in range(int(rng.integers(0, pool.shards[0].stages + 1))):
                pool.stage(stage)
            pool.undo()
            pool.resize(int(rng.integers(1, 4)))
        written.append(pool.epoch(epoch, changes, {2: (start, stop)}))
    texts = {name: _inlined(sql) for name, sql in queries.items()}
    pool.flush()
    check_views(pool, first + second, history, texts)
    for _ in range(4):
        epoch += 1
        written.append(pool.epoch(epoch, history.step()))
        pool.flush()
        check_views(pool, first + second, history, texts)
    assert not any(pool.store.rows(quarantine_table(v)) for v in first + second)
    assert all(view_table(v) in pool.store.tables or v.name not in BASE for v in first + second)
    return written, pool


def _inlined(sql: str) -> str:
    """Views by their queries, for DuckDB."""
    return sql.replace("FROM aggregate", f"FROM ({QUERIES['aggregate']})").replace(
        "FROM left ", f"FROM ({QUERIES['left']}) "
    )


@pytest.mark.parametrize("name", [n for n in [*QUERIES, *OVER] if n not in BASE])
def test_a_view_built_in_slices(name: str) -> None:
    alone, _ = build(1, 1, [name], 5, torment=False)
    other, _ = build(1, 3, [name], 5, torment=True)
    assert alone == other


@pytest.mark.parametrize("seed", range(3))
def test_views_over_views_built_in_slices(seed: int) -> None:
    names = [*OVER, "total", "inner"]
    alone, _ = build(seed, 1, names, 6, torment=False)
    other, _ = build(seed, 2, names, 6, torment=True)
    assert alone == other
    late, _ = build(seed, 2, names, 6, torment=False, late=True)
    assert alone == late
