"""DELTA of a table whose deletes take cells, as in HBase (`Deletes.CELLS`).

The rules are HBase's. A row lives while one of its columns has a cell. A delete masks a column up to a timestamp, or
the version of exactly one; the mask stays, and meets older puts that come later, until `collect`: the retention of a
row's tombstones counts from when the newest of them came. What is here follows from the set of changes, not from their
order, but for puts of one cell and timestamp, where the later one wins.

Two things cannot be known from the log, since only the newest version of a cell is kept here. A delete of that version
may uncover an older one: the cell is *open*, an error value until something decides, and a row with nothing else is
itself in doubt. And a put that a mask hides may live in HBase, if a major compaction took the delete away before. The
rows of both are in `to_read_again`.

Rows that were written whole, and of which nothing was deleted, cost what they cost in other tables; all others have a
side record (`kernels.cells`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import CellChange, Changes
from belvedere.engine.residency import distinct_ids
from belvedere.engine.state.delta_table import DeltaTable, PackedRows
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.images import BaseChange
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import cells as c
from belvedere.engine.state.kernels import merge as k
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.ragged import Ragged, fixed, join, nothing, where
from belvedere.engine.vec import Status, Vec
from belvedere.errors import Damaged
from belvedere.sql.catalog import Deletes, TableDef
from belvedere.types import BIGINT, Schema

_NO_KINDS = np.empty(0, np.uint8)
_NO_IDS = np.empty((0, 2), np.uint64)
_NODE_WORDS = 3


def new_table(table: TableDef, grain_us: int = 60_000_000) -> DeltaTable:
    """DELTA of a base table, with the rules that it asks for."""
    return CellTable(table, grain_us) if table.deletes is Deletes.CELLS else DeltaTable(table, grain_us)


class CellTable(DeltaTable):
    def __init__(self, table: TableDef, grain_us: int = 60_000_000) -> None:
        super().__init__(table, grain_us)
        self._counts = np.zeros(c.COUNTS, np.int64)
        self._side = Buffer(np.int64, c.HEAD + 2 * len(self._cells))
        self._nodes = Buffer(np.int64, _NODE_WORDS)
        self._was_open, self._touched_by_tombstones = np.empty(0, np.uint8), np.empty(0, np.int32)
        self.to_read_again = _NO_IDS
        """Ids of rows of the last batch that only the store can tell of."""

    @property
    def _records(self) -> np.ndarray:
        return self._side.array.reshape(-1, c.HEAD + 2 * len(self._cells))

    @property
    def _ports(self) -> tuple[np.ndarray, ...]:
        return self._side_of.array, self._records, self._side_free.array, self._counts, self._nodes.array

    # ------------------------------------------------------------------ changes

    def apply(self, changes: Changes, needed: Collection[int], now_us: int = 0) -> BaseChange:
        self._was_open, self._touched_by_tombstones = self._was_open[:0], self._touched_by_tombstones[:0]
        self.to_read_again = _NO_IDS
        change = super().apply(self._corrections_first(changes), needed, now_us)
        if self._counts[c.NODE_USED]:
            slots = self.slots_of(change.mentioned)  # what opens a cell once more changes no row
            out = np.empty(len(slots), np.int32)
            count = c.rows_with_open_cells(
                self._flag_bytes, self._side_of.array, self._records, self._nodes.array, plain(slots), out
            )
            self.to_read_again = np.concatenate([self.to_read_again, self._index.ids(out[:count])])
        self.to_read_again = distinct_ids(self.to_read_again) if len(self.to_read_again) else _NO_IDS
        return change

    def _corrections_first(self, changes: Changes) -> Changes:
        """Those that hold, in front; the others are left out. They hold for rows as they are before the batch: what it
        brings beside them is as new as the look at the store that they are made of, or newer."""
        if changes.kind is None or not (changes.kind == CellChange.FORGOTTEN).any():
            return changes
        at = np.flatnonzero(changes.kind == CellChange.FORGOTTEN)
        ids = hash_rows([changes.columns[i].take(at) for i in self._keys], len(at))
        slots = self._index.find(ids)
        holds = slots >= 0
        holds[holds] = self.digests(slots[holds]) == changes.ts[at[holds]]
        _, first = np.unique(slots[holds], return_index=True)  # two of one row say the same
        others = np.flatnonzero(changes.kind != CellChange.FORGOTTEN)
        return changes.take(np.concatenate([at[holds][np.sort(first)], others]))

    def digests(self, slots: np.ndarray, masks: bool = True, columns: Collection[int] | None = None) -> np.ndarray:
        """A number (int64) for what is known of each row: which cells it has, since when, what they are, up to where
        absent ones are masked. Equal here and for rows that come from a store, however wide the table was when they
        were written there. `masks`: without them, it is what a reader of the changes' source would see. `columns`: of
        these alone."""
        count = len(slots)
        slots = plain(slots.astype(np.int32))
        words = np.empty((2 * len(self._cells), count), np.int64)
        c.describe_cells(
            self._words, self._flag_bytes, self._side_of.array, self._records, self._nodes.array, slots,
            np.uint8(masks), words,
        )  # fmt: skip
        wanted = [(i, cell) for i, cell in enumerate(self._cells) if columns is None or cell in columns]
        described = []
        for (i, _), vec in zip(wanted, self._columns.gather(slots, [cell for _, cell in wanted]), strict=True):
            there = words[2 * i] != k.MIN
            if vec.status is not None:
                there &= vec.status == Status.VALUE
            described += [Vec(BIGINT, words[2 * i]), Vec(BIGINT, words[2 * i + 1])]
            described.append(Vec(vec.type, vec.data, there.astype(np.uint8)))
        return np.asarray(hash_rows(described, count)[:, 0].copy().view(np.int64))

    def shows(self, slots: np.ndarray, columns: Collection[int]) -> np.ndarray:
        """Mask of the rows that have a cell in one of these columns, or one of which that is open."""
        words = np.empty((2 * len(self._cells), len(slots)), np.int64)
        c.describe_cells(
            self._words, self._flag_bytes, self._side_of.array, self._records, self._nodes.array,
            plain(slots.astype(np.int32)), np.uint8(0), words,
        )  # fmt: skip
        wanted = [2 * i + j for i, cell in enumerate(self._cells) if cell in columns for j in (0, 1)]
        return np.asarray((words[wanted] != k.MIN).any(axis=0))

    def _merge(self, changes: Changes, ids: np.ndarray, *out: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int]]:
        count, index = len(changes), self._index
        masks = [changes.present[i] for i in self._cells]
        present = np.empty((len(self._cells), 0), np.uint8)
        if any(mask is not None for mask in masks):
            present = np.ones((len(self._cells), count), np.uint8)
            for i, mask in enumerate(masks):
                if mask is not None:
                    present[i] = mask
        kinds = _NO_KINDS if changes.kind is None else plain(changes.kind)
        used = int(self._counts[k.SIDE_USED]) + count
        self._side.reserve(used)
        self._side_free.reserve(used)
        versions = 0 if changes.kind is None else int(np.count_nonzero(changes.kind == c.DELETE_VERSION))
        self._nodes.reserve(int(self._counts[c.NODE_USED]) + versions * len(self._cells))
        cells = np.zeros((len(self._cells), count), np.uint8)
        index.reserve(count)
        self._side_of.reserve(index.limit + count)
        was_open, buried, masked = np.empty(count, np.uint8), np.empty(count, np.int32), np.empty(count, np.int64)
        rows, again, parts, tombs, hidden = c.merge_cells(
            index.entries, index.all_ids, index.free, index.ctl, self._words, self._flag_bytes, *self._ports,
            ids, plain(changes.ts), kinds, present, *out[:3], cells, *out[3:], was_open, buried, masked,
        )  # fmt: skip
        self._was_open, self._touched_by_tombstones = was_open[:rows], buried[:tombs]
        self.to_read_again = ids[masked[:hidden]]
        return cells, (rows, again, parts)

    def _end_batch(self, dead: np.ndarray, time_us: int) -> None:
        if len(dead):
            self._columns.release(dead, self._cells)
        buried = np.unique(self._touched_by_tombstones)
        if len(buried):
            self._records[self._side_of.array[buried], c.NUMBER] = self._add_tombstones(buried, time_us)

    def _errors_of_batch(self, before: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        codes = self.errors_at(there)
        if codes is None and not self._was_open.any():
            return None
        old = np.where(self._was_open[before == 1], np.uint8(Status.UNCOVERED), np.uint8(Status.VALUE))
        return old, np.ones(len(there), np.uint8) if codes is None else codes

    def errors_at(self, slots: np.ndarray) -> np.ndarray | None:
        if not self._counts[c.NODE_USED]:
            return None
        out = np.empty(len(slots), np.uint8)
        found = c.open_rows(
            self._flag_bytes, self._side_of.array, self._records, self._nodes.array,
            plain(slots.astype(np.int32)), out,
        )  # fmt: skip
        return np.where(out, np.uint8(Status.UNCOVERED), np.uint8(Status.VALUE)) if found else None

    def collect(self, horizon_us: int) -> int:
        """Forget tombstones of rows whose newest one came before the horizon; returns how many rows are gone."""
        gone = 0
        while self._tombstones and self._tombstones[0][0] < horizon_us:
            _, number, slots = self._tombstones.popleft()
            out = np.empty(len(slots), np.int32)
            count = c.forget_tombstones(
                self._words, self._flag_bytes, *self._ports, plain(slots.astype(np.int32)), number, out
            )
            if count:
                self._index.remove(self._index.ids(out[:count]))
                self._columns.release(out[:count], self._keys)
                gone += count
        return gone

    # ------------------------------------------------------------------ shape and upkeep

    def add_columns(self, columns: Schema) -> None:
        """More columns, after the others, in which no row has a cell."""
        self.order = None
        live = np.flatnonzero(self._flags(0, self.limit) == k.LIVE).astype(np.int32)
        old = self._packed_records(self._with_records())
        ts = self._timestamps(0, self.limit)[live].copy()
        slots = self._with_records()
        c.release_records(*self._ports, slots)
        cells = len(self._cells)
        for column in columns:
            self._cells.append(len(self.table.columns))
            self.table = replace(self.table, columns=(*self.table.columns, column))
            self._columns.add(column.type, null=True)
        self._side = Buffer(np.int64, c.HEAD + 2 * len(self._cells))
        self._counts[[k.SIDE_USED, k.SIDE_FREE]] = 0
        self._load_records(slots, old, cells)
        whole = np.full((len(live), c.HEAD + 2 * cells), k.MIN, np.int64)
        whole[:, c.NUMBER], whole[:, c.VERSIONS] = -1, 0
        whole[:, c.HEAD :: 2] = ts[:, None]
        self._load_records(live, fixed(whole), cells)
        self._flags(0, self.limit)[live] = k.MIXED

    def nbytes(self) -> int:
        used, free = int(self._counts[k.SIDE_USED]), int(self._counts[k.SIDE_FREE])
        side = self._side.nbytes(used) + self._side_free.nbytes(free) + self._nodes.nbytes(int(self._counts[5]))
        if used:
            side += self._side_of.nbytes(self.limit)
        tombs = sum(slots.nbytes for _, _, slots in self._tombstones)
        return self._index.nbytes() + self._columns.nbytes() + side + tombs

    def _with_records(self) -> np.ndarray:
        flags = self._flags(0, self.limit)
        return np.flatnonzero((flags == k.DEAD) | (flags == k.MIXED)).astype(np.int32)

    def _packed_records(self, slots: np.ndarray) -> Ragged:
        """Records as bytes; their handful is replaced by when its tombstones came (-1: none)."""
        sizes, starts = np.empty(len(slots), np.int64), np.empty(len(slots), np.int64)
        nodes = self._nodes.array
        total = c.measure_records(self._side_of.array, self._records, nodes, slots, sizes, starts)
        out = np.empty(total, np.int64)
        c.dump_records(self._side_of.array, self._records, nodes, slots, starts, out)
        times = {number: time_us for time_us, number, _ in self._tombstones}
        at = starts + c.NUMBER
        out[at] = [times.get(number, -1) for number in out[at].tolist()]
        data = plain(out).view(np.uint8) if total else np.zeros(1, np.uint8)
        return Ragged(8 * starts, 8 * (starts + sizes), data)

    def _load_records(self, slots: np.ndarray, records: Ragged, cells: int) -> None:
        """The inverse, for slots without records; their tombstones are added again."""
        if not len(slots):
            return
        words = records.words(np.int64)
        sizes = records.lengths // 8
        starts = np.cumsum(sizes) - sizes
        if (sizes < c.HEAD + 2 * cells).any() or cells > len(self._cells):
            raise Damaged(f"table {self.table.name}: a stored record of cells has a wrong size")
        used = int(self._counts[k.SIDE_USED]) + len(slots)
        self._side.reserve(used)
        self._side_free.reserve(used)
        self._nodes.reserve(int(self._counts[c.NODE_USED]) + len(words) // 2)
        came = words[starts + c.NUMBER]
        numbers = np.full(len(slots), -1, np.int64)
        for time_us in np.unique(came[came >= 0]):
            mine = came == time_us
            numbers[mine] = self._add_tombstones(slots[mine], int(time_us))
        c.load_records(*self._ports, slots, starts, words, numbers, cells)

    def _pack(self, slots: np.ndarray) -> Ragged:
        columns = list(self._columns.gather(slots, range(len(self.table.columns))))
        flags = self._flags(0, self.limit)[slots]
        dead, count, width = flags == k.DEAD, len(slots), len(self.table.columns)
        if dead.any():
            for i in self._cells:
                codes = columns[i].status
                codes = np.ones(count, np.uint8) if codes is None else codes
                columns[i] = Vec(columns[i].type, columns[i].data, np.where(dead, np.uint8(Status.NULL), codes))
        own = np.flatnonzero(dead | (flags == k.MIXED))
        came, cells = np.zeros(count, np.int64), nothing(count)
        if len(own):
            records = self._packed_records(slots[own].astype(np.int32))
            came[own] = records.data.view(np.int64)[records.starts // 8 + c.NUMBER]
            cells = Ragged(np.zeros(count, np.int64), np.zeros(count, np.int64), records.data)
            cells.starts[own], cells.stops[own] = records.starts, records.stops
        return join(
            [
                fixed(np.full(count, width, np.uint16)),
                self._codec(width).pack(columns, count, self.errors_at(slots)),
                fixed(self._timestamps(0, self.limit)[slots]),
                where(came, dead),
                cells,
            ]
        )

    def import_(self, values: object, horizon_us: int) -> None:
        super().import_(values, horizon_us)
        self.collect(horizon_us)

    def _adopt(self, rows: PackedRows) -> None:
        self.order = None
        count = len(rows.ts)
        slots, _ = self._index.insert(hash_rows([rows.columns[i] for i in self._keys], count))
        self._columns.reserve(self.limit)
        self._side_of.reserve(self.limit)
        self._columns.scatter(slots, rows.columns)
        dead, with_record = rows.dead, rows.cells.lengths > 0
        widths = rows.widths.astype(np.int64)
        young = ~with_record & (widths < len(self.table.columns))
        self._timestamps(0, self.limit)[slots] = rows.ts
        self._flags(0, self.limit)[slots] = np.where(dead, k.DEAD, np.where(with_record | young, k.MIXED, k.LIVE))
        self._counts[[k.ROWS, k.TOMBSTONES]] += [count - int(dead.sum()), int(dead.sum())]
        if dead.any():
            self._columns.release(slots[dead], self._cells)
        for width in np.unique(widths):
            cells = int(width) - len(self._keys)
            at = np.flatnonzero(with_record & (widths == width))
            self._load_records(slots[at], rows.cells.take(at), cells)
            at = np.flatnonzero(young & (widths == width))
            whole = np.full((len(at), c.HEAD + 2 * cells), k.MIN, np.int64)
            whole[:, c.NUMBER], whole[:, c.VERSIONS] = -1, 0
            whole[:, c.HEAD :: 2] = rows.ts[at, None]
            self._load_records(slots[at], fixed(whole), cells)

    def evict(self, slots: np.ndarray) -> None:
        self.order = None
        flags = self._flags(0, self.limit)
        dead = int((flags[slots] == k.DEAD).sum())
        c.release_records(*self._ports, slots[(flags[slots] == k.DEAD) | (flags[slots] == k.MIXED)].astype(np.int32))
        self._counts[[k.ROWS, k.TOMBSTONES]] -= [len(slots) - dead, dead]
        self._columns.release(slots)
        flags[slots] = k.ABSENT
        self._index.remove(self._index.ids(slots))
        self._index.end_epoch()

    def dump(self) -> pa.Table:
        return pa.table({"#packed": self._pack(self.slots()).arrow()})

    def load(self, dump: pa.Table) -> None:
        self._adopt(self.unpack(dump.column(0).combine_chunks()))
