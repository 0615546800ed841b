"""Casts from strings: trim, parse the usual spelling in a compiled loop, and hand the rest to `parse`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr import text
from belvedere.engine.expr.casts import parse, scan
from belvedere.engine.expr.operand import Array, fail, words, words_of
from belvedere.engine.vec import Status, Vec
from belvedere.types import Kind, Type
from belvedere.types import decimal as decimal_type

_TRUE, _FALSE = pa.array(["t", "true", "y", "yes", "1"]), pa.array(["f", "false", "n", "no", "0"])


def _trimmed(vec: Vec) -> pa.Array:
    return pc.utf8_trim(vec.data, characters=parse.BLANKS)


def _rest(vec: Vec, array: pa.Array, hard: Array, one: Callable[[str], Any]) -> tuple[Array, list[Any], Array | None]:
    """Parse rows flagged `hard` that hold values: their indexes, results (0 for failures), and the status."""
    if vec.status is not None:
        hard = hard & (vec.status == Status.VALUE)
    rows = np.flatnonzero(hard)
    if not len(rows):
        return rows, [], vec.status
    results = [one(s) for s in array.take(pa.array(rows)).to_pylist()]
    status = np.ones(len(vec), np.uint8) if vec.status is None else vec.status.copy()
    for row, result in zip(rows.tolist(), results, strict=True):
        if isinstance(result, Status):
            status[row] = result
    return rows, [0 if isinstance(r, Status) else r for r in results], status


def _scanned(vec: Vec, type: Type, kernel: Callable[..., None], one: Callable[[str], Any]) -> Vec:
    array = _trimmed(vec)
    out, hard = np.zeros(len(vec), np.int64), np.zeros(len(vec), np.bool_)
    kernel(*text.buffers(array), out, hard)
    rows, results, status = _rest(vec, array, hard, one)
    if len(rows):
        out[rows] = results
    return Vec(type, out.astype(type.dtype, copy=False), status)


def to_integer(vec: Vec, type: Type) -> Vec:
    """[sign] digits; out of range is a CAST error as well."""
    bits = 8 * type.dtype.itemsize
    result = _scanned(vec, Type(Kind.BIGINT), scan.integer_rows, lambda s: parse.integer(s, bits))
    data = result.data.astype(type.dtype)
    return Vec(type, data, fail(result.status, data != result.data, Status.CAST))


def to_date(vec: Vec, type: Type) -> Vec:
    return _scanned(vec, type, scan.date_rows, parse.date)


def to_timestamp(vec: Vec, type: Type) -> Vec:
    return _scanned(vec, type, scan.timestamp_rows, parse.timestamp)


def to_double(vec: Vec, type: Type) -> Vec:
    array = _trimmed(vec)
    plain = pc.match_substring_regex(array, pattern=r"\A-?[0-9]{1,15}(\.[0-9]{1,15})?\z")
    easy = plain.to_numpy(zero_copy_only=False)
    out = np.asarray(pc.cast(pc.if_else(plain, array, "0"), pa.float64())).copy()
    rows, results, status = _rest(vec, array, ~easy, parse.double)
    if len(rows):
        out[rows] = results
    return Vec(type, out, status)


def to_decimal(vec: Vec, type: Type) -> Vec:
    """Rounded half up to the scale; OVERFLOW where it does not fit, CAST where it is no number."""
    array = _trimmed(vec)
    out, hard = np.zeros(len(vec), np.int64), np.zeros(len(vec), np.bool_)
    scan.decimal_rows(*text.buffers(array), type.scale, out, hard)
    rows, results, status = _rest(vec, array, hard, lambda s: parse.decimal(s, type.precision, type.scale))
    data = out
    if type.wide:
        data = words(Vec(decimal_type(18, 0), out))
    else:
        status = fail(status, np.abs(out) >= 10**type.precision, Status.OVERFLOW)
    if len(rows):
        data[rows] = words_of(results) if type.wide else results
    return Vec(type, data, status)


def to_boolean(vec: Vec, type: Type) -> Vec:
    array = pc.ascii_lower(_trimmed(vec))
    yes = pc.is_in(array, value_set=_TRUE).to_numpy(zero_copy_only=False)
    no = pc.is_in(array, value_set=_FALSE).to_numpy(zero_copy_only=False)
    return Vec(type, yes, fail(vec.status, ~(yes | no), Status.CAST))


def to_binary(vec: Vec, type: Type) -> Vec:
    return Vec(type, vec.data.cast(pa.binary()), vec.status)


def from_binary(vec: Vec, type: Type) -> Vec:
    """Bytes as UTF-8; a CAST error where they are not."""
    try:
        return Vec(type, vec.data.cast(pa.string()), vec.status)
    except pa.ArrowInvalid:
        return text.per_row(type, (vec,), len(vec), _decode)


def _decode(value: bytes) -> str | Status:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return Status.CAST
