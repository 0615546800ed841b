"""SQL types and columns: the vocabulary that every layer shares.

A type fixes three things at once: its name in SQL (Spark's), its Arrow type (at the borders) and its physical form in
the engine (`Type.dtype`): see `belvedere.engine.vec` for how a column of each kind is laid out.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NewType

import numpy as np
import pyarrow as pa

Epoch = NewType("Epoch", int)
"""A millisecond timestamp that only grows; names one atomic step of a pool."""


class Kind(enum.Enum):
    """The kinds of SQL values. NULL is the type of a bare NULL literal before coercion."""

    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    DOUBLE = "double"
    DECIMAL = "decimal"
    STRING = "string"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    NULL = "void"

    __hash__ = object.__hash__  # members are unique; Enum's own hash is Python code, and types are keys everywhere


MAX_PRECISION = 38
SMALL_PRECISION = 18
"""Decimals up to this precision are one int64; wider ones are two (low, high) words."""


@dataclass(frozen=True, slots=True)
class Type:
    """One SQL type; `precision` and `scale` only for decimals."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return str(self.kind.value)

    @property
    def wide(self) -> bool:
        """A decimal that needs 128 bits."""
        return self.kind is Kind.DECIMAL and self.precision > SMALL_PRECISION

    @property
    def varlen(self) -> bool:
        """Strings and binaries: an Arrow array, not a numpy one."""
        return self.kind in (Kind.STRING, Kind.BINARY)

    @property
    def dtype(self) -> np.dtype:
        """Numpy dtype of a fixed-width column (wide decimals: int64, with a second axis of length 2)."""
        return _DTYPES[self.kind]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type at the borders: tables given by users, results, files."""
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]


_DTYPES = {
    Kind.BOOLEAN: np.dtype(np.bool_),
    Kind.INT: np.dtype(np.int32),
    Kind.BIGINT: np.dtype(np.int64),
    Kind.DOUBLE: np.dtype(np.float64),
    Kind.DECIMAL: np.dtype(np.int64),
    Kind.DATE: np.dtype(np.int32),
    Kind.TIMESTAMP: np.dtype(np.int64),
    Kind.NULL: np.dtype(np.bool_),
}
_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.date32(),
    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
    Kind.NULL: pa.null(),
}

BOOLEAN = Type(Kind.BOOLEAN)
INT = Type(Kind.INT)
BIGINT = Type(Kind.BIGINT)
DOUBLE = Type(Kind.DOUBLE)
STRING = Type(Kind.STRING)
BINARY = Type(Kind.BINARY)
DATE = Type(Kind.DATE)
TIMESTAMP = Type(Kind.TIMESTAMP)
NULL = Type(Kind.NULL)


def decimal(precision: int, scale: int) -> Type:
    """decimal(p, s); the caller has checked 1 <= p <= 38 and 0 <= s <= p."""
    return Type(Kind.DECIMAL, precision, scale)


@dataclass(frozen=True, slots=True)
class Column:
    """A named, typed column of a table, view or plan node."""

    name: str
    type: Type
    nullable: bool = True


Schema = tuple[Column, ...]
