"""Exact sums against Python integers and math.fsum, bit for bit, over random histories of additions and retractions."""

from __future__ import annotations

import contextlib
import math
import random
import struct
import sys
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

import numpy as np
import pytest

from belvedere.engine.state.sums import DoubleSum, IntegerSum
from belvedere.types import BIGINT, DOUBLE, INT, Type, decimal

SCALE = 1 << 1074
TOP = sys.float_info.max
NO_COUNTS = np.empty(0, np.int64)


def exact(value: float) -> int:
    """A finite double in units of the smallest subnormal."""
    fraction = Fraction(value) * SCALE
    assert fraction.denominator == 1
    return fraction.numerator


def rounded(total: int, count: int = 1) -> float:
    try:
        return total / (SCALE * count)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def bits(value: float) -> bytes:
    return b"nan" if value != value else struct.pack("<d", value)


def draw(rng: random.Random, kind: int) -> float:
    sign = rng.choice((-1, 1))
    if kind == 0:
        return rng.uniform(-1000, 1000)
    if kind == 1:
        return sign * math.ldexp(rng.random(), rng.randint(-1073, 1024))
    if kind == 2:
        return sign * rng.randint(0, 1 << 53) * 5e-324
    if kind == 3:
        return rng.choice((1e308, -1e308, TOP, -TOP, 1.7e308, -9e307, 2.0**970, -(2.0**970), 2.0**969, 5e-324))
    if kind == 4:
        return rng.choice((1.0, -1.0, 2.0**-53, -(2.0**-53), 2.0**-54, 5e-324, 1 + 2.0**-52, 2.0**53, 3 * 2.0**-54))
    if kind == 5:
        return rng.choice((0.0, -0.0, 1e16, -1e16, 1e-16, 1e32, -1e32, 5e-324))
    if kind == 6:
        return rng.choice((math.nan, math.inf, -math.inf, 1.5, -2.5, 1e300, 1e-300))
    if kind == 7:
        return sign * math.ldexp(1, rng.randint(-1074, 1023))
    if kind == 8:
        return round(rng.uniform(-1e6, 1e6), 2)
    return sign * math.ldexp(rng.getrandbits(53) | 1, rng.randint(-60, 60))


def expected(live: list[float], total: int) -> tuple[float, float]:
    """Sum and mean of the doubles that are left."""
    special = [v for v in live if not math.isfinite(v)]
    if special:
        value = special[0] if len(set(special)) == 1 and special[0] == special[0] else math.nan
        return value, value
    want = rounded(total)
    with contextlib.suppress(OverflowError):  # fsum gives up where an intermediate sum is out of range
        assert bits(math.fsum(live)) == bits(want)
    return want, rounded(total, len(live)) if live else 0.0


@pytest.mark.parametrize("seed", range(4))
def test_double_sums_equal_exact_arithmetic_whatever_the_history(seed: int) -> None:
    rng = random.Random(seed)
    groups = 1500
    slots = np.arange(groups, dtype=np.int32)
    state = DoubleSum()
    live: list[list[float]] = [[] for _ in range(groups)]
    totals = [0] * groups
    kinds = [rng.randrange(11) for _ in range(groups)]
    for step in range(6):
        changes: list[tuple[int, float, int]] = []
        for g in range(groups):
            for _ in range(rng.randint(0, 6)):
                left = live[g]
                if left and rng.random() < (0.45 if step < 4 else 0.9):
                    value, weight = left.pop(rng.randrange(len(left))), -1
                else:
                    value, weight = draw(rng, kinds[g] if kinds[g] < 10 else rng.randrange(10)), 1
                    left.append(value)
                if math.isfinite(value):
                    totals[g] += weight * exact(value)
                changes.append((g, value, weight))
        rng.shuffle(changes)  # a retraction may come before its insertion
        state.ensure(groups)
        state.add(
            np.array([c[0] for c in changes], np.int32),
            np.array([c[2] for c in changes], np.int8),
            np.array([c[1] for c in changes]),
        )
        counts = np.array([len(x) for x in live], np.int64)
        (sums, _), (means, _) = state.both(slots, counts, DOUBLE, DOUBLE)
        for g in range(groups):
            want = expected(live[g], totals[g])
            assert (bits(sums[g]), bits(means[g])) == (bits(want[0]), bits(want[1])), (live[g], sums[g], means[g])
    rest = [(g, v) for g in range(groups) for v in live[g]]
    state.ensure(groups)
    state.add(np.array([r[0] for r in rest], np.int32), np.full(len(rest), -1, np.int8), np.array([r[1] for r in rest]))
    assert not state.total(slots, DOUBLE)[0].view(np.int64).any()
    dump = state.dump(groups)
    assert dump["ctl"][2] == 0, "drained groups must give their dense rows back"
    assert not dump["acc"].any(), "and be as if they had never been"


@pytest.mark.parametrize("value", [1.9999999999999998, -1.9999999999999998, 5e-324, TOP / 2**30, 2.0**52 - 0.5])
def test_many_equal_values_carry_correctly(value: float) -> None:
    state, n = DoubleSum(), 300_000
    slot = np.zeros(1, np.int32)
    state.ensure(1)
    state.add(np.zeros(n, np.int32), np.ones(n, np.int8), np.full(n, value))
    assert state.total(slot, DOUBLE)[0][0] == rounded(n * exact(value))
    state.ensure(1)
    state.add(np.zeros(n, np.int32), np.full(n, -1, np.int8), np.full(n, value))
    assert bits(state.total(slot, DOUBLE)[0][0]) == bits(0.0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (1 << 62) + 12345])
def test_means_are_rounded_correctly_for_any_count(count: int) -> None:
    rng = random.Random(count)
    values = [draw(rng, k) for k in (0, 1, 2, 4, 7, 8, 9) for _ in range(200)]
    slots = np.arange(len(values), dtype=np.int32)
    state = DoubleSum()
    state.ensure(len(values))
    state.add(slots, np.ones(len(values), np.int8), np.array(values))
    means, _ = state.mean(slots, np.full(len(values), count, np.int64), DOUBLE)
    for value, got in zip(values, means, strict=True):
        assert bits(abs(got)) == bits(abs(rounded(exact(value), count))), value


def words(values: list[int], type: Type) -> np.ndarray:
    if not type.wide:
        return np.array(values, type.dtype)
    return np.array([(v & (1 << 64) - 1, v >> 64 & (1 << 64) - 1) for v in values], np.uint64).view(np.int64)


def integers(data: np.ndarray) -> list[int]:
    if data.ndim == 1:
        return [int(x) for x in data]
    return [(int(hi) << 64) + (int(lo) & (1 << 64) - 1) for lo, hi in data]


INTEGER_TYPES = [
    (INT, BIGINT, DOUBLE),
    (BIGINT, BIGINT, DOUBLE),
    (decimal(5, 2), decimal(15, 2), decimal(9, 6)),
    (decimal(18, 4), decimal(28, 4), decimal(22, 8)),
    (decimal(30, 10), decimal(38, 10), decimal(34, 14)),
    (decimal(38, 0), decimal(38, 0), decimal(38, 4)),
    (decimal(38, 38), decimal(38, 38), decimal(38, 38)),
]


@pytest.mark.parametrize(("type", "total_type", "mean_type"), INTEGER_TYPES, ids=str)
def test_integer_and_decimal_sums_equal_python_integers(type: Type, total_type: Type, mean_type: Type) -> None:
    rng = random.Random(str(type))
    top = 10**type.precision - 1 if type.precision else (1 << (8 * type.dtype.itemsize - 1)) - 1
    groups = 400
    slots = np.arange(groups, dtype=np.int32)
    state = IntegerSum(type)
    state.ensure(groups)
    live: list[list[int]] = [[] for _ in range(groups)]
    overflows = 0
    for _ in range(6):
        changes: list[tuple[int, int, int]] = []
        for g in range(groups):
            for _ in range(rng.randint(0, 5)):
                if live[g] and rng.random() < 0.4:
                    changes.append((g, live[g].pop(rng.randrange(len(live[g]))), -1))
                else:
                    wild = rng.choice((top, -top, top // 10**4, rng.randint(-top, top), rng.randint(-100, 100)))
                    live[g].append(wild)
                    changes.append((g, wild, 1))
        rng.shuffle(changes)
        state.add(
            np.array([c[0] for c in changes], np.int32),
            np.array([c[2] for c in changes], np.int8),
            words([c[1] for c in changes], type),
        )
        counts = np.array([len(x) for x in live], np.int64)
        (sums, over), (means, mean_over) = state.both(slots, counts, total_type, mean_type)
        bound = 10**total_type.precision if total_type.precision else 1 << 63
        for g, got in enumerate(integers(sums)):
            want = sum(live[g])
            fits = abs(want) < bound or (not total_type.precision and want == -bound)
            assert fits == (over is None or not over[g])
            overflows += not fits
            if fits:
                assert got == want
        if mean_type == DOUBLE:
            for g, mean in enumerate(means):
                assert mean == (sum(live[g]) / len(live[g]) if live[g] else 0)
        else:
            context = Context(prec=200, rounding=ROUND_HALF_UP)
            for g, got in enumerate(integers(means)):
                if live[g]:
                    shifted = sum(live[g]) * 10 ** (mean_type.scale - type.scale)
                    exact_mean = context.divide(Decimal(shifted), Decimal(len(live[g])))
                    want = int(exact_mean.quantize(Decimal(1), context=context))
                    fits = abs(want) < 10**mean_type.precision
                    assert fits == (mean_over is None or not mean_over[g])
                    assert not fits or got == want
    if type in (BIGINT, decimal(38, 0)):
        assert overflows, "the test must reach the bound"


@pytest.mark.parametrize("make", [DoubleSum, lambda: IntegerSum(BIGINT), lambda: IntegerSum(decimal(38, 2))])
def test_sums_survive_export_dump_and_clear(make: type[DoubleSum]) -> None:
    state = make()
    double = isinstance(state, DoubleSum)
    kind = DOUBLE if double else decimal(38, 2) if state._width == 4 else BIGINT  # type: ignore[attr-defined]
    raw = [1.5, 1e300, 1e-300, math.inf, 0.1, 5e-324] if double else [1, -2, 3, 10**15, -(10**15), 7]
    data = np.array(raw) if double else words(raw, kind)  # type: ignore[arg-type]
    slots = np.array([3, 1, 1, 4, 3, 7], np.int32)
    state.ensure(8)
    state.add(slots, np.ones(6, np.int8), data)
    every = np.arange(8, dtype=np.int32)
    before = state.total(every, kind)[0]
    copy = make()
    copy.load({k: v.copy() for k, v in state.dump(8).items()})
    assert (copy.total(every, kind)[0] == before).all()
    other = make()
    other.ensure(8)
    other.import_(every[::-1].copy(), state.export(every))
    assert (other.total(every[::-1].copy(), kind)[0] == before).all()
    state.clear(np.array([1, 4], np.int32))
    after = state.total(every, kind)[0]
    assert not np.any(after[[1, 4]]) and (after[[0, 2, 3, 5, 6, 7]] == before[[0, 2, 3, 5, 6, 7]]).all()
    state.ensure(8)
    state.add(slots, np.ones(6, np.int8), data)
    assert (state.total(every, kind)[0][[1, 4]] == before[[1, 4]]).all()
