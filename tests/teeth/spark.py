"""Breaks of docs/design/spark.md: each row and change once, all partitions, exact types, all damage found."""

from __future__ import annotations

from tests.teeth.breaks import Break

SPARK = "viewserver/belvedere/spark"

BREAKS = [
    Break(
        name="two tasks of a Spark job write by one name",
        claim="each row that Spark writes is there once",
        file=f"{SPARK}/sink/writer.py",
        find='name = "-".join(["spark", self._job, *_batch_of(context), str(context.partitionId())])',
        instead='name = "-".join(["spark", self._job, *_batch_of(context)])',
        noticed_by=("tests/spark/test_sink.py::test_rows_are_put_and_views_follow",),
    ),
    Break(
        name="a Spark task that is tried again writes by another name",
        claim="each row that Spark writes is there once",
        file=f"{SPARK}/sink/writer.py",
        find='name = "-".join(["spark", self._job,',
        instead='name = "-".join(["spark", uuid.uuid4().hex, self._job,',
        noticed_by=(
            "tests/spark/test_sink.py::test_a_job_that_runs_again_writes_nothing_twice",
            "tests/spark/test_stream.py::test_a_batch_that_is_written_again_is_written_once",
        ),
    ),
    Break(
        name="a batch of a Spark stream ends an epoch early",
        claim="each change of a view comes once",
        file=f"{SPARK}/stream/reader.py",
        find="subscription.until(part.end)",
        instead="subscription.until(part.end - 1)",
        noticed_by=("tests/spark/test_stream.py::test_a_stream_begins_where_it_is_told",),
    ),
    Break(
        name="a batch of a Spark stream begins an epoch early",
        claim="each change of a view comes once",
        file=f"{SPARK}/stream/reader.py",
        find="after=part.start)",
        instead="after=part.start - 1)",
        noticed_by=("tests/spark/test_stream.py::test_changes_come_once_over_restarts",),
    ),
    Break(
        name="the last partition of a Spark read is left out",
        claim="all rows are read, by however many tasks",
        file=f"{SPARK}/source/partitions.py",
        find="    return list(pairwise(bounds))",
        instead="    return list(pairwise(bounds))[: max(1, count - 1)]",
        noticed_by=(
            "tests/spark/test_source.py::test_parts_are_so_many_as_wanted",
            "tests/spark/test_pool.py::test_many_tasks_read_every_row_of_a_pool_once",
        ),
    ),
    Break(
        name="a decimal has another scale in Spark",
        claim="types arrive in Spark exactly",
        file=f"{SPARK}/source/schema.py",
        find="spark.DecimalType(type.precision, type.scale)",
        instead="spark.DecimalType(38, type.scale)",
        noticed_by=("tests/spark/test_source.py::test_every_type_arrives_exactly",),
    ),
    Break(
        name="verification by Spark ignores rows that are too many",
        claim="verification by Spark finds all damage",
        file=f"{SPARK}/verify/compare.py",
        find="F.sum(extra - paired)",
        instead="F.lit(0)",
        noticed_by=("tests/spark/test_verify.py::test_planted_damage_is_found_and_told_apart",),
    ),
]
