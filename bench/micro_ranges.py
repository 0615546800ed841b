"""What ranges cost in the served store, over Arrow Flight: rows in key order, of a small and of a big view, in one run.

    python -m bench.micro_ranges [--rows 1000000]

A range of 100 rows somewhere in the view, as a client reads it (without decoding), while nothing is written and right
after each write of 100 rows: recent rows are not in the tree yet then.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from belvedere.backend.opening import open_backend, served_url
from belvedere.backend.seam import Store, TableWrite
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.types import BIGINT, Column

CODEC = KeyCodec([Column("id", BIGINT)])
ROUNDS = 300
WRITE_ROWS = 1 << 16


def rows(numbers: np.ndarray, table: str) -> TableWrite:
    """Rows of about a hundred bytes."""
    ids = hash_rows([Vec(BIGINT, numbers)], len(numbers))
    keys = CODEC.encode([pa.array(numbers)], len(numbers))
    return TableWrite(table, ids, pa.array([b"%0100d" % n for n in numbers.tolist()], pa.binary()), True, keys)


def fill(store: LmdbStore, table: str, count: int) -> None:
    order = np.random.default_rng(1).permutation(count).astype(np.int64)
    for at in range(0, count, WRITE_ROWS):
        store.write(1 + at // WRITE_ROWS, [rows(order[at : at + WRITE_ROWS], table)])


def measure(store: Store, table: str, count: int, writes: bool) -> float:
    """Median microseconds of a range."""
    rng, took = np.random.default_rng(2), []
    for round in range(ROUNDS):
        if writes:
            store.write(1000 + round, [rows(rng.choice(count, 100, replace=False).astype(np.int64), table)])
        start = int(rng.integers(0, count - 100))
        wanted = KeyRange(CODEC.encode_one([start]), None, 100)
        begun = time.perf_counter()
        found = sum(len(ids) for ids, _ in store.range(table, wanted, 10**6))
        took.append(time.perf_counter() - begun)
        assert found == 100
    return statistics.median(took) * 1e6


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    count = options.parse_args().rows
    with tempfile.TemporaryDirectory() as directory:
        local = LmdbStore(Path(directory) / "store")
        server = StoreServer([StoreService(local)])
        backend = open_backend(served_url(server.address), base=False)
        print("rows      quiet us  after writes us")
        for table, size in (("small", 10_000), ("big", count)):
            fill(local, table, size)
            while local.unmerged_rows():
                time.sleep(0.2)
                local.collect(1, 0)
            quiet, busy = (measure(backend.store, table, size, writes) for writes in (False, True))
            print(f"{size:<9} {quiet:8.0f}  {busy:8.0f}")
        backend.close()
        server.close()
        local.close()


if __name__ == "__main__":
    main()
