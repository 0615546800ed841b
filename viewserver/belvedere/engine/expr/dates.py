"""Functions of dates and timestamps (UTC). A result outside the years 1 to 9999 is OVERFLOW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from belvedere.engine.expr import calendar
from belvedere.engine.expr.operand import Array, Function, Operand, constant, fail, merge, spread, values
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.types import Kind, Type

_UNITS = {
    "YEAR": calendar.TO_YEAR,
    "YYYY": calendar.TO_YEAR,
    "YY": calendar.TO_YEAR,
    "QUARTER": calendar.TO_QUARTER,
    "MONTH": calendar.TO_MONTH,
    "MON": calendar.TO_MONTH,
    "MM": calendar.TO_MONTH,
    "WEEK": calendar.TO_WEEK,
}
_MICROS = {
    "DAY": calendar.DAY_MICROS,
    "DD": calendar.DAY_MICROS,
    "HOUR": 3_600_000_000,
    "MINUTE": 60_000_000,
    "SECOND": 1_000_000,
    "MILLISECOND": 1000,
    "MICROSECOND": 1,
}


def days_of(vec: Vec) -> Array:
    """Days since 1970 of a date or timestamp column, within the calendar even where there is no value."""
    days: Array = vec.data if vec.type.kind is Kind.DATE else vec.data // calendar.DAY_MICROS
    if vec.status is not None:
        days = np.clip(days, calendar.MIN_DAY, calendar.MAX_DAY)
    return days.astype(np.int64)


def _field(field: int) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        vec = spread(args[0], count)
        out = np.empty(count, np.int32)
        calendar.field_rows(days_of(vec), field, out)
        return Vec(type, out.astype(type.dtype, copy=False), vec.status)

    return function


def _clock(unit: int, modulus: int) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        vec = spread(args[0], count)
        data = np.zeros(count, np.int32) if vec.type.kind is Kind.DATE else vec.data // unit % modulus
        return Vec(type, data.astype(type.dtype), vec.status)

    return function


def _checked_days(type: Type, days: Array, status: Array | None) -> Vec:
    bad = (days < calendar.MIN_DAY) | (days > calendar.MAX_DAY)
    return Vec(type, days.astype(np.int32), fail(status, bad, Status.OVERFLOW))


def checked_micros(type: Type, micros: Array, status: Array | None, wrapped: Array | None = None) -> Vec:
    """A timestamp column; OVERFLOW outside the calendar or where 64 bits had wrapped."""
    bad = (micros < calendar.MIN_MICROS) | (micros > calendar.MAX_MICROS)
    return Vec(type, micros, fail(status, bad if wrapped is None else bad | wrapped, Status.OVERFLOW))


def _shift_days(sign: int) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        days = spread(args[0], count).data.astype(np.int64) + np.asarray(values(args[1]), np.int64) * sign
        return _checked_days(type, days, merge(args, count))

    return function


def datediff(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """Days from the second argument to the first."""
    data = spread(args[0], count).data.astype(np.int64) - np.asarray(values(args[1]), np.int64)
    return Vec(type, data.astype(type.dtype), merge(args, count))


def _plus_months(days: Array, months: Operand) -> tuple[Array, Array]:
    out, bad = np.empty(len(days), np.int64), np.zeros(len(days), np.bool_)
    calendar.add_months_rows(days, plain(np.atleast_1d(np.asarray(values(months), np.int64))), out, bad)
    return out, bad


def add_months(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """The same day of the month, or its last one."""
    days, bad = _plus_months(days_of(spread(args[0], count)), args[1])
    return Vec(type, days.astype(np.int32), fail(merge(args, count), bad, Status.OVERFLOW))


def ts_add_months(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """add_months that keeps the time of day."""
    vec = spread(args[0], count)
    days, bad = _plus_months(days_of(vec), args[1])
    micros = days * calendar.DAY_MICROS + vec.data % calendar.DAY_MICROS
    return Vec(type, micros, fail(merge(args, count), bad, Status.OVERFLOW))


def ts_add_micros(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = spread(args[0], count).data, values(args[1])
    data = a + b
    return checked_micros(type, data, merge(args, count), ((a ^ data) & (b ^ data)) < 0)


def last_day(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    return Vec(type, _truncated(vec, calendar.TO_LAST_DAY).astype(np.int32), vec.status)


def _truncated(vec: Vec, unit: int) -> Array:
    out = np.empty(len(vec), np.int64)
    calendar.truncate_rows(days_of(vec), unit, out)
    return out


def _unit(operand: Operand) -> str:
    value: Any = constant(operand, "the unit of a truncation")
    return "" if value is None else str(value).upper()


def date_trunc(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """date_trunc(unit, timestamp); an unknown unit gives NULL."""
    unit, vec = _unit(args[0]), spread(args[1], count)
    if unit in _MICROS:
        return Vec(type, vec.data - vec.data % _MICROS[unit], vec.status)
    if unit in _UNITS:
        return Vec(type, _truncated(vec, _UNITS[unit]) * calendar.DAY_MICROS, vec.status)
    return nulls(type, count)


def trunc(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """trunc(date, unit); an unknown unit gives NULL."""
    vec, unit = spread(args[0], count), _unit(args[1])
    if unit in _UNITS:
        return Vec(type, _truncated(vec, _UNITS[unit]).astype(np.int32), vec.status)
    return nulls(type, count)


FUNCTIONS: dict[str, Function] = {
    "year": _field(calendar.YEAR),
    "quarter": _field(calendar.QUARTER),
    "month": _field(calendar.MONTH),
    "day": _field(calendar.DAY),
    "dayofweek": _field(calendar.DAY_OF_WEEK),
    "dayofyear": _field(calendar.DAY_OF_YEAR),
    "weekofyear": _field(calendar.WEEK_OF_YEAR),
    "hour": _clock(3_600_000_000, 24),
    "minute": _clock(60_000_000, 60),
    "second": _clock(1_000_000, 60),
    "date_add": _shift_days(1),
    "date_sub": _shift_days(-1),
    "datediff": datediff,
    "add_months": add_months,
    "ts_add_months": ts_add_months,
    "ts_add_micros": ts_add_micros,
    "last_day": last_day,
    "date_trunc": date_trunc,
    "trunc": trunc,
}
