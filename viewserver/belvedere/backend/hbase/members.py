"""Cells that hold JSON or Avro: the members that columns name, each cell read once for all of its columns.

What is read becomes a text, and the text a value, as CAST does: so a number of JSON is exact, whatever its column's
type, and what does not fit is an error value with CAST's reasons. A member that is missing or null is NULL; a cell that
cannot be read, or holds something else than its column, is an error value (`Status.UNREADABLE`).
"""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, NoReturn

import fastavro
import numpy as np
import pyarrow as pa

from belvedere.engine.expr.casts.cast import CASTS
from belvedere.engine.vec import Status, Vec
from belvedere.errors import DataError
from belvedere.sql.origin import Encoding, StoredColumn
from belvedere.types import STRING, Kind, Type


class _Wrong(Exception):
    """What is there is nothing that the column holds."""


_UNREAD = object()
_MOST_DIGITS = 400
Reader = Callable[[bytes], Any]


def read(
    encoding: Encoding, schema: str, cells: Sequence[bytes | None], columns: Sequence[tuple[StoredColumn, Type]]
) -> list[Vec]:
    """A column for each member that is asked for; None is no cell."""
    reader = _json if encoding is Encoding.JSON else avro_reader(schema)
    read = [None if cell is None else _read(reader, cell) for cell in cells]
    return [_column(read, stored.member, type) for stored, type in columns]


def _read(reader: Reader, cell: bytes) -> Any:
    try:
        return reader(cell)
    except Exception:  # whatever the bytes make a parser say, they are no value
        return _UNREAD


def _json(cell: bytes) -> Any:
    return json.loads(cell.decode(), parse_float=Decimal, parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


@lru_cache(maxsize=256)
def avro_reader(schema: str) -> Reader:
    """Of values without a header, such as `BinaryEncoder` writes them."""
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
    except Exception as error:
        raise DataError(f"a schema that Avro cannot read: {error}") from error

    def reader(cell: bytes) -> Any:
        stream = io.BytesIO(cell)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() != len(cell):
            raise ValueError("there are bytes behind the value")
        return value

    return reader


def _column(values: Sequence[Any], member: tuple[str, ...], type: Type) -> Vec:
    status = np.ones(len(values), np.uint8)
    found: list[Any] = []
    binary = type.kind is Kind.BINARY
    for row, value in enumerate(values):
        shown: Any = b"" if binary else ""
        try:
            reached = _reach(value, member)
            if reached is None:
                status[row] = Status.NULL
            else:
                shown = _bytes(reached) if binary else _text(reached, type.kind)
        except _Wrong:
            status[row] = Status.UNREADABLE
        found.append(shown)
    codes = None if bool((status == Status.VALUE).all()) else status
    if binary:
        return Vec(type, pa.array(found, pa.binary()), codes)
    texts = Vec(STRING, pa.array(found, STRING.arrow), codes)
    return texts if type.kind is Kind.STRING else CASTS[Kind.STRING, type.kind](texts, type)


def _reach(value: Any, member: tuple[str, ...]) -> Any:
    if value is _UNREAD:
        raise _Wrong
    for name in member:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise _Wrong
        value = value.get(name)
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _Wrong
    return value


def _text(value: Any, kind: Kind) -> str:
    """As CAST reads it. A column takes what it holds, and nothing that only looks like it."""
    match kind:
        case Kind.BOOLEAN if isinstance(value, bool):
            return "true" if value else "false"
        case Kind.STRING if isinstance(value, str):
            if value.isascii() or value.encode("utf-8", "replace").decode() == value:  # no halves of surrogate pairs
                return value
        case Kind.STRING if isinstance(value, uuid.UUID):
            return str(value)
        case Kind.INT | Kind.BIGINT if isinstance(value, int) and not isinstance(value, bool):
            return _digits(value)
        case Kind.INT | Kind.BIGINT if isinstance(value, Decimal) and value == value.to_integral_value():
            return str(int(value)) if value.adjusted() < _MOST_DIGITS else str(value)
        case Kind.DOUBLE | Kind.DECIMAL if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
            return _digits(value) if isinstance(value, int) else str(value)
        case Kind.DOUBLE | Kind.DECIMAL if isinstance(value, float):
            return repr(value)
        case Kind.DATE if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        case Kind.TIMESTAMP if isinstance(value, datetime):
            moment = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
            return moment.isoformat(" ")
        case Kind.DATE | Kind.TIMESTAMP if isinstance(value, str):
            return value
    raise _Wrong


def _digits(number: int) -> str:
    if abs(number) >= 10**_MOST_DIGITS:  # beyond every type; and Python does not write very long ones
        raise _Wrong
    return str(number)
