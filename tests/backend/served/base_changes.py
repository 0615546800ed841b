"""Base rows for tests: a table, changes from Python values, the naive meaning of last-writer-wins, and what a pool that
takes the logs makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import SourceInfo, Store, TableWrite
from belvedere.cluster.roles.work import encode_keys
from belvedere.engine.delta import Changes, Delta
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.engine.viewrows import delta_table, export_table
from belvedere.model import chunks
from belvedere.protocol.exactly_once import START, ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, STRING, Column

ORDERS = TableDef("orders", (Column("id", BIGINT, False), Column("a", BIGINT), Column("b", STRING)), ("id",))
NEVER = -(2**62)
Cells = dict[str, Any]
"""Columns that a put writes; None instead of it: a delete."""


@dataclass(frozen=True)
class Change:
    key: int
    cells: Cells | None
    ts: int = 0


def changes_of(changes: Iterable[Change], table: TableDef = ORDERS) -> Changes:
    rows = list(changes)
    columns, present = [], []
    for column in table.columns:
        if column.name == "id":
            values = [row.key for row in rows]
            present.append(None)
        else:
            values = [(row.cells or {}).get(column.name) for row in rows]
            present.append(np.array([row.cells is not None and column.name in row.cells for row in rows], np.bool_))
        columns.append(Vec.from_arrow(pa.array(values, column.type.arrow), column.type))
    delete = np.array([row.cells is None for row in rows], np.bool_)
    ts = np.array([row.ts for row in rows], np.int64)
    return Changes(tuple(columns), tuple(present), delete if delete.any() else None, ts)


def keys_of(*keys: int) -> list[Vec]:
    return [Vec(BIGINT, np.array(keys, np.int64))]


def random_change(rng: random.Random, keys: int = 30, clock: int = 0) -> Change:
    key = rng.randrange(-keys // 2, keys // 2)
    if rng.random() < 0.25:
        return Change(key, None, clock)
    cells: Cells = {"a": rng.choice((None, rng.randrange(9))), "b": "x" * rng.randrange(5)}
    return Change(key, {name: cells[name] for name in cells if rng.random() < 0.7}, clock)


@dataclass
class Model:
    """Every cell with its timestamp."""

    live: dict[int, int] = field(default_factory=dict)
    dead: dict[int, int] = field(default_factory=dict)
    cells: dict[tuple[int, str], tuple[int, Any]] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        key, ts = change.key, change.ts
        if change.cells is None:
            self.dead[key] = max(ts, self.dead.get(key, NEVER))
            return
        self.live[key] = max(ts, self.live.get(key, NEVER))
        for name, value in change.cells.items():
            if ts >= self.cells.get((key, name), (NEVER, None))[0]:
                self.cells[key, name] = (ts, value)

    def rows(self, table: TableDef = ORDERS) -> list[dict[str, Any]]:
        found = []
        for key in sorted(self.live):
            dead = self.dead.get(key, NEVER)
            if self.live[key] > dead:
                row: dict[str, Any] = {"id": key}
                for column in table.columns[1:]:
                    ts, value = self.cells.get((key, column.name), (NEVER, None))
                    row[column.name] = value if ts > dead else None
                found.append(row)
        return found


class Logs(Protocol):
    """Base tables in this process, whatever keeps them."""

    def tables(self) -> dict[str, TableDef]: ...
    def sources(self) -> list[SourceInfo]: ...
    def read_log(self, source: SourceId, after: Seq, size: int, count: int) -> list[tuple[Seq, bytes]]: ...


def logged(base: Logs) -> list[Changes]:
    """What the logs hold, in the order of seqs."""
    tables = base.tables()
    logs = [(info, base.read_log(info.id, START, 1 << 30, 1 << 30)) for info in base.sources() if info.table in tables]
    found = []
    for info, entries in logs:
        piece = InputPiece(ChunkId(WriterId("w"), 1), info.id, START, Seq(2**62))
        for seq, payload in entries:
            found += [(seq, changes) for _, changes in chunks.decode(payload, piece, {info.table: tables[info.table]})]
    return [changes for _, changes in sorted(found, key=lambda one: one[0])]


def merged(base: Logs, table: TableDef = ORDERS) -> DeltaTable:
    """DELTA of a base table, the only one that there is: all that the logs hold."""
    delta = DeltaTable(table)
    for changes in logged(base):
        delta.apply(changes, ())
    return delta


def rows_of(base: Logs, table: TableDef = ORDERS) -> list[dict[str, Any]]:
    """The rows that follow from the logs, in the order of keys."""
    delta = merged(base, table)
    found = delta.scan(0, delta.limit, range(len(table.columns)))[0] if delta.limit else None
    columns = [] if found is None else [vec.to_arrow().to_pylist() for vec in found.columns]
    names = [column.name for column in table.columns]
    return sorted((dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)), key=lambda row: row["id"])


def take(store: Store, base: Logs, epoch: int = 1_780_000_000_000) -> None:
    """Write DELTA of `orders` as a pool would that takes all that the logs hold."""
    key = np.unique(np.concatenate([changes.columns[0].data for changes in logged(base)]))
    vecs = (Vec(BIGINT, key),)
    keyed = Delta(vecs, np.ones(len(key), np.int8), hash_rows(list(vecs), len(key)))
    ids, values, keys, hidden, _ = export_table(merged(base), keyed, encode_keys)
    store.write(epoch, [TableWrite(delta_table(ORDERS.name), ids, values, False, keys, hidden)])
