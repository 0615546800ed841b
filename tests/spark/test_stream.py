"""Streams: the changes of a view, once each, over restarts; a stream into a table, once, whatever is tried again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import belvedere
from belvedere.embedded.database import Database


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with belvedere.open(tmp_path / "a.bv", retention=3600) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS s FROM t GROUP BY g")
        db.wait(db.put("t", [{"id": i, "g": i % 3, "x": 1} for i in range(30)]))
        yield str(tmp_path / "a.bv"), db


def changes(spark: SparkSession, path: str, **options: Any) -> Any:
    options = {"content": "changes", "database": path, **options}
    return spark.readStream.format("belvedere").options(**options).load("v")


def run(frame: Any, out: Path, checkpoint: Path) -> None:
    """All that there is, then stop."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert query.exception() is None


def replayed(spark: SparkSession, out: Path) -> list[tuple[int, int]]:
    """The view, from all that the stream gave."""
    found: dict[tuple[int, int], int] = {}
    for r in spark.read.parquet(str(out)).collect():
        found[r.g, r.s] = found.get((r.g, r.s), 0) + r["_weight"]
    assert set(found.values()) <= {0, 1}, "a change came twice, or was left out"
    return sorted(row for row, weight in found.items() if weight)


def shown(db: Database) -> list[tuple[int, int]]:
    return sorted((r["g"], r["s"]) for r in db.scan("v").to_pylist())


def test_changes_come_once_over_restarts(spark: SparkSession, shop: tuple[str, Database], tmp_path: Path) -> None:
    path, db = shop
    out, checkpoint = tmp_path / "out", tmp_path / "checkpoint"
    for turn in range(2):
        run(changes(spark, path, starting="rows"), out, checkpoint)
        assert replayed(spark, out) == shown(db)
        db.put("t", [{"id": i, "g": i % 3, "x": turn + 2} for i in range(0, 30, turn + 2)])
        db.wait(db.delete("t", [turn, 20 + turn]))
    # a crash after the batch was computed and before it was committed: the batch is computed again, the same
    newest = max((checkpoint / "commits").iterdir(), key=lambda p: int(p.name) if p.name.isdecimal() else -1)
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    run(changes(spark, path, starting="rows"), out, checkpoint)  # ends with that batch
    run(changes(spark, path, starting="rows"), out, checkpoint)
    assert replayed(spark, out) == shown(db)


def test_a_stream_begins_where_it_is_told(spark: SparkSession, shop: tuple[str, Database], tmp_path: Path) -> None:
    path, db = shop
    epoch = db.epoch
    db.wait(db.put("t", [{"id": 0, "x": 5}]))
    run(changes(spark, path, starting=epoch), tmp_path / "a", tmp_path / "ca")
    found = [(r.g, r.s, r["_weight"]) for r in spark.read.parquet(str(tmp_path / "a")).collect()]
    assert sorted(found) == [(0, 10, -1), (0, 14, 1)]
    with pytest.raises(Exception, match="is now, rows or an epoch"):
        run(changes(spark, path, starting="soon"), tmp_path / "b", tmp_path / "cb")
    with pytest.raises(Exception, match="a stream is of the changes of a view"):
        spark.readStream.format("belvedere").option("database", path).load("v").writeStream.format(
            "noop"
        ).start().awaitTermination()
    with pytest.raises(Exception, match="changes are a stream"):
        spark.read.format("belvedere").option("database", path).option("content", "changes").load("v").count()


def test_a_batch_that_is_written_again_is_written_once(
    spark: SparkSession, shop: tuple[str, Database], tmp_path: Path
) -> None:
    path, _ = shop
    target = str(tmp_path / "target.bv")
    with belvedere.open(target) as db:
        db.execute("CREATE TABLE log (g INT, e BIGINT, w INT, s BIGINT, PRIMARY KEY (g, e, w))")
        db.execute("CREATE MATERIALIZED VIEW n AS SELECT count(*) AS n FROM log")
    checkpoint = tmp_path / "checkpoint"

    def follow() -> None:
        frame = changes(spark, path, starting="rows").selectExpr("g", "_epoch AS e", "_weight AS w", "s")
        query = (
            frame.writeStream.format("belvedere")
            .option("database", target)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start("log")
        )
        assert query.awaitTermination(120)

    def writes() -> int:
        with belvedere.open(target) as db:
            assert db.scan("n").to_pylist() == [{"n": 3}]
            return len(db._instance.committer.requests._known)

    follow()
    first = writes()
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)
    follow()
    assert writes() == first == 1
