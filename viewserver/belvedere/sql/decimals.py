"""Result types of decimal arithmetic, as Spark's DecimalPrecision with allowPrecisionLoss = true.

A result that needs more than 38 digits keeps its integral digits and at least six (or its own, if fewer) of its scale.
"""

from __future__ import annotations

from belvedere.types import BIGINT, INT, MAX_PRECISION, Kind, Type, decimal

MINIMUM_ADJUSTED_SCALE = 6


def adjusted(precision: int, scale: int) -> Type:
    """A result type of arithmetic, cut down to 38 digits at the expense of the scale."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    integral = precision - scale
    minimum = min(scale, MINIMUM_ADJUSTED_SCALE)
    return decimal(MAX_PRECISION, max(MAX_PRECISION - integral, minimum))


def bounded(precision: int, scale: int) -> Type:
    """Both parts capped at 38 (aggregates and rounding functions)."""
    return decimal(min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def arithmetic(operator: str, left: Type, right: Type) -> Type:
    """add, sub, mul, div, mod or pmod of two decimals."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    if operator in ("add", "sub"):
        scale = max(s1, s2)
        return adjusted(max(p1 - s1, p2 - s2) + scale + 1, scale)
    if operator == "mul":
        return adjusted(p1 + p2 + 1, s1 + s2)
    if operator == "div":
        scale = max(MINIMUM_ADJUSTED_SCALE, s1 + p2 + 1)
        return adjusted(p1 - s1 + s2 + scale, scale)
    if operator in ("mod", "pmod"):
        scale = max(s1, s2)
        return adjusted(min(p1 - s1, p2 - s2) + scale, scale)
    raise ValueError(f"no decimal rule for {operator!r}")


def wider(left: Type, right: Type) -> Type:
    """The smallest decimal that holds both; beyond 38 digits the integral ones win."""
    scale = max(left.scale, right.scale)
    integral = max(left.precision - left.scale, right.precision - right.scale)
    if integral + scale > MAX_PRECISION:
        return decimal(MAX_PRECISION, max(0, MAX_PRECISION - integral))
    return decimal(integral + scale, scale)


def of_integer(type: Type) -> Type:
    """The decimal that holds every value of an integer type."""
    return decimal(10, 0) if type == INT else decimal(20, 0)


def of_literal(value: int) -> Type:
    """The decimal of just the digits of an integer constant (Spark narrows literals, so `price * 2` stays small)."""
    return decimal(len(str(abs(value))), 0)


def sum_type(type: Type) -> Type:
    """Type of sum(x)."""
    if type.kind is Kind.DECIMAL:
        return bounded(type.precision + 10, type.scale)
    return BIGINT if type.kind in (Kind.INT, Kind.BIGINT) else type


def avg_type(type: Type) -> Type:
    """Type of avg(x) for a decimal x."""
    return bounded(type.precision + 4, type.scale + 4)


def round_type(type: Type, digits: int) -> Type:
    """Type of round(x, digits) for a decimal x."""
    integral = type.precision - type.scale + 1
    if digits < 0:
        return bounded(max(integral, 1 - digits), 0)
    scale = min(type.scale, digits)
    return bounded(integral + scale, scale)


def whole_type(type: Type) -> Type:
    """Type of floor(x) and ceil(x) for a decimal x."""
    return type if type.scale == 0 else bounded(type.precision - type.scale + 1, 0)
