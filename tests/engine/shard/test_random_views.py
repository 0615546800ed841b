"""Random schemas, views and histories on pools of shards: rows and quarantine equal those of the one engine.

Each view is a view group of its own, built in slices while rows change; views read views of older view groups. The same
history on one server and on several that come and go writes the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.engine import Engine
from belvedere.engine.expr.literal import to_pylist
from belvedere.engine.operators.view import ViewDelta
from belvedere.engine.routing import concat_changes
from belvedere.engine.shard import BUCKETS, ShardCatalog, StagedGroup, decode_quarantine_rows, quarantine_table
from belvedere.engine.state.table import Table
from belvedere.model.rows import GivenRows
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.types_by_name import parse_type
from belvedere.types import Column
from tests.engine.shard.pool import Pool, Written
from tests.properties import case as cases
from tests.properties import test_quarantine as fallible
from tests.properties.histories import Histories, Write
from tests.properties.schemas import BaseTable

Epoch = tuple[list[tuple[str, str]], list[Write]]
"""Views that are created, then writes."""


def epochs_of(seed: int) -> tuple[Sequence[BaseTable], list[Epoch]]:
    """A generated case as epochs."""
    made = cases.generate(seed)
    out: list[Epoch] = []
    created: list[tuple[str, str]] = []
    writes: list[Write] = []
    known: set[str] = set()
    for step in made.steps:
        if isinstance(step, cases.View) and step.name not in known:
            known.add(step.name)
            created.append((step.name, step.sql.spark))
        elif isinstance(step, Write):
            writes.append(step)
        elif isinstance(step, cases.Check):
            out.append((created, writes))
            created, writes = [], []
    return made.tables, out


def failing_epochs_of(seed: int) -> tuple[Sequence[BaseTable], list[Epoch]]:
    rng = Random(seed)
    history = Histories(rng, fallible.TABLES)
    created = [(f"v{i}", fallible._view(rng).spark) for i in range(3)]
    created.append(("above", "SELECT count(*) AS n FROM v0"))
    return fallible.TABLES, [
        (created if e == 0 else [], list(history.epoch() if e else history.load())) for e in range(7)
    ]


class Reference:
    """The one engine, with tables of its views."""

    def __init__(self, tables: Sequence[TableDef]):
        self.engine = Engine(threads=1)
        for table in tables:
            self.engine.add_table(table)
        self.rows: dict[nodes.ViewNode, Table] = {}
        self.failed: dict[nodes.ViewNode, dict[bytes, int]] = {}
        self.ever_failed: set[bytes] = set()

    def add(self, view: nodes.ViewNode) -> None:
        self.rows[view], self.failed[view] = Table([c.type for c in view.schema]), {}
        build = self.engine.build([view], self._rows_of)
        while (part := build.advance(1 << 20)) is not None:
            self.take(part)
        self.engine.activate(build)

    def _rows_of(self, view: nodes.ViewNode) -> Iterator[Delta]:
        yield self.rows[view].rows()

    def take(self, deltas: dict[nodes.ViewNode, ViewDelta]) -> None:
        for view, delta in deltas.items():
            for chunk in delta.chunks:
                self.rows[view].apply(chunk)
            self.rows[view].end_epoch()
            for bad in delta.quarantine:
                for key, weight in zip(bad.delta.id, bad.delta.weight.tolist(), strict=True):
                    counts = self.failed[view]
                    counts[key.tobytes()] = counts.get(key.tobytes(), 0) + weight
                    self.ever_failed.add(key.tobytes())

    def visible(self, view: nodes.ViewNode) -> list[tuple[Any, ...]]:
        return list(zip(*(to_pylist(c) for c in self.rows[view].rows().columns[: view.visible]), strict=True))


class Replay:
    """One history on a pool, in lockstep with nothing: what it writes is compared afterwards."""

    def __init__(self, tables: Sequence[BaseTable], epochs: Sequence[Epoch]):
        self.tables = tuple(
            TableDef(t.name, tuple(Column(c.name, parse_type(c.type), c.name not in t.key) for c in t.columns), t.key)
            for t in tables
        )
        self.epochs = epochs

    def changes(self, clock: list[int], writes: Sequence[Write]) -> dict[str, list[Changes]]:
        out: dict[str, list[Changes]] = {}
        for write in writes:
            table = next(t for t in self.tables if t.name == write.table)
            made = GivenRows(table).mixed(list(write.rows), list(write.deletes))
            assert made is not None
            clock[0] += 1
            made.ts = np.full(len(made), write.ts or 1000 + clock[0], np.int64)
            out.setdefault(table.name, []).append(made)
        return out

    def views(self) -> list[list[tuple[StagedGroup, nodes.ViewNode]]]:
        """The view groups that each epoch adds."""
        catalog = Catalog({t.name: t for t in self.tables})
        known: list[nodes.ViewNode] = []
        out = []
        for created, _ in self.epochs:
            fresh = []
            for name, sql in created:
                definition = ViewDef(name, sql, bind_query(sql, catalog))
                (view,) = plan_views(catalog, [definition], nodes.Plan(tuple(known)))
                catalog = catalog.with_view(definition)
                leaves = tuple(v for v in known if v in nodes.topological(nodes.Plan((view,))))
                known.append(view)
                fresh.append((StagedGroup(len(known), (view,), leaves), view))
            out.append(fresh)
        return out

    def run(self, seed: int, servers: list[int], reference: Reference | None) -> list[Written]:
        return self.play(seed, servers, reference)[0]

    def run_pool(self, seed: int, servers: list[int]) -> Pool:
        """The pool at the end."""
        return self.play(seed, servers, None)[1]

    def play(self, seed: int, servers: list[int], reference: Reference | None) -> tuple[list[Written], Pool]:
        rng = np.random.default_rng(seed + len(servers))
        cuts = np.random.default_rng(seed)
        pool = Pool(rng, servers[0])
        view_groups: list[StagedGroup] = []
        pool.configure(ShardCatalog(self.tables, ()))
        clock, number, out = [0], 0, []
        for fresh, (_, writes) in zip(self.views(), self.epochs, strict=True):
            for view_group, view in fresh:
                view_groups.append(view_group)
                pool.configure(ShardCatalog(self.tables, tuple(view_groups)))
                middle = int(cuts.integers(1, BUCKETS))
                for span in ((0, middle), (middle, BUCKETS)):
                    number += 1
                    out.append(pool.epoch(number, {}, {view_group.number: span}))
                if reference is not None:
                    reference.add(view)
            number += 1
            if len(servers) > 1:
                pool.resize(servers[number % len(servers)])
            changes = self.changes(clock, writes)
            out.append(pool.epoch(number, changes))
            if reference is not None:
                reference.take(reference.engine.step(number, {n: concat_changes(c) for n, c in changes.items()}))
                for view_group in view_groups:
                    compare(pool, view_group.views[0], reference)
        return out, pool


def compare(pool: Pool, view: nodes.ViewNode, reference: Reference) -> None:
    got, want = sorted(map(_text, pool.rows(view))), sorted(map(_text, reference.visible(view)))
    assert got == want, view.name
    stored = pool.store.rows(quarantine_table(view))
    failed = {key for key, count in reference.failed[view].items() if count > 0}
    assert set(stored) == failed, f"quarantine of {view.name}"
    if stored:
        ids = np.frombuffer(b"".join(stored), np.uint64).reshape(-1, 2)
        rows = decode_quarantine_rows(view, ids, pa.array(list(stored.values()), pa.binary()))
        assert len(rows.code) == len(ids) and (rows.code > 1).all()


def _text(row: tuple[Any, ...]) -> str:
    return repr(tuple(v + 0.0 if isinstance(v, float) else v for v in row))


@pytest.mark.parametrize("seed", range(30))
def test_random_views_equal_those_of_one_engine(seed: int) -> None:
    replay = Replay(*epochs_of(seed))
    alone = replay.run(seed, [1], Reference(replay.tables))
    assert replay.run(seed, [3, 1, 2], None) == alone


@pytest.mark.parametrize("seed", range(20))
def test_rows_that_fail_are_in_quarantine_wherever_they_lie(seed: int) -> None:
    replay = Replay(*failing_epochs_of(seed))
    reference = Reference(replay.tables)
    alone = replay.run(seed, [1], reference)
    assert reference.ever_failed, "engine and pool have the sink in common: one that drops rows is alike in both"
    assert replay.run(seed, [2, 3], None) == alone
