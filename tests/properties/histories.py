"""Random histories of writes: full and partial puts, deletes, mixed batches, repeated keys, any timestamps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.properties.schemas import BaseTable, key_value, value


@dataclass(frozen=True)
class Write:
    """One call of `put`, `delete` or `write`."""

    table: str
    rows: tuple[dict[str, Any], ...]
    deletes: tuple[bool, ...]
    ts: int | None


class Histories:
    """A generator of writes. Some histories stamp nothing, some everything, in any order, some now and then."""

    def __init__(self, rng: Random, tables: list[BaseTable]) -> None:
        self.rng, self.tables = rng, tables
        self.stamped = rng.choice((0.0, 0.0, 1.0, 0.3))
        self.span = rng.choice((4, 40))  # few timestamps: many ties

    def load(self) -> Iterator[Write]:
        """Some rows in every table."""
        for table in self.tables:
            rows = [self._row(table, partial=False) for _ in range(self.rng.randint(4, 14))]
            yield Write(table.name, tuple(rows), (False,) * len(rows), self._ts())

    def epoch(self) -> Iterator[Write]:
        """The calls of one epoch."""
        rng = self.rng
        for _ in range(rng.choice((1, 1, 2, 3))):
            table = rng.choice(self.tables)
            share = rng.choice((0.0, 0.0, 0.0, 1.0, 0.3))
            rows, deletes = [], []
            for _ in range(rng.choice((1, 2, 4, 8)) if share < 1.0 else rng.randint(1, 3)):
                delete = rng.random() < share
                row = self._row(table, partial=rng.random() < 0.3)
                rows.append({k: row[k] for k in table.key} if delete else row)
                deletes.append(delete)
            # `write` stamps its rows itself, in order
            yield Write(table.name, tuple(rows), tuple(deletes), None if 0.0 < share < 1.0 else self._ts())

    def _ts(self) -> int | None:
        return self.rng.randint(1, self.span) if self.rng.random() < self.stamped else None

    def _row(self, table: BaseTable, partial: bool) -> dict[str, Any]:
        """A key and values of all other columns, or of some, or of none."""
        keys = {k: key_value(self.rng, table.type(k)) for k in table.key}
        rest = [c for c in table.columns if c.name not in table.key]
        return keys | {c.name: value(self.rng, c.type) for c in rest if not (partial and self.rng.random() < 0.6)}
