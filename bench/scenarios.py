"""Everything beyond the four queries: growth, skew, worst cases, recovery, latency, memory. Each returns plain
numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import belvedere
from bench.harness import measure, percentile, resident_bytes, scratch
from bench.queries import CREATE_R, VIEWS, create, feed
from bench.workload import Stream, stream_r, stream_s


def growth(small: int = 1_000_000, large: int = 10_000_000, operations: int = 500_000) -> dict[str, Any]:
    """Operations per CPU second on 10 times the state: the cost of an epoch must not grow with the state."""
    rates = {}
    for rows in (small, large):
        with scratch() as directory:
            db = create(directory / "db", ["q3"])
            base = stream_r(rows, 100_000, seed=3, inserts=1.0)
            feed(db, base, batch=100_000)
            tail = _mixed_over(base, operations)
            del base
            cost = measure(lambda db=db, tail=tail: feed(db, tail))
            rates[rows] = cost.rate(operations)
            db.close()
    return {
        "small_rows": small,
        "large_rows": large,
        **{f"per_cpu_s_{n}": r for n, r in rates.items()},
        "ratio": rates[large] / rates[small],
    }


def _mixed_over(base: Stream, operations: int, seed: int = 5) -> Stream:
    """80/15/5 operations over rows that exist already: updates and deletes pick among all of them."""
    rng = np.random.default_rng(seed)
    known = base.rows["k"].to_numpy()
    choice = rng.random(operations)
    op = np.where(choice < 0.8, 0, np.where(choice < 0.95, 1, 2)).astype(np.int8)
    keys = known[rng.integers(0, len(known), operations)]
    fresh = op == 0
    keys[fresh] = -1 - np.arange(int(fresh.sum()))
    rows = pa.table(
        {
            "k": keys,
            "a": rng.integers(0, 1_000_000, operations),
            "x": rng.integers(0, 100_000, operations),
            "f": rng.integers(0, 1 << 20, operations) / 1024.0,
            "s": pa.array(["abcdefghijklmnopqrstuvwxyz0123"] * operations),
        }
    )
    return Stream(op, rows)


def hot_key(operations: int = 500_000) -> dict[str, Any]:
    """Every operation updates one of ten rows, against uniform updates: coalescing makes the hot key cheap."""
    rates = {}
    rng = np.random.default_rng(1)
    for name, keys in (("hot", 10), ("uniform", 100_000)):
        with scratch() as directory:
            db = create(directory / "db", ["q1", "q3"])
            feed(db, stream_r(100_000, 1000, seed=3, inserts=1.0))
            rows = stream_r(operations, 1000, seed=4, inserts=1.0).rows
            rows = rows.set_column(0, "k", pa.array(rng.integers(1, keys + 1, operations)))
            stream = Stream(np.ones(operations, np.int8), rows)
            rates[name] = measure(lambda db=db, stream=stream: feed(db, stream)).rate(operations)
            db.close()
    return {**{f"per_cpu_s_{n}": r for n, r in rates.items()}, "ratio": rates["hot"] / rates["uniform"]}


def adversarial(rows: int = 500_000, groups: int = 1000) -> dict[str, Any]:
    """Every delete removes its group's minimum (descending inserts, then deletes from the smallest), against q3."""
    rates = {}
    rng = np.random.default_rng(2)
    f = np.sort(rng.random(rows) * 1e6)
    table = pa.table(
        {
            "k": np.arange(rows, dtype=np.int64),
            "a": np.zeros(rows, np.int64),
            "x": np.arange(rows) % groups,
            "f": f,
            "s": pa.array(["abcdefghijklmnopqrstuvwxyz0123"] * rows),
        }
    )
    inserts = Stream(np.zeros(rows, np.int8), table)
    deletes = Stream(np.full(rows, 2, np.int8), table)
    shuffled = Stream(deletes.op, table.take(pa.array(rng.permutation(rows))))
    for name, stream in (("minimum", deletes), ("random", shuffled)):
        with scratch() as directory:
            db = create(directory / "db", ["q3"])
            feed(db, inserts)
            rates[name] = measure(lambda db=db, stream=stream: feed(db, stream, batch=10_000)).rate(rows)
            db.close()
    with scratch() as directory:
        db = create(directory / "db", ["q3"])
        mixed = stream_r(rows, groups)
        rates["q3"] = measure(lambda: feed(db, mixed, batch=10_000)).rate(rows)
        db.close()
    return {
        **{f"per_cpu_s_{n}": r for n, r in rates.items()},
        "ratio": rates["minimum"] / rates["q3"],
        "ratio_to_random_deletes": rates["minimum"] / rates["random"],
    }


def all_views(operations: int = 2_000_000) -> dict[str, Any]:
    """All four queries (q2 twice) at once, both cores: durable view updates per second of wall time."""
    r, s = stream_r(operations, 100_000), stream_s()
    with scratch() as directory:
        db = create(directory / "db", list(VIEWS))
        cost = measure(lambda: feed(db, r, s))
        db.close()
    return {
        "operations": operations,
        "view_updates": _affected(r, s),
        "per_s": _affected(r, s) / cost.wall,
        "per_cpu_s": _affected(r, s) / cost.cpu,
        "base_operations_per_s": operations / cost.wall,
        "cores_busy": cost.cpu / cost.wall,
    }


def _affected(r: Stream, s: tuple[Stream, Stream]) -> int:
    """Sum over views of the base changes that affect each, before coalescing: a change affects a view if its old or its
    new image is in it. S's changes are counted once each for q4, whatever they fan out to."""
    f, keys = r.rows["f"].to_numpy(), r.rows["k"].to_numpy()
    order = np.argsort(keys, kind="stable")
    previous = np.full(len(keys), -1)
    same = keys[order][1:] == keys[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    live_before = (previous >= 0) & (r.op[previous] != 2)
    total = 2 * int(((r.op != 2) | live_before).sum())  # q1 and q3 see every change
    for bound in (102.4, 512.0):
        new = (r.op != 2) & (f < bound)
        old = live_before & (f[previous] < bound)
        total += int((new | old).sum())
    return total + int(((r.op != 2) | live_before).sum()) + len(s[0]) + len(s[1])


def reads(operations: int = 1_000_000, seconds: float = 10.0) -> dict[str, Any]:
    """Point gets in process while a writer thread keeps writing."""
    r = stream_r(operations, 100_000)
    keys = r.rows["k"].to_pylist()
    latencies: list[float] = []
    with scratch() as directory:
        db = create(directory / "db", ["q1", "q3"])
        feed(db, Stream(r.op[: operations // 2], r.rows.slice(0, operations // 2)))
        stop = threading.Event()
        written = [0]

        def write() -> None:
            while not stop.is_set():
                for rows, deletes in Stream(r.op[operations // 2 :], r.rows.slice(operations // 2)).batches(10_000):
                    if stop.is_set():
                        return
                    db.write("r", rows, deletes=deletes)
                    written[0] += len(rows)

        writer = threading.Thread(target=write)
        writer.start()
        rng = np.random.default_rng(0)
        deadline = time.perf_counter() + seconds
        started = time.perf_counter()
        while time.perf_counter() < deadline:
            for i in rng.integers(0, operations // 2, 1000).tolist():
                begin = time.perf_counter()
                db.get("q1", keys[i])
                latencies.append(time.perf_counter() - begin)
                if len(latencies) % 10 == 0:
                    time.sleep(0.0005)  # a reader that thinks between reads, not a spinning one
        elapsed = time.perf_counter() - started
        stop.set()
        writer.join()
        db.close()
    return {
        "gets": len(latencies),
        "writes_per_s": written[0] / elapsed,
        "median_us": percentile(latencies, 0.5) * 1e6,
        "p99_us": percentile(latencies, 0.99) * 1e6,
    }


def freshness(rounds: int = 1000) -> dict[str, Any]:
    """put of one row, then get(after=token): write to visible; the fsync alone beside it."""
    times: list[float] = []
    syncs: list[float] = []
    with scratch() as directory:
        db = create(directory / "db", ["q1", "q3"])
        feed(db, stream_r(100_000, 1000))
        handle = os.open(directory / "probe", os.O_CREAT | os.O_WRONLY)
        for i in range(rounds):
            begin = time.perf_counter()
            token = db.put("r", {"k": -1 - i, "a": i, "x": i % 10, "f": 1.0, "s": "one row"})
            row = db.get("q1", -1 - i, after=token, timeout=10)
            times.append(time.perf_counter() - begin)
            assert row is not None
            os.write(handle, b"x" * 512)
            begin = time.perf_counter()
            os.fdatasync(handle)
            syncs.append(time.perf_counter() - begin)
        os.close(handle)
        db.close()
    return {
        "p50_ms": percentile(times, 0.5) * 1e3,
        "p99_ms": percentile(times, 0.99) * 1e3,
        "fsync_p50_ms": percentile(syncs, 0.5) * 1e3,
        "fsync_p99_ms": percentile(syncs, 0.99) * 1e3,
    }


def memory(rows: int = 1_000_000) -> dict[str, Any]:
    """Bytes of all state and views against the plain bytes of the columns that the plans need of them: once for the
    four queries (which leave two of R's columns unused, though DELTA keeps them), once with a view of every column."""
    out: dict[str, Any] = {}
    r, s = stream_r(rows, 100_000), stream_s()
    for name, extra in (("queries", ()), ("every_column", ("CREATE MATERIALIZED VIEW whole AS SELECT * FROM r",))):
        with scratch() as directory:
            before = resident_bytes()
            db = create(directory / "db", list(VIEWS))
            for statement in extra:
                db.execute(statement)
            feed(db, r, s)
            status = db.status()
            sizes, live = status["memory"], status["tables"]["r"]["rows"]
            after = resident_bytes()
            db.close()
        out[name] = {
            "state_bytes": sizes["bytes"],
            "plain_bytes": sizes["plain_bytes"],
            "ratio": sizes["bytes"] / sizes["plain_bytes"],
            "bytes_per_base_row": sizes["bytes"] / live,
            "resident_growth_bytes": after - before,
            "by_table": sizes["tables"],
        }
    return out


def recovery(rows: int = 1_000_000) -> dict[str, Any]:
    """Snapshot and reopen: a fresh process with warm caches to its first answer; and a replay of the whole log."""
    r = stream_r(rows, 100_000, inserts=1.0)
    key = r.rows["k"][0].as_py()
    script = (
        "import sys,time; t=time.perf_counter(); import belvedere; db=belvedere.open(sys.argv[1]); "
        "row=db.get('q1', int(sys.argv[2])); print(time.perf_counter()-t); assert row is not None; db.close()"
    )

    def first_answer(path: str) -> float:
        out = subprocess.run([sys.executable, "-c", script, path, str(key)], capture_output=True, text=True, check=True)
        return float(out.stdout)

    with scratch() as directory:
        db = create(directory / "db", ["q1", "q3"])
        feed(db, r)
        closing = measure(db.close)
        times = sorted(first_answer(str(directory / "db")) for _ in range(3))
        db = belvedere.open(directory / "log-only", snapshot=False)
        db.execute(CREATE_R)
        for query in ("q1", "q3"):
            db.execute(f"CREATE MATERIALIZED VIEW {query} AS {VIEWS[query]}")
        feed(db, r)
        db.close()
        replay = measure(lambda: belvedere.open(directory / "log-only").close())
    return {
        "rows": rows,
        "snapshot_and_close_s": closing.wall,
        "first_answer_s": times[1],
        "replay_of_the_log_s": replay.wall,
    }


def cold_start() -> dict[str, Any]:
    """An empty kernel cache: everything compiles once."""
    with scratch() as directory:
        script = "import belvedere.engine.warm as w; w.warm()"
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(directory / "kernels")}

        def run() -> None:
            subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True)

        cold, warm = measure(run), measure(run)
    return {"cold_s": cold.wall, "warm_s": warm.wall}


ALL: dict[str, Callable[[], dict[str, Any]]] = {
    "growth": growth,
    "hot_key": hot_key,
    "adversarial": adversarial,
    "all_views": all_views,
    "reads": reads,
    "freshness": freshness,
    "memory": memory,
    "recovery": recovery,
    "cold_start": cold_start,
}
