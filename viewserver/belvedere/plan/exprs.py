"""Questions the planner asks about bound expressions: their conjuncts, the columns they read.

Whether an expression can fail (`belvedere.sql.registry.fallible`) decides what may move. Errors are values of a row and
count only where they reach a view, so a conjunct that can fail must never run on rows which an earlier conjunct of the
same AND was written to exclude.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, columns, transform, walk
from belvedere.types import BOOLEAN, Schema

TRUE = Literal(True, BOOLEAN)
FALSE = Literal(False, BOOLEAN)


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The parts of a (nested) AND, in the order written; none for no predicate."""
    if predicate is None or predicate == TRUE:
        return []
    if isinstance(predicate, Call) and predicate.name == "and":
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]


def disjuncts(predicate: Expr) -> list[Expr]:
    """The parts of a (nested) OR, in the order written."""
    if isinstance(predicate, Call) and predicate.name == "or":
        return [part for arg in predicate.args for part in disjuncts(arg)]
    return [predicate]


def conjoin(parts: Iterable[Expr]) -> Expr | None:
    """The AND of the parts, without repetitions; None for none."""
    unique = list(dict.fromkeys(parts))
    if not unique:
        return None
    return unique[0] if len(unique) == 1 else Call("and", tuple(unique), BOOLEAN)


def disjoin(parts: Iterable[Expr]) -> Expr:
    """The OR of the parts, without repetitions; FALSE for none."""
    unique = list(dict.fromkeys(parts))
    if not unique:
        return FALSE
    return unique[0] if len(unique) == 1 else Call("or", tuple(unique), BOOLEAN)


def size(expr: Expr) -> int:
    """Number of parts: the measure that keeps merged projections from growing without bound."""
    return sum(1 for _ in walk(expr))


def name_columns(expr: Expr, schema: Schema) -> Expr:
    """References carry the names of the input's columns: explain reads well, and aliases never make equal plans
    differ."""
    return transform(expr, lambda e: replace(e, name=schema[e.index].name) if isinstance(e, ColumnRef) else e)


def references(schema: Schema, positions: Iterable[int]) -> tuple[ColumnRef, ...]:
    """Plain references to columns of the schema."""
    return tuple(ColumnRef(p, schema[p].type, schema[p].name) for p in positions)


def sides(expr: Expr, split: int) -> tuple[bool, bool]:
    """Whether the expression reads columns left (before position `split`) and right of it."""
    read = columns(expr)
    return any(c < split for c in read), any(c >= split for c in read)
