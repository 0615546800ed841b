"""Text to typed columns: what is accepted, what is refused, and that the fast path agrees with the careful one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belvedere.cli.values import Broken, convert, key_problems, parse
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Column, Type, decimal


@pytest.mark.parametrize(
    ("text", "type", "expected"),
    [
        ("7", INT, 7),
        (" 7 ", BIGINT, 7),
        (7.0, BIGINT, 7),
        ("1e3", DOUBLE, 1000.0),
        ("9.5", decimal(12, 2), Decimal("9.50")),
        (9.1, decimal(12, 2), Decimal("9.10")),
        ("true", BOOLEAN, True),
        ("FALSE", BOOLEAN, False),
        (" x ", STRING, " x "),
        ("0xff00", BINARY, b"\xff\x00"),
        ("2026-01-31", DATE, dt.date(2026, 1, 31)),
        ("2026-01-31 10:00:00", TIMESTAMP, dt.datetime(2026, 1, 31, 10, tzinfo=dt.UTC)),
        ("2026-01-31T10:00:00+02:00", TIMESTAMP, dt.datetime(2026, 1, 31, 8, tzinfo=dt.UTC)),
        (None, INT, None),
    ],
)
def test_a_value_is_read_in_the_type_of_its_column(text: object, type: Type, expected: object) -> None:
    assert parse(text, type) == expected


@pytest.mark.parametrize(
    ("text", "type", "reason"),
    [
        ("x", INT, "'x' is not an int"),
        ("3000000000", INT, "3000000000 is out of the range of int"),
        ("1.5", BIGINT, "'1.5' is not a bigint"),
        (1.5, BIGINT, "'1.5' is not a bigint"),
        (True, BIGINT, "'True' is not a bigint"),
        ("1_000", BIGINT, "'1_000' is not a bigint"),
        ("9.505", decimal(12, 2), "'9.505' has more than 2 decimal places, decimal(12,2) keeps 2"),
        ("100", decimal(3, 1), "'100' is out of the range of decimal(3,1)"),
        ("NaN", decimal(3, 1), "'NaN' is not a decimal(3,1)"),
        ("maybe", BOOLEAN, "'maybe' is not a boolean"),
        ("2026-02-30", DATE, "'2026-02-30' is not a date"),
        (7, STRING, "'7' is not a string"),
        ("a\udc80", STRING, "the text is not valid UTF-8"),
        ("0xf", BINARY, "'0xf' is not a binary"),
        ("y" * 100, INT, f"'{'y' * 40}…' is not an int"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_reason(text: object, type: Type, reason: str) -> None:
    with pytest.raises(Broken) as caught:
        parse(text, type)
    assert str(caught.value) == reason


def test_only_the_broken_rows_of_a_column_are_lost() -> None:
    values = [str(i) for i in range(1000)]
    values[17] = "x"
    values[900] = ""
    column, broken = convert(values, BIGINT)
    assert broken == {17: "'x' is not a bigint", 900: "'' is not a bigint"}
    assert column.to_pylist() == [None if i in (17, 900) else i for i in range(1000)]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70).map(str), st.text(max_size=5), st.floats().map(str))),
    st.sampled_from([INT, BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP, STRING, decimal(20, 3)]),
)
def test_whole_columns_are_read_as_single_values_are(values: list[str | None], type: Type) -> None:
    column, broken = convert(values, type)
    for i, (value, got) in enumerate(zip(values, column.to_pylist(), strict=True)):
        try:
            expected = parse(value, type)
        except Broken as reason:
            # Arrow reads some forms that Python does not (and the other way round never happens, by construction).
            assert broken.get(i, str(reason)) == str(reason)
            continue
        assert i not in broken
        assert got == expected or (got != got and expected != expected)


def test_null_and_nan_cannot_be_keys() -> None:
    column = Column("k", DOUBLE)
    array, _ = convert(["1.0", None, "NaN"], DOUBLE)
    assert key_problems(array, column) == {1: "key column k is NULL", 2: "key column k is NaN"}
