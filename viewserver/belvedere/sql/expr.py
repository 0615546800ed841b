"""Bound scalar expressions: what the binder produces, the planner rewrites and the engine evaluates.

Three kinds are enough. A `Call` names a function of `belvedere.sql.functions`; the binder has already resolved
overloads and inserted casts, so the evaluator never guesses types. Columns are positions in the input's schema: names
are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from belvedere.types import Type

Value = bool | int | float | str | bytes | Decimal | date | datetime | None


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The column at `index` of the input (for join residuals: of left columns followed by right columns)."""

    index: int
    type: Type
    name: str = ""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant; None is NULL. Decimals are `Decimal`, dates `date`, timestamps UTC-aware `datetime`."""

    value: Value
    type: Type


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function over bound arguments. Special forms: see `belvedere.sql.functions`."""

    name: str
    args: tuple[Expr, ...]
    type: Type


Expr = ColumnRef | Literal | Call


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything below it, top down."""
    yield expr
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from walk(arg)


def columns(expr: Expr) -> set[int]:
    """Positions of the input columns that the expression reads."""
    return {e.index for e in walk(expr) if isinstance(e, ColumnRef)}


def transform(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """Rebuild bottom-up, passing every (rebuilt) part through `fn`."""
    if isinstance(expr, Call):
        expr = replace(expr, args=tuple(transform(a, fn) for a in expr.args))
    return fn(expr)


def remap(expr: Expr, mapping: dict[int, int] | Callable[[int], int]) -> Expr:
    """The same expression over an input whose columns stand elsewhere."""
    to = mapping.__getitem__ if isinstance(mapping, dict) else mapping
    return transform(expr, lambda e: replace(e, index=to(e.index)) if isinstance(e, ColumnRef) else e)


def substitute(expr: Expr, exprs: tuple[Expr, ...]) -> Expr:
    """Replace every column reference by the expression at its position (composition of projections)."""
    return transform(expr, lambda e: exprs[e.index] if isinstance(e, ColumnRef) else e)
