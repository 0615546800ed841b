"""Casts between dates, timestamps and numbers (seconds since 1970)."""

from __future__ import annotations

import numpy as np

from belvedere.engine.expr import calendar, decimals
from belvedere.engine.expr.casts import numbers
from belvedere.engine.expr.dates import checked_micros
from belvedere.engine.expr.operand import fail, narrow
from belvedere.engine.vec import Status, Vec
from belvedere.types import BIGINT, Kind, Type, decimal


def date_to_timestamp(vec: Vec, type: Type) -> Vec:
    return Vec(type, vec.data.astype(np.int64) * calendar.DAY_MICROS, vec.status)


def timestamp_to_date(vec: Vec, type: Type) -> Vec:
    return Vec(type, (vec.data // calendar.DAY_MICROS).astype(np.int32), vec.status)


def timestamp_to_number(vec: Vec, type: Type) -> Vec:
    """Seconds since 1970: whole ones (rounded down) for integers, with the fraction for double and decimal."""
    if type.kind is Kind.DOUBLE:
        return Vec(type, vec.data / 1e6, vec.status)
    if type.kind is Kind.DECIMAL:
        return decimals.rescale(Vec(decimal(18, 6), vec.data, vec.status), type)
    return numbers.integer_to_integer(Vec(BIGINT, vec.data // 1_000_000, vec.status), type)


def integer_to_timestamp(vec: Vec, type: Type) -> Vec:
    limit = calendar.MAX_MICROS // 1_000_000 + 1
    seconds = np.clip(vec.data.astype(np.int64), -limit, limit)
    return checked_micros(type, seconds * 1_000_000, vec.status)


def double_to_timestamp(vec: Vec, type: Type) -> Vec:
    """Microseconds toward zero. NaN and infinities are CAST errors."""
    finite = np.isfinite(vec.data)
    with np.errstate(all="ignore"):
        micros = np.clip(np.where(finite, vec.data, 0.0) * 1e6, -9e18, 9e18).astype(np.int64)
    return checked_micros(type, micros, fail(vec.status, ~finite, Status.CAST))


def decimal_to_timestamp(vec: Vec, type: Type) -> Vec:
    """Microseconds toward zero."""
    exact = decimals.rescale(vec, decimal(38, 6), decimals.TRUNCATE)
    micros = narrow(exact.data)
    return checked_micros(type, micros, exact.status, exact.data[:, 1] != micros >> 63)
