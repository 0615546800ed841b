"""Spark sessions for Belvedere's jobs: small and quiet on this machine, whatever the cluster says elsewhere.

What is set here are defaults: `spark-submit` and the caller's settings come first. The dialect is fixed, since views
mean what Spark's ANSI mode says, in UTC.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf
from pyspark.sql import SparkSession

from belvedere.spark import kubernetes
from belvedere.spark.source.data_source import BelvedereSource

LOCAL = "local[*]"
DEFAULTS = {
    "spark.app.name": "belvedere",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
}
LOCAL_DEFAULTS = {
    # two hundred tasks for a few thousand rows would be most of the time on one machine
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
DIALECT = {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}


def open_session(master: str | None = None, *, settings: Mapping[str, Any] | None = None) -> SparkSession:
    """The session of this process, made if there is none. `master`: where it runs; by default where `spark-submit`
    says, else on all cores of this machine."""
    known = SparkConf() if "PYSPARK_GATEWAY_PORT" in os.environ else None  # else asking would start Java without memory
    submitted = None if known is None else known.get("spark.master", None)
    chosen = master or submitted or LOCAL
    defaults = {**DEFAULTS, **(LOCAL_DEFAULTS if chosen.startswith("local") else {})}
    if chosen.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    elif chosen.startswith(kubernetes.SCHEME):
        submitted_settings = {} if known is None else dict(known.getAll())
        defaults |= kubernetes.pod_settings({**submitted_settings, **(settings or {})})
    # Spark's errors of rows are raised; it also writes them to stderr, as JSON with the stack of Java.
    logging.getLogger("SQLQueryContextLogger").disabled = True
    builder = SparkSession.builder.master(chosen)
    for name, value in defaults.items():
        if known is None or not known.contains(name):
            builder = builder.config(name, value)
    for name, value in {**DIALECT, **(settings or {})}.items():
        builder = builder.config(name, str(value))
    with warnings.catch_warnings():  # it warns of pandas, which neither it nor we need for what is done here
        warnings.simplefilter("ignore", FutureWarning)
        spark = builder.getOrCreate()
    register_source(spark)
    return spark


def register_source(spark: SparkSession) -> None:
    """Make `format("belvedere")` known."""
    spark.dataSource.register(BelvedereSource)
