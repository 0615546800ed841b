"""DELTA: the last image of each row of one base table, merged cell by cell by timestamp.

The newest write of a cell wins; of equal timestamps a delete beats a put and the later put beats the earlier (or the
greater value the smaller one, see `ties`). A delete
masks cells up to its timestamp and stays as a tombstone until `collect`, so that late puts cannot revive what it
masked. Rows that are written whole carry one timestamp; only rows written in part have timestamps per cell, in a side
table, until a whole put covers them again. How a change acts on a row is in `kernels.merge`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.residency import distinct_ids
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.images import BaseChange
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import merge as k
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.ordered import KeyOrder
from belvedere.engine.state.ragged import Ragged, fixed, join, nothing, segments, split, where
from belvedere.engine.state.ties import Standing, settle
from belvedere.engine.vec import Status, Vec, canonical, concat, nulls
from belvedere.errors import Damaged
from belvedere.sql.catalog import TableDef, Ties
from belvedere.types import Kind, Schema

__all__ = ["BaseChange", "DeltaTable"]

_DUMP_ROWS = 1 << 17
_NEVER = np.iinfo(np.int64).max
_NO_MASK = np.empty(0, np.bool_)
_STATUS_AFTER = np.array([0, 0, Status.NULL, Status.UNCOVERED], np.uint8)
"""Of a cell, by what a change does to it: keep, write, clear, open."""


@dataclass(slots=True)
class PackedRows:
    """Exported rows, decoded: `came` tells of tombstones (`dead`) when they came; `cells` are side records as bytes."""

    columns: tuple[Vec, ...]
    ts: np.ndarray
    dead: np.ndarray
    came: np.ndarray
    cells: Ragged
    widths: np.ndarray
    """How many columns the table had when a row was packed."""
    error: np.ndarray | None = None

    def take(self, index: np.ndarray) -> PackedRows:
        columns = tuple(c.take(index) for c in self.columns)
        error = None if self.error is None else self.error[index]
        cells, widths = self.cells.take(index), self.widths[index]
        return PackedRows(columns, self.ts[index], self.dead[index], self.came[index], cells, widths, error)


class DeltaTable:
    """Rows of one base table. Slots of rows stay until their tombstones are collected."""

    def __init__(self, table: TableDef, grain_us: int = 60_000_000) -> None:
        """`grain_us`: tombstones that come within one such span are forgotten together."""
        self.table, self._grain = table, grain_us
        self._index = HashIndex(extra=k.SLOT_WORDS - 2)
        self._columns = Columns([c.type for c in table.columns])
        self._keys = table.key_positions
        self._cells = [i for i in range(len(table.columns)) if i not in self._keys]
        self._counts = np.zeros(5, np.int64)
        self._side_of = Buffer(np.int32)
        self._side = Buffer(np.int64, 1 + len(self._cells))
        self._side_free = Buffer(np.int32)
        # Tombstones by the time of their coming, which may be long after their own timestamps: (end of the span,
        # number, slots). `_side_of`, which tombstones do not need otherwise, tells in which handful a slot died last.
        self._tombstones: deque[tuple[int, int, np.ndarray]] = deque()
        self._last_batch = 0
        self._codecs: dict[int, RowCodec] = {}
        self.order: KeyOrder | None = None
        """Rows in key order, if somebody reads them so."""

    def __len__(self) -> int:
        """Live rows."""
        return int(self._counts[k.ROWS])

    @property
    def tombstones(self) -> int:
        return int(self._counts[k.TOMBSTONES])

    @property
    def limit(self) -> int:
        """Every slot is below it."""
        return self._index.limit

    # ------------------------------------------------------------------ changes

    def apply(self, changes: Changes, needed: Collection[int], now_us: int = 0) -> BaseChange:
        """Merge changes in their order. `needed`: columns whose old images will be asked for. `now_us`: when they came,
        from which the retention of tombstones counts."""
        count = len(changes)
        changes = self._with_one_zero(changes)
        self._index.end_epoch()
        ids = hash_rows([changes.columns[i] for i in self._keys], count)
        if self.table.ties is Ties.VALUE and count and self._cells:
            changes = settle(changes, ids, self._cells, self._standing(ids, changes.ts))
        slots, whole, made, touched = (np.empty(count, np.int32) for _ in range(4))
        before, change, repeated = np.empty(count, np.uint8), np.empty(count, np.int64), np.empty(count, np.int64)
        cells = np.zeros((0, 0), np.uint8)
        known, parts, again, rows = len(self._index), 0, 0, 0
        if count:
            out = (slots, whole, made, touched, before, change, repeated)
            cells, (rows, again, parts) = self._merge(changes, ids, *out)
        touched, before, change = touched[:rows], before[:rows], change[:rows]
        after = np.empty(rows, np.uint8)
        live = int(k.untouch(self._flag_bytes, touched, after)) if rows else 0
        if again:
            k.last_changes(touched, change, slots, repeated[:again])
        self._columns.reserve(self.limit)
        wanted = [c for c in sorted(needed) if c not in self._keys]
        was = touched if before.all() else touched[before.view(np.bool_)]
        images = self._columns.gather(was, wanted)
        if len(self._index) > known:
            self._columns.scatter(made, [changes.columns[i] for i in self._keys], self._keys)
        if parts:
            self._write_parts(changes, slots, whole, cells)
        elif rows and self._cells:
            self._columns.scatter(whole, [changes.columns[i] for i in self._cells], self._cells)
        self._end_batch(touched[after == 0] if live < rows else touched[:0], -(-now_us // self._grain) * self._grain)
        if self.order is not None:
            self._note(self.order, touched, after)
        there = touched if live == rows else touched[after == 1]
        new = self._reader(there, wanted)
        old = dict(zip(wanted, images, strict=True))
        return BaseChange(
            changes.columns, frozenset(self._keys), ids, touched, before, after, change, old, new, whole=not parts,
            errors=self._errors_of_batch(before, there),
        )  # fmt: skip

    def _with_one_zero(self, changes: Changes) -> Changes:
        """-0.0 and 0.0 are one key, and which of them came first must not show in rows of views."""
        if not any(self.table.columns[i].type.kind is Kind.DOUBLE for i in self._keys):
            return changes
        columns = (canonical(column) if i in self._keys else column for i, column in enumerate(changes.columns))
        return replace(changes, columns=tuple(columns))

    def _end_batch(self, dead: np.ndarray, time_us: int) -> None:
        """`dead`: rows that the batch deleted."""
        if len(dead):
            self._columns.release(dead, self._cells)  # of their values only the key stays
            self._side_of.array[dead] = self._add_tombstones(dead, time_us)

    def _errors_of_batch(self, before: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Row errors of the old images (of rows that were live before) and of the new ones; None if there are none."""
        return None

    def errors_at(self, slots: np.ndarray) -> np.ndarray | None:
        """Row errors of live rows, as in `Delta`."""
        return None

    def _standing(self, ids: np.ndarray, ts: np.ndarray) -> Standing:
        """The rows that are there and may have cells of the change's time: no cell is newer than its row."""
        slots = self._index.find(ids)
        live = slots >= 0
        live[live] = self.live(slots[live]) & (self._timestamps(0, self.limit)[slots[live]] >= ts[live])
        at = slots[live]
        row = np.full(len(ids), -1, np.int64)
        row[live] = np.arange(len(at))
        written = np.repeat(self._timestamps(0, self.limit)[at][None, :], len(self._cells), axis=0)
        mixed = self._flags(0, self.limit)[at] == k.MIXED
        if mixed.any():
            written[:, mixed] = self._side.array.reshape(-1, 1 + len(self._cells))[self._side_of.array[at[mixed]], 1:].T
        return Standing(row, self._columns.gather(at, self._cells), written)

    def _note(self, order: KeyOrder, touched: np.ndarray, after: np.ndarray) -> None:
        order.removed(touched[after == 0], self.limit)
        order.written(touched[after == 1], self.limit)
        if order.hopeless(len(self)):
            self.order = None

    def _merge(self, changes: Changes, ids: np.ndarray, *out: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int]]:
        """The pass over the index; returns what happens to cells, and how many rows, repeats and parts there were."""
        count, index = len(changes), self._index
        masks = [changes.present[i] for i in self._cells]
        present = np.empty((len(self._cells), 0), np.uint8)
        if any(m is not None for m in masks):
            present = np.ones((len(self._cells), count), np.uint8)
            for i, mask in enumerate(masks):
                if mask is not None:
                    present[i] = mask
            self._side_free.reserve(int(self._counts[k.SIDE_USED]) + count)
            self._side.reserve(int(self._counts[k.SIDE_USED]) + count)
        cells = np.zeros((len(self._cells), count if present.size or self._counts[k.MIXED_ROWS] else 0), np.uint8)
        index.reserve(count)
        self._side_of.reserve(index.limit + count)
        delete = _NO_MASK if changes.delete is None else plain(changes.delete)
        slots, whole, made, touched, before, change, repeated = out
        counted = k.merge(
            index.entries, index.all_ids, index.free, index.ctl, self._words, self._flag_bytes,
            self._side_of.array, self._side.array.reshape(-1, 1 + len(self._cells)), self._side_free.array,
            self._counts, ids, plain(changes.ts), delete, present, slots, whole, made, cells, touched, before, change,
            repeated,
        )  # fmt: skip
        return cells, counted

    def _write_parts(self, changes: Changes, slots: np.ndarray, whole: np.ndarray, cells: np.ndarray) -> None:
        """Write column by column what the merge decided, whole rows and cells alike in the order of the changes."""
        for action, column in zip(cells, self._cells, strict=True):
            touched = (action != k.KEEP) | (whole >= 0)
            if not touched.any():
                continue
            vec = changes.columns[column]
            lost = action >= k.CLEAR
            if lost.any():
                vec = Vec(vec.type, vec.data, np.where(lost, _STATUS_AFTER[action], _codes(vec)))
            self._columns.scatter(np.where(touched, slots, np.int32(-1)), [vec], [column])

    def _reader(self, live: np.ndarray, wanted: Sequence[int]) -> Callable[[int], Vec]:
        """Reads columns of the rows at these slots, all that are wanted at once and only if one is asked for."""
        cache: dict[int, Vec] = {}

        def read(column: int) -> Vec:
            if column not in cache:
                columns = wanted if column in wanted else [column]
                cache.update(zip(columns, self._columns.gather(live, columns), strict=True))
            return cache[column]

        return read

    def _add_tombstones(self, dead: np.ndarray, time_us: int) -> int:
        """Rows got tombstones; returns the number of their handful."""
        at = len(self._tombstones)
        while at and self._tombstones[at - 1][0] > time_us:  # rows from a store may be older than the last
            at -= 1
        if at and self._tombstones[at - 1][0] == time_us:
            at -= 1
            _, number, slots = self._tombstones[at]
            self._tombstones[at] = (time_us, number, np.concatenate([slots, dead]))
        else:
            self._last_batch = number = (self._last_batch + 1) & 0x7FFFFFFF
            self._tombstones.insert(at, (time_us, number, dead))
        return number

    def collect(self, horizon_us: int) -> int:
        """Forget tombstones that came before the horizon; returns how many. Puts older than they were may then revive a
        row."""
        gone = []
        while self._tombstones and self._tombstones[0][0] < horizon_us:
            _, number, slots = self._tombstones.popleft()
            # Some rows live again; others died again later and are in a younger handful too.
            died = (self._flags(0, self.limit)[slots] == k.DEAD) & (self._side_of.array[slots] == number)
            gone.append(slots[died])
        dead = np.unique(np.concatenate(gone)) if gone else np.empty(0, np.int32)
        if len(dead):
            self._index.remove(self._index.ids(dead))
            self._columns.release(dead, self._keys)
            self._flags(0, self.limit)[dead] = k.ABSENT
            self._counts[k.TOMBSTONES] -= len(dead)
        return len(dead)

    # ------------------------------------------------------------------ reads

    def scan(self, start: int, count: int, columns: Sequence[int]) -> tuple[Delta, int | None]:
        """Live rows of the slots [start, start + count) with weight +1, and where to go on (None: that was all)."""
        stop = min(start + count, self.limit)
        slots = (start + np.flatnonzero(self._flags(start, stop) & 1)).astype(np.int32)
        rows = self._columns.gather(slots, columns)
        delta = Delta(rows, np.ones(len(slots), np.int8), self._index.ids(slots), self.errors_at(slots))
        return delta, stop if stop < self.limit else None

    def get(self, id: np.ndarray) -> tuple[Any, ...] | None:
        """The live row of one id (uint64[2]) as Python values."""
        slot = self._index.find_one(id)
        if slot < 0 or not self._flags(slot, slot + 1)[0] & 1:
            return None
        return self._columns.row(slot)

    def live(self, slots: np.ndarray) -> np.ndarray:
        """Mask of slots that have a live row."""
        return np.asarray(self._flags(0, self.limit)[slots] & 1 == 1)

    def live_slots(self) -> np.ndarray:
        """Slots of live rows, ascending."""
        return np.flatnonzero(self._flags(0, self.limit) & 1).astype(np.int32)

    def gather(self, slots: np.ndarray, columns: Sequence[int]) -> tuple[Vec, ...]:
        """Columns of the rows at these slots."""
        return self._columns.gather(slots, columns)

    @property
    def _words(self) -> np.ndarray:
        """The index's words by slot, flat: id, timestamp, state."""
        return self._index.all_ids.reshape(-1).view(np.int64)

    @property
    def _flag_bytes(self) -> np.ndarray:
        return self._index.all_ids.reshape(-1).view(np.uint8)

    def _flags(self, start: int, stop: int) -> np.ndarray:
        return self._flag_bytes.reshape(-1, 8 * k.SLOT_WORDS)[start:stop, k.FLAG_BYTE]

    def _timestamps(self, start: int, stop: int) -> np.ndarray:
        return self._words.reshape(-1, k.SLOT_WORDS)[start:stop, k.TS_WORD]

    # ------------------------------------------------------------------ shape and upkeep

    def add_columns(self, columns: Schema) -> None:
        """More columns, after the others; for rows that exist they count as NULL written when the row was."""
        for column in columns:
            self._cells.append(len(self.table.columns))
            self.table = replace(self.table, columns=(*self.table.columns, column))
            self._columns.add(column.type, null=True)
        used = int(self._counts[k.SIDE_USED])
        side = Buffer(np.int64, 1 + len(self._cells), rows=used)
        width = 1 + len(self._cells) - len(columns)
        records = side.array.reshape(-1, 1 + len(self._cells))
        records[:used, :width] = self._side.array.reshape(-1, width)[:used]
        mixed = np.flatnonzero(self._flags(0, self.limit) == k.MIXED)
        records[self._side_of.array[mixed], width:] = self._timestamps(0, self.limit)[mixed, None]
        self._side = side

    def nbytes(self) -> int:
        """Memory in use."""
        used, free = int(self._counts[k.SIDE_USED]), int(self._counts[k.SIDE_FREE])
        side = self._side.nbytes(used) + self._side_free.nbytes(free)
        if used:
            side += self._side_of.nbytes(self.limit)
        tombs = sum(slots.nbytes for _, _, slots in self._tombstones)
        return self._index.nbytes() + self._columns.nbytes() + side + tombs

    def dump(self) -> pa.Table:
        """Everything, in a form that depends on no plan: the table's columns, then the row's timestamp, for a tombstone
        when it came, and for rows with timestamps per cell those of the newest delete and of each non-key column."""
        batches = []
        for start in range(0, self.limit, _DUMP_ROWS):
            used = np.flatnonzero(self._flags(start, min(start + _DUMP_ROWS, self.limit)))
            batches.append(self._dump_rows((start + used).astype(np.int32)))
        return pa.Table.from_batches(batches, self._dump_schema())

    def export(self, ids: np.ndarray) -> tuple[np.ndarray, pa.BinaryArray]:
        """Rows and tombstones of these ids by themselves, independent of slots: ids and values, null where there is
        neither."""
        slots = self._index.find(ids)
        known = slots >= 0
        if known.all():
            return ids, self._pack(slots).arrow()
        values = self._pack(slots[known]).arrow(1)
        return ids, values.take(pa.array(np.where(known, np.cumsum(known) - 1, len(values) - 1)))

    def dead(self, ids: np.ndarray) -> np.ndarray:
        """Mask of ids that have a tombstone."""
        slots = self._index.find(ids)
        found = slots >= 0
        found[found] = self._flags(0, self.limit)[slots[found]] == k.DEAD
        return found

    def _pack(self, slots: np.ndarray) -> Ragged:
        columns, flags, ts, came, sides = self._rows_at(slots)
        count, width = len(slots), len(self.table.columns)
        cells = nothing(count)
        mixed = flags == k.MIXED
        if len(sides):
            cells = segments(np.cumsum(mixed), sides)
        return join(
            [
                fixed(np.full(count, width, np.uint16)),
                self._codec(width).pack(columns, count),
                fixed(ts),
                where(came, flags == k.DEAD),
                cells,
            ]
        )

    def _codec(self, width: int) -> RowCodec:
        """Of rows that were written when the table had so many columns."""
        if width not in self._codecs:
            self._codecs[width] = RowCodec([c.type for c in self.table.columns[:width]])
        return self._codecs[width]

    def import_(self, values: pa.BinaryArray, horizon_us: int) -> None:
        """Put exported rows back, none of which is here; but for tombstones that came before the horizon."""
        packed = self.unpack(values)
        gone = packed.dead & (packed.came < horizon_us)
        self._adopt(packed.take(np.flatnonzero(~gone)) if gone.any() else packed)

    def unpack(self, values: pa.BinaryArray) -> PackedRows:
        """What exported values say, with all columns of the table."""
        what = f"table {self.table.name}"
        widths, rows, ts, came, cells = split(Ragged.of_arrow(values), 5, what)
        wide = widths.words(np.uint16)
        count, full = len(wide), len(self.table.columns)
        dead = came.lengths > 0
        times = np.zeros(count, np.int64)
        times[dead] = came.words(np.int64)
        out = PackedRows((), ts.words(np.int64), dead, times, cells, wide)
        if (wide == full).all():
            out.columns, out.error = self._codec(full).unpack(rows)
            return out
        parts, order = [], []
        errors = np.ones(count, np.uint8)
        for width in np.unique(wide):
            if width > full:
                raise Damaged(f"{what}: a stored row has {width} columns, the table {full}")
            at = np.flatnonzero(wide == width)
            columns, error = self._codec(int(width)).unpack(rows.take(at))
            if error is not None:
                errors[at] = error
            parts.append(columns + tuple(nulls(c.type, len(at)) for c in self.table.columns[width:]))
            order.append(at)
        back = np.argsort(np.concatenate(order))
        out.columns = tuple(concat([p[i] for p in parts]).take(back) for i in range(full))
        out.error = errors if (errors > Status.VALUE).any() else None
        return out

    def _adopt(self, rows: PackedRows) -> None:
        self.order = None
        count = len(rows.ts)
        slots, _ = self._index.insert(hash_rows([rows.columns[i] for i in self._keys], count))
        self._columns.reserve(self.limit)
        self._side_of.reserve(self.limit)
        sizes = rows.cells.lengths // 8
        mixed = sizes > 0
        self._columns.scatter(slots, rows.columns)
        self._timestamps(0, self.limit)[slots] = rows.ts
        self._flags(0, self.limit)[slots] = np.where(rows.dead, k.DEAD, np.where(mixed, k.MIXED, k.LIVE))
        more = int(mixed.sum())
        if more:
            self._adopt_sides(slots[mixed], rows.cells.words(np.int64), sizes[mixed], rows.ts[mixed])
        buried = int(rows.dead.sum())
        self._counts += [count - buried, buried, 0, 0, more]
        if buried:
            tombs, times = slots[rows.dead], rows.came[rows.dead]
            for time_us in np.unique(times):
                self._end_batch(tombs[times == time_us], int(time_us))

    def _adopt_sides(self, slots: np.ndarray, words: np.ndarray, sizes: np.ndarray, ts: np.ndarray) -> None:
        """Side records of mixed rows; columns that are younger than a record count as written with the row."""
        width, more = 1 + len(self._cells), len(slots)
        records = np.repeat(ts[:, None], width, axis=1)
        records[np.arange(width) < sizes[:, None]] = words
        taken = min(int(self._counts[k.SIDE_FREE]), more)
        free = int(self._counts[k.SIDE_FREE]) - taken
        used = int(self._counts[k.SIDE_USED])
        at = np.concatenate([self._side_free.array[free : free + taken], np.arange(used, used + more - taken)])
        self._counts[k.SIDE_FREE] = free
        self._counts[k.SIDE_USED] += more - taken
        self._side.reserve(used + more - taken)
        self._side_free.reserve(used + more - taken)
        self._side.array.reshape(-1, width)[at] = records
        self._side_of.array[slots] = at

    def read(self, ids: np.ndarray, columns: Sequence[int]) -> Delta:
        """The live rows among these ids, with weight +1."""
        slots = self._index.find(ids)
        live = slots >= 0
        live[live] = self._flags(0, self.limit)[slots[live]] & 1 == 1
        slots = slots[live]
        rows = self._columns.gather(slots, columns)
        return Delta(rows, np.ones(len(slots), np.int8), ids[live], self.errors_at(slots))

    def slots_of(self, ids: np.ndarray) -> np.ndarray:
        """Slots of the ids that are here."""
        slots = self._index.find(ids)
        return np.asarray(slots[slots >= 0])

    def has(self, ids: np.ndarray) -> np.ndarray:
        """Mask of ids that have a live row."""
        slots = self._index.find(ids)
        there = slots >= 0
        there[there] = self._flags(0, self.limit)[slots[there]] & 1 == 1
        return np.asarray(there)

    def ids_at(self, slots: np.ndarray) -> np.ndarray:
        return self._index.ids(slots)

    @property
    def size(self) -> int:
        """Rows and tombstones that are here."""
        return len(self._index)

    def used_below(self, slot: int) -> int:
        """Rows and tombstones in front of a slot: where a dump that is loaded has what stands there."""
        return int(np.count_nonzero(self._flags(0, min(slot, self.limit))))

    def evict(self, slots: np.ndarray) -> None:
        """Forget rows that are kept elsewhere."""
        self.order = None
        flags = self._flags(0, self.limit)
        mixed = slots[flags[slots] == k.MIXED]
        free = int(self._counts[k.SIDE_FREE])
        self._side_free.reserve(free + len(mixed))
        self._side_free.array[free : free + len(mixed)] = self._side_of.array[mixed]
        dead = int((flags[slots] == k.DEAD).sum())
        self._counts -= [len(slots) - dead, dead, 0, -len(mixed), len(mixed)]
        self._columns.release(slots)
        flags[slots] = k.ABSENT
        self._index.remove(self._index.ids(slots))
        self._index.end_epoch()

    def slots(self) -> np.ndarray:
        """Slots of all rows and tombstones."""
        return np.flatnonzero(self._flags(0, self.limit)).astype(np.int32)

    def missing(self, changes: Changes) -> np.ndarray:
        """Ids of changed rows that are not here, each once."""
        ids = hash_rows([changes.columns[i] for i in self._keys], len(changes))
        return distinct_ids(ids[self._index.find(ids) < 0])

    def _dump_schema(self) -> pa.Schema:
        fields = [pa.field(c.name, c.type.arrow) for c in self.table.columns]
        extra = [("#ts", pa.int64()), ("#dead", pa.int64()), ("#cells", pa.list_(pa.int64()))]
        return pa.schema([*fields, *(pa.field(*e) for e in extra)])

    def _rows_at(self, slots: np.ndarray) -> tuple[list[Vec], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Columns (of tombstones only the key), flags, timestamps, when tombstones came, side records of mixed rows."""
        flags = self._flags(0, self.limit)[slots]
        columns = list(self._columns.gather(slots, range(len(self.table.columns))))
        dead = flags == k.DEAD
        came = np.zeros(len(slots), np.int64)
        if dead.any():
            for i in self._cells:
                columns[i] = Vec(columns[i].type, columns[i].data, np.where(dead, np.uint8(0), _codes(columns[i])))
            times = {number: time_us for time_us, number, _ in self._tombstones}
            came[dead] = [times[n] for n in self._side_of.array[slots[dead]].tolist()]
        mixed = flags == k.MIXED
        sides = np.empty((0, 1 + len(self._cells)), np.int64)
        if mixed.any():
            sides = self._side.array.reshape(-1, 1 + len(self._cells))[self._side_of.array[slots[mixed]]]
        return columns, flags, self._timestamps(0, self.limit)[slots], came, sides

    def _dump_rows(self, slots: np.ndarray) -> pa.RecordBatch:
        columns, flags, ts, came, sides = self._rows_at(slots)
        mixed = flags == k.MIXED
        offsets = pa.array(np.concatenate([[0], np.cumsum(mixed)]) * (1 + len(self._cells)), pa.int32())
        cells = pa.ListArray.from_arrays(offsets, pa.array(sides.reshape(-1)), mask=pa.array(~mixed))
        times = pa.array(came, pa.int64(), mask=flags != k.DEAD)
        arrays = [*(c.to_arrow() for c in columns), pa.array(ts), times, cells]
        return pa.RecordBatch.from_arrays(arrays, schema=self._dump_schema())

    def load(self, dump: pa.Table) -> None:
        """Restore a dump into this table, which is empty and has the same columns."""
        self.order = None
        parts = [self._load_rows(batch) for batch in dump.to_batches(_DUMP_ROWS) if len(batch)]
        if parts:
            tombs, times = (np.concatenate(p) for p in zip(*parts, strict=True))
            for time_us in np.unique(times):
                self._end_batch(tombs[times == time_us], int(time_us))

    def _load_rows(self, batch: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray]:
        """Returns the slots of tombstones, and when they came."""
        count = len(batch)
        vecs = [Vec.from_arrow(batch.column(i), c.type) for i, c in enumerate(self.table.columns)]
        ts, dead, cells = (batch.column(len(vecs) + i) for i in range(3))
        slots, _ = self._index.insert(hash_rows([vecs[i] for i in self._keys], count))
        self._columns.reserve(self.limit)
        self._side_of.reserve(self.limit)
        tombs = np.asarray(dead.is_valid())
        mixed = np.asarray(cells.is_valid())
        states = np.where(tombs, k.DEAD, np.where(mixed, k.MIXED, k.LIVE))
        self._columns.scatter(slots, vecs)
        self._timestamps(0, self.limit)[slots] = np.asarray(ts)
        self._flags(0, self.limit)[slots] = states
        used, more = int(self._counts[k.SIDE_USED]), int(mixed.sum())
        self._side.reserve(used + more)
        self._side_free.reserve(used + more)
        width = 1 + len(self._cells)
        self._side.array.reshape(-1, width)[used : used + more] = np.asarray(cells.flatten()).reshape(more, width)
        self._side_of.array[slots[mixed]] = np.arange(used, used + more)
        buried = int(tombs.sum())
        self._counts += [count - buried, buried, more, 0, more]
        return slots[tombs], np.asarray(dead.drop_null())


def _codes(vec: Vec) -> np.ndarray:
    return np.ones(len(vec), np.uint8) if vec.status is None else vec.status
