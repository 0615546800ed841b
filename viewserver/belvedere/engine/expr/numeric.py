"""round, floor, ceil, greatest, least, sign and the transcendental functions.

exp, ln and power go row by row through the C library in compiled loops: numpy may pick another code path by length or
alignment of an array, and a row taken out of an aggregate must have the very value that went in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np

from belvedere.engine.expr import compare, decimals
from belvedere.engine.expr.conditional import choose
from belvedere.engine.expr.operand import Array, Function, Operand, constant, fail, merge, spread
from belvedere.engine.state.jit import kernel, plain
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.types import Kind, Type, decimal


def round_(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """round(x[, scale]), half up; a negative scale rounds before the point."""
    scale = constant(args[1], "the scale of round") if len(args) > 1 else 0
    if scale is None:
        return nulls(type, count)
    vec = spread(args[0], count)
    if vec.type.kind is Kind.DOUBLE:
        return Vec(type, _round_doubles(vec, int(scale)), vec.status)
    if vec.type.kind is Kind.DECIMAL:
        return _round_decimal(vec, type, int(scale))
    if scale >= 0:
        return Vec(type, vec.data, vec.status)
    info = np.iinfo(type.dtype)
    unit = 10 ** -int(scale)
    exact = np.array([decimals.round_div(x, unit) * unit for x in vec.data.tolist()], object)
    big = np.asarray((exact < int(info.min)) | (exact > int(info.max)), np.bool_)
    exact[big] = 0
    return Vec(type, exact.astype(type.dtype), fail(vec.status, big, Status.OVERFLOW))


def _round_decimal(vec: Vec, type: Type, scale: int) -> Vec:
    keep = min(scale, vec.type.scale)
    if keep >= 0:
        return decimals.rescale(decimals.rescale(vec, decimal(38, keep)), type)
    down = vec.type.scale - keep
    if down > 38:
        return Vec(type, np.zeros((len(vec), 2) if type.wide else len(vec), np.int64), vec.status)
    units = decimals.shift(vec, decimal(38, 0), 0, down, decimals.HALF_UP)
    return decimals.shift(units, type, type.scale - keep, 0, decimals.HALF_UP)


def _round_doubles(vec: Vec, scale: int) -> Array:
    """As Java's BigDecimal rounds the shortest digits that mean the double; directly where no tie is near."""
    x = vec.data
    with np.errstate(all="ignore"):
        if 0 <= scale <= 22:
            scaled = x * 10.0**scale
            whole = np.rint(scaled)
            easy = (np.abs(scaled) < 1e13) & (np.abs(np.abs(scaled - whole) - 0.5) > 0.01)
            # + 0.0: a BigDecimal has no negative zero
            data: Array = np.where(easy, whole / 10.0**scale + 0.0, x)
        else:
            easy, data = np.zeros(len(x), np.bool_), x.copy()
    rows = np.flatnonzero(~easy & np.isfinite(x))
    if len(rows):
        unit = Decimal(1).scaleb(-scale)
        with localcontext(prec=1100):
            data[rows] = [
                float((Decimal(repr(v)) / unit).to_integral_value(rounding=ROUND_HALF_UP) * unit) + 0.0
                for v in x[rows].tolist()
            ]
    return data


def _toward(mode: int, ufunc: Any) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        vec = spread(args[0], count)
        kind = vec.type.kind
        if kind is Kind.DECIMAL:
            return decimals.rescale(vec, type, mode)
        if kind is not Kind.DOUBLE:
            return Vec(type, vec.data, vec.status)
        whole = ufunc(vec.data)
        beyond = (whole >= 2.0**63) | (whole < -(2.0**63))
        # As in Spark, NaN becomes 0.
        data = np.where(beyond | np.isnan(whole), 0.0, whole).astype(np.int64)
        return Vec(type, data, fail(vec.status, beyond, Status.OVERFLOW))

    return function


def _extreme(comparison: str) -> Function:
    """The greatest or least argument that is not NULL."""

    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        merged = merge(args, count)
        result = spread(args[0], count)
        for arg in args[1:]:
            other = spread(arg, count)
            better = compare.raw(comparison, other, result, count)
            if result.status is not None:
                better = better | (result.status == Status.NULL)
            if other.status is not None:
                better = better & (other.status == Status.VALUE)
            result = choose(type, better, other, result, count)
        if merged is not None and merged.max() > Status.VALUE:
            status = np.ones(count, np.uint8) if result.status is None else result.status
            result = Vec(type, result.data, np.where(merged > Status.VALUE, merged, status))
        return result

    return function


def sign(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    if vec.type.kind is Kind.DOUBLE:
        # Keeps the sign of zero.
        return Vec(type, np.where(vec.data == 0, vec.data, np.sign(vec.data)), vec.status)
    data = decimals.sign(vec) if vec.type.kind is Kind.DECIMAL else np.sign(vec.data)
    if type.kind is Kind.DECIMAL:
        return decimals.rescale(Vec(decimal(1, 0), data.astype(np.int64), vec.status), type)
    return Vec(type, data.astype(type.dtype), vec.status)


def sqrt(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """NaN below zero."""
    vec = spread(args[0], count)
    with np.errstate(all="ignore"):
        return Vec(type, np.sqrt(vec.data), vec.status)


@kernel("f8[:] f8[:]")
def _exp_rows(x, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(out)):
        out[i] = math.exp(x[i])


@kernel("f8[:] f8[:]")
def _ln_rows(x, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(out)):
        out[i] = math.log(x[i]) if not x[i] <= 0.0 else math.nan


@kernel("f8[:] f8[:] f8[:]")
def _power_rows(x, y, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(out)):
        # Java differs from C: 1 to the power NaN or infinity is NaN there.
        if math.isnan(y[i]) or (math.isinf(y[i]) and abs(x[i]) == 1.0):
            out[i] = math.nan
        else:
            out[i] = x[i] ** y[i]


def _compiled(loop: Callable[..., None]) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        out = np.empty(count)
        loop(*(plain(spread(a, count).data) for a in args), out)
        return Vec(type, out, merge(args, count))

    return function


def ln(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """NULL at zero and below."""
    vec = spread(args[0], count)
    out = np.empty(count)
    _ln_rows(plain(vec.data), out)
    return Vec(type, out, fail(vec.status, vec.data <= 0, Status.NULL))


FUNCTIONS: dict[str, Function] = {
    "round": round_,
    "floor": _toward(decimals.FLOOR, np.floor),
    "ceil": _toward(decimals.CEIL, np.ceil),
    "greatest": _extreme("gt"),
    "least": _extreme("lt"),
    "sign": sign,
    "sqrt": sqrt,
    "power": _compiled(_power_rows),
    "exp": _compiled(_exp_rows),
    "ln": ln,
}
