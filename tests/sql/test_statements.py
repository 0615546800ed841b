"""Statements other than queries: definitions, EXPLAIN, SHOW, and writes of constants."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from belvedere.errors import CatalogError, SqlError, UnsupportedSql
from belvedere.sql import parse_script, parse_statement
from belvedere.sql.adhoc import select_to_duckdb
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.statements import (
    AddColumns,
    CreateTable,
    CreateView,
    Delete,
    Describe,
    Drop,
    Explain,
    Insert,
    Select,
    Show,
    Statement,
)
from belvedere.sql.text import create_text
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, TIMESTAMP, Column, decimal
from tests.sql.support import CATALOG, catalog_of, refused


def statement(sql: str, catalog: Catalog = CATALOG) -> Statement:
    return parse_statement(sql, catalog)


def test_create_table() -> None:
    found = statement(
        "CREATE TABLE IF NOT EXISTS `my t` (id LONG, name VARCHAR NOT NULL, n INTEGER, x DOUBLE PRECISION, "
        "price NUMERIC(12, 2), at TIMESTAMP, ok BOOL NULL, PRIMARY KEY (Name, id));"
    )
    assert found == CreateTable(
        TableDef(
            "my t",
            (
                Column("id", BIGINT, False),
                Column("name", STRING, False),
                Column("n", INT),
                Column("x", DOUBLE),
                Column("price", decimal(12, 2)),
                Column("at", TIMESTAMP),
                Column("ok", BOOLEAN),
            ),
            ("name", "id"),
        ),
        if_not_exists=True,
    )


def test_create_table_with_ties() -> None:
    for text, ties in (("", "lineage"), (" TBLPROPERTIES ('ties' = 'value')", "value")):
        found = statement(f"CREATE TABLE m (id BIGINT PRIMARY KEY){text}")
        assert isinstance(found, CreateTable) and found.table.ties == ties
        assert statement(create_text(found.table)) == found
    start = "CREATE TABLE m (id BIGINT PRIMARY KEY) TBLPROPERTIES "
    for text, message, column in (
        ("('ties' = 'seq')", "ties are settled by lineage or value, not by 'seq'", 64),
        ("('ties' = 'value', 'ties' = 'value')", "ties of the table twice", 73),
        ("('owner' = 'me')", "no table property 'owner'", 55),
        ("('ties' = 'value') COMMENT 'x'", "'COMMENT' after the columns is not supported", 73),
    ):
        with pytest.raises(SqlError, match=message) as caught:
            statement(start + text)
        assert (caught.value.line, caught.value.column) == (1, column)


def test_create_view_with_options() -> None:
    found = statement(
        "CREATE OR REPLACE MATERIALIZED VIEW v KEY (b) RETENTION INTERVAL '2' HOUR AS\n"
        "SELECT b, count(*) AS n FROM t GROUP BY b;"
    )
    assert isinstance(found, CreateView) and found.or_replace and not found.if_not_exists
    assert (found.view.name, found.view.key, found.view.retention_ms) == ("v", ("b",), 7_200_000)
    assert found.view.sql == "SELECT b, count(*) AS n FROM t GROUP BY b"
    other = statement(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v TBLPROPERTIES ('key'='B', 'retention'='1h30m') AS SELECT b FROM t"
    )
    assert isinstance(other, CreateView) and other.if_not_exists
    assert (other.view.key, other.view.retention_ms) == (("b",), 5_400_000)


def test_simple_statements() -> None:
    assert statement("DROP TABLE IF EXISTS t") == Drop("table", "t", True)
    assert statement("DROP MATERIALIZED VIEW v;") == Drop("view", "v")
    assert statement("show tables") == Show("tables")
    assert statement("SHOW MATERIALIZED VIEWS") == Show("views")
    assert statement("SHOW CREATE TABLE t") == Show("create", "t")
    assert statement("DESCRIBE TABLE t") == Describe("t")
    assert statement("DESC view") == Describe("view")
    assert statement("ALTER TABLE t ADD COLUMN z INT") == AddColumns("t", (Column("z", INT),))
    both = (Column("y", decimal(5, 1)), Column("z", STRING))
    assert statement("ALTER TABLE t ADD COLUMNS (y DECIMAL(5,1), z STRING)") == AddColumns("t", both)


def test_explain() -> None:
    catalog = catalog_of("CREATE TABLE t (a INT PRIMARY KEY)", "CREATE MATERIALIZED VIEW v AS SELECT a FROM t")
    assert statement("EXPLAIN v", catalog) == Explain(catalog.views["v"])
    found = statement("EXPLAIN FORMAT JSON SELECT a FROM v", catalog)
    assert isinstance(found, Explain) and found.format == "json" and found.view.sql == "SELECT a FROM v"
    made = statement("EXPLAIN FORMAT svg CREATE MATERIALIZED VIEW z AS SELECT a FROM t", catalog)
    assert isinstance(made, Explain) and made.view.name == "z"


def test_insert_converts_constants() -> None:
    found = statement(
        "INSERT INTO t VALUES (1, -2, 'it''s', 1.005, '9.5', DATE '2020-01-02', 3, '2020-01-01 10:00:00', true, "
        "X'0a'), (2, NULL, 7, 2, NULL, '2020-02-03', 1.5, NULL, NULL, NULL)"
    )
    assert isinstance(found, Insert)
    assert found.columns == ("a", "b", "s", "p", "q", "d", "x", "ts", "f", "bin")
    stamp = datetime(2020, 1, 1, 10, tzinfo=UTC)
    assert found.rows == (
        (1, -2, "it's", Decimal("1.01"), Decimal("9.5"), date(2020, 1, 2), 3.0, stamp, True, b"\n"),
        (2, None, "7", Decimal("2.00"), None, date(2020, 2, 3), 1.5, None, None, None),
    )
    some = statement("INSERT INTO t (s, A) VALUES ('x', 5)")
    assert some == Insert("t", ("s", "a"), (("x", 5),))


def test_delete_by_whole_keys() -> None:
    assert statement("DELETE FROM t WHERE a = 3") == Delete("t", ((3,),))
    assert statement("DELETE FROM t WHERE a IN (1, 2, 1)") == Delete("t", ((1,), (2,)))
    assert statement("DELETE FROM u WHERE c = 'x' AND a IN (1, 2)") == Delete("u", ((1, "x"), (2, "x")))
    assert statement("DELETE FROM u WHERE (c, a) IN (('x', 1), ('y', 2))") == Delete("u", ((1, "x"), (2, "y")))


def test_adhoc_queries_may_be_ordered_and_limited() -> None:
    found = statement("SELECT a, b AS bb FROM t ORDER BY bb DESC, 1 LIMIT 3 OFFSET 1")
    assert isinstance(found, Select)
    text = select_to_duckdb(found, lambda name: f'"{name}"')
    assert text.endswith(" ORDER BY 2 DESC NULLS LAST, 1 ASC NULLS FIRST LIMIT 3 OFFSET 1")
    refused(
        "SELECT a FROM t ORDER BY b",
        "ORDER BY takes columns of the result",
        (1, 26),
        kind=UnsupportedSql,
        parse=statement,
    )


def test_a_script_sees_what_it_created() -> None:
    catalogs = [Catalog()]
    script = "CREATE TABLE a (x INT PRIMARY KEY); CREATE MATERIALIZED VIEW b AS SELECT x FROM a; SELECT x FROM b"
    for found in parse_script(script, lambda: catalogs[-1]):
        if isinstance(found, CreateTable):
            catalogs.append(catalogs[-1].with_table(found.table))
        elif isinstance(found, CreateView):
            catalogs.append(catalogs[-1].with_view(found.view))
    assert set(catalogs[-1].views) == {"b"} and isinstance(found, Select)


def test_create_text_can_be_parsed_again() -> None:
    for name in CATALOG.tables:
        made = statement(create_text(CATALOG.tables[name]))
        assert isinstance(made, CreateTable) and made.table == CATALOG.tables[name]
    view = statement("CREATE MATERIALIZED VIEW `a b` KEY (b) RETENTION '1h' AS SELECT b FROM t GROUP BY b")
    assert isinstance(view, CreateView)
    again = statement(create_text(view.view))
    assert isinstance(again, CreateView) and again.view == view.view


def test_a_view_cannot_read_itself() -> None:
    catalog = catalog_of(
        "CREATE TABLE t (a INT PRIMARY KEY)",
        "CREATE MATERIALIZED VIEW v AS SELECT a FROM t",
        "CREATE MATERIALIZED VIEW w AS SELECT a FROM v",
    )
    with pytest.raises(CatalogError, match="'v' would read itself: v reads w reads v"):
        statement("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT a FROM w", catalog)


REFUSED = [
    ("CREATE TABLE z (a INT)", "table 'z' has no primary key", (1, 14), "PRIMARY KEY", SqlError),
    ("CREATE TABLE z (a INT PRIMARY KEY, A INT)", "column 'A' twice", (1, 36), None, SqlError),
    ("CREATE TABLE z (a INT, PRIMARY KEY (b))", "no column 'b' for the primary key", (1, 37), "columns: a", SqlError),
    ("CREATE TABLE z (a FLOAT PRIMARY KEY)", "type float is not supported", (1, 19), "use double", UnsupportedSql),
    (
        "CREATE TABLE z (a DECIMAL(50,2) PRIMARY KEY)",
        "type decimal(50,2) does not exist",
        (1, 19),
        "38",
        UnsupportedSql,
    ),
    ("CREATE TABLE z (a INT PRIMARY KEY,\n b JSON)", "type json is not supported", (2, 4), "types:", UnsupportedSql),
    ("CREATE TABLE z (a INT PRIMARY KEY DEFAULT 3)", "DEFAULT of column 'a'", (1, 35), "NOT NULL", UnsupportedSql),
    (
        "CREATE TABLE z (a INT PRIMARY KEY) PARTITIONED BY (a)",
        "'PARTITIONED' after the columns",
        (1, 36),
        None,
        UnsupportedSql,
    ),
    ("CREATE TABLE z (a INT PRIMARY KEY, b INT PRIMARY KEY)", "a second PRIMARY KEY", (1, 36), "composite", SqlError),
    ("CREATE VIEW z AS SELECT a FROM t", "only materialized views", (1, 8), "MATERIALIZED", UnsupportedSql),
    ("CREATE OR REPLACE TABLE z (a INT)", "a table cannot be replaced", (1, 19), "DROP", UnsupportedSql),
    ("CREATE INDEX i ON t (a)", "expected TABLE or MATERIALIZED VIEW", (1, 8), None, SqlError),
    ("CREATE MATERIALIZED VIEW z KEY (c) AS SELECT a FROM t", "key column 'c'", (1, 33), "columns: a", SqlError),
    ("CREATE MATERIALIZED VIEW z AS SELECT a, b AS A FROM t", "two columns 'A'", (1, 26), "AS", SqlError),
    ("CREATE MATERIALIZED VIEW z AS SELECT a, NULL AS n FROM t", "NULL without a type", (1, 26), "cast", SqlError),
    ("CREATE MATERIALIZED VIEW z (x) AS SELECT a FROM t", "column names after", (1, 28), "AS name", UnsupportedSql),
    (
        "CREATE MATERIALIZED VIEW z RETENTION 'soon' AS SELECT a FROM t",
        "'soon' is not a duration",
        (1, 38),
        "1h",
        SqlError,
    ),
    (
        "CREATE MATERIALIZED VIEW z RETENTION INTERVAL '1h' AS SELECT a FROM t",
        "'1h' is not an interval",
        (1, 47),
        "INTERVAL '1' HOUR",
        SqlError,
    ),
    (
        "CREATE MATERIALIZED VIEW z RETENTION INTERVAL 1 h AS SELECT a FROM t",
        "'1 h' is not an interval",
        (1, 47),
        "RETENTION '1h'",
        SqlError,
    ),
    (
        "CREATE MATERIALIZED VIEW z RETENTION '0.5ms' AS SELECT a FROM t",
        "'0.5ms' is not a duration",
        (1, 38),
        "500ms",
        SqlError,
    ),
    (
        "CREATE TABLE z (a INT, CONSTRAINT p PRIMARY KEY (a))",
        "names of constraints are not kept",
        (1, 24),
        "PRIMARY KEY (a, b)",
        UnsupportedSql,
    ),
    ("CREATE MATERIALIZED VIEW z AS\nSELECT zz FROM t", "no column 'zz'", (2, 8), None, SqlError),
    ("CREATE MATERIALIZED VIEW z SELECT a FROM t", "expected AS SELECT", (1, 28), "options", SqlError),
    ("CREATE MATERIALIZED VIEW z AS SELECT a FROM t ORDER BY a", "ORDER BY", (1, 47), "sort", UnsupportedSql),
    ("ALTER TABLE t DROP COLUMN a", "only ALTER TABLE … ADD COLUMN", (1, 15), None, UnsupportedSql),
    ("ALTER TABLE t ADD COLUMN z INT NOT NULL", "cannot be NOT NULL", (1, 26), None, UnsupportedSql),
    ("DROP INDEX i", "expected TABLE or MATERIALIZED VIEW after DROP", (1, 6), None, SqlError),
    ("DROP TABLE t CASCADE", "CASCADE", (1, 14), None, UnsupportedSql),
    ("SHOW FUNCTIONS", "expected TABLES, VIEWS or CREATE", (1, 6), None, SqlError),
    ("EXPLAIN t", "'t' is a base table", (1, 9), "view", SqlError),
    ("EXPLAIN zz", "no view 'zz'", (1, 9), "none yet", SqlError),
    ("EXPLAIN FORMAT png SELECT a FROM t", "no format 'png'", (1, 16), "svg", SqlError),
    ("UPDATE t SET a = 1", "'UPDATE' does not begin a statement", (1, 1), "INSERT", UnsupportedSql),
    ("SELECT a FROM t; SELECT b FROM t", "more than one statement", (1, 18), None, SqlError),
    ("INSERT INTO zz VALUES (1)", "no table 'zz'", (1, 13), "tables: t, u, w", SqlError),
    ("INSERT INTO t (s) VALUES ('x')", "key column 'a'", (1, 13), None, SqlError),
    ("INSERT INTO w VALUES (1)", "1 values for 2 columns", (1, 23), "k, v", SqlError),
    ("INSERT INTO w VALUES (1, 'x')", "'x' does not fit column 'v' of type int", (1, 26), None, SqlError),
    ("INSERT INTO w VALUES (1, 1.5)", "1.5 does not fit column 'v'", (1, 26), None, SqlError),
    ("INSERT INTO w VALUES (1, 3000000000)", "does not fit column 'v'", (1, 26), None, SqlError),
    ("INSERT INTO w VALUES (1, NULL)", "column 'v' cannot be NULL", (1, 23), None, SqlError),
    ("INSERT INTO w VALUES (1, 1 + 1)", "is not a constant", (1, 26), None, UnsupportedSql),
    ("INSERT INTO w SELECT a, n FROM u", "INSERT … SELECT", (1, 22), "VALUES", UnsupportedSql),
    ("DELETE FROM t", "DELETE needs the keys", (1, 13), "key IN", UnsupportedSql),
    ("DELETE FROM t WHERE b = 1", "one condition for each key column", (1, 21), "key: a", UnsupportedSql),
    ("DELETE FROM t WHERE a = NULL", "a key is never NULL", (1, 21), None, SqlError),
    ("DELETE FROM t WHERE a > 1", "DELETE by 'a > 1'", (1, 21), None, UnsupportedSql),
    ("DELETE FROM u WHERE a = 1", "DELETE lacks key column 'c'", (1, 21), None, UnsupportedSql),
]


@pytest.mark.parametrize(("sql", "message", "position", "hint", "kind"), REFUSED, ids=lambda v: str(v)[:50])
def test_refused_statements(
    sql: str, message: str, position: tuple[int, int], hint: str | None, kind: type[SqlError]
) -> None:
    refused(sql, message, position, hint, kind=kind, parse=parse_statement)
