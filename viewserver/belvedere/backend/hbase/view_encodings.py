"""Columns as HBase's `Bytes` class writes them, so that any HBase client reads them: `Bytes.toLong(value)` and so on.

boolean       one byte, ff or 00
int, date     four bytes, big-endian (days since 1970)
bigint        eight bytes, big-endian
timestamp     the same (microseconds since 1970, UTC)
double        eight bytes, IEEE 754
decimal       four bytes for the scale, and the unscaled number as short as may be: `Bytes.toBytes(BigDecimal)`
string        UTF-8
binary        itself
NULL          nothing
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.layout import fixed_binary
from belvedere.engine.vec import Vec
from belvedere.types import Kind

_NUMBERS = {Kind.INT: ">i4", Kind.DATE: ">i4", Kind.BIGINT: ">i8", Kind.TIMESTAMP: ">i8", Kind.DOUBLE: ">f8"}


def encode_bytes(column: Vec) -> pa.BinaryArray:
    """A column of values and NULLs."""
    kind = column.type.kind
    if kind in _NUMBERS:
        words = np.ascontiguousarray(column.data).astype(_NUMBERS[kind])
        encoded = fixed_binary(words.view(np.uint8).reshape(len(words), words.dtype.itemsize))
    elif kind is Kind.BOOLEAN:
        encoded = fixed_binary(np.where(column.data, 0xFF, 0).astype(np.uint8).reshape(-1, 1))
    elif kind is Kind.DECIMAL:
        encoded = pa.array(_decimals(column), pa.binary())
    else:
        encoded = column.data.cast(pa.binary())
    valid = column.valid
    if valid.all():
        return encoded
    at = np.where(valid, np.arange(len(valid)), 0)
    return encoded.take(pa.array(at, mask=~valid)).fill_null(b"") if len(encoded) else encoded


def _decimals(column: Vec) -> list[bytes]:
    scale = column.type.scale.to_bytes(4, "big")
    if not column.type.wide:
        return [scale + _shortest(number) for number in column.data.tolist()]
    words = column.data.tolist()
    return [scale + _shortest((high << 64) + (low % (1 << 64))) for low, high in words]


def _shortest(number: int) -> bytes:
    """Java's BigInteger: two's complement, with room for the sign."""
    bits = number.bit_length() if number >= 0 else (number + 1).bit_length()
    return number.to_bytes(bits // 8 + 1, "big", signed=True)


def null_bits(columns: tuple[Vec, ...], count: int) -> np.ndarray:
    """A bit for each column that is NULL, the first one in the least bit of the first byte."""
    table = np.zeros((count, len(columns)), np.bool_)
    for at, column in enumerate(columns):
        table[:, at] = ~column.valid
    return np.packbits(table, axis=1, bitorder="little")
