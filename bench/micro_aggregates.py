"""Nanoseconds per change of the aggregate states, friendly and adversarial; one delete for each insert.

    python bench/micro_aggregates.py [repetitions]

Kinds of histories: friendly never touches the least or greatest value of a group; random deletes any; delmin and
delmax delete the least (greatest) value every time; fifo and lifo delete the oldest (newest) of ascending values; few
has 20 distinct values.
"""

from __future__ import annotations

import heapq
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.state.accumulators import Accumulators
from belvedere.engine.vec import Vec
from belvedere.engine.warm import warm
from belvedere.plan.nodes import AggregateTerm
from belvedere.types import BIGINT, DOUBLE, STRING, Type, decimal

BATCH = 10_000
CHANGES = 200_000
COUNT = AggregateTerm("count", None, BIGINT)
Q3 = (COUNT, *(AggregateTerm(f, 0, DOUBLE) for f in ("sum", "min", "max", "avg")))


def history(groups: int, rows: int, kind: str, seed: int = 5) -> tuple[np.ndarray, ...]:
    """(slot, value) to load, then (slot, value, weight) of the steady state; values are integers."""
    rng = np.random.default_rng(seed)
    slots = np.tile(np.arange(groups), rows)
    ordered = kind in ("fifo", "lifo")
    values = np.arange(groups * rows) if ordered else rng.integers(-(2**40), 2**40, groups * rows)
    if kind == "few":
        values = rng.integers(0, 20, groups * rows)
    fresh = rng.integers(0, 20, CHANGES) if kind == "few" else rng.integers(-(2**40), 2**40, CHANGES)
    picks = rng.random(CHANGES).tolist()
    members: list[list[int]] = [values[g::groups].tolist() for g in range(groups)]
    sign = -1 if kind == "delmax" else 1
    heaps = [[sign * v for v in m] for m in members] if kind in ("delmin", "delmax") else []
    for heap in heaps:
        heapq.heapify(heap)
    queues = [deque(m) for m in members] if kind == "fifo" else []
    if kind == "friendly":
        for m in members:
            m.sort()
    out_slot, out_value, out_weight = [], [], []
    for j, g in enumerate(rng.integers(0, groups, CHANGES // 2).tolist()):
        value = groups * rows + j if ordered else int(fresh[j])
        if heaps:
            old = sign * heapq.heapreplace(heaps[g], sign * value)
        elif kind == "fifo":
            old = queues[g].popleft()
            queues[g].append(value)
        elif kind == "lifo":
            old = members[g].pop()
            members[g].append(value)
        else:
            m = members[g]
            inner = kind == "friendly"
            at = inner + int(picks[j] * (len(m) - 2 * inner))
            old = m[at]
            if inner:
                value = min(max(value, m[0] + 1), m[-1] - 1)
            m[at] = value
        out_slot += (g, g)
        out_value += (old, value)
        out_weight += (-1, 1)
    steady = np.array(out_slot, np.int32), np.array(out_value), np.array(out_weight, np.int8)
    return slots.astype(np.int32), values, *steady


def as_column(values: np.ndarray, type: Type) -> Vec:
    if type == DOUBLE:
        return Vec(type, values / 100.0)
    if type == STRING:
        text = np.char.add("customer#", np.char.zfill((values + 2**40).astype(str), 14))
        return Vec(type, pa.array(text.tolist(), pa.string()))
    if type.wide:
        return Vec(type, np.stack([values * 1_000_003, values >> 63], axis=1))
    return Vec(type, values.astype(type.dtype))


def measure(
    calls: Sequence[AggregateTerm], type: Type, groups: int, rows: int, kind: str, clock: Callable[[], float]
) -> tuple[float, float]:
    """Nanoseconds per change of update, and per changed group of both reads around it."""
    load_slot, load_value, slot, value, weight = history(groups, rows, kind)
    state = Accumulators(calls, [type])
    ids = np.stack([np.arange(groups), np.arange(groups)], axis=1).astype(np.uint64)
    state.update(load_slot, ids[load_slot], np.ones(len(load_slot), np.int8), [as_column(load_value, type)])
    column, group_ids = as_column(value, type), ids[slot]
    spent = reading = 0.0
    read = 0
    for start in range(0, len(slot), BATCH):
        stop = start + BATCH
        part = [column.slice(start, stop)]
        touched = np.unique(slot[start:stop])
        begin = clock()
        state.read(touched)
        middle = clock()
        state.update(slot[start:stop], group_ids[start:stop], weight[start:stop], part)
        end = clock()
        state.read(touched)
        reading += middle - begin + clock() - end
        spent += end - middle
        read += len(touched)
    return spent / len(slot) * 1e9, reading / read * 1e9


def main(repetitions: int) -> None:
    warm()
    shapes = [(100_000, 10), (1000, 1000), (1, 500_000)]
    kinds = ["friendly", "random", "delmin", "delmax", "fifo", "lifo", "few"]
    decimals = decimal(30, 2)
    cases: list[tuple[str, Sequence[AggregateTerm], Type, list[str]]] = [
        ("count(*)", [COUNT], DOUBLE, ["random"]),
        ("sum(double)", [AggregateTerm("sum", 0, DOUBLE)], DOUBLE, ["random"]),
        ("sum(bigint)", [AggregateTerm("sum", 0, BIGINT)], BIGINT, ["random"]),
        ("sum(decimal(30))", [AggregateTerm("sum", 0, decimal(38, 2))], decimals, ["random"]),
        ("avg(double)", [AggregateTerm("avg", 0, DOUBLE)], DOUBLE, ["random"]),
        ("min(bigint)", [AggregateTerm("min", 0, BIGINT)], BIGINT, kinds),
        ("min(string)", [AggregateTerm("min", 0, STRING)], STRING, kinds),
        ("min(decimal(30))", [AggregateTerm("min", 0, decimals)], decimals, ["random", "delmin"]),
        ("count(distinct bigint)", [AggregateTerm("count", 0, BIGINT, distinct=True)], BIGINT, ["random", "few"]),
        ("sum(distinct bigint)", [AggregateTerm("sum", 0, BIGINT, distinct=True)], BIGINT, ["random", "few"]),
        ("q3", Q3, DOUBLE, kinds),
    ]
    for name, calls, type, wanted in cases:
        for groups, rows in shapes:
            cells = []
            for kind in wanted:
                runs = [measure(calls, type, groups, rows, kind, time.thread_time) for _ in range(repetitions)]
                update, read = (statistics.median(r[i] for r in runs) for i in (0, 1))
                cells.append(f"{kind} {update:.0f} (read {read:.0f})")
            print(f"{name:24s}{groups:>7} x {rows:<7}", "  ".join(cells), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
