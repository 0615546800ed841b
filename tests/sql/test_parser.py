"""Syntax errors point at the word that is wrong; scripts split at semicolons."""

from __future__ import annotations

import pytest

from belvedere.sql.parser import statements
from tests.sql.support import refused

SYNTAX = [
    ("SELECT a FROM", "ends after 'FROM'", (1, 10), "table name is missing"),
    ("SELECT a,, b FROM t", "',' after a comma", (1, 10), "remove"),
    ("SELECT a, FROM t", "'FROM' after a comma", (1, 11), "remove"),
    ("SELECT (a FROM t", "syntax error at 'FROM'", (1, 11), "')' is missing"),
    ("SELECT a\nFROM t\nWHERE (b = 1", "ends after '1'", (3, 12), ") is missing"),
    ("SELECT 'abc FROM t", "ends inside a string", (1, 8), "close the quote"),
    ("SELECT a b c FROM t", "syntax error at 'c'", (1, 12), None),
    ("SELECT é, a b c FROM t", "syntax error at 'c'", (1, 15), None),
    ("", "an empty query", (1, 1), None),
]


@pytest.mark.parametrize(("sql", "message", "position", "hint"), SYNTAX)
def test_syntax_errors(sql: str, message: str, position: tuple[int, int], hint: str | None) -> None:
    refused(sql, message, position, hint)


def test_statements_of_a_script() -> None:
    text = "SELECT ';' -- a; b\nFROM t;\n\n;; SELECT \"x;\" FROM u /* ; */"
    found = statements(text)
    assert [s.sql for s in found] == ["SELECT ';' -- a; b\nFROM t", 'SELECT "x;" FROM u']
    assert found[1].where(found[1].tokens[0]) == (4, 4)
