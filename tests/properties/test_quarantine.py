"""Random failing expressions: a failing row or group is in quarantine and absent from the view; the rest is exact.

Every fallible expression is made together with the condition under which it fails, so DuckDB can compute both what the
view holds and how many rows or groups are in its quarantine, without failing itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

import belvedere
from tests.oracle.clock import clock
from tests.oracle.duck import Oracle, arrow_of
from tests.oracle.model import Base
from tests.oracle.values import same_bag, table_rows
from tests.properties.case import write
from tests.properties.histories import Histories
from tests.properties.schemas import BaseTable, Column

TABLES = [
    BaseTable(
        "t",
        (Column("k", "int"), Column("g", "int"), Column("a", "int"), Column("b", "int"), Column("s", "string")),
        ("k",),
    ),
    BaseTable("u", (Column("k", "int"), Column("a", "int"), Column("b", "int")), ("k",)),
]
HISTORIES = 240
CHUNK = 20


@dataclass(frozen=True)
class Fallible:
    """Spark's text, a DuckDB text that cannot fail, and when Spark's fails (never NULL)."""

    spark: str
    safe: str
    fails: str


def _fallible(rng: Random, alias: str, strings: bool) -> Fallible:
    """A division, a remainder, a cast, an overflow, or one of them behind a guard."""
    a, b = (f"{alias}.{c}" for c in rng.sample(("a", "b"), 2))
    zero = f"coalesce({b} = 0 AND {a} IS NOT NULL, false)"
    kind = rng.randrange(6 if strings else 5)
    if kind == 0:
        return Fallible(f"{a} / {b}", f"{a} / nullif({b}, 0)", zero)
    if kind == 1:
        return Fallible(f"{a} % {b}", f"{a} % nullif({b}, 0)", zero)
    if kind == 2:
        far = f"(CAST({a} AS BIGINT) + 2147483644)"
        over = f"coalesce({far} > 2147483647, false)"
        return Fallible(f"{a} + 2147483644", f"CASE WHEN {over} THEN NULL ELSE {far} END", over)
    if kind == 3:
        return Fallible(f"CASE WHEN {b} <> 0 THEN {a} / {b} END", f"{a} / nullif({b}, 0)", "false")
    if kind == 4:
        return Fallible(
            f"coalesce({a}, 1 / {b})", f"coalesce({a}, 1 / nullif({b}, 0))", f"coalesce({a} IS NULL AND {b} = 0, false)"
        )
    number = f"TRY_CAST(trim({alias}.s) AS INTEGER)"
    return Fallible(f"CAST({alias}.s AS INT)", number, f"({alias}.s IS NOT NULL AND {number} IS NULL)")


@dataclass(frozen=True)
class View:
    """A view, a DuckDB query for its rows, and one for the size of its quarantine."""

    spark: str
    rows: str
    quarantine: str


def _view(rng: Random) -> View:
    kind = rng.randrange(5)
    one, two = (_fallible(rng, "t", strings=True) for _ in range(2))
    fails = f"({one.fails} OR {two.fails})"
    if kind == 0:
        return View(
            f"SELECT t.k, {one.spark} AS x, {two.spark} AS y FROM t",
            f"SELECT t.k, {one.safe} AS x, {two.safe} AS y FROM t WHERE NOT {fails}",
            f"SELECT count(*) FROM t WHERE {fails}",
        )
    if kind == 1:
        return View(
            f"SELECT t.k, t.g FROM t WHERE {one.spark} > 1",
            f"SELECT t.k, t.g FROM t WHERE NOT {one.fails} AND {one.safe} > 1",
            f"SELECT count(*) FROM t WHERE {one.fails}",
        )
    if kind == 2:
        return View(
            f"SELECT t.g, max({one.spark}) AS x, count({two.spark}) AS y, count(*) AS n FROM t GROUP BY t.g",
            f"SELECT t.g, max({one.safe}) AS x, count({two.safe}) AS y, count(*) AS n FROM t GROUP BY t.g"
            f" HAVING NOT bool_or({fails})",
            f"SELECT count(*) FROM (SELECT 1 FROM t GROUP BY t.g HAVING bool_or({fails}))",
        )
    other = _fallible(rng, "u", strings=False)
    both = f"({one.fails} OR {other.fails})"
    join = rng.choice(("JOIN", "LEFT JOIN"))
    if kind == 3:
        # On the padded side the columns of u are NULL, and nothing of them fails.
        return View(
            f"SELECT t.k, u.k AS uk, {one.spark} AS x, {other.spark} AS y FROM t {join} u ON t.g = u.a",
            f"SELECT t.k, u.k AS uk, {one.safe} AS x, {other.safe} AS y FROM t {join} u ON t.g = u.a WHERE NOT {both}",
            f"SELECT count(*) FROM t {join} u ON t.g = u.a WHERE {both}",
        )
    return View(
        f"SELECT u.b, sum({one.spark}) AS x, min({other.spark}) AS y FROM t JOIN u ON t.g = u.a GROUP BY u.b",
        f"SELECT u.b, sum({one.safe}) AS x, min({other.safe}) AS y FROM t JOIN u ON t.g = u.a GROUP BY u.b"
        f" HAVING NOT bool_or({both})",
        f"SELECT count(*) FROM (SELECT 1 FROM t JOIN u ON t.g = u.a GROUP BY u.b HAVING bool_or({both}))",
    )


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    made = Oracle()
    yield made
    made.close()


@pytest.mark.parametrize("first", range(0, HISTORIES, CHUNK))
def test_failing_rows_and_groups_come_and_go(first: int, oracle: Oracle) -> None:
    for seed in range(first, first + CHUNK):
        _history(seed, oracle)


def _history(seed: int, oracle: Oracle) -> None:
    rng = Random(seed)
    history, model = Histories(rng, TABLES), Base()
    views = [_view(rng) for _ in range(3)]
    with belvedere.open(clock=clock()) as db:
        for table in TABLES:
            db.execute(table.ddl())
            model.create(table.ddl())
        for number, view in enumerate(views):
            db.execute(f"CREATE MATERIALIZED VIEW v{number} AS {view.spark}")
        db.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM v0")
        for epoch in range(7):
            token = None
            for step in history.epoch() if epoch else history.load():
                token = write(db, step)
                model.write(step.table, step.rows, step.deletes, step.ts)
            db.wait(token)
            for shown in model.tables.values():
                oracle.show(shown.name, arrow_of(shown))
            where = f"seed {seed}, epoch {epoch}"
            for number, view in enumerate(views):
                difference = same_bag(table_rows(db.scan(f"v{number}")), oracle.rows(view.rows))
                assert difference is None, f"{where}: {view.spark}: {difference}"
                ((wanted,),) = oracle.rows(view.quarantine)
                assert db.quarantine(f"v{number}").num_rows == wanted, f"{where}: quarantine of {view.spark}"
            ((wanted,),) = oracle.rows(f"SELECT count(*) FROM ({views[0].rows})")
            assert db.scan("above").to_pylist() == [{"n": wanted}], f"{where}: a view over {views[0].spark}"
