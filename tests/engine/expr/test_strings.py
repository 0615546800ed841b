"""String functions against Python's str, on every kind of character, and on arrays that are slices."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from belvedere.engine.expr import evaluate
from belvedere.engine.expr.literal import to_pylist
from belvedere.engine.vec import Status, Vec
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.types import BINARY, BOOLEAN, INT, STRING
from tests.engine.expr.model import one, run

TEXT = st.text(st.sampled_from("abAB xyß é語😀\x00\n%_\\") | st.characters(codec="utf-8"), max_size=8)
ROWS = st.lists(TEXT | st.none(), min_size=4, max_size=4)


def substring(s: str, pos: int, length: int) -> str:
    start = pos - 1 if pos > 0 else (len(s) + pos if pos < 0 else 0)
    return s[max(start, 0) : max(start + length, 0)] if length > 0 else ""


def mapped(values: list[str | None], fn: Any) -> list[Any]:
    return [None if v is None else fn(v) for v in values]


@settings(max_examples=200, deadline=None)
@given(ROWS, st.integers(-10, 10), st.integers(-2, 10))
def test_substring(rows: list[str | None], pos: int, length: int) -> None:
    want = mapped(rows, lambda s: substring(s, pos, length))
    assert run("substring", STRING, (STRING, rows), Literal(pos, INT), Literal(length, INT)) == want
    assert run("substring", STRING, (STRING, rows), (INT, [pos] * 4), (INT, [length] * 4)) == want
    data = Vec(STRING, pa.array(["é", *(r or "" for r in rows)]).slice(1))
    call = Call("substring", (ColumnRef(0, STRING), Literal(pos, INT), Literal(length, INT)), STRING)
    assert to_pylist(evaluate(call, [data], 4)) == [substring(r or "", pos, length) for r in rows]


@settings(max_examples=200, deadline=None)
@given(ROWS, TEXT, TEXT)
def test_functions_of_a_part(rows: list[str | None], part: str, new: str) -> None:
    models: dict[str, Any] = {
        "starts_with": (BOOLEAN, lambda s: s.startswith(part)),
        "ends_with": (BOOLEAN, lambda s: s.endswith(part)),
        "contains": (BOOLEAN, lambda s: part in s),
        "instr": (INT, lambda s: s.find(part) + 1),
        "trim_chars": (STRING, lambda s: s.strip(part) if part else s),
        "ltrim_chars": (STRING, lambda s: s.lstrip(part) if part else s),
        "rtrim_chars": (STRING, lambda s: s.rstrip(part) if part else s),
        "concat": (STRING, lambda s: s + part),
    }
    for name, (result, model) in models.items():
        want = mapped(rows, model)
        assert run(name, result, (STRING, rows), Literal(part, STRING)) == want, name
        assert run(name, result, (STRING, rows), (STRING, [part] * 4)) == want, name
    want = mapped(rows, lambda s: s.replace(part, new) if part else s)
    assert run("replace", STRING, (STRING, rows), Literal(part, STRING), Literal(new, STRING)) == want
    assert run("replace", STRING, (STRING, rows), (STRING, [part] * 4), (STRING, [new] * 4)) == want


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_functions_of_one_string(rows: list[str | None]) -> None:
    models: dict[str, Any] = {
        "upper": str.upper,
        "lower": str.lower,
        "reverse": lambda s: s[::-1],
        "trim": lambda s: s.strip(" "),
        "ltrim": lambda s: s.lstrip(" "),
        "rtrim": lambda s: s.rstrip(" "),
    }
    for name, model in models.items():
        assert run(name, STRING, (STRING, rows)) == mapped(rows, model), name
    assert run("length", INT, (STRING, rows)) == mapped(rows, len)
    encoded = [None if r is None else r.encode() for r in rows]
    assert run("length", INT, (BINARY, encoded)) == mapped(rows, lambda s: len(s.encode()))
    assert run("cast", BINARY, (STRING, rows)) == encoded
    assert run("cast", STRING, (BINARY, encoded)) == rows


def like(s: str, pattern: str, escape: str) -> Any:
    regex, i = "", 0
    while i < len(pattern):
        c = pattern[i]
        if c == escape:
            i += 1
            if i == len(pattern) or pattern[i] not in {"%", "_", escape}:
                return Status.ARGUMENT
            regex += re.escape(pattern[i])
        else:
            regex += {"%": "(?s:.*)", "_": "(?s:.)"}.get(c) or re.escape(c)
        i += 1
    return re.fullmatch(regex, s) is not None


PATTERN = st.text(st.sampled_from("ab%_\\語\x00\n!"), max_size=6)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab%_\\語\x00\n!"), max_size=5), min_size=4, max_size=4), PATTERN)
def test_like(rows: list[str], pattern: str) -> None:
    want = [like(s, pattern, "\\") for s in rows]
    assert run("like", BOOLEAN, (STRING, rows), Literal(pattern, STRING)) == want
    assert run("like", BOOLEAN, (STRING, rows), (STRING, [pattern] * 4)) == want
    want = [like(s, pattern, "!") for s in rows]
    assert run("like", BOOLEAN, (STRING, rows), Literal(pattern, STRING), Literal("!", STRING)) == want


def test_padding_and_repetition() -> None:
    assert one("lpad", STRING, (STRING, "é"), (INT, 4), (STRING, "xy")) == "xyxé"
    assert one("rpad", STRING, (STRING, "語語"), (INT, 1), (STRING, "xy")) == "語"
    assert one("repeat", STRING, (STRING, "ab"), (INT, 3)) == "ababab"
    assert one("repeat", STRING, (STRING, "ab"), (INT, 2**31 - 1)) is Status.ARGUMENT
    assert one("initcap", STRING, (STRING, "sTRAßE one-two")) == "Straße One-two"


def test_broken_utf8_is_a_failed_cast() -> None:
    assert run("cast", STRING, (BINARY, [b"ok", b"\xff", None])) == ["ok", Status.CAST, None]
