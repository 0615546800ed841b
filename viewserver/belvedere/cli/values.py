"""Text and JSON values to typed Arrow columns, finding exactly which rows are broken and why.

Whole columns are converted at once with Arrow; only when that fails is the column halved until the rows at fault are
alone, and those are judged by `parse`, which also gives the reason. So good data is fast and bad data is explained.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from belvedere.types import Column, Kind, Type

INT_BITS = {Kind.INT: 32, Kind.BIGINT: 64}
LONGEST_QUOTE = 40


class Broken(ValueError):
    """A value that does not fit its column; the message is the reason."""


def quote(value: Any) -> str:
    """A value as it appears in a reason: shortened when long."""
    text = value if isinstance(value, str) else str(value)
    return repr(text if len(text) <= LONGEST_QUOTE else text[:LONGEST_QUOTE] + "…")


def parse(value: Any, type: Type) -> Any:
    """One value given as text, or as what JSON has, in the Python form of `type`; raises Broken with a reason."""
    if value is None:
        return None
    try:
        return _parse(value, type)
    except Broken:
        raise
    except (ValueError, InvalidOperation, OverflowError, TypeError):
        raise Broken(f"{quote(value)} is not {article(type)}") from None


def article(type: Type) -> str:
    """`a date`, `an int`: a type inside a sentence."""
    name = str(type)
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _parse(value: Any, type: Type) -> Any:
    text = value.strip() if isinstance(value, str) else value
    match type.kind:
        case Kind.STRING:
            if not isinstance(value, str):
                raise TypeError
            return _utf8(value)
        case Kind.BINARY:
            return bytes.fromhex(text.removeprefix("0x"))
        case Kind.BOOLEAN:
            return text if isinstance(text, bool) else _boolean(text)
        case Kind.INT | Kind.BIGINT:
            return _integer(text, type)
        case Kind.DOUBLE:
            if isinstance(text, bool):
                raise TypeError
            return float(text)
        case Kind.DECIMAL:
            return _decimal(text, type)
        case Kind.DATE:
            return text if type_is_date(text) else dt.date.fromisoformat(text)
        case Kind.TIMESTAMP:
            return _timestamp(text)
        case _:
            raise TypeError


def type_is_date(value: Any) -> bool:
    """A date that is not a timestamp (datetime is a subclass of date)."""
    return isinstance(value, dt.date) and not isinstance(value, dt.datetime)


def _utf8(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Broken("the text is not valid UTF-8") from None
    return value


def _boolean(text: str) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}
    if text.lower() not in known:
        raise ValueError
    return known[text.lower()]


def _integer(value: Any, type: Type) -> int:
    if isinstance(value, bool) or (isinstance(value, str) and "_" in value):
        raise TypeError
    if isinstance(value, float | Decimal) and value != int(value):
        raise ValueError
    number, limit = int(value), 1 << (INT_BITS[type.kind] - 1)
    if not -limit <= number < limit:
        raise Broken(f"{number} is out of the range of {type}")
    return number


def _decimal(value: Any, type: Type) -> Decimal:
    if isinstance(value, bool):
        raise TypeError
    with localcontext(prec=type.precision + type.scale + 40):
        number = Decimal(repr(value) if isinstance(value, float) else value)
        if not number.is_finite():
            raise ValueError
        scaled = number.quantize(Decimal(1).scaleb(-type.scale))
        if scaled != number:
            raise Broken(f"{quote(value)} has more than {type.scale} decimal places, {type} keeps {type.scale}")
        if len(scaled.as_tuple().digits) > type.precision and scaled != 0:
            raise Broken(f"{quote(value)} is out of the range of {type}")
    return scaled


def _timestamp(value: Any) -> dt.datetime:
    if isinstance(value, dt.datetime):
        moment = value
    elif type_is_date(value):
        moment = dt.datetime(value.year, value.month, value.day)
    else:
        moment = dt.datetime.fromisoformat(value)
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _whole(values: Sequence[Any] | pa.Array, type: Type) -> pa.Array:
    """The column at once; any pa.ArrowException or TypeError means: look closer."""
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if array.type == type.arrow or pa.types.is_null(array.type):
        return array.cast(type.arrow)
    if pa.types.is_string(array.type) and type.kind not in (Kind.STRING, Kind.BINARY):
        trimmed = pc.utf8_trim_whitespace(array)
        if type.kind is Kind.TIMESTAMP:
            return trimmed.cast(pa.timestamp("us")).cast(type.arrow)  # without a zone means UTC
        return trimmed.cast(type.arrow)
    arrow_kind_fits = {
        Kind.BOOLEAN: pa.types.is_boolean,
        Kind.INT: pa.types.is_integer,
        Kind.BIGINT: pa.types.is_integer,
        Kind.DOUBLE: lambda t: pa.types.is_floating(t) or pa.types.is_integer(t),
        Kind.DECIMAL: lambda t: pa.types.is_integer(t) or pa.types.is_decimal(t),
        Kind.STRING: lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_dictionary(t),
        Kind.BINARY: lambda t: pa.types.is_binary(t) or pa.types.is_large_binary(t),
        Kind.DATE: pa.types.is_date,
        Kind.TIMESTAMP: lambda t: pa.types.is_timestamp(t) or pa.types.is_date(t),
    }
    if not arrow_kind_fits[type.kind](array.type):
        raise TypeError(f"{array.type} is not {type}")
    if pa.types.is_timestamp(array.type) and array.type.tz is None:
        array = array.cast(pa.timestamp("us"))
    if type.kind is Kind.DECIMAL and pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(38, 0))  # Arrow refuses to go straight to a narrower one, whatever the values
    return array.cast(type.arrow)


def convert(values: Sequence[Any] | pa.Array, type: Type) -> tuple[pa.Array, dict[int, str]]:
    """A column of `type` and the reasons by position; broken positions hold NULL."""
    broken: dict[int, str] = {}

    def piece(start: int, stop: int) -> list[pa.Array]:
        part = values[start:stop]
        try:
            return [_whole(part, type)]
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            if stop - start > 1:
                middle = (start + stop) // 2
                return piece(start, middle) + piece(middle, stop)
        value = part[0].as_py() if isinstance(part, pa.Array) else part[0]
        try:
            return [pa.array([parse(value, type)], type.arrow)]
        except Broken as reason:
            broken[start] = str(reason)
            return [pa.nulls(1, type.arrow)]

    if len(values) == 0:
        return pa.array([], type.arrow), broken
    return pa.concat_arrays(piece(0, len(values))), broken


def key_problems(array: pa.Array, column: Column) -> dict[int, str]:
    """Positions whose value cannot be part of a primary key: NULL and NaN."""
    reasons: dict[int, str] = {}
    if array.null_count:
        for i in pc.indices_nonzero(array.is_null()).to_pylist():
            reasons[i] = f"key column {column.name} is NULL"
    if column.type.kind is Kind.DOUBLE:
        for i, value in enumerate(array.to_pylist()):
            if value is not None and math.isnan(value):
                reasons[i] = f"key column {column.name} is NaN"
    return reasons
