"""Two frames compared as bags by Spark, in one shuffle: what is in one and not in the other.

Rows are grouped by all of their columns (there NaN equals NaN, and -0.0 equals 0.0) with the number of times that each
side has them; what is left where the numbers differ is small unless much is wrong, and only counts and a few examples
come to the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from belvedere.model.verify import RELATIVE, SHOWN, Pair, Row

_COUNT = "belvedere_count"


@dataclass(frozen=True)
class Difference:
    """`rows`: of the view that were looked at. Examples, and how many there are of each."""

    rows: int
    missing: tuple[Row, ...]
    extra: tuple[Row, ...]
    different: tuple[Pair, ...]
    counts: dict[str, int]

    @property
    def total(self) -> int:
        return max(self.counts["missing"], self.counts["extra"]) + self.counts["different"]


def compare(found: DataFrame, expected: DataFrame, key: Sequence[str], loose: Sequence[str]) -> Difference:
    """The rows of a view and those that it should have. `key`: unique columns, if there are such; `loose`: columns that
    may differ in the last digits."""
    names = found.columns
    both = found.withColumn(_COUNT, F.lit(1)).union(expected.toDF(*names).withColumn(_COUNT, F.lit(-1)))
    groups = both.groupBy(*map(_quoted, names)).agg(F.sum(_COUNT).alias(_COUNT))
    left = groups.where(F.col(_COUNT) != 0).persist()
    try:
        # counted by itself: what Spark observes on the way is lost where it finds a side to be empty
        return _told(found.count(), _tightened(left, names, loose) if loose else left, names, key)
    finally:
        left.unpersist()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _tightened(left: DataFrame, names: Sequence[str], loose: Sequence[str]) -> DataFrame:
    """Without rows that have a partner which differs in the last digits of these columns only."""
    rest = [name for name in names if name not in loose]

    def without(rows: DataFrame, others: DataFrame) -> DataFrame:
        a, b = rows.alias("a"), others.alias("b")
        condition: Column = F.lit(True)
        for name in rest:
            condition &= F.col(f"a.{_quoted(name)}").eqNullSafe(F.col(f"b.{_quoted(name)}"))
        for name in loose:
            x, y = F.col(f"a.{_quoted(name)}"), F.col(f"b.{_quoted(name)}")
            near = F.abs(x - y) <= F.greatest(F.abs(x), F.abs(y)) * RELATIVE
            condition &= x.eqNullSafe(y) | F.coalesce(near, F.lit(False))
        return a.join(b, condition, "left_anti")

    extra, missing = left.where(F.col(_COUNT) > 0), left.where(F.col(_COUNT) < 0)
    return without(extra, missing).union(without(missing, extra))


def _told(rows: int, left: DataFrame, names: Sequence[str], key: Sequence[str]) -> Difference:
    by = [_quoted(name) for name in (key or names)]
    sides = left.groupBy(*by).agg(
        F.sum(F.greatest(F.col(_COUNT), F.lit(0))).alias("belvedere_extra"),
        F.sum(F.greatest(-F.col(_COUNT), F.lit(0))).alias("belvedere_missing"),
    )
    extra, missing = F.col("belvedere_extra"), F.col("belvedere_missing")
    paired = F.least(extra, missing)
    totals = sides.agg(F.sum(missing - paired), F.sum(extra - paired), F.sum(paired)).collect()[0]
    counts = dict(zip(("missing", "extra", "different"), (int(total or 0) for total in totals), strict=True))
    if not any(counts.values()):
        return Difference(rows, (), (), (), counts)
    lacking = _examples(left, sides.where(extra == 0), names, key, -1)
    beyond = _examples(left, sides.where(missing == 0), names, key, 1)
    pairs = _pairs(left, sides.where((extra > 0) & (missing > 0)), names, key) if key else ()
    return Difference(rows, lacking, beyond, pairs, counts)


def _rows(left: DataFrame, keys: DataFrame, key: Sequence[str], names: Sequence[str]) -> list[Any]:
    """All differences of a few keys."""
    some = keys.orderBy(*map(_quoted, key or names)).limit(SHOWN)
    a, b = left.alias("a"), some.alias("b")
    condition: Column = F.lit(True)
    for name in key or names:
        condition &= F.col(f"a.{_quoted(name)}").eqNullSafe(F.col(f"b.{_quoted(name)}"))
    return a.join(b, condition, "left_semi").collect()


def _plain(row: Any, names: Sequence[str]) -> Row:
    return {name: bytes(row[name]) if isinstance(row[name], bytearray) else row[name] for name in names}


def _examples(left: DataFrame, keys: DataFrame, names: Sequence[str], key: Sequence[str], sign: int) -> tuple[Row, ...]:
    found = _rows(left, keys, key, names)
    return tuple(_plain(row, names) for row in found if row[_COUNT] * sign > 0)[:SHOWN]


def _pairs(left: DataFrame, keys: DataFrame, names: Sequence[str], key: Sequence[str]) -> tuple[Pair, ...]:
    sides: dict[str, dict[int, Row]] = {}
    for row in _rows(left, keys, key, names):
        sides.setdefault(str([row[name] for name in key]), {})[1 if row[_COUNT] > 0 else -1] = _plain(row, names)
    return tuple({"found": s[1], "expected": s[-1]} for s in sides.values() if len(s) == 2)[:SHOWN]
