"""Truth tables over true, false, NULL and errors, against a model that evaluates one row at a time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from belvedere.engine.expr import evaluate
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.vec import Status, Vec
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.types import BIGINT, BOOLEAN, INT, STRING, Type, decimal

ERROR, OTHER = Status.DIVISION, Status.CAST
BOOLS = [True, False, None, ERROR, OTHER]


def column(values: list[Any], type: Type) -> Vec:
    """A column that may hold errors."""
    vec = vec_of([None if isinstance(v, Status) else v for v in values], type)
    vec.status = np_status(values)
    return vec


def np_status(values: list[Any]) -> Any:
    return np.array([v if isinstance(v, Status) else v is not None for v in values], np.uint8)


def table(name: str, result: Type, types: list[Type], choices: list[list[Any]]) -> list[tuple[tuple[Any, ...], Any]]:
    rows = list(itertools.product(*choices))
    columns = [column([r[i] for r in rows], t) for i, t in enumerate(types)]
    call = Call(name, tuple(ColumnRef(i, t) for i, t in enumerate(types)), result)
    return list(zip(rows, to_pylist(evaluate(call, columns, len(rows))), strict=True))


def worst(values: Any) -> Any:
    """The lowest error, else None if there is a NULL, else True."""
    errors = [v for v in values if isinstance(v, Status)]
    return min(errors) if errors else (None if None in values else True)


@pytest.mark.parametrize("arity", [2, 3])
def test_and_or(arity: int) -> None:
    for row, got in table("and", BOOLEAN, [BOOLEAN] * arity, [BOOLS] * arity):
        assert got is (False if any(v is False for v in row) else worst(row)), row
    for row, got in table("or", BOOLEAN, [BOOLEAN] * arity, [BOOLS] * arity):
        if any(v is True for v in row):
            assert got is True, row
        elif any(isinstance(v, Status) for v in row) or None in row:
            assert got is worst(row), row
        else:
            assert got is False


@pytest.mark.parametrize(("name", "decisive"), [("and", False), ("or", True)])
def test_constants_in_and_or(name: str, decisive: bool) -> None:
    vec = column(BOOLS, BOOLEAN)
    ref = ColumnRef(0, BOOLEAN)
    decided = to_pylist(evaluate(Call(name, (ref, Literal(decisive, BOOLEAN)), BOOLEAN), [vec], 5))
    assert decided == [decisive] * 5
    neutral = to_pylist(evaluate(Call(name, (Literal(not decisive, BOOLEAN), ref), BOOLEAN), [vec], 5))
    assert neutral == BOOLS
    null = to_pylist(evaluate(Call(name, (Literal(None, BOOLEAN), ref), BOOLEAN), [vec], 5))
    assert null == [None if v is (not decisive) else v for v in BOOLS]


def test_tests_of_null() -> None:
    assert [g for _, g in table("is_null", BOOLEAN, [BOOLEAN], [BOOLS])] == [False, False, True, ERROR, OTHER]
    assert [g for _, g in table("is_not_null", BOOLEAN, [BOOLEAN], [BOOLS])] == [True, True, False, ERROR, OTHER]
    assert [g for _, g in table("is_true", BOOLEAN, [BOOLEAN], [BOOLS])] == [True, False, False, ERROR, OTHER]
    assert [g for _, g in table("not", BOOLEAN, [BOOLEAN], [BOOLS])] == [False, True, None, ERROR, OTHER]


# No value equals a status code, which are integers too.
VALUES: dict[Type, list[Any]] = {INT: [11, 12], STRING: ["a", "ü"], decimal(30, 2): [11, 12]}


@pytest.mark.parametrize("type", list(VALUES), ids=str)
def test_case_takes_only_what_is_reached(type: Type) -> None:
    things = [*VALUES[type], None, ERROR]
    for row, got in table("case", type, [BOOLEAN, type, BOOLEAN, type, type], [BOOLS, things, BOOLS, things, things]):
        want = row[4]
        for when, then in ((row[2], row[3]), (row[0], row[1])):
            want = then if when is True else when if isinstance(when, Status) else want
        assert got == want, row
    for row, got in table("case", type, [BOOLEAN, type], [BOOLS, things]):
        assert got == (row[1] if row[0] is True else row[0] if isinstance(row[0], Status) else None)


@pytest.mark.parametrize("type", list(VALUES), ids=str)
def test_coalesce_stops_at_the_first_value(type: Type) -> None:
    things = [*VALUES[type], None, ERROR, OTHER]
    for row, got in table("coalesce", type, [type] * 3, [things] * 3):
        assert got == next((v for v in row if v is not None), None), row


@pytest.mark.parametrize("type", list(VALUES), ids=str)
def test_nullif_in_and_null_safe_equality(type: Type) -> None:
    things = [*VALUES[type], None, ERROR]
    for (a, b), got in table("nullif", type, [type] * 2, [things] * 2):
        want = ERROR if ERROR in (a, b) else (None if a is None or a == b else a)
        assert got == want, (a, b)
    for (x, *items), got in table("in", BOOLEAN, [type] * 3, [things] * 3):
        if not isinstance(x, Status) and x is not None and x in items:
            assert got is True
        elif isinstance(x, Status) or x is None:
            assert got is x
        else:
            assert got == (ERROR if ERROR in items else None if None in items else False), (x, items)
    for (a, b), got in table("null_safe_eq", BOOLEAN, [type] * 2, [things] * 2):
        assert got == (ERROR if ERROR in (a, b) else a == b)


def test_in_with_a_list_of_constants() -> None:
    vec = column([1, 5, 9, None, ERROR], BIGINT)
    values = [1, 2, 3, 4, 5]
    for extra, missing in ((None, None), (7, False)):
        items = tuple(Literal(v, BIGINT) for v in [*values, extra])
        got = to_pylist(evaluate(Call("in", (ColumnRef(0, BIGINT), *items), BOOLEAN), [vec], 5))
        assert got == [True, True, missing, None, ERROR]


def test_an_error_wins_over_null_and_the_lowest_code_wins() -> None:
    for row, got in table("add", INT, [INT, INT], [[1, None, ERROR, OTHER]] * 2):
        status = worst(row)
        assert got == (2 if status is True else status), row


def test_case_guards_a_division() -> None:
    a, b = ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)
    zero = Call("eq", (b, Literal(0, BIGINT)), BOOLEAN)
    guarded = Call("case", (zero, Literal(0, BIGINT), Call("intdiv", (a, b), BIGINT)), BIGINT)
    columns = [vec_of([7, -7, 5, None], BIGINT), vec_of([2, 2, 0, 0], BIGINT)]
    assert to_pylist(evaluate(guarded, columns, 4)) == [3, -3, 0, 0]
    assert to_pylist(evaluate(Call("intdiv", (a, b), BIGINT), columns, 4)) == [3, -3, Status.DIVISION, None]
