"""Cutting a text into statements."""

from __future__ import annotations

import pytest

from belvedere.cli.script import ScriptPiece, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" -- nothing\n /* at all */ ;", []),
        ("SELECT 1;", [ScriptPiece("SELECT 1", 1)]),
        ("SELECT 1", [ScriptPiece("SELECT 1", 1, complete=False)]),
        ("SELECT ';' ; SELECT 2;", [ScriptPiece("SELECT ';'", 1), ScriptPiece("SELECT 2", 1)]),
        ("SELECT 'it''s; fine';", [ScriptPiece("SELECT 'it''s; fine'", 1)]),
        (r"SELECT 'a\';b';", [ScriptPiece(r"SELECT 'a\';b'", 1)]),
        ("SELECT `a;b`;", [ScriptPiece("SELECT `a;b`", 1)]),
        ("SELECT 1 -- one;\n;", [ScriptPiece("SELECT 1 -- one;", 1)]),
        ("SELECT /* ; */ 1;\n\n SELECT 2;", [ScriptPiece("SELECT /* ; */ 1", 1), ScriptPiece("SELECT 2", 3)]),
        ("SELECT 'open; ", [ScriptPiece("SELECT 'open;", 1, complete=False)]),
    ],
)
def test_statements_end_at_semicolons_outside_quotes_and_comments(text: str, expected: list[ScriptPiece]) -> None:
    assert split(text) == expected
