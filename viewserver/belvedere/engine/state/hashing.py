"""Row identities: 128-bit hashes of key columns, stable across processes and versions.

NULLs are equal to each other, NaNs too, -0.0 is 0.0, and an int hashes like the bigint of equal value. Everything else
is hashed by its physical words: both sides of a comparison must have one type, which the planner sees to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.state.arena import string_parts
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels.hash import SEED_A, SEED_B, combine_ids, fold_strings, fold_words
from belvedere.engine.vec import Vec
from belvedere.types import Kind

_NO_STATUS = np.empty(0, np.uint8)
NIL = np.array([0x6E696C0000000001, 0x6E696C0000000002], np.uint64)
"""The id of a side that is missing, in pairs."""


def hash_rows(columns: Sequence[Vec], count: int) -> np.ndarray:
    """Ids (uint64[n, 2]) of rows by these columns, in this order. No columns: one constant id for every row."""
    out = np.empty((count, 2), np.uint64)
    if not columns:
        out[:, 0], out[:, 1] = SEED_A, SEED_B
        return out
    for i, column in enumerate(columns):
        _fold(column, i == 0, out)
    return out


def combine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Ids of pairs; `combine(a, b)` is not `combine(b, a)`. Either side may be one id (uint64[2]) for all rows."""
    count = len(a) if a.ndim == 2 else len(b)
    out = np.empty((count, 2), np.uint64)
    combine_ids(_rows(a, count), _rows(b, count), out)
    return out


def constant_id(n: int) -> np.ndarray:
    """The id (uint64[2]) that stands for a small number, such as a branch of a union."""
    out = np.empty((1, 2), np.uint64)
    fold_words(np.array([n], np.uint64), _NO_STATUS, True, False, out)
    return np.asarray(out[0])


def _rows(ids: np.ndarray, count: int) -> np.ndarray:
    return plain(ids) if ids.ndim == 2 else np.tile(ids, (count, 1))


def _fold(column: Vec, first: bool, out: np.ndarray) -> None:
    status = _NO_STATUS if column.status is None else plain(column.status)
    type = column.type
    if type.varlen:
        offsets, values = string_parts(column.data)
        fold_strings(offsets, values, status, first, out)
    elif type.wide:
        fold_words(_words(column.data[:, 0]), status, first, False, out)
        fold_words(_words(column.data[:, 1]), status, False, False, out)
    else:
        fold_words(_words(column.data), status, first, type.kind is Kind.DOUBLE, out)


def _words(data: np.ndarray) -> np.ndarray:
    """Eight bytes per row: narrower integers are widened with their sign."""
    if data.dtype.itemsize != 8:
        data = data.astype(np.int64)
    return plain(data).view(np.uint64)
