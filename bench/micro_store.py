"""What the served store costs: CPU seconds of the store's own process, with Arrow Flight, and of the client beside it.

PYTHONPATH=viewserver python bench/micro_store.py [rows in the table] [directory]

Batches of 20,000 rows of 60 bytes. `new`: rows that were not there. `again`: rows at random of those that are there,
each batch a later epoch, with a collection behind it, as view servers do it. `read`: ids at random.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Store, TableWrite
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, STRING, Column

BATCH = 20_000
VALUE = 60
PAUSE = 1.0


def serve(path: str, answers: Connection) -> None:
    store = LmdbStore(path, collect_pause=PAUSE)
    server = StoreServer([StoreService(store)])
    answers.send(server.address)
    while answers.recv() != "stop":
        answers.send(time.process_time())
    server.close()
    store.close()


class Served:
    """A store in a process of its own."""

    def __init__(self, path: str) -> None:
        here, there = multiprocessing.Pipe()
        self._pipe = here
        self._process = multiprocessing.get_context("spawn").Process(target=serve, args=(path, there))
        self._process.start()
        self.store = FlightStore(here.recv())

    def cpu(self) -> float:
        self._pipe.send("cpu")
        found: float = self._pipe.recv()
        return found

    def stop(self) -> None:
        self.store.close()
        self._pipe.send("stop")
        self._process.join()


def measure(name: str, cpu: Callable[[], float], rows: int, run: Callable[[], object]) -> None:
    store, client, wall = cpu(), time.process_time(), time.perf_counter()
    run()
    store, client, wall = cpu() - store, time.process_time() - client, time.perf_counter() - wall
    print(
        f"{name:24} {rows:9,} rows   store {rows / store / 1e3:7.0f} k rows per CPU second"
        f"   client {client / rows * 1e6:5.2f} us per row   wall {wall / rows * 1e6:5.2f} us per row"
    )


def big(store: Store, cpu: Callable[[], float], rows: int) -> None:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2**64, (rows, 2), np.uint64)
    values = pa.array([rng.bytes(VALUE) for _ in range(BATCH)], pa.binary())
    epoch = 0

    def write(parts: list[np.ndarray]) -> None:
        """Until everything that follows from it is done: all rows are in the tree, what was superfluous is gone."""
        nonlocal epoch
        start = time.perf_counter()
        for part in parts:
            epoch += 1
            store.write(epoch, [TableWrite("t", part, values.slice(0, len(part)))])
            store.collect(epoch - 1, epoch - 100)
        durable.append((time.perf_counter() - start) / len(parts))
        store.collect(epoch, epoch - 100)
        while store.collected() < epoch:
            time.sleep(0.05)

    durable: list[float] = []
    parts = [ids[at : at + BATCH] for at in range(0, rows, BATCH)]
    chosen = [ids[rng.integers(0, rows, BATCH)] for _ in range(10)]
    chosen = [np.unique(part, axis=0) for part in chosen]
    count = sum(map(len, chosen))
    measure("write, new", cpu, rows, lambda: write(parts))
    measure("write, again", cpu, count, lambda: write(chosen))
    measure("write, again", cpu, count, lambda: write(chosen[::-1]))
    print(f"{'':24} a batch is durable after {', '.join(f'{took * 1e3:.0f}' for took in durable)} ms")
    measure("read", cpu, count, lambda: [store.read("t", part, epoch + 1) for part in chosen])
    measure("scan", cpu, rows, lambda: [len(piece[0]) for piece in store.scan("t", 0, 16_384, epoch + 1)])
    payload = rng.bytes(1 << 20)

    def chunks() -> None:
        for n in range(50):
            id = ChunkId(WriterId("bench"), n)
            store.put_chunks([(Chunk(id, SourceId("s"), Seq(n), Seq(n)), payload)])
            store.get_chunks([id])

    store_cpu, wall = cpu(), time.perf_counter()
    chunks()
    used, wall = cpu() - store_cpu, time.perf_counter() - wall
    print(f"{'chunks, put and get':24} {50 / used:7.0f} MiB per CPU second   wall {50 / wall:7.0f} MiB/s")


def small(name: str, store: Store, calls: int) -> None:
    """Calls with five rows each."""
    ids = np.arange(10, dtype=np.uint64).reshape(5, 2)
    values = pa.array([b"x" * VALUE] * 5, pa.binary())
    costs = []
    for run in (
        lambda n: store.write(n + 1, [TableWrite("small", ids, values)]),
        lambda n: store.read("small", ids, 2 * calls),
        lambda n: store.put_document("d", b"x"),
    ):
        run(0)  # compiled kernels are loaded
        start, cpu = time.perf_counter(), time.process_time()
        for n in range(calls):
            run(n)
        costs.append(((time.perf_counter() - start) / calls * 1e6, (time.process_time() - cpu) / calls * 1e6))
    found = "   ".join(
        f"{call} {wall:7.1f} ({cpu:.1f} CPU)"
        for call, (wall, cpu) in zip(("write", "read", "document"), costs, strict=True)
    )
    print(f"{name:24} us per call: {found}")


def base(store: LmdbStore, rows: int) -> None:
    """Puts to a base table, in this process."""
    table = TableDef("orders", (Column("id", BIGINT, False), Column("a", BIGINT), Column("b", STRING)), ("id",))
    store.base.create_table(table)
    rng = np.random.default_rng(0)

    def put(batch: int, calls: int) -> None:
        texts = pa.array(["x" * 20] * batch)
        for _ in range(calls):
            columns = (
                Vec(BIGINT, rng.integers(0, rows, batch)),
                Vec(BIGINT, rng.integers(0, 99, batch)),
                Vec(STRING, texts),
            )
            store.base.put("orders", Changes(columns, (None,) * 3, None, np.zeros(batch, np.int64)))

    put(1, 1)
    for batch, calls in ((10_000, rows // 10_000), (10_000, 20), (1, 300)):
        measure(f"base put, {batch} at a time", time.process_time, batch * calls, partial(put, batch, calls))


def main(rows: int, directory: str) -> None:
    small("in memory", MemoryStore(), 5000)
    local = LmdbStore(os.path.join(directory, "local"), collect_pause=PAUSE)
    small("LMDB here", local, 300)
    print("LMDB in this process")
    big(local, time.process_time, rows)
    base(local, rows)
    local.close()
    served = Served(os.path.join(directory, "served"))
    small("LMDB over Flight", served.store, 300)
    print("LMDB over Flight")
    big(served.store, served.cpu, rows)
    served.stop()


if __name__ == "__main__":
    where = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="belvedere-bench-")
    try:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000, where)
    finally:
        shutil.rmtree(where, ignore_errors=True)
