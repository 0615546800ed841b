"""Shards: the same history gives the same bytes on any number of servers, and views equal to their queries."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from belvedere.plan import nodes
from tests.engine.shard.pool import Circuit, History, Pool, ShardCatalog, Written, plan
from tests.engine.test_engine import CATALOG, QUERIES, R, S

EPOCHS = 8


def check_views(pool: Pool, views: tuple[nodes.View, ...], history: History, queries: dict[str, str]) -> None:
    """Every view equals its query over the rows that are there."""
    with duckdb.connect() as oracle:
        for name, table in history.tables.items():
            columns = list(zip(*history.rows[name].values(), strict=True)) or [()] * len(table.columns)
            arrays = [pa.array(c, t.type.arrow) for c, t in zip(columns, table.columns, strict=True)]
            oracle.register(name, pa.table(arrays, names=[c.name for c in table.columns]))
        for view in views:
            want = [_same_zeros(row) for row in oracle.execute(queries[view.name]).fetchall()]
            got = [_same_zeros(row) for row in pool.rows(view)]
            assert sorted(map(repr, got)) == sorted(map(repr, want)), view.name


def _same_zeros(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(v + 0.0 if isinstance(v, float) else v for v in row)


def lived(seed: int, servers: list[int], names: list[str], **options: object) -> list[Written]:
    """What every epoch of a history wrote, on these numbers of servers in turn."""
    queries = {name: QUERIES[name] for name in names}
    views = plan(CATALOG, queries)
    pool = Pool(np.random.default_rng(seed + 1000 * len(servers) + servers[0]), servers[0], **options)
    pool.configure(ShardCatalog((R, S), (Circuit(1, views),)))
    history = History(seed, (R, S))
    out = []
    for epoch in range(1, EPOCHS + 1):
        size = servers[epoch % len(servers)]
        if len(servers) > 1:
            pool.resize(size)
        out.append(pool.epoch(epoch, history.step()))
        check_views(pool, views, history, queries)
    return out


@pytest.mark.parametrize("name", QUERIES)
def test_one_view_on_any_number_of_servers(name: str) -> None:
    for seed in range(2):
        alone = lived(seed, [1], [name])
        assert lived(seed, [2], [name]) == alone
        assert lived(seed, [1, 3, 5, 2], [name]) == alone


@pytest.mark.parametrize("seed", range(3))
def test_all_views_together_on_changing_rings(seed: int) -> None:
    alone = lived(seed, [1], list(QUERIES))
    for servers in ([2], [5], [3, 1, 2, 5]):
        assert lived(seed, servers, list(QUERIES)) == alone
