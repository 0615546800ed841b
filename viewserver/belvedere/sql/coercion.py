"""Implicit conversions of Spark in ANSI mode, and the casts that the binder writes into expressions.

The evaluator never guesses: whatever type a function wants is spelled out as `cast`. Constants are converted here, so a
plan holds `date '2024-01-01'` and not a cast of a string.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext

from belvedere.sql import decimals
from belvedere.sql.expr import Call, Expr, Literal, Value
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP, Kind, Type

INTEGERS = (Kind.INT, Kind.BIGINT)
NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
_LIMITS = {Kind.INT: 2**31, Kind.BIGINT: 2**63}
WIDE = Context(prec=80, rounding=ROUND_HALF_UP)


class Mismatch(Exception):
    """Types that do not fit a function or operator; the binder adds the position."""

    def __init__(self, message: str, hint: str | None = None, argument: int | None = None):
        self.message, self.hint, self.argument = message, hint, argument
        super().__init__(message)


def is_number(type: Type) -> bool:
    return type.kind in NUMBERS


def can_cast(source: Type, target: Type) -> bool:
    """Explicit casts that Spark's ANSI mode allows between our types."""
    a, b = source.kind, target.kind
    if a is b or a is Kind.NULL or b is Kind.STRING:
        return True
    if a is Kind.STRING:
        return True
    if a in NUMBERS:
        return b in NUMBERS or b is Kind.BOOLEAN or b is Kind.TIMESTAMP
    if a is Kind.BOOLEAN:
        return b in NUMBERS
    if a is Kind.DATE:
        return b is Kind.TIMESTAMP
    if a is Kind.TIMESTAMP:
        return b is Kind.DATE or b in NUMBERS
    return False


def cast(expr: Expr, target: Type) -> Expr:
    """The expression as `target`; constants are folded where that cannot fail."""
    if expr.type == target:
        return expr
    if isinstance(expr, Literal):
        if expr.value is None:
            return Literal(None, target)
        folded = _fold(expr.value, expr.type, target)
        if folded is not None:
            return Literal(folded, target)
    return Call("cast", (expr,), target)


def _fold(value: Value, source: Type, target: Type) -> Value:
    """The constant as another type, or None where the evaluator should decide (or fail)."""
    kind = target.kind
    if source.kind in (Kind.INT, Kind.BIGINT, Kind.DECIMAL) and isinstance(value, int | Decimal):
        if kind is Kind.DECIMAL:
            return fit_decimal(Decimal(value), target)
        if kind is Kind.DOUBLE:
            return float(value)
        if kind in INTEGERS:
            whole = int(value)
            return whole if -_LIMITS[kind] <= whole < _LIMITS[kind] else None
        if kind is Kind.STRING:
            return f"{value:f}" if isinstance(value, Decimal) else str(value)
    if source.kind is Kind.DOUBLE and isinstance(value, float):
        if kind in INTEGERS and math.isfinite(value) and -_LIMITS[kind] <= int(value) < _LIMITS[kind]:
            return int(value)
        return None
    if source.kind is Kind.STRING and isinstance(value, str):
        if kind is Kind.BINARY:
            return value.encode()
        return parse_constant(value, target)
    if source.kind is Kind.BOOLEAN and kind is Kind.STRING:
        return "true" if value else "false"
    if source.kind is Kind.DATE and kind is Kind.STRING and isinstance(value, date):
        return value.isoformat()
    if source.kind is Kind.DATE and kind is Kind.TIMESTAMP and isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def fit_decimal(value: Decimal, target: Type) -> Decimal | None:
    """Rounded half up to the scale, or None if it has too many digits."""
    with localcontext(WIDE):
        fitted = value.quantize(Decimal(1).scaleb(-target.scale))
        return fitted if abs(fitted) < Decimal(10) ** (target.precision - target.scale) else None


_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})$")
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?\s*(Z|UTC|[+-]\d{1,2}:\d{2})?)?$"
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")


def parse_constant(text: str, target: Type) -> Value:
    """A string constant as a value of the type, or None if it is not plainly one."""
    text = text.strip()
    kind = target.kind
    try:
        if kind is Kind.DATE and (found := _DATE.match(text)):
            return date(*(int(g) for g in found.groups()))
        if kind is Kind.TIMESTAMP and (found := _TIMESTAMP.match(text)):
            year, month, day, hour, minute, second, fraction, zone = found.groups()
            micros = int((fraction or "0").ljust(6, "0")[:6])
            stamp = datetime(
                int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros, _zone(zone)
            )
            return stamp.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or a time zone that leads out of the calendar
        return None
    if kind in INTEGERS and re.match(r"[+-]?\d+$", text):
        return int(text) if -_LIMITS[kind] <= int(text) < _LIMITS[kind] else None
    if kind is Kind.DOUBLE and _NUMBER.match(text):
        return float(text)
    if kind is Kind.DECIMAL and _NUMBER.match(text) and len(text) <= 60:
        number = Decimal(text)
        return fit_decimal(number, target) if abs(number.adjusted()) < 60 else None
    if kind is Kind.BOOLEAN and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return None


def _zone(text: str | None) -> timezone:
    if text in (None, "Z", "UTC"):
        return UTC
    assert text is not None
    hours, minutes = text[1:].split(":")
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if text[0] == "-" else offset)


def as_decimal(expr: Expr) -> Expr:
    """An integer as decimal: constants by their digits, columns by their type."""
    if expr.type.kind is Kind.DECIMAL:
        return expr
    if isinstance(expr, Literal) and isinstance(expr.value, int):
        return cast(expr, decimals.of_literal(expr.value))
    return cast(expr, decimals.of_integer(expr.type))


def wider(left: Type, right: Type) -> Type | None:
    """The type that both sides of a comparison, CASE, UNION, … become; None if there is none."""
    if left == right:
        return left
    a, b = left.kind, right.kind
    if a is Kind.NULL:
        return right
    if b is Kind.NULL:
        return left
    if a in NUMBERS and b in NUMBERS:
        if Kind.DOUBLE in (a, b):
            return DOUBLE
        if Kind.DECIMAL in (a, b):
            return decimals.wider(*(t if t.kind is Kind.DECIMAL else decimals.of_integer(t) for t in (left, right)))
        return BIGINT
    if {a, b} == {Kind.DATE, Kind.TIMESTAMP}:
        return TIMESTAMP
    if Kind.STRING in (a, b):
        other = right if a is Kind.STRING else left
        if other.kind in INTEGERS:
            return BIGINT
        return DOUBLE if other.kind is Kind.DECIMAL else other
    return None


def common(exprs: Iterable[Expr], what: str, *, narrow: bool = False) -> tuple[Type, list[Expr]]:
    """All expressions as their common type. `narrow`: an integer constant beside a decimal counts by its digits, which
    Spark does in comparisons and not in CASE, coalesce or IN."""
    items = list(exprs)
    if narrow and any(i.type.kind is Kind.DECIMAL for i in items):
        items = [as_decimal(i) if i.type.kind in INTEGERS else i for i in items]
    decided = items[0].type
    for position, item in enumerate(items[1:], 1):
        found = wider(decided, item.type)
        if found is None:
            raise Mismatch(
                f"{what} mixes {decided} and {item.type}", f"cast one of them: cast(… as {decided})", position
            )
        decided = found
    return decided, [cast(i, decided) for i in items]


def boolean(expr: Expr, what: str) -> Expr:
    """A condition; NULL is one, other types are not."""
    if expr.type.kind is Kind.NULL:
        return Literal(None, BOOLEAN)
    if expr.type.kind is not Kind.BOOLEAN:
        raise Mismatch(f"{what} must be boolean, found {expr.type}", "compare it with something, or cast it to boolean")
    return expr
