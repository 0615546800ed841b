"""The two sources of truth against each other, without any engine of ours: expected rows (Spark's) and DuckDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from belvedere.sql.catalog import Catalog
from belvedere.sql.ddl import parse_statement
from belvedere.sql.statements import AddColumns, CreateTable, CreateView, Drop
from tests.oracle.duck import Oracle
from tests.oracle.values import same_bag
from tests.views.format import FILES, SPARK_ONLY, State, parse, render, steps
from tests.views.oracle import view_sql


@pytest.mark.parametrize("path", [p for p in FILES if p.stem not in SPARK_ONLY], ids=lambda p: p.stem)
def test_duckdb_agrees_with_the_expectations(path: Path) -> None:
    state, oracle, catalog = State(), Oracle(), Catalog()
    for step, checks in steps(parse(path)):
        if step.kind == "statement":
            catalog = _define(catalog, step.sql)
        state.apply(step)
        oracle.load(state.base)
        for check in checks:
            if check.kind == "expect":
                schema = catalog.views[check.target].columns
                rows = oracle.rows(view_sql(catalog, check.target))
                types = [str(c.type) for c in schema]
                lines = render([c.name for c in schema], types, rows)
                header, *body = check.body
                typed = ":" in header
                assert header == (lines[0] if typed else " | ".join(c.name for c in schema)), (
                    f"{path.name}:{check.line}"
                )
                wanted = sorted(body)
                if lines[1:] != wanted:
                    assert "double" in types and _close(lines[1:], wanted, types), (
                        f"{path.name}:{check.line}: DuckDB has {lines[1:]}, expected {wanted}"
                    )


def _close(found: list[str], wanted: list[str], types: list[str]) -> bool:
    """Whether rows differ in nothing but the last digits of doubles."""

    def values(line: str) -> list[object]:
        cells = line.split(" | ")
        return [
            float(c.replace("Infinity", "inf")) if t == "double" and c != "NULL" else c
            for c, t in zip(cells, types, strict=True)
        ]

    return same_bag(map(values, found), map(values, wanted)) is None


def _define(catalog: Catalog, sql: str) -> Catalog:
    """The catalog after a DDL statement (writes leave it as it is)."""
    statement = parse_statement(sql, catalog)
    if isinstance(statement, CreateTable):
        return catalog.with_table(statement.table)
    if isinstance(statement, CreateView):
        return _rebound(catalog.with_view(statement.view), statement.view.name)
    if isinstance(statement, Drop):
        return catalog.without(statement.name)
    if isinstance(statement, AddColumns):
        old = catalog.tables[statement.table]
        return catalog.with_table(type(old)(old.name, (*old.columns, *statement.columns), old.key))
    return catalog


def _rebound(catalog: Catalog, changed: str) -> Catalog:
    """Views that were defined after a replaced one, bound again."""
    names = list(catalog.views)
    for name in names[names.index(changed) + 1 :]:
        bound = parse_statement(f"CREATE MATERIALIZED VIEW {name} AS {catalog.views[name].sql}", catalog.without(name))
        assert isinstance(bound, CreateView)
        catalog = catalog.with_view(bound.view)
    return catalog
