"""Bound expressions as Spark SQL, for batch jobs. Our dialect is Spark's, so this is mostly what a user could have
written, with all casts spelled out."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from belvedere.sql.expr import ColumnRef, Expr, Literal
from belvedere.sql.registry import SCALARS, filled
from belvedere.sql.text import literal_text
from belvedere.types import Kind


def spark_expression(expr: Expr, columns: Sequence[str]) -> str:
    """Spark text of an expression; `columns`: the text of each input column."""
    if isinstance(expr, ColumnRef):
        return columns[expr.index]
    if isinstance(expr, Literal):
        return spark_literal(expr)
    args = [spark_expression(a, columns) for a in expr.args]
    return filled(SCALARS[expr.name].spark, expr, args, str(expr.type))


def spark_literal(literal: Literal) -> str:
    """A constant of exactly the type that it is bound to."""
    value, kind = literal.value, literal.type.kind
    if kind is Kind.NULL:
        return "NULL"
    if isinstance(value, str | bytes | bool | float | datetime):
        return literal_text(value)
    return f"cast({literal_text(value)} as {literal.type})"
