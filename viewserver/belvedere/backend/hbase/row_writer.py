"""Rows that clients of a pool write to tables of HBase: puts and deletes of cells, as any client of HBase sends them.

HBase tells nobody where a write stands in its log. So what was written is read back, and the write is named by the row
and the timestamps of its cells (`protocol.row_marks`). The region servers choose these, unless the caller does: by the
clock of a client a put could fall below what is there.

A put is atomic within a row. A NULL is the delete of its cell; a delete takes the cells that are mapped and leaves
others alone. The row keys and cells that are written are those that `row_keys` and `cell_values` read; what only the
application can make (a salt, a document of which a column is one member) is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.keyvalues import PUT, cells_of, concat
from belvedere.backend.hbase.layout import fixed_binary
from belvedere.backend.hbase.view_encodings import encode_bytes
from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError
from belvedere.model.row_ids import row_id
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.row_marks import RowMark
from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.types import Kind

_SERVERS_TIME = 2**63 - 1
_TRIES, _PAUSE_S = 5, 0.002
"""A put in the millisecond of a delete is hidden by it: then it is put again."""
_WORDS = {
    Encoding.SHORT: ">i2",
    Encoding.INT: ">i4",
    Encoding.LONG: ">i8",
    Encoding.MICROS: ">i8",
    Encoding.DOUBLE: ">f8",
    Encoding.FLOAT: ">f4",
}


class RowWriter:
    """`cells`: of the user's HBase. Thread-safe."""

    def __init__(self, cells: Cells, clock: Callable[[], float] = time.time) -> None:
        self._cells, self._clock = cells, clock

    def write(self, table: TableDef, changes: Changes, own_clock: bool) -> Mapping[SourceId, Seq]:
        """Durable when it returns. `own_clock`: HBase chooses the timestamps."""
        assert table.origin is not None
        origin, where = table.origin, str(table.origin.table)
        keys = encode_keys(table, changes.columns)
        ids = [_id(table, changes.columns, at) for at in range(len(changes))]
        if len(set(ids)) < len(ids):
            raise DataError(f"table {table.name!r}: a row is written twice in one call; hbase knows no order within it")
        deleted = np.zeros(len(changes), np.bool_) if changes.delete is None else changes.delete
        marks: dict[SourceId, Seq] = {}
        cells = [i for i in range(len(table.columns)) if i not in table.key_positions]
        written, cleared = [], []
        for bit, i in enumerate(cells):
            stored, column = origin.columns[i], changes.columns[i]
            present = changes.present[i]
            given = ~deleted if present is None else present & ~deleted
            valid = column.valid
            written.append((bit, stored, given & valid, column))
            cleared.append((bit, stored, deleted | (given & ~valid)))
        stamps = self._put(where, keys, written, None if own_clock else changes.ts)
        for bit, times in self._clear(where, keys, cleared, None if own_clock else changes.ts).items():
            stamps[bit] = np.maximum(stamps[bit], times) if bit in stamps else times
        for at, id in enumerate(ids):
            own = {bit: int(times[at]) for bit, times in stamps.items() if times[at] >= 0}
            if own:
                columns = sum(1 << bit for bit in own)
                mark = RowMark(table.name, id, columns, len(table.key_positions))
                marks[mark.source] = Seq(min(own.values()))
        return marks

    def _put(
        self,
        where: str,
        keys: pa.BinaryArray,
        written: Sequence[tuple[int, StoredColumn, np.ndarray, Vec]],
        ts: np.ndarray | None,
    ) -> dict[int, np.ndarray]:
        """Of each column the timestamps of its cells, -1 where none was written."""
        parts, rows = [], []
        for _, stored, mask, column in written:
            at = np.flatnonzero(mask)
            if len(at):
                values = encode_values(stored, column.take(at))
                part = cells_of(
                    keys.take(pa.array(at)), stored.family.encode(), stored.qualifier.encode(), 0, PUT, values
                )
                part.timestamp[:] = _SERVERS_TIME if ts is None else ts[at]
                parts.append(part)
                rows.append(at)
        stamps = {bit: np.where(mask, -1 if ts is None else ts, -1) for bit, _, mask, _ in written if mask.any()}
        if not parts:
            return stamps
        together = concat(parts).take(np.argsort(np.concatenate(rows), kind="stable"))
        if ts is not None:
            self._cells.put(where, together)
            return stamps
        todo = together
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S * 2**attempt)
            self._cells.put(where, todo)
            hidden = self._read_back(where, keys, written, stamps)
            if not hidden:
                return stamps
            todo = together.take(np.flatnonzero(np.asarray(pc.is_in(together.row, value_set=pa.array(sorted(hidden))))))
        raise DataError(
            f"hbase table {where!r}: row {min(hidden)!r} was put and is not there: a delete with a later timestamp"
            " hides it"
        )

    def _read_back(
        self,
        where: str,
        keys: pa.BinaryArray,
        written: Sequence[tuple[int, StoredColumn, np.ndarray, Vec]],
        stamps: dict[int, np.ndarray],
    ) -> set[bytes]:
        """Rows of which a cell is not there."""
        hidden: set[bytes] = set()
        for bit, stored, mask, _ in written:
            at = np.flatnonzero(mask)
            if not len(at):
                continue
            found = self._newest(where, keys.take(pa.array(at)), stored)
            for row in at.tolist():
                name = keys[row].as_py()
                if name in found:
                    stamps[bit][row] = found[name]
                else:
                    hidden.add(name)
        return hidden

    def _clear(
        self,
        where: str,
        keys: pa.BinaryArray,
        cleared: Sequence[tuple[int, StoredColumn, np.ndarray]],
        ts: np.ndarray | None,
    ) -> dict[int, np.ndarray]:
        """Delete cells, at a time that is not before what is there."""
        stamps = {}
        now = int(self._clock() * 1000)
        for bit, stored, mask in cleared:
            at = np.flatnonzero(mask)
            if not len(at):
                continue
            rows = keys.take(pa.array(at))
            if ts is None:
                found = self._newest(where, rows, stored)
                upto = [max(now, found.get(name, now)) for name in rows.to_pylist()]
            else:
                upto = ts[at].tolist()
            self._cells.delete(where, rows, stored.family, [stored.qualifier.encode()] * len(at), upto)
            times = np.full(len(mask), -1, np.int64)
            times[at] = upto
            stamps[bit] = times
        return stamps

    def _newest(self, where: str, rows: pa.BinaryArray, stored: StoredColumn) -> dict[bytes, int]:
        found = self._cells.get(where, rows, Columns(stored.family, (stored.qualifier.encode(),)))
        return dict(zip(found.row.to_pylist(), found.timestamp.tolist(), strict=True))


def _id(table: TableDef, columns: Sequence[Vec], at: int) -> tuple[int, int]:
    words = row_id([columns[i].take(np.array([at])) for i in table.key_positions])
    return int(words[0, 0]), int(words[0, 1])


def encode_keys(table: TableDef, columns: Sequence[Vec]) -> pa.BinaryArray:
    """Row keys of these rows."""
    assert table.origin is not None
    origin = table.origin
    if origin.row_key.skip or origin.row_key.skip_to:
        raise CatalogError(
            f"table {table.name!r}: its row keys begin with something that is no column (a salt or a hash), which only"
            " its application can make; write with a client of hbase"
        )
    delimiter = origin.row_key.delimiter.encode()
    parts, positions = [], table.key_positions
    for number, i in enumerate(positions):
        stored, last = origin.columns[i], number == len(positions) - 1
        column = columns[i]
        if column.type.kind is Kind.DOUBLE:  # there is one zero among keys
            column = Vec(column.type, column.data + 0.0, column.status)
        values = encode_values(stored, column)
        _check_part(table, origin, values, stored, last)
        parts.append(values)
    joined = parts[0]
    if len(parts) > 1:
        joined = pc.binary_join_element_wise(*parts, pa.array([delimiter] * len(joined), pa.binary()))
    if not pc.all(pc.greater(pc.binary_length(joined), 0)).as_py():
        raise DataError(f"table {table.name!r}: the row key would be empty, and hbase has no such row")
    return joined


def _check_part(table: TableDef, origin: Origin, values: pa.BinaryArray, stored: StoredColumn, last: bool) -> None:
    delimiter = origin.row_key.delimiter.encode()
    for value in values.to_pylist() if not last or stored.width is not None else ():
        if stored.width is not None and len(value) != stored.width:
            raise DataError(
                f"table {table.name!r}: {value!r} has {len(value)} bytes; the row key has {stored.width} there"
            )
        if delimiter and stored.encoding.width is None and delimiter in value:
            raise DataError(
                f"table {table.name!r}: {value!r} has the delimiter {delimiter.decode()!r} of row keys in it"
            )


def encode_values(stored: StoredColumn, column: Vec) -> pa.BinaryArray:
    """Values, none of them NULL, as their cells have them."""
    encoding, kind = stored.encoding, column.type.kind
    if stored.member or encoding in (Encoding.JSON, Encoding.AVRO, Encoding.ORDERED):
        raise CatalogError(
            f"values in the encoding {encoding.value!r} are read, and not written by Belvedere; write with a client of"
            " hbase"
        )
    if encoding in _WORDS:
        return _words(column.data, _WORDS[encoding])
    match encoding:
        case Encoding.MILLIS:
            if (column.data % 1000).any():
                raise DataError("a moment has microseconds, and its cell has milliseconds")
            return _words(column.data // 1000, ">i8")
        case Encoding.BOOLEAN | Encoding.DECIMAL:
            return encode_bytes(column)
        case Encoding.RAW:
            return column.data.cast(pa.binary())
    if kind is Kind.STRING:
        return column.data.cast(pa.binary())
    return pa.array([_text(value).encode() for value in column.to_arrow().to_pylist()], pa.binary())


def _words(data: np.ndarray, form: str) -> pa.BinaryArray:
    words = np.ascontiguousarray(data).astype(form)
    if words.dtype.kind == "i" and (words != data).any():
        worst = data[np.flatnonzero(words != data)[0]]
        raise DataError(f"{worst} does not fit the {words.dtype.itemsize} bytes of its cell")
    return fixed_binary(words.view(np.uint8).reshape(len(words), words.dtype.itemsize))


def _text(value: object) -> str:
    """As CAST reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat(sep=" ") if hasattr(value, "hour") else str(value)  # type: ignore[attr-defined]
