"""The commands: options that are refused, what is missing on a machine, and damage that ends with exit code 3."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import belvedere
from belvedere.cli.main import cli
from belvedere.cli.spark import cli as spark_cli
from belvedere.errors import DataError
from belvedere.model import verify_record
from belvedere.spark import requirements
from tests.spark.test_verify import planted


@pytest.fixture
def path(tmp_path: Path) -> str:
    where = str(tmp_path / "a.bv")
    with belvedere.open(where) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, x DOUBLE)")
        db.execute("CREATE MATERIALIZED VIEW v AS SELECT id, x * 2 AS y FROM t")
        db.execute("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n FROM t")
        db.wait(db.put("t", [{"id": i, "x": i / 3} for i in range(50)]))
    return where


def test_damage_in_a_stored_view_ends_with_3_and_is_in_all_that_is_left(
    spark: SparkSession, path: str, tmp_path: Path
) -> None:
    with belvedere.open(path) as db:
        db.wait(db.put("t", [{"id": 49, "x": 1.0}]))  # so that there is something to take a snapshot of
        planted(db, "v", "different")
        db.checkpoint()
    page, figures, summary = tmp_path / "page.html", tmp_path / "figures.prom", tmp_path / "summary"
    words = ["--db", path, "--json", "verify", "--html", str(page), "--metrics", str(figures)]
    words += ["--summary", str(summary)]
    done = CliRunner().invoke(spark_cli, words)
    assert done.exit_code == 3, done.output
    reports = {told["view"]: told for told in map(json.loads, done.output.splitlines())}
    assert reports["w"]["ok"] and not reports["v"]["ok"] and reports["v"]["engine"] == "spark"
    assert reports["v"]["counts"] == {"missing": 0, "extra": 0, "different": 1}
    ((pair),) = reports["v"]["different"]
    assert pair["found"]["id"] == pair["expected"]["id"] and pair["found"]["y"] != pair["expected"]["y"]
    told_short = {told["view"]: told for told in map(json.loads, summary.read_text().splitlines())}
    assert told_short["v"]["differences"] == 1 and not told_short["v"]["ok"] and "different" not in told_short["v"]
    told = CliRunner().invoke(cli, ["--db", path, "verify", "v"])
    assert told.exit_code == 3 and "1 of 50 rows differ" in told.output and "  different {" in told.output
    past = verify_record.read(Path(path) / verify_record.FILE)
    assert [(one["view"], one["engine"], one["ok"]) for one in past] == [
        ("v", "spark", False),
        ("w", "spark", True),
        ("v", "duckdb", False),
    ]
    assert 'belvedere_verified_different{view="v",engine="spark"} 1' in figures.read_text()
    assert "<svg" in page.read_text() and "expected {" in page.read_text()
    with belvedere.open(path) as db:
        assert db.scan("w").to_pylist() == [{"n": 50}], "the history does not disturb the database"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["verify", "v", "--sample", "0.5"], "--sample is for --engine spark"),
        (["verify", "--engine", "spark", "--start", "3"], "name that view"),
        (["verify", "v", "--engine", "spark", "--conf", "x"], "NAME=VALUE"),
        (["verify", "nothing", "--engine", "spark"], "no table or view 'nothing'"),
        (["verify", "t", "--engine", "spark"], "only views can be verified"),
        (["verify", "v", "--engine", "spark", "--sample", "7"], "above 0 and at most 1"),
    ],
)
def test_what_does_not_fit_is_refused(spark: SparkSession, path: str, words: list[str], message: str) -> None:
    done = CliRunner().invoke(cli, ["--db", path, *words])
    assert done.exit_code in (1, 2) and message in done.output


def test_a_gateway_cannot_be_verified_by_spark() -> None:
    done = CliRunner().invoke(cli, ["--url", "https://shop", "verify", "--engine", "spark"])
    assert done.exit_code == 2 and "belvedere://HOST:PORT" in done.output


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="needs Java, and none was found; install a JRE of version 17"):
        requirements.require_java({"PATH": str(tmp_path)})
    for told, message in (
        ('openjdk version "11.0.20" 2023-07-18', "is Java 11"),
        ('java version "1.8.0_391"', "is Java 8"),
        ("what?", "does not tell its version"),
    ):
        java = tmp_path / "java"
        java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
        java.chmod(java.stat().st_mode | stat.S_IXUSR)
        with pytest.raises(DataError, match=message):
            requirements.require_java({"PATH": str(tmp_path)})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'belvedere\[spark\]'"):
        requirements.require_spark()
    monkeypatch.undo()
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.0.1")
    with pytest.raises(DataError, match=r"needs? pyspark 4.1 or newer; found 4.0.1"):
        requirements.require_pyspark()
