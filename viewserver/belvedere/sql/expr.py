"""Bound scalar expressions: what the binder produces, the planner rewrites and the engine evaluates.

Three kinds are enough. A `Call` names a function of `belvedere.sql.functions`; the binder has already resolved
overloads and inserted casts, so the evaluator never guesses types. Columns are positions in the input's schema: names
are gone.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal

from belvedere.types import Kind, Type

Value = bool | int | float | str | bytes | Decimal | date | datetime | None


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """The column at `index` of the input (for join residuals: of left columns followed by right columns)."""

    index: int
    type: Type
    name: str = ""


_NAN = struct.unpack(">d", bytes.fromhex("7ff8000000000000"))[0]


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A constant; None is NULL. Decimals are `Decimal`, dates `date`, timestamps UTC-aware `datetime`.

    Two constants are equal if they have the same type and the same bits. Plans are shared by equality, and Python's own
    takes -0.0 for 0.0 and no NaN for another. Bits follow from the value: a decimal has the scale of its type and no
    negative zero, and there is one NaN. So equal constants also read alike, and digests of plans agree."""

    value: Value
    type: Type

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and math.isnan(self.value):
            object.__setattr__(self, "value", _NAN)
        elif isinstance(self.value, Decimal) and self.type.kind is Kind.DECIMAL:
            object.__setattr__(self, "value", _at_scale(self.value, self.type.scale))

    def __eq__(self, other: object) -> bool:
        return self._bits == other._bits if isinstance(other, Literal) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._bits)

    @property
    def _bits(self) -> tuple[object, ...]:
        value = struct.pack(">d", self.value) if isinstance(self.value, float) else self.value
        return self.type, self.value.__class__, value


def _at_scale(value: Decimal, scale: int) -> Decimal:
    """The same number with exactly `scale` digits after the point, if it has no more than that."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return value
    if not value:
        return Decimal((0, (0,), -scale))
    shift = scale + exponent
    if shift >= 0:
        digits += (0,) * shift
    elif any(digits[shift:]):
        return value
    else:
        digits = digits[:shift]
    return Decimal((sign, digits, -scale))


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
