"""String functions. Positions and lengths count characters (code points); binaries count bytes.

Arrow or compiled loops do the work wherever the arguments that usually are literals are literals. Case mapping of
non-ASCII rows goes through Python, whose full Unicode mapping ("ß" to "SS") is Java's; Arrow's is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr import text
from belvedere.engine.expr.compare import bools
from belvedere.engine.expr.operand import Array, Const, Function, Operand, arrow, merge, spread, values
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Status, Vec
from belvedere.sql.functions import MAX_BYTES
from belvedere.types import Kind, Type

_INT_MAX = 2**31 - 1


def concat(type: Type, args: Sequence[Operand], count: int) -> Operand:
    if len(args) == 1:
        return args[0]
    parts = [arrow(a) for a in args]
    if all(isinstance(a, Const) for a in args):
        parts[0] = spread(args[0], count).data
    joined = pc.binary_join_element_wise(*parts, "" if type.kind is Kind.STRING else b"")
    return Vec(type, joined, merge(args, count))


def substring(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """substring(s, pos[, len]): from 1, 0 is 1, negative counts from the end."""
    array = spread(args[0], count).data
    offsets, data = text.buffers(array)
    pos = _longs(args[1])
    length = _longs(args[2]) if len(args) > 2 else np.array([_INT_MAX])
    begin, end = np.empty(count, np.int64), np.empty(count, np.int64)
    single = type.kind is Kind.BINARY or text.is_ascii(array)
    text.substring_rows(offsets, data, pos, length, single, begin, end)
    return Vec(type, text.cut(array, begin, end), merge(args, count))


def _longs(operand: Operand) -> Array:
    """Positions as int64, within the range of int so that sums cannot wrap."""
    return np.clip(np.atleast_1d(np.asarray(values(operand), np.int64)), -_INT_MAX - 1, _INT_MAX)


def _mapped(fast: Callable[[pa.Array], pa.Array], slow: Callable[[str], str]) -> Function:
    """Arrow for ASCII rows, Python for the others."""

    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        vec = spread(args[0], count)
        if text.is_ascii(vec.data):
            return Vec(type, fast(vec.data), vec.status)
        plain = pc.string_is_ascii(vec.data)
        rest = [slow(s) for s in vec.data.filter(pc.invert(plain)).to_pylist()]
        data = pc.replace_with_mask(fast(vec.data), pc.invert(plain), pa.array(rest, type.arrow))
        return Vec(type, data, vec.status)

    return function


def _initcap(value: str) -> str:
    # Lower case depends on the whole word (a final sigma), so it comes first.
    return " ".join(word[:1].title() + word.lower()[len(word[:1].lower()) :] for word in value.split(" "))


def initcap(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """First letter of each word in upper case, the rest in lower; words end at spaces."""
    return text.per_row(type, args, count, _initcap)


def _trim(trimmer: Callable[..., pa.Array], slow: Callable[[str, str], str]) -> Function:
    """trim(s): spaces only, not other white space. trim(s, chars): any of these characters."""

    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        chars = args[1] if len(args) > 1 else Const(type, " ")
        if not isinstance(chars, Const):
            return text.per_row(type, args, count, lambda s, c: slow(s, c) if c else s)
        data = spread(args[0], count).data
        if chars.status == Status.VALUE and chars.value:
            data = trimmer(data, characters=chars.value)
        return Vec(type, data, merge(args, count))

    return function


def length(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    counted = pc.utf8_length(vec.data) if vec.type.kind is Kind.STRING else pc.binary_length(vec.data)
    return Vec(type, np.asarray(counted).astype(type.dtype, copy=False), vec.status)


def replace(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """replace(s, a[, b]): every a by b; an empty a changes nothing."""
    old = args[1]
    new = args[2] if len(args) > 2 else Const(type, "")
    if not (isinstance(old, Const) and isinstance(new, Const)):
        return text.per_row(type, (args[0], old, new), count, lambda s, a, b: s.replace(a, b) if a else s)
    data = spread(args[0], count).data
    if old.status == new.status == Status.VALUE and old.value:
        data = pc.replace_substring(data, pattern=old.value, replacement=new.value)
    return Vec(type, data, merge(args, count))


def _test(fast: Callable[..., pa.Array], slow: Callable[[Any, Any], bool]) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        part = args[1]
        if not isinstance(part, Const) or part.status != Status.VALUE:
            return text.per_row(type, args, count, slow)
        return Vec(type, bools(fast(spread(args[0], count).data, pattern=part.value)), merge(args, count))

    return function


def instr(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """instr(s, part): the first position, from 1; 0 if there is none."""
    part = args[1]
    if not isinstance(part, Const) or part.status != Status.VALUE:
        return text.per_row(type, args, count, lambda s, p: s.find(p) + 1)
    array = spread(args[0], count).data
    found = np.asarray(pc.find_substring(array, pattern=part.value)) if part.value else np.zeros(count, np.int32)
    out = np.empty(count, type.dtype)
    text.char_index_rows(*text.buffers(array), plain(found), out)
    return Vec(type, out, merge(args, count))


def reverse(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    turned = pc.utf8_reverse(vec.data) if type.kind is Kind.STRING else pc.binary_reverse(vec.data)
    return Vec(type, turned, vec.status)


def _repeat(value: str, times: int) -> str | Status:
    return Status.ARGUMENT if len(value) * times > MAX_BYTES else value * times


def repeat(type: Type, args: Sequence[Operand], count: int) -> Operand:
    return text.per_row(type, args, count, _repeat)


_Text = TypeVar("_Text", str, bytes)


def _padding(missing: int, pad: _Text) -> _Text:
    return (pad * (missing // len(pad) + 1))[:missing] if pad else pad


def _pad(left: bool) -> Function:
    """Padded or cut to exactly n characters, or bytes."""

    def one(value: _Text, n: int, pad: _Text) -> _Text | Status:
        if n <= len(value):
            return value[: max(n, 0)]
        if n > MAX_BYTES:
            return Status.ARGUMENT
        padding = _padding(n - len(value), pad)
        return padding + value if left else value + padding

    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        return text.per_row(type, args, count, one)

    return function


_trim_both = _trim(pc.utf8_trim, str.strip)
_trim_left = _trim(pc.utf8_ltrim, str.lstrip)
_trim_right = _trim(pc.utf8_rtrim, str.rstrip)

FUNCTIONS: dict[str, Function] = {
    "concat": concat,
    "substring": substring,
    "upper": _mapped(pc.ascii_upper, str.upper),
    "lower": _mapped(pc.ascii_lower, str.lower),
    "initcap": initcap,
    "trim": _trim_both,
    "ltrim": _trim_left,
    "rtrim": _trim_right,
    "trim_chars": _trim_both,
    "ltrim_chars": _trim_left,
    "rtrim_chars": _trim_right,
    "length": length,
    "replace": replace,
    "starts_with": _test(pc.starts_with, lambda s, p: bool(s.startswith(p))),
    "ends_with": _test(pc.ends_with, lambda s, p: bool(s.endswith(p))),
    "contains": _test(pc.match_substring, lambda s, p: p in s),
    "instr": instr,
    "reverse": reverse,
    "repeat": repeat,
    "lpad": _pad(True),
    "rpad": _pad(False),
}
