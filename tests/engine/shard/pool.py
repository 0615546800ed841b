"""A pool of shards in one process, over a store in dicts: histories on any number of servers, any ring, any order of
arrival, with attempts that are given up. What the epochs write must never depend on any of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.shard import (
    BUCKETS,
    Shard,
    ShardCatalog,
    StagedGroup,
    TableWrite,
    decode_view_rows,
    layout,
    route_changes,
    view_table,
)
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef

Written = dict[tuple[str, bytes], bytes | None]
"""What an epoch wrote, over all servers."""


VALUES = (0.5, 0.25, -0.0, 0.0, 1.5, 2.0, -7.25, 1024.0)
"""Doubles whose sums are exact however they are added."""


class MemoryStore:
    """Versioned tables in dicts."""

    most = 1 << 30
    """Values that are answered at a time."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, dict[int, bytes | None]]] = {}
        self.loads: list[tuple[str, int]] = []

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        ids = ids[: self.most]
        self.loads.append((table, len(ids)))
        rows = self.tables.get(table, {})
        return pa.array([_newest(rows.get(key.tobytes(), {}), below) for key in ids], pa.binary())

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        found = []
        for key, versions in self.tables.get(table, {}).items():
            value = _newest(versions, below)
            bucket = int(np.frombuffer(key, np.uint64)[0]) % BUCKETS
            if value is not None and first <= bucket < stop and (only is None or only[bucket]):
                found.append((key, value))
        for start in range(0, len(found), 7):
            part = found[start : start + 7]
            ids = np.frombuffer(b"".join(k for k, _ in part), np.uint64).reshape(-1, 2)
            yield ids, pa.array([v for _, v in part], pa.binary())

    def write(self, epoch: int, changes: Sequence[TableWrite]) -> None:
        for change in changes:
            rows = self.tables.setdefault(change.table, {})
            for key, value in zip(change.ids, change.values.to_pylist(), strict=True):
                rows.setdefault(key.tobytes(), {})[epoch] = value

    def rows(self, table: str, below: int = 1 << 60) -> dict[bytes, bytes]:
        found = {key: _newest(versions, below) for key, versions in self.tables.get(table, {}).items()}
        return {key: value for key, value in found.items() if value is not None}


def _newest(versions: Mapping[int, bytes | None], below: int) -> bytes | None:
    known = [v for v in versions if v < below]
    return versions[max(known)] if known else None


def random_ring(rng: np.random.Generator, servers: int) -> np.ndarray:
    return rng.integers(0, servers, BUCKETS).astype(np.uint16)


class Pool:
    """Shards with one ring; `epoch` does one epoch and returns all that was written."""

    def __init__(self, rng: np.random.Generator, servers: int, store: MemoryStore | None = None, **options: Any):
        self.rng = rng
        self.store = store or MemoryStore()
        self.options = options
        self.catalog = ShardCatalog((), ())
        self.committed = 0
        self.late = False
        self._unwritten: tuple[int, list[list[TableWrite]]] | None = None
        self.shards: list[Shard] = []
        self.owner = np.zeros(BUCKETS, np.uint16)
        self.resize(servers)

    def resize(self, servers: int) -> None:
        """Another ring, on as many servers; those that stay keep what they hold."""
        while len(self.shards) > servers:
            self.shards.pop(int(self.rng.integers(0, len(self.shards))))
        while len(self.shards) < servers:
            fresh = Shard(self.store, **self.options)
            fresh.configure(self.catalog)
            self.shards.append(fresh)
        self.owner = random_ring(self.rng, servers)
        for me, shard in enumerate(self.shards):
            shard.own(self.owner, me)

    def configure(self, catalog: ShardCatalog) -> None:
        self.catalog = catalog
        for shard in self.shards:
            shard.configure(catalog)

    def begin(
        self,
        number: int,
        changes: Mapping[str, Sequence[Changes]],
        slices: Mapping[int, tuple[int, int] | tuple[int, int, int]],
        dormant: Sequence[int] = (),
    ) -> None:
        """Begin an epoch on all servers; base batches arrive in a random order."""
        batches = []
        for name, pieces in changes.items():
            table = next(t for t in self.catalog.tables if t.name == name)
            for order, piece in enumerate(pieces):
                routed = route_changes(table, piece, self.owner)
                batches += [(target, (order, part), payload) for part, (target, payload, _) in enumerate(routed)]
        for shard in self.shards:
            shard.begin(number, slices, dormant=dormant)
        for at in self.rng.permutation(len(batches)):
            target, order, payload = batches[at]
            self.shards[target].receive(0, order, payload)

    def stage(self, stage: int) -> None:
        """Run a stage everywhere, in a random order of servers; what they send arrives in a random order."""
        sent = []
        for me in self.rng.permutation(len(self.shards)):
            for out in self.shards[me].run(stage):
                assert out.target != me and out.stage > stage
                sent.append(out)
        for at in self.rng.permutation(len(sent)):
            out = sent[at]
            self.shards[out.target].receive(out.stage, (int(self.rng.integers(0, 9)), 0), out.payload)

    def finish(self) -> tuple[list[list[TableWrite]], Written]:
        changes = [shard.finish() for shard in self.shards]
        written: Written = {}
        for me, mine in enumerate(changes):
            for change in mine:
                assert len(change.ids) == len(change.values)
                assert change.logged == change.table.startswith(("view ", "quarantine "))
                for key, value in zip(change.ids, change.values.to_pylist(), strict=True):
                    assert (change.table, key.tobytes()) not in written, "two servers wrote one row"
                    assert self.owner[int(key[0]) % BUCKETS] == me, f"{change.table}: a row is not where its owner is"
                    written[change.table, key.tobytes()] = value
        return changes, written

    def epoch(
        self,
        number: int,
        changes: Mapping[str, Sequence[Changes]],
        slices: Mapping[int, tuple[int, int] | tuple[int, int, int]] | None = None,
        dormant: Sequence[int] = (),
    ) -> Written:
        """One epoch. Its writes are durable at the end of it, or of the next one if the pool is `late`."""
        self.begin(number, changes, slices or {}, dormant)
        for stage in range(self.shards[0].stages):
            self.stage(stage)
        made, written = self.finish()
        self.flush()
        self._unwritten = (number, made)
        if not self.late:
            self.flush()
        return written

    def flush(self) -> None:
        """The writes of the last epoch become durable, and it is committed."""
        if self._unwritten is not None:
            number, made = self._unwritten
            self._unwritten = None
            for mine in made:
                self.store.write(number, mine)
            self.commit(number)

    def commit(self, number: int) -> None:
        self.committed = number
        for shard in self.shards:
            shard.persisted(number)
            shard.committed(number)

    def undo(self) -> None:
        for shard in self.shards:
            shard.undo(self.committed)

    def rows(self, view: nodes.ViewNode) -> list[tuple[Any, ...]]:
        """What readers see."""
        found = self.store.rows(view_table(view))
        ids = np.frombuffer(b"".join(found), np.uint64).reshape(-1, 2)
        delta = decode_view_rows(view, ids, pa.array(list(found.values()), pa.binary()))
        return list(zip(*(to_pylist(c) for c in delta.columns[: view.visible]), strict=True))


def plan(
    catalog: Catalog, queries: Mapping[str, str], existing: Sequence[nodes.ViewNode] = ()
) -> tuple[nodes.ViewNode, ...]:
    definitions = [ViewDef(name, sql, bind_query(sql, catalog)) for name, sql in queries.items()]
    return plan_views(catalog, definitions, nodes.Plan(tuple(existing)))


class History:
    """Random changes of base tables, and what the tables hold after each epoch. Many timestamps are equal to the one
    before: then a delete beats a put, and the later put the earlier."""

    def __init__(
        self, seed: int, tables: Sequence[TableDef], keys: int = 25, groups: int = 6, values: Sequence[float] = VALUES
    ):
        self.rng = np.random.default_rng(seed)
        self.tables = {t.name: t for t in tables}
        self.rows: dict[str, dict[Any, tuple[Any, ...]]] = {t.name: {} for t in tables}
        self.deleted: dict[str, dict[Any, int]] = {t.name: {} for t in tables}
        self.clock, self.ties = 1, np.random.default_rng([seed, 1])
        self.keys, self.groups, self.values = keys, groups, values

    def step(self, most: int = 12) -> dict[str, list[Changes]]:
        """The pieces of one epoch by table, in their order."""
        given: dict[str, list[Changes]] = {}
        for name in self.tables:
            for _ in range(int(self.rng.integers(0, 3))):
                given.setdefault(name, []).append(self.changes(name, int(self.rng.integers(1, most))))
        return given

    def changes(self, name: str, count: int) -> Changes:
        table, known = self.tables[name], self.rows[name]
        deleted = self.deleted[name]
        rows, deletes, times = [], [], []
        for _ in range(count):
            row = self._row(table)
            delete = bool(self.rng.random() < 0.3)
            self.clock += bool(self.ties.random() < 0.4)
            rows.append(row)
            deletes.append(delete)
            times.append(self.clock)
            if delete:
                known.pop(row[0], None)
                deleted[row[0]] = self.clock
            elif deleted.get(row[0], 0) < self.clock:
                known[row[0]] = row
        columns = tuple(vec_of([r[i] for r in rows], c.type) for i, c in enumerate(table.columns))
        return Changes(columns, (None,) * len(columns), np.array(deletes), np.array(times, np.int64))

    def _row(self, table: TableDef) -> tuple[Any, ...]:
        rng = self.rng
        key = int(rng.integers(0, self.keys))
        group = None if rng.random() < 0.15 else int(rng.integers(0, self.groups))
        value = None if rng.random() < 0.1 else float(rng.choice(self.values))
        text = None if rng.random() < 0.1 else "ab" * int(rng.integers(0, 3)) + chr(97 + key % 3)
        return (key, group, value, text)[: len(table.columns)]


__all__ = ["StagedGroup", "History", "MemoryStore", "Pool", "ShardCatalog", "Written", "layout", "plan", "random_ring"]
