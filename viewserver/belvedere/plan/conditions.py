"""The condition of a join, taken apart: equalities that become its key, and the residual."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from belvedere.plan.exprs import conjoin, conjuncts, sides
from belvedere.sql import query as q
from belvedere.sql.expr import Call, Expr, Literal, Value, remap
from belvedere.sql.registry import fallible
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, Kind, Type, decimal


@dataclass(frozen=True, slots=True)
class Condition:
    """`left[i] = right[i]` for every i (each over its own side's columns), and `residual` over left then right
    columns."""

    left: tuple[Expr, ...]
    right: tuple[Expr, ...]
    residual: Expr | None


def take_apart(join: q.Join) -> Condition:
    """Equalities between one side and the other. One whose sides may fail stays in the residual, which runs on matching
    rows only, as long as another equality is left to be the key. `<=>` is a key only where nothing else is."""
    split = len(join.left.schema)
    parts = conjuncts(join.condition)
    equal = {part: [pair] for part in parts if (pair := equality(part, split)) is not None}
    safe = {part: pairs for part, pairs in equal.items() if not fallible(part)}
    keys = safe or equal or {part: pairs for part in parts if (pairs := _null_safe(part, split))}
    pairs = [pair for found in keys.values() for pair in found]
    residual = conjoin(p for p in parts if p not in keys)
    return Condition(tuple(left for left, _ in pairs), tuple(right for _, right in pairs), residual)


def equality(part: Expr, split: int) -> tuple[Expr, Expr] | None:
    """The two sides of `left = right`, of one type and each over its own columns, or None if it is something else."""
    return _sides(part, split) if isinstance(part, Call) and part.name == "eq" else None


def _sides(part: Call, split: int) -> tuple[Expr, Expr] | None:
    first, second = part.args
    if sides(first, split) == (False, True) and sides(second, split) == (True, False):
        first, second = second, first
    if sides(first, split) != (True, False) or sides(second, split) != (False, True):
        return None
    right = remap(second, lambda index: index - split)
    common = _common(first.type, right.type)
    return _cast(first, common), _cast(right, common)


def _null_safe(part: Expr, split: int) -> list[tuple[Expr, Expr]]:
    """`a <=> b` as two equalities that no NULL takes part in: both are NULL or neither is, and values are equal."""
    pair = _sides(part, split) if isinstance(part, Call) and part.name == "null_safe_eq" else None
    if pair is None or pair[0].type.kind not in _FILLERS:
        return []
    left, right = pair
    filler = Literal(_FILLERS[left.type.kind], left.type)
    return [
        (Call("is_null", (left,), BOOLEAN), Call("is_null", (right,), BOOLEAN)),
        (Call("coalesce", (left, filler), left.type), Call("coalesce", (right, filler), left.type)),
    ]


_FILLERS: dict[Kind, Value] = {
    Kind.BOOLEAN: False,
    Kind.INT: 0,
    Kind.BIGINT: 0,
    Kind.DOUBLE: 0.0,
    Kind.DECIMAL: Decimal(0),
    Kind.STRING: "",
    Kind.BINARY: b"",
    Kind.DATE: date(1970, 1, 1),
    Kind.TIMESTAMP: datetime(1970, 1, 1, tzinfo=UTC),
}


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
