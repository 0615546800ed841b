"""Arithmetic on ints, doubles and (through `decimals`) decimals. Integers never wrap: what does not fit is OVERFLOW."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from belvedere.engine.expr import decimals, int128
from belvedere.engine.expr.operand import Array, Const, Function, Operand, fail, merge, spread, values
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Status, Vec
from belvedere.types import Kind, Type


def _by_kind(whole: Function, double: Function, decimal: Function) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        kind = args[0].type.kind
        if all(isinstance(a, Const) for a in args):
            args = [spread(a, count) for a in args]
        if kind is Kind.DOUBLE:
            return double(type, args, count)
        return decimal(type, args, count) if kind is Kind.DECIMAL else whole(type, args, count)

    return function


def _doubles(ufunc: Any) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        with np.errstate(all="ignore"):
            data = ufunc(values(args[0]), values(args[1]))
        return Vec(type, data, merge(args, count))

    return function


def _add(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    data = a + b
    return Vec(type, data, fail(merge(args, count), ((a ^ data) & (b ^ data)) < 0, Status.OVERFLOW))


def _sub(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    data = a - b
    return Vec(type, data, fail(merge(args, count), ((a ^ b) & (a ^ data)) < 0, Status.OVERFLOW))


def _mul(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    status = merge(args, count)
    if type.kind is Kind.INT:
        exact = np.multiply(a, b, dtype=np.int64)
        data = exact.astype(np.int32)
        return Vec(type, data, fail(status, data != exact, Status.OVERFLOW))
    if _reach(a) * _reach(b) < 1 << 63:
        return Vec(type, a * b, status)
    out = np.empty((count, 2), np.uint64)
    x, y = (plain(np.atleast_1d(np.asarray(v, np.int64))).view(np.uint64) for v in (a, b))
    int128.mul_narrow_rows(x, y, out)
    product = out.view(np.int64)
    data = np.ascontiguousarray(product[:, 0])
    return Vec(type, data, fail(status, product[:, 1] != data >> 63, Status.OVERFLOW))


def _reach(x: Any) -> int:
    """The greatest magnitude among the rows."""
    if isinstance(x, np.ndarray):
        return max(-int(x.min()), int(x.max()))
    return abs(int(x))


def _divide(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    with np.errstate(all="ignore"):
        data = np.true_divide(a, b)
    return Vec(type, data, _zero_divisor(args, b, count))


def _zero_divisor(args: Sequence[Operand], b: Any, count: int) -> Array | None:
    status = merge(args, count)
    if isinstance(b, np.ndarray):
        return fail(status, b == 0, Status.DIVISION)
    return status if b != 0 else fail(status, np.ones(count, np.bool_), Status.DIVISION)


def _quotient(a: Any, b: Any, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Quotient toward zero and remainder with the sign of a; anything where b is 0. MIN / -1 wraps."""
    a, b = np.asarray(a, dtype), np.asarray(b, dtype)
    safe = np.where(b == 0, np.array(1, dtype), b)
    with np.errstate(all="ignore"):
        rest = np.fmod(a, safe)
        minus = safe == -1
        return np.where(minus, -a, (a - rest) // np.where(minus, np.array(1, dtype), safe)), rest


def intdiv(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """`a div b`, toward zero."""
    a, b = args
    if a.type.kind is Kind.DECIMAL:
        return _decimal_intdiv(type, args, count)
    x, y = values(spread(a, count)), values(b)
    data, _ = _quotient(x, y, x.dtype)
    status = _zero_divisor(args, y, count)
    lowest = np.iinfo(x.dtype).min
    overflow = (x == lowest) & (np.asarray(y) == -1)
    if type.dtype.itemsize > x.dtype.itemsize:
        data, overflow = np.where(overflow, -int(lowest), data.astype(type.dtype)), np.zeros(count, np.bool_)
    return Vec(type, data.astype(type.dtype), fail(status, overflow, Status.OVERFLOW))


def _decimal_intdiv(type: Type, args: Sequence[Operand], count: int) -> Operand:
    rest = decimals.mod(Type(Kind.DECIMAL, 38, max(a.type.scale for a in args)), args, count)
    whole = decimals.sub(Type(Kind.DECIMAL, 38, rest.type.scale), (args[0], rest), count)
    exact = spread(decimals.div(Type(Kind.DECIMAL, 38, 0), (whole, args[1]), count), count)
    high = exact.data[:, 1] != exact.data[:, 0] >> 63
    return Vec(type, np.ascontiguousarray(exact.data[:, 0]), fail(exact.status, high, Status.OVERFLOW))


def _mod(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    _, data = _quotient(a, b, type.dtype)
    return Vec(type, data, _zero_divisor(args, b, count))


def _mod_double(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    with np.errstate(all="ignore"):
        data = np.fmod(a, b)
    return Vec(type, data, _zero_divisor(args, b, count))


def _pmod(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """(a % b + b) % b where a % b is negative. The sum wraps, as it does in Spark."""
    a, b = values(args[0]), values(args[1])
    rest = _quotient(a, b, type.dtype)[1]
    data = np.where(rest < 0, _quotient(rest + b, b, type.dtype)[1], rest)
    return Vec(type, data, _zero_divisor(args, b, count))


def _pmod_double(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = values(args[0]), values(args[1])
    with np.errstate(all="ignore"):
        rest = np.fmod(a, b)
        data = np.where(rest < 0, np.fmod(rest + b, b), rest)
    return Vec(type, data, _zero_divisor(args, b, count))


def _neg(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    return Vec(type, -vec.data, fail(vec.status, vec.data == np.iinfo(type.dtype).min, Status.OVERFLOW))


def _abs(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    return Vec(type, np.abs(vec.data), fail(vec.status, vec.data == np.iinfo(type.dtype).min, Status.OVERFLOW))


def _unary(ufunc: Any) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        vec = spread(args[0], count)
        return Vec(type, ufunc(vec.data), vec.status)

    return function


FUNCTIONS: dict[str, Function] = {
    "add": _by_kind(_add, _doubles(np.add), decimals.add),
    "sub": _by_kind(_sub, _doubles(np.subtract), decimals.sub),
    "mul": _by_kind(_mul, _doubles(np.multiply), decimals.mul),
    "div": _by_kind(_divide, _divide, decimals.div),
    "intdiv": intdiv,
    "mod": _by_kind(_mod, _mod_double, decimals.mod),
    "pmod": _by_kind(_pmod, _pmod_double, decimals.pmod),
    "neg": _by_kind(_neg, _unary(np.negative), decimals.neg),
    "abs": _by_kind(_abs, _unary(np.abs), decimals.abs_),
}
