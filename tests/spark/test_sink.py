"""Writing with Spark: each row once, whatever is tried again; what does not fit is refused before a task starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import belvedere
from belvedere.errors import DataError, RequestReused
from belvedere.spark.sink.target import PIECE_ROWS, Target, open_target
from belvedere.spark.source.options import read_options
from tests.spark.test_source import COLUMNS, read, row


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "a.bv")
    with belvedere.open(where) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x INT)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT x, count(*) AS n FROM t GROUP BY x")
    return where


def written(path: str, table: str = "t") -> list[dict[str, Any]]:
    with belvedere.open(path, read_only=True) as db:
        return db.scan(table).to_pylist()


def epochs(path: str) -> int:
    """How many writes there were since the beginning."""
    with belvedere.open(path) as db:
        return len(db._instance.committer.requests._known)


def write(frame: DataFrame, path: str, **options: Any) -> None:
    frame.write.format("belvedere").mode("append").options(database=path, **options).save("t")


def test_rows_are_put_and_views_follow(spark: SparkSession, path: str) -> None:
    write(spark.range(1000).selectExpr("id", "CAST(id % 3 AS INT) AS x").repartition(3), path)
    assert len(written(path)) == 1000
    assert sum(r["n"] for r in written(path, "v")) == 1000
    write(spark.range(10).selectExpr("id AS ID", "id < 4 AS gone"), path, deletes="gone")
    assert len(written(path)) == 996
    assert {r["x"] for r in written(path) if r["id"] < 10} == {0, 1, 2}, "columns that are not written stay"


def test_every_type_is_written_exactly(spark: SparkSession, tmp_path: Path) -> None:
    one, other = str(tmp_path / "one.bv"), str(tmp_path / "other.bv")
    for where in (one, other):
        with belvedere.open(where) as db:
            db.execute(f"CREATE TABLE t ({COLUMNS})")
            if where == one:
                db.put("t", [row(i) for i in range(20)] + [{"id": 20}])
    write(read(spark, one, "t"), other)
    assert repr(written(other)) == repr(written(one))


def test_a_job_that_runs_again_writes_nothing_twice(spark: SparkSession, path: str) -> None:
    frame = spark.range(100).selectExpr("id", "CAST(id AS INT) AS x").repartition(2, "id")
    write(frame, path, job="load-1")
    before = epochs(path)
    with belvedere.open(path) as db:
        db.wait(db.put("t", [{"id": 5, "x": -1}]))
    write(frame, path, job="load-1")
    assert epochs(path) == before
    assert written(path)[5] == {"id": 5, "x": -1}, "what was written since is not overwritten"
    with pytest.raises(Exception, match="wrote other rows when it was tried before"):
        write(frame.withColumn("x", F.lit(7)), path, job="load-1")


def failing_once(marker: str, rows: int, shuffled: bool) -> Any:
    """Partitions that write all of their rows and then fail, the first time."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        ids = list(range(context.partitionId() * rows, (context.partitionId() + 1) * rows))
        first = not Path(f"{marker}-{context.partitionId()}").exists()
        if shuffled and not first:
            ids.reverse()
        yield pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.int64()), "x": pa.array([1] * rows, pa.int32())})
        if first:
            Path(f"{marker}-{context.partitionId()}").touch()
            raise ValueError("the task dies at its end")

    return run


def test_tasks_that_are_tried_again_count_once(spark: SparkSession, path: str, tmp_path: Path) -> None:
    frame = spark.range(0, 2, 1, 2).mapInArrow(failing_once(str(tmp_path / "m"), 50, True), "id bigint, x int")
    # a local master gives a task one try, so the job is what is tried again
    for _ in range(3):
        try:
            write(frame, path, job="retried")
            break
        except Exception as error:
            assert "the task dies" in str(error)
    assert len(written(path)) == 100 and written(path, "v") == [{"x": 1, "n": 100}]
    assert epochs(path) == 2


def target(path: str, spark: SparkSession, **options: str) -> Target:
    return open_target(read_options({"database": path, "path": "t", **options}), spark.range(1).selectExpr("id").schema)


def test_pieces_are_the_same_in_whatever_order_rows_come(spark: SparkSession, path: str) -> None:
    rows = pa.table({"id": pa.array(range(PIECE_ROWS + 10), pa.int64())})
    straight = list(target(path, spark).pieces(iter(rows.to_batches(1000))))
    reverse = rows.take(list(range(len(rows)))[::-1])
    assert [len(piece) for piece in straight] == [PIECE_ROWS, 10]
    assert straight == list(target(path, spark).pieces(iter(reverse.to_batches(777))))
    twice = pa.table({"id": pa.array([1, 2, 1], pa.int64())})
    with pytest.raises(DataError, match=r"two rows for the key \{'id': 1\}"):
        list(target(path, spark).pieces(iter(twice.to_batches())))
    with pytest.raises(DataError, match="is never NULL"):
        list(target(path, spark).pieces(iter(pa.table({"id": pa.array([None], pa.int64())}).to_batches())))
    with belvedere.open(path) as db:
        for _ in range(2):
            target(path, spark).write(db, straight[1], "spark-j-0-1")
        with pytest.raises(RequestReused, match="a task of the job wrote other rows"):
            target(path, spark).write(db, straight[0], "spark-j-0-1")


def test_what_does_not_fit_is_refused(spark: SparkSession, path: str) -> None:
    rows = spark.range(3).selectExpr("id", "CAST(id AS INT) AS x")
    for frame, table, options, mode, message in (
        (rows, "v", {}, "append", "is a view; rows are written to base tables"),
        (rows, "t", {}, "overwrite", "rows are put by key"),
        (rows.withColumn("z", F.lit(1)), "t", {}, "append", "has no column 'z'"),
        (rows.withColumn("x", F.lit("1")), "t", {}, "append", "column 'x' of table 't' is int, not string"),
        (rows.select("x"), "t", {}, "append", "the rows have no column 'id'"),
        (rows, "t", {"deletes": "x"}, "append", "names a boolean column"),
        (rows, "t", {"content": "state"}, "append", "leave the option 'content' out"),
    ):
        with pytest.raises(Exception, match=message):
            frame.write.format("belvedere").mode(mode).options(database=path, **options).save(table)
    assert written(path) == []
    with belvedere.open(path), pytest.raises(Exception, match="another process"):
        write(rows, path)
