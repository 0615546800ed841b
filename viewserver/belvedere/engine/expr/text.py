"""Plumbing of string functions: the buffers behind an Arrow array, cutting pieces out of it, rows through Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.expr.operand import Array, Const, Operand, merge
from belvedere.engine.state.jit import kernel, plain
from belvedere.engine.vec import Status, Vec
from belvedere.types import Type


def buffers(array: pa.Array) -> tuple[Array, Array]:
    """(offsets int32[n + 1], bytes) of a string or binary array, as kernels take them."""
    _, offsets, data = array.buffers()
    if offsets is None:
        return np.zeros(len(array) + 1, np.int32), np.zeros(0, np.uint8)
    view = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    if data is None or data.size == 0:
        return plain(view), np.zeros(0, np.uint8)
    return plain(view), plain(np.frombuffer(data, np.uint8))


def is_ascii(array: pa.Array) -> bool:
    """Whether every byte of the array is an ASCII character: then bytes and characters are the same."""
    offsets, data = buffers(array)
    used = data[offsets[0] : offsets[-1]]
    return len(used) == 0 or int(used.max()) < 128


def cut(array: pa.Array, begin: Array, end: Array) -> pa.Array:
    """Row i becomes the bytes begin[i]..end[i] of the array's data buffer."""
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(end - begin, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    _copy_rows(buffers(array)[1], begin, offsets, out)
    return pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0)


@kernel("u1[:] i8[:] i4[:] u1[:]")
def _copy_rows(data, begin, offsets, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(begin)):
        source = begin[i] - offsets[i]
        for j in range(offsets[i], offsets[i + 1]):
            out[j] = data[source + j]


@kernel("i4[:] u1[:] i8[:] i8[:] b1 i8[:] i8[:]")
def substring_rows(offsets, data, pos, length, single, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """Byte ranges of SQL substrings; `single`: every character is one byte. One-element pos or length stand for all."""
    step_p = 1 if len(pos) == len(begin) else 0
    step_l = 1 if len(length) == len(begin) else 0
    for i in range(len(begin)):
        b, e, p, n = np.int64(offsets[i]), np.int64(offsets[i + 1]), pos[i * step_p], length[i * step_l]
        start = p - 1
        if p <= 0:
            start = 0
            if p < 0:
                chars = e - b
                if not single:
                    chars = np.int64(0)
                    for j in range(b, e):
                        if data[j] & 0xC0 != 0x80:
                            chars += 1
                start = chars + p
        stop = start + n
        begin[i] = end[i] = e
        if stop <= start or stop <= 0:
            continue
        start = max(start, 0)
        if single:
            begin[i], end[i] = min(b + start, e), min(b + stop, e)
            continue
        chars = np.int64(0)
        for j in range(b, e):
            if data[j] & 0xC0 != 0x80:
                if chars == start:
                    begin[i] = j
                elif chars == stop:
                    end[i] = j
                    break
                chars += 1


@kernel("i4[:] u1[:] i4[:] i4[:]")
def char_index_rows(offsets, data, byte_index, out):  # type: ignore[no-untyped-def]  # compiled
    """1-based character position of a byte index into each row; 0 where the index is negative."""
    for i in range(len(out)):
        out[i] = 0
        if byte_index[i] >= 0:
            out[i] = 1
            for j in range(offsets[i], offsets[i] + byte_index[i]):
                if data[j] & 0xC0 != 0x80:
                    out[i] += 1


def python_rows(operand: Operand, count: int) -> list[Any]:
    """Values row by row for the slow path: str, bytes or numbers."""
    if isinstance(operand, Const):
        return [operand.value] * count
    data = operand.data
    result: list[Any] = data.to_pylist() if isinstance(data, pa.Array) else data.tolist()
    return result


def per_row(type: Type, args: Sequence[Operand], count: int, function: Callable[..., Any]) -> Vec:
    """A strict function applied in Python to each row that holds values. It returns the value, or a `Status` other than
    VALUE."""
    status = merge(args, count)
    valid = [True] * count if status is None else (status == Status.VALUE).tolist()
    rows = zip(valid, *(python_rows(a, count) for a in args), strict=True)
    results = [function(*row) if ok else Status.NULL for ok, *row in rows]
    special = [i for i, r in enumerate(results) if isinstance(r, Status) and valid[i]]
    if special:
        status = np.ones(count, np.uint8) if status is None else status.copy()
        for i in special:
            status[i] = results[i]
    blank: Any = ("" if type.kind.value == "string" else b"") if type.varlen else 0
    clean = [blank if isinstance(r, Status) else r for r in results]
    return Vec(type, pa.array(clean, type.arrow) if type.varlen else np.array(clean, type.dtype), status)
