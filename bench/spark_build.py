"""A view of a pool built by Spark, beside the same build through epochs, and beside Spark that reads the same rows from
Parquet and aggregates them; and how fresh another view is meanwhile.

    python -m bench.spark_build --rows 1000000

The pool is one of processes on this machine, with its served store. Rows per second are of the base table.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import belvedere
import belvedere.spark
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from bench.harness import machine
from bench.spark import QUERY, batch

SHAPE = ClusterShape(viewservers=2, distributors=1, coordinators=1, session_timeout=20.0, sync=False)
PAUSE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seconds", type=float, default=15.0, help="how long freshness is measured without a build")
    given = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as name:
        cluster = LocalCluster(Path(name), SHAPE)
        cluster.start()
        try:
            with belvedere.connect(cluster.url, timeout=120.0) as db:
                assert isinstance(db, ClusterDatabase)
                run(db, cluster.url, Path(name), given.rows, given.master, given.seconds)
        finally:
            cluster.stop()


def run(db: ClusterDatabase, url: str, directory: Path, rows: int, master: str, seconds: float) -> None:
    from belvedere.spark.build.building import build, waiting_builds

    parquet = directory / "rows.parquet"
    db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DOUBLE, note STRING)")
    db.execute("CREATE TABLE visits (id BIGINT PRIMARY KEY, place BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW places AS SELECT place, count(*) AS n FROM visits GROUP BY place")
    writer = pq.ParquetWriter(parquet, batch(0, 1).schema)
    token = None
    for start in range(0, rows, 50_000):
        piece = batch(start, min(start + 50_000, rows))
        writer.write_table(piece)
        token = db.put("orders", piece)
    writer.close()
    db.wait(token, timeout=1200.0)

    spark = belvedere.spark.session(master, **{"spark.driver.memory": "2g"})
    spark.sparkContext.setLogLevel("OFF")

    def aggregate() -> None:
        frame = spark.read.parquet(str(parquet))
        frame.createOrReplaceTempView("orders")
        spark.sql(QUERY).write.format("noop").mode("overwrite").save()

    def by_spark() -> None:
        db.apply_manifest(manifest("by_spark", "spark"))
        until(lambda: bool(waiting_builds(db)))
        for report in build(spark, url):
            assert report.ok, str(report)
            print(f"  {report}", flush=True)
        until(lambda: not db.status()["builds"])

    def by_epochs() -> None:
        db.apply_manifest(manifest("by_epochs", "epochs"))

    aggregate()  # Java is warm for both
    parquet_s = min(timed(aggregate) for _ in range(3))
    with freshness(db) as alone:
        time.sleep(seconds)
    with freshness(db) as while_spark:
        spark_s = timed(by_spark)
    with freshness(db) as while_epochs:
        epochs_s = timed(by_epochs)
    assert db.scan("by_spark").num_rows == db.scan("by_epochs").num_rows
    for what, took in (
        ("Spark, from Parquet", parquet_s),
        ("built by Spark", spark_s),
        ("built through epochs", epochs_s),
    ):
        print(f"{what}: {took:.1f} s, {rows / took:,.0f} rows/s, {parquet_s / took:.2f} of Spark from Parquet")
    for what, found in (("no build", alone), ("a build by Spark", while_spark), ("one through epochs", while_epochs)):
        print(f"freshness of another view with {what}: {shown(found)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the driver's Python process: {peak:,.0f} MiB")
    spark.stop()


def manifest(name: str, how: str) -> str:
    named = {
        "apiVersion": "belvedere.dev/v1alpha1",
        "kind": "MaterializedView",
        "metadata": {"name": name.replace("_", "-")},
    }
    return json.dumps({**named, "spec": {"name": name, "query": QUERY, "build": how}})


def timed(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.2)


@contextmanager
def freshness(db: ClusterDatabase) -> Iterator[list[float]]:
    """Seconds from a write to the view that has it, again and again."""
    found: list[float] = []
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.wait(PAUSE):
            number += 1
            began = time.monotonic()
            db.wait(db.put("visits", [{"id": number, "place": number % 50}]), timeout=120.0)
            found.append(time.monotonic() - began)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def shown(seconds: list[float]) -> str:
    p50, p99 = (np.quantile(seconds, share) * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:.0f} ms, p99 {p99:.0f} ms, {len(seconds)} writes"


if __name__ == "__main__":
    main()
