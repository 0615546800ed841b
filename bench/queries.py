"""The paper's four queries through `belvedere.open` with durability on, against the naive engine, in one run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import belvedere
from bench import naive
from bench.harness import alternate, scratch
from bench.workload import Stream, stream_r, stream_s

CREATE_R = "CREATE TABLE r (k BIGINT PRIMARY KEY, a BIGINT, x BIGINT, f DOUBLE, s STRING)"
CREATE_S = "CREATE TABLE s (k BIGINT PRIMARY KEY, v DOUBLE)"
VIEWS = {
    "q1": "SELECT k, f FROM r",
    "q2_10": "SELECT k, f FROM r WHERE f < 102.4",
    "q2_50": "SELECT k, f FROM r WHERE f < 512.0",
    "q3": "SELECT x, count(*) AS n, sum(f) AS total, min(f) AS low, max(f) AS high, avg(f) AS mean FROM r GROUP BY x",
    "q4": "SELECT r.k AS k, r.x AS x, r.f AS f, s.v AS v FROM r JOIN s ON r.x = s.k",
}
BATCH = 50_000
"""Rows per atomic, durable write."""


def create(path: Path, queries: list[str]) -> Any:
    """A database with R, S and these views."""
    db = belvedere.open(path)
    db.execute(CREATE_R)
    db.execute(CREATE_S)
    for query in queries:
        db.execute(f"CREATE MATERIALIZED VIEW {query} AS {VIEWS[query]}")
    return db


def feed(db: Any, r: Stream, s: tuple[Stream, Stream] | None = None, batch: int = BATCH) -> Any:
    """Write the streams in batches, S's operations spread over R's; returns when every view has them."""
    token = None
    pieces = max(1, -(-len(r) // batch))
    if s is not None:
        for rows, deletes in s[0].batches(batch):
            token = db.write("s", rows, deletes=deletes)
        steps = np.linspace(0, len(s[1]), pieces + 1).astype(int)
    for i, (rows, deletes) in enumerate(r.batches(batch)):
        token = db.write("r", rows, deletes=deletes)
        if s is not None and steps[i] < steps[i + 1]:
            part = slice(steps[i], steps[i + 1])
            token = db.write("s", s[1].rows.slice(part.start, part.stop - part.start), deletes=s[1].op[part] == 2)
    if token is not None:
        db.wait(token)
    return token


def run_naive(query: str, r: Stream, s: tuple[Stream, Stream]) -> Callable[[], dict[Any, Any]]:
    """The naive engine over decoded tuples (decoding is not counted against it)."""
    if query in ("q1", "q2_10", "q2_50"):
        ops = r.tuples("k", "f")
        bound = {"q1": None, "q2_10": 102.4, "q2_50": 512.0}[query]

        def simple() -> dict[Any, Any]:
            view: dict[int, float] = {}
            naive.project(ops, view) if bound is None else naive.select(ops, view, bound)
            return view

        return simple
    ops = r.tuples("k", "x", "f")
    if query == "q3":

        def aggregate() -> dict[Any, Any]:
            groups: dict[int, list[Any]] = {}
            naive.aggregate(ops, {}, groups)
            return groups

        return aggregate
    first, rest = s[0].tuples("k", "v"), s[1].tuples("k", "v")
    pieces = max(1, -(-len(ops) // BATCH))
    steps = np.linspace(0, len(rest), pieces + 1).astype(int)

    def join() -> dict[Any, Any]:
        state = naive.JoinState()
        state.apply_s(first)
        for i in range(pieces):
            state.apply_r(ops[i * BATCH : (i + 1) * BATCH])
            state.apply_s(rest[steps[i] : steps[i + 1]])
        return state.view

    return join


def same(query: str, got: pa.Table, want: dict[Any, Any]) -> bool:
    """Whether the view equals what the naive engine holds, row by row."""
    columns = [got[name].to_pylist() for name in got.column_names]
    rows = {row[0]: row[1:] for row in zip(*columns, strict=True)}
    if query == "q3":
        expected = {x: (g[0], g[1], g[2], g[3], g[1] / g[0]) for x, g in want.items()}
    elif query == "q4":
        expected = dict(want)
    else:
        expected = {k: (f,) for k, f in want.items()}
    return rows == expected


def compare(query: str, operations: int, groups: int, zipf: bool, repeats: int = 3) -> dict[str, Any]:
    """One query, Belvedere and naive in turn."""
    r, s = stream_r(operations, groups, zipf=zipf), stream_s()
    total = len(r) + (len(s[0]) + len(s[1]) if query == "q4" else 0)
    plain = run_naive(query, r, s)
    runs = itertools.count()
    state: dict[str, Any] = {}
    with scratch() as directory:

        def make() -> None:
            state["db"] = create(directory / f"run-{next(runs)}", [query])

        def ours() -> None:
            feed(state["db"], r, s if query == "q4" else None)

        def theirs() -> None:
            state["view"] = plain()

        def compare_once() -> None:
            db, view = state.pop("db"), state.pop("view")
            if "equal" not in state:
                state["equal"] = same(query, db.scan(query), view)
            db.close()

        costs = alternate({"belvedere": ours, "naive": theirs}, repeats, make, compare_once)
    result = {
        "query": query,
        "operations": total,
        "groups": groups,
        "distribution": "zipf" if zipf else "uniform",
        "belvedere_per_cpu_s": costs["belvedere"].rate(total),
        "naive_per_cpu_s": costs["naive"].rate(total),
        "belvedere_per_s": total / costs["belvedere"].wall,
        "equal": state["equal"],
    }
    result["ratio"] = result["belvedere_per_cpu_s"] / result["naive_per_cpu_s"]
    return result
