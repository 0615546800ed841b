"""Shards over tables whose deletes take cells: the same bytes on any number of servers, and views as HBase's rules say,
those included that are built over rows that are open already."""

from __future__ import annotations

import random

import numpy as np
import pytest

from belvedere.engine.routing import BUCKETS
from belvedere.engine.viewrows import quarantine_table
from belvedere.plan import nodes
from belvedere.sql.catalog import Catalog
from tests.engine.shard.pool import Pool, ShardCatalog, StagedGroup, Written, plan
from tests.engine.state.test_cell_table import MODES, OPEN, TABLE, Change, batch, expected, random_change

CATALOG = Catalog({TABLE.name: TABLE})
QUERIES = {
    "all_rows": "SELECT k, a, b, c FROM t",
    "some": "SELECT k, b FROM t WHERE b >= 2 OR b IS NULL",
    "groups": "SELECT c, count(*) AS n, sum(b) AS b FROM t GROUP BY c",
}
EPOCHS = 10


def views_of(history: list[Change]) -> dict[str, list[tuple[object, ...]]]:
    """Rows that can be told, computed naively. Of groups: those that no open cell can change."""
    rows = {k: cells for k, (cells, doubt) in expected(history).items() if not doubt}
    whole = [(k, *cells) for k, cells in rows.items() if OPEN not in cells]
    some = [(k, cells[1]) for k, cells in rows.items() if cells[1] != OPEN and (cells[1] is None or cells[1] >= 2)]  # type: ignore[operator]
    return {"all_rows": sorted(whole, key=repr), "some": sorted(some, key=repr)}


def check(pool: Pool, views: tuple[nodes.ViewNode, ...], history: list[Change]) -> None:
    wanted = views_of(history)
    for view in views:
        if view.name in wanted:
            assert sorted(pool.rows(view), key=repr) == wanted[view.name], view.name


def lived(seed: int, servers: list[int]) -> list[Written]:
    views = plan(CATALOG, QUERIES)
    pool = Pool(np.random.default_rng(seed + 1000 * len(servers)), servers[0])
    pool.configure(ShardCatalog((TABLE,), (StagedGroup(1, views),)))
    rng, history, out = random.Random(seed), list[Change](), list[Written]()
    for epoch in range(1, EPOCHS + 1):
        if len(servers) > 1:
            pool.resize(servers[epoch % len(servers)])
        fresh = [random_change(rng, rng.randrange(10), MODES["loads"], keys=20) for _ in range(rng.randrange(25))]
        history += fresh
        half = len(fresh) // 2
        out.append(pool.epoch(epoch, {"t": [batch(part) for part in (fresh[:half], fresh[half:]) if part]}))
        check(pool, views, history)
    return out


@pytest.mark.parametrize("seed", range(3))
def test_any_number_of_servers_writes_the_same_bytes(seed: int) -> None:
    alone = lived(seed, [1])
    assert lived(seed, [3]) == alone
    assert lived(seed, [1, 4, 2]) == alone


@pytest.mark.parametrize("seed", range(3))
def test_views_are_built_over_rows_that_are_open(seed: int) -> None:
    rng = random.Random(seed)
    views = plan(CATALOG, QUERIES)
    pool = Pool(np.random.default_rng(seed), 2)
    pool.configure(ShardCatalog((TABLE,), ()))
    history = [random_change(rng, rng.randrange(10), MODES["versions"], keys=30) for _ in range(120)]
    pool.epoch(1, {"t": [batch(history)]})
    pool.configure(ShardCatalog((TABLE,), (StagedGroup(1, views),)))
    for epoch, first in enumerate(range(0, BUCKETS, BUCKETS // 4), 2):
        fresh = [random_change(rng, rng.randrange(10), MODES["versions"], keys=30) for _ in range(10)]
        history += fresh
        pool.epoch(epoch, {"t": [batch(fresh)]}, {1: (first, first + BUCKETS // 4)})
    check(pool, views, history)
    assert any(OPEN in cells for cells, _ in expected(history).values())
    (whole,) = [view for view in views if view.name == "all_rows"]
    failing = [k for k, (cells, _) in expected(history).items() if OPEN in cells]
    assert len(pool.store.rows(quarantine_table(whole))) == len(failing)
