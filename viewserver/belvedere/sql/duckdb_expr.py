"""Bound expressions as DuckDB SQL, for verification and ad-hoc queries."""

from __future__ import annotations

from collections.abc import Sequence

from belvedere.sql.duckdb_forms import literal, type_name
from belvedere.sql.expr import ColumnRef, Expr, Literal
from belvedere.sql.registry import SCALARS, filled


def expression(expr: Expr, columns: Sequence[str]) -> str:
    """DuckDB text of an expression; `columns`: the text of each input column."""
    if isinstance(expr, ColumnRef):
        return columns[expr.index]
    if isinstance(expr, Literal):
        return literal(expr.value, expr.type)
    args = [expression(a, columns) for a in expr.args]
    return filled(SCALARS[expr.name].duckdb, expr, args, type_name(expr.type))
