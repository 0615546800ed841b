"""Filters of a query as ranges of keys: what Spark would drop is not even read.

Spark evaluates every filter again on what it gets, so a range only has to contain all rows that can pass; a filter that
says nothing of the key, or whose value does not fit the column, narrows nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import datasource as spark

from belvedere.errors import DataError
from belvedere.model.keys import KeyCodec, after_prefix
from belvedere.model.ranges import KeyRange

MOST_RANGES = 1024
"""More values of IN lists than this are not worth a range each."""


@dataclass
class _Bounds:
    """What filters say of one column. `values`: it has one of them (None: nothing is known)."""

    values: list[Any] | None = None
    lower: list[tuple[Any, bool]] = field(default_factory=list)
    upper: list[tuple[Any, bool]] = field(default_factory=list)
    """With whether the bound itself may pass."""

    def allow(self, values: Iterable[Any]) -> None:
        given = list(values)
        self.values = given if self.values is None else [v for v in self.values if v in given]


def key_ranges(codec: KeyCodec, filters: Sequence[spark.Filter]) -> list[KeyRange] | None:
    """Ranges that together hold all rows which can pass, ascending and apart; None: all keys."""
    known: dict[str, _Bounds] = {}
    for one in filters:
        _take(known, one)
    prefixes: list[tuple[Any, ...]] = [()]
    for position, column in enumerate(codec.columns):
        bounds = known.get(column.name.lower())
        if bounds is None:
            break
        if bounds.values is not None and len(prefixes) * len(bounds.values) <= MOST_RANGES:
            fitting = [v for v in bounds.values if _fits(codec, position, v)]
            if len(fitting) < len(bounds.values):
                break
            prefixes = [(*p, v) for p, v in itertools.product(prefixes, fitting)]
            continue
        if bounds.lower or bounds.upper:
            return _apart(_bounded(codec, position, prefix, bounds) for prefix in prefixes)
        break
    if prefixes == [()]:
        return None
    return _apart(_bounded(codec, len(prefixes[0]) if prefixes else 0, prefix, _Bounds()) for prefix in prefixes)


def _take(known: dict[str, _Bounds], one: spark.Filter) -> None:
    name = getattr(one, "attribute", ("",))
    if len(name) != 1:
        return
    bounds = known.setdefault(name[0].lower(), _Bounds())
    match one:
        case spark.EqualTo() | spark.EqualNullSafe():
            bounds.allow([one.value])
        case spark.In():
            bounds.allow(dict.fromkeys(one.value))
        case spark.IsNull():
            bounds.allow([None])
        case spark.GreaterThan():
            bounds.lower.append((one.value, False))
        case spark.GreaterThanOrEqual():
            bounds.lower.append((one.value, True))
        case spark.LessThan():
            bounds.upper.append((one.value, False))
        case spark.LessThanOrEqual():
            bounds.upper.append((one.value, True))
        case spark.StringStartsWith():
            bounds.lower.append((one.value, True))
            behind = _behind(one.value)
            if behind is not None:
                bounds.upper.append((behind, False))


def _behind(prefix: str) -> str | None:
    """A text that follows all that begin so, in the order of their bytes."""
    while prefix:
        code = ord(prefix[-1]) + 1
        code = 0xE000 if 0xD800 <= code < 0xE000 else code  # no text has surrogates
        if code <= 0x10FFFF:
            return prefix[:-1] + chr(code)
        prefix = prefix[:-1]
    return None


def _fits(codec: KeyCodec, position: int, value: Any) -> bool:
    try:
        KeyCodec(codec.columns[position : position + 1]).encode_one((value,))
    except DataError:
        return False
    return True


def _bounded(codec: KeyCodec, position: int, prefix: tuple[Any, ...], bounds: _Bounds) -> KeyRange:
    """Keys that begin with the prefix and whose next column is within the bounds."""
    start = codec.encode_one(prefix) if prefix else b""
    low, high = start, after_prefix(start) if start else None
    for value, itself in bounds.lower:
        if value is not None and _fits(codec, position, value):
            key = codec.encode_one((*prefix, value))
            low = max(low, key if itself else after_prefix(key) or key)
    for value, itself in bounds.upper:
        if value is not None and _fits(codec, position, value):
            key = codec.encode_one((*prefix, value))
            end = after_prefix(key) if itself else key
            high = end if high is None else high if end is None else min(high, end)
    return KeyRange(low, high)


def _apart(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Without empty ranges, ascending. Prefixes are different, so none overlaps another."""
    return sorted({r for r in ranges if r.high is None or r.low < r.high}, key=lambda r: r.low)
