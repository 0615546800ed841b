"""Random tables and the values that go into them: few distinct ones, so that rows meet in groups and joins."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

TYPES = ("int", "bigint", "double", "decimal(10,2)", "decimal(24,4)", "string", "date", "timestamp", "boolean")
WEIGHTS = (6, 2, 2, 2, 1, 4, 1, 1, 2)
NULLS = 0.1
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Column:
    """A column of a table, view or subquery."""

    name: str
    type: str


@dataclass(frozen=True)
class Relation:
    """Something with columns that a query can read."""

    name: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class BaseTable(Relation):
    """A base table; the key columns come first or last, as it happens."""

    key: tuple[str, ...]

    def ddl(self) -> str:
        columns = ", ".join(f"{c.name} {c.type.upper()}" for c in self.columns)
        return f"CREATE TABLE {self.name} ({columns}, PRIMARY KEY ({', '.join(self.key)}))"

    def type(self, column: str) -> str:
        return next(c.type for c in self.columns if c.name == column)


def tables(rng: Random) -> list[BaseTable]:
    """One to three tables. Every one has an int column besides its key, so joins are always possible."""
    found = []
    for number in range(rng.choice((1, 2, 2, 3))):
        keys = [Column("k", rng.choice(("int", "bigint", "string")))]
        if rng.random() < 0.25:
            keys.append(Column("k2", rng.choice(("int", "string", "date"))))
        rest = [Column("a", "int")]
        for position in range(rng.randint(1, 4)):
            rest.append(Column("bcdef"[position], rng.choices(TYPES, WEIGHTS)[0]))
        columns = (*keys, *rest) if rng.random() < 0.8 else (*rest, *keys)
        found.append(BaseTable(f"t{number}", columns, tuple(c.name for c in keys)))
    return found


def value(rng: Random, type: str, nulls: float = NULLS) -> Any:
    """A value of a column. Doubles are quarters, so that sums are exact in any order (and now and then NaN)."""
    if rng.random() < nulls:
        return None
    if type in ("int", "bigint"):
        return rng.choice((0, 1, 2, 3, 4, 5, -1, -2, 7))
    if type == "double":
        return float("nan") if rng.random() < 0.05 else rng.randint(-8, 12) / 4
    if type == "decimal(24,4)":  # wider than 18 digits: two words in the engine
        return Decimal(rng.choice((0, 15_000, -1, 10**17 + 1, -(10**18)))).scaleb(-4)
    if type.startswith("decimal"):
        return Decimal(rng.choice((0, 1, 25, 100, 150, -75, 999))).scaleb(-2)
    if type == "string":
        return rng.choice(("", "a", "b", "ab", "A", "xyz", " a ", "é"))
    if type == "date":
        return date(2024, 2, 27) + timedelta(days=rng.randint(0, 4))
    if type == "timestamp":
        return EPOCH + timedelta(hours=rng.choice((0, 1, 24, 25)), microseconds=rng.choice((0, 1, 500_000)))
    return rng.random() < 0.5


def key_value(rng: Random, type: str) -> Any:
    """A value of a key column: never NULL, from few."""
    if type == "string":
        return rng.choice("abcdefghij")
    return value(rng, type, 0.0) if type == "date" else rng.randint(0, 11)
