"""Columns in the engine: values plus a status byte per row.

Layout by kind: boolean bool_, int int32, bigint int64, double float64, date int32 (days since 1970), timestamp int64
(microseconds UTC), decimal int64 (unscaled) up to 18 digits, else int64[n, 2] (low, high: Arrow's decimal128 memory),
string and binary a pyarrow array without NULLs. `status` tells what a row holds: VALUE, NULL, or an error code (errors
are values of a row until something reads them: `CASE WHEN b = 0 THEN 0 ELSE a / b END` must not fail). None means all
rows are values. What `data` holds where the status is not VALUE is unspecified.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.types import Kind, Type


class Status(enum.IntEnum):
    """What one row of a column holds. Codes from DIVISION on are errors."""

    NULL = 0
    VALUE = 1
    DIVISION = 2
    OVERFLOW = 3
    CAST = 4
    ARGUMENT = 5
    UNCOVERED = 6
    UNREADABLE = 7

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Status.NULL: "null",
    Status.VALUE: "value",
    Status.DIVISION: "division by zero",
    Status.OVERFLOW: "value out of range",
    Status.CAST: "cast of a value that does not fit",
    Status.ARGUMENT: "function argument out of its domain",
    Status.UNCOVERED: "a version was deleted, and which older one the store has now is not known yet",
    Status.UNREADABLE: "a cell that its encoding cannot read",
}

Data: TypeAlias = Any
"""A numpy array, or an Arrow array of strings or binaries; unchecked, since Arrow ships no type information."""


@dataclass(slots=True)
class Vec:
    """One column of a batch."""

    type: Type
    data: Data
    status: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.data)

    @property
    def valid(self) -> np.ndarray:
        """Boolean mask of rows that hold a value."""
        return np.ones(len(self), np.bool_) if self.status is None else self.status == Status.VALUE

    @property
    def errors(self) -> np.ndarray | None:
        """Boolean mask of rows that hold an error, or None if none does."""
        if self.status is None:
            return None
        mask = self.status > Status.VALUE
        return mask if mask.any() else None

    def take(self, index: np.ndarray) -> Vec:
        """Rows at `index` (int32/int64 positions), in that order."""
        status = None if self.status is None else self.status[index]
        if isinstance(self.data, np.ndarray):
            return Vec(self.type, self.data[index], status)
        return Vec(self.type, self.data.take(pa.array(index)), status)

    def filter(self, mask: np.ndarray) -> Vec:
        """Rows where the mask is true."""
        status = None if self.status is None else self.status[mask]
        if isinstance(self.data, np.ndarray):
            return Vec(self.type, self.data[mask], status)
        return Vec(self.type, self.data.filter(pa.array(mask)), status)

    def slice(self, start: int, stop: int) -> Vec:
        """Rows start..stop, without copying."""
        status = None if self.status is None else self.status[start:stop]
        if isinstance(self.data, np.ndarray):
            return Vec(self.type, self.data[start:stop], status)
        return Vec(self.type, self.data.slice(start, stop - start), status)

    def nbytes(self) -> int:
        """Bytes held (for budgets)."""
        return int(self.data.nbytes) + (0 if self.status is None else len(self.status))

    def to_arrow(self) -> pa.Array:
        """As an Arrow array of the type's border form. Errors become NULL: whoever cares looks at `errors` before."""
        mask = None if self.status is None else self.status != Status.VALUE
        if mask is not None and not mask.any():
            mask = None
        kind = self.type.kind
        if isinstance(self.data, pa.Array):
            return self.data if mask is None else pc.if_else(pa.array(mask), pa.scalar(None, self.data.type), self.data)
        if kind is Kind.NULL:
            return pa.nulls(len(self))
        if kind is Kind.DECIMAL:
            words = self.data
            if not self.type.wide:
                words = np.empty((len(self), 2), np.int64)
                words[:, 0] = self.data
                words[:, 1] = self.data >> 63
            bitmap = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
            return pa.Array.from_buffers(
                self.type.arrow, len(self), [bitmap, pa.py_buffer(np.ascontiguousarray(words))], -1 if bitmap else 0
            )
        if kind is Kind.BOOLEAN:
            return pa.array(self.data, mask=mask)
        bitmap = None if mask is None else pa.py_buffer(np.packbits(~mask, bitorder="little"))
        return pa.Array.from_buffers(
            self.type.arrow, len(self), [bitmap, pa.py_buffer(np.ascontiguousarray(self.data))], -1 if bitmap else 0
        )

    @staticmethod
    def from_arrow(array: pa.Array | pa.ChunkedArray, type: Type) -> Vec:
        """From an Arrow array that already has the type's border form (see `Type.arrow`)."""
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)
        count = len(array)
        status = None
        if array.null_count:
            status = np.asarray(array.is_valid()).astype(np.uint8)
        kind = type.kind
        if type.varlen:
            if array.null_count:
                array = array.fill_null("" if kind is Kind.STRING else b"")
            return Vec(type, array, status)
        if kind is Kind.NULL:
            return Vec(type, np.zeros(count, np.bool_), np.zeros(count, np.uint8))
        if kind is Kind.BOOLEAN:
            data = np.asarray(array.fill_null(False) if array.null_count else array)
            return Vec(type, data, status)
        if count == 0:
            return empty(type)
        buffer = array.buffers()[1]
        if kind is Kind.DECIMAL:
            words = np.frombuffer(buffer, np.int64)[2 * array.offset : 2 * (array.offset + count)].reshape(count, 2)
            data = words if type.wide else np.ascontiguousarray(words[:, 0])
            return Vec(type, data, status)
        return Vec(type, np.frombuffer(buffer, type.dtype)[array.offset : array.offset + count], status)


def empty(type: Type) -> Vec:
    """A column of no rows."""
    if type.varlen:
        return Vec(type, pa.array([], type.arrow))
    return Vec(type, np.empty((0, 2) if type.wide else 0, type.dtype))


def nulls(type: Type, count: int) -> Vec:
    """A column of NULLs."""
    status = np.zeros(count, np.uint8)
    if type.varlen:
        offsets = pa.py_buffer(np.zeros(count + 1, np.int32))
        return Vec(type, pa.Array.from_buffers(type.arrow, count, [None, offsets, pa.py_buffer(b"")], 0), status)
    return Vec(type, np.zeros((count, 2) if type.wide else count, type.dtype), status)


def concat(parts: Sequence[Vec]) -> Vec:
    """Columns of one type, one after the other."""
    if len(parts) == 1:
        return parts[0]
    type = parts[0].type
    status = None
    if any(p.status is not None for p in parts):
        status = np.concatenate([np.ones(len(p), np.uint8) if p.status is None else p.status for p in parts])
    if type.varlen:
        return Vec(type, pa.concat_arrays([p.data for p in parts]), status)
    return Vec(type, np.concatenate([p.data for p in parts]), status)


def canonical(vec: Vec) -> Vec:
    """The same values with one form of zero and one NaN."""
    if vec.type.kind is not Kind.DOUBLE:
        return vec
    data = vec.data + 0.0
    return Vec(vec.type, np.where(np.isnan(data), np.nan, data), vec.status)
