"""Views over a real HBase: an application that puts rows, a pool of real processes, everything on this machine.

PYTHONPATH=viewserver:. python -m bench.hbase_views [--rows N] [--states hbase,served]

For each place of the state, in one HBase: the load of rows that were there, beside a plain scan of the table with the
same client; q3 (an aggregate with `--groups` groups) under all that the writer puts, until the view has it; how long a
put takes to be visible under a light load. CPU seconds are of every process: view servers, the rest of the pool, HBase
(master, region servers, ZooKeeper) and the writer. Plain puts of the same rows, before the pool is there, are the
ceiling of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import belvedere
from belvedere.backend.hbase.admin import Admin
from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.keyvalues import PUT, cells_of
from belvedere.backend.hbase.layout import fixed_binary
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.engine.warm import compile_kernels
from bench.cluster_run import cpu_seconds
from bench.harness import machine, percentile

MANIFEST = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: events}}
spec:
  hbase: {{table: "{table}", setReplicationScope: true}}
  columns:
    - {{name: id, type: bigint, encoding: long}}
    - {{name: v, type: bigint, cell: "d:v", encoding: long}}
  key: [id]
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {{name: q3}}
spec:
  query: SELECT v % {groups} AS g, count(*) AS n, sum(v) AS total FROM events GROUP BY v % {groups}
"""
BATCH = 5000
LIGHT_PUTS = 60


class Table:
    """Rows of one bigint, written in batches by HBase's RPC."""

    def __init__(self, hbase: LocalHBase, name: str, groups: int) -> None:
        import happybase

        self.name, self._groups = name, groups
        self.client = connect_hbase(hbase.zookeeper)
        self.cells = RpcCells(self.client.regions, self.client.pool)
        connection = happybase.Connection(*hbase.thrift, timeout=60_000)
        connection.create_table(name, {"d": {"max_versions": 1}})
        connection.close()
        self._rng = random.Random(1)

    def put(self, ids: np.ndarray) -> None:
        for at in range(0, len(ids), BATCH):
            part = ids[at : at + BATCH]
            numbers = np.array([self._rng.randrange(self._groups) for _ in part], np.int64)
            self.cells.put(self.name, cells_of(_words(part), b"d", b"v", 2**63 - 1, PUT, _words(numbers)))

    def count(self) -> int:
        return sum(len(piece) for piece in self.cells.scan(self.name, b"", None, Columns("d")))

    def close(self) -> None:
        self.cells.close()
        self.client.close()


def _words(numbers: np.ndarray) -> pa.BinaryArray:
    return fixed_binary(numbers.astype(">i8").view(np.uint8).reshape(-1, 8))


class Meter:
    """CPU seconds by kind of process, from one moment to another."""

    def __init__(self, hbase: LocalHBase, cluster: LocalCluster | None) -> None:
        self._pids: dict[str, list[int]] = {"hbase": list(hbase.pids().values()), "writer": [os.getpid()]}
        for child in cluster.children.values() if cluster is not None else ():
            if child.pid is not None:
                self._pids.setdefault(child.role.value, []).append(child.pid)
        self._begun = self._read()

    def _read(self) -> dict[str, float]:
        return {kind: sum(map(cpu_seconds, pids)) for kind, pids in self._pids.items()}

    def spent(self) -> dict[str, float]:
        return {kind: round(now - self._begun[kind], 2) for kind, now in self._read().items()}


@contextmanager
def timed(found: dict[str, Any], what: str, meter: Meter, rows: int) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds = time.perf_counter() - begun
    found[what] = {
        "rows": rows,
        "seconds": round(seconds, 2),
        "rows_per_s": round(rows / seconds),
        "cpu": meter.spent(),
    }
    print(what, json.dumps(found[what]), flush=True)


def visible(db: Any, table: Table, id: int) -> None:
    """The table has one region, whose order is kept: what came before the row is in the view as well."""
    found = table.cells.get(table.name, _words(np.array([id])), Columns("d"))
    db.wait_for("events", id, int(found.timestamp[0]), timeout=600.0)


def one_state(hbase: LocalHBase, made: Path, state: str, rows: int, groups: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    table = Table(hbase, f"events_{state}", groups)
    first, more = np.arange(rows), np.arange(rows, 2 * rows)
    with timed(found, "plain puts", Meter(hbase, None), rows):
        table.put(first)
    with timed(found, "plain scan", Meter(hbase, None), rows):
        table.count()
    url = f"hbase://{hbase.zookeeper}/bench_{state}?state={state}"
    shape = ClusterShape(viewservers=1, distributors=1, store=url, sync=False)
    with LocalCluster(made / state, shape) as cluster, belvedere.connect(cluster.url, timeout=300.0) as db:
        db.status()
        with timed(found, "load and build", Meter(hbase, cluster), rows):
            db.apply_manifest(MANIFEST.format(table=table.name, groups=groups))
        with timed(found, "puts under the view", Meter(hbase, cluster), rows):
            table.put(more)
            visible(db, table, 2 * rows - 1)
        found["visible_ms"] = latencies(db, table)
        print("visible_ms", found["visible_ms"], flush=True)
        found["version"] = Admin(table.client.master).version()
    table.close()
    return found


def latencies(db: Any, table: Table) -> dict[str, float]:
    """From before a put to when a read of its group has it, in milliseconds."""
    taken = []
    for number in range(LIGHT_PUTS):
        before = db.get("q3", 7)
        count = 0 if before is None else before["n"]
        begun = time.perf_counter()
        table.cells.put(
            table.name,
            cells_of(_words(np.array([10**9 + number])), b"d", b"v", 2**63 - 1, PUT, _words(np.array([7]))),
        )
        while (db.get("q3", 7) or {"n": 0})["n"] == count:
            time.sleep(0.002)
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(0.05)
    return {"p50": round(percentile(taken, 0.5), 1), "p99": round(percentile(taken, 0.99), 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--states", default="hbase,served")
    given = parser.parse_args()
    compile_kernels()
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-", ignore_cleanup_errors=True) as made:
        hbase = LocalHBase(Path(made) / "hbase")
        hbase.start()
        try:
            results = {s: one_state(hbase, Path(made), s, given.rows, given.groups) for s in given.states.split(",")}
        finally:
            hbase.stop()
    print(json.dumps({"machine": machine(), "groups": given.groups, "states": results}, indent=1))


if __name__ == "__main__":
    main()
