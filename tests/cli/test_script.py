"""Cutting a text into statements."""

from __future__ import annotations

import pytest

from belvedere.cli.script import Piece, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" -- nothing\n /* at all */ ;", []),
        ("SELECT 1;", [Piece("SELECT 1", 1)]),
        ("SELECT 1", [Piece("SELECT 1", 1, complete=False)]),
        ("SELECT ';' ; SELECT 2;", [Piece("SELECT ';'", 1), Piece("SELECT 2", 1)]),
        ("SELECT 'it''s; fine';", [Piece("SELECT 'it''s; fine'", 1)]),
        (r"SELECT 'a\';b';", [Piece(r"SELECT 'a\';b'", 1)]),
        ("SELECT `a;b`;", [Piece("SELECT `a;b`", 1)]),
        ("SELECT 1 -- one;\n;", [Piece("SELECT 1 -- one;", 1)]),
        ("SELECT /* ; */ 1;\n\n SELECT 2;", [Piece("SELECT /* ; */ 1", 1), Piece("SELECT 2", 3)]),
        ("SELECT 'open; ", [Piece("SELECT 'open;", 1, complete=False)]),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text: str, expected: list[Piece]) -> None:
    assert split(text) == expected
