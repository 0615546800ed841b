"""Decimal arithmetic against exact fractions rounded once."""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.engine.vec import Status
from belvedere.sql.expr import Literal
from belvedere.types import BOOLEAN, DOUBLE, INT, Type, decimal
from tests.engine.expr.model import run


def half_up(x: Fraction, type: Type) -> Any:
    n = x * 10**type.scale
    q = (2 * abs(n.numerator) + n.denominator) // (2 * n.denominator)
    q = -q if n < 0 else q
    if abs(q) >= 10**type.precision:
        return Status.OVERFLOW
    return Decimal((int(q < 0), tuple(map(int, str(abs(q)))), -type.scale))


types = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: decimal(p, s)))


@st.composite
def columns(draw: Any) -> Any:
    """A type and values of it, with magnitudes of all sizes."""
    type = draw(types)
    digits = draw(st.integers(0, type.precision))
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1) | st.sampled_from(
        [0, 10**type.precision - 1, 1 - 10**type.precision]
    )
    values = draw(st.lists(unscaled, min_size=4, max_size=4))
    return type, [Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -type.scale)) for v in values]


def truncated_mod(a: Fraction, b: Fraction) -> Fraction:
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


OPERATIONS: dict[str, Any] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["add", "sub", "mul", "div", "mod"]), columns(), columns(), types, st.booleans())
def test_arithmetic_is_exact_and_rounded_once(name: str, a: Any, b: Any, result: Type, literal: bool) -> None:
    if name == "mod":
        scale = max(a[0].scale, b[0].scale)
        result = decimal(38, scale)
    model = OPERATIONS.get(name, truncated_mod)
    if literal:
        b = (b[0], [b[1][0]] * 4)
    got = run(name, result, a, Literal(b[1][0], b[0]) if literal else b)
    for x, y, z in zip(a[1], b[1], got, strict=True):
        fx, fy = Fraction(x), Fraction(y)
        want = Status.DIVISION if fy == 0 and name in ("div", "mod") else half_up(model(fx, fy), result)
        assert z == want, (name, a[0], b[0], result, x, y)


@settings(max_examples=200, deadline=None)
@given(columns(), types)
def test_casts_between_decimals(a: Any, result: Type) -> None:
    got = run("cast", result, a)
    assert got == [half_up(Fraction(x), result) for x in a[1]]


@settings(max_examples=100, deadline=None)
@given(columns(), columns())
def test_comparisons(a: Any, b: Any) -> None:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, name)
        assert run(name, BOOLEAN, a, b) == [compare(x, y) for x, y in zip(a[1], b[1], strict=True)]
        same = (a[0], a[1][::-1])
        assert run(name, BOOLEAN, a, same) == [compare(x, y) for x, y in zip(a[1], same[1], strict=True)]


@settings(max_examples=100, deadline=None)
@given(columns())
def test_sign_changes_and_doubles(a: Any) -> None:
    assert run("neg", a[0], a) == [-Fraction(x) for x in a[1]]
    assert run("abs", a[0], a) == [abs(Fraction(x)) for x in a[1]]
    assert run("sign", DOUBLE, a) == [float((x > 0) - (x < 0)) for x in a[1]]
    assert run("cast", DOUBLE, a) == [float(x) for x in a[1]]


@settings(max_examples=100, deadline=None)
@given(columns(), st.integers(-5, 10))
def test_round_floor_ceil(a: Any, scale: int) -> None:
    whole = decimal(38, 0)
    assert run("floor", whole, a) == [Decimal(math.floor(x)) for x in a[1]]
    assert run("ceil", whole, a) == [Decimal(math.ceil(x)) for x in a[1]]
    kept = min(scale, a[0].scale)
    unit = Fraction(10) ** -kept
    result = decimal(38, max(kept, 0))
    want = []
    for x in a[1]:
        n = Fraction(x) / unit
        q = (2 * abs(n.numerator) + n.denominator) // (2 * n.denominator)
        want.append(half_up((-q if n < 0 else q) * unit, result))
    assert run("round", result, a, Literal(scale, INT)) == want


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [("-7.5", "2", "-1.5"), ("7.5", "-2", "1.5"), ("7.5", "2.25", "0.75")],
)
def test_mod_has_the_sign_of_the_dividend(a: str, b: str, want: str) -> None:
    type = decimal(6, 2)
    assert run("mod", type, (type, [Decimal(a)]), (type, [Decimal(b)])) == [Decimal(want)]


def test_pmod() -> None:
    for type in (decimal(6, 2), decimal(30, 2)):
        got = run("pmod", type, (type, [Decimal("-7.5"), Decimal(7), None]), (type, [Decimal(2)] * 3))
        assert got == [Decimal("0.5"), Decimal(1), None]
