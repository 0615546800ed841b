"""The condition of a join, taken apart: equalities that become its key, and the residual."""

from __future__ import annotations

from dataclasses import dataclass

from belvedere.plan.exprs import conjoin, conjuncts, fallible, sides
from belvedere.sql import query as q
from belvedere.sql.expr import Call, Expr, remap
from belvedere.types import BIGINT, DOUBLE, Kind, Type, decimal


@dataclass(frozen=True, slots=True)
class Condition:
    """`left[i] = right[i]` for every i (each over its own side's columns), and `residual` over left then right
    columns."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    residual: Expr | None


def take_apart(join: q.Join) -> Condition:
    """Equalities between one side and the other. One whose sides may fail stays in the residual, which runs on matching
    rows only, as long as another equality is left to be the key."""
    split = len(join.left.schema)
    equalities: list[tuple[Expr, Expr, Expr]] = []
    for part in conjuncts(join.condition):
        pair = equality(part, split)
        if pair is not None:
            equalities.append((part, *pair))
    safe = [e for e in equalities if not fallible(e[0])]
    keys = safe or equalities
    chosen = {part for part, _, _ in keys}
    residual = [p for p in conjuncts(join.condition) if p not in chosen]
    return Condition(tuple(l for _, l, _ in keys), tuple(r for _, _, r in keys), conjoin(residual))


def equality(part: Expr, split: int) -> tuple[Expr, Expr] | None:
    """The two sides of `left = right`, of one type and each over its own columns, or None if it is something else."""
    if not (isinstance(part, Call) and part.name == "eq"):
        return None
    first, second = part.args
    if sides(first, split) == (False, True) and sides(second, split) == (True, False):
        first, second = second, first
    if sides(first, split) != (True, False) or sides(second, split) != (False, True):
        return None
    right = remap(second, lambda index: index - split)
    common = _common(first.type, right.type)
    return _cast(first, common), _cast(right, common)


def _cast(expr: Expr, target: Type) -> Expr:
    return expr if expr.type == target else Call("cast", (expr,), target)


def _common(a: Type, b: Type) -> Type:
    """The type both sides of an equality are compared in."""
    if a == b or b.kind is Kind.NULL:
        return a
    if a.kind is Kind.NULL:
        return b
    kinds = {a.kind, b.kind}
    if Kind.DOUBLE in kinds:
        return DOUBLE
    if kinds == {Kind.INT, Kind.BIGINT}:
        return BIGINT
    if Kind.DECIMAL in kinds:
        exact = [_as_decimal(t) for t in (a, b)]
        scale = max(t.scale for t in exact)
        whole = max(t.precision - t.scale for t in exact)
        return decimal(min(38, whole + scale), scale)
    return a


def _as_decimal(type: Type) -> Type:
    if type.kind is Kind.INT:
        return decimal(10, 0)
    return decimal(19, 0) if type.kind is Kind.BIGINT else type
