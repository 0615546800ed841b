"""Exact sums and averages per group slot: integers and small decimals in 128 bits, wide ones in 192, doubles exactly.

Overflow is judged when a sum is read, never while it is kept: retracting a row heals it, and the order of changes is
invisible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from belvedere.engine.state import doubles
from belvedere.engine.state.jit import BLOCK, plain
from belvedere.engine.state.ragged import Ragged, fixed, where
from belvedere.engine.state.wide import (
    U0,
    U1,
    WideRegion,
    bitlen,
    div192,
    fma128,
    fma192,
    inlined,
    kernel,
    mul192,
    neg192,
    prefetch,
    quotient,
    shl128,
)
from belvedere.types import Kind, Type

Arrays = dict[str, np.ndarray]
Values = tuple[np.ndarray, np.ndarray | None]
"""Values and, where some do not fit the result type, a mask of those."""

NARROW, WIDE = 2, 4


class Sum(Protocol):
    """The sum of one argument per group slot."""

    parts: int
    """How many parts `export` has."""

    def ensure(self, slots: int) -> None: ...
    def add(self, slots: np.ndarray, weight: np.ndarray, data: np.ndarray) -> None: ...
    def total(self, slots: np.ndarray, type: Type) -> Values: ...
    def mean(self, slots: np.ndarray, counts: np.ndarray, type: Type) -> Values: ...
    def both(self, slots: np.ndarray, counts: np.ndarray, total: Type, mean: Type) -> tuple[Values, Values]: ...
    def clear(self, slots: np.ndarray) -> None: ...
    def export(self, slots: np.ndarray) -> list[Ragged]: ...
    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None: ...
    def nbytes(self) -> int: ...
    def dump(self, slots: int) -> Arrays: ...
    def load(self, arrays: Arrays) -> None: ...


def make_sum(type: Type) -> Sum:
    """The accumulator for arguments of this type."""
    return DoubleSum() if type.kind is Kind.DOUBLE else IntegerSum(type)


class DoubleSum:
    """Superaccumulators: see `doubles`."""

    parts = 3

    def __init__(self) -> None:
        self._acc, self._dense = WideRegion(np.int64, doubles.RECORD), WideRegion(np.int64, doubles.ROW)
        self._ctl = np.zeros(4, np.int64)
        self._scratch = np.zeros(64, np.int64)

    def ensure(self, slots: int) -> None:
        self._acc.ensure(slots)

    def add(self, slots: np.ndarray, weight: np.ndarray, data: np.ndarray) -> None:
        bits = plain(data).view(np.int64)
        done = 0
        while True:
            done = doubles.add(slots, bits, weight, done, self._acc.array, self._dense.array, self._ctl)
            if done == len(slots):
                return
            self._dense.ensure(2 * int(self._ctl[0]) + 8)

    def _read(self, slots: np.ndarray, counts: np.ndarray, total: bool, mean: bool) -> tuple[np.ndarray, np.ndarray]:
        sums = np.empty(len(slots) if total else 0, np.int64)
        means = np.empty(len(slots) if mean else 0, np.int64)
        doubles.read(slots, counts, self._acc.array, self._dense.array, self._ctl, sums, means, self._scratch)
        return sums.view(np.float64), means.view(np.float64)

    def total(self, slots: np.ndarray, type: Type) -> Values:
        return self._read(slots, np.empty(0, np.int64), True, False)[0], None

    def mean(self, slots: np.ndarray, counts: np.ndarray, type: Type) -> Values:
        return self._read(slots, counts, False, True)[1], None

    def both(self, slots: np.ndarray, counts: np.ndarray, total: Type, mean: Type) -> tuple[Values, Values]:
        sums, means = self._read(slots, counts, True, True)
        return (sums, None), (means, None)

    def clear(self, slots: np.ndarray) -> None:
        doubles.clear(slots, self._acc.array, self._dense.array, self._ctl)

    def export(self, slots: np.ndarray) -> list[Ragged]:
        """The first digit's place and the digits; specials only where there are any. Equal sums have equal bytes."""
        rows, spans = np.empty((len(slots), doubles.LINK), np.int64), np.empty((len(slots), 2), np.int64)
        doubles.export(slots, self._acc.array, self._dense.array, rows, spans)
        digits = fixed(rows)
        digits.starts, digits.stops = _span(digits.starts, spans)
        specials = rows[:, doubles.NAN : doubles.LINK]
        return [
            where(spans[:, 0].astype(np.uint8), spans[:, 1] > 0),
            digits,
            where(specials, specials.any(axis=1)),
        ]

    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None:
        first, digits, specials = parts
        rows, spans = np.zeros((len(slots), doubles.LINK), np.int64), np.zeros((len(slots), 2), np.int64)
        spans[first.lengths > 0, 0] = first.words(np.uint8)
        spans[:, 1] = digits.lengths // 8
        at = np.repeat(np.arange(len(slots)), spans[:, 1])
        before = np.cumsum(spans[:, 1]) - spans[:, 1]
        rows[at, spans[at, 0] + np.arange(len(at)) - before[at]] = digits.words(np.int64)
        odd = specials.lengths > 0
        if odd.any():
            rows[odd, doubles.NAN : doubles.LINK] = specials.words(np.int64).reshape(-1, 3)
        self._dense.ensure(int(self._ctl[0]) + len(slots))
        doubles.import_(slots, rows, spans, self._acc.array, self._dense.array, self._ctl)

    def nbytes(self) -> int:
        return self._acc.nbytes() + int(self._ctl[0]) * doubles.ROW * 8

    def dump(self, slots: int) -> Arrays:
        acc, dense = self._acc.ensure(slots), self._dense.array
        used = int(self._ctl[0]) * doubles.ROW
        return {"acc": acc[: slots * doubles.RECORD], "dense": dense[:used], "ctl": self._ctl}

    def load(self, arrays: Arrays) -> None:
        self._acc.load(arrays["acc"])
        self._dense.load(arrays["dense"])
        self._ctl = arrays["ctl"].copy()


class IntegerSum:
    """Two's complement words: 2 for integers and decimals of one word, 3 (in records of 4) for wide decimals."""

    parts = 1

    def __init__(self, type: Type) -> None:
        self._type = type
        self._width = WIDE if type.wide else NARROW
        self._acc = WideRegion(np.uint64, self._width)

    def ensure(self, slots: int) -> None:
        self._acc.ensure(slots)

    def add(self, slots: np.ndarray, weight: np.ndarray, data: np.ndarray) -> None:
        if self._width == WIDE:
            add_wide(slots, plain(data).view(np.uint64).reshape(-1), weight, self._acc.array)
        else:
            add_narrow(slots, plain(data.astype(np.int64, copy=False)), weight, self._acc.array)

    def total(self, slots: np.ndarray, type: Type) -> Values:
        # An integer sum must fit a bigint; a decimal one 10^precision.
        bound = 1 << 63 if type.kind is not Kind.DECIMAL else 10**type.precision
        out = np.empty((len(slots), 2), np.uint64)
        bad = np.empty(len(slots), np.bool_)
        read_total(slots, self._acc.array, self._width, *_words(bound), out, bad)
        return _shape(out, type), bad if bad.any() else None

    def mean(self, slots: np.ndarray, counts: np.ndarray, type: Type) -> Values:
        if type.kind is not Kind.DECIMAL:
            out = np.empty(len(slots), np.int64)
            mean_double(slots, counts, self._acc.array, self._width, out)
            return out.view(np.float64), None
        words = np.empty((len(slots), 2), np.uint64)
        bad = np.empty(len(slots), np.bool_)
        factor = np.uint64(10 ** (type.scale - self._type.scale))
        mean_decimal(slots, counts, self._acc.array, self._width, factor, *_words(10**type.precision), words, bad)
        return _shape(words, type), bad if bad.any() else None

    def both(self, slots: np.ndarray, counts: np.ndarray, total: Type, mean: Type) -> tuple[Values, Values]:
        return self.total(slots, total), self.mean(slots, counts, mean)

    def clear(self, slots: np.ndarray) -> None:
        self._acc.table(self._acc.rows)[slots] = 0

    def export(self, slots: np.ndarray) -> list[Ragged]:
        return [fixed(self._acc.table(self._acc.rows)[slots])]

    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None:
        self._acc.table(self._acc.rows)[slots] = parts[0].words(np.uint64).reshape(-1, self._width)

    def nbytes(self) -> int:
        return self._acc.nbytes()

    def dump(self, slots: int) -> Arrays:
        return {"acc": self._acc.ensure(slots)[: slots * self._width]}

    def load(self, arrays: Arrays) -> None:
        self._acc.load(arrays["acc"])


def _span(starts: np.ndarray, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the digits that a span names, in rows that begin at `starts`."""
    begins = starts + 8 * spans[:, 0]
    return begins, begins + 8 * spans[:, 1]


def _words(x: int) -> tuple[np.uint64, np.uint64]:
    return np.uint64(x & (1 << 64) - 1), np.uint64(x >> 64)


def _shape(words: np.ndarray, type: Type) -> np.ndarray:
    """128-bit results in the layout of their type."""
    signed = words.view(np.int64)
    return signed if type.wide else np.ascontiguousarray(signed[:, 0])


@kernel("i4[:] i8[:] i1[:] u8[:]")
def add_narrow(slots: Any, values: Any, weights: Any, acc: Any) -> None:
    n = slots.shape[0]
    for j in range(n):
        if j + BLOCK < n:
            prefetch(acc, np.int64(slots[j + BLOCK]) * NARROW)
        o = np.int64(slots[j]) * NARROW
        acc[o], acc[o + 1] = fma128(acc[o], acc[o + 1], values[j], np.int64(weights[j]))


@kernel("i4[:] u8[:] i1[:] u8[:]")
def add_wide(slots: Any, values: Any, weights: Any, acc: Any) -> None:
    n = slots.shape[0]
    for j in range(n):
        if j + BLOCK < n:
            prefetch(acc, np.int64(slots[j + BLOCK]) * WIDE)
        o = np.int64(slots[j]) * WIDE
        acc[o], acc[o + 1], acc[o + 2] = fma192(
            acc[o], acc[o + 1], acc[o + 2], values[2 * j], values[2 * j + 1], np.int64(weights[j])
        )


@inlined
def _magnitude(acc: Any, slot: Any, width: Any) -> Any:
    """Words of |sum| and its sign."""
    o = np.int64(slot) * width
    lo, mi = acc[o], acc[o + 1]
    hi = U0 - (mi >> np.uint64(63)) if width == NARROW else acc[o + 2]
    negative = hi >> np.uint64(63) != U0
    if negative:
        lo, mi, hi = neg192(lo, mi, hi)
    return lo, mi, hi, negative


@kernel("i4[:] u8[:] i8 u8 u8 u8[:,:] b1[:]")
def read_total(slots: Any, acc: Any, width: Any, bound_lo: Any, bound_hi: Any, out: Any, bad: Any) -> None:
    """128-bit sums; `bad` where |sum| >= bound (except -2^63, which a bigint can hold)."""
    least = np.uint64(1 << 63)
    for j in range(slots.shape[0]):
        lo, mi, hi, negative = _magnitude(acc, slots[j], width)
        fits = hi == U0 and (mi < bound_hi or (mi == bound_hi and lo < bound_lo))
        if bound_hi == U0 and bound_lo == least and negative and hi == U0 and mi == U0 and lo == least:
            fits = True
        bad[j] = not fits
        if negative:
            lo, mi, hi = neg192(lo, mi, hi)
        out[j, 0] = lo
        out[j, 1] = mi


@kernel("i4[:] i8[:] u8[:] i8 i8[:]")
def mean_double(slots: Any, counts: Any, acc: Any, width: Any, out: Any) -> None:
    """Correctly rounded sum / count."""
    for j in range(slots.shape[0]):
        lo, mi, _, negative = _magnitude(acc, slots[j], width)
        out[j] = 0
        if counts[j] > 0 and (lo | mi) != U0:
            length = bitlen(lo) if mi == U0 else np.int64(64) + bitlen(mi)
            a, b = shl128(lo, mi, np.int64(128) - length)
            out[j] = quotient(a, b, np.int64(1074 - 128) + length, False, negative, counts[j])


@kernel("i4[:] i8[:] u8[:] i8 u8 u8 u8 u8[:,:] b1[:]")
def mean_decimal(
    slots: Any, counts: Any, acc: Any, width: Any, factor: Any, bound_lo: Any, bound_hi: Any, out: Any, bad: Any
) -> None:
    """sum * factor / count, halves away from zero."""
    for j in range(slots.shape[0]):
        lo, mi, hi, negative = _magnitude(acc, slots[j], width)
        bad[j] = False
        out[j, 0] = out[j, 1] = U0
        if counts[j] <= 0:
            continue
        n = np.uint64(counts[j])
        a, b, c, rem = div192(lo, mi, hi, n)
        f0, f1, _ = mul192(rem, U0, factor)
        g, _, _, rest = div192(f0, f1, U0, n)
        if rest >= n - rest:
            g += U1
        a, b, d = mul192(a, b, factor)
        a += g
        if a < g:
            b += U1
            if b == U0:
                d += U1
        bad[j] = c != U0 or d != U0 or not (b < bound_hi or (b == bound_hi and a < bound_lo))
        if negative:
            a, b, d = neg192(a, b, d)
        out[j, 0] = a
        out[j, 1] = b
