"""The example of a declarative pipeline, with a view as its source and a table as its sink."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import belvedere
from belvedere.errors import DataError
from belvedere.spark.requirements import require_spark
from tests.spark.sessions import ROOT


def run(example: Path, **variables: str) -> None:
    """In a process of its own: a pipeline has its own Spark."""
    paths = (str(ROOT / "viewserver"), os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1",
    }
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", "spark-pipeline.yml"]
    done = subprocess.run(
        command, cwd=example, env=environment, text=True, capture_output=True, timeout=280, check=False
    )
    told = done.stdout + done.stderr
    assert "Run is COMPLETED" in told, told[-4000:]
    # PySpark 4.3.0 ends so after every run with a data source in Python (SPARK-59135)
    spoilt = "[UNKNOWN_RESPONSE]" in told and "__python_accumulator__" in told
    assert done.returncode == 0 or spoilt, told[-4000:]


def shown(path: Path, table: str) -> list[tuple[Any, ...]]:
    with belvedere.open(path, read_only=True) as db:
        return [tuple(row.values()) for row in db.scan(table).to_pylist()]


@pytest.mark.spark
def test_the_pipeline_reads_a_view_and_feeds_a_table_once(tmp_path: Path) -> None:
    try:
        require_spark()
    except DataError as error:
        pytest.skip(str(error))
    shop, loyalty = tmp_path / "shop.bv", tmp_path / "loyalty.bv"
    variables = {"SHOP_DATABASE": str(shop), "LOYALTY_DATABASE": str(loyalty)}
    with belvedere.open(loyalty) as db:
        db.execute("CREATE TABLE loyal (customer INT, epoch BIGINT, total BIGINT, PRIMARY KEY (customer, epoch))")
    example = shutil.copytree(ROOT / "examples" / "spark_pipeline", tmp_path / "pipeline")
    specification = example / "spark-pipeline.yml"
    text = specification.read_text()
    assert "storage: file:///tmp/loyalty" in text
    specification.write_text(text.replace("storage: file:///tmp/loyalty", f"storage: file://{tmp_path}/kept"))
    with belvedere.open(shop, retention=3600) as db:
        db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer INT, total INT)")
        db.execute(
            "CREATE MATERIALIZED VIEW spend AS SELECT customer, sum(total) AS total FROM orders GROUP BY customer"
        )
        db.wait(db.put("orders", [{"id": i, "customer": i % 3, "total": 10 * (i % 3)} for i in range(30)]))
        run(example, **variables)
        first = shown(loyalty, "loyal")
        assert [(customer, total) for customer, _, total in first] == [(0, 0), (1, 100), (2, 200)]
        with belvedere.open(loyalty) as target:  # what comes a second time would come back
            target.wait(target.delete("loyal", [first[0][:2]]))
        db.wait(db.put("orders", [{"id": 30, "customer": 1, "total": 7}]))
        shutil.rmtree(example / "spark-warehouse")  # Spark's own catalog has forgotten the table in it
        run(example, **variables)
    again = shown(loyalty, "loyal")
    assert [(customer, total) for customer, _, total in again] == [(1, 100), (1, 107), (2, 200)]
    big = pq.read_table(example / "spark-warehouse" / "big_spenders").to_pylist()
    assert sorted((r["customer"], r["total"]) for r in big) == [(1, 107), (2, 200)]
