"""Which part of a view is verified: all of it, a sample of its keys, or the keys of a prefix or range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from belvedere.errors import DataError

_PARTS = 1 << 14
"""Parts of the keys by hash, of which a sample takes some: as many as a pool has buckets."""


@dataclass(frozen=True)
class Scope:
    """`sample`: this share of the keys, chosen by hash with `seed`. `prefix`: keys that begin so. `start`, `stop`: keys
    from one up to another, which is not included. Columns of the key, as Python values."""

    sample: float | None = None
    seed: int = 0
    prefix: tuple[Any, ...] = ()
    start: tuple[Any, ...] = ()
    stop: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.sample is not None and not 0 < self.sample <= 1:
            raise DataError(f"a sample is a share of the keys, above 0 and at most 1; found {self.sample:g}")

    @property
    def whole(self) -> bool:
        return self.sample is None and not (self.prefix or self.start or self.stop)

    def __str__(self) -> str:
        parts = []
        if self.sample is not None:
            parts.append(f"a sample of {self.sample:.2%} of the keys" + (f", seed {self.seed}" if self.seed else ""))
        for word, values in (("that begin with", self.prefix), ("from", self.start), ("up to", self.stop)):
            if values:
                parts.append(f"keys {word} {', '.join(map(repr, values))}")
        return "; ".join(parts)

    def of(self, rows: DataFrame, key: Sequence[str], view: str) -> DataFrame:
        """The rows that belong to it; the same of the view and of what it should be."""
        if self.prefix or self.start or self.stop:
            if not key:
                raise DataError(
                    f"view {view!r} does not show its whole key, so it has no ranges of keys; take a sample"
                )
            longest = max(len(self.prefix), len(self.start), len(self.stop))
            if longest > len(key):
                raise DataError(f"the key of view {view!r} is ({', '.join(key)}); {longest} values were given")
        for name, value in zip(key, self.prefix, strict=False):
            rows = rows.where(_column(name).eqNullSafe(F.lit(value)))
        if self.start:
            rows = rows.where(~_before(key, self.start))
        if self.stop:
            rows = rows.where(_before(key, self.stop))
        if self.sample is not None:
            by = [_column(name) for name in (key or rows.columns)]
            part = F.pmod(F.xxhash64(F.lit(self.seed), *by), F.lit(_PARTS))
            rows = rows.where(part < max(1, round(self.sample * _PARTS)))
        return rows


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _before(key: Sequence[str], values: Sequence[Any]) -> Column:
    """Whether a key comes before these values, or what begins with them, in SQL's order: NULLs first."""
    before: Column = F.lit(False)
    for name, value in reversed(list(zip(key, values, strict=False))):
        column, bound = _column(name), F.lit(value)
        less = F.lit(False) if value is None else F.coalesce(column < bound, F.lit(True))
        before = less | (column.eqNullSafe(bound) & before)
    return before
