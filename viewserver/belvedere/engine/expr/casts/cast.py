"""The table of casts by (from, to) kind, CAST and TRY_CAST."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from belvedere.engine.expr.casts import numbers, strings, texts, times
from belvedere.engine.expr.operand import Const, Function, Operand, spread
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.types import Kind, Type

Cast = Callable[[Vec, Type], Vec]

_INTEGERS = (Kind.INT, Kind.BIGINT)

CASTS: dict[tuple[Kind, Kind], Cast] = {
    (Kind.DOUBLE, Kind.DECIMAL): numbers.double_to_decimal,
    (Kind.DECIMAL, Kind.DOUBLE): numbers.decimal_to_double,
    (Kind.DECIMAL, Kind.DECIMAL): numbers.decimal_to_decimal,
    (Kind.DOUBLE, Kind.BOOLEAN): numbers.to_boolean,
    (Kind.DECIMAL, Kind.BOOLEAN): numbers.to_boolean,
    (Kind.BOOLEAN, Kind.DOUBLE): numbers.from_boolean,
    (Kind.BOOLEAN, Kind.DECIMAL): numbers.from_boolean,
    (Kind.STRING, Kind.BOOLEAN): strings.to_boolean,
    (Kind.STRING, Kind.DOUBLE): strings.to_double,
    (Kind.STRING, Kind.DECIMAL): strings.to_decimal,
    (Kind.STRING, Kind.DATE): strings.to_date,
    (Kind.STRING, Kind.TIMESTAMP): strings.to_timestamp,
    (Kind.STRING, Kind.BINARY): strings.to_binary,
    (Kind.BINARY, Kind.STRING): strings.from_binary,
    (Kind.BOOLEAN, Kind.STRING): texts.from_boolean,
    (Kind.DOUBLE, Kind.STRING): texts.from_double,
    (Kind.DECIMAL, Kind.STRING): texts.from_decimal,
    (Kind.DATE, Kind.STRING): texts.from_date,
    (Kind.TIMESTAMP, Kind.STRING): texts.from_timestamp,
    (Kind.DATE, Kind.TIMESTAMP): times.date_to_timestamp,
    (Kind.TIMESTAMP, Kind.DATE): times.timestamp_to_date,
    (Kind.TIMESTAMP, Kind.DOUBLE): times.timestamp_to_number,
    (Kind.TIMESTAMP, Kind.DECIMAL): times.timestamp_to_number,
    (Kind.DOUBLE, Kind.TIMESTAMP): times.double_to_timestamp,
    (Kind.DECIMAL, Kind.TIMESTAMP): times.decimal_to_timestamp,
}
for _kind in _INTEGERS:
    CASTS[Kind.STRING, _kind] = strings.to_integer
    CASTS[_kind, Kind.STRING] = texts.from_integer
    CASTS[Kind.TIMESTAMP, _kind] = times.timestamp_to_number
    CASTS[_kind, Kind.TIMESTAMP] = times.integer_to_timestamp
    CASTS[Kind.BOOLEAN, _kind] = numbers.from_boolean
    CASTS[_kind, Kind.BOOLEAN] = numbers.to_boolean
    CASTS[_kind, Kind.DOUBLE] = numbers.integer_to_double
    CASTS[Kind.DOUBLE, _kind] = numbers.double_to_integer
    CASTS[_kind, Kind.DECIMAL] = numbers.integer_to_decimal
    CASTS[Kind.DECIMAL, _kind] = numbers.decimal_to_integer
    for _other in _INTEGERS:
        CASTS[_kind, _other] = numbers.integer_to_integer


def cast(type: Type, args: Sequence[Operand], count: int) -> Operand:
    operand = args[0]
    source = operand.type
    if source == type:
        return operand
    if source.kind is Kind.NULL:
        return nulls(type, count)
    if isinstance(operand, Const) and operand.status != Status.VALUE:
        return Const(type, None, operand.status)
    return CASTS[source.kind, type.kind](spread(operand, count), type)


def try_cast(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """CAST that gives NULL where it fails itself; an error in its argument stays one."""
    before = spread(args[0], count)
    result = spread(cast(type, args, count), count)
    if result.status is None or result.errors is None:
        return result
    own = result.status > Status.VALUE
    if before.status is not None:
        own &= before.status == Status.VALUE
    return Vec(type, result.data, np.where(own, np.uint8(Status.NULL), result.status))


FUNCTIONS: dict[str, Function] = {"cast": cast, "try_cast": try_cast}
