"""Rows of a view, readable at the committed epoch while the next one is being applied.

The engine's thread writes, any thread reads. A lock per view protects its arrays; big deltas are applied in pieces,
and the lock is free between them. Until the epoch is committed, readers look into its delta first: a row that it
mentions was, at the committed epoch, the row that it removes, or absent. The same rule, applied to the changelog,
gives any older epoch.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.embedded.storage.ordered import OrderedRows
from belvedere.engine.delta import Delta, concat_deltas, empty_delta
from belvedere.engine.operators.view import Quarantined
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.ordered import SortedSlots, sort_keys
from belvedere.engine.state.pyvalues import converter
from belvedere.engine.state.table import Table
from belvedere.engine.vec import Status, Vec
from belvedere.model.describe import ViewShape
from belvedere.model.keys import key_codec
from belvedere.model.ranges import KeyRange
from belvedere.model.shapes import arrow_schema
from belvedere.types import INT, Column, Schema

APPLY_ROWS = 1 << 15
"""Rows applied under one hold of the lock: readers wait for at most this many."""

Row = tuple[Any, ...]


class Before:
    """The rows that later deltas mention, as they were before those: what a reader of an older epoch sees of them."""

    def __init__(self, later: Sequence[tuple[int, Delta]], encode: Callable[[Delta], pa.BinaryArray]):
        """`later`: epochs and deltas, in order. `encode`: keys of rows."""
        ids, self._images = _first_images(later)
        self._encode = encode
        self._mentioned, self._where = HashIndex(), HashIndex()
        self._mentioned.insert(ids)
        self._where.insert(self._images.id)
        self._sorted: tuple[list[bytes], np.ndarray] | None = None

    def __len__(self) -> int:
        """Rows that are mentioned."""
        return len(self._mentioned)

    def find(self, id: np.ndarray) -> tuple[bool, Row | None]:
        """Whether the id is mentioned, and its row before."""
        at = self._where.find_one(id)  # an index without removals numbers what it is given
        if at >= 0:
            return True, values_at(self._images.columns, at)
        return self._mentioned.find_one(id) >= 0, None

    def hides(self, ids: np.ndarray) -> np.ndarray:
        """Mask of ids that are mentioned."""
        return np.asarray(self._mentioned.find(ids) >= 0)

    def rewind(self, current: Delta) -> Delta:
        """All rows before, given all rows after."""
        return concat_deltas([current.filter(~self.hides(current.id)), self._images])

    def within(self, wanted: KeyRange) -> Delta | None:
        """The rows before whose keys are in a range, if there are any; their order is not said."""
        if self._sorted is None:
            keys = self._encode(self._images)
            order = sort_keys(keys)
            self._sorted = keys.take(pa.array(order)).to_pylist(), order
        keys, order = self._sorted
        start = bisect_left(keys, wanted.low)
        stop = len(keys) if wanted.high is None else bisect_left(keys, wanted.high)
        return self._images.take(order[start:stop]) if start < stop else None


def values_at(columns: Sequence[Vec], row: int) -> Row:
    """One row of a batch as Python values."""
    out: list[Any] = []
    for vec in columns:
        if vec.status is not None and vec.status[row] != Status.VALUE:
            out.append(None)
        elif isinstance(vec.data, np.ndarray):
            raw = vec.data[row]
            value = tuple(raw.tolist()) if vec.type.wide else raw.item()
            convert = converter(vec.type)
            out.append(value if convert is None else convert(value))
        else:
            out.append(vec.data[row].as_py())
    return tuple(out)


def find_before(deltas: Iterable[Delta], id: np.ndarray) -> tuple[bool, Row | None]:
    """The row before these deltas (in order), if they mention it."""
    for delta in deltas:
        rows = np.flatnonzero((delta.id[:, 0] == id[0]) & (delta.id[:, 1] == id[1]))
        if len(rows):
            old = rows[delta.weight[rows] < 0]
            return True, values_at(delta.columns, int(old[0])) if len(old) else None
    return False, None


def _first_images(later: Sequence[tuple[int, Delta]]) -> tuple[np.ndarray, Delta]:
    """Ids that the deltas mention, and of those that had a row before them that row, with weight +1."""
    deltas = concat_deltas([d for _, d in later])
    if later[0][0] == later[-1][0]:  # of one epoch each row is mentioned as it was before, if it was
        return deltas.id, _images(deltas, np.flatnonzero(deltas.weight < 0))
    epochs = np.concatenate([np.full(len(d), e, np.int64) for e, d in later])
    order = np.lexsort((epochs, deltas.id[:, 1], deltas.id[:, 0]))
    ids = deltas.id[order]
    head = np.ones(len(order), np.bool_)
    head[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    starts = np.flatnonzero(head)
    first_epoch = epochs[order][starts][np.cumsum(head) - 1]
    old = order[(epochs[order] == first_epoch) & (deltas.weight[order] < 0)]
    return np.ascontiguousarray(ids[starts]), _images(deltas, old)


def _images(deltas: Delta, rows: np.ndarray) -> Delta:
    images = deltas.take(rows)
    images.weight, images.error = np.ones(len(rows), np.int8), None
    return images


class ViewTable:
    """One version of one view. `committed` tells the newest committed epoch."""

    def __init__(self, shape: ViewShape, committed: Callable[[], int], since: int = 0):
        self.shape, self._committed = shape, committed
        self.since = since
        """Its history begins at this epoch."""
        self.until: int | None = None
        """From this epoch on another version, or nothing, has its place: kept for those who pinned an older epoch."""
        self._frozen: int | None = None
        self.lock = threading.Lock()
        self.table = Table([c.type for c in shape.schema])
        self.quarantine = Table([*(c.type for c in shape.schema), INT, INT])
        self._pending: list[Delta] = []
        self._pending_epoch = 0
        self._overlay: Before | None = None
        self._blocked = False
        self.codec = key_codec(shape.schema, shape.key)
        self._rows = OrderedRows(self.table, self.codec, shape.key, self.lock)

    def freeze(self, epoch: int) -> None:
        """Nothing changes any more: these are the rows of this epoch for ever."""
        self._frozen = epoch

    def __len__(self) -> int:
        return len(self.table)

    # ------------------------------------------------------------------ the engine's thread

    def begin(
        self, epoch: int, chunks: Iterable[Delta], quarantine: Sequence[Quarantined], *, spilled: bool = False
    ) -> None:
        """Apply an epoch's delta; readers see nothing of it before `committed` says so. A delta that spilled to disk
        cannot be kept for readers: they wait until `finish`."""
        if spilled:
            self.lock.acquire()
            self._blocked = True
            parts = chunks
        else:
            parts = list(chunks)
            with self.lock:
                self._pending, self._pending_epoch, self._overlay = parts, epoch, None
        for part in _pieces(parts):
            if self._blocked:
                self.table.apply(part)
            else:
                with self.lock:
                    self.table.apply(part)
        if quarantine:
            if self._blocked:
                self._apply_quarantine(quarantine)
            else:
                with self.lock:
                    self._apply_quarantine(quarantine)

    def _apply_quarantine(self, quarantine: Sequence[Quarantined]) -> None:
        deltas = []
        for part in quarantine:
            extra = (Vec(INT, part.column.astype(np.int32)), Vec(INT, part.code.astype(np.int32)))
            deltas.append(Delta((*part.delta.columns, *extra), part.delta.weight, part.delta.id))
        for delta in _pieces(deltas):
            self.quarantine.apply(delta)

    def finish(self) -> None:
        """The epoch is committed: its delta need not be hidden any more."""
        if not self._blocked:
            self.lock.acquire()
        try:
            self._pending, self._overlay = [], None
            self.table.end_epoch()
            self.quarantine.end_epoch()
        finally:
            self._blocked = False
            self.lock.release()

    def apply_now(self, chunks: Iterable[Delta], quarantine: Sequence[Quarantined] = ()) -> None:
        """For a table that nobody reads yet."""
        self.begin(0, chunks, quarantine, spilled=True)
        self.finish()

    def restart(self, shape: ViewShape) -> None:
        """A new version with the same columns: its rows follow as a difference, its quarantine as a whole."""
        with self.lock:
            self.shape = shape
            self.quarantine = Table([*(c.type for c in shape.schema), INT, INT])

    def chunks(self, rows: int = 1 << 16) -> Iterator[Delta]:
        """All rows in pieces, between epochs."""
        return _rows_in_pieces(self.table, rows)

    def quarantine_parts(self, rows: int = 1 << 16) -> Iterator[Quarantined]:
        """All of its quarantine in pieces, between epochs."""
        slots = self.quarantine.slots()
        for start in range(0, len(slots), rows):
            part = self.quarantine.rows(slots[start : start + rows])
            column, code = part.columns[-2:]
            assert isinstance(column.data, np.ndarray) and isinstance(code.data, np.ndarray)
            yield Quarantined(Delta(part.columns[:-2], part.weight, part.id), column.data, code.data)

    # ------------------------------------------------------------------ any thread

    def _now(self) -> int:
        if self._frozen is not None:
            return self._frozen
        return self._committed() if self.until is None else self.until - 1

    @cached_property
    def arrow(self) -> pa.Schema:
        """The visible columns as those of an Arrow table."""
        return arrow_schema(self.shape.schema[: self.shape.visible])

    def before(self, later: Sequence[tuple[int, Delta]]) -> Before:
        """What rows that were changed later (there are some) looked like before."""
        return Before(later, self.encode)

    def encode(self, rows: Delta) -> pa.BinaryArray:
        """The keys of rows."""
        return self._rows.encode([rows.columns[i] for i in self.shape.key], len(rows))

    def _hidden(self, epoch: int) -> Before | None:
        """What the epoch in progress changes. Made by the first reader who needs it; the caller holds the lock."""
        if not self._pending or self._pending_epoch <= epoch:
            return None
        if self._overlay is None:
            self._overlay = Before([(self._pending_epoch, d) for d in self._pending], self.encode)
        return self._overlay

    def get(self, id: np.ndarray) -> tuple[int, Row | None]:
        """The committed epoch (or the last one of this version), and the row at it."""
        with self.lock:
            epoch = self._now()
            hidden = self._hidden(epoch)
            if hidden is not None:
                found, row = hidden.find(id)
                if found:
                    return epoch, row
            return epoch, self.table.get(id)

    def rows(self) -> tuple[int, Delta]:
        """The committed epoch (or the last one of this version), and all rows at it."""
        with self.lock:
            epoch = self._now()
            rows = self.table.rows()
            hidden = self._hidden(epoch)
        rows.error = None
        return epoch, rows if hidden is None else hidden.rewind(rows)

    def range(
        self, wanted: KeyRange, columns: Sequence[int], before: tuple[int, Sequence[Before]] | None = None
    ) -> tuple[int, tuple[Vec, ...] | None]:
        """The committed epoch (or the last one of this version), and columns of the rows in a range, in its order.

        `before`: an epoch, and what changed up to it since the epoch that is asked for, oldest first. If another epoch
        is committed by now, there are no rows but only its number: the caller adds what it changed, and asks again.
        """

        def read(order: SortedSlots) -> tuple[int, tuple[Vec, ...] | None]:
            epoch = self._now()
            if before is not None and before[0] != epoch:
                return epoch, None
            hidden = self._hidden(epoch)
            layers = [*(() if before is None else before[1]), *(() if hidden is None else (hidden,))]
            if not layers:
                slots = order.select(wanted.low, wanted.high, wanted.limit, wanted.reverse)
                return epoch, self.table.gather(slots, columns)
            return epoch, self._layered(order, wanted, columns, layers)

        return self._rows.read(read)

    def _layered(
        self, order: SortedSlots, wanted: KeyRange, columns: Sequence[int], layers: Sequence[Before]
    ) -> tuple[Vec, ...]:
        """Rows in a range as they were before all layers, the oldest of which comes first."""
        limit = wanted.limit
        # so many rows at most are hidden: enough are left
        room = None if limit is None else limit + sum(map(len, layers))
        slots = order.select(wanted.low, wanted.high, room, wanted.reverse)
        ids = self.table.index.ids(slots)
        images: list[Delta] = []
        hidden = np.zeros(len(slots), np.bool_)
        for number, layer in enumerate(layers):
            hidden |= layer.hides(ids)
            found = layer.within(wanted)
            for older in layers[:number]:
                found = None if found is None else found.filter(~older.hides(found.id))
            if found is not None and len(found):
                images.append(found)
        slots = slots[~hidden][:limit]
        if not images:
            return self.table.gather(slots, columns)
        rows = self.table.rows(slots)
        rows.error = None
        every = concat_deltas([rows, *images])
        position = sort_keys(self.encode(every))
        position = (position[::-1] if wanted.reverse else position)[:limit]
        return tuple(every.columns[i].take(position) for i in columns)

    def quarantined(self) -> pa.Table:
        """Rows in quarantine and why; cells that failed are NULL."""
        with self.lock:
            rows = self.quarantine.rows()
        names = [c.name for c in self.shape.schema]
        column, code = (np.asarray(v.data) for v in rows.columns[-2:])
        reasons = [
            (f"column {names[c]}: " if c >= 0 else "condition: ") + Status(s).text
            for c, s in zip(column.tolist(), code.tolist(), strict=True)
        ]
        visible = self.shape.visible
        columns = {n: v.to_arrow() for n, v in zip(names[:visible], rows.columns, strict=False)}
        return pa.table({**columns, "reason": pa.array(reasons, pa.string())})

    def nbytes(self) -> int:
        with self.lock:
            order = 0 if self.table.order is None else self.table.order.nbytes()
            return self.table.nbytes() + self.quarantine.nbytes() + order

    def dump(self) -> dict[str, np.ndarray]:
        """For a snapshot, between epochs."""
        parts = {f"rows.{k}": v for k, v in self.table.dump().items()}
        if len(self.quarantine):
            parts |= {f"quarantine.{k}": v for k, v in self.quarantine.dump().items()}
        return parts

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        self.table.load({k[5:]: v for k, v in arrays.items() if k.startswith("rows.")})
        quarantine = {k[11:]: v for k, v in arrays.items() if k.startswith("quarantine.")}
        if quarantine:
            self.quarantine.load(quarantine)


def _pieces(chunks: Iterable[Delta]) -> Iterator[Delta]:
    """Deltas of one epoch in pieces that can be applied one by one. Chunks are cut by id, so that both rows of an
    update stay together; between chunks what goes comes before what appears already."""
    for chunk in chunks:
        count = -(-len(chunk) // APPLY_ROWS)
        if count <= 1:
            yield chunk
            continue
        come = np.flatnonzero(chunk.weight > 0)
        if chunk.paired is not None or len(come) == len(chunk):
            # Most updates are known as such and only overwritten. What remains goes first, then what appears.
            gone = chunk.weight < 0
            rest = chunk.take(np.flatnonzero(gone if chunk.paired is None else gone & ~chunk.paired))
            in_a_row = len(come) > 0 and int(come[-1] - come[0]) == len(come) - 1
            new = chunk.slice(int(come[0]), int(come[-1]) + 1) if in_a_row else chunk.take(come)
            for half in (rest, new):
                for start in range(0, len(half), APPLY_ROWS):
                    yield half.slice(start, start + APPLY_ROWS)
            continue
        part = chunk.id[:, 1] % np.uint64(count)
        for number in range(count):
            yield chunk.take(np.flatnonzero(part == number))


def difference(schema: Schema, old: ViewTable, new: ViewTable) -> Iterator[Delta]:
    """What turns the rows of one version into those of the next; both have one schema and key."""
    return table_difference(schema, old.table, new.table)


def quarantine_difference(old: ViewTable, new: ViewTable) -> Iterator[Quarantined]:
    """The same for what is in quarantine."""
    schema = (*old.shape.schema, Column("#column", INT), Column("#code", INT))
    for delta in table_difference(schema, old.quarantine, new.quarantine):
        column, code = delta.columns[-2:]
        assert isinstance(column.data, np.ndarray) and isinstance(code.data, np.ndarray)
        yield Quarantined(Delta(delta.columns[:-2], delta.weight, delta.id), column.data, code.data)


def table_difference(schema: Schema, old: Table, new: Table) -> Iterator[Delta]:
    """What turns the rows of one table into those of another."""
    for chunk in _rows_in_pieces(old):
        slots = new.find(chunk.id)
        both = slots >= 0
        same = np.zeros(len(chunk), np.bool_)
        if both.any():
            now = new.columns.gather(slots[both])
            same[both] = equal_rows([c.filter(both) for c in chunk.columns], now)
        gone = chunk.filter(~same)
        gone.weight = np.full(len(gone), -1, np.int8)
        changed = both & ~same
        come = new.rows(slots[changed]) if changed.any() else empty_delta(schema)
        if len(gone) or len(come):
            yield concat_deltas([gone, come])
    for chunk in _rows_in_pieces(new):
        fresh = chunk.filter(old.find(chunk.id) < 0)
        if len(fresh):
            yield fresh


def equal_rows(left: Sequence[Vec], right: Sequence[Vec]) -> np.ndarray:
    """Mask of rows that hold the same in all columns."""
    equal = np.ones(len(left[0]) if left else 0, np.bool_)
    for before, after in zip(left, right, strict=True):
        equal &= _equal(before, after)
    return equal


def _rows_in_pieces(table: Table, rows: int = 1 << 16) -> Iterator[Delta]:
    slots = table.slots()
    for start in range(0, len(slots), rows):
        yield table.rows(slots[start : start + rows])


def _equal(a: Vec, b: Vec) -> np.ndarray:
    """Rows in which two columns hold the same; NaN is NaN, whatever its bits."""
    left, right = a.valid, b.valid
    if isinstance(a.data, np.ndarray):
        same = a.data == b.data
        if a.data.ndim == 2:
            same = same.all(axis=1)
        if a.data.dtype == np.float64:
            same |= np.isnan(a.data) & np.isnan(b.data)
    else:
        same = pa.compute.equal(a.data, b.data).to_numpy(zero_copy_only=False)
    return np.asarray((left == right) & (same | ~left))
