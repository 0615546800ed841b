"""Batch jobs and Spark's own programs over Belvedere: a data source, and verification by an independent engine.

    import belvedere.spark
    spark = belvedere.spark.session()                  # or register(spark) with a session of yours
    spark.read.format("belvedere").option("database", "shop.bv").load("orders")

pyspark is an extra of the package and is loaded by the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register", "session"]


def session(master: str | None = None, **settings: Any) -> SparkSession:
    """A session with the data source registered; see `belvedere.spark.session.open_session`."""
    from belvedere.spark.requirements import require_spark

    require_spark()
    from belvedere.spark.sessions import open_session

    return open_session(master, settings=settings)


def register(spark: SparkSession) -> None:
    """Make `format("belvedere")` known to a session."""
    from belvedere.spark.sessions import register_source

    register_source(spark)
