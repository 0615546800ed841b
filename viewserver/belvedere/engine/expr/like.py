"""LIKE: patterns with % and _, compiled to the cheapest test that does the job."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr.compare import bools
from belvedere.engine.expr.operand import Array, Const, Function, Operand, fail, merge, spread
from belvedere.engine.expr.text import per_row
from belvedere.engine.vec import Status, Vec
from belvedere.types import BOOLEAN, Type


def parse(pattern: str, escape: str) -> list[str] | None:
    """Parts of a pattern: "%", "_" or "=" and literal text; None where an escape stands before nothing special."""
    parts: list[str] = []
    i = 0
    while i < len(pattern):
        c = pattern[i]
        text = c
        if c == escape:
            i += 1
            if i == len(pattern) or pattern[i] not in ("%", "_", escape):
                return None
            text = pattern[i]
        elif c in "%_":
            if not (c == "%" and parts and parts[-1] == "%"):
                parts.append(c)
            i += 1
            continue
        if parts and parts[-1][0] == "=":
            parts[-1] += text
        else:
            parts.append("=" + text)
        i += 1
    return parts


def _match(array: pa.Array, parts: list[str]) -> Array:
    shape = "".join(p[0] for p in parts)
    text = next((p[1:] for p in parts if p[0] == "="), "")
    result: Any
    if shape in ("", "="):
        result = pc.equal(array, pa.scalar(text, array.type))
    elif shape == "%":
        return np.ones(len(array), np.bool_)
    elif shape == "=%":
        result = pc.starts_with(array, pattern=text)
    elif shape == "%=":
        result = pc.ends_with(array, pattern=text)
    elif shape == "%=%":
        result = pc.match_substring(array, pattern=text)
    else:
        regex = "".join(_RE2.get(p) or "".join(f"\\x{{{ord(c):x}}}" for c in p[1:]) for p in parts)
        result = pc.match_substring_regex(array, pattern=rf"(?s)\A{regex}\z")
    return bools(result)


_RE2 = {"%": ".*", "_": "."}


@functools.lru_cache(maxsize=1024)
def _compiled(pattern: str, escape: str) -> re.Pattern[str] | None:
    parts = parse(pattern, escape)
    if parts is None:
        return None
    return re.compile("".join(_RE2.get(p) or re.escape(p[1:]) for p in parts), re.DOTALL)


def _one(value: str, pattern: str, escape: str = "\\") -> bool | Status:
    regex = _compiled(pattern, escape)
    return Status.ARGUMENT if regex is None else regex.fullmatch(value) is not None


def like(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """like(s, pattern[, escape]); a pattern that ends in, or misuses, its escape character is an ARGUMENT error."""
    pattern = args[1]
    escape = args[2] if len(args) > 2 else Const(pattern.type, "\\")
    if not (isinstance(pattern, Const) and isinstance(escape, Const)):
        return per_row(BOOLEAN, args, count, _one)
    status = merge(args, count)
    if pattern.status != Status.VALUE or escape.status != Status.VALUE:
        return Vec(BOOLEAN, np.zeros(count, np.bool_), status)
    parts = parse(pattern.value, escape.value)
    if parts is None:
        every = np.ones(count, np.bool_)
        return Vec(BOOLEAN, every, fail(status, every, Status.ARGUMENT))
    return Vec(BOOLEAN, _match(spread(args[0], count).data, parts), status)


FUNCTIONS: dict[str, Function] = {"like": like}
