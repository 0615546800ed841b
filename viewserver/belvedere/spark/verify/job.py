"""`verify` as a job with a session of its own, for the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from belvedere.model.verify import Report
from belvedere.spark.sessions import open_session
from belvedere.spark.verify.scope import Scope
from belvedere.spark.verify.verification import verify


def verify_job(
    database: str,
    views: Sequence[str],
    part: Mapping[str, Any],
    master: str | None,
    settings: Mapping[str, str],
    access: Mapping[str, str],
) -> Iterator[Report]:
    """`part`: the fields of `Scope`. A session that was there before goes on."""
    scope = Scope(**part)
    known = SparkSession.getActiveSession()
    spark = open_session(master, settings=settings)
    if known is None:
        # rows that fail are expected, and what ends the job is raised
        spark.sparkContext.setLogLevel("OFF")
    try:
        yield from verify(spark, database, views, scope, **access)
    finally:
        if known is None:
            spark.stop()
