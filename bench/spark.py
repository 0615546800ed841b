"""Spark over an embedded database: reading a view, beside Parquet of the same rows, and verifying it, beside its build.

    python -m bench.spark --rows 1000000

Each is measured three times in turns and the best counts; what is compared runs in one session on one machine.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import belvedere
import belvedere.spark
from bench.harness import machine

ROUNDS = 3
QUERY = "SELECT customer, count(*) AS n, sum(total) AS total, max(id) AS newest FROM orders GROUP BY customer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as name:
        run(Path(name), given.rows, given.master)


def run(directory: Path, rows: int, master: str) -> None:
    path, parquet = str(directory / "a.bv"), str(directory / "rows.parquet")
    with belvedere.open(path, sync=False) as db:
        db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DOUBLE, note STRING)")
        for start in range(0, rows, 250_000):
            db.put("orders", batch(start, min(start + 250_000, rows)))
        builds = {}
        for view, query in (("plain", "SELECT id, customer, total, note FROM orders"), ("q3", QUERY)):
            started = time.monotonic()
            db.execute(f"CREATE MATERIALIZED VIEW {view} AS {query}")
            builds[view] = time.monotonic() - started
        pq.write_table(db.scan("plain"), parquet)
    spark = belvedere.spark.session(master, **{"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("OFF")

    def consumed(frame: Any) -> None:
        """All rows and columns are made, and go nowhere."""
        frame.write.format("noop").mode("overwrite").save()

    def view() -> Any:
        return spark.read.format("belvedere").option("database", path).load("plain")

    reading = best({"view": lambda: consumed(view()), "parquet": lambda: consumed(spark.read.parquet(parquet))})
    print(
        f"reading {rows:,} rows: {rows / reading['view']:,.0f} rows/s; Parquet {rows / reading['parquet']:,.0f} rows/s;"
        f" {reading['parquet'] / reading['view']:.2f} of its speed"
    )
    from belvedere.spark.verify.verification import verify

    for name, built in builds.items():

        def verified(name: str = name) -> None:
            (report,) = verify(spark, path, [name])
            assert report.ok, str(report)

        took = best({"verify": verified})["verify"]
        print(f"verify of {name}: {took:.1f} s; its build took {built:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the driver's Python process: {peak:,.0f} MiB")
    spark.stop()


def batch(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    notes = pa.array([f"note {i % 1000}" for i in range(start, stop)])
    return pa.table({"id": ids, "customer": ids * 7919 % 50_000, "total": (ids % 10_007) / 4, "note": notes})


def best(actions: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Least seconds of each; they take turns."""
    found = dict.fromkeys(actions, float("inf"))
    for _ in range(ROUNDS):
        for name, action in actions.items():
            started = time.monotonic()
            action()
            found[name] = min(found[name], time.monotonic() - started)
    return found


if __name__ == "__main__":
    main()
