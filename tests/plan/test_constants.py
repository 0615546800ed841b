"""Equality of constants in plans: the same type and the same bits, so no view ever shows another one's constant."""

from __future__ import annotations

import json
import math
import pickle
import struct
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import belvedere
from belvedere.embedded.storage.plans import plan_json, plan_of
from belvedere.engine.expr.evaluate import evaluate_all
from belvedere.engine.expr.literal import to_pylist
from belvedere.engine.graph import digest
from belvedere.plan.nodes import Plan, ProjectionNode, ViewNode
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query
from belvedere.sql.catalog import ViewDef
from belvedere.sql.expr import Call, Literal
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, decimal
from tests.sql.support import catalog_of

TABLES = (
    "CREATE TABLE t (id INT PRIMARY KEY, s STRING, d DOUBLE)",
    "CREATE TABLE u (id INT PRIMARY KEY, s STRING)",
)
CATALOG = catalog_of(*TABLES)

CONSTANTS = {
    "cast('0' AS DOUBLE)": "0.0",
    "cast('-0' AS DOUBLE)": "-0.0",
    "1": "1",
    "1e0": "1.0",
    "1.0": "1.0",
    "1.00": "1.00",
    "cast(1 AS DECIMAL(10,3))": "1.000",
    "true": "true",
    "'1'": "1",
    "X'31'": "1",
    "-0.0": "0.0",
    "0.00": "0.00",
    "date '2024-01-01'": "2024-01-01",
    "timestamp '2024-01-01'": "2024-01-01 00:00:00",
    "cast('NaN' AS DOUBLE)": "NaN",
}
"""Constants, many of which Python takes for equal, and how each looks as a string."""

ALIKE = ("cast('0' AS DOUBLE)", "cast('-0' AS DOUBLE)", "1e0", "1.00", "true")
"""Those that are tried in every place; databases take a moment for each view."""

PLACES = {
    "select": ("SELECT id, cast({c} AS STRING) AS s FROM t", "text"),
    "case": ("SELECT id, cast(CASE WHEN id > 0 THEN {c} END AS STRING) AS s FROM t", "text"),
    "where": ("SELECT id FROM t WHERE cast({c} AS STRING) = '{text}'", "row"),
    "in": ("SELECT id FROM t WHERE '{text}' IN (s, cast({c} AS STRING))", "row"),
    "group": ("SELECT min(id) AS id, cast({c} AS STRING) AS s FROM t GROUP BY cast({c} AS STRING)", "text"),
    "aggregate": ("SELECT id, min(cast({c} AS STRING)) AS s FROM t GROUP BY id", "text"),
    "filter": ("SELECT count(*) FILTER (WHERE cast({c} AS STRING) = '{text}') AS n FROM t", "row"),
    "distinct": ("SELECT DISTINCT abs(id) AS id, cast({c} AS STRING) AS s FROM t", "text"),
    "residual": (
        "SELECT t.id FROM t JOIN u ON t.id = u.id AND t.s || cast({c} AS STRING) = u.s || '{text}'",
        "row",
    ),
    "join key": ("SELECT t.id FROM t JOIN u ON t.s || cast({c} AS STRING) = u.s || '{text}'", "row"),
    "having": ("SELECT id FROM t GROUP BY id HAVING concat(min(s), cast({c} AS STRING)) = 'a{text}'", "row"),
    "union": ("SELECT id, cast({c} AS STRING) AS s FROM t UNION ALL SELECT id, s FROM u WHERE id < 0", "text"),
}


def _views() -> dict[str, tuple[str, list[tuple[object, ...]]]]:
    """Query and expected rows of each of these constants in every place."""
    found = {}
    for i, (template, kind) in enumerate(PLACES.values()):
        for j, constant in enumerate(ALIKE):
            text = CONSTANTS[constant]
            rows = [(1, text)] if kind == "text" else [(1,)]
            found[f"v_{i}_{j}"] = (template.format(c=constant, text=text), rows)
    return found


def _rows(database: belvedere.Database, name: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in database.scan(name).to_pylist()]


@pytest.mark.parametrize("backwards", [False, True])
def test_no_view_shows_the_constant_of_another(backwards: bool, tmp_path: Path) -> None:
    views = _views()
    names = sorted(views, reverse=backwards)
    with belvedere.open(tmp_path / "db") as database:
        for sql in TABLES:
            database.execute(sql)
        for name in names:
            database.execute(f"CREATE MATERIALIZED VIEW {name} AS {views[name][0]}", wait=False)
        database.put("u", [{"id": 1, "s": "a"}])
        database.wait(database.put("t", [{"id": 1, "s": "a", "d": 1.0}]))
        shown = {name: _rows(database, name) for name in names}
        assert shown == {name: views[name][1] for name in names}
    with belvedere.open(tmp_path / "db") as database:  # the plan comes back from a snapshot
        database.wait(database.put("t", [{"id": 1, "s": "a", "d": 2.0}]))
        assert {name: _rows(database, name) for name in names} == shown


def test_constants_of_one_select_list_stay_apart() -> None:
    columns = ", ".join(f"cast({c} AS STRING) AS c{i}" for i, c in enumerate(CONSTANTS))
    with belvedere.open() as database:
        database.execute(TABLES[0])
        database.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, {columns} FROM t")
        database.wait(database.put("t", [{"id": 1}]))
        assert _rows(database, "v") == [(1, *CONSTANTS.values())]


def _plans(*queries: str) -> list[ViewNode]:
    definitions = [ViewDef("v", sql, bind_query(sql, CATALOG)) for sql in queries]
    return [plan_views(CATALOG, [view], Plan(()))[0] for view in definitions]


def test_plans_differ_by_the_sign_of_zero_alone() -> None:
    plus, minus = _plans("SELECT id, d + 0e0 AS x FROM t", "SELECT id, d + -0e0 AS x FROM t")
    assert plus != minus
    assert digest(plus, {}) != digest(minus, {})


def test_a_nan_equals_itself_in_plans() -> None:
    first, second = _plans("SELECT id FROM t WHERE isnan(d)", "SELECT id FROM t WHERE isnan(d)")
    assert first == second
    grouped = bind_query("SELECT isnan(d) AS x, count(*) AS n FROM t GROUP BY isnan(d)", CATALOG)
    assert [c.name for c in grouped.schema] == ["x", "n"]


LITERALS = [
    Literal(0.0, DOUBLE),
    Literal(-0.0, DOUBLE),
    Literal(math.nan, DOUBLE),
    Literal(1.0, DOUBLE),
    Literal(1, INT),
    Literal(1, BIGINT),
    Literal(True, BOOLEAN),
    Literal(Decimal(1), decimal(10, 0)),
    Literal(Decimal(1), decimal(10, 1)),
    Literal(Decimal(1), decimal(11, 1)),
    Literal(Decimal(1), decimal(38, 20)),
    Literal("1", STRING),
    Literal(b"1", BINARY),
    Literal("", STRING),
    Literal(b"", BINARY),
    Literal(date(2024, 1, 1), DATE),
    Literal(datetime(2024, 1, 1, tzinfo=UTC), TIMESTAMP),
    *(Literal(None, t) for t in (INT, BIGINT, DOUBLE, STRING, decimal(10, 1), decimal(10, 2))),
]


def test_constants_of_other_types_or_bits_are_not_equal() -> None:
    for i, a in enumerate(LITERALS):
        assert [a == b for b in LITERALS] == [i == j for j in range(len(LITERALS))]
    assert len(set(LITERALS)) == len(LITERALS)
    assert len({Literal(Decimal("1.0"), decimal(10, 2)), Literal(Decimal("1.00"), decimal(10, 2))}) == 1
    odd = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
    assert Literal(odd, DOUBLE) == Literal(math.nan, DOUBLE)
    assert struct.pack(">d", Literal(odd, DOUBLE).value) == bytes.fromhex("7ff8000000000000")


def test_equal_constants_are_written_alike() -> None:
    a, b = Literal(Decimal("1E+2"), decimal(10, 2)), Literal(Decimal("100.000"), decimal(10, 2))
    assert a == b and repr(a) == repr(b) and str(a.value) == "100.00"
    assert str(Literal(Decimal("-0"), decimal(10, 2)).value) == "0.00"
    assert str(Literal(Decimal("-" + "9" * 38), decimal(38, 0)).value) == "-" + "9" * 38


def test_a_program_keeps_constants_apart() -> None:
    texts = [Call("cast", (literal,), STRING) for literal in LITERALS[:2]]
    assert [to_pylist(v) for v in evaluate_all(texts, [], 1)] == [["0.0"], ["-0.0"]]


@pytest.mark.parametrize("literal", LITERALS, ids=repr)
def test_constants_survive_snapshots_and_pickles(literal: Literal) -> None:
    (plan,) = _plans("SELECT id, coalesce(d, 0e0) AS x FROM t")
    assert isinstance(plan.input, ProjectionNode)
    view = replace(plan, input=replace(plan.input, exprs=(plan.input.exprs[0], literal)))
    for again in (plan_of(json.loads(json.dumps(plan_json([view]))))[0], pickle.loads(pickle.dumps(view))):
        assert again == view
        assert digest(again, {}) == digest(view, {})
        found = again.input.exprs[1]
        assert (repr(found.value), found.type) == (repr(literal.value), literal.type)


def test_a_negated_constant_keeps_all_digits() -> None:
    with belvedere.open() as database:
        database.execute(TABLES[0])
        digits = "-12345678901234567890123456789012345678"
        database.execute(f"CREATE MATERIALIZED VIEW v AS SELECT id, {digits} AS x, cast(-0.00 AS STRING) AS z FROM t")
        database.wait(database.put("t", [{"id": 1}]))
        assert _rows(database, "v") == [(1, Decimal(digits), "0.00")]
