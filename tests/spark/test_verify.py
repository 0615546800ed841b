"""Verification by Spark: damage is found and told apart; nothing is reported where nothing is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from pyspark.sql import SparkSession

import belvedere
from belvedere.embedded.database import Database
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError
from belvedere.model.verify import Report
from belvedere.spark.verify.scope import Scope
from belvedere.spark.verify.verification import verify
from belvedere.types import DOUBLE

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x DOUBLE, n BIGINT, s STRING)"
VIEWS = {
    "plain": "SELECT id, g, x, s FROM t",
    "hidden": "SELECT g, x FROM t",
    "sums": "SELECT g, sum(x) AS s, avg(x) AS a, sum(DISTINCT x) AS d, sum(x) FILTER (WHERE n > 5) AS f, avg(n) AS m "
    "FROM t GROUP BY g",
    "total": "SELECT count(*) AS n, sum(x) AS s, min(s) AS least FROM t",
    "joined": "SELECT a.id, a.g, b.x FROM t a LEFT JOIN t b ON a.n = b.id "
    "WHERE a.id NOT IN (SELECT n FROM t WHERE n > 50)",
    "apart": "SELECT DISTINCT g, n % 3 AS r FROM t",
    "both": "SELECT g, x FROM t WHERE n < 5 UNION ALL SELECT g, s FROM sums",
    "failing": "SELECT id, 10 / (n - 5) AS q FROM t",
    "loose": "SELECT id, ln(abs(n) + 1) AS l FROM t",
}


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with belvedere.open() as database:
        database.execute(TABLE)
        for name, query in VIEWS.items():
            database.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        special = [math.nan, math.inf, -0.0, 1e308, 1e308]
        rows = [
            {"id": i, "g": None if i % 11 == 0 else i % 7, "x": special[i] if i < 5 else 0.1 * i * (-1e16) ** (i % 3)}
            | {"n": i % 90, "s": f"é{i % 13}"}
            for i in range(600)
        ]
        database.wait(database.put("t", rows))
        yield database


def one(spark: SparkSession, db: Database, view: str, scope: Scope | None = None) -> Report:
    (report,) = verify(spark, db, [view], scope)
    return report


def test_healthy_views_of_every_kind_pass(spark: SparkSession, db: Database) -> None:
    for report in verify(spark, db):
        assert report.compared and not report.differences, str(report)
        assert report.rows == db.scan(report.view).num_rows and report.engine == "spark"
        assert report.ok == (report.view != "failing")
        assert report.quarantined == (7 if report.view == "failing" else 0)


def planted(db: Database, view: str, kind: str) -> Callable[[], None]:
    """A wrong row in the table of a view, as a flipped bit or a lost write leaves it; returns how to take it back."""
    table = db._instance.runtime.tables[view].table
    rows = table.rows()
    doubles = [c.data for c in rows.columns if c.type == DOUBLE and isinstance(c.data, np.ndarray)]
    at = int(np.flatnonzero(np.logical_and.reduce([np.isfinite(d) & (d != 0) for d in doubles]))[0])
    row = rows.take(np.array([at]))
    wrong = row.take(np.array([0]))
    if kind == "different":
        number = next(i for i, c in enumerate(wrong.columns) if c.type == DOUBLE and c.valid[0])
        wrong.columns = tuple(
            Vec(DOUBLE, np.nextafter(c.data, -1e300)) if i == number else c for i, c in enumerate(wrong.columns)
        )
    elif kind == "extra":
        wrong.id = wrong.id + np.uint64(1)
    else:
        wrong.weight = np.array([-1], np.int8)
    table.apply(wrong)
    table.end_epoch()

    def undo() -> None:
        if kind == "extra":
            wrong.weight = np.array([-1], np.int8)
            table.apply(wrong)
        else:
            table.apply(row)
        table.end_epoch()

    return undo


KEYED = ("plain", "sums", "total", "joined", "failing", "loose")


@pytest.mark.parametrize("kind", ["different", "missing", "extra"])
@pytest.mark.parametrize("view", ["plain", "hidden", "sums", "both", "failing"])
def test_planted_damage_is_found_and_told_apart(spark: SparkSession, db: Database, view: str, kind: str) -> None:
    undo = planted(db, view, kind)
    try:
        report, other = one(spark, db, view), db.verify(view)
    finally:
        undo()
    expected = dict.fromkeys(("missing", "extra", "different"), 0)
    if kind == "different" and view not in KEYED:
        expected |= {"missing": 1, "extra": 1}  # nothing says that they are one row
    elif kind == "extra" and view in KEYED:
        expected["extra"] = 1
    else:
        expected[kind] = 1
    assert report.counts == expected and not report.ok and report.compared, str(report)
    assert report.differences == 1 and not report.scope
    assert other.counts == expected, str(other)
    for name in ("missing", "extra"):
        assert repr(getattr(report, name)) == repr(getattr(other, name))
    assert repr(report.different) == repr(other.different)
    assert one(spark, db, view).differences == 0


def test_reports_of_a_part_and_their_words(spark: SparkSession, db: Database) -> None:
    sampled = one(spark, db, "plain", Scope(sample=0.25))
    assert sampled.ok and 90 < sampled.rows < 220
    other = one(spark, db, "plain", Scope(sample=0.25, seed=1))
    assert other.ok and 90 < other.rows < 220 and "seed 1" in other.scope
    ranged = one(spark, db, "plain", Scope(start=(100,), stop=(110,)))
    assert ranged.ok and ranged.rows == 10 and "from 100; keys up to 110" in str(ranged)
    groups = one(spark, db, "sums", Scope(prefix=(None,)))
    assert groups.ok and groups.rows == 1
    assert one(spark, db, "failing", Scope(start=(0,), stop=(5,))).differences == 0
    with pytest.raises(DataError, match="does not show its whole key"):
        one(spark, db, "hidden", Scope(prefix=(1,)))
    with pytest.raises(DataError, match="above 0 and at most 1"):
        Scope(sample=2.0)
    with pytest.raises(CatalogError, match="only views can be verified"):
        one(spark, db, "t")
