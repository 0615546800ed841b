"""Outer joins whose padded rows a condition above would drop anyway become inner (or one-sided) joins.

`a LEFT JOIN b … WHERE b.x > 0` shows no padded row: as an inner join it needs less state and conditions move further
down."""

from __future__ import annotations

from dataclasses import replace

from belvedere.plan.exprs import conjuncts, disjuncts
from belvedere.plan.rewriting import bottom_up
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Call, ColumnRef, Expr
from belvedere.sql.query import Filter, Join, JoinKind, Query
from belvedere.sql.registry import Nulls, fallible, nulls_of


def narrow_outer_joins(query: Query, catalog: Catalog) -> Query:
    """Narrow the outer joins that stand directly below a filter."""

    def visit(part: Query) -> Query:
        if isinstance(part, Filter) and isinstance(part.input, Join):
            return replace(part, input=_narrowed(part.input, conjuncts(part.predicate)))
        return part

    return bottom_up(query, visit)


def _narrowed(join: Join, parts: list[Expr]) -> Join:
    split = len(join.left.schema)
    left = join.kind in (JoinKind.RIGHT, JoinKind.FULL) and any(_drops(p, range(split)) for p in parts)
    right = join.kind in (JoinKind.LEFT, JoinKind.FULL) and any(
        _drops(p, range(split, len(join.schema))) for p in parts
    )
    if join.kind is JoinKind.FULL:
        if left and right:
            return replace(join, kind=JoinKind.INNER)
        return replace(join, kind=JoinKind.LEFT if left else JoinKind.RIGHT) if left or right else join
    return replace(join, kind=JoinKind.INNER) if left or right else join


def _drops(part: Expr, padded: range) -> bool:
    """Whether the condition is never TRUE where all columns of the range are NULL."""
    if isinstance(part, Call) and part.name == "and":
        return any(_drops(p, padded) for p in part.args)
    if isinstance(part, Call) and part.name == "or":
        return all(_drops(p, padded) for p in disjuncts(part))
    if isinstance(part, Call) and part.name == "is_not_null":
        return _is_null(part.args[0], padded)
    return _is_null(part, padded)


def _is_null(expr: Expr, padded: range) -> bool:
    if isinstance(expr, ColumnRef):
        return expr.index in padded
    if not (isinstance(expr, Call) and nulls_of(expr) is Nulls.STRICT):
        return False
    given = [a for a in expr.args if not _is_null(a, padded)]
    # NULL in, NULL out, unless another argument fails: an error beats NULL, and the padded row would be in quarantine
    return len(given) < len(expr.args) and not any(map(fallible, given))
