"""Primary keys as bytes that sort as the values do, as HBase row keys: how base rows and their ranges are laid out.

Numbers are big-endian with their sign turned, doubles by their bits (-0.0 is 0.0, all NaNs are one, behind everything),
text and binaries byte by byte, closed by 00 00 with 00 inside written as 00 FF. A key of fewer columns is a prefix of
the keys it stands for, so it is a bound of a range.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.vec import Vec
from belvedere.errors import DataError
from belvedere.types import Kind

MAX_KEY = 500
"""Bytes of an encoded key (LMDB allows 511 for a whole key)."""
_SIGN = np.uint64(1 << 63)


def encode_keys(columns: Sequence[Vec], owner: str) -> list[bytes]:
    """One byte string per row of these key columns."""
    for vec in columns:
        if vec.status is not None and not vec.valid.all():
            raise DataError(f"a key of {owner} holds NULL")
    count = len(columns[0])
    if all(not vec.type.varlen for vec in columns):
        packed = np.concatenate([_fixed(vec) for vec in columns], axis=1)
        width, content = packed.shape[1], packed.tobytes()
        return [content[at : at + width] for at in range(0, count * width, width)]
    parts = [_texts(vec) if vec.type.varlen else _rows(_fixed(vec)) for vec in columns]
    found = parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
    longest = max(map(len, found), default=0)
    if longest > MAX_KEY:
        raise DataError(f"a key of {owner} has {longest} bytes, the served store takes {MAX_KEY}")
    return found


def _rows(packed: np.ndarray) -> list[bytes]:
    width, content = packed.shape[1], packed.tobytes()
    return [content[at : at + width] for at in range(0, len(packed) * width, width)]


def _fixed(vec: Vec) -> np.ndarray:
    """Bytes of a column of numbers: uint8[n, width]."""
    kind, data = vec.type.kind, vec.data
    if kind is Kind.BOOLEAN:
        return np.asarray(data, np.uint8).reshape(-1, 1)
    if kind is Kind.DOUBLE:
        return _bytes(_double(data), ">u8")
    if data.dtype.itemsize == 4:
        return _bytes(data.view(np.uint32) ^ np.uint32(1 << 31), ">u4")
    if vec.type.wide:
        words = np.ascontiguousarray(data).view(np.uint64)
        return np.concatenate([_bytes(words[:, 1] ^ _SIGN, ">u8"), _bytes(words[:, 0], ">u8")], axis=1)
    return _bytes(data.view(np.uint64) ^ _SIGN, ">u8")


def _double(data: np.ndarray) -> np.ndarray:
    plain = np.where(data == 0, 0.0, np.where(np.isnan(data), np.nan, data))
    bits = plain.view(np.uint64)
    return np.where(bits >> np.uint64(63) == 1, ~bits, bits | _SIGN)


def _bytes(words: np.ndarray, form: str) -> np.ndarray:
    swapped = np.ascontiguousarray(words).astype(form)
    return swapped.view(np.uint8).reshape(len(words), swapped.dtype.itemsize)


def _texts(vec: Vec) -> list[bytes]:
    values: list[bytes] = vec.data.cast(pa.binary()).to_pylist()
    return [value.replace(b"\0", b"\0\xff") + b"\0\0" for value in values]
