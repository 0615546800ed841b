"""Row keys as the columns of a key: what is skipped, then one part behind the other.

Two row keys are never the same key: a part counts as read only if there is no other way to write its value (`7` and
not `007`, but for a text of fixed width; no -0.0). Else two rows of HBase would be one row of a view. What is skipped
is the exception, as nobody can tell: it must follow from the rest, as a salt or a hash of the key does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from belvedere.backend.hbase.cell_values import read_column, read_texts
from belvedere.engine.expr.casts.cast import CASTS
from belvedere.engine.state.kernels import parts, wal
from belvedere.engine.vec import Status, Vec
from belvedere.errors import CatalogError
from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.types import STRING, Kind, Type

_ORDERED = {Kind.INT: (0x2B, 4), Kind.BIGINT: (0x2C, 8), Kind.DOUBLE: (0x31, 8)}
_ORDERED_TEXT = 0x34
"""The first byte of each in `OrderedBytes`, ascending, and how many follow."""
_FORMATS = {
    Encoding.SHORT: ">h", Encoding.INT: ">i", Encoding.LONG: ">q", Encoding.MILLIS: ">q", Encoding.MICROS: ">q",
    Encoding.DOUBLE: ">d", Encoding.FLOAT: ">f",
}  # fmt: skip
_MILLI = 1000


def check_invertible(table: TableDef) -> None:
    """Refuse tables whose row keys have what their columns do not say."""
    assert table.origin is not None
    if table.origin.row_key.skip or table.origin.row_key.skip_to:
        raise CatalogError(
            f"base table {table.name!r}: which rows lie in a part of hbase table {table.origin.table!r} cannot be told,"
            " because its row keys begin with what is skipped (spec.hbase.rowKey); read all of it again, without start"
            " and stop"
        )


def row_keys(table: TableDef, keys: Sequence[Vec]) -> list[bytes]:
    """The row keys of rows of an invertible table, given the columns of their key: the inverse of `RowKeyReader`, for
    a few rows."""
    check_invertible(table)
    origin = table.origin
    assert origin is not None
    stored = [origin.columns[i] for i in table.key_positions]
    columns = [_written(one, vec) for one, vec in zip(stored, keys, strict=True)]
    return [origin.row_key.delimiter.encode().join(row) for row in zip(*columns, strict=True)]


def _written(stored: StoredColumn, vec: Vec) -> list[bytes]:
    match stored.encoding:
        case Encoding.RAW:
            return list(vec.data.to_pylist())
        case Encoding.TEXT if vec.type.kind is Kind.STRING:
            return [text.encode().ljust(stored.width or 0, b"\0") for text in vec.data.to_pylist()]
        case Encoding.TEXT:
            texts = CASTS[vec.type.kind, Kind.STRING](vec, STRING).data.to_pylist()
            return [text.encode().rjust(stored.width or 0, b"0") for text in texts]
        case Encoding.ORDERED if vec.type.kind is Kind.STRING:
            return [bytes([_ORDERED_TEXT]) + text.encode() + b"\0" for text in vec.data.to_pylist()]
        case Encoding.BOOLEAN:
            return [b"\xff" if value else b"\0" for value in vec.data.tolist()]
        case Encoding.ORDERED:
            header, width = _ORDERED[vec.type.kind]
            bits = vec.data.view(np.int64) if vec.type.kind is Kind.DOUBLE else vec.data.astype(np.int64)
            words = bits ^ (-1 << (8 * width - 1))
            if vec.type.kind is Kind.DOUBLE:
                words = np.where(bits < 0, ~bits, words)
            return [bytes([header]) + (word % (1 << 8 * width)).to_bytes(width, "big") for word in words.tolist()]
    values = vec.data // _MILLI if stored.encoding is Encoding.MILLIS else vec.data
    return [struct.pack(_FORMATS[stored.encoding], value) for value in values.tolist()]


@dataclass(frozen=True)
class KeyPart:
    name: str
    type: Type
    stored: StoredColumn


@dataclass
class _Left:
    """What is left of each row key, and whether all was fine so far. `first_bad`: the part at which it was not."""

    at: np.ndarray
    size: np.ndarray
    sound: np.ndarray
    first_bad: np.ndarray
    part: int = -1

    def require(self, mask: np.ndarray) -> None:
        if not mask.all():
            fresh = self.sound & ~mask
            self.first_bad[fresh] = self.part
            self.sound &= mask

    def advance(self, taken: np.ndarray) -> None:
        taken = np.minimum(taken, self.size)
        self.at, self.size = self.at + taken, self.size - taken


class RowKeyReader:
    """`parts`: the columns of the key, in its order."""

    def __init__(self, origin: Origin, parts: Sequence[KeyPart]) -> None:
        self._parts, self._form = parts, origin.row_key
        self._delimiter, self._skip_to = _bytes(self._form.delimiter), _bytes(self._form.skip_to)

    def read(self, data: np.ndarray, at: np.ndarray, size: np.ndarray) -> tuple[list[Vec], np.ndarray]:
        """The columns, and a mask of the keys that can be read."""
        columns, left = self._read(data, at, size)
        return columns, left.sound

    def reason(self, key: bytes) -> str:
        """Why a row key cannot be read."""
        data = np.frombuffer(key or b"\0", np.uint8).copy()
        _, left = self._read(data, np.zeros(1, np.int64), np.array([len(key)], np.int64))
        bad = int(left.first_bad[0])
        if bad < 0:
            form = self._form
            return f"it has fewer than {form.skip} bytes" if form.skip else f"it has no {form.skip_to!r} to skip to"
        if bad == len(self._parts):
            return f"bytes follow its last column, {self._parts[-1].name!r}"
        part = self._parts[bad]
        return f"column {part.name!r} ({part.type}) cannot be read as {part.stored.encoding.value}"

    def _read(self, data: np.ndarray, at: np.ndarray, size: np.ndarray) -> tuple[list[Vec], _Left]:
        left = _Left(at, size.copy(), np.ones(len(at), np.bool_), np.full(len(at), -1, np.int64))
        self._skip(data, left)
        columns = []
        for number, part in enumerate(self._parts):
            left.part = number
            columns.append(self._column(data, left, part, number == len(self._parts) - 1))
        left.part = len(self._parts)
        left.require(left.size == 0)
        return columns, left

    def _skip(self, data: np.ndarray, left: _Left) -> None:
        if self._form.skip:
            left.require(left.size >= self._form.skip)
            left.advance(np.full(len(left.at), self._form.skip, np.int64))
        elif self._form.skip_to:
            found = _find(data, left, self._skip_to)
            left.require(found >= 0)
            left.advance(np.where(found < 0, 0, found + len(self._skip_to)))

    def _column(self, data: np.ndarray, left: _Left, part: KeyPart, last: bool) -> Vec:
        if part.stored.encoding is Encoding.ORDERED:
            return _ordered(data, left, part.type)
        width = part.stored.width or part.stored.encoding.width
        if width is not None:
            taken = np.minimum(left.size, width)
            left.require(left.size >= width)
        elif last:
            taken = left.size
        else:
            found = _find(data, left, self._delimiter)
            left.require(found >= 0)
            taken = np.where(found < 0, left.size, found)
        vec = _value(data, left, taken, part)
        left.advance(taken)
        if self._form.delimiter and not last:
            if width is not None:
                left.require(_find(data, left, self._delimiter) == 0)
            left.advance(np.full(len(left.at), len(self._delimiter), np.int64))
        return vec


def _bytes(mark: str) -> np.ndarray:
    return np.frombuffer(mark.encode() or b"\0", np.uint8).copy()


def _find(data: np.ndarray, left: _Left, mark: np.ndarray) -> np.ndarray:
    found = np.empty(len(left.at), np.int64)
    parts.find_mark(data, np.ascontiguousarray(left.at), np.ascontiguousarray(left.size), mark, found)
    return found


def _value(data: np.ndarray, left: _Left, size: np.ndarray, part: KeyPart) -> Vec:
    """One part. It is sound if its value would be written just so."""
    at, size, stored = np.ascontiguousarray(left.at), np.ascontiguousarray(size), part.stored
    if stored.encoding is not Encoding.TEXT:
        vec = read_column(data, at, size, stored.encoding, part.type)
        left.require(_is_value(vec))
        if part.type.kind is Kind.DOUBLE:
            left.require(_is_plain(vec.data))
        if part.type.kind is Kind.BOOLEAN:
            first = data[np.minimum(at, len(data) - 1)]
            left.require((first == 0) | (first == 0xFF))
        return vec
    texts = read_texts(data, at, size)
    left.require(_is_value(texts))
    if part.type.kind is Kind.STRING:
        if stored.width is not None:  # shorter ones are filled up, as `RawStringFixedLength` does
            return Vec(STRING, pc.utf8_rtrim(texts.data, "\0"), texts.status)
        return texts
    vec = CASTS[Kind.STRING, part.type.kind](texts, part.type)
    left.require(_is_value(vec))
    again = CASTS[part.type.kind, Kind.STRING](vec, STRING).data
    if stored.width is not None:
        again = pc.utf8_lpad(again, stored.width, "0")
    left.require(np.asarray(pc.equal(again, texts.data)).astype(np.bool_) | ~left.sound)
    return vec


def _is_value(vec: Vec) -> np.ndarray:
    return np.ones(len(vec), np.bool_) if vec.status is None else vec.status == Status.VALUE


def _is_plain(numbers: np.ndarray) -> np.ndarray:
    """Doubles that no other bits are equal to."""
    negative_zero = (numbers == 0) & np.signbit(numbers)
    return np.asarray(~negative_zero & ~np.isnan(numbers))


def _ordered(data: np.ndarray, left: _Left, type: Type) -> Vec:
    """A part in the form of `OrderedBytes`: a byte that says what it is, and the value."""
    text = type.kind is Kind.STRING
    header, width = (_ORDERED_TEXT, 0) if text else _ORDERED[type.kind]
    begins = np.empty(len(left.at), np.uint8)
    parts.begin_with(data, np.ascontiguousarray(left.at), np.ascontiguousarray(left.size), header, begins)
    left.require(begins.view(np.bool_))
    left.advance(np.ones(len(left.at), np.int64))
    at = np.ascontiguousarray(left.at)
    if text:
        found = _find(data, left, _bytes("\0"))
        left.require(found >= 0)
        vec = read_texts(data, at, np.where(found < 0, left.size, found))
        left.require(_is_value(vec))
        left.advance(np.where(found < 0, left.size, found + 1))
        return vec
    numbers, status = np.empty(len(at), np.int64), np.empty(len(at), np.uint8)
    wal.read_big_endian(data, at, np.minimum(left.size, width), width, numbers, status)
    left.require(status == Status.VALUE)
    left.advance(np.full(len(at), width, np.int64))
    if type.kind is not Kind.DOUBLE:
        return Vec(type, (numbers ^ (-1 << (8 * width - 1))).astype(type.dtype))
    doubles = np.where(numbers < 0, numbers ^ np.int64(-1 << 63), ~numbers).view(np.float64)
    left.require(_is_plain(doubles))
    return Vec(type, doubles)
