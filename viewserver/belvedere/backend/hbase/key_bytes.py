"""Row keys of HBase from the columns of a key: the inverse of `row_keys`, for a few rows, where there is one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError
from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import Encoding, RowKey

_FORMATS = {
    Encoding.SHORT: ">h",
    Encoding.INT: ">i",
    Encoding.LONG: ">q",
    Encoding.DOUBLE: ">d",
    Encoding.FLOAT: ">f",
}


def check_invertible(table: TableDef) -> None:
    """Refuse tables whose row keys have what their columns do not say."""
    assert table.origin is not None
    form = table.origin.row_key
    others = [table.origin.columns[i].encoding for i in table.key_positions]
    texts = all(table.columns[i].type.kind.value in ("string", "binary") or others[at] in _FORMATS
                for at, i in enumerate(table.key_positions))  # fmt: skip
    if form != RowKey(delimiter=form.delimiter) or not texts or set(others) - {*_FORMATS, Encoding.TEXT, Encoding.RAW}:
        raise CatalogError(
            f"base table {table.name!r}: which rows lie in a part of hbase table {table.origin.table!r} cannot be told,"
            " because its row keys have parts that no column says; read all of it again, without start and stop"
        )


def key_bytes(table: TableDef, keys: Sequence[Vec]) -> list[bytes]:
    """Of an invertible table."""
    assert table.origin is not None
    parts: list[list[bytes]] = []
    for at, vec in zip(table.key_positions, keys, strict=True):
        encoding = table.origin.columns[at].encoding
        parts.append([_written(encoding, value) for value in vec.to_arrow().to_pylist()])
    between = table.origin.row_key.delimiter.encode()
    return [between.join(row) for row in zip(*parts, strict=True)]


def _written(encoding: Encoding, value: Any) -> bytes:
    if encoding in _FORMATS:
        return struct.pack(_FORMATS[encoding], value)
    return value.encode() if isinstance(value, str) else bytes(value)
