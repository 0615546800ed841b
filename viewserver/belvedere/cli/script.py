"""Cuts a text into SQL statements at semicolons, also while it is still being typed.

The SQL front end has a tokenizer too, but it refuses a text that ends inside a quote; a prompt has to wait for the rest
instead, and only needs to know where quotes and comments are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScriptPiece:
    """One statement without its semicolon; `line` is where it begins in the text (from 1)."""

    sql: str
    line: int
    complete: bool = True


def split(text: str) -> list[ScriptPiece]:
    """The statements of a text. The last one is not `complete` if no semicolon ends it or a quote is open."""
    pieces: list[ScriptPiece] = []
    start = position = 0
    while position < len(text):
        if text[position] == ";":
            pieces += _piece(text, start, position, complete=True)
            position += 1
            start = position
        else:
            position = _skip(text, position)
    return pieces + _piece(text, start, len(text), complete=False)


def _piece(text: str, start: int, stop: int, *, complete: bool) -> list[ScriptPiece]:
    sql = text[start:stop]
    if not _has_words(sql):
        return []
    leading = len(sql) - len(sql.lstrip())
    return [ScriptPiece(sql.strip(), text.count("\n", 0, start + leading) + 1, complete)]


def _skip(text: str, position: int) -> int:
    """Past one character, quoted text or comment."""
    char = text[position]
    if char in "'\"`":
        position += 1
        while position < len(text) and text[position] != char:
            position += 2 if text[position] == "\\" and char != "`" else 1
        return position + 1
    if text.startswith("--", position):
        end = text.find("\n", position)
        return len(text) if end < 0 else end + 1
    if text.startswith("/*", position):
        end = text.find("*/", position + 2)
        return len(text) if end < 0 else end + 2
    return position + 1


def _has_words(sql: str) -> bool:
    """Whether anything but white space and comments is there."""
    position = 0
    while position < len(sql):
        if sql.startswith(("--", "/*"), position):
            position = _skip(sql, position)
        elif sql[position].isspace():
            position += 1
        else:
            return True
    return False
