"""Views over a real HBase: an application that puts rows, a pool of real processes, everything on this machine.

    python -m bench.hbase_views [--rows N] [--states hbase,served] [--parts load,q3,…] [--out FILE]

For each place of the state, in one HBase, with the CPU seconds of every process:

    plain    puts of rows before anything follows the table, by HBase's RPC and by happybase: the ceiling of the machine
    load     rows that were there become base rows, beside a plain scan of the table with the same client
    queries  q1 and q2: the view server's CPU per row, beside that of a client which does plain batched puts of them
    q3       q3 with 100,000 groups, under all that the writer puts, until the view has it
    light    how long a put takes to be visible, when little else happens
    half     puts at half of the highest rate with q3: their latency, into the followed table and into another one in
             turns, and when nothing follows anything
    trickle  how long a put takes to be visible in a table of 100 regions, into all of which rows trickle
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.admin import Admin
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.engine.warm import compile_kernels
from belvedere.local.child import Leash
from bench.harness import machine
from bench.hbase_run import (
    KEYS,
    Paced,
    TableR,
    base_manifest,
    cells_of_r,
    load_table,
    measured,
    pool_over,
    summary,
    until,
)
from bench.queries import VIEWS
from bench.workload import Stream, stream_r

PARTS = ("load", "queries", "q3", "light", "half", "trickle")
GROUPS = 100_000
REGIONS = 100
TRICKLE_ROWS = 10
TRICKLE_S = 0.1
"""So each of 100 regions gets a row per second."""
PUT_ROWS = 100
"""Rows of one put at half load."""
WINDOW_S = 6.0
LOADED = 5
"""So many times as many rows are there before the table is followed: making the peer takes seconds by itself."""
ROUNDS = 3


class Bench:
    def __init__(
        self, hbase: LocalHBase, made: Path, state: str, rows: int, parts: Sequence[str], name: str = ""
    ) -> None:
        """`name`: of its tables; that of the state, if there is no other with it."""
        self.hbase, self.made, self.state, self.rows, self.parts = hbase, made, state, rows, parts
        self.name = name or state
        self.found: dict[str, Any] = {}
        self._seeds = iter(range(100, 1000))

    def stream(self, rows: int, inserts: float = 0.8) -> Stream:
        """Of rows whose keys nobody has: each stream begins with the same keys, so they are shifted."""
        seed = next(self._seeds)
        made = stream_r(rows, GROUPS, seed=seed, inserts=inserts)
        keys = (made.rows["k"].to_numpy().astype(np.uint64) + np.uint64(seed * 0x1234567812345 % KEYS)) % np.uint64(
            KEYS
        )
        return Stream(made.op, made.rows.set_column(0, "k", pa.array(keys.astype(np.int64))))

    def run(self) -> dict[str, Any]:
        table, other = (TableR(self.hbase, f"{name}_{self.name}") for name in ("r", "other"))
        self._plain(other, table)
        with pool_over(self.hbase, self.made, self.state) as (cluster, db):
            self._load(cluster, db, table)
            if "queries" in self.parts:
                for query in ("q1", "q2_10", "q2_50"):
                    self._query(cluster, db, table, query)
            if {"q3", "light", "half"} & set(self.parts):
                self._query(cluster, db, table, "q3", keep=True)
            if "light" in self.parts:
                self._light(db, table)
            if "half" in self.parts:
                self._half(table, other)
            if "trickle" in self.parts:
                self._trickle(db)
        if "half" in self.parts:
            rate = self.found["half"]["rows_per_s"]
            self.found["half"]["without"] = summary(self._puts(other, rate))
            print("half", json.dumps(self.found["half"]), flush=True)
        for one in (table, other):
            one.close()
        return self.found

    def _plain(self, warm: TableR, table: TableR) -> None:
        """Before anything follows the table; the first rows warm the servers up."""
        warm.write(self.stream(self.rows, 1.0))
        stream, few = self.stream(LOADED * self.rows), self.stream(min(self.rows, 20_000), 1.0)
        self.found["plain puts"] = measured("plain puts", lambda: table.write(stream), self.hbase)
        self.found["puts by happybase"] = measured("puts by happybase", lambda: table.put_by_gateway(few), self.hbase)

    def _load(self, cluster: Any, db: Any, table: TableR) -> None:
        table.scan()
        self.found["plain scan"] = measured("plain scan", table.scan, self.hbase)
        rows = self.found["plain scan"]["rows"]

        def load() -> int:
            load_table(db, table)
            return int(rows)

        self.found["load"] = measured("load", load, self.hbase, cluster)
        self.found["plain scan again"] = measured("plain scan again", table.scan, self.hbase)

    def _query(self, cluster: Any, db: Any, table: TableR, query: str, keep: bool = False) -> None:
        db.execute(f"CREATE MATERIALIZED VIEW {query} AS {VIEWS[query]}")

        def write(stream: Stream) -> int:
            written = table.write(stream)
            table.wait_for(db)
            return written

        write(self.stream(self.rows))  # the servers compile what they do often
        stream = self.stream(self.rows)
        self.found[query] = measured(query, lambda: write(stream), self.hbase, cluster)
        again = self.stream(self.rows)
        ceiling = TableR(self.hbase, f"ceiling_{self.name}_{query}")
        self.found[f"plain beside {query}"] = measured(
            f"plain beside {query}", lambda: ceiling.write(again), self.hbase, cluster
        )
        ceiling.close()
        if keep:
            counted = sum(db.scan(query)["n"].to_pylist())
            assert counted == table.scan(), "the view does not have all rows"
        else:
            db.execute(f"DROP MATERIALIZED VIEW {query}")

    def _light(self, db: Any, table: TableR, view: str = "q3", count: int = 130, name: str = "light") -> None:
        """From before a put to when a read of its group has it, by a group that nothing else writes to."""
        random_keys, taken = random.Random(5), []
        for number in range(count):
            before = (db.get(view, -7) or {"n": 0})["n"]
            begun = time.perf_counter()
            table.put_one(random_keys.randrange(KEYS), -7)
            until(lambda before=before: (db.get(view, -7) or {"n": 0})["n"] > before, "a put is visible", 0.002)  # type: ignore[misc]
            taken.append((time.perf_counter() - begun) * 1000)
            if number >= 10:
                time.sleep(0.05)
        self.found[name] = summary(taken[10:])
        print(name, json.dumps(self.found[name]), flush=True)

    def _puts(self, table: TableR, rate: float, seconds: float = WINDOW_S) -> list[float]:
        every = PUT_ROWS / rate
        stream = self.stream(int(seconds / every + 10) * PUT_ROWS, 1.0)
        parts = [cells_of_r(rows) for rows, _ in stream.batches(PUT_ROWS)]
        with Paced(lambda number: table.cells.put(table.name, parts[number]), every) as paced:
            time.sleep(seconds)
        return paced.taken[5:]

    def _half(self, table: TableR, other: TableR) -> None:
        rate = self.found["q3"]["rows_per_s"] / 2
        with_view, beside = [], []
        for _ in range(ROUNDS):
            with_view += self._puts(table, rate)
            beside += self._puts(other, rate)
        self.found["half"] = {"rows_per_s": round(rate), "followed": summary(with_view), "beside": summary(beside)}

    def _trickle(self, db: Any) -> None:
        many = TableR(self.hbase, f"many_{self.name}", REGIONS)
        db.apply_manifest(base_manifest(many.name, "many"))
        db.execute("CREATE MATERIALIZED VIEW of_many AS SELECT x, count(*) AS n FROM many GROUP BY x")
        step, parts = KEYS // REGIONS, []
        for number in range(10):
            keys = [step * (region * 10 + number) + 1 for region in range(TRICKLE_ROWS)]
            rows = pa.table({"k": keys, "a": [1] * 10, "x": keys, "f": [1.0] * 10, "s": ["trickle"] * 10})
            parts.append(cells_of_r(rows))
        with Paced(lambda number: many.cells.put(many.name, parts[number % 10]), TRICKLE_S) as paced:
            time.sleep(5.0)
            self._light(db, many, "of_many", name="trickle")
        self.found["trickle"]["rows_per_s"] = len(parts) and TRICKLE_ROWS / TRICKLE_S
        self.found["trickle"]["puts"] = len(paced.taken)
        many.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--states", default="hbase,served")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path("bench/results/hbase.json"))
    given = parser.parse_args()
    compile_kernels()
    results: dict[str, Any] = {"machine": machine(), "groups": GROUPS, "states": {}}
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-", ignore_cleanup_errors=True) as made:
        hbase = LocalHBase(Path(made) / "hbase", jvm=(), leash=Leash.OURS)
        hbase.start()
        try:
            print("--- a round that does not count, in which the servers compile", flush=True)
            Bench(hbase, Path(made), "hbase", given.rows // 2, ("load", "q3"), "warm").run()
            for state in given.states.split(","):
                print(f"--- state: {state}", flush=True)
                bench = Bench(hbase, Path(made), state, given.rows, given.parts.split(","))
                results["states"][state] = bench.found
                bench.run()
                given.out.write_text(json.dumps(results, indent=1) + "\n")
            probe = TableR(hbase, "version")
            results["hbase"] = Admin(probe.client.master).version()
            probe.close()
        finally:
            hbase.stop()
    given.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
