"""Integers and doubles against Python's own arithmetic, and programs as a whole."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.engine.expr import compile_exprs, evaluate
from belvedere.engine.expr.literal import python_value, to_pylist, vec_of
from belvedere.engine.vec import Status
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Type, decimal
from tests.engine.expr.model import run

BITS = {INT: 32, BIGINT: 64}


def trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def rem(a: int, b: int) -> int:
    return a - trunc_div(a, b) * b


def pmod(a: int, b: int, bits: int) -> int:
    """As Spark computes it, with a sum that wraps."""
    r = rem(a, b)
    half = 1 << bits - 1
    return r if r >= 0 else rem((r + b + half) % (2 * half) - half, b)


MODELS: dict[str, Any] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "intdiv": trunc_div,
    "mod": rem,
    "pmod": pmod,  # also takes the width
}


def whole(bits: int) -> st.SearchStrategy[int]:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    edges = [low, low + 1, -1, 0, 1, high - 1, high, 1 << bits // 2, -(1 << bits // 2)]
    return st.sampled_from(edges) | st.integers(low, high) | st.integers(-100, 100)


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from([INT, BIGINT]), st.sampled_from(sorted(MODELS)), st.booleans())
def test_integers_never_wrap(data: Any, type: Type, name: str, literal: bool) -> None:
    numbers = whole(BITS[type])
    a = data.draw(st.lists(numbers, min_size=5, max_size=5))
    b = data.draw(st.lists(numbers, min_size=5, max_size=5))
    if literal:
        b = [b[0]] * 5
    result = BIGINT if name == "intdiv" else type
    got = run(name, result, (type, a), Literal(b[0], type) if literal else (type, b))
    for x, y, z in zip(a, b, got, strict=True):
        if y == 0 and name in ("intdiv", "mod", "pmod"):
            assert z is Status.DIVISION
            continue
        bits = BITS[result]
        want = pmod(x, y, bits) if name == "pmod" else MODELS[name](x, y)
        assert z == (want if -(1 << bits - 1) <= want < 1 << bits - 1 else Status.OVERFLOW), (x, y)
        assert isinstance(z, Status) == (not -(1 << bits - 1) <= want < 1 << bits - 1)


def order(x: float) -> tuple[bool, float]:
    return (True, 0.0) if math.isnan(x) else (False, x)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(), min_size=3, max_size=3), st.lists(st.floats(), min_size=3, max_size=3))
def test_doubles_are_ordered_with_nan_last(a: list[float], b: list[float]) -> None:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        compare = getattr(operator, name)
        want = [compare(order(x), order(y)) for x, y in zip(a, b, strict=True)]
        assert run(name, BOOLEAN, (DOUBLE, a), (DOUBLE, b)) == want
        want = [compare(order(x), order(b[0])) for x in a]
        assert run(name, BOOLEAN, (DOUBLE, a), Literal(b[0], DOUBLE)) == want
        want = [compare(order(b[0]), order(x)) for x in a]
        assert run(name, BOOLEAN, Literal(b[0], DOUBLE), (DOUBLE, a)) == want
    best = [max(x, y, key=order) for x, y in zip(a, b, strict=True)]
    assert [order(x) for x in run("greatest", DOUBLE, (DOUBLE, a), (DOUBLE, b))] == [order(x) for x in best]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_doubles_as_text_come_back(a: list[float]) -> None:
    texts = run("cast", STRING, (DOUBLE, a))
    assert [float(t) for t in texts] == a
    assert run("cast", DOUBLE, (STRING, texts)) == a


def test_columns_are_not_copied_and_equal_parts_run_once() -> None:
    column = vec_of([1.0, 2.0], DOUBLE)
    ref = ColumnRef(0, DOUBLE)
    assert evaluate(ref, [column], 2) is column
    twice = Call("mul", (ref, Literal(2.0, DOUBLE)), DOUBLE)
    program = compile_exprs((Call("add", (twice, twice), DOUBLE), twice, Call("add", (Literal(1, INT),) * 2, INT)))
    assert len(program.steps) == 2
    assert [to_pylist(v) for v in program.run([column], 2)] == [[4.0, 8.0], [2.0, 4.0], [2, 2]]
    assert [len(v) for v in program.run([column.slice(0, 0)], 0)] == [0, 0, 0]


def test_zero_and_negative_zero_are_different_literals() -> None:
    exprs = [Call("cast", (Literal(z, DOUBLE),), STRING) for z in (0.0, -0.0)]
    assert [to_pylist(v) for v in compile_exprs(exprs).run([], 1)] == [["0.0"], ["-0.0"]]


def test_folded_errors_stay_values() -> None:
    boom = Call("intdiv", (Literal(1, BIGINT), Literal(0, BIGINT)), BIGINT)
    assert to_pylist(evaluate(boom, [], 2)) == [Status.DIVISION] * 2
    safe = Call("coalesce", (Literal(1, BIGINT), boom), BIGINT)
    assert to_pylist(evaluate(safe, [], 2)) == [1, 1]
    with pytest.raises(ValueError, match="division by zero"):
        python_value(evaluate(boom, [], 1), 0)


@pytest.mark.parametrize("type", [decimal(18, 2), decimal(38, 2), BIGINT, DOUBLE], ids=str)
def test_values_survive_the_round_trip(type: Type) -> None:
    values = [1, -1, 0, None, 123456789]
    vec = vec_of(values, type)
    assert to_pylist(vec) == values == [python_value(vec, i) for i in range(5)]
    assert np.array_equal(vec.valid, [True, True, True, False, True])
