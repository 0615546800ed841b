"""Decimal arithmetic: exact, then rounded half up once to the result type; OVERFLOW where it has too many digits.

Three speeds: int64 numpy where the digits of the exact result fit 18, 128-bit kernels otherwise, and Python integers
for those rows whose exact intermediate result is wider than 128 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from belvedere.engine.expr import int128
from belvedere.engine.expr.operand import (
    Array,
    Const,
    Operand,
    fail,
    ints_of,
    merge,
    narrow,
    spread,
    values,
    words,
    words_of,
)
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Status, Vec
from belvedere.types import SMALL_PRECISION, Type

HALF_UP, TRUNCATE, FLOOR, CEIL = 0, 1, 2, 3


def round_div(n: int, d: int) -> int:
    """n / d for d > 0, to the nearest integer, ties away from zero."""
    q = (2 * abs(n) + d) // (2 * d)
    return -q if n < 0 else q


def add(type: Type, args: Sequence[Operand], count: int) -> Operand:
    return _sum(type, args, count, False)


def sub(type: Type, args: Sequence[Operand], count: int) -> Operand:
    return _sum(type, args, count, True)


def _sum(type: Type, args: Sequence[Operand], count: int, subtract: bool) -> Operand:
    a, b = args
    scale = max(a.type.scale, b.type.scale)
    up_a, up_b = scale - a.type.scale, scale - b.type.scale
    digits = max(a.type.precision - a.type.scale, b.type.precision - b.type.scale) + scale + 1
    if digits <= SMALL_PRECISION and type.scale == scale and type.precision >= digits:
        x, y = values(a), values(b)
        x = x * 10**up_a if up_a else x
        y = y * 10**up_b if up_b else y
        data = x - y if subtract else x + y
        return _exact(type, data, args, count)
    if type.scale > scale:
        up_a, up_b, scale = up_a + type.scale - scale, up_b + type.scale - scale, type.scale
    down = scale - type.scale

    def exact(x: int, y: int) -> int:
        x, y = x * 10**up_a, y * 10**up_b
        return round_div(x - y if subtract else x + y, 10**down)

    if max(up_a, up_b, down) > 38:
        return _slow_only(type, args, count, exact)
    out, flags = _buffers(count)
    x, y = words(a).view(np.uint64), words(b).view(np.uint64)
    int128.add_rows(x, y, up_a, up_b, subtract, down, type.precision, out, flags)
    return _finish(type, args, count, out, flags, exact)


def mul(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = args
    digits = a.type.precision + b.type.precision
    scale = a.type.scale + b.type.scale
    if type.scale == scale and type.precision >= digits and not a.type.wide and not b.type.wide:
        if digits <= SMALL_PRECISION:
            return _exact(type, values(a) * values(b), args, count)
        out = np.empty((count, 2), np.uint64)
        int128.mul_narrow_rows(_bits(a), _bits(b), out)
        return Vec(type, out.view(np.int64), merge(args, count))
    up, down = max(0, type.scale - scale), max(0, scale - type.scale)

    def exact(x: int, y: int) -> int:
        return round_div(x * y * 10**up, 10**down)

    if up or down > 38:
        return _slow_only(type, args, count, exact)
    out, flags = _buffers(count)
    int128.mul_rows(words(a).view(np.uint64), words(b).view(np.uint64), down, type.precision, out, flags)
    return _finish(type, args, count, out, flags, exact)


def div(type: Type, args: Sequence[Operand], count: int) -> Operand:
    a, b = args
    up = type.scale - a.type.scale + b.type.scale

    def exact(x: int, y: int) -> int:
        n, d = (x * 10**up, y) if up >= 0 else (x, y * 10**-up)
        return round_div(n, d) if d > 0 else round_div(-n, -d)

    out, flags = _buffers(count)
    x, y = words(a).view(np.uint64), words(b).view(np.uint64)
    if 0 <= up <= 38:
        int128.div_rows(x, y, up, type.precision, out, flags)
    else:
        flags[:] = np.where((y[:, 0] | y[:, 1]) == 0, int128.BY_ZERO, int128.SLOW)
    return _finish(type, args, count, out, flags, exact)


def mod(type: Type, args: Sequence[Operand], count: int) -> Vec:
    """The remainder with the sign of the dividend."""
    a, b = args
    scale = max(a.type.scale, b.type.scale)
    up_a, up_b = scale - a.type.scale, scale - b.type.scale

    def exact(x: int, y: int) -> int:
        x, y = x * 10**up_a, abs(y * 10**up_b)
        return abs(x) % y if x >= 0 else -(abs(x) % y)

    out, flags = _buffers(count)
    precision = min(38, type.precision + scale - type.scale)
    x, y = words(a).view(np.uint64), words(b).view(np.uint64)
    int128.mod_rows(x, y, up_a, up_b, precision, out, flags)
    raw = Type(type.kind, precision, scale)
    return rescale(_finish(raw, args, count, out, flags, exact), type)


def pmod(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """Like mod, but positive for a positive divisor."""
    rest = mod(type, args, count)
    divisor = rescale(spread(args[1], count), Type(type.kind, 38, type.scale))
    negative = sign(rest) < 0
    fixed = spread(add(type, (rest, divisor), count), count)
    chosen = negative & (sign(divisor) > 0)
    data = np.where(chosen[:, None] if type.wide else chosen, fixed.data, rest.data)
    return Vec(type, data, rest.status)


def neg(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    return Vec(type, negated(vec.data), vec.status)


def abs_(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    if not vec.type.wide:
        return Vec(type, np.abs(vec.data), vec.status)
    return Vec(type, np.where(vec.data[:, 1:] < 0, negated(vec.data), vec.data), vec.status)


def negated(data: Array) -> Array:
    """-x, narrow or wide."""
    if data.ndim == 1:
        return -data
    out = np.empty_like(data)
    bits, source = out.view(np.uint64), np.ascontiguousarray(data).view(np.uint64)
    bits[:, 0] = ~source[:, 0] + np.uint64(1)
    bits[:, 1] = ~source[:, 1] + (bits[:, 0] == 0)
    return out


def sign(vec: Vec) -> Array:
    """-1, 0 or 1 per row."""
    if vec.data.ndim == 1:
        narrow_sign: Array = np.sign(vec.data)
        return narrow_sign
    return np.where(vec.data[:, 1] < 0, -1, ((vec.data[:, 0] | vec.data[:, 1]) != 0).astype(np.int64))


def rescale(vec: Vec, type: Type, mode: int = HALF_UP) -> Vec:
    """The same numbers in another decimal type: rounded if digits after the point go, OVERFLOW if others do."""
    up, down = max(0, type.scale - vec.type.scale), max(0, vec.type.scale - type.scale)
    whole, room = vec.type.precision - vec.type.scale, type.precision - type.scale
    if not down and room >= whole:
        if not type.wide:
            return Vec(type, vec.data * 10**up if up else vec.data, vec.status)
        if not up:
            return Vec(type, words(vec), vec.status)
    return shift(vec, type, up, down, mode)


def shift(vec: Vec, type: Type, up: int, down: int, mode: int) -> Vec:
    """vec 10^up / 10^down as unscaled numbers of `type`."""
    out, flags = _buffers(len(vec))
    int128.rescale_rows(words(vec).view(np.uint64), up, down, mode, type.precision, out, flags)
    data = out.view(np.int64)
    status = vec.status
    if flags.any():
        status = fail(status, flags == int128.TOO_BIG, Status.OVERFLOW)
    return Vec(type, data if type.wide else narrow(data), status)


def _bits(operand: Operand) -> Array:
    if isinstance(operand, Const):
        return np.array([values(operand)], np.int64).view(np.uint64)
    return plain(operand.data).view(np.uint64)


def _buffers(count: int) -> tuple[Array, Array]:
    return np.zeros((count, 2), np.uint64), np.zeros(count, np.uint8)


def _exact(type: Type, data: Array | int, args: Sequence[Operand], count: int) -> Vec:
    """A result of the int64 path; of constants only, it is a number."""
    array = data if isinstance(data, np.ndarray) else np.full(count, data, np.int64)
    if type.wide:
        array = words(Vec(Type(type.kind, SMALL_PRECISION, type.scale), array))
    return Vec(type, array, merge(args, count))


def _slow_only(type: Type, args: Sequence[Operand], count: int, exact: Callable[[int, int], int]) -> Vec:
    out, flags = _buffers(count)
    flags[:] = int128.SLOW
    return _finish(type, args, count, out, flags, exact)


def _finish(
    type: Type, args: Sequence[Operand], count: int, out: Array, flags: Array, exact: Callable[[int, int], int]
) -> Vec:
    """Turn flags into status; compute flagged rows that hold values with Python integers."""
    status = merge(args, count)
    if flags.any():
        slow = flags == int128.SLOW
        if status is not None:
            slow &= status == Status.VALUE
        rows = np.flatnonzero(slow)
        if len(rows):
            a, b = (ints_of(words(o)) if isinstance(o, Const) else ints_of(o.data[rows]) for o in args)
            a, b = (x * len(rows) if len(x) == 1 else x for x in (a, b))
            limit = 10**type.precision
            results = [exact(x, y) for x, y in zip(a, b, strict=True)]
            flags[rows] = [int128.OK if -limit < r < limit else int128.TOO_BIG for r in results]
            out.view(np.int64)[rows] = words_of([r if -limit < r < limit else 0 for r in results])
        status = fail(status, flags == int128.TOO_BIG, Status.OVERFLOW)
        status = fail(status, flags == int128.BY_ZERO, Status.DIVISION)
    data = out.view(np.int64)
    return Vec(type, data if type.wide else narrow(data), status)
