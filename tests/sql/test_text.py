"""Expressions written for people parse back to what they were."""

from __future__ import annotations

import pytest

from belvedere.sql.text import expr_text, literal_text
from tests.sql.support import bound

TEXTS = [
    ("a+1*b", "cast(a as bigint) + 1 * b"),
    ("(a + 1) * 2", "(a + 1) * 2"),
    ("a - (1 - a)", "a - (1 - a)"),
    ("NOT (f AND a = 1) OR s IS NULL", "not (f and a = 1) or s is null"),
    ("a IN (1,2)", "a in (1, 2)"),
    ("s LIKE 'a!%' ESCAPE '!'", "s like 'a!%' escape '!'"),
    ("s NOT LIKE 'it''s'", "not s like 'it''s'"),
    ("CASE WHEN f THEN 1 END", "case when f then 1 end"),
    ("cast(s AS decimal(5,2))", "cast(s as decimal(5,2))"),
    ("upper(s) || 'x'", "concat(upper(s), 'x')"),
    ("d >= DATE '2024-01-01'", "d >= date '2024-01-01'"),
    ("x > 1.5e0", "x > 1.5D"),
    ("-x", "-x"),
]


@pytest.mark.parametrize(("sql", "text"), TEXTS)
def test_text_and_back(sql: str, text: str) -> None:
    expr = bound(sql)
    assert expr_text(expr) == text
    assert bound(text) == expr


def test_literals() -> None:
    assert literal_text(b"\x0a") == "X'0a'"
    assert literal_text(None) == "null"
    assert literal_text("a\\b") == r"'a\\b'"
    assert bound(literal_text("a\\b'c")) == bound(r"'a\\b''c'")
