"""Every aggregate call against recomputation in exact Python, over random histories with NULLs, errors and filters."""

from __future__ import annotations

import math
import random
import struct
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.expr.literal import to_pylist
from belvedere.engine.state.accumulators import Accumulators
from belvedere.engine.vec import Status, Vec
from belvedere.plan.nodes import AggregateTerm
from belvedere.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, Type, decimal

SMALL, WIDE = decimal(12, 2), decimal(30, 4)
TYPES = (DOUBLE, BIGINT, STRING, SMALL, WIDE, BOOLEAN, DATE, INT)
FILTER = 5
CALLS = (
    AggregateTerm("count", None, BIGINT),
    AggregateTerm("count", None, BIGINT, filter=FILTER),
    *(AggregateTerm(f, 0, DOUBLE) for f in ("sum", "avg", "min", "max")),
    *(AggregateTerm(f, 0, DOUBLE, distinct=True) for f in ("sum", "avg", "min")),
    AggregateTerm("sum", 1, BIGINT),
    AggregateTerm("avg", 1, DOUBLE),
    AggregateTerm("min", 1, BIGINT),
    AggregateTerm("count", 1, BIGINT),
    AggregateTerm("count", 1, BIGINT, distinct=True),
    AggregateTerm("sum", 1, BIGINT, distinct=True, filter=FILTER),
    AggregateTerm("max", 1, BIGINT, filter=FILTER),
    AggregateTerm("min", 2, STRING),
    AggregateTerm("max", 2, STRING),
    AggregateTerm("count", 2, BIGINT, distinct=True, filter=FILTER),
    AggregateTerm("sum", 3, decimal(22, 2)),
    AggregateTerm("avg", 3, decimal(16, 6)),
    AggregateTerm("avg", 3, decimal(16, 6), distinct=True),
    AggregateTerm("sum", 4, decimal(38, 4)),
    AggregateTerm("avg", 4, decimal(34, 8)),
    AggregateTerm("max", 4, WIDE),
    AggregateTerm("min", FILTER, BOOLEAN),
    AggregateTerm("max", 6, DATE),
    AggregateTerm("sum", 7, BIGINT),
    AggregateTerm("avg", 7, DOUBLE, filter=FILTER),
)
NULL, VALUE = int(Status.NULL), int(Status.VALUE)
Cell = tuple[int, Any]
"""Status and value."""


def draw_value(rng: random.Random, type: Type) -> Any:
    if type == DOUBLE:
        tiny = rng.uniform(-1, 1) * 1e-200
        return rng.choice((0.0, -0.0, 1.5, 0.1, 1e300, -1e300, 5e-324, rng.uniform(-100, 100), tiny))
    if type == STRING:
        return rng.choice(("", "a", "long shared prefix, ", "zzz")) + str(rng.randrange(5))
    if type == BOOLEAN:
        return rng.random() < 0.6
    if type == BIGINT:
        return rng.choice((rng.randint(-5, 5), (1 << 63) - 1, -(1 << 63), rng.randint(-(10**9), 10**9)))
    if type in (DATE, INT):
        return rng.randint(-1000, 1000)
    return rng.randint(-20, 20) * rng.choice((1, 10**6, 10**type.precision // 100))


def draw_row(rng: random.Random) -> tuple[Cell, ...]:
    def status() -> int:
        x = rng.random()
        return VALUE if x < 0.85 else NULL if x < 0.97 else rng.choice((2, 3, 4, 5))

    return tuple((status(), draw_value(rng, t)) for t in TYPES)


def vec(cells: list[Cell], type: Type) -> Vec:
    status = np.array([c[0] for c in cells], np.uint8)
    values = [c[1] for c in cells]
    if type.varlen:
        data: Any = pa.array(values, type.arrow)
    elif type.wide:
        mask = (1 << 64) - 1
        data = np.array([(v & mask, v >> 64 & mask) for v in values], np.uint64).view(np.int64).reshape(-1, 2)
    else:
        data = np.array(values, type.dtype)
    return Vec(type, data, None if (status == VALUE).all() else status)


def cells_of(result: Vec) -> list[Cell]:
    """What a column holds, in a form that compares exactly."""
    out: list[Cell] = []
    for i in range(len(result)):
        status = VALUE if result.status is None else int(result.status[i])
        value: Any = None
        if status == VALUE:
            if result.type.varlen:
                value = result.data[i].as_py()
            elif result.type.wide:
                lo, hi = result.data[i]
                value = (int(hi) << 64) + (int(lo) & (1 << 64) - 1)
            else:
                value = result.data[i].item()
        out.append((status, canonical(value)))
    return out


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return b"nan" if value != value else struct.pack("<d", value)
    return value


def divide(total: Fraction, count: int, type: Type, scale: int) -> Any:
    if type == DOUBLE:
        return float(total / count)
    context = Context(prec=200, rounding=ROUND_HALF_UP)
    shifted = total * 10 ** (type.scale - scale)
    quotient = context.divide(Decimal(shifted.numerator), Decimal(shifted.denominator * count))
    return int(quotient.quantize(Decimal(1), context=context))


def naive(call: AggregateTerm, rows: list[tuple[Cell, ...]]) -> Cell:
    """The result of a call over rows, from scratch."""
    failed: list[int] = []
    taken: list[Any] = []
    for row in rows:
        if call.filter is not None:
            status, hit = row[call.filter]
            if status > VALUE:
                failed.append(status)
            if status != VALUE or not hit:
                continue
        if call.arg is None:
            taken.append(None)
            continue
        status, value = row[call.arg]
        if status > VALUE:
            failed.append(status)
        elif status == VALUE:
            taken.append(0.0 if value == 0.0 and isinstance(value, float) else value)
    if failed:
        return min(failed), None
    if call.distinct:
        taken = list(dict.fromkeys(taken))
    if call.function == "count":
        return VALUE, len(taken)
    if not taken:
        return NULL, None
    arg = TYPES[call.arg or 0]
    if call.function in ("min", "max"):
        pick = min if call.function == "min" else max
        return VALUE, canonical(pick(taken, key=lambda v: v.encode() if isinstance(v, str) else v))
    total = sum(map(Fraction, taken), Fraction(0))
    try:
        if call.function == "avg":
            value = divide(total, len(taken), call.type, arg.scale)
        else:
            value = float(total) if call.type == DOUBLE else int(total)
    except OverflowError:
        value = math.copysign(math.inf, total)
    if call.type != DOUBLE:
        bound = 10**call.type.precision if call.type.precision else 1 << 63
        if abs(value) >= bound and not (call.type == BIGINT and value == -bound):
            return int(Status.OVERFLOW), None
    return VALUE, canonical(value)


def ids_of(groups: np.ndarray, names: list[int]) -> np.ndarray:
    out = np.empty((len(groups), 2), np.uint64)
    out[:, 0] = [names[g] * 7919 + 1 for g in groups]
    out[:, 1] = [names[g] + 12345 for g in groups]
    return out


def check(state: Accumulators, model: list[list[tuple[tuple[Cell, ...], int]]], slots: list[int]) -> None:
    where = np.array(slots, np.int32)
    assert state.counts(where).tolist() == [len(model[s]) for s in slots]
    bad = [min((e for _, e in model[s] if e > VALUE), default=VALUE) for s in slots]
    errors = state.errors(where)
    assert (errors is None and set(bad) <= {VALUE}) or (errors is not None and errors.tolist() == bad)
    results = [cells_of(column) for column in state.read(where)]
    for call, column, got in zip(CALLS, state.read(where), results, strict=True):
        assert column.type == call.type
        for j, s in enumerate(slots):
            if call == CALLS[0]:
                assert got[j] == (VALUE, len(model[s]))
            else:
                want = naive(call, [row for row, e in model[s] if e == VALUE])
                assert got[j] == want, (call, s, got[j], want)


@pytest.mark.parametrize("seed", range(12))
def test_calls_equal_recomputation(seed: int) -> None:
    rng = random.Random(seed)
    spread = 1000 if seed % 3 == 0 else 1  # sparse slots
    count = rng.choice((1, 5, 20))
    model: list[list[tuple[tuple[Cell, ...], int]]] = [[] for _ in range(count * spread + 1)]
    names = list(range(len(model)))
    slots = [g * spread for g in range(count)]
    state = Accumulators(CALLS, TYPES)
    clean = seed % 4 == 1
    for step in range(30):
        changes: list[tuple[int, tuple[Cell, ...], int, int]] = []
        for _ in range(rng.choice((1, 5, 60))):
            s = rng.choice(slots)
            if model[s] and rng.random() < (0.4 if step < 20 else 0.7):
                row, error = model[s].pop(rng.randrange(len(model[s])))
                changes.append((s, row, -1, error))
            else:
                row = draw_row(rng)
                if clean:
                    row = tuple((VALUE, v) for _, v in row)
                error = rng.choice((2, 4)) if rng.random() < 0.02 and not clean else VALUE
                model[s].append((row, error))
                changes.append((s, row, 1, error))
        rng.shuffle(changes)
        groups = np.array([c[0] for c in changes], np.int32)
        error = np.array([c[3] for c in changes], np.uint8)
        state.update(
            groups,
            ids_of(groups, names),
            np.array([c[2] for c in changes], np.int8),
            [vec([c[1][i] for c in changes], t) for i, t in enumerate(TYPES)],
            error if (error != VALUE).any() else None,
        )
        check(state, model, slots)
        action = rng.random()
        if action < 0.15:  # a slot is cleared and serves another group
            s = rng.choice(slots)
            state.clear(np.array([s], np.int32))
            model[s] = []
            names[s] += len(model)
            check(state, model, slots)
        elif action < 0.25:
            copy = Accumulators(CALLS, TYPES)
            copy.load({k: a.copy() for k, a in state.dump().items()})
            state = copy
            check(state, model, slots)
        elif action < 0.4:  # two groups move out and come back in each other's slots
            a, b = rng.choice(slots), rng.choice(slots)
            pair = [a] if a == b else [a, b]
            packed = state.export(np.array(pair, np.int32))
            state.clear(np.array(pair, np.int32))
            swapped = pair[::-1]
            state.import_(np.array(swapped, np.int32), packed)
            if a != b:
                model[a], model[b] = model[b], model[a]
                names[a], names[b] = names[b], names[a]
            check(state, model, slots)
    assert state.nbytes() > 0


def test_unknown_slots_read_as_empty_groups() -> None:
    state = Accumulators(CALLS, TYPES)
    results = state.read(np.array([7, 0], np.int32))
    for call, column in zip(CALLS, results, strict=True):
        assert cells_of(column) == [(VALUE, 0) if call.function == "count" else (NULL, None)] * 2
    assert state.counts(np.array([7, 900], np.int32)).tolist() == [0, 0]
    assert state.errors(np.array([7], np.int32)) is None


def test_large_batches_are_cut_without_a_trace() -> None:
    rng = np.random.default_rng(5)
    count = 150_000
    values = np.round(rng.normal(size=count), 3)
    groups = rng.integers(0, 50, count).astype(np.int32)
    calls = [
        AggregateTerm("sum", 0, DOUBLE),
        AggregateTerm("min", 0, DOUBLE),
        AggregateTerm("count", 0, BIGINT, distinct=True),
    ]
    state = Accumulators(calls, [DOUBLE])
    ids = np.stack([groups, groups], axis=1).astype(np.uint64)
    everything = [Vec(DOUBLE, values)]
    state.update(groups, ids, np.ones(count, np.int8), everything, None)
    sums, least, different = state.read(np.arange(50, dtype=np.int32))
    for g in range(50):
        mine = values[groups == g]
        assert sums.data[g] == math.fsum(mine) and least.data[g] == mine.min()
        assert different.data[g] == len(np.unique(mine))
    state.update(groups[::-1], ids[::-1], np.full(count, -1, np.int8), [Vec(DOUBLE, values[::-1])], None)
    assert not state.counts(np.arange(50, dtype=np.int32)).any()
    assert not state.read(np.arange(50, dtype=np.int32))[2].data.any()


def test_an_overflow_heals_when_rows_leave() -> None:
    state = Accumulators([AggregateTerm("sum", 0, BIGINT)], [BIGINT])
    top = Vec(BIGINT, np.array([(1 << 63) - 1, 1]))
    two, ids = np.zeros(2, np.int32), np.zeros((2, 2), np.uint64)
    state.update(two, ids, np.ones(2, np.int8), [top], None)
    slot = np.zeros(1, np.int32)
    assert cells_of(state.read(slot)[0]) == [(int(Status.OVERFLOW), None)]
    state.update(slot, ids[:1], np.full(1, -1, np.int8), [top.slice(1, 2)], None)
    assert cells_of(state.read(slot)[0]) == [(VALUE, (1 << 63) - 1)]


def test_batches_large_enough_to_be_ordered_by_group_give_the_same_results(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    calls = [
        AggregateTerm("count", None, BIGINT),
        AggregateTerm("sum", 0, DOUBLE),
        AggregateTerm("min", 0, DOUBLE),
        AggregateTerm("max", 1, STRING),
        AggregateTerm("count", 1, BIGINT, distinct=True),
        AggregateTerm("sum", 0, DOUBLE, filter=2),
    ]
    types = (DOUBLE, STRING, BOOLEAN)
    plain, ordered = Accumulators(calls, types), Accumulators(calls, types)
    rows = 3000
    groups = rng.integers(0, 50, rows).astype(np.int32)
    ids = np.stack([groups.astype(np.uint64) + 1, groups.astype(np.uint64) + 7], axis=1)
    columns = (
        Vec(DOUBLE, rng.normal(size=rows)),
        Vec(STRING, pa.array([f"s{v}" for v in rng.integers(0, 9, rows)])),
        Vec(BOOLEAN, rng.random(rows) < 0.5, (rng.random(rows) < 0.9).astype(np.uint8)),
    )
    error = np.where(rng.random(rows) < 0.05, 2, 1).astype(np.uint8)
    every = np.arange(50, dtype=np.int32)
    for weight in (1, -1, 1):
        keep = rng.random(rows) < 0.7 if weight < 0 else np.ones(rows, np.bool_)
        given = (
            groups[keep], ids[keep], np.full(int(keep.sum()), weight, np.int8),
            [c.filter(keep) for c in columns], error[keep],
        )  # fmt: skip
        plain.update(*given)
        with monkeypatch.context() as patch:
            patch.setattr("belvedere.engine.state.accumulators.SORT_ROWS", 1)
            ordered.update(*given)
        for one, other in zip(plain.read(every), ordered.read(every), strict=True):
            assert to_pylist(one) == to_pylist(other)
