"""Rows as the store keeps them, read with numpy: what clients need, without the engine and its compiled kernels.

The form is that of `belvedere.engine.rowcodec`; joined parts (of DELTA and of quarantine) are that of
`belvedere.engine.state.ragged`. Only the engine writes it. `tests/model/test_stored_rows.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Delta
from belvedere.engine.vec import Vec, concat, empty, nulls
from belvedere.errors import Damaged
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema, Type

_LONG = 255
_ODD, _FAILED = 1, 2


@dataclass(slots=True)
class _Values:
    """Value i is data[starts[i] : stops[i]]."""

    starts: np.ndarray
    stops: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    def take(self, index: np.ndarray) -> _Values:
        return _Values(self.starts[index], self.stops[index], self.data)

    def words(self, dtype: type[np.generic]) -> np.ndarray:
        """All of them, one after the other, as numbers."""
        return np.frombuffer(_gathered(self.data, self.starts, self.stops - self.starts)[1].tobytes(), dtype).copy()


def view_rows(schema: Schema, ids: np.ndarray, values: pa.BinaryArray) -> Delta:
    """Rows of a view (weight +1); every value is a row, none is null."""
    columns, _ = _unpacked([c.type for c in schema], _of_arrow(values))
    return Delta(columns, np.ones(len(ids), np.int8), ids)


def quarantined_rows(
    name: str, schema: Schema, values: pa.BinaryArray
) -> tuple[tuple[Vec, ...], np.ndarray, np.ndarray]:
    """Columns of rows in quarantine, for each the position of the column that failed (-1: a condition), and its
    status."""
    rows, column, code = _split(_of_arrow(values), 3, f"quarantine of view {name}")
    columns, _ = _unpacked([c.type for c in schema], rows)
    return columns, column.words(np.int32), code.words(np.uint8)


def base_rows(table: TableDef, ids: np.ndarray, values: pa.BinaryArray) -> Delta:
    """Live rows of DELTA, which keeps tombstones as values; columns that came later are NULL."""
    rows, error = stored_base_rows(table, ids, values)
    return rows if error is None else rows.take(np.flatnonzero(error == 1))


def stored_base_rows(table: TableDef, ids: np.ndarray, values: pa.BinaryArray) -> tuple[Delta, np.ndarray | None]:
    """The same with those of which it is not known yet whether they are there: their codes are errors."""
    what = f"table {table.name}"
    widths, rows, _, came, _ = _split(_of_arrow(values), 5, what)
    live = np.flatnonzero(came.stops == came.starts)
    wide, rows, ids = widths.words(np.uint16)[live], rows.take(live), ids[live]
    types, parts, order = [c.type for c in table.columns], [], []
    codes = np.ones(len(live), np.uint8)
    for width in np.unique(wide).tolist():
        if width > len(types):
            raise Damaged(f"{what}: a stored row has {width} columns, the table {len(types)}")
        at = np.flatnonzero(wide == width)
        columns, error = _unpacked(types[:width], rows.take(at))
        if error is not None:
            codes[at] = error
        parts.append(columns + tuple(nulls(t, len(at)) for t in types[width:]))
        order.append(at)
    if not parts:
        return Delta(tuple(empty(t) for t in types), np.ones(0, np.int8), ids), None
    weight, errors = np.ones(len(ids), np.int8), codes if (codes != 1).any() else None
    if len(parts) == 1:
        return Delta(parts[0], weight, ids), errors
    back = np.argsort(np.concatenate(order))
    together = tuple(concat([part[i] for part in parts]).take(back) for i in range(len(types)))
    return Delta(together, weight, ids), errors


def unread_cells(table: str) -> str:
    """Where counts of rows in quarantine, by relation, have those of a base table with cells that cannot be read. (No
    table has such a name. Under its own are the row keys that cannot be read, which no recomputation knows either.)"""
    return f"{table}\0cells"


def _of_arrow(values: pa.BinaryArray) -> _Values:
    count = len(values)
    _, offsets, data = values.buffers()
    if not count or data is None:
        return _Values(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(0, np.uint8))
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    return _Values(bounds[:-1], bounds[1:], np.frombuffer(data, np.uint8))


def _split(rows: _Values, count: int, what: str) -> list[_Values]:
    """The parts of each value: a length (one byte; 255 and four bytes), then so many bytes."""
    at, data = rows.starts.copy(), np.append(rows.data, np.zeros(5, np.uint8))
    parts = []
    sound = True
    for _ in range(count):
        sound = sound and bool((at < rows.stops).all())
        if not sound:
            break
        lengths = data[at].astype(np.int64)
        at = at + 1
        long = np.flatnonzero(lengths == _LONG)
        if len(long):
            lengths[long] = data[at[long, None] + np.arange(4)].copy().view("<u4")[:, 0]
            at[long] += 4
        parts.append(_Values(at, at + lengths, rows.data))
        at = at + lengths
        sound = bool((at <= rows.stops).all())
    if not sound or (at != rows.stops).any():
        raise Damaged(f"{what}: a stored value does not have its {count} parts")
    return parts


def _unpacked(types: Sequence[Type], rows: _Values) -> tuple[tuple[Vec, ...], np.ndarray | None]:
    """Columns, and row errors if there are any."""
    count = len(rows)
    if not count:
        return tuple(empty(t) for t in types), None
    widths = [4 if t.varlen else t.dtype.itemsize * (2 if t.wide else 1) for t in types]
    fixed = 1 + sum(widths)
    if (rows.stops - rows.starts < fixed).any():
        raise Damaged(f"a stored row is shorter than its {len(types)} columns")
    flags = rows.data[rows.starts]
    at = rows.starts + fixed
    odd, failed = np.flatnonzero(flags & _ODD), np.flatnonzero(flags & _FAILED)
    status = np.ones((len(types), count), np.uint8)
    if len(odd):
        status[:, odd] = rows.data[at[odd, None] + np.arange(len(types))].T
        at[odd] += len(types)
    error: np.ndarray | None = None
    if len(failed):
        error = np.ones(count, np.uint8)
        error[failed] = rows.data[at[failed]]
        at[failed] += 1
    columns, offset = [], 1
    for i, (type, width) in enumerate(zip(types, widths, strict=True)):
        raw = rows.data[(rows.starts + offset)[:, None] + np.arange(width)]
        code = status[i] if len(odd) and (status[i] != 1).any() else None
        if type.varlen:
            lengths = raw.view("<i4")[:, 0].astype(np.int64)
            columns.append(Vec(type, _texts(type, rows.data, at, lengths), code))
            at = at + lengths
        else:
            data = raw.view(type.dtype) if type.wide else raw.view(type.dtype)[:, 0]
            columns.append(Vec(type, data, code))
        offset += width
    return tuple(columns), error


def _texts(type: Type, data: np.ndarray, at: np.ndarray, lengths: np.ndarray) -> pa.Array:
    offsets, content = _gathered(data, at, lengths)
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{len(at)} strings of together {offsets[-1]} bytes do not fit; read fewer rows at once")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(type.arrow, len(at), buffers, 0)


def _gathered(data: np.ndarray, at: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the data one after the other: offsets (n + 1), bytes."""
    offsets = np.zeros(len(at) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, data[np.repeat(at - offsets[:-1], lengths) + np.arange(offsets[-1])]
