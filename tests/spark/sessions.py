"""One Spark for all tests of a process: starting Java takes longer than most of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from belvedere.errors import DataError
from belvedere.spark.requirements import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        require_spark()
    except DataError as error:
        pytest.skip(str(error))
    import belvedere.spark

    # tasks are other processes, and find tests (functions that they are sent by name) and sources as this one does
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT / "viewserver"), str(ROOT), before)))
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "800m",
        # compiling what runs once costs more than running it
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    session = belvedere.spark.session("local[2]", **settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    os.environ["PYTHONPATH"] = before
