"""A real pool and its store, read, written, followed and verified by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import datasource as ds

import belvedere
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.process.local import ClusterShape
from belvedere.errors import DataError
from belvedere.spark.source import pool as pool_reading
from belvedere.spark.source.data_source import BelvedereSource
from belvedere.spark.source.pool import ROWS_OF_A_TASK
from belvedere.spark.verify.scope import Scope
from belvedere.spark.verify.verification import verify
from tests.cluster.real import TABLES, VIEWS, started
from tests.spark.test_stream import run

SHAPE = ClusterShape(viewservers=1, distributors=1, coordinators=1, session_timeout=10.0, sync=False)
ROWS = 600


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ClusterDatabase]]:
    cluster = started(tmp_path_factory.mktemp("pool"), SHAPE)
    try:
        with belvedere.connect(cluster.url) as db:
            for statement in (*TABLES, *VIEWS):
                db.execute(statement)
            db.execute("CREATE MATERIALIZED VIEW ratio AS SELECT id, 1 / (customer - 3) AS r FROM orders")
            db.put("customers", [{"id": i, "name": f"name {i}"} for i in range(40)])
            rows = [{"id": i, "customer": i % 40, "total": Decimal(i) / 4} for i in range(ROWS)]
            db.wait(db.put("orders", rows))
            assert isinstance(db, ClusterDatabase)
            yield cluster.url, db
    finally:
        cluster.stop()


def read(spark: SparkSession, url: str, relation: str, **options: Any) -> Any:
    return spark.read.format("belvedere").option("database", url).options(**options).load(relation)


def test_everything_of_a_pool_is_read(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    url, db = pool
    for relation in ("orders", "spend", "named"):
        frame = read(spark, url, relation)
        key = [c.name for c in db.key_columns(relation)]
        assert frame.toArrow().sort_by([(k, "ascending") for k in key]).to_pylist() == db.scan(relation).to_pylist()
    assert ROWS < ROWS_OF_A_TASK and read(spark, url, "orders").rdd.getNumPartitions() == 1
    halves = [read(spark, url, "orders", buckets=b).count() for b in ("0:8192", "8192:16384")]
    assert sum(halves) == ROWS and all(halves)
    assert read(spark, url, "ratio", content="quarantine").count() == 15
    assert read(spark, url, "orders", content="delta").selectExpr("count(DISTINCT id)").collect()[0][0] == ROWS
    assert read(spark, url, "view spend 1", content="state").count() == 40
    assert read(spark, url, "orders", prefix="[7]").collect() == [(7, 7, Decimal("1.75"))]
    assert read(spark, url, "orders", start="[590]").count() == 10
    for options, message in (
        ({"content": "state"}, "has no table 'orders'; it has"),
        ({"buckets": "0:20000"}, "ends at 16384"),
        ({"asOf": 5}, "older than what is kept"),
    ):
        with pytest.raises(Exception, match=message):
            read(spark, url, "orders", **options).count()


@pytest.mark.parametrize("relation", ["orders", "spend"])
def test_many_tasks_read_every_row_of_a_pool_once(
    spark: SparkSession, pool: tuple[str, ClusterDatabase], relation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, so that few rows are enough for many parts: of buckets, and of ranges of keys."""
    url, db = pool
    monkeypatch.setattr(pool_reading, "ROWS_OF_A_TASK", 10)
    source = BelvedereSource({"database": url, "path": relation, "partitions": "3", "pushdown": "true"})
    (key,) = (c.name for c in db.key_columns(relation))
    everything = db.scan(relation).to_pylist()
    wanted = tuple(range(0, 30, 2))
    for filters, expected in (
        ([], everything),
        ([ds.In((key,), wanted)], [r for r in everything if r[key] in wanted]),
    ):
        reader = source.reader(source.schema())
        assert list(reader.pushFilters(filters)) == filters
        parts = list(reader.partitions())
        assert len(parts) == 3
        found = [r for part in parts for batch in reader.read(part) for r in batch.to_pylist()]
        assert sorted(found, key=lambda r: r[key]) == expected


def test_an_epoch_that_is_held_is_read(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    url, db = pool
    with db.snapshot() as moment:
        before = db.scan("orders").to_pylist()
        db.wait(db.put("orders", [{"id": 1, "total": Decimal("99.99")}]))
        for relation, rows in (("orders", before), ("big", moment.scan("big").to_pylist())):
            held = read(spark, url, relation, asOf=moment.epoch)
            found = sorted(held.toArrow().to_pylist(), key=lambda r: next(iter(r.values())))
            assert found == sorted(rows, key=lambda r: next(iter(r.values())))


def test_views_of_a_pool_are_verified(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    url, _ = pool
    for report in verify(spark, url):
        assert report.compared and not report.differences, str(report)
        assert report.ok == (report.view != "ratio")
    (part,) = verify(spark, url, ["named"], Scope(start=(100,), stop=(120,)))
    assert part.ok and part.rows == 20


def test_a_task_of_another_engine_than_the_pool_is_refused(
    spark: SparkSession, pool: tuple[str, ClusterDatabase], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver before it begins, and by each executor, whose image may be another one."""
    url, _ = pool
    with pytest.raises(Exception, match="the pool has engine 99 and does not go back"):
        read(spark, url, "orders", engine="99").count()
    monkeypatch.setattr(ClusterDatabase, "status", lambda self: {"engine": 99})
    with pytest.raises(DataError, match="the pool has engine 99"):
        next(verify(spark, url, ["spend"]))


def test_tasks_write_to_a_pool_once(spark: SparkSession, pool: tuple[str, ClusterDatabase]) -> None:
    url, db = pool
    frame = spark.range(10_000, 10_200).selectExpr("id", "999L AS customer", "CAST(1 AS DECIMAL(12,2)) AS total")
    for _ in range(2):
        frame.repartition(2, "id").write.format("belvedere").mode("append").options(database=url, job="nightly").save(
            "orders"
        )
        db.wait(db.put("customers", [{"id": 999, "name": "many"}]))
        assert db.get("spend", 999) == {"customer": 999, "n": 200, "total": Decimal("200.00")}
        db.wait(db.put("orders", [{"id": 10_000, "total": Decimal(1)}]))
    db.wait(db.delete("orders", list(range(10_000, 10_200))))


def test_changes_of_a_pool_are_followed(spark: SparkSession, pool: tuple[str, ClusterDatabase], tmp_path: Path) -> None:
    url, db = pool
    stream = spark.readStream.format("belvedere").options(database=url, content="changes", starting="rows")
    for turn in range(2):
        run(stream.load("big"), tmp_path / "out", tmp_path / "checkpoint")
        found: dict[Any, int] = {}
        for r in spark.read.parquet(str(tmp_path / "out")).collect():
            found[r.customer, r.n] = found.get((r.customer, r.n), 0) + r["_weight"]
        assert set(found.values()) <= {0, 1}
        shown = sorted((r["customer"], r["n"]) for r in db.scan("big").to_pylist())
        assert sorted(row for row, weight in found.items() if weight) == shown
        db.put("orders", [{"id": 5000 + turn * 10 + i, "customer": turn} for i in range(5)])
        db.wait(db.delete("orders", [turn]))
