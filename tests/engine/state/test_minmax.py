"""Least and greatest values against Counters: random and adversarial histories, retractions before insertions."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.state.minmax import MinMaxWords, Texts, make_minmax
from belvedere.engine.state.ragged import fixed
from belvedere.engine.vec import Data
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, STRING, Type, decimal

WIDE = decimal(38, 3)


def column(values: list[Any], type: Type) -> Data:
    if type.varlen:
        return pa.array(values, type.arrow)
    if type.wide:
        mask = (1 << 64) - 1
        return np.array([(v & mask, v >> 64 & mask) for v in values], np.uint64).view(np.int64)
    return np.array(values, type.dtype)


def python(data: Data, type: Type) -> list[Any]:
    if isinstance(data, pa.Array):
        return data.to_pylist()
    if type.wide:
        return [(int(hi) << 64) + (int(lo) & (1 << 64) - 1) for lo, hi in data]
    return data.tolist()


def order(value: Any) -> Any:
    """NaN is greatest, strings sort by their bytes."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    return value.encode() if isinstance(value, str) else value


def same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


def prefixed(rng: random.Random, domain: int) -> str:
    """Long strings that differ late, strings that are prefixes of each other, and short ones with zeros inside."""
    x = rng.randrange(domain)
    form = x % 5
    if form == 0:
        return "a common prefix that is long " * 2 + str(x)
    if form == 1:
        return "ab" * (x % 40)
    if form == 2:
        return "x\0" * (x % 6)
    if form == 3:
        return "äöü€" + chr(0x10000 + x % 1000)
    return str(x)


DRAW: dict[Type, Callable[[random.Random, int], Any]] = {
    BIGINT: lambda rng, d: rng.randint(-d, d),
    DOUBLE: lambda rng, d: rng.choice((0.0, math.nan, math.inf, -math.inf, rng.uniform(-d, d), rng.randint(-9, 9) / 2)),
    STRING: prefixed,
    BINARY: lambda rng, d: prefixed(rng, d).encode("utf-16"),
    WIDE: lambda rng, d: rng.choice((1, 10**12, 10**25)) * rng.randint(-d, d),
}


def run(type: Type, seed: int, batches: int = 40) -> None:
    rng = random.Random(f"{type} {seed}")
    groups = rng.choice((1, 1, 3, 50))
    domain = rng.choice((3, 50, 10**4, 1 << 62 if type == BIGINT else 10**6))
    mode = seed % 5  # random, delete the least, last in first out, ascending queue, descending queue
    state = make_minmax(type)
    state.ensure(groups)
    slots = np.arange(groups, dtype=np.int32)
    have: list[Counter[Any]] = [Counter() for _ in range(groups)]
    live: list[list[Any]] = [[] for _ in range(groups)]
    sequence = 0
    for batch in range(batches):
        changes: list[tuple[int, Any, int]] = []
        growing = rng.random() < 0.5
        for _ in range(rng.choice((1, 10, 300, 1500))):
            g = rng.randrange(groups)
            left = live[g]
            if left and rng.random() < (0.35 if growing else 0.75):
                at = {0: rng.randrange(len(left)), 2: len(left) - 1}.get(mode, 0)
                if mode == 1:
                    at = min(range(0, len(left), max(1, len(left) // 50)), key=lambda j: order(left[j]))
                value = left[at]
                left[at] = left[-1]
                left.pop()
                changes.append((g, value, -1))
            else:
                sequence += 1
                value = DRAW[type](rng, domain)
                if mode > 2 and type in (BIGINT, WIDE):
                    value = sequence if mode == 3 else -sequence
                elif mode > 2 and type == STRING:
                    value = f"a very common prefix {sequence if mode == 3 else 10**9 - sequence:012}"
                left.append(value)
                changes.append((g, value, 1))
        for g, value, weight in changes:
            key = math.nan if value != value else value
            have[g][key] += weight
            if have[g][key] == 0:
                del have[g][key]
        if rng.random() < 0.5:
            rng.shuffle(changes)
        state.add(
            np.array([c[0] for c in changes], np.int32),
            np.array([c[2] for c in changes], np.int8),
            column([c[1] for c in changes], type),
        )
        if batch == batches // 2:  # move everything elsewhere on the way
            ends, items = state.entries(slots)
            other = make_minmax(type)
            other.ensure(groups)
            other.import_(slots, items.pack(ends))
            state.clear(slots)
            assert_nothing_left(state)
            state = make_minmax(type)
            state.load({k: a.copy() for k, a in other.dump(groups).items()})
        low, high = (python(x, type) for x in state.read(slots, True, True) if x is not None)
        for g in range(groups):
            if have[g]:
                assert same(low[g], min(have[g], key=order)), (batch, g)
                assert same(high[g], max(have[g], key=order)), (batch, g)
    for g in range(groups):
        rest = list(have[g].elements())
        if rest:
            rest.sort(key=order)
            weights = np.full(len(rest), -1, np.int8)
            state.add(np.full(len(rest), g, np.int32), weights, column(rest, type))
    assert_nothing_left(state)


def assert_nothing_left(state: Any) -> None:
    ctl = state._ctl
    assert (ctl[8] == 0) if isinstance(state, MinMaxWords) else (ctl[2] == 0 and ctl[4] == 0), (
        "memory must be given back"
    )
    assert isinstance(state, MinMaxWords | Texts)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("type", list(DRAW), ids=str)
def test_extremes_equal_those_of_a_counter(type: Type, seed: int) -> None:
    run(type, seed)


@pytest.mark.parametrize("pattern", ["ascending", "descending", "random"])
@pytest.mark.parametrize("drain", ["ascending", "descending", "random"])
def test_one_big_group_fills_and_drains_in_any_order(pattern: str, drain: str) -> None:
    rng = np.random.default_rng(1)
    count = 30_000
    orders = {
        "ascending": np.arange(count),
        "descending": np.arange(count)[::-1].copy(),
        "random": rng.permutation(count),
    }
    state = MinMaxWords(BIGINT)
    state.ensure(1)
    slot = np.zeros(1, np.int32)
    for start in range(0, count, 1000):
        state.add(np.zeros(1000, np.int32), np.ones(1000, np.int8), orders[pattern][start : start + 1000])
    left = set(range(count))
    for start in range(0, count, 1000):
        part = orders[drain][start : start + 1000]
        state.add(np.zeros(1000, np.int32), np.full(1000, -1, np.int8), part)
        left -= set(part.tolist())
        if left:
            low, high = state.read(slot, True, True)
            assert low is not None and high is not None
            assert (int(low[0]), int(high[0])) == (min(left), max(left))
    assert_nothing_left(state)


def test_weights_of_one_value_beyond_32_bits() -> None:
    state = MinMaxWords(BIGINT)
    state.ensure(1)
    slot = np.zeros(1, np.int32)
    state.import_(slot, [fixed(np.array([[5, 7]])), fixed(np.array([[5 << 31, 1]]))])
    for _ in range(100):  # force the leaf to merge repeated entries
        state.add(np.zeros(100, np.int32), np.ones(100, np.int8), np.full(100, 5))
    ends, items = state.entries(slot)
    values, weights = items.pack(ends)
    assert values.words(np.int64).tolist() == [5, 7]
    assert weights.words(np.int64).tolist() == [(5 << 31) + 10_000, 1]
    state.add(slot, np.full(1, -1, np.int8), np.array([7]))
    low, high = state.read(slot, True, True)
    assert low is not None and high is not None and (low[0], high[0]) == (5, 5)


def test_booleans_and_dates_keep_their_layout() -> None:
    for type, values in ((BOOLEAN, [True, False, True]), (DATE, [-5, 3, 2])):
        state = make_minmax(type)
        state.ensure(1)
        state.add(np.zeros(3, np.int32), np.ones(3, np.int8), column(values, type))
        low, high = state.read(np.zeros(1, np.int32), True, True)
        assert isinstance(low, np.ndarray) and isinstance(high, np.ndarray)
        assert low.dtype == type.dtype and (low[0], high[0]) == (min(values), max(values))


def test_zero_has_one_sign_and_nan_one_form() -> None:
    state = make_minmax(DOUBLE)
    state.ensure(1)
    slot = np.zeros(1, np.int32)
    odd = np.array([0xFFF8000000000001, 0x8000000000000000], np.uint64).view(np.float64)
    state.add(np.zeros(2, np.int32), np.ones(2, np.int8), odd)
    low, high = state.read(slot, True, True)
    assert isinstance(low, np.ndarray) and isinstance(high, np.ndarray)
    assert low[0] == 0 and not np.signbit(low[0]) and np.isnan(high[0])
    state.add(np.zeros(2, np.int32), np.full(2, -1, np.int8), np.array([math.nan, 0.0]))
    assert_nothing_left(state)
