"""A small catalog, and short ways to ask the binder about one expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from belvedere.errors import SqlError, UnsupportedSql
from belvedere.sql import bind_query, parse_statement
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Call, ColumnRef, Expr, Literal
from belvedere.sql.query import Project
from belvedere.sql.statements import CreateTable, CreateView

TABLES = (
    "CREATE TABLE t (a INT PRIMARY KEY, b BIGINT, s STRING, p DECIMAL(12,2), q DECIMAL(5,1), d DATE, x DOUBLE, "
    "ts TIMESTAMP, f BOOLEAN, bin BINARY)",
    "CREATE TABLE u (a INT, c STRING, n INT, PRIMARY KEY (a, c))",
    "CREATE TABLE w (k INT PRIMARY KEY, v INT NOT NULL)",
)


def catalog_of(*statements: str) -> Catalog:
    """The catalog after some CREATE statements."""
    catalog = Catalog()
    for sql in statements:
        statement = parse_statement(sql, catalog)
        if isinstance(statement, CreateTable):
            catalog = catalog.with_table(statement.table)
        else:
            assert isinstance(statement, CreateView)
            catalog = catalog.with_view(statement.view)
    return catalog


CATALOG = catalog_of(*TABLES)


def bound(expression: str, source: str = "t") -> Expr:
    """One expression of a SELECT list."""
    query = bind_query(f"SELECT {expression} AS e FROM {source}", CATALOG)
    assert isinstance(query, Project)
    return query.exprs[0]


def type_of(expression: str) -> str:
    """The SQL type of an expression (aggregates allowed)."""
    return str(bind_query(f"SELECT {expression} AS e FROM t", CATALOG).schema[0].type)


def shape(expr: Expr) -> Any:
    """A bound expression in short: names of columns, values of constants, tuples for calls; casts show their type."""
    if isinstance(expr, ColumnRef):
        return expr.name
    if isinstance(expr, Literal):
        return expr.value
    assert isinstance(expr, Call)
    name = f"{expr.name} {expr.type}" if expr.name in ("cast", "try_cast") else expr.name
    return (name, *(shape(a) for a in expr.args))


def refused(
    sql: str,
    message: str,
    position: tuple[int, int],
    hint: str | None = None,
    *,
    kind: type[SqlError] = SqlError,
    parse: Callable[[str, Catalog], object] = bind_query,
    catalog: Catalog = CATALOG,
) -> SqlError:
    """Check that the statement is refused with these words at this place."""
    with pytest.raises(SqlError) as caught:
        parse(sql, catalog)
    error = caught.value
    assert type(error) is kind
    assert message in error.reason, error
    assert (error.line, error.column) == position, error
    if hint is not None:
        assert error.hint is not None and hint in error.hint, error
    return error


__all__ = ["CATALOG", "UnsupportedSql", "bound", "catalog_of", "refused", "shape", "type_of"]
