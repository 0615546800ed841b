"""`belvedere bench`: what this machine and this disk do with a small, durable workload, in under a minute.

The full suite with its baselines lives in `bench/` of the repository (`make bench`). This command answers another
question: is the database I am about to use on this machine as fast as I expect?
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import pyarrow as pa

from belvedere.cli import context, output
from belvedere.cli.demo_screen import percentile

if TYPE_CHECKING:
    from belvedere.embedded.database import Database

SINGLE_WRITES = 300
READS = 5_000
FSYNCS = 50
CUSTOMERS = 10_000

TABLES = (
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, city STRING)",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DOUBLE)",
)
VIEWS = (
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total, max(total) AS largest FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW placed AS "
    "SELECT o.id, c.city, o.total FROM orders o JOIN customers c ON o.customer = c.id",
)


@click.command(short_help="A quick measurement of this machine and disk.")
@click.option("--rows", default=500_000, show_default=True, type=click.IntRange(1_000), help="Rows to write in bulk.")
@click.option("--batch", default=10_000, show_default=True, type=click.IntRange(1), help="Rows per atomic write.")
@click.option("--directory", type=click.Path(path_type=Path, file_okay=False), help="Which disk.  [default: temporary]")
@context.common
@click.pass_context
def bench(ctx: click.Context, rows: int, batch: int, directory: Path | None) -> None:
    """Measure durable bulk writes, the time from a write to its views, and reads, with an aggregate and a join."""
    import belvedere

    settings = context.settings(ctx)
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-", dir=directory) as place:
        results = {"fsync ms (p50)": fsync_ms(Path(place))}
        db = belvedere.open(Path(place) / "bench.bv")
        try:
            for statement in (*TABLES, *VIEWS):
                db.execute(statement)
            results |= measure(db, rows, batch)
        finally:
            db.close()
    output.emit_record(results, as_json=settings.json)


def fsync_ms(place: Path) -> float:
    """What one fsync costs here: every single write pays at least one."""
    taken = []
    with (place / "fsync").open("wb") as file:
        for _ in range(FSYNCS):
            file.write(b"x" * 4096)
            file.flush()
            begun = time.perf_counter()
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - begun) * 1000)
    return round(percentile(taken, 0.5), 3)


def measure(db: Database, rows: int, batch: int) -> dict[str, Any]:
    """Bulk, single writes with freshness, and reads."""
    random = np.random.default_rng(1)
    ids = np.arange(CUSTOMERS)
    db.put("customers", pa.table({"id": ids, "city": [f"city {i % 100}" for i in ids]}))
    started = time.perf_counter()
    token = None
    for first in range(0, rows, batch):
        count = min(batch, rows - first)
        columns = {
            "id": np.arange(first, first + count),
            "customer": random.integers(0, CUSTOMERS, count),
            "total": random.random(count),
        }
        token = db.put("orders", pa.table(columns))
    db.wait(token)
    bulk = time.perf_counter() - started

    fresh, gets = [], []
    for i in range(SINGLE_WRITES):
        begun = time.perf_counter()
        token = db.put("orders", [{"id": i, "customer": i % CUSTOMERS, "total": 1.0}])
        db.get("spend", i % CUSTOMERS, after=token, timeout=60.0)
        fresh.append((time.perf_counter() - begun) * 1000)
    for key in random.integers(0, CUSTOMERS, READS).tolist():
        begun = time.perf_counter()
        db.get("spend", key)
        gets.append((time.perf_counter() - begun) * 1e6)
    return {
        "bulk rows": rows,
        "bulk rows/s, durable and in both views": round(rows / bulk),
        "write to visible ms (p50)": round(percentile(fresh, 0.5), 2),
        "write to visible ms (p99)": round(percentile(fresh, 0.99), 2),
        "get us (p50)": round(percentile(gets, 0.5), 1),
        "get us (p99)": round(percentile(gets, 0.99), 1),
    }
