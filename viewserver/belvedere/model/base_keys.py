"""Primary keys as bytes in order (`belvedere.model.keys`): how rows of base tables find their key range.

The form is that of DELTA's rows in order. A key of fewer columns is a prefix of the keys it stands for, so it is a
bound of a range.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from belvedere.engine.vec import Vec
from belvedere.errors import DataError
from belvedere.model.keys import KeyCodec, key_codec
from belvedere.types import Column, Type


def check_keys(columns: Sequence[Vec], owner: str) -> None:
    for vec in columns:
        if vec.status is not None and not vec.valid.all():
            raise DataError(f"a key of {owner} holds NULL")


def encode_keys(columns: Sequence[Vec], owner: str) -> list[bytes]:
    """One byte string per row of these key columns."""
    check_keys(columns, owner)
    count = len(columns[0])
    found = _codec(*[vec.type for vec in columns]).encode([vec.to_arrow() for vec in columns], count)
    keys: list[bytes] = found.to_pylist()
    return keys


def decode_key(key: bytes, types: Sequence[Type]) -> list[Any]:
    """The values of a key, or of its first columns; raises `DataError` for bytes that are none, as a bound may be."""
    return list(_codec(*types).decode_one(key))


@lru_cache(maxsize=1024)
def _codec(*types: Type) -> KeyCodec:
    columns = tuple(Column(f"{number}", type) for number, type in enumerate(types, 1))
    return key_codec(columns, range(len(columns)))
