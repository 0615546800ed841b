"""Casts among booleans, integers, doubles and decimals. Integers are reached by truncation, decimals by rounding half
up; what does not fit is OVERFLOW."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np

from belvedere.engine.expr import decimals
from belvedere.engine.expr.operand import Array, fail, ints_of, narrow, words, words_of
from belvedere.engine.vec import Status, Vec
from belvedere.types import BIGINT, Kind, Type, decimal

_EXACT_DOUBLE = 1 << 53
_EXACT_POWER = 22


def to_boolean(vec: Vec, type: Type) -> Vec:
    """False for zero, true for everything else, NaN included."""
    if vec.type.wide:
        return Vec(type, (vec.data[:, 0] | vec.data[:, 1]) != 0, vec.status)
    return Vec(type, vec.data != 0, vec.status)


def from_boolean(vec: Vec, type: Type) -> Vec:
    if type.kind is not Kind.DECIMAL:
        return Vec(type, vec.data.astype(type.dtype), vec.status)
    return integer_to_decimal(Vec(BIGINT, vec.data.astype(np.int64), vec.status), type)


def integer_to_integer(vec: Vec, type: Type) -> Vec:
    data = vec.data.astype(type.dtype)
    if type.dtype.itemsize >= vec.data.dtype.itemsize:
        return Vec(type, data, vec.status)
    return Vec(type, data, fail(vec.status, data != vec.data, Status.OVERFLOW))


def integer_to_double(vec: Vec, type: Type) -> Vec:
    return Vec(type, vec.data.astype(np.float64), vec.status)


def double_to_integer(vec: Vec, type: Type) -> Vec:
    """Toward zero. As in Spark, 2^63 is taken for the greatest bigint: the bound is compared as a double."""
    x = vec.data
    info = np.iinfo(type.dtype)
    low, high = float(info.min), float(info.max)
    with np.errstate(all="ignore"):
        good = (np.floor(x) <= high) & (np.ceil(x) >= low)
        top = good & (x >= high)
        data = np.where(good & ~top, np.trunc(x), 0.0).astype(type.dtype)
    data[top] = info.max
    return Vec(type, data, fail(vec.status, ~good, Status.OVERFLOW))


def integer_to_decimal(vec: Vec, type: Type) -> Vec:
    digits = 10 if vec.type.kind is Kind.INT else 19
    if type.precision - type.scale >= digits and type.precision <= 18:
        return Vec(type, vec.data.astype(np.int64) * 10**type.scale, vec.status)
    source = Vec(decimal(20, 0), words(Vec(decimal(18, 0), vec.data.astype(np.int64))), vec.status)
    return decimals.shift(source, type, type.scale, 0, decimals.HALF_UP)


def decimal_to_integer(vec: Vec, type: Type) -> Vec:
    """Toward zero."""
    if vec.type.scale == 0 and not vec.type.wide:
        return integer_to_integer(Vec(BIGINT, vec.data, vec.status), type)
    whole = decimals.shift(vec, decimal(38, 0), 0, vec.type.scale, decimals.TRUNCATE)
    data = narrow(whole.data)
    small = Vec(BIGINT, data, fail(whole.status, whole.data[:, 1] != data >> 63, Status.OVERFLOW))
    return integer_to_integer(small, type)


def decimal_to_double(vec: Vec, type: Type) -> Vec:
    """The nearest double: one division of exact doubles where possible, else Python's exact integer division."""
    scale = vec.type.scale
    if not vec.type.wide and scale <= _EXACT_POWER:
        data = vec.data.astype(np.float64) / float(10**scale)
        rows = np.flatnonzero(np.abs(vec.data) > _EXACT_DOUBLE)
    else:
        data, rows = np.zeros(len(vec)), np.arange(len(vec))
    if len(rows):
        data[rows] = [n / 10**scale for n in ints_of(vec.data[rows])]
    return Vec(type, data, vec.status)


def double_to_decimal(vec: Vec, type: Type) -> Vec:
    """The shortest digits that mean the double (as Java prints it), rounded half up. NaN and infinities give NULL.

    Where the scaled double is small and far from a tie, rounding it directly gives the same."""
    x = vec.data
    finite = np.isfinite(x)
    with np.errstate(all="ignore"):
        scaled = x * 10.0**type.scale
        rounded = np.rint(scaled)
        easy = (np.abs(scaled) < 1e13) & (np.abs(np.abs(scaled - rounded) - 0.5) > 0.01) & (type.scale <= _EXACT_POWER)
    data = np.where(easy, rounded, 0.0).astype(np.int64)
    status = vec.status
    unscaled = Vec(decimal(18, 0), data)
    if type.precision <= 18:
        too_big = np.abs(data) >= 10**type.precision
        result = data
    else:
        too_big = np.zeros(len(x), np.bool_)
        result = words(unscaled)
    rows = np.flatnonzero(~easy & finite)
    if len(rows):
        exact = _rounded(x[rows], type.scale)
        limit = 10**type.precision
        big = np.array([not -limit < n < limit for n in exact], np.bool_)
        too_big[rows] = big
        exact = [0 if b else n for n, b in zip(exact, big.tolist(), strict=True)]
        result[rows] = words_of(exact) if type.wide else np.array(exact, np.int64)
    status = fail(status, too_big & finite, Status.OVERFLOW)
    return Vec(type, result, fail(status, ~finite, Status.NULL))


def _rounded(numbers: Array, scale: int) -> Sequence[int]:
    with localcontext(prec=800):
        return [int(Decimal(repr(x)).scaleb(scale).to_integral_value(rounding=ROUND_HALF_UP)) for x in numbers.tolist()]


def decimal_to_decimal(vec: Vec, type: Type) -> Vec:
    return decimals.rescale(vec, type)
