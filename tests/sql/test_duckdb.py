"""Bound queries run in DuckDB: the text means what Spark means, edge by edge."""

from __future__ import annotations

import itertools
from datetime import date, datetime
from decimal import Decimal as D
from typing import Any

import duckdb
import pytest

from belvedere.sql import bind_query, parse_statement
from belvedere.sql.adhoc import select_to_duckdb
from belvedere.sql.duckdb import to_duckdb
from belvedere.sql.duckdb_forms import type_name
from belvedere.sql.statements import Select
from tests.sql.support import CATALOG

Row = tuple[Any, ...]
ROW = (
    7,
    -3,
    "héllo wörld",
    D("-2.25"),
    D("3.5"),
    date(2024, 1, 31),
    2.5,
    datetime(2024, 1, 31, 10, 11, 12, 500000),
    True,
)
T_ROWS: list[Row] = [(*ROW, b"\x00\xff"), (8, *(None,) * 9)]


def quoted(name: str) -> str:
    return f'"{name}"'


def connection(**tables: list[Row]) -> duckdb.DuckDBPyConnection:
    """A DuckDB with the tables of the test catalog and the given rows."""
    con = duckdb.connect()
    for table in CATALOG.tables.values():
        columns = ", ".join(f'"{c.name}" {type_name(c.type)}' for c in table.columns)
        con.execute(f'CREATE TABLE "{table.name}" ({columns})')
        rows = tables.get(table.name, [])
        if rows:
            con.executemany(f'INSERT INTO "{table.name}" VALUES ({", ".join("?" * len(table.columns))})', rows)
    return con


def run(con: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    """Rows in a fixed order."""
    return sorted(con.execute(to_duckdb(bind_query(sql, CATALOG), quoted)).fetchall(), key=repr)


EXPRESSIONS: list[tuple[str, Any, Any]] = [
    # expression, value in the full row, value in the row of NULLs
    ("a + b", 4, None),
    ("-7 DIV 2", -3, -3),
    ("-7 % 3", -1, -1),
    ("pmod(b, 2)", 1, None),
    ("b / 2", -1.5, None),
    ("p / 3", D("-0.750000"), None),
    ("q / 0.3", D("11.666667"), None),
    ("p / a", D("-0.3214285714286"), None),
    ("p * q", D("-7.875"), None),
    ("p + 0.005", D("-2.245"), None),
    ("p % 2", D("-0.25"), None),
    ("pmod(p, 2)", D("1.75"), None),
    ("round(p, 1)", D("-2.3"), None),
    ("round(x)", 3.0, None),
    ("round(a, -1)", 10, 10),
    ("floor(p)", D("-3"), None),
    ("ceil(x)", 3, None),
    ("cast(x AS int)", 2, None),
    ("cast(p AS int)", -2, None),
    ("cast(p AS string)", "-2.25", None),
    ("cast(q AS decimal(3,0))", D("4"), None),
    ("cast(a AS decimal(10,2))", D("7.00"), D("8.00")),
    ("cast(f AS int)", 1, None),
    ("cast(b AS boolean)", True, None),
    ("cast(ts AS date)", date(2024, 1, 31), None),
    ("cast(ts AS string)", "2024-01-31 10:11:12.5", None),
    ("cast(ts AS bigint)", 1706695872, None),
    ("cast(d AS timestamp)", datetime(2024, 1, 31), None),
    ("try_cast(s AS int)", None, None),
    ("cast(' 12 ' AS int)", 12, 12),
    ("sqrt(b) <=> double('NaN')", True, False),
    ("ln(b)", None, None),
    ("greatest(a, b, NULL)", 7, 8),
    ("least(p, x)", -2.25, None),
    ("abs(p)", D("2.25"), None),
    ("sign(p)", -1.0, None),
    ("power(x, 2)", 6.25, None),
    ("substring(s, 2, 3)", "éll", None),
    ("substring(s, 0, 2)", "hé", None),
    ("substring(s, -3)", "rld", None),
    ("substring(s, -20, 11)", "hé", None),
    ("substring(s, cast(b AS int), 2)", "rl", None),
    ("substring(s, 2, -1)", "", None),
    ("left(s, -1)", "", None),
    ("right(s, 2)", "ld", None),
    ("right(s, 0)", "", None),
    ("right(s, a)", "o wörld", None),
    ("length(s)", 11, None),
    ("length(bin)", 2, None),
    ("upper(s)", "HÉLLO WÖRLD", None),
    ("initcap('heLLo  wOrld x')", "Hello  World X", "Hello  World X"),
    ("trim('  a ')", "a", "a"),
    ("trim(LEADING 'h' FROM s)", "éllo wörld", None),
    ("rtrim('dl', s)", "héllo wör", None),
    ("lpad(s, 3, '*')", "hél", None),
    ("lpad('a', 4, 'xy')", "xyxa", "xyxa"),
    ("rpad('a', 4, '')", "a", "a"),
    ("rpad('a', -1, 'x')", "", ""),
    ("repeat('ab', 2)", "abab", "abab"),
    ("repeat('ab', cast(b AS int))", "", None),
    ("reverse('abc')", "cba", "cba"),
    ("instr(s, 'l')", 3, None),
    ("instr(s, '')", 1, None),
    ("replace(s, 'l', '')", "héo wörd", None),
    ("s LIKE 'h_llo%'", True, None),
    ("'a_b' LIKE 'a\\\\_b'", True, True),
    ("'axb' LIKE 'a\\\\_b'", False, False),
    ("'a%' LIKE 'a!%' ESCAPE '!'", True, True),
    ("startswith(s, 'hé')", True, None),
    ("concat(s, '!', a)", "héllo wörld!7", None),
    ("coalesce(s, '-')", "héllo wörld", "-"),
    ("nullif(a, 7)", None, 8),
    ("CASE WHEN f THEN 'y' ELSE 'n' END", "y", "n"),
    ("f IS NOT TRUE", False, True),
    ("b NOT IN (1, NULL)", None, None),
    ("b IN (-3, NULL)", True, None),
    ("a <=> NULL", False, False),
    ("year(d)", 2024, None),
    ("quarter(d)", 1, None),
    ("dayofweek(d)", 4, None),
    ("weekday(d)", 2, None),
    ("weekofyear(d)", 5, None),
    ("dayofyear(d)", 31, None),
    ("second(ts)", 12, None),
    ("d + INTERVAL '1' MONTH", date(2024, 2, 29), None),
    ("d + 1", date(2024, 2, 1), None),
    ("ts + INTERVAL '1' MONTH", datetime(2024, 2, 29, 10, 11, 12, 500000), None),
    ("ts - INTERVAL '90' MINUTE", datetime(2024, 1, 31, 8, 41, 12, 500000), None),
    ("datediff(d, '2024-01-01')", 30, None),
    ("last_day(add_months(d, 1))", date(2024, 2, 29), None),
    ("trunc(d, 'quarter')", date(2024, 1, 1), None),
    ("trunc(d, 'week')", date(2024, 1, 29), None),
    ("date_trunc('hour', ts)", datetime(2024, 1, 31, 10), None),
    ("TIMESTAMP '2024-01-31 12:00:00+02:00'", datetime(2024, 1, 31, 10), datetime(2024, 1, 31, 10)),
    ("X'00ff' = bin", True, None),
    ("'' || NULL", None, None),
]


@pytest.mark.parametrize(("expression", "full", "empty"), EXPRESSIONS, ids=lambda v: str(v)[:40])
def test_expressions(expression: str, full: Any, empty: Any) -> None:
    con = connection(t=T_ROWS)
    found = dict(run(con, f"SELECT a, {expression} AS e FROM t"))
    assert [(v, type(v)) for v in (found[7], found[8])] == [(v, type(v)) for v in (full, empty)]


def test_result_types_are_those_of_the_binder() -> None:
    con = connection(t=T_ROWS)
    for expression, _, _ in EXPRESSIONS:
        query = bind_query(f"SELECT {expression} AS e FROM t", CATALOG)
        result = con.execute(f"DESCRIBE {to_duckdb(query, quoted)}").fetchall()
        assert result[0][1] == type_name(query.schema[0].type), expression


def test_errors_stop_the_query() -> None:
    con = connection(t=T_ROWS)
    for expression in (
        "a / (a - 7)",
        "p / (p - p)",
        "a % (a - 7)",
        "a DIV (b + 3)",
        "cast(s AS int)",
        "a * 2147483647",
    ):
        with pytest.raises(duckdb.Error):
            run(con, f"SELECT {expression} AS e FROM t")
    assert run(con, "SELECT CASE WHEN a = 7 THEN 0 ELSE 1 / (a - 7) END AS e FROM t") == [(0.0,), (1.0,)]


def test_aggregates() -> None:
    rows: list[Row] = [(1, "x", 1), (1, "y", 2), (1, "z", None), (2, "x", None), (3, "x", 5), (3, "y", 5)]
    con = connection(u=rows)
    assert run(con, "SELECT a, count(*), count(n), sum(n), avg(n), min(c), count(DISTINCT n) FROM u GROUP BY a") == [
        (1, 3, 2, 3, 1.5, "x", 2),
        (2, 1, 0, None, None, "x", 0),
        (3, 2, 2, 10, 5.0, "x", 1),
    ]
    assert run(con, "SELECT count(*) FILTER (WHERE c = 'x') AS x, sum(DISTINCT n) AS s FROM u") == [(3, 8)]
    assert run(con, "SELECT count(*) AS n, sum(n) AS s FROM u WHERE a > 99") == [(0, None)]
    assert run(con, "SELECT 'k' AS k, count(*) AS n FROM u GROUP BY 'k'") == [("k", 6)]
    assert run(con, "SELECT a FROM u GROUP BY a HAVING sum(n) > 4 OR count(n) = 0") == [(2,), (3,)]


def test_decimal_averages_round_half_up() -> None:
    rows: list[Row] = [
        (i, i % 2, None, v, *(None,) * 6) for i, v in enumerate([D("0.01"), D("-0.01"), D("0.02"), None])
    ]
    con = connection(t=rows)
    assert run(con, "SELECT b, avg(p), sum(p) / count(p) FROM t GROUP BY b") == [
        (0, D("0.015000"), D("0.015000000000000000")),
        (1, D("-0.010000"), D("-0.010000000000000000")),
    ]
    assert run(con, "SELECT avg(p) AS v FROM t WHERE a = 3") == [(None,)]


def naive_not_in(left: list[int | None], right: list[int | None]) -> list[int | None]:
    """Three-valued NOT IN, row by row."""
    kept = []
    for x in left:
        if not right or (x is not None and None not in right and x not in right):
            kept.append(x)
    return kept


def test_not_in_with_nulls_is_exact() -> None:
    values: list[int | None] = [None, 1, 2]
    for size in range(3):
        for right in itertools.product(values, repeat=size):
            u: list[Row] = [(i, "u", v) for i, v in enumerate(right)]
            t: list[Row] = [(i, v, *(None,) * 8) for i, v in enumerate(values)]
            con = connection(t=t, u=u)
            expected = sorted(((v,) for v in naive_not_in(values, list(right))), key=repr)
            assert run(con, "SELECT b FROM t WHERE b NOT IN (SELECT n FROM u)") == expected
            assert run(con, "SELECT b FROM t WHERE b NOT IN (SELECT n FROM u WHERE u.a + t.a >= 0)") == expected


def test_correlated_not_in_looks_at_its_own_rows_only() -> None:
    t: list[Row] = [(1, 5, *(None,) * 8), (2, None, *(None,) * 8), (3, 5, *(None,) * 8), (4, 5, *(None,) * 8)]
    u: list[Row] = [(1, "x", None), (3, "x", 5), (4, "x", 6)]
    con = connection(t=t, u=u)
    assert run(con, "SELECT a FROM t WHERE b NOT IN (SELECT n FROM u WHERE u.a = t.a)") == [(2,), (4,)]


def test_joins_and_subqueries() -> None:
    u: list[Row] = [(1, "x", 10), (1, "y", 20), (2, "x", None)]
    w: list[Row] = [(10, 1), (30, 3)]
    con = connection(u=u, w=w)
    assert run(con, "SELECT c, k FROM u LEFT JOIN w ON n = k AND v > 0") == [("x", 10), ("x", None), ("y", None)]
    assert run(con, "SELECT a, k FROM u RIGHT JOIN w ON n = k") == [(1, 10), (None, 30)]
    assert run(con, "SELECT a, k FROM u FULL JOIN w ON n = k") == [(1, 10), (1, None), (2, None), (None, 30)]
    assert run(con, "SELECT a, c FROM u WHERE EXISTS (SELECT 1 FROM w WHERE k = n)") == [(1, "x")]
    assert run(con, "SELECT a, c FROM u WHERE NOT EXISTS (SELECT 1 FROM w WHERE v > 5)") == [
        (1, "x"),
        (1, "y"),
        (2, "x"),
    ]
    assert run(con, "SELECT c FROM u WHERE n IN (SELECT k FROM w) AND a = 1") == [("x",)]
    assert run(con, "SELECT x.c, y.c FROM u x, u y WHERE x.a = y.a AND x.c < y.c") == [("x", "y")]
    assert run(con, "SELECT c FROM u UNION SELECT 'z' FROM w") == [("x",), ("y",), ("z",)]
    assert (
        run(con, "SELECT * FROM (SELECT a FROM u) p JOIN (SELECT a, n FROM u) q USING (a) WHERE n = 20")
        == [(1, 20)] * 2
    )
    assert run(con, "SELECT a FROM u LEFT ANTI JOIN w ON n = k") == [(1,), (2,)]


def test_ordered_adhoc_query() -> None:
    con = connection(u=[(1, "x", 10), (1, "y", 20), (2, "x", None)])
    select = parse_statement("SELECT n AS nn FROM u ORDER BY nn DESC LIMIT 2", CATALOG)
    assert isinstance(select, Select)
    assert con.execute(select_to_duckdb(select, quoted)).fetchall() == [(20,), (10,)]


def test_timestamps_with_a_time_zone_are_read_as_utc() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE t AS SELECT TIMESTAMPTZ '2024-01-31 10:00:00+00' AS ts")
    query = bind_query("SELECT ts, hour(ts) AS h FROM t", CATALOG)
    inner = "(SELECT 1 AS a, 1 AS b, '' AS s, 1 AS p, 1 AS q, NULL AS d, 1 AS x, ts, true AS f, NULL AS bin FROM t)"
    assert con.execute(to_duckdb(query, lambda _: inner)).fetchall() == [(datetime(2024, 1, 31, 10), 10)]
