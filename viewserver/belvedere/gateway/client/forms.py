"""Values in the JSON of the API and back, without the server's library for JSON; the table is in
docs/design/gateway.md.

Most rows travel as Arrow. JSON is for keys, for rows that differ in the columns that they have, and for events.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from belvedere.errors import Incompatible
from belvedere.types import Column, Kind, Schema

SAFE = (1 << 53) - 1
"""The greatest integer that every reader of JSON keeps."""
_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


# ---------------------------------------------------------------------- to JSON


def to_json(value: Any) -> Any:
    """A value in the Python form that Arrow has for its type, ready for `dumps`."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if -SAFE <= value <= SAFE else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else _named(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(f"no value of SQL: {type(value).__name__}")


def dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


# ---------------------------------------------------------------------- from JSON


def table_of(rows: Sequence[Mapping[str, Any]], schema: Schema) -> pa.Table:
    """Rows of an answer as an Arrow table with these columns."""
    try:
        arrays = [_array([row[column.name] for row in rows], column) for column in schema]
    except (KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise Incompatible(f"the gateway sent rows that are not of their columns: {error}") from error
    names = pa.schema([pa.field(column.name, column.type.arrow) for column in schema])
    if not schema:
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.Table.from_arrays(arrays, schema=names)


def _array(values: list[Any], column: Column) -> pa.Array:
    turn = _FROM.get(column.type.kind)
    if turn is None:
        return pa.array(values, column.type.arrow)
    return turn(values, column.type.arrow)


def _integers(values: list[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([int(v) if isinstance(v, str) else v for v in values], arrow)


def _doubles(values: list[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([_DOUBLES[v] if isinstance(v, str) else v for v in values], arrow)


def _texts(values: list[Any], arrow: pa.DataType) -> pa.Array:
    """Decimals and dates: Arrow reads them."""
    return pa.array(values, pa.string()).cast(arrow)


def _timestamps(values: list[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if v is None else datetime.fromisoformat(v) for v in values], arrow)


def _binaries(values: list[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if v is None else base64.b64decode(v, validate=True) for v in values], arrow)


_FROM: Mapping[Kind, Callable[[list[Any], pa.DataType], pa.Array]] = {
    Kind.BIGINT: _integers,
    Kind.DOUBLE: _doubles,
    Kind.DECIMAL: _texts,
    Kind.DATE: _texts,
    Kind.TIMESTAMP: _timestamps,
    Kind.BINARY: _binaries,
}
