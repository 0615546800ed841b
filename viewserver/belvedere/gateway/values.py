"""Values of SQL in JSON and back; the table is in docs/design/gateway.md.

JSON has one kind of number, which many readers take for a double. So what a double cannot hold travels as text:
decimals always, big integers where they need it, NaN and infinities. Whole columns are turned at once where Arrow
can do it."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.errors import BadRequest, DataError
from belvedere.types import Column, Kind, Type

SAFE = (1 << 53) - 1
"""The greatest integer that every reader of JSON keeps."""

_INTEGER = re.compile(r"-?[0-9]{1,40}\Z", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,5})?\Z", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z", re.ASCII)
_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_OPTIONS = orjson.OPT_UTC_Z


# ---------------------------------------------------------------------- to JSON


def dumps(value: Any) -> bytes:
    """What handlers make of plain data."""
    return orjson.dumps(value, default=plain, option=_OPTIONS)


def plain(value: Any) -> Any:
    """Values of SQL that orjson does not know."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"no value of SQL: {type(value).__name__}")


def row(values: Mapping[str, Any]) -> dict[str, Any]:
    """A row as `get` gives it, ready for `dumps`."""
    return {name: _one(value) for name, value in values.items()}


def _one(value: Any) -> Any:
    if type(value) is int:
        return value if -SAFE <= value <= SAFE else str(value)
    if type(value) is float:
        return value if math.isfinite(value) else _named(value)
    return value


def _named(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows of a table, ready for `dumps`."""
    names = table.schema.names
    columns = [_column(column) for column in table.columns]
    if not columns:
        return [{} for _ in range(table.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _column(array: pa.ChunkedArray) -> list[Any]:
    kind = array.type
    if pa.types.is_int64(kind):
        values: list[Any] = array.to_pylist()
        extremes = pc.min_max(array).as_py()
        if extremes["min"] is not None and (extremes["min"] < -SAFE or extremes["max"] > SAFE):
            return [_one(value) for value in values]
        return values
    if pa.types.is_floating(kind):
        values = array.to_pylist()
        finite = pc.all(pc.is_finite(array)).as_py()
        return values if finite in (True, None) else [_one(v) for v in values]
    if pa.types.is_decimal(kind):
        texts: list[Any] = array.cast(pa.string()).to_pylist()
        if kind.scale > 6 and any(text is not None and "E" in text for text in texts):
            return [None if text is None else format(Decimal(text), "f") for text in texts]
        return texts
    if pa.types.is_timestamp(kind):
        return _timestamps(array)
    if pa.types.is_date(kind):
        texts = array.cast(pa.string()).to_pylist()
        return texts
    if pa.types.is_binary(kind):
        return [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
    plain_values: list[Any] = array.to_pylist()
    return plain_values


def _timestamps(array: pa.ChunkedArray) -> list[Any]:
    texts = pc.strftime(array.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")  # with six digits of a second
    shown: list[Any] = pc.replace_substring_regex(texts, pattern=r"(\.0{6})?$", replacement="Z").to_pylist()
    return shown


# ---------------------------------------------------------------------- from JSON


def loads(data: bytes | str, what: str) -> Any:
    """JSON, or `BadRequest` that says what is wrong with it."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"{what} is no JSON: {error}") from None
    except RecursionError:
        raise BadRequest(f"{what} is nested too deeply") from None


def parameter(text: str, name: str) -> Any:
    """The JSON of a query parameter."""
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, RecursionError):
        quoted = orjson.dumps(text).decode()
        raise BadRequest(
            f"{name}={text[:100]} is no JSON; hint: a string needs its quotes: {name}={quoted[:100]}"
        ) from None


def _integer(value: Any, type: Type) -> Any:
    if isinstance(value, str):
        if not _INTEGER.match(value):
            raise ValueError
        return int(value)
    if isinstance(value, float) and abs(value) > SAFE:
        raise ValueError
    return value


def _double(value: Any, type: Type) -> Any:
    if isinstance(value, str):
        if value in _DOUBLES:
            return _DOUBLES[value]
        found = float(value) if _NUMBER.match(value) else math.nan
        if not math.isfinite(found):  # a number beyond double is no infinity
            raise ValueError
        return found
    return value


def _decimal(value: Any, type: Type) -> Any:
    if isinstance(value, str):
        if not _NUMBER.match(value):
            raise ValueError
        return Decimal(value)
    if isinstance(value, float) and abs(value) > SAFE:  # digits were lost when it was read
        raise ValueError
    return value


def _binary(value: Any, type: Type) -> Any:
    if not isinstance(value, str):
        raise ValueError
    return base64.b64decode(value.encode("ascii"), validate=True)


def _date(value: Any, type: Type) -> Any:
    if isinstance(value, str) and not _DATE.match(value):
        raise ValueError
    return value


_FROM: Mapping[Kind, Callable[[Any, Type], Any]] = {
    Kind.INT: _integer,
    Kind.BIGINT: _integer,
    Kind.DOUBLE: _double,
    Kind.DECIMAL: _decimal,
    Kind.BINARY: _binary,
    Kind.DATE: _date,
}
_FORMS = {
    Kind.INT: "a number or a string of digits",
    Kind.BIGINT: "a number, or a string of digits beyond 2^53",
    Kind.DOUBLE: 'a number, or "NaN", "Infinity", "-Infinity"',
    Kind.DECIMAL: 'a string such as "9.50"',
    Kind.BINARY: "a string in base64",
    Kind.DATE: 'a string such as "2024-02-29"',
}


def from_json(value: Any, column: Column, owner: str) -> Any:
    """A value of JSON as `put` and `get` take it. They refuse what is of a wrong kind altogether."""
    turn = _FROM.get(column.type.kind)
    if turn is None or value is None:
        return value
    try:
        return turn(value, column.type)
    except (ValueError, binascii.Error, OverflowError):
        text = repr(value)
        raise DataError(
            f"{owner}, column {column.name!r} ({column.type}): {text[:60]} does not fit; it is written as "
            f"{_FORMS[column.type.kind]} in JSON"
        ) from None


class RowReader:
    """Rows of JSON for one relation."""

    def __init__(self, columns: Sequence[Column], owner: str) -> None:
        self._owner = owner
        self._by_name = {column.name.lower(): column for column in columns if column.type.kind in _FROM}

    def row(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadRequest(f"{what}: a row is an object by column name, found {type(value).__name__}")
        turned = self._by_name
        return {
            name: from_json(given, turned[name.lower()], self._owner) if name.lower() in turned else given
            for name, given in value.items()
        }


def key(value: Any, columns: Sequence[Column], owner: str) -> Any:
    """A key, or the first columns of one: a value, an array, or an object."""
    if isinstance(value, dict):
        if len({name.lower() for name in value}) < len(value):
            raise BadRequest(f"{owner}: a column is given twice: {', '.join(value)[:100]}")
        return RowReader(columns, owner).row(value, "key")
    values = value if isinstance(value, list) else [value]
    if len(values) <= len(columns):
        values = [from_json(v, c, owner) for v, c in zip(values, columns, strict=False)]
    return tuple(values)


def needs_types(value: Any) -> bool:
    """Whether a key has parts whose meaning depends on the type of their column."""
    if isinstance(value, list):
        return any(map(needs_types, value))
    return value is not None and type(value) is not int
