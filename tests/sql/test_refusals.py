"""What lies outside the scope, or is a mistake, is refused: where it stands, what was found, what would work."""

from __future__ import annotations

import pytest

from belvedere.errors import UnsupportedSql
from tests.sql.support import refused

UNSUPPORTED = [
    ("SELECT a FROM t ORDER BY a", "ORDER BY is not supported", (1, 17), "sort when you read"),
    ("SELECT a FROM t\n LIMIT 3", "LIMIT is not supported", (2, 2), "limit"),
    ("SELECT a FROM (SELECT a FROM t ORDER BY a) q", "ORDER BY is not supported", (1, 32), None),
    ("SELECT a, rank() OVER (ORDER BY a) FROM t", "window functions", (1, 11), "GROUP BY"),
    ("SELECT sum(a) OVER (PARTITION BY b) FROM t", "window functions", (1, 8), None),
    ("SELECT row_number() FROM t", "window function row_number", (1, 8), None),
    ("SELECT a FROM t QUALIFY a > 1", "QUALIFY", (1, 17), None),
    ("SELECT (SELECT max(a) FROM u) FROM t", "scalar subqueries", (1, 8), "FROM"),
    ("SELECT a FROM t WHERE a > (SELECT max(a) FROM u)", "scalar subqueries", (1, 27), None),
    ("SELECT a FROM t WHERE f OR EXISTS (SELECT 1 FROM u WHERE u.a = t.a)", "EXISTS is only", (1, 28), "AND"),
    ("SELECT a FROM t WHERE f OR a IN (SELECT a FROM u)", "IN (SELECT …) is only", (1, 28), None),
    ("SELECT a FROM t WHERE a > ANY (SELECT a FROM u)", "ANY and SOME", (1, 27), "IN or EXISTS"),
    ("SELECT a FROM t, LATERAL (SELECT a FROM u)", "LATERAL", (1, 18), "join"),
    ("SELECT a FROM t LATERAL VIEW explode(s) e AS y", "LATERAL VIEW", (1, 17), None),
    ("SELECT a FROM t NATURAL JOIN u", "NATURAL JOIN", (1, 17), "USING"),
    ("SELECT a FROM t GROUP BY ROLLUP (a)", "ROLLUP", (1, 26), "UNION ALL"),
    ("SELECT a FROM t GROUP BY a, CUBE (b)", "CUBE", (1, 29), None),
    ("SELECT a FROM t GROUP BY GROUPING SETS ((a), (b))", "GROUPING SETS", (1, 26), None),
    ("SELECT now() FROM t", "function now is not decided by the rows", (1, 8), "store the value"),
    ("SELECT a,\n  current_date FROM t", "function current_date", (2, 3), None),
    ("SELECT a FROM t WHERE ts > current_timestamp()", "function current_timestamp", (1, 28), None),
    ("SELECT rand() FROM t", "function rand", (1, 8), None),
    ("SELECT a, upperr(s) FROM t", "no function upperr", (1, 11), "did you mean upper"),
    (
        "SELECT stddev(x) FROM t",
        "aggregate function stddev",
        (1, 8),
        "any_value, avg, bool_and, bool_or, count, count_if, every, max, mean, min, some, sum",
    ),
    ("SELECT count(DISTINCT a, b) FROM t", "count(distinct …) of several", (1, 8), "SELECT DISTINCT"),
    ("SELECT a FROM t EXCEPT SELECT a FROM u", "EXCEPT", (1, 17), "NOT EXISTS"),
    ("SELECT a FROM t INTERSECT SELECT a FROM u", "INTERSECT", (1, 17), "EXISTS"),
    ("WITH RECURSIVE r AS (SELECT a FROM t) SELECT a FROM r", "WITH RECURSIVE", (1, 6), None),
    ("SELECT DISTINCT ON (a) a FROM t", "DISTINCT ON", (1, 17), None),
    ("SELECT a FROM t TABLESAMPLE (5 PERCENT)", "TABLESAMPLE", (1, 17), None),
    ("SELECT a FROM t PIVOT (sum(a) FOR s IN ('x'))", "PIVOT", (1, 17), "FILTER"),
    ("SELECT a FROM (VALUES (1)) v(a)", "VALUES in FROM", (1, 16), None),
    ("SELECT 1", "SELECT without FROM", (1, 1), None),
    ("SELECT a FROM shop.t", "schema in its name", (1, 15), "bare name"),
    ("SELECT x.y.z FROM t", "too many parts", (1, 8), None),
    ("SELECT s ILIKE 'a' FROM t", "ILIKE", (1, 8), "lower(x) LIKE"),
    ("SELECT s RLIKE 'a' FROM t", "regular expressions", (1, 8), None),
    ("SELECT a FROM t WHERE a = ?", "parameters", (1, 27), None),
    ("SELECT INTERVAL '1' DAY FROM t", "interval can only be added", (1, 17), None),
    ("SELECT d + INTERVAL a DAY FROM t", "interval must be a constant", (1, 21), "date_add"),
    ("SELECT d - d FROM t", "date - date is an interval", (1, 8), "datediff"),
    ("SELECT cast(a AS float) FROM t", "type float", (1, 18), "use double"),
    ("SELECT cast(a AS tinyint) FROM t", "type tinyint", (1, 18), "use int"),
    ("SELECT cast(s AS array<int>) FROM t", "type array<int>", (1, 18), "types:"),
    ("SELECT a FROM t WHERE (a, s) NOT IN (SELECT n, c FROM u)", "NOT IN over several", (1, 24), "NOT EXISTS"),
    (
        "SELECT a FROM t WHERE a IN (SELECT max(n) FROM u WHERE u.a = t.b GROUP BY c)",
        "column 't.b' belongs to the outer query",
        (1, 62),
        "WHERE of an EXISTS or IN",
    ),
    (
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND EXISTS (SELECT 1 FROM w WHERE k = t.b))",
        "more than one level out",
        (1, 101),
        "join",
    ),
]


@pytest.mark.parametrize(("sql", "message", "position", "hint"), UNSUPPORTED, ids=lambda v: str(v)[:60])
def test_sql_outside_the_scope(sql: str, message: str, position: tuple[int, int], hint: str | None) -> None:
    refused(sql, message, position, hint, kind=UnsupportedSql)


MISTAKES = [
    ("SELECT zz FROM t", "no column 'zz'", (1, 8), "columns: a, b"),
    ("SELECT t.cc FROM t", "no column 't.cc'", (1, 8), None),
    ("SELECT bi FROM t", "no column 'bi'", (1, 8), "did you mean bin"),
    ("SELECT y.a FROM t x", "no table 'y'", (1, 8), "tables: x"),
    ("SELECT t.a FROM t x", "no table 't'", (1, 8), "tables: x"),
    ("SELECT y.* FROM t", "no table 'y'", (1, 8), "tables: t"),
    ("SELECT a FROM nope", "no table or view 'nope'", (1, 15), "there is t, u, w"),
    ("SELECT a FROM t\nJOIN uu ON true", "no table or view 'uu'", (2, 6), "did you mean u"),
    ("SELECT a FROM t JOIN u ON t.a = u.a", "column 'a' is ambiguous", (1, 8), "t.a, u.a"),
    ("SELECT 1 FROM t JOIN u USING (b)", "no column 'b'", (1, 31), None),
    ("SELECT a FROM t LEFT JOIN u", "a left join needs a condition", (1, 22), "ON"),
    ("SELECT s FROM t GROUP BY b", "column 's' is neither in GROUP BY", (1, 8), "min(s)"),
    ("SELECT a, count(*) FROM t", "column 'a' is neither in GROUP BY", (1, 8), None),
    ("SELECT b + a FROM t GROUP BY b", "column 'a'", (1, 12), None),
    ("SELECT b FROM t GROUP BY b HAVING a > 1", "column 'a'", (1, 35), None),
    ("SELECT * FROM t GROUP BY a", "column 'b'", (1, 8), None),
    ("SELECT b FROM t GROUP BY 2", "GROUP BY 2 has no such column", (1, 26), "has 1"),
    ("SELECT count(*) FROM t GROUP BY 1", "aggregate function count is not allowed in GROUP BY", (1, 8), None),
    ("SELECT a FROM t WHERE sum(a) > 1", "aggregate function sum is not allowed in WHERE", (1, 23), "HAVING"),
    ("SELECT t.a FROM t JOIN u ON sum(t.a) = 1", "not allowed in ON", (1, 29), None),
    ("SELECT sum(max(a)) FROM t", "aggregate function max is not allowed in an aggregate", (1, 12), "subquery"),
    ("SELECT a FROM t WHERE s", "WHERE must be boolean, found string", (1, 23), "cast"),
    ("SELECT a FROM t WHERE f AND b", "WHERE must be boolean, found bigint", (1, 29), None),
    ("SELECT NOT a FROM t", "the operand of NOT must be boolean", (1, 12), None),
    ("SELECT CASE WHEN a THEN 1 END FROM t", "WHEN must be boolean", (1, 18), None),
    ("SELECT s + s FROM t", "arithmetic needs numbers, found string", (1, 8), "cast"),
    ("SELECT a + f FROM t", "arithmetic needs numbers, found boolean", (1, 12), None),
    ("SELECT d * 2 FROM t", "arithmetic needs numbers, found date", (1, 8), "interval"),
    ("SELECT x DIV 2 FROM t", "div needs integers, found double", (1, 8), None),
    ("SELECT a = d FROM t", "the comparison mixes int and date", (1, 12), "cast"),
    ("SELECT a IN (1, d) FROM t", "IN mixes int and date", (1, 17), None),
    ("SELECT CASE WHEN f THEN a ELSE d END FROM t", "CASE mixes int and date", (1, 32), None),
    ("SELECT coalesce(a, f) FROM t", "coalesce mixes int and boolean", (1, 20), None),
    ("SELECT sum(d) FROM t", "sum needs numbers, found date", (1, 8), "min and max"),
    ("SELECT year(a) FROM t", "argument 1 of year must be date, found int", (1, 13), None),
    ("SELECT date_add(d, x) FROM t", "argument 2 of date_add must be int, found double", (1, 20), "cast"),
    ("SELECT substring(s) FROM t", "function substring takes 2 to 3 arguments, found 1", (1, 18), None),
    ("SELECT upper(s, s) FROM t", "function upper takes 1 argument, found 2", (1, 8), None),
    ("SELECT greatest(a) FROM t", "function greatest takes at least 2 arguments", (1, 8), None),
    ("SELECT round(x, a) FROM t", "argument 2 of round must be a constant", (1, 17), None),
    ("SELECT date_trunc('eon', ts) FROM t", "date_trunc knows no unit 'eon'", (1, 19), "units:"),
    ("SELECT extract(epoch FROM d) FROM t", "extract knows no unit 'epoch'", (1, 27), "units:"),
    ("SELECT extract(second FROM ts) FROM t", "extract knows no unit 'second'", (1, 28), "second(ts)"),
    ("SELECT cast(d AS int) FROM t", "cannot cast date to int", (1, 13), None),
    ("SELECT cast(a AS decimal(40,2)) FROM t", "decimal(40,2) does not exist", (1, 18), "38"),
    ("SELECT DATE '2020-13-01' FROM t", "date '2020-13-01' is not a date", (1, 13), None),
    ("SELECT a, b FROM t UNION ALL SELECT a FROM u", "UNION of 2 and 1 columns", (1, 20), None),
    ("SELECT a FROM t UNION ALL SELECT d FROM t", "column 1 of UNION is int above and date below", (1, 17), "cast"),
    ("SELECT a FROM t WHERE a IN (SELECT a, n FROM u)", "IN compares 1 value with 2 columns", (1, 23), None),
    ("SELECT a FROM t WHERE d IN (SELECT n FROM u)", "the comparison mixes date and int", (1, 23), None),
    ("WITH q AS (SELECT a FROM t), q AS (SELECT a FROM t) SELECT a FROM q", "WITH defines 'q' twice", (1, 30), None),
    ("WITH q(x, y) AS (SELECT a FROM t) SELECT x FROM q", "2 column names for 1 columns", (1, 6), None),
    ("SELECT a FROM t WHERE s LIKE 'x' ESCAPE 'ab'", "ESCAPE needs one character", (1, 41), None),
    ("SELECT upper(s) FILTER (WHERE f) FROM t", "FILTER needs an aggregate", (1, 8), None),
    ("SELECT sum(a) FILTER (WHERE b) FROM t", "FILTER must be boolean", (1, 29), None),
    ("SELECT * EXCEPT (zz) FROM t", "no column 'zz' to leave out", (1, 18), None),
]


@pytest.mark.parametrize(("sql", "message", "position", "hint"), MISTAKES, ids=lambda v: str(v)[:60])
def test_mistakes_in_queries(sql: str, message: str, position: tuple[int, int], hint: str | None) -> None:
    refused(sql, message, position, hint)
