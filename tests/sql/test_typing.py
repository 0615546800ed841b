"""Types of expressions, and the casts the binder writes: Spark's rules in ANSI mode."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from belvedere.sql import decimals
from belvedere.sql.expr import Literal
from belvedere.types import decimal
from tests.sql.support import bound, shape, type_of

TYPES = [
    ("a + 1", "int"),
    ("a + b", "bigint"),
    ("a + x", "double"),
    ("a / 2", "double"),
    ("b DIV a", "bigint"),
    ("a % 2", "int"),
    ("-a", "int"),
    ("-2147483648", "int"),
    ("2147483648", "bigint"),
    ("-9223372036854775808", "bigint"),
    ("9223372036854775808", "decimal(19,0)"),
    ("10L", "bigint"),
    ("-10L", "bigint"),
    ("1.50", "decimal(3,2)"),
    ("0.05", "decimal(2,2)"),
    ("1e3", "double"),
    ("1.5D", "double"),
    ("2.5BD", "decimal(2,1)"),
    ("p + 1", "decimal(13,2)"),
    ("p + a", "decimal(13,2)"),
    ("p + b", "decimal(23,2)"),
    ("p - q", "decimal(13,2)"),
    ("p * q", "decimal(18,3)"),
    ("p * 2", "decimal(14,2)"),
    ("p / q", "decimal(19,8)"),
    ("p / 3", "decimal(16,6)"),
    ("p % q", "decimal(6,2)"),
    ("p * x", "double"),
    ("s + 1", "bigint"),
    ("s + 1.5", "double"),
    ("s * x", "double"),
    ("abs(p)", "decimal(12,2)"),
    ("round(p)", "decimal(11,0)"),
    ("round(p, 1)", "decimal(12,1)"),
    ("round(p, 5)", "decimal(13,2)"),
    ("round(p, -2)", "decimal(11,0)"),
    ("round(x, 2)", "double"),
    ("round(a, -1)", "int"),
    ("floor(x)", "bigint"),
    ("floor(a)", "bigint"),
    ("ceil(p)", "decimal(11,0)"),
    ("sign(p)", "double"),
    ("greatest(a, b, 1)", "bigint"),
    ("least(p, x)", "double"),
    ("coalesce(q, 0)", "decimal(11,1)"),
    ("CASE WHEN f THEN q ELSE 0 END", "decimal(11,1)"),
    ("CASE WHEN f THEN a END", "int"),
    ("CASE WHEN f THEN NULL ELSE d END", "date"),
    ("if(f, d, ts)", "timestamp"),
    ("nullif(a, 1.5)", "int"),
    ("coalesce(s, 1)", "bigint"),
    ("length(s)", "int"),
    ("concat(s, a)", "string"),
    ("s || 1", "string"),
    ("year(ts)", "int"),
    ("year('2020-01-01')", "int"),
    ("d + 1", "date"),
    ("d - INTERVAL '1' MONTH", "date"),
    ("d + INTERVAL '1' HOUR", "timestamp"),
    ("ts + INTERVAL '1' DAY", "timestamp"),
    ("datediff(ts, d)", "int"),
    ("date_trunc('month', d)", "timestamp"),
    ("trunc(ts, 'MM')", "date"),
    ("cast(s AS decimal)", "decimal(10,0)"),
    ("try_cast(s AS int)", "int"),
    ("int(x)", "int"),
    ("to_date(s)", "date"),
    ("X'00'", "binary"),
    ("count(*)", "bigint"),
    ("sum(a)", "bigint"),
    ("sum(p)", "decimal(22,2)"),
    ("sum(x)", "double"),
    ("avg(a)", "double"),
    ("avg(p)", "decimal(16,6)"),
    ("avg(s)", "double"),
    ("min(s)", "string"),
    ("max(f)", "boolean"),
    ("sum(p) / count(*)", "decimal(38,18)"),
    ("count_if(f)", "bigint"),
]


@pytest.mark.parametrize(("expression", "expected"), TYPES)
def test_type_of(expression: str, expected: str) -> None:
    assert type_of(expression) == expected


CASTS = [
    ("a + b", ("add", ("cast bigint", "a"), "b")),
    ("a = 1.5", ("eq", ("cast decimal(11,1)", ("cast decimal(10,0)", "a")), Decimal("1.5"))),
    ("d >= '2024-02-29'", ("ge", "d", date(2024, 2, 29))),
    ("ts < '2024-02-29 10:00:00+02:00'", ("lt", "ts", datetime(2024, 2, 29, 8, tzinfo=UTC))),
    ("ts = d", ("eq", "ts", ("cast timestamp", "d"))),
    ("s = 1", ("eq", ("cast bigint", "s"), 1)),
    ("s = f", ("eq", ("cast boolean", "s"), "f")),
    ("x > 1", ("gt", "x", 1.0)),
    ("b > 1", ("gt", "b", 1)),
    ("p > 1", ("gt", "p", Decimal("1.00"))),
    ("a BETWEEN 1 AND 2", ("and", ("ge", "a", 1), ("le", "a", 2))),
    ("a NOT IN (1, 2)", ("not", ("in", "a", 1, 2))),
    ("a IS NOT NULL", ("is_not_null", "a")),
    ("f IS FALSE", ("is_true", ("not", "f"))),
    ("a IS DISTINCT FROM b", ("not", ("null_safe_eq", ("cast bigint", "a"), "b"))),
    ("s LIKE 'a!_%' ESCAPE '!'", ("like", "s", "a!_%", "!")),
    ("s NOT LIKE 'a%'", ("not", ("like", "s", "a%", "\\"))),
    ("left(s, 2)", ("substring", "s", 1, 2)),
    ("right(s, 2)", ("substring", "s", -2, 2**31 - 1)),
    ("substr(s, 3)", ("substring", "s", 3, 2**31 - 1)),
    ("substring(s FROM 2 FOR 3)", ("substring", "s", 2, 3)),
    ("trim(BOTH 'x' FROM s)", ("trim_chars", "s", "x")),
    ("ltrim('x', s)", ("ltrim_chars", "s", "x")),
    ("position('b' IN s)", ("instr", "s", "b")),
    ("locate('b', s)", ("instr", "s", "b")),
    ("nvl(a, 0)", ("coalesce", "a", 0)),
    ("nvl2(s, a, 0)", ("case", ("is_not_null", "s"), "a", 0)),
    ("CASE a WHEN 1 THEN 'x' END", ("case", ("eq", "a", 1), "x", None)),
    ("extract(YEAR FROM ts)", ("year", ("cast date", "ts"))),
    ("date_part('doy', d)", ("dayofyear", "d")),
    ("hour(d)", ("hour", ("cast timestamp", "d"))),
    ("trunc(d, 'yy')", ("trunc", "d", "year")),
    ("date_trunc('MM', ts)", ("date_trunc", "month", "ts")),
    ("d + INTERVAL 3 WEEKS", ("date_add", "d", 21)),
    ("d - INTERVAL '1' YEAR", ("add_months", "d", -12)),
    ("INTERVAL '1' DAY + d", ("date_add", "d", 1)),
    ("ts - INTERVAL '1.5' SECOND", ("ts_add_micros", "ts", -1_500_000)),
    ("ts + INTERVAL '1' QUARTER", ("ts_add_months", "ts", 3)),
    ("d - 1", ("date_sub", "d", 1)),
    ("cast(1.55 AS decimal(2,1))", Decimal("1.6")),
    ("cast(NULL AS date)", None),
    ("floor(a)", ("cast bigint", "a")),
    ("pow(a, 2)", ("power", ("cast double", "a"), 2.0)),
    ("'it''s' 'x'", "it'sx"),
]


@pytest.mark.parametrize(("expression", "expected"), CASTS)
def test_bound_form(expression: str, expected: object) -> None:
    assert shape(bound(expression)) == expected


def test_constants_take_the_type_they_are_compared_with() -> None:
    assert bound("b = 1").args[1] == Literal(1, bound("b").type)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("operator", "left", "right", "expected"),
    [
        ("add", (38, 10), (38, 10), (38, 9)),
        ("mul", (38, 10), (38, 10), (38, 6)),
        ("mul", (20, 2), (20, 2), (38, 4)),
        ("div", (38, 4), (38, 4), (38, 6)),
        ("div", (10, 2), (5, 1), (17, 8)),
        ("mod", (10, 2), (5, 4), (5, 4)),
    ],
)
def test_decimal_results(
    operator: str, left: tuple[int, int], right: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert decimals.arithmetic(operator, decimal(*left), decimal(*right)) == decimal(*expected)


def test_wider_decimals_keep_integral_digits() -> None:
    assert decimals.wider(decimal(38, 0), decimal(38, 20)) == decimal(38, 0)
    assert decimals.wider(decimal(10, 2), decimal(5, 4)) == decimal(12, 4)
