"""The engine to beat: one Python loop over decoded tuples, state in dicts, in memory, nothing durable.

It is what a good programmer writes in an afternoon for exactly these queries: no SQL, no types, no NULLs, inexact float
sums, minimum and maximum by a scan of the group when the extreme goes.
"""

from __future__ import annotations

from typing import Any

from bench.workload import DELETE

Rows = list[tuple[Any, ...]]


def project(ops: Rows, view: dict[int, float]) -> None:
    """q1: SELECT k, f FROM r."""
    for op, k, f in ops:
        if op == DELETE:
            view.pop(k, None)
        else:
            view[k] = f


def select(ops: Rows, view: dict[int, float], bound: float) -> None:
    """q2: SELECT k, f FROM r WHERE f < bound."""
    for op, k, f in ops:
        if op != DELETE and f < bound:
            view[k] = f
        else:
            view.pop(k, None)


def aggregate(ops: Rows, rows: dict[int, tuple[int, float]], groups: dict[int, list[Any]]) -> None:
    """q3: SELECT x, count(*), sum(f), min(f), max(f), avg(f) FROM r GROUP BY x; a group is [count, sum, min, max,
    rows]."""
    for op, k, x, f in ops:
        old = rows.get(k)
        if old is not None:
            old_x, old_f = old
            group = groups[old_x]
            members = group[4]
            del members[k]
            if not members:
                del groups[old_x]
            else:
                group[0] -= 1
                group[1] -= old_f
                if old_f == group[2]:
                    group[2] = min(members.values())
                if old_f == group[3]:
                    group[3] = max(members.values())
        if op == DELETE:
            rows.pop(k, None)
            continue
        rows[k] = (x, f)
        known = groups.get(x)
        if known is None:
            groups[x] = [1, f, f, f, {k: f}]
            continue
        known[0] += 1
        known[1] += f
        if f < known[2]:
            known[2] = f
        if f > known[3]:
            known[3] = f
        known[4][k] = f


class JoinState:
    """q4: SELECT r.k, r.x, r.f, s.v FROM r JOIN s ON r.x = s.k."""

    def __init__(self) -> None:
        self.r: dict[int, tuple[int, float]] = {}
        self.s: dict[int, float] = {}
        self.by_x: dict[int, set[int]] = {}
        self.view: dict[int, tuple[int, float, float]] = {}

    def apply_r(self, ops: Rows) -> None:
        r, s, by_x, view = self.r, self.s, self.by_x, self.view
        for op, k, x, f in ops:
            old = r.get(k)
            if old is not None:
                by_x[old[0]].discard(k)
            if op == DELETE:
                r.pop(k, None)
                view.pop(k, None)
                continue
            r[k] = (x, f)
            members = by_x.get(x)
            if members is None:
                by_x[x] = {k}
            else:
                members.add(k)
            v = s.get(x)
            if v is None:
                view.pop(k, None)
            else:
                view[k] = (x, f, v)

    def apply_s(self, ops: Rows) -> None:
        r, s, by_x, view = self.r, self.s, self.by_x, self.view
        for op, j, v in ops:
            if op == DELETE:
                s.pop(j, None)
                for k in by_x.get(j, ()):
                    del view[k]
                continue
            s[j] = v
            for k in by_x.get(j, ()):
                view[k] = (j, r[k][1], v)
