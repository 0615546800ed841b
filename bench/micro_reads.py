"""What reads by key cost in the embedded database: get, lookup, scan, in a small and in a big view, in one run.

PYTHONPATH=viewserver python bench/micro_reads.py [rows of the big view]
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import belvedere
from belvedere.embedded.database import Database

SMALL = 10_000
READS = 2_000
ROUNDS = 5


def shop(rows: int) -> Database:
    """A view of `rows` rows with the key (city, product), ten rows per city, and orders behind it."""
    db = belvedere.open(":memory:")
    db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, city STRING, product BIGINT, total DECIMAL(12,2))")
    db.execute(
        "CREATE MATERIALIZED VIEW sales AS "
        "SELECT city, product, count(*) AS n, sum(total) AS total FROM orders GROUP BY city, product"
    )
    ids = np.random.default_rng(0).permutation(rows)
    totals = pa.array(ids % 1000).cast(pa.decimal128(38, 0)).cast(pa.decimal128(12, 2))
    cities = pa.array([city(i // 10) for i in ids.tolist()])
    db.wait(db.put("orders", pa.table({"id": ids, "city": cities, "product": ids % 10, "total": totals})))
    assert db.status()["views"]["sales"]["rows"] == rows
    return db


def city(number: int) -> str:
    return f"city {number:07d}"


def median_us(work: Callable[[int], Any], seed: int, cities: int) -> float:
    picked = np.random.default_rng(seed).integers(0, cities, READS).tolist()
    times = []
    for number in picked:
        begin = time.perf_counter_ns()
        work(number)
        times.append(time.perf_counter_ns() - begin)
    return statistics.median(times) / 1e3


def main() -> None:
    big = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    databases = {rows: shop(rows) for rows in (SMALL, big)}
    for rows, db in databases.items():
        begin = time.process_time()
        assert db.lookup("sales", city(3)).num_rows == 10
        print(f"first read in order of {rows} rows: {time.process_time() - begin:.2f} CPU s", flush=True)
    reads: dict[str, Callable[[Database, int], Any]] = {
        "get": lambda db, i: db.get("sales", (city(i), 3)),
        "lookup of 10 rows": lambda db, i: db.lookup("sales", city(i)),
        "scan(limit=100)": lambda db, i: db.scan("sales", start=city(i), limit=100),
        "scan(limit=100, reverse=True)": lambda db, i: db.scan("sales", stop=city(i), limit=100, reverse=True),
        "get of a base row": lambda db, i: db.get("orders", i),
        "lookup of a base row": lambda db, i: db.lookup("orders", i),
    }
    for name, read in reads.items():
        # small and big take turns, so that a machine that is busy for a while is busy for both
        rounds = [
            [median_us(lambda i, db=db, read=read: read(db, i), seed, rows // 10) for rows, db in databases.items()]
            for seed in range(ROUNDS)
        ]
        small, large = (min(times) for times in zip(*rounds, strict=True))
        print(f"{name:30s} {SMALL}: {small:7.1f} us   {big}: {large:7.1f} us   ratio {large / small:.2f}", flush=True)


if __name__ == "__main__":
    main()
