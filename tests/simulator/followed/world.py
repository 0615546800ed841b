"""A simulated HBase table with its log, INPUT, and the DELTA that epochs make of it.

Rows live by the rules of `tests.oracle.hbase_rules`. Clients put and delete cells, some with timestamps of their own;
compactions forget deletes and what they masked; bulk loads and lost deletes bypass the log. Of the log a prefix is
durable in INPUT, and of INPUT each epoch takes a prefix of every source, in any order of the sources.

The product's loader and reloader run in this world's one thread. Whatever they ask of the outside is a moment at which
the world may go on (`step`), at which they may be killed, or at which somebody else does the same as they do.
"""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.keyvalues import KeyValues, encode
from belvedere.backend.hbase.wal import CellDecoder
from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import CommittedAt, TableWrite
from belvedere.engine.delta import Changes
from belvedere.engine.routing import concat_changes
from belvedere.engine.state.cell_table import CellTable
from belvedere.plan.table_names import delta_table
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceEntry, SourceId, WriterId
from belvedere.sql.catalog import Deletes, TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.types import BIGINT, Column
from tests.oracle.hbase_rules import Cell, HBaseRow, Kind

E = Encoding.LONG
ORIGIN = Origin("t", (StoredColumn(E), StoredColumn(E, "f", "a"), StoredColumn(E, "f", "b"), StoredColumn(E, "g", "c")))
TABLE = TableDef(
    "t",
    (Column("k", BIGINT, nullable=False), Column("a", BIGINT), Column("b", BIGINT), Column("c", BIGINT)),
    ("k",),
    deletes=Deletes.CELLS,
    origin=ORIGIN,
)
PLACES = (("f", "a"), ("f", "b"), ("g", "c"))
VERSIONS = {"f": 1 << 30, "g": 1 << 30}
REGION = SourceId("t/region")
EPOCHS_KEPT = 3


class Killed(Exception):
    """The process that was at work ends here."""


def key_of(row: int) -> bytes:
    return struct.pack(">q", row)


@dataclass
class Shape:
    """What happens at a step, by weight; and how often those at work are killed, or doubled."""

    write: float = 1.0
    delete: float = 0.5
    odd: float = 0.0
    """Share of what clients write with timestamps of their own."""
    ties: float = 0.2
    compaction: float = 0.1
    deliver: float = 1.5
    commit: float = 1.0
    killed: float = 0.0
    doubled: float = 0.0
    steps: int = 2
    """At a moment, on the average."""
    rows: int = 10


@dataclass
class World:
    random: random.Random
    shape: Shape
    effects: Counter[str] = field(default_factory=Counter)
    writing: bool = True

    def __post_init__(self) -> None:
        self.rows: dict[int, HBaseRow] = {}
        self.clock = 1000
        self.log: list[tuple[Cell, ...]] = []
        self.log_rows: list[int] = []
        self.durable = 0
        """Entries of the log that are in INPUT."""
        self.input: dict[SourceId, list[tuple[int, Changes]]] = {REGION: []}
        self.taken: dict[SourceId, int] = {REGION: 0}
        self.positions: dict[SourceId, Seq] = {}
        self.epoch = 0
        self.delta = CellTable(TABLE)
        self.store = FollowedStore(self)
        self.decoder = CellDecoder(TABLE)
        self.committed_to: Callable[[], None] = lambda: None
        """Called when an epoch is committed."""
        self.others: list[Any] = []
        """What somebody else may do in the middle of what is being done."""
        self.deep = 0

    # ------------------------------------------------------------------ HBase

    def write(self, row: int, cells: Sequence[Cell], logged: bool = True) -> None:
        self.rows.setdefault(row, HBaseRow(VERSIONS)).write(cells)
        if logged:
            self.log.append(tuple(cells))
            self.log_rows.append(row)

    def put(self, row: int, ts: int, places: Sequence[tuple[str, str]], logged: bool = True) -> None:
        value = self.random.randrange(1000)
        self.write(row, [Cell(f, q, ts, Kind.PUT, value) for f, q in places], logged)

    def delete(self, row: int, ts: int, place: tuple[str, str] | None, logged: bool = True) -> None:
        """Of one column, or of the row."""
        whole = [Cell(family, "", ts, Kind.DELETE_FAMILY) for family in VERSIONS]
        self.write(row, whole if place is None else [Cell(*place, ts, Kind.DELETE_COLUMN)], logged)

    def compact(self) -> None:
        for row in self.rows.values():
            row.major_compaction()

    def _timestamp(self) -> int:
        rng = self.random
        if rng.random() < self.shape.odd:
            return rng.randrange(1, 40)
        self.clock += 0 if rng.random() < self.shape.ties else rng.randrange(1, 4)
        return self.clock

    # ------------------------------------------------------------------ time goes on

    def moment(self) -> None:
        """Something that is at work asks for something of the outside."""
        rng, shape = self.random, self.shape
        for _ in range(rng.randrange(2 * shape.steps + 1)):
            self.step()
        if rng.random() < shape.killed:
            self.effects["killed"] += 1
            raise Killed
        if self.others and self.deep == 0 and rng.random() < shape.doubled:
            self.effects["doubled"] += 1
            self.deep += 1
            try:
                self.others[-1]()
            finally:
                self.deep -= 1

    def step(self) -> None:
        rng, shape = self.random, self.shape
        kinds = {"deliver": shape.deliver, "commit": shape.commit}
        if self.writing:
            kinds |= {"write": shape.write, "delete": shape.delete, "compact": shape.compaction}
        (kind,) = rng.choices(list(kinds), list(kinds.values()))
        row = rng.randrange(shape.rows)
        match kind:
            case "write":
                self.put(row, self._timestamp(), rng.sample(PLACES, rng.choice((1, 2, 3, 3))))
            case "delete":
                self.delete(row, self._timestamp(), rng.choice((None, None, *PLACES)))
            case "compact":
                self.compact()
                self.effects["compacted"] += 1
            case "deliver":
                self.deliver(rng.randrange(1, 5))
            case "commit":
                self.commit()

    def deliver(self, most: int = 1 << 30) -> None:
        for at in range(self.durable, min(len(self.log), self.durable + most)):
            changes = self._decoded(self.log_rows[at], self.log[at])
            self.input[REGION].append((at, changes))
            self.durable = at + 1

    def _decoded(self, row: int, cells: Sequence[Cell]) -> Changes:
        block = np.frombuffer(encode(key_values([(row, cell) for cell in cells])), np.uint8).copy()
        one = np.ones(1, np.int64)
        written, _, unreadable = self.decoder.decode(block, 0 * one, len(block) * one, len(cells) * one)
        assert not unreadable
        return written.resolve(TABLE)

    def push(self, runs: Sequence[tuple[SourceId, Sequence[SourceEntry]]]) -> None:
        """Entries of loads. Durable, and then whoever pushed them may be killed. It takes a while."""
        for _ in range(3):
            self.moment()
        for source, entries in runs:
            known = self.input.setdefault(source, [])
            self.taken.setdefault(source, 0)
            for entry in entries:
                if any(seq == entry.seq for seq, _ in known):
                    continue  # the filter knows it
                rows: Any = entry.rows
                written = rows.content.rows(rows.entry, rows.entry + 1)
                known.append((int(entry.seq), written.resolve(TABLE)))
        self.moment()

    def commit(self) -> None:
        """An epoch: some more of each source, the sources in any order."""
        parts = []
        for source in self.random.sample(sorted(self.input), len(self.input)):
            first = self.taken[source]
            stop = self.random.randint(first, len(self.input[source]))
            for seq, changes in self.input[source][first:stop]:
                parts.append(changes)
                self.positions[source] = Seq(seq)
            self.taken[source] = stop
        self._apply(parts)

    def commit_all(self) -> None:
        parts = []
        for source, entries in self.input.items():
            for seq, changes in entries[self.taken[source] :]:
                parts.append(changes)
                self.positions[source] = Seq(seq)
            self.taken[source] = len(entries)
        self._apply(parts)

    def _apply(self, parts: list[Changes]) -> None:
        self.epoch += 1
        if not parts:
            return
        if self.random.random() < 0.3:  # whoever computes this one has it from the store
            values = self.delta.export(self.delta.ids_at(self.delta.slots()))[1]
            self.delta = CellTable(TABLE)
            if len(values):
                self.delta.import_(values, 0)
        change = self.delta.apply(concat_changes(parts), (), 1000 * self.epoch)
        ids, values = self.delta.export(change.mentioned)
        order = np.lexsort((ids[:, 1], ids[:, 0]))
        write = TableWrite(delta_table("t"), np.ascontiguousarray(ids[order]), values.take(pa.array(order)))
        self.store.write(self.epoch, [write])
        if self.epoch > EPOCHS_KEPT:
            self.store.collect(self.epoch - EPOCHS_KEPT, 0)
        self.committed_to()

    def committed(self) -> CommittedAt:
        self.moment()
        return CommittedAt(self.epoch, dict(self.positions))

    def settle(self) -> None:
        """Everything reaches DELTA."""
        self.deliver()
        self.commit_all()

    # ------------------------------------------------------------------ what is compared

    def truth(self) -> dict[int, tuple[Any, ...]]:
        found = {}
        for row, cells in self.rows.items():
            there = cells.read()
            if there:
                found[row] = tuple(there[place][1] if place in there else None for place in PLACES)
        return found

    def shown(self) -> dict[int, tuple[Any, ...]]:
        delta, _ = self.delta.scan(0, 1 << 20, range(4))
        columns = [vec.to_arrow().to_pylist() for vec in delta.columns]
        return {row[0]: row[1:] for row in zip(*columns, strict=True)}


def key_values(cells: Sequence[tuple[int, Cell]]) -> KeyValues:
    return KeyValues(
        pa.array([key_of(row) for row, _ in cells], pa.binary()),
        pa.array([cell.family.encode() for _, cell in cells], pa.binary()),
        pa.array([cell.qualifier.encode() for _, cell in cells], pa.binary()),
        np.array([cell.ts for _, cell in cells], np.int64),
        np.array([cell.kind.value for _, cell in cells], np.uint8),
        pa.array([struct.pack(">q", cell.value) if cell.kind is Kind.PUT else b"" for _, cell in cells], pa.binary()),
    )


class ScannedCells:
    """`RpcCells`, as far as loads use it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def scan(
        self, table: str, start: bytes, stop: bytes | None, columns: Columns, *, raw: bool = False
    ) -> Iterator[KeyValues]:
        """Pieces of one to four rows; rows are as they are when their piece is read."""
        world = self._world
        assert raw and table == "t"
        at = start
        while True:
            world.moment()
            rows = sorted(row for row in world.rows if at <= key_of(row) and (stop is None or key_of(row) < stop))
            piece: list[tuple[int, Cell]] = []
            taken = world.random.randrange(1, 5)
            for row in rows[:taken]:
                piece += [(row, cell) for cell in _stored(world.rows[row], columns.family)]
            if piece:
                yield key_values(piece)
            if len(rows) <= taken:
                return
            at = key_of(rows[taken])


def _stored(row: HBaseRow, family: str) -> list[Cell]:
    """In HBase's order: by qualifier, newest first, deletes before puts, of equal ones the one written last only."""
    newest: dict[tuple[str, int, Kind], Cell] = {}
    for cell in row.cells:
        if cell.family == family:
            newest[cell.qualifier, cell.ts, cell.kind] = cell
    return sorted(newest.values(), key=lambda cell: (cell.qualifier, -cell.ts, -cell.kind.value))


class FollowedStore(MemoryStore):
    """INPUT as the world has it, and a moment before each document that is written."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        found = []
        for source, entries in self._world.input.items():
            for number, (seq, changes) in enumerate(entries):
                if number >= self._world.taken[source]:
                    id = ChunkId(WriterId("d"), number)
                    found.append(Chunk(id, source, Seq(seq), Seq(seq), len(changes)))
        return found

    def put_document(self, name: str, content: bytes) -> None:
        self._world.moment()
        super().put_document(name, content)
        self._world.moment()
