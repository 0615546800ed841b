"""Whatever is refused: the message has a position, a hint and the words of the text, never a name of the inside."""

from __future__ import annotations

import re

import pytest
from sqlglot import exp

from belvedere.errors import SqlError, UnsupportedSql
from belvedere.plan import nodes as n
from belvedere.plan.planner import plan_views
from belvedere.sql import bind_query, functions, parse_statement
from belvedere.sql.catalog import ViewDef
from belvedere.sql.manifest import parse_manifests
from belvedere.sql.refusals import KINDS, OWN_PARTS, PARTS
from tests.sql.support import CATALOG, bound, refused, shape

REFUSED = r"""
SELECT a FROM t UNION ALL BY NAME SELECT a FROM u
SELECT a FROM t FOR UPDATE
SELECT AS STRUCT a FROM t
SELECT a FROM t START WITH a = 1 CONNECT BY PRIOR a = b
SELECT t.a FROM t OUTER JOIN u ON t.a = u.a
SELECT t.a FROM t LEFT INNER JOIN u ON t.a = u.a
SELECT t.a FROM t LEFT CROSS JOIN u
SELECT t.a FROM t CROSS JOIN u ON t.a = u.a
SELECT a FROM t@v1
SELECT a BETWEEN SYMMETRIC 9 AND 1 FROM t
SELECT substring('abc', 1, 1, 2) FROM t
SELECT frobnicate(a) FILTER (WHERE f) FROM t
SELECT stddev(a) FILTER (WHERE f) FROM t
SELECT upper(s) FILTER (WHERE f) FROM t
SELECT a FROM range(10)
SELECT a FROM explode(s)
SELECT a FROM TABLE(f(1))
SELECT explode(s) FROM t
SELECT t.a FROM t ASOF JOIN u ON t.a >= u.a
SELECT t.a FROM t GLOBAL JOIN u ON t.a = u.a
SELECT t.a FROM t ANY JOIN u ON t.a = u.a
SELECT /*+ BROADCAST(t) */ a FROM t
SELECT a FROM t GROUP BY a WITH ROLLUP
SELECT a FROM t GROUP BY a WITH CUBE
SELECT a FROM t GROUP BY a WITH TOTALS
SELECT a FROM t GROUP BY DISTINCT a
SELECT a & 1 FROM t
SELECT ~a FROM t
SELECT a ^ 1 FROM t
SELECT s COLLATE utf8 FROM t
SELECT ts AT TIME ZONE 'UTC' FROM t
SELECT s:b FROM t
SELECT s -> 'x' FROM t
SELECT array(1,2) FROM t
SELECT [1,2] FROM t
SELECT s[0] FROM t
SELECT {'a': 1} FROM t
SELECT N'abc' FROM t
SELECT b'01' FROM t
SELECT count(a ORDER BY a) FROM t
SELECT first(a IGNORE NULLS) FROM t
SELECT sum(a) IGNORE NULLS FROM t
SELECT max(a) WITHIN GROUP (ORDER BY a) FROM t
SELECT sum(a LIMIT 1) FROM t
SELECT max(a HAVING MAX b) FROM t
SELECT cast(d AS STRING FORMAT 'YYYY') FROM t
SELECT cast(s AS varchar(2)) FROM t
SELECT cast(s AS struct<a: int>) FROM t
SELECT try_cast(s AS int(3)) FROM t
SELECT convert(a, int) FROM t
SELECT a FROM t FOR SYSTEM_TIME AS OF '2020'
SELECT a FROM t VERSION AS OF 3
SELECT a FROM t TIMESTAMP AS OF '2020'
SELECT a FROM t TABLESAMPLE (10 ROWS)
SELECT a FROM t UNPIVOT (x FOR y IN (a, b))
SELECT a FROM t WINDOW w AS (ORDER BY a)
SELECT a FROM ONLY t
SELECT a FROM t *
SELECT a FROM . t
SELECT AS a FROM t
SELECT a AS FROM t
SELECT a AS (x, y) FROM t
SELECT x.* FROM t AS x (a, b, c)
WITH q AS MATERIALIZED (SELECT a FROM t) SELECT a FROM q
WITH q AS NOT MATERIALIZED (SELECT a FROM t) SELECT a FROM q
WITH q AS (SELECT a FROM t) SEARCH DEPTH FIRST BY a SET o SELECT a FROM q
SELECT a FROM t WHERE s LIKE ANY ('a', 'b')
SELECT a FROM t WHERE s LIKE ALL ('a', 'b')
SELECT a FROM t WHERE s SIMILAR TO 'a'
SELECT a FROM t WHERE a IS JSON
SELECT a FROM t WHERE a IS UNKNOWN
SELECT a FROM t WHERE s REGEXP 'a'
SELECT a FROM t WHERE a IN UNNEST(b)
SELECT a FROM t WHERE a GLOBAL IN (1)
SELECT a FROM t WHERE (a, b) OVERLAPS (a, b)
SELECT a FROM t WHERE a = :x
SELECT a FROM t WHERE a = $1
SELECT a FROM t WHERE a = @x
SELECT a FROM t WHERE a = @@x
SELECT transform(a, x -> x) FROM t
SELECT f(a => 1) FROM t
SELECT upper(DISTINCT s) FROM t
SELECT upper(s AS x) FROM t
SELECT d + INTERVAL '1-2' YEAR TO MONTH FROM t
SELECT d + INTERVAL '1 day 2 hours' FROM t
SELECT d + INTERVAL 1 fortnight FROM t
SELECT * RENAME (a AS z) FROM t
SELECT * REPLACE (1 AS a) FROM t
SELECT * EXCEPT a FROM t
SELECT count(* EXCEPT (a)) FROM t
SELECT a INTO z FROM t
SELECT TOP 3 a FROM t
SELECT STRAIGHT_JOIN a FROM t
SELECT SQL_NO_CACHE a FROM t
SELECT a FROM t PREWHERE f
SELECT a FROM t SETTINGS x = 1
SELECT a FROM t FORMAT CSV
SELECT a FROM t LIMIT 3 PERCENT
SELECT a FROM t LIMIT 3 BY a
SELECT a FROM t FETCH FIRST 3 ROWS ONLY
SELECT a FROM t FETCH FIRST 3 ROWS WITH TIES
SELECT a FROM t ORDER BY a USING >
SELECT a FROM t ORDER BY a WITH FILL
SELECT a FROM t LIMIT ALL
SELECT a FROM t ORDER BY ALL
SELECT a FROM t SORT BY a
SELECT a FROM t DISTRIBUTE BY a
SELECT a FROM t CLUSTER BY a
SELECT a FROM t, UNNEST(s) x
SELECT a FROM t CROSS APPLY f(a)
SELECT a FROM t, LATERAL f(a)
SELECT a FROM shop.t
SELECT a FROM c.shop.t
SELECT a FROM parquet.`/x`
SELECT a FROM '/x.csv'
SELECT t.a.b.c FROM t
SELECT a FROM t x MATCH_RECOGNIZE (ORDER BY a PATTERN (A) DEFINE A AS a > 1)
SELECT EXISTS(s, x -> x) FROM t
SELECT a FROM t WHERE a(+) = b
SELECT position('a', s, 2) FROM t
SELECT trim(BOTH 'x' FROM s COLLATE u) FROM t
SELECT extract(year, d) FROM t
SELECT if f then 1 else 2 end FROM t
SELECT a ISNULL FROM t
SELECT a XOR b FROM t
SELECT current_user FROM t
SELECT localtimestamp FROM t
SELECT a NOTNULL FROM t
FROM t
TABLE t
VALUES (1)
PIVOT t ON a USING sum(b)
SELECT a FROM t UNION CORRESPONDING SELECT a FROM u
SELECT a FROM t EXCEPT ALL SELECT a FROM u
SELECT sum(a) OVER w FROM t
INSERT OVERWRITE w VALUES (1, 2)
INSERT INTO w PARTITION (k = 1) VALUES (1, 2)
INSERT INTO w BY NAME SELECT 1 AS k
INSERT INTO w REPLACE WHERE k = 1 VALUES (1, 2)
INSERT INTO w VALUES (1, 2) ON CONFLICT DO NOTHING
INSERT INTO w VALUES (1, 2) RETURNING k
INSERT OR REPLACE INTO w VALUES (1, 2)
INSERT IGNORE INTO w VALUES (1, 2)
INSERT INTO shop.w VALUES (1, 2)
INSERT INTO w AS x VALUES (1, 2)
INSERT INTO w (k, v) SELECT a, a FROM t
INSERT INTO w DEFAULT VALUES
INSERT INTO w VALUES (1, DEFAULT)
WITH q AS (SELECT a FROM t) INSERT INTO w SELECT a, a FROM q
DELETE FROM w
DELETE FROM w WHERE k = 1 RETURNING k
DELETE FROM w WHERE k = 1 LIMIT 1
DELETE FROM w WHERE z.k = 1
DELETE FROM shop.w WHERE k = 1
DELETE FROM w USING t WHERE k = 1
DELETE FROM w AS x WHERE x.k = 1
DELETE FROM u WHERE (a, c) IN ((1, 'x')) AND n = 5
DELETE w FROM w WHERE k = 1
TRUNCATE TABLE w
UPDATE w SET v = 1
MERGE INTO w USING t ON true WHEN MATCHED THEN DELETE
CREATE TABLE z (a INT PRIMARY KEY) USING parquet
CREATE TABLE z (a INT PRIMARY KEY) PARTITIONED BY (a)
CREATE TABLE z (a INT PRIMARY KEY DEFAULT 1)
CREATE TABLE z (a INT PRIMARY KEY COMMENT 'x')
CREATE TABLE z (a INT PRIMARY KEY, b VARCHAR(20))
CREATE TABLE z (a INT PRIMARY KEY, b INT CHECK (b > 1))
CREATE TABLE z (a INT PRIMARY KEY, b INT UNIQUE)
CREATE TABLE z (a INT PRIMARY KEY, b INT NULL NOT NULL)
CREATE TABLE z (a INT PRIMARY KEY, UNIQUE (a))
CREATE TEMPORARY TABLE z (a INT PRIMARY KEY)
CREATE TABLE z AS SELECT a FROM t
CREATE MATERIALIZED VIEW v KEY (a) KEY (b) AS SELECT a, b FROM t
CREATE MATERIALIZED VIEW v RETENTION '1h' RETENTION '2h' AS SELECT a FROM t
CREATE MATERIALIZED VIEW v TBLPROPERTIES ('key' = 'a', 'key' = 'b') AS SELECT a, b FROM t
CREATE MATERIALIZED VIEW v COMMENT 'x' AS SELECT a FROM t
CREATE MATERIALIZED VIEW v AS SELECT a FROM t WITH NO DATA
CREATE VIEW v AS SELECT a FROM t
ALTER TABLE w ADD COLUMN c INT FIRST
ALTER TABLE w ADD COLUMN c INT NOT NULL
ALTER TABLE w DROP COLUMN v
DROP TABLE w CASCADE
DROP TABLE w PURGE
SHOW MATERIALIZED TABLES
SHOW TABLES LIKE 'a'
DESCRIBE EXTENDED w
DESCRIBE VIEW w
EXPLAIN ANALYZE SELECT a FROM t
EXPLAIN EXTENDED SELECT a FROM t
""".strip().splitlines()

_INTERNAL = re.compile(r"\$\d|TokenType|sqlglot|\b[a-z]+_(?![a-z(])|<class|object at 0x")
_CLASSES = {name for name in vars(exp) if re.fullmatch(r"([A-Z][a-z]+){2,}", name)}


def _is_user_level(message: str) -> bool:
    return not _INTERNAL.search(message) and not _CLASSES & set(re.findall(r"\w+", message))


@pytest.mark.parametrize("sql", REFUSED)
def test_a_refusal_has_a_position_a_hint_and_words_of_the_text(sql: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse_statement(sql, CATALOG)
    error = caught.value
    assert error.line == 1
    assert error.column is not None and 1 <= error.column <= len(sql)
    assert error.hint, error
    assert _is_user_level(str(error)), error


def test_the_tables_of_refusals_speak_to_users() -> None:
    for refusal in [*KINDS.values(), *PARTS.values(), *OWN_PARTS.values()]:
        assert refusal.hint and _is_user_level(refusal.message + refusal.hint), refusal


def test_a_join_that_cannot_be_maintained_names_the_columns_of_its_condition() -> None:
    for sql, shown in (
        ("SELECT t.a FROM t JOIN w ON t.a > w.k", "found only: t.a > w.k"),
        ("SELECT t.a FROM t JOIN (SELECT n, sum(a) AS m FROM u GROUP BY n) AS q ON t.b < m", "t.b < sum(u.a)"),
        ("SELECT x.a FROM t AS x LEFT JOIN (SELECT k AS z FROM w) AS q ON x.a < z", "found only: t.a < w.k"),
    ):
        view = ViewDef("v", sql, bind_query(sql, CATALOG))
        with pytest.raises(UnsupportedSql) as caught:
            plan_views(CATALOG.with_view(view), [view], n.Plan(()))
        assert shown in str(caught.value)
        assert caught.value.line == 1


def test_btrim_takes_the_characters_second() -> None:
    assert shape(bound("btrim(s, 'x')")) == ("trim_chars", "s", "x")
    assert shape(bound("btrim(s)")) == ("trim", "s")
    refused("SELECT btrim(s, 'x', 'y') FROM t", "function btrim takes 1 to 2 arguments, found 3", (1, 8))


def test_the_hint_lists_every_aggregate() -> None:
    error = refused("SELECT median(x) FROM t", "aggregate function median", (1, 8), kind=UnsupportedSql)
    assert error.hint is not None
    assert all(re.search(rf"\b{name}\b", error.hint) for name in functions.AGGREGATES)


def test_suggestions_are_names_that_begin_alike() -> None:
    assert functions.suggestions("explode") == []
    assert "upper" in functions.suggestions("uper")
    assert "coalesce" in functions.suggestions("colaesce")


def test_columns_left_out_of_a_star_are_left_out_under_in() -> None:
    sql = "SELECT k FROM w WHERE (k, v) IN (SELECT * EXCEPT (c) FROM u)"
    assert repr(bind_query(sql, CATALOG).schema) == repr(bind_query("SELECT k FROM w", CATALOG).schema)
    refused("SELECT k FROM w WHERE k IN (SELECT * EXCEPT (c) FROM u)", "IN compares 1 value with 2 columns", (1, 23))


def test_words_are_not_ignored_in_the_query_of_a_manifest_or_of_explain() -> None:
    query = "SELECT a FROM t WHERE a BETWEEN SYMMETRIC 9 AND 1"
    manifest = (
        f"apiVersion: belvedere.dev/v1alpha1\nkind: MaterializedView\nmetadata: {{name: v}}\nspec:\n  query: {query}\n"
    )
    with pytest.raises(UnsupportedSql, match=r"spec\.query: BETWEEN SYMMETRIC is not supported at line 1, column 33"):
        list(parse_manifests(manifest, lambda: CATALOG))
    for prefix in ("CREATE MATERIALIZED VIEW v AS ", "EXPLAIN ", "EXPLAIN CREATE MATERIALIZED VIEW v AS ", ""):
        with pytest.raises(UnsupportedSql) as caught:
            parse_statement(prefix + query, CATALOG)
        assert caught.value.column == len(prefix) + 33
