"""Shards: the same history gives the same bytes on any number of servers, and views equal to their queries."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.shard import TableWrite
from belvedere.plan import nodes
from tests.engine.shard.pool import History, Pool, ShardCatalog, StagedGroup, Written, plan
from tests.engine.test_engine import CATALOG, QUERIES, R, S

EPOCHS = 8


def check_views(pool: Pool, views: tuple[nodes.ViewNode, ...], history: History, queries: dict[str, str]) -> None:
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


def lived(seed: int, servers: list[int], names: list[str]) -> list[Written]:
    """What every epoch of a history wrote, on these numbers of servers in turn."""
    queries = {name: QUERIES[name] for name in names}
    views = plan(CATALOG, queries)
    pool = Pool(np.random.default_rng(seed + 1000 * len(servers) + servers[0]), servers[0])
    pool.configure(ShardCatalog((R, S), (StagedGroup(1, views),)))
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


WIDE = (0.1, 0.3, -0.0, 1e17, -1e-17, 1e300, -1e300, 5e-324, float("inf"), float("nan"), 3.3)
"""Doubles whose sums reach every form of the accumulators."""


@pytest.mark.parametrize("seed", range(2))
def test_bytes_of_float_sums_depend_on_the_values_alone(seed: int) -> None:
    views = plan(CATALOG, {n: QUERIES[n] for n in ("aggregate", "total", "filtered", "group_of_join")})
    found = []
    for servers in (1, 2, 3):
        pool = Pool(np.random.default_rng(seed + servers), servers)
        pool.configure(ShardCatalog((R, S), (StagedGroup(1, views),)))
        history = History(seed, (R, S), values=WIDE)
        found.append([pool.epoch(e, history.step()) for e in range(1, 15)])
    assert found[0] == found[1] == found[2]


def tormented(seed: int, names: list[str], view_group: int = 1) -> tuple[list[Written], list[Written]]:
    """A history as it should be, and one with attempts given up at random moments, writes that become durable late,
    evictions, servers that begin empty, and rings that change."""
    views = plan(CATALOG, {n: QUERIES[n] for n in names})
    catalog = ShardCatalog((R, S), (StagedGroup(view_group, views),))
    plain = Pool(np.random.default_rng(seed), 1)
    plain.configure(catalog)
    history = History(seed, (R, S))
    epochs = [history.step() for _ in range(EPOCHS)]
    want = [plain.epoch(e, changes) for e, changes in enumerate(epochs, 1)]

    rng = np.random.default_rng(seed + 77)
    pool = Pool(rng, 3)
    pool.configure(catalog)
    got: dict[int, Written] = {}
    waiting: dict[int, list[list[TableWrite]]] = {}  # finished, but not durable
    epoch = 1
    while epoch <= EPOCHS:
        fate = rng.random()
        pool.begin(epoch, epochs[epoch - 1], {})
        stages = pool.shards[0].stages
        upto = int(rng.integers(0, stages)) if fate < 0.3 else stages
        for stage in range(upto):
            pool.stage(stage)
        if fate >= 0.3:
            made, written = pool.finish()
            assert written == got.setdefault(epoch, written), "a repeated epoch wrote something else"
            waiting[epoch] = made
            epoch += 1
        if fate < 0.45:  # the generation fails: everything open is done again
            for open_epoch in [e for e in waiting if rng.random() < 0.5]:  # a late write arrives all the same
                for changes in waiting[open_epoch]:
                    pool.store.write(open_epoch, changes)
            waiting = {}
            epoch = pool.committed + 1
            pool.undo()
            if rng.random() < 0.6:
                pool.resize(int(rng.integers(1, 5)))
        elif len(waiting) == 2 or rng.random() < 0.5:
            for durable in sorted(waiting):
                for changes in waiting.pop(durable):
                    pool.store.write(durable, changes)
                pool.commit(durable)
                if rng.random() < 0.5:
                    break
        if rng.random() < 0.2:
            for shard in pool.shards:
                shard.evict(float(rng.choice([0.3, 1.0])))
        if not waiting and rng.random() < 0.2:
            pool.resize(int(rng.integers(1, 5)))
    return want, [got[e] for e in range(1, EPOCHS + 1)]


@pytest.mark.parametrize("name", QUERIES)
def test_attempts_that_were_given_up_leave_no_trace(name: str) -> None:
    for seed in range(3):
        want, got = tormented(seed, [name])
        assert got == want


@pytest.mark.parametrize("seed", range(4))
def test_attempts_of_many_views_that_were_given_up_leave_no_trace(seed: int) -> None:
    want, got = tormented(seed, ["aggregate", "strings", "total", "left_if", "full_if", "exists", "self", "union"])
    assert got == want


def test_what_is_written_does_not_depend_on_views_that_were_dropped() -> None:
    """A server that saw the drop and one that came after it do the same epoch: state of one group, of several views."""
    queries = {name: QUERIES[name] for name in ("aggregate", "inner", "having")}
    views = plan(CATALOG, queries)
    written = []
    for comes_later in (False, True):
        pool = Pool(np.random.default_rng(4), 1)
        pool.configure(ShardCatalog((R, S), (StagedGroup(1, views),)))
        history = History(3, (R, S))
        for epoch in range(1, 4):
            pool.epoch(epoch, history.step())
        pool.configure(ShardCatalog((R, S), (StagedGroup(1, views[1:]),)))
        if comes_later:
            pool.shards[0].evict()
        written.append([pool.epoch(epoch, history.step()) for epoch in range(4, 8)])
    assert written[0] == written[1] and all(written[0])
