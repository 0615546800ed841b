"""Questions the planner asks about bound expressions: their conjuncts, the columns they read, their text.

Whether an expression can fail (`belvedere.sql.registry.fallible`) decides what may move. Errors are values of a row and
count only where they reach a view, so a conjunct that can fail must never run on rows which an earlier conjunct of the
same AND was written to exclude.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from belvedere.sql.expr import Call, ColumnRef, Expr, Literal, columns, transform, walk
from belvedere.sql.registry import SCALARS
from belvedere.types import BOOLEAN, STRING, Kind, Schema

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


_INFIX = {name: scalar.infix for name, scalar in SCALARS.items() if scalar.infix is not None}
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "null_safe_eq")
_NO_PARENS = {(outer, inner) for outer in ("and", "or") for inner in _COMPARISONS}
_BACKSLASH = Literal("\\", STRING)


def text(expr: Expr) -> str:
    """The expression as a person would write it."""
    if isinstance(expr, ColumnRef):
        return expr.name or f"${expr.index}"
    if isinstance(expr, Literal):
        return _literal(expr)
    args = [text(a) for a in expr.args]
    if expr.name == "like":
        escape = "" if len(args) == 2 or expr.args[2] == _BACKSLASH else f" escape {args[2]}"
        return f"{args[0]} like {args[1]}{escape}"
    if expr.name in _INFIX and len(args) >= 2:
        return f" {_INFIX[expr.name]} ".join(
            f"({a})" if isinstance(e, Call) and e.name in _INFIX and (expr.name, e.name) not in _NO_PARENS else a
            for a, e in zip(args, expr.args, strict=True)
        )
    if expr.name in ("cast", "try_cast"):
        return f"{expr.name}({args[0]} as {expr.type})"
    if expr.name in ("is_null", "is_not_null"):
        return f"{args[0]} {expr.name.replace('_', ' ')}"
    if expr.name == "in":
        return f"{args[0]} in ({', '.join(args[1:])})"
    if expr.name == "case":
        return _case(args)
    return f"{expr.name}({', '.join(args)})"


def _case(args: Sequence[str]) -> str:
    pairs = [f"when {args[i]} then {args[i + 1]}" for i in range(0, len(args) - 1, 2)]
    default = f" else {args[-1]}" if len(args) % 2 and args[-1] != "null" else ""
    return f"case {' '.join(pairs)}{default} end"


def _literal(literal: Literal) -> str:
    value, kind = literal.value, literal.type.kind
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if kind in (Kind.DATE, Kind.TIMESTAMP):
        return f"{kind.value} '{value}'"
    return str(value)
