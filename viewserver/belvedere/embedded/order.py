"""Rows in key order, and the part of them between two keys: SQL's order, NULLs first, NaN last, text by its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.embedded.rows import from_python
from belvedere.engine.delta import Delta
from belvedere.engine.vec import Vec
from belvedere.errors import DataError
from belvedere.store.embedded.describe import ViewShape
from belvedere.types import Column, Kind


def key_columns(shape: ViewShape) -> tuple[Column, ...]:
    return tuple(shape.schema[i] for i in shape.key)


def key_values(columns: Sequence[Column], key: Any, owner: str, *, prefix: bool = False) -> tuple[Any, ...]:
    """A key given as one value, a tuple, or a dict by column."""
    names = ", ".join(c.name for c in columns)
    if isinstance(key, dict):
        by_name = {str(k).lower(): v for k, v in key.items()}
        unknown = set(by_name) - {c.name.lower() for c in columns}
        if unknown:
            raise DataError(f"the key of {owner} is ({names}), not {', '.join(sorted(unknown))}")
        given = [c for c in columns if c.name.lower() in by_name]
        values = (
            tuple(by_name[c.name.lower()] for c in columns[: len(given)])
            if given == list(columns[: len(given)])
            else ()
        )
    else:
        values = tuple(key) if isinstance(key, (tuple, list)) else (key,)
    if len(values) != len(columns) and not (prefix and 0 < len(values) < len(columns)):
        raise DataError(f"the key of {owner} is ({names}): {len(columns)} values are needed, {len(values)} were given")
    return values


def key_vecs(columns: Sequence[Column], values: Sequence[Any], owner: str) -> list[Vec]:
    """A key as columns of one row."""
    out = []
    for value, column in zip(values, columns, strict=False):
        if type(value) is int and column.type.kind is Kind.BIGINT and -(1 << 63) <= value < 1 << 63:
            out.append(Vec(column.type, np.array([value], np.int64)))  # the common case, without a detour
        else:
            out.append(from_python([value], column, owner))
    return out


def _sortable(vec: Vec) -> list[np.ndarray]:
    """Arrays that compare as the values do, most significant first, without regard to NULLs."""
    if isinstance(vec.data, np.ndarray):
        if vec.type.kind is Kind.DOUBLE:
            data = np.where(vec.data == 0, 0.0, vec.data)
            bits = np.where(np.isnan(data), np.nan, data).view(np.int64)
            ordered = np.where(bits < 0, np.int64(-1) - (bits & np.int64(0x7FFFFFFFFFFFFFFF)), bits)
            return [np.where(np.isnan(vec.data), np.iinfo(np.int64).max, ordered)]
        if vec.type.wide:
            return [np.ascontiguousarray(vec.data[:, 1]), vec.data[:, 0].astype(np.int64).view(np.uint64)]
        return [vec.data]
    data = vec.data.cast(pa.binary()) if vec.type.kind is Kind.STRING else vec.data
    return [np.asarray(pc.rank(data, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)]


def sort_order(columns: Sequence[Vec]) -> np.ndarray:
    """Positions of rows in the order of these columns."""
    keys: list[np.ndarray] = []
    for vec in columns:
        if vec.status is not None and not vec.valid.all():
            valid = vec.valid
            keys.append(valid)
            keys += [np.where(valid, part, part.dtype.type(0)) for part in _sortable(vec)]
        else:
            keys += _sortable(vec)
    if len(keys) == 1:
        return np.argsort(keys[0], kind="stable")
    return np.lexsort(keys[::-1])


def _compare(vec: Vec, bound: Vec) -> tuple[np.ndarray, np.ndarray]:
    """Masks of rows below the bound (one row), and equal to it."""
    count = len(vec)
    valid = vec.valid
    if bound.status is not None and not bound.valid[0]:
        return np.zeros(count, np.bool_), ~valid
    if isinstance(vec.data, np.ndarray):
        less, equal = np.zeros(count, np.bool_), np.ones(count, np.bool_)
        for part, limit in zip(_sortable(vec), _sortable(bound), strict=True):
            less |= equal & (part < limit[0])
            equal &= part == limit[0]
    else:
        data = vec.data.cast(pa.binary()) if vec.type.kind is Kind.STRING else vec.data
        limit = bound.data.cast(pa.binary())[0] if vec.type.kind is Kind.STRING else bound.data[0]
        less = pc.less(data, limit).to_numpy(zero_copy_only=False)
        equal = pc.equal(data, limit).to_numpy(zero_copy_only=False)
    return (less & valid) | ~valid, equal & valid


def at_or_above(columns: Sequence[Vec], bound: Sequence[Vec]) -> np.ndarray:
    """Mask of rows whose key is not below the bound, which may be a prefix of a key."""
    less = np.zeros(len(columns[0]), np.bool_)
    equal = np.ones(len(columns[0]), np.bool_)
    for vec, limit in zip(columns, bound, strict=False):
        below, same = _compare(vec, limit)
        less |= equal & below
        equal &= same
    return np.asarray(~less)


def select(rows: Delta, shape: ViewShape, start: Any, stop: Any, limit: int | None, owner: str) -> Delta:
    """Rows from `start` (included) to `stop` (not included) in key order, at most `limit`."""
    columns = key_columns(shape)
    keys = [rows.columns[i] for i in shape.key]
    if not keys:
        return rows if limit is None else rows.slice(0, min(limit, len(rows)))
    mask: np.ndarray | None = None
    if start is not None:
        mask = at_or_above(keys, key_vecs(columns, key_values(columns, start, owner, prefix=True), owner))
    if stop is not None:
        below = ~at_or_above(keys, key_vecs(columns, key_values(columns, stop, owner, prefix=True), owner))
        mask = below if mask is None else mask & below
    if mask is not None:
        rows = rows.filter(mask)
    order = sort_order([rows.columns[i] for i in shape.key])
    return rows.take(order if limit is None else order[:limit])
