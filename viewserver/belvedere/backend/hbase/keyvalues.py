"""Cells as HBase sends them in blocks (its KeyValueCodec), to and from columns, without a Python object per cell.

    int32 length of what follows
    int32 length of the key, int32 length of the value
    key    int16 length, row | int8 length, family | qualifier | int64 timestamp, int8 kind
    value, and perhaps tags

Reading: one Arrow array over the whole block has every part of every cell as an element, without copying; a `take` of
every eighth element is a column. Writing: Arrow joins the parts of each cell, and the buffer that it gives is the
block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.errors import Damaged

PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14
"""Kinds of cells. DELETE hides the version of its timestamp, DELETE_COLUMN and DELETE_FAMILY it and all older ones."""
LATEST = 2**63 - 1
"""A timestamp that the region server replaces by its clock."""

_PARTS = 8
_ROW, _FAMILY, _QUALIFIER, _STAMP, _VALUE = 1, 3, 4, 5, 6
_LENGTH = struct.Struct(">i")
_HEAD = np.dtype([("size", ">i4"), ("key", ">i4"), ("value", ">i4"), ("row", ">i2")])
_TAIL = np.dtype([("timestamp", ">i8"), ("kind", "u1")])
_FIXED = 2 + 1 + 8 + 1
"""Bytes of a key beside row, family and qualifier."""


@dataclass(frozen=True)
class KeyValues:
    """Columns of cells, all of one length."""

    row: pa.BinaryArray
    family: pa.BinaryArray
    qualifier: pa.BinaryArray
    timestamp: np.ndarray
    kind: np.ndarray
    value: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, at: np.ndarray) -> KeyValues:
        index = pa.array(at)
        row, family, qualifier = (column.take(index) for column in (self.row, self.family, self.qualifier))
        return KeyValues(row, family, qualifier, self.timestamp[at], self.kind[at], self.value.take(index))


def concat(parts: list[KeyValues]) -> KeyValues:
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return NO_CELLS
    return KeyValues(
        pa.concat_arrays([part.row for part in parts]),
        pa.concat_arrays([part.family for part in parts]),
        pa.concat_arrays([part.qualifier for part in parts]),
        np.concatenate([part.timestamp for part in parts]),
        np.concatenate([part.kind for part in parts]),
        pa.concat_arrays([part.value for part in parts]),
    )


def decode(block: bytes | bytearray | memoryview) -> KeyValues:
    """The cells of a block, in its order. Tags are left out."""
    data = np.frombuffer(block, np.uint8)
    begin = _begins(block, data)
    if not len(begin):
        return NO_CELLS
    size, key, value = (_int32(data, begin + at) for at in (0, 4, 8))
    row = _int16(data, begin + 12)
    family = data[begin + 14 + row].astype(np.int64)
    if ((size < 8 + key + value) | (key < _FIXED + row + family)).any():
        raise Damaged("a block of cells from hbase has lengths that do not fit into each other")
    bounds = np.empty((len(begin), _PARTS), np.int64)
    bounds[:, 0] = begin
    bounds[:, _ROW] = begin + 14
    bounds[:, 2] = begin + 14 + row
    bounds[:, _FAMILY] = bounds[:, 2] + 1
    bounds[:, _QUALIFIER] = bounds[:, _FAMILY] + family
    bounds[:, _STAMP] = begin + 12 + key - 9
    bounds[:, _VALUE] = begin + 12 + key
    bounds[:, 7] = bounds[:, _VALUE] + value
    offsets = np.append(bounds.ravel(), len(data)).astype(np.int32)
    parts = pa.BinaryArray.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )
    every = np.arange(len(begin)) * _PARTS
    stamps = data[bounds[:, _STAMP, None] + np.arange(8)].view(">i8").ravel().astype(np.int64)
    row, family, qualifier, value = (parts.take(pa.array(every + at)) for at in (_ROW, _FAMILY, _QUALIFIER, _VALUE))
    return KeyValues(row, family, qualifier, stamps, data[bounds[:, _STAMP] + 8], value)


def _begins(block: bytes | bytearray | memoryview, data: np.ndarray) -> np.ndarray:
    """Where each cell begins. Cells of one size, as state rows often are, are found without looking at each."""
    if len(data) >= 4:
        step = 4 + _LENGTH.unpack_from(block, 0)[0]
        if step > 4 and len(data) % step == 0:
            begins = np.arange(0, len(data), step)
            if (_int32(data, begins) == step - 4).all():
                return begins
    return np.fromiter(_walk(block), np.int64)


def _walk(block: bytes | bytearray | memoryview) -> Iterator[int]:
    at, end, unpack = 0, len(block), _LENGTH.unpack_from
    while at < end:
        yield at
        at += 4 + unpack(block, at)[0]
    if at != end:
        raise Damaged(f"a block of cells from hbase has {end} bytes, and its last cell ends at {at}")


def _int32(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    return data[at[:, None] + np.arange(4)].view(">i4").ravel().astype(np.int64)


def _int16(data: np.ndarray, at: np.ndarray) -> np.ndarray:
    return data[at[:, None] + np.arange(2)].view(">i2").ravel().astype(np.int64)


def encode(cells: KeyValues) -> pa.Buffer | bytes:
    """The block of these cells. At most 2 GiB."""
    if not len(cells):
        return b""
    row, family, qualifier, value = map(_lengths, (cells.row, cells.family, cells.qualifier, cells.value))
    head, tail = np.empty(len(cells), _HEAD), np.empty(len(cells), _TAIL)
    key = _FIXED + row + family + qualifier
    head["size"], head["key"], head["value"], head["row"] = 8 + key + value, key, value, row
    tail["timestamp"], tail["kind"] = cells.timestamp, cells.kind
    joined = pc.binary_join_element_wise(
        _fixed(head), cells.row, _fixed(family.astype(np.uint8)), cells.family, cells.qualifier, _fixed(tail),
        cells.value, b"",
    )  # fmt: skip
    _, offsets, block = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[joined.offset, joined.offset + len(joined)]]
    return block.slice(int(first), int(last - first))


def _lengths(column: pa.BinaryArray) -> np.ndarray:
    return np.asarray(pc.binary_length(column)).astype(np.int64)


def _fixed(words: np.ndarray) -> pa.BinaryArray:
    """Words of one width as binary values."""
    width = words.dtype.itemsize
    offsets = np.arange(0, (len(words) + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(words), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(words))]
    )


def cells_of(
    row: pa.BinaryArray, family: bytes, qualifier: bytes, timestamp: int, kind: int, value: pa.BinaryArray
) -> KeyValues:
    """Cells that differ in row and value only."""
    count = len(row)
    return KeyValues(
        row, same(family, count), same(qualifier, count), np.full(count, timestamp, np.int64),
        np.full(count, kind, np.uint8), value,
    )  # fmt: skip


def part_of(values: pa.BinaryArray, start: int, stop: int | None = None) -> pa.BinaryArray:
    """Bytes `[start, stop)` of each value, which has so many. (Arrow's `binary_slice` fails without an end.)"""
    if not len(values):
        return values
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    bounds = np.empty((len(values), 3), np.int32)
    bounds[:, 0], bounds[:, 1] = offsets[:-1], offsets[:-1] + start
    bounds[:, 2] = offsets[1:] if stop is None else offsets[:-1] + stop
    every = pa.py_buffer(np.append(bounds.ravel(), offsets[-1]).astype(np.int32))
    parts = pa.BinaryArray.from_buffers(pa.binary(), 3 * len(values), [None, every, values.buffers()[2]])
    return parts.take(pa.array(np.arange(len(values)) * 3 + 1))


def same(value: bytes, count: int) -> pa.BinaryArray:
    return pa.repeat(pa.scalar(value, pa.binary()), count)


_NONE: pa.BinaryArray = pa.nulls(0, pa.binary())
NO_CELLS = KeyValues(_NONE, _NONE, _NONE, np.zeros(0, np.int64), np.zeros(0, np.uint8), _NONE)
