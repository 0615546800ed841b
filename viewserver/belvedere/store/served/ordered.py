"""Primary keys as bytes that sort as the values do, as HBase row keys: how base rows and their ranges are laid out.

Numbers are big-endian with their sign turned, doubles by their bits (-0.0 is 0.0, all NaNs are one, behind everything),
text and binaries byte by byte, closed by 00 00 with 00 inside written as 00 FF. A key of fewer columns is a prefix of
the keys it stands for, so it is a bound of a range.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.vec import Vec
from belvedere.errors import DataError
from belvedere.types import Kind, Type

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
        _check(packed.shape[1] if count else 0, owner)
        return _rows(packed)
    parts = [_texts(vec) if vec.type.varlen else _rows(_fixed(vec)) for vec in columns]
    found = parts[0] if len(parts) == 1 else [b"".join(row) for row in zip(*parts, strict=True)]
    _check(max(map(len, found), default=0), owner)
    return found


def _check(longest: int, owner: str) -> None:
    if longest > MAX_KEY:
        raise DataError(f"a key of {owner} has {longest} bytes, the served store takes {MAX_KEY}")


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


def decode_key(key: bytes, types: Sequence[Type]) -> list[Any]:
    """The values of a key, or of its first columns; raises `DataError` for bytes that are none, as a bound may be."""
    found: list[Any] = []
    for type in types:
        if not key:
            break
        if type.varlen:
            stop = 0
            while (stop := key.find(b"\0", stop)) >= 0 and key[stop + 1 : stop + 2] == b"\xff":
                stop += 2
            content, key = key[: max(stop, 0)].replace(b"\0\xff", b"\0"), key[stop + 2 :] if stop >= 0 else b""
            whole = stop >= 0
        else:
            width = len(_fixed(Vec(type, np.zeros((1, 2) if type.wide else 1, type.dtype)))[0])
            content, key, whole = key[:width], key[width:], len(key) >= width
        if not whole:
            raise DataError(f"{len(content)} bytes are no key column of type {type}")
        found.append(_value(content, type))
    return found


def _value(content: bytes, type: Type) -> Any:
    kind, number = type.kind, int.from_bytes(content, "big")
    if kind is Kind.BOOLEAN:
        return bool(number)
    if kind is Kind.DOUBLE:
        bits = number ^ (1 << 63) if number >> 63 else number ^ (2**64 - 1)
        return struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    if type.varlen:
        return pa.array([content], pa.binary()).cast(type.arrow)[0].as_py()
    signed = number - (1 << 8 * len(content) - 1)
    if kind is Kind.DECIMAL:
        return Decimal(signed).scaleb(-type.scale, Context(prec=38))
    return pa.array([signed], pa.int32() if len(content) == 4 else pa.int64()).cast(type.arrow)[0].as_py()
