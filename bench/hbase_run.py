"""What the benchmarks over a real HBase share: R of the paper as a table of HBase, a pool, and a meter of CPU seconds.

R has four cells per row (a, x, f, s) in one family, and a BIGINT key, as `Bytes` writes them. Rows come from the stream
of `bench.workload`; keys of it are spread evenly, so regions get equal shares.
"""

from __future__ import annotations

import json
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import happybase
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import belvedere
from belvedere.backend.hbase import messages
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.keyvalues import LATEST, PUT, KeyValues
from belvedere.backend.hbase.layout import fixed_binary
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.errors import BelvedereError
from bench.cluster_run import cpu_seconds
from bench.harness import Stolen, percentile
from bench.workload import Stream

FAMILY = b"d"
CELLS = (b"a", b"f", b"s", b"x")
"""In the order in which HBase has them."""
BATCH = 5000
PATIENCE = 900.0
KEYS = 2**63
"""Keys of the workload are below it."""


def words(numbers: np.ndarray) -> pa.BinaryArray:
    """As `Bytes.toBytes(long)`, or of a double."""
    kind = ">f8" if numbers.dtype.kind == "f" else ">i8"
    return fixed_binary(np.ascontiguousarray(numbers.astype(kind)).view(np.uint8).reshape(-1, 8))


def even_splits(regions: int) -> list[bytes]:
    return [struct.pack(">Q", KEYS * number // regions) for number in range(1, regions)]


class TableR:
    """R in HBase: its owner's view of it."""

    def __init__(self, hbase: LocalHBase, name: str, regions: int = 4) -> None:
        self.name, self.hbase = name, hbase
        self.client = connect_hbase(hbase.zookeeper)
        self.cells = RpcCells(self.client.regions, self.client.pool)
        table = TableDescriptor(TableName.parse(name), (Family(FAMILY.decode(), {"VERSIONS": "1"}),))
        splits = even_splits(regions)
        self.client.master.run(
            "CreateTable", messages.CreateTableRequest(table_schema=table.message(), split_keys=splits)
        )
        self._starts = [0, *(int.from_bytes(split, "big") for split in splits)]
        self._newest: dict[int, int] = {}

    def write(self, stream: Stream, batch: int = BATCH) -> int:
        """Rows that were written: of a key that comes twice in a batch the last, HBase's clock has milliseconds."""
        written = 0
        for rows, deletes in stream.batches(batch):
            rows, deletes = _last_of_each(rows, deletes)
            self.put(rows.filter(pa.array(~deletes)))
            gone = rows["k"].to_numpy()[deletes]
            if len(gone):
                self.cells.delete(self.name, words(gone), FAMILY.decode(), None, [LATEST] * len(gone))
            written += len(rows)
        return written

    def put(self, rows: pa.Table) -> None:
        if not len(rows):
            return
        keys = rows["k"].to_numpy()
        self.cells.put(self.name, cells_of_r(rows))
        for region, key in zip((np.searchsorted(self._starts, keys, "right") - 1).tolist(), keys.tolist(), strict=True):
            self._newest[region] = key

    def put_by_gateway(self, stream: Stream, batch: int = 1000) -> int:
        """As an application in Python does: happybase, a dict for each row."""
        connection = happybase.Connection(*self.hbase.thrift, timeout=60_000)
        long, double = struct.Struct(">q"), struct.Struct(">d")
        try:
            with connection.table(self.name).batch(batch_size=batch) as puts:
                for _, k, a, x, f, s in stream.tuples("k", "a", "x", "f", "s"):
                    puts.put(
                        long.pack(k),
                        {b"d:a": long.pack(a), b"d:x": long.pack(x), b"d:f": double.pack(f), b"d:s": s.encode()},
                    )
        finally:
            connection.close()
        return len(stream)

    def put_one(self, key: int, x: int, f: float = 1.0) -> None:
        one = pa.table({"k": [key], "a": [1], "x": [x], "f": [f], "s": ["probe"]})
        self.cells.put(self.name, cells_of_r(one))

    def scan(self) -> int:
        """Rows."""
        return sum(len(piece) for piece in self.cells.scan(self.name, b"", None, Columns("d"))) // len(CELLS)

    def wait_for(self, db: Any) -> None:
        """Until views have what was put last into each region, and so what came before it."""
        for key in self._newest.values():
            found = self.cells.get(self.name, words(np.array([key])), Columns("d"))
            if len(found):  # or it was deleted since
                db.wait_for("r", key, int(found.timestamp.max()), timeout=PATIENCE)

    def close(self) -> None:
        self.cells.close()
        self.client.close()


def cells_of_r(rows: pa.Table) -> KeyValues:
    count = len(rows)
    values = [words(rows["a"].to_numpy()), words(rows["f"].to_numpy()), _texts(rows["s"]), words(rows["x"].to_numpy())]
    order = pa.array(np.arange(4 * count).reshape(4, count).T.reshape(-1))
    key = words(rows["k"].to_numpy()).take(pa.array(np.repeat(np.arange(count), 4)))
    names = pa.array(list(CELLS), pa.binary()).take(pa.array(np.tile(np.arange(4), count)))
    family = pa.array([FAMILY], pa.binary()).take(pa.array(np.zeros(4 * count, np.int64)))
    stamps, kinds = np.full(4 * count, LATEST, np.int64), np.full(4 * count, PUT, np.uint8)
    return KeyValues(key, family, names, stamps, kinds, pa.concat_arrays(values).take(order))


def _texts(column: pa.ChunkedArray) -> pa.BinaryArray:
    return pc.cast(column.combine_chunks(), pa.binary())


def _last_of_each(rows: pa.Table, deletes: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    keys = rows["k"].to_numpy()
    _, back = np.unique(keys[::-1], return_index=True)
    at = np.sort(len(keys) - 1 - back)
    return rows.take(pa.array(at)), deletes[at]


def base_manifest(table: str, name: str = "r") -> str:
    return f"""
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: {name}}}
spec:
  hbase: {{table: "{table}", setReplicationScope: true}}
  columns:
    - {{name: k, type: bigint, encoding: long}}
    - {{name: a, type: bigint, cell: "d:a", encoding: long}}
    - {{name: x, type: bigint, cell: "d:x", encoding: long}}
    - {{name: f, type: double, cell: "d:f", encoding: double}}
    - {{name: s, type: string, cell: "d:s", encoding: text}}
  key: [k]
"""


class Meter:
    """CPU seconds by kind of process, from one moment to another. The writer is this process."""

    def __init__(self, hbase: LocalHBase, cluster: LocalCluster | None = None) -> None:
        self._pids: dict[str, list[int]] = {"writer": [os.getpid()]}
        for name, pid in hbase.pids().items():
            self._pids.setdefault(name.partition("-")[0] + ("s" if "-" in name else ""), []).append(pid)
        for child in cluster.children.values() if cluster is not None else ():
            if child.pid is not None:
                self._pids.setdefault(child.role.value, []).append(child.pid)
        self._begun = self._read()

    def _read(self) -> dict[str, float]:
        return {kind: sum(map(cpu_seconds, pids)) for kind, pids in self._pids.items()}

    def spent(self) -> dict[str, float]:
        return {kind: round(now - self._begun[kind], 2) for kind, now in self._read().items()}


def measured(
    what: str, run: Callable[[], int], hbase: LocalHBase, cluster: LocalCluster | None = None
) -> dict[str, Any]:
    """`run` gives the number of rows. CPU in seconds and in microseconds per row."""
    meter, stolen, begun = Meter(hbase, cluster), Stolen(), time.perf_counter()
    rows = run()
    seconds = time.perf_counter() - begun
    cpu = meter.spent()
    found = {
        "rows": rows,
        "seconds": round(seconds, 2),
        "rows_per_s": round(rows / seconds),
        "cpu": cpu,
        "us_per_row": {kind: round(spent / rows * 1e6, 1) for kind, spent in cpu.items()},
        "stolen": round(stolen.share(), 2),
        "load": round(os.getloadavg()[0], 1),
    }
    print(what, json.dumps(found), flush=True)
    return found


@contextmanager
def pool_over(hbase: LocalHBase, made: Path, state: str) -> Iterator[tuple[LocalCluster, Any]]:
    """A pool of real processes, one of each role; what it has in HBase is gone afterwards."""
    namespace = f"bench_{state}_{random.randrange(10**9)}"
    url = f"hbase://{hbase.zookeeper}/{namespace}?state={state}"
    shape = ClusterShape(viewservers=1, distributors=1, store=url, sync=False)
    try:
        with LocalCluster(made / namespace, shape) as cluster, belvedere.connect(cluster.url, timeout=PATIENCE) as db:
            db.status()
            yield cluster, db
    finally:
        client = connect_hbase(hbase.zookeeper)
        admin = PoolAdmin(client.master, namespace, shape.pool)
        admin.remove_peer(namespace)
        admin.drop_namespace()
        client.close()


def until(condition: Callable[[], bool], what: str, every: float = 0.05) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
        time.sleep(every)


def load_table(db: Any, table: TableR) -> None:
    """Returns when the rows that were there are committed."""
    db.apply_manifest(base_manifest(table.name))

    def committed() -> bool:
        status = db.status()
        return not (status["loading"] or status["backlog_rows"] or status["open_epochs"])

    until(committed, "the rows that were there are loaded", 0.2)


def summary(milliseconds: list[float]) -> dict[str, float]:
    return {
        "p50": round(percentile(milliseconds, 0.5), 1),
        "p99": round(percentile(milliseconds, 0.99), 1),
        "count": len(milliseconds),
    }


class Paced:
    """Puts of so many rows, so often, in a thread of its own; how long each took, in milliseconds. Who is late does not
    hurry afterwards."""

    def __init__(self, put: Callable[[int], None], every_s: float) -> None:
        self._put, self._every = put, every_s
        self.taken: list[float] = []
        self.failed: BelvedereError | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Paced:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE)
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        number = 0
        due = time.perf_counter()
        while not self._stopping.wait(max(0.0, due - time.perf_counter())):
            begun = time.perf_counter()
            try:
                self._put(number)
            except BelvedereError as error:
                self.failed = error
                return
            self.taken.append((time.perf_counter() - begun) * 1000)
            number += 1
            due = max(due + self._every, time.perf_counter() - self._every)
