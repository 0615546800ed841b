"""Keys and ranges of keys as users give them, and rows in key order: SQL's order, NULLs first, NaN last, text by its
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from belvedere.engine.vec import Vec
from belvedere.errors import DataError
from belvedere.model.describe import ViewShape
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange, beginning_with
from belvedere.model.rows import Misfit, allowed, fit, from_python, quote
from belvedere.types import Column, Kind, Schema


def key_columns(shape: ViewShape) -> tuple[Column, ...]:
    return tuple(shape.schema[i] for i in shape.key)


def key_values(columns: Sequence[Column], key: Any, owner: str, *, prefix: bool = False) -> tuple[Any, ...]:
    """A key given as one value, a tuple, or a dict by column. `prefix`: its first columns will do."""
    names = ", ".join(c.name for c in columns)
    if isinstance(key, dict):
        by_name = {str(k).lower(): v for k, v in key.items()}
        unknown = set(by_name) - {c.name.lower() for c in columns}
        if unknown:
            raise DataError(f"the key of {owner} is ({names}), not {', '.join(sorted(unknown))}")
        given = [c for c in columns if c.name.lower() in by_name]
        if given != list(columns[: len(given)]):
            raise DataError(f"the key of {owner} is ({names}): {', '.join(by_name)} is not how it begins")
        values = tuple(by_name[c.name.lower()] for c in given)
    else:
        values = tuple(key) if isinstance(key, (tuple, list)) else (key,)
    if len(values) != len(columns) and not (prefix and 0 < len(values) < len(columns)):
        hint = "; lookup reads all rows whose key begins so" if 0 < len(values) < len(columns) else ""
        raise DataError(
            f"the key of {owner} is ({names}): {len(columns)} values are needed, {len(values)} were given{hint}"
        )
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


# ---------------------------------------------------------------------- ranges


def _encoded(codec: KeyCodec, key: Any, owner: str) -> bytes:
    """A key, or the first columns of one."""
    values = key_values(codec.columns, key, owner, prefix=True)
    try:
        return codec.encode_one(values)
    except DataError:
        return codec.encode_one([_fitted(v, c, owner) for v, c in zip(values, codec.columns, strict=False)])


def _fitted(value: Any, column: Column, owner: str) -> Any:
    try:
        return fit(value, column.type)
    except Misfit as error:
        raise DataError(
            f"the key of {owner}, column {column.name!r} ({column.type}): {quote(value)} does not fit; "
            f"allowed is {allowed(column.type)}"
        ) from error


def prefix_range(codec: KeyCodec, prefix: Sequence[Any], limit: int | None, reverse: bool, owner: str) -> KeyRange:
    """All keys that begin with these values (or with one tuple or dict of them)."""
    if not prefix:
        raise DataError(f"lookup in {owner} needs the first value of its key at least; scan reads all rows")
    given = prefix[0] if len(prefix) == 1 and isinstance(prefix[0], (dict, tuple, list)) else tuple(prefix)
    return beginning_with(_encoded(codec, given, owner), _checked(limit), reverse)


def key_range(codec: KeyCodec, start: Any, stop: Any, limit: int | None, reverse: bool, owner: str) -> KeyRange:
    """Keys from `start` up to `stop`, which is not included; a prefix of a key will do for either."""
    low = b"" if start is None else _encoded(codec, start, owner)
    high = None if stop is None else _encoded(codec, stop, owner)
    if high is not None and high < low:
        raise DataError(
            f"the range of {owner} is upside down: start {quote(start)} comes after stop {quote(stop)}; "
            f"to read from the end, keep start below stop and say reverse"
        )
    return KeyRange(low, high, _checked(limit), reverse)


def _checked(limit: int | None) -> int | None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise DataError(f"limit is a number of rows, 0 or more; found {quote(limit)}")
    return limit


def positions(schema: Schema, names: Sequence[str] | None, owner: str) -> list[int]:
    """Where the named columns stand; all of them without names."""
    if names is None:
        return list(range(len(schema)))
    known = {c.name.lower(): i for i, c in enumerate(schema)}
    listed = ", ".join(c.name for c in schema)
    if isinstance(names, str) or not names:
        raise DataError(f"columns is a list of names; {owner} has {listed}")
    found = [known.get(str(name).lower(), -1) for name in names]
    if -1 in found:
        raise DataError(f"{owner} has no column {names[found.index(-1)]!r}; it has {listed}")
    if len(set(found)) < len(found):
        raise DataError(f"columns names a column of {owner} twice: {', '.join(names)}")
    return found
