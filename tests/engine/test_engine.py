"""The engine alone, without a store: random changes to base tables, every view against DuckDB after every epoch.

Views are also built in the middle of a history (beside running ones, in small pieces, with changes going on), and whole
engines are dumped and loaded, so that state which was taken over equals state which was lived through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.engine import Engine
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.graph import make, ordered
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.state.table import Table
from belvedere.plan.nodes import JoinNode, ViewNode
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import BIGINT, DOUBLE, STRING, Column

R = TableDef("r", (Column("k", BIGINT, False), Column("x", BIGINT), Column("f", DOUBLE), Column("s", STRING)), ("k",))
S = TableDef("s", (Column("j", BIGINT, False), Column("y", BIGINT), Column("v", DOUBLE)), ("j",))
CATALOG = Catalog({"r": R, "s": S})

QUERIES = {
    "projection": "SELECT k, f FROM r",
    "selection": "SELECT k, s FROM r WHERE f < 3.0 AND x IS NOT NULL",
    "aggregate": "SELECT x, count(*) AS n, sum(f) AS a, min(f) AS b, max(f) AS c, avg(f) AS d FROM r GROUP BY x",
    "strings": "SELECT x, min(s) AS a, max(s) AS b, count(DISTINCT s) AS c FROM r GROUP BY x",
    "filtered": "SELECT s, count(*) FILTER (WHERE f > 2.0) AS n, sum(DISTINCT x) AS t FROM r GROUP BY s",
    "having": "SELECT x, count(*) AS n FROM r GROUP BY x HAVING count(*) > 2",
    "total": "SELECT count(*) AS n, sum(f) AS t, max(s) AS m FROM r",
    "inner": "SELECT r.k, s.j, r.f, s.v FROM r JOIN s ON r.x = s.y",
    "by_key": "SELECT r.k, r.f, s.v FROM r JOIN s ON r.x = s.j",
    "left": "SELECT r.k, s.j, r.f, s.v FROM r LEFT JOIN s ON r.x = s.y",
    "left_if": "SELECT r.k, s.j, r.f, s.v FROM r LEFT JOIN s ON r.x = s.y AND s.v < r.f",
    "right": "SELECT r.k, s.j, r.f, s.v FROM r RIGHT JOIN s ON r.x = s.y",
    "right_if": "SELECT r.k, s.j, r.f, s.v FROM r RIGHT JOIN s ON r.x = s.y AND s.v < r.f",
    "full": "SELECT r.k, s.j, r.f, s.v FROM r FULL JOIN s ON r.x = s.y",
    "full_if": "SELECT r.k, s.j, r.f, s.v FROM r FULL JOIN s ON r.x = s.y AND s.v < r.f",
    "semi": "SELECT k, f FROM r WHERE x IN (SELECT y FROM s)",
    "exists": "SELECT k, f FROM r WHERE EXISTS (SELECT 1 FROM s WHERE s.y = r.x AND s.v < r.f)",
    "not_exists": "SELECT k, f FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.y = r.x)",
    "not_exists_if": "SELECT k, f FROM r WHERE NOT EXISTS (SELECT 1 FROM s WHERE s.y = r.x AND s.v < r.f)",
    "not_in": "SELECT k, f FROM r WHERE x NOT IN (SELECT y FROM s)",
    "self": "SELECT a.k AS ka, b.k AS kb FROM r a JOIN r b ON a.x = b.x WHERE a.k < b.k",
    "distinct": "SELECT DISTINCT x, s FROM r",
    "union": "SELECT k, f FROM r WHERE x = 1 UNION ALL SELECT j, v FROM s UNION ALL SELECT k, f FROM r",
    "join_of_groups": "SELECT g.x, g.n, s.v FROM (SELECT x, count(*) AS n FROM r GROUP BY x) g JOIN s ON g.x = s.y",
    "group_of_join": "SELECT s.y, sum(r.f) AS t, count(*) AS n FROM r JOIN s ON r.x = s.y GROUP BY s.y",
}


class World:
    """An engine, its views, and the same base tables in DuckDB."""

    def __init__(self, seed: int, threads: int = 1):
        self.rng = np.random.default_rng(seed)
        self.engine = Engine(threads=threads)
        self.tables: dict[ViewNode, Table] = {}
        self.rows: dict[str, dict[int, tuple[Any, ...]]] = {"r": {}, "s": {}}
        self.epoch = 1000
        self.clock = 1
        for table in (R, S):
            self.engine.add_table(table)

    def add(self, names: list[str], pieces: int | None = None) -> None:
        """Build views, with changes between the pieces if asked."""
        definitions = [ViewDef(n, QUERIES[n], bind_query(QUERIES[n], CATALOG)) for n in names]
        views = plan_views(CATALOG, definitions, self.engine.plan)
        for view in views:
            self.tables[view] = Table([c.type for c in view.schema])
        build = self.engine.build(views, self._rows_of)
        while (part := build.advance(pieces or 1 << 20)) is not None:
            self._take(part)
            if pieces is not None:
                self.change()
        self.engine.activate(build)

    def _rows_of(self, view: ViewNode) -> Iterator[Delta]:
        yield self.tables[view].rows()

    def _take(self, deltas: dict[ViewNode, ViewDelta]) -> None:
        for view, delta in deltas.items():
            assert not delta.quarantine
            for chunk in delta.chunks:
                self._check_consolidated(chunk)
                self.tables[view].apply(chunk)
            self.tables[view].end_epoch()

    @staticmethod
    def _check_consolidated(chunk: Delta) -> None:
        seen = {(w, lo, hi) for w, (lo, hi) in zip(chunk.weight.tolist(), chunk.id.tolist(), strict=True)}
        assert len(seen) == len(chunk)

    def change(self) -> None:
        """One epoch of random changes to one or both tables."""
        self.epoch += 1
        given = {}
        for table in (R, S):
            if self.rng.random() < 0.8:
                given[table.name] = self._changes(table, int(self.rng.integers(1, 12)))
        self._take(self.engine.step(self.epoch, given))

    def _changes(self, table: TableDef, count: int) -> Changes:
        rows, deletes = [], []
        known = self.rows[table.name]
        for _ in range(count):
            key = int(self.rng.integers(0, 25))
            group = None if self.rng.random() < 0.15 else int(self.rng.integers(0, 6))
            value = None if self.rng.random() < 0.1 else float(self.rng.integers(0, 8)) / 2
            text = None if self.rng.random() < 0.1 else "ab" * int(self.rng.integers(0, 3)) + chr(97 + key % 3)
            row = (key, group, value, text)[: len(table.columns)]
            delete = bool(self.rng.random() < 0.3)
            rows.append(row)
            deletes.append(delete)
            if delete:
                known.pop(key, None)
            else:
                known[key] = row
        columns = tuple(vec_of([r[i] for r in rows], c.type) for i, c in enumerate(table.columns))
        ts = np.arange(self.clock, self.clock + count, dtype=np.int64)
        self.clock += count
        return Changes(columns, (None,) * len(columns), np.array(deletes), ts)

    def check(self) -> None:
        """Every view equals its query over the rows that are there."""
        with duckdb.connect() as oracle:
            for table in (R, S):
                columns = list(zip(*self.rows[table.name].values(), strict=True)) or [()] * len(table.columns)
                arrays = [pa.array(c, t.type.arrow) for c, t in zip(columns, table.columns, strict=True)]
                oracle.register(table.name, pa.table(arrays, names=[c.name for c in table.columns]))
            for view, table in self.tables.items():
                want = oracle.execute(QUERIES[view.name]).fetchall()
                delta = table.rows()
                got = list(zip(*(to_pylist(c) for c in delta.columns[: view.visible]), strict=True))
                assert sorted(map(repr, got)) == sorted(map(repr, want)), view.name


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_equals_its_query_after_every_epoch(name: str) -> None:
    for seed in range(4):
        world = World(seed)
        world.add([name])
        world.check()
        for _ in range(12):
            world.change()
            world.check()


@pytest.mark.parametrize("name", QUERIES)
def test_a_view_built_among_running_ones_while_rows_change(name: str) -> None:
    world = World(seed=7)
    world.add(["aggregate", "left", "distinct"])
    for _ in range(6):
        world.change()
    if name not in ("aggregate", "left", "distinct"):
        world.add([name], pieces=3)
    world.check()
    for _ in range(6):
        world.change()
        world.check()


def test_all_views_at_once_on_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("belvedere.engine.engine.PARALLEL_ROWS", 1)
    world = World(seed=3, threads=2)
    world.add(list(QUERIES))
    for _ in range(25):
        world.change()
        world.check()
    world.engine.close()


def test_state_that_was_dumped_and_loaded_goes_on_as_before() -> None:
    world = World(seed=5)
    world.add(list(QUERIES))
    for _ in range(10):
        world.change()
    state = world.engine.dump_state()
    views = world.engine.plan.views
    fresh = Engine(threads=1)
    for table in (R, S):
        fresh.add_table(table)
        fresh.tables[table.name].load(world.engine.tables[table.name].dump())
    assert fresh.signature(views) == world.engine.signature(views)
    fresh.load_state(views, state)
    world.engine = fresh
    for _ in range(10):
        world.change()
        world.check()


def test_dropping_views_frees_what_nothing_else_uses() -> None:
    world = World(seed=6)
    world.add(["aggregate", "strings", "inner"])
    for _ in range(5):
        world.change()
    gone = [v for v in world.engine.plan.views if v.name != "strings"]
    world.engine.drop(gone)
    for view in gone:
        del world.tables[view]
    assert [v.name for v in world.engine.plan.views] == ["strings"]
    for _ in range(5):
        world.change()
        world.check()


def test_what_could_not_be_made_is_made_or_forgotten_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(seed=7)
    world.add(["aggregate"])
    world.change()

    def failing(task: Any, *rest: Any) -> Any:
        if isinstance(task, JoinNode):
            raise MemoryError
        return make(task, *rest)

    with monkeypatch.context() as patch:
        patch.setattr("belvedere.engine.engine.make", failing)
        with pytest.raises(MemoryError):
            world.add(["inner"])
    world.engine.abandon(world.engine._builds[0])
    assert set(world.engine.running) == set(ordered(world.engine.plan.views))
    del world.tables[next(view for view in world.tables if view.name == "inner")]
    world.add(["inner"])
    for _ in range(5):
        world.change()
        world.check()


def test_a_key_that_fans_out_spills_and_stays_exact(tmp_path: Any) -> None:
    """One row of s meets a million rows of r under a memory limit far below the size of the output."""
    engine = Engine(threads=1, memory_limit=1 << 20, spill_directory=tmp_path)
    for table in (R, S):
        engine.add_table(table)
    query = "SELECT s.y, sum(r.f) AS t, count(*) AS n FROM r JOIN s ON r.x = s.y GROUP BY s.y"
    joined = "SELECT r.k, s.j, r.f, s.v FROM r JOIN s ON r.x = s.y"
    definitions = [ViewDef("g", query, bind_query(query, CATALOG)), ViewDef("p", joined, bind_query(joined, CATALOG))]
    build = engine.build(plan_views(CATALOG, definitions, engine.plan), lambda view: iter(()))
    while build.advance(1000) is not None:
        pass
    engine.activate(build)
    count = 1_000_000
    keys = np.arange(count)
    rows = [vec_of([0], BIGINT).take(np.zeros(count, np.int64)), vec_of([1.5], DOUBLE).take(np.zeros(count, np.int64))]
    key = vec_of([0], BIGINT)
    key.data = keys
    texts = vec_of(["x"], STRING).take(np.zeros(count, np.int64))
    engine.step(1, {"r": Changes((key, *rows, texts), (None,) * 4, None, keys + 1)})
    one = tuple(vec_of([v], c.type) for v, c in zip((1, 0, 2.5), S.columns, strict=True))
    result = engine.step(2, {"s": Changes(one, (None,) * 3, None, np.array([count + 5]))})
    by_name = {view.name: delta for view, delta in result.items()}
    assert by_name["p"].rows == count
    assert by_name["p"].chunks.spilled
    assert sum(len(c) for c in by_name["p"].chunks) == count
    (group,) = by_name["g"].chunks
    assert [to_pylist(c) for c in group.columns][:3] == [[0], [1.5 * count], [count]]
    assert engine.budget.used <= 1 << 20
