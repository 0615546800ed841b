"""Integers wider than a machine word inside numba kernels, and the records by slot which hold them.

Numba has no 128-bit type and marks signed additions `nsw` (so LLVM drops wrap-around tests on them): words travel as
uint64, and the few operations that need more bits are LLVM intrinsics here. Every kernel of the accumulators imports
from this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import extending
from numba import types as numba_types
from numba.core import cgutils as numba_cgutils

from belvedere.engine.state import jit
from belvedere.engine.state.memory import Buffer

kernel = jit.kernel
part = jit.part
inlined = jit.inlined
prefetch: Any = jit.prefetch
copy_bytes: Any = jit.copy_bytes
intrinsic: jit.Decorator = extending.intrinsic

U0, U1 = np.uint64(0), np.uint64(1)
I64 = ir.IntType(64)
types: Any = numba_types
cgutils: Any = numba_cgutils


class WideRegion:
    """A flat, zeroed array of records of `width` items that grows; take `array` anew after `ensure`."""

    def __init__(self, dtype: Any, width: int = 1) -> None:
        self.width = width
        self._buffer = Buffer(dtype)
        self.rows = 0

    @property
    def array(self) -> np.ndarray:
        return self._buffer.array

    def ensure(self, rows: int) -> np.ndarray:
        """The array with room for at least that many records."""
        self.rows = max(self.rows, rows)
        self._buffer.reserve(self.rows * self.width)
        return self._buffer.array

    def table(self, rows: int) -> np.ndarray:
        """The first `rows` records as a table."""
        return self.ensure(rows)[: rows * self.width].reshape(rows, self.width)

    def load(self, values: np.ndarray) -> None:
        """Begin with a copy of `values`."""
        self._buffer, self.rows = Buffer(self._buffer.dtype), 0
        if len(values):
            self.ensure(len(values) // self.width)[: len(values)] = values

    def nbytes(self) -> int:
        return self._buffer.nbytes(self.rows * self.width)


def _join(b: Any, words: Any) -> Any:
    t = ir.IntType(64 * len(words))
    x = b.zext(words[0], t)
    for i, word in enumerate(words[1:], 1):
        x = b.or_(x, b.shl(b.zext(word, t), t(64 * i)))
    return x


def _split(b: Any, x: Any, count: int) -> list[Any]:
    t = x.type
    return [b.trunc(b.lshr(x, t(64 * i)), I64) if i else b.trunc(x, I64) for i in range(count)]


@intrinsic
def fma128(tc: Any, lo: Any, hi: Any, v: Any, w: Any) -> Any:
    """(lo, hi) + v * w with signed v, w, as words of uint64."""
    sig = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64, types.int64, types.int64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        t = ir.IntType(128)
        r = b.add(_join(b, a[:2]), b.mul(b.sext(a[2], t), b.sext(a[3], t)))
        return ctx.make_tuple(b, s.return_type, _split(b, r, 2))

    return sig, gen


@intrinsic
def fma192(tc: Any, lo: Any, mi: Any, hi: Any, vlo: Any, vhi: Any, w: Any) -> Any:
    """(lo, mi, hi) + (vlo, vhi) * w, all signed, as words of uint64."""
    sig = types.UniTuple(types.uint64, 3)(*[types.uint64] * 5, types.int64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        t = ir.IntType(192)
        r = b.add(_join(b, a[:3]), b.mul(b.sext(_join(b, a[3:5]), t), b.sext(a[5], t)))
        return ctx.make_tuple(b, s.return_type, _split(b, r, 3))

    return sig, gen


@intrinsic
def mul192(tc: Any, lo: Any, hi: Any, w: Any) -> Any:
    """Unsigned 128 x 64 -> 192 bits."""
    sig = types.UniTuple(types.uint64, 3)(types.uint64, types.uint64, types.uint64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        t = ir.IntType(192)
        r = b.mul(b.zext(_join(b, a[:2]), t), b.zext(a[2], t))
        return ctx.make_tuple(b, s.return_type, _split(b, r, 3))

    return sig, gen


@intrinsic
def neg192(tc: Any, lo: Any, mi: Any, hi: Any) -> Any:
    """Two's complement negation."""
    sig = types.UniTuple(types.uint64, 3)(types.uint64, types.uint64, types.uint64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        t = ir.IntType(192)
        return ctx.make_tuple(b, s.return_type, _split(b, b.sub(t(0), _join(b, a)), 3))

    return sig, gen


@intrinsic
def shl128(tc: Any, lo: Any, hi: Any, s: Any) -> Any:
    """Shift left by 0 <= s < 128."""
    sig = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64, types.int64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        r = b.shl(_join(b, a[:2]), b.zext(a[2], ir.IntType(128)))
        return ctx.make_tuple(b, s.return_type, _split(b, r, 2))

    return sig, gen


@intrinsic
def shr128(tc: Any, lo: Any, hi: Any, s: Any) -> Any:
    """Logical shift right by 0 <= s < 128."""
    sig = types.UniTuple(types.uint64, 2)(types.uint64, types.uint64, types.int64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        r = b.lshr(_join(b, a[:2]), b.zext(a[2], ir.IntType(128)))
        return ctx.make_tuple(b, s.return_type, _split(b, r, 2))

    return sig, gen


@intrinsic
def bitlen(tc: Any, x: Any) -> Any:
    """Number of significant bits of a word."""
    sig = types.int64(types.uint64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(I64, [I64, ir.IntType(1)]), "llvm.ctlz.i64")
        return b.sub(I64(64), b.call(fn, [a[0], ir.IntType(1)(0)]))

    return sig, gen


@intrinsic
def swap64(tc: Any, x: Any) -> Any:
    """The bytes of a word in reverse order."""
    sig = types.uint64(types.uint64)

    def gen(ctx: Any, b: Any, s: Any, a: Any) -> Any:
        fn = cgutils.get_or_insert_function(b.module, ir.FunctionType(I64, [I64]), "llvm.bswap.i64")
        return b.call(fn, [a[0]])

    return sig, gen


@part
def div192(lo: Any, mi: Any, hi: Any, n: Any) -> Any:
    """Unsigned (lo, mi, hi) by 0 < n < 2^63 -> quotient words and remainder."""
    low32 = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    q0, q1, q2, rem = U0, U0, U0, U0
    if n <= low32:  # schoolbook on 32-bit halves: one machine division each
        rem = hi % n
        q2 = hi // n
        t = (rem << half) | (mi >> half)
        a = t // n
        t = ((t - a * n) << half) | (mi & low32)
        b = t // n
        q1 = (a << half) | b
        t = ((t - b * n) << half) | (lo >> half)
        a = t // n
        t = ((t - a * n) << half) | (lo & low32)
        b = t // n
        return (a << half) | b, q1, q2, t - b * n
    top = np.uint64(63)
    for _ in range(192):  # bit by bit: only for groups of more than 2^32 rows
        rem = (rem << U1) | (hi >> top)
        hi = (hi << U1) | (mi >> top)
        mi = (mi << U1) | (lo >> top)
        lo = lo << U1
        q2 = (q2 << U1) | (q1 >> top)
        q1 = (q1 << U1) | (q0 >> top)
        q0 = q0 << U1
        if rem >= n:
            rem -= n
            q0 |= U1
    return q0, q1, q2, rem


EXPONENT = np.int64(0x7FF << 52)


@part
def round128(lo: Any, hi: Any, weight: Any, sticky: Any, negative: Any) -> Any:
    """(lo, hi) * 2^(weight - 1074), plus a fraction if sticky, as the bits of the nearest double (ties to even).

    The caller gives at least 65 significant bits unless the value is exact with few bits above weight 0."""
    length = bitlen(lo) if hi == U0 else np.int64(64) + bitlen(hi)
    if length == 0:
        return np.int64(0)
    lowest = max(weight + length - 53, np.int64(0))
    shift = lowest - weight
    kept, _ = shr128(lo, hi, shift)
    half, _ = shr128(lo, hi, shift - 1)
    if (half & U1) != U0:
        up = sticky or (kept & U1) != U0
        if not up and shift > 1:
            a, b = shl128(lo, hi, np.int64(129) - shift)
            up = (a | b) != U0
        if up:
            kept += U1
    bits = EXPONENT
    if lowest < 2046:
        bits = min((lowest << 52) + np.int64(kept), EXPONENT)
    return bits | np.int64(-(1 << 63)) if negative else bits


@part
def quotient(lo: Any, hi: Any, weight: Any, sticky: Any, negative: Any, n: Any) -> Any:
    """(lo, hi) * 2^(weight - 1074), top bit of hi set, divided by n and correctly rounded to a double."""
    a, b, _, rem = div192(lo, hi, U0, np.uint64(n))
    return round128(a, b, weight, sticky or rem != U0, negative)
