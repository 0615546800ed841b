"""Rows of state by id, in `_state`: one cell per row and epoch; and rows of views, in tables of their own, where a row
stands under its key with its columns, and `_state` says which key an id has.

A read asks for the newest versions of `_` and takes the newest below its epoch. HBase keeps four; who asks further back
finds the previous image in the family `h` of a view, an older version in the family `v` of base rows and what else is
read back, or is told that the epoch has expired. It is never told that there was no row (`packing.choose`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase.bounds import KnownTable
from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.change_log import Ended
from belvedere.backend.hbase.foreign_cells import foreign_cells
from belvedere.backend.hbase.keyvalues import PUT, KeyValues, cells_of, concat, part_of
from belvedere.backend.hbase.layout import (
    BUCKETS,
    CURRENT,
    HISTORY,
    ID_BYTES,
    LIVENESS,
    PAST,
    VERSIONS,
    after,
    check_keys,
    fixed_binary,
    key_rows,
    state_ids,
    state_ranges,
    state_rows,
    word,
)
from belvedere.backend.hbase.packing import Content, choose, cut, pack, unpack
from belvedere.backend.hbase.view_encodings import encode_bytes, null_bits
from belvedere.backend.seam import TableWrite
from belvedere.errors import BelowHorizon
from belvedere.model.ranges import KeyRange
from belvedere.model.stored_rows import view_rows

_SCAN_IDS = 10_000
_MARGIN = 0.1
"""This part of the history is not read: HBase forgets by its clocks, and this is ours."""


@dataclass(frozen=True)
class Places:
    """Full names of the tables of a pool, and of the table of a view."""

    state: str
    keys: str


@dataclass
class WriteBatch:
    """What is put at one epoch, by where it goes; views with their tables."""

    keys: list[KeyValues] = field(default_factory=list)
    state: list[KeyValues] = field(default_factory=list)
    views: list[tuple[str, KeyValues]] = field(default_factory=list)


class VersionedRows:
    """Reads and writes of one pool. `history_s`: so long previous images stay. Thread-safe."""

    def __init__(self, cells: Cells, places: Places, history_s: int, now: Callable[[], float] = time.time) -> None:
        self._cells, self._places, self._history_s, self._now = cells, places, history_s, now

    # --- state

    def put(self, batch: WriteBatch) -> None:
        """What names a row is there before the row is: keys of base rows, then state with the keys that ids of views
        have, then views. All of state goes to each server in one request: it syncs its log once per region of each."""
        for place, parts in ((self._places.keys, batch.keys), (self._places.state, batch.state)):
            if parts:
                self._cells.put(place, concat(parts))
        for place, cells in batch.views:
            self._cells.put(place, cells)

    def write_state(self, batch: WriteBatch, table: KnownTable, epoch: int, write: TableWrite) -> None:
        rows = state_rows(table.tag, write.ids)
        kinds = _kinds(write)
        if write.keys is not None:
            check_keys(table.name, write.keys)
            there = np.flatnonzero(kinds != Content.GONE)  # what ends has its entry from when it began
            if len(there):
                named = key_rows(table.tag, write.keys.take(pa.array(there)))
                batch.keys.append(pack(named, CURRENT, epoch, _rows(len(there)), _ids(write.ids[there])))
        if len(rows):
            batch.state.append(pack(rows, table.family, epoch, kinds, _filled(write.values)))

    def read_state(self, table: KnownTable, ids: np.ndarray, below: int) -> tuple[np.ndarray, pa.BinaryArray]:
        """What each was, and its content (null: no row)."""
        unique, back = np.unique(ids, axis=0, return_inverse=True)
        rows = state_rows(table.tag, unique)
        found = self._cells.get(self._places.state, rows, _newest(below, table.family))
        kinds, bodies = self._choose(self._places.state, table, rows, found, below)
        back = back.reshape(-1)
        return kinds[back], bodies.take(pa.array(back))

    def written_at(self, table: KnownTable, place: str, ids: np.ndarray, below: int) -> np.ndarray:
        """Epochs of the newest versions below; 0 where there is none. `place`: of a view, else empty."""
        unique, back = np.unique(ids, axis=0, return_inverse=True)
        rows = state_rows(table.tag, unique)
        at, found_at = np.arange(len(unique)), self._places.state
        family = table.family
        if place:
            kinds, keys = self.read_keys(table, rows)
            at = np.flatnonzero(kinds == Content.ROW)
            rows, found_at, family = keys.take(pa.array(at)), place, CURRENT
        stamps = np.zeros(len(unique), np.int64)
        if len(at):
            found = self._cells.get(found_at, rows, Columns(family, (LIVENESS,), below=below))
            where = np.asarray(pc.index_in(rows, value_set=found.row).fill_null(-1))
            stamps[at] = np.where(where < 0, 0, np.append(found.timestamp, 0)[where])
        return np.asarray(stamps[back.reshape(-1)])

    def read_keys(self, table: KnownTable, rows: pa.BinaryArray) -> tuple[np.ndarray, pa.BinaryArray]:
        """Which of these ids of a view have a key, and the key."""
        found = self._cells.get(self._places.state, rows, Columns(CURRENT, (LIVENESS,)))
        return self._choose(self._places.state, table, rows, found, 2**63 - 1)

    def scan_state(
        self, table: KnownTable, first: int, stop: int, below: int, only: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray, pa.BinaryArray]]:
        """Ids in order, what each was, and its content."""
        for begin, end in _runs(first, stop, only):
            for start, last in state_ranges(table.tag, begin, end):
                for piece in self._cells.scan(self._places.state, start, last, _newest(below, table.family)):
                    rows = _distinct(piece.row)
                    kinds, bodies = self._choose(self._places.state, table, rows, piece, below)
                    there = np.flatnonzero(kinds > Content.GONE)
                    if len(there):
                        at = pa.array(there)
                        yield state_ids(rows.take(at)), kinds[there], bodies.take(at)

    def scan_keys(self, table: KnownTable, wanted: KeyRange) -> Iterator[np.ndarray]:
        """Ids in the order of keys."""
        start = table.tag + wanted.low
        stop = table.tag + wanted.high if wanted.high is not None else after(table.tag)
        columns = Columns(CURRENT, (LIVENESS,))
        for piece in self._cells.scan(self._places.keys, start, stop, columns, reverse=wanted.reverse):
            yield _from_ids(part_of(piece.value, 1))

    def _choose(
        self, place: str, table: KnownTable, rows: pa.BinaryArray, found: KeyValues, below: int
    ) -> tuple[np.ndarray, pa.BinaryArray]:
        def rest(row: bytes, stamp: int, count: int) -> Sequence[bytes]:
            return self._rest(place, table.family, row, stamp, count)

        chosen = choose(rows, found, below, rest)
        if not chosen.late.any():
            return chosen.kind, chosen.body
        late = rows.filter(pa.array(chosen.late))
        older = self._past(table, place, late, below)
        again = choose(late, older, below, rest)
        kinds, bodies = chosen.kind, pa.concat_arrays([chosen.body, again.body])
        where = np.flatnonzero(chosen.late)
        kinds[where] = again.kind
        at = np.arange(len(rows))
        at[where] = len(rows) + np.arange(len(where))
        return kinds, bodies.take(pa.array(at))

    def _past(self, table: KnownTable, place: str, rows: pa.BinaryArray, below: int) -> KeyValues:
        """The version below of rows that have newer ones only among the newest. A row without any was made since, or
        its version has expired: who can tell?"""
        if not table.past:
            raise expired(table.name, below)
        found = self._cells.get(place, rows, Columns(PAST, (LIVENESS,), below=below))
        if len(found) < len(rows):
            raise expired(table.name, below)
        return found

    def _rest(self, place: str, family: str, row: bytes, stamp: int, count: int) -> Sequence[bytes]:
        names = tuple(b"_%d" % number for number in range(1, count))
        columns = Columns(family, names, VERSIONS, below=stamp + 1)
        found = self._cells.get(place, pa.array([row], pa.binary()), columns)
        held = zip(found.qualifier.to_pylist(), found.timestamp.tolist(), found.value.to_pylist(), strict=True)
        pieces = {name: value for name, moment, value in held if moment == stamp}
        if len(pieces) < count - 1:
            raise expired(place, stamp)
        return [pieces[name] for name in names]

    # --- collection

    def remove_state(self, table: KnownTable, ended: Ended, horizon: int, fence: int) -> None:
        """Rows that end with a tombstone up to `fence`, and are not there again at `horizon`, at its epoch."""
        rows = state_rows(table.tag, ended.ids)
        at, stamps = self._ended(self._places.state, table.family, rows, horizon, fence)
        if ended.keys is not None:
            named = key_rows(table.tag, ended.keys.take(pa.array(at)))
            self._cells.delete(self._places.keys, named, CURRENT, None, stamps)
        self._cells.delete(self._places.state, rows.take(pa.array(at)), table.family, None, stamps)

    def remove_view(self, table: KnownTable, place: str, ended: Ended, horizon: int, fence: int) -> None:
        assert ended.keys is not None
        at, stamps = self._ended(place, CURRENT, ended.keys, horizon, fence)
        rows = state_rows(table.tag, ended.ids[at])
        self._cells.delete(self._places.state, rows, CURRENT, None, stamps)
        self._cells.delete(place, ended.keys.take(pa.array(at)), CURRENT, None, stamps)

    def _ended(
        self, place: str, family: str, rows: pa.BinaryArray, horizon: int, fence: int
    ) -> tuple[np.ndarray, list[int]]:
        """Which of these rows are tombstones, and since when."""
        found = self._cells.get(place, rows, Columns(family, (LIVENESS,), below=horizon + 1))
        gone = np.asarray(pc.equal(part_of(found.value, 0, 1), b"\0")).astype(np.bool_)
        at = np.flatnonzero(gone & (found.timestamp <= fence))
        return np.asarray(pc.index_in(found.row, value_set=rows))[at], found.timestamp[at].tolist()

    def drop_state(self, table: KnownTable) -> None:
        for start, stop in state_ranges(table.tag, 0, BUCKETS):
            self._remove_all(self._places.state, table.family, start, stop)
        if table.keyed and table.shape is None:
            self._remove_all(self._places.keys, CURRENT, table.tag, after(table.tag))

    def _remove_all(self, place: str, family: str, start: bytes, stop: bytes) -> None:
        for piece in self._cells.scan(place, start, stop, Columns(family, (LIVENESS,)), keys_only=True):
            self._cells.delete(place, piece.row, family, None, piece.timestamp.tolist())

    # --- views

    def write_view(self, batch: WriteBatch, table: KnownTable, place: str, epoch: int, write: TableWrite) -> None:
        """The row, and what it was before, at once; the key of its id before that, where it is new."""
        assert table.shape is not None and write.keys is not None
        check_keys(table.name, write.keys)
        kinds = _kinds(write)
        new = kinds != Content.GONE
        if write.before is not None:
            new &= ~np.asarray(pc.is_valid(write.before))
        fresh = np.flatnonzero(new)
        if len(fresh):
            rows, keys = state_rows(table.tag, write.ids[fresh]), write.keys.take(pa.array(fresh))
            batch.state.append(pack(rows, CURRENT, epoch, _rows(len(fresh)), keys))
        if len(kinds):
            batch.views.append((place, _view_cells(table, epoch, write, kinds)))

    def read_view(self, table: KnownTable, place: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        unique, back = np.unique(ids, axis=0, return_inverse=True)
        rows = state_rows(table.tag, unique)
        kinds, keys = self.read_keys(table, rows)
        known = np.flatnonzero(kinds == Content.ROW)
        _, values = self.view_rows(table, place, keys.take(pa.array(known)), None, below)
        at = np.full(len(unique), -1, np.int64)
        at[known] = np.arange(len(known))
        at = at[back.reshape(-1)]
        return values.take(pa.array(at, mask=at < 0))

    def scan_view(
        self, table: KnownTable, place: str, wanted: KeyRange, below: int
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """Ids and rows in the order of keys."""
        stop = wanted.high
        scan = self._cells.scan(place, wanted.low, stop, _newest(below), reverse=wanted.reverse)
        for piece in scan:
            keys = _distinct(piece.row)
            ids, values = self.view_rows(table, place, keys, piece, below)
            there = np.flatnonzero(np.asarray(pc.is_valid(values)))
            if len(there):
                yield ids[there], values.take(pa.array(there))

    def scan_view_keys(
        self, table: KnownTable, first: int, stop: int, only: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """Ids in the order of buckets, with their keys."""
        for ids, _, keys in self.scan_state(table, first, stop, 2**63 - 1, only):
            for at in range(0, len(ids), _SCAN_IDS):
                yield ids[at : at + _SCAN_IDS], keys.slice(at, _SCAN_IDS)

    def view_rows(
        self, table: KnownTable, place: str, keys: pa.BinaryArray, found: KeyValues | None, below: int
    ) -> tuple[np.ndarray, pa.BinaryArray]:
        """Ids (of those that are there), and rows below an epoch, null where there was none."""
        if found is None:
            found = self._cells.get(place, keys, _newest(below))
        chosen = choose(keys, found, below, lambda row, stamp, count: self._rest(place, CURRENT, row, stamp, count))
        late = np.flatnonzero(chosen.late)
        bodies = chosen.body
        kinds = chosen.kind
        if len(late):
            before = self._before(table, place, keys.take(pa.array(late)), below)
            listed = bodies.to_pylist()
            for at, body in zip(late.tolist(), before, strict=True):
                kinds[at] = Content.GONE if body is None else Content.ROW
                listed[at] = body
            bodies = pa.array(listed, pa.binary())
        return _unpacked(table, kinds, bodies)

    def foreign_cells(self, table: KnownTable, place: str) -> Iterator[str]:
        assert table.shape is not None
        names = [qualifier_of(column.name) for column in table.shape.schema]
        rest = partial(self._rest, place, CURRENT)
        yield from foreign_cells(self._cells, place, table.shape.schema, names, rest)

    def _before(self, table: KnownTable, place: str, keys: pa.BinaryArray, below: int) -> list[bytes | None]:
        """The image before the first epoch from `below` on."""
        if below < (self._now() - self._history_s * (1 - _MARGIN)) * 1000:
            raise expired(table.name, below)  # of later images the first ones may be gone already
        named = keys.to_pylist()
        start = word(below)
        found = self._cells.get(place, keys, Columns(HISTORY, first=1, start=start))
        first = {
            row: (name, stamp, value)
            for row, name, stamp, value in zip(
                found.row.to_pylist(), found.qualifier.to_pylist(), found.timestamp.tolist(), found.value.to_pylist(),
                strict=True,
            )
        }  # fmt: skip
        images: list[bytes | None] = []
        for row in named:
            if row not in first:
                raise expired(table.name, below)
            name, stamp, value = first[row]
            kind, body = unpack(row, stamp, value, partial(self._rest_of, place, name))
            images.append(None if kind == Content.GONE else body)
        return images

    def _rest_of(self, place: str, name: bytes, row: bytes, _stamp: int, count: int) -> Sequence[bytes]:
        names = tuple(name + b"_%d" % number for number in range(1, count))
        found = self._cells.get(place, pa.array([row], pa.binary()), Columns(HISTORY, names))
        return list(found.value.to_pylist())


def expired(table: str, below: int) -> BelowHorizon:
    return BelowHorizon(
        f"table {table!r}: versions below epoch {below} were asked for; hbase keeps {VERSIONS} of each row, all those "
        "of one row are newer, and its history was not kept"
    )


def _newest(below: int, family: str = CURRENT) -> Columns:
    return Columns(family, (LIVENESS,), VERSIONS, deep=below)


def _kinds(write: TableWrite) -> np.ndarray:
    kinds = np.where(np.asarray(pc.is_valid(write.values)), Content.ROW, Content.GONE)
    return kinds if write.hidden is None else np.where(write.hidden & (kinds == Content.ROW), Content.HIDDEN, kinds)


def _rows(count: int) -> np.ndarray:
    return np.full(count, Content.ROW, np.int64)


def _filled(values: pa.BinaryArray) -> pa.BinaryArray:
    return values.fill_null(b"") if values.null_count else values


def _ids(ids: np.ndarray) -> pa.BinaryArray:
    return fixed_binary(np.ascontiguousarray(ids).view(np.uint8).reshape(len(ids), ID_BYTES))


def _from_ids(values: pa.BinaryArray) -> np.ndarray:
    return np.frombuffer(b"".join(values.to_pylist()), np.uint64).reshape(-1, 2)


def _distinct(rows: pa.BinaryArray) -> pa.BinaryArray:
    """Versions of one row stand together."""
    return pc.unique(rows)


def _runs(first: int, stop: int, only: np.ndarray | None) -> Iterator[tuple[int, int]]:
    """Runs of buckets that are asked for."""
    if only is None:
        if first < stop:
            yield first, stop
        return
    wanted = np.flatnonzero(only[first:stop]) + first
    ends = np.flatnonzero(np.diff(wanted) > 1)
    for part in np.split(wanted, ends + 1):
        if len(part):
            yield int(part[0]), int(part[-1]) + 1


def _view_cells(table: KnownTable, epoch: int, write: TableWrite, kinds: np.ndarray) -> KeyValues:
    """All cells of the rows, those of one row together: its columns, `_`, and what was before."""
    assert table.shape is not None and write.keys is not None
    count, schema = len(kinds), table.shape.schema
    live = np.flatnonzero(kinds != Content.GONE)
    at = pa.array(live)
    columns = view_rows(schema, write.ids[live], write.values.take(at)).columns
    nulls = np.zeros((count, (len(schema) + 7) // 8), np.uint8)
    nulls[live] = null_bits(columns, len(live))
    ids = np.ascontiguousarray(write.ids).view(np.uint8).reshape(count, ID_BYTES)
    width = np.full((count, 1), nulls.shape[1], np.uint8)
    heads = fixed_binary(np.ascontiguousarray(np.hstack([width, nulls, ids])))
    bodies = pc.binary_join_element_wise(heads, _filled(write.values), b"")
    parts = [pack(write.keys, CURRENT, epoch, kinds, bodies)]
    keys = write.keys.take(at)
    for column, vec in zip(schema, columns, strict=True):
        parts.append(cells_of(keys, CURRENT.encode(), qualifier_of(column.name), epoch, PUT, encode_bytes(vec)))
    if write.before is not None:
        parts.append(_history_cells(epoch, write, heads))
    cells = concat([part for part in parts if len(part)])
    row = np.asarray(pc.index_in(cells.row, value_set=write.keys))
    return cells.take(np.argsort(row, kind="stable"))


def qualifier_of(column: str) -> bytes:
    """`_` and what begins with it is ours: such a column gets one more."""
    return (b"_" if column.startswith("_") else b"") + column.encode()


def _history_cells(epoch: int, write: TableWrite, heads: pa.BinaryArray) -> KeyValues:
    assert write.before is not None and write.keys is not None
    valid = np.asarray(pc.is_valid(write.before))
    bodies = pc.binary_join_element_wise(heads, _filled(write.before), b"")
    listed = [
        (key, word(epoch) + (b"_%d" % number if number else b""), piece)
        for key, was, body in zip(write.keys.to_pylist(), valid.tolist(), bodies.to_pylist(), strict=True)
        for number, piece in enumerate(cut(Content.ROW, body) if was else [bytes([Content.GONE])])
    ]
    rows, names, values = (pa.array(part, pa.binary()) for part in zip(*listed, strict=True))
    cells = cells_of(rows, HISTORY.encode(), b"", epoch, PUT, values)
    return replace(cells, qualifier=names)


def _unpacked(table: KnownTable, kinds: np.ndarray, bodies: pa.BinaryArray) -> tuple[np.ndarray, pa.BinaryArray]:
    """Ids and rows, without what stands before them."""
    assert table.shape is not None
    skip = 1 + (len(table.shape.schema) + 7) // 8
    there = np.flatnonzero(kinds == Content.ROW)
    ids = np.zeros((len(kinds), 2), np.uint64)
    held = bodies.take(pa.array(there))
    ids[there] = _from_ids(part_of(held, skip, skip + ID_BYTES))
    at = np.full(len(kinds), -1, np.int64)
    at[there] = np.arange(len(there))
    return ids, part_of(held, skip + ID_BYTES).take(pa.array(at, mask=at < 0))
