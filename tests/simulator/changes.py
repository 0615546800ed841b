"""What users write in a history: puts of some columns and deletes, with timestamps of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Value: TypeAlias = int | str | None


@dataclass(frozen=True)
class Change:
    """One row of an entry. `values` are the columns that a put names, without the key; None for a delete."""

    table: str
    key: int
    ts: int
    values: Mapping[str, Value] | None


@dataclass
class _Row:
    put: int = -1
    deleted: int = -1
    cells: dict[str, tuple[int, Value]] = field(default_factory=dict)


class Table:
    """A base table, the slow and obvious way. Cells are merged last-writer-wins by timestamp; a delete masks what has
    its timestamp or an older one, whenever it comes; of puts with one timestamp the later or the greater wins."""

    def __init__(self, columns: tuple[str, ...], ties: str = "lineage") -> None:
        self.columns, self._by_value = columns, ties == "value"
        self._added: set[str] = set()
        self._rows: dict[int, _Row] = {}

    def apply(self, change: Change) -> None:
        row = self._rows.get(change.key)
        if row is None:
            row = self._rows[change.key] = _Row()
        if change.values is None:
            row.deleted = max(row.deleted, change.ts)
            return
        row.put = max(row.put, change.ts)
        for name, value in change.values.items():
            ts, standing = row.cells.get(name, (-1, None))
            if change.ts > ts or (change.ts == ts and (not self._by_value or _beats(value, standing))):
                row.cells[name] = (change.ts, value)

    def add(self, names: Iterable[str]) -> None:
        """From now on it has these columns: of rows that exist they are NULL as of the row's last put."""
        for name in set(names) - self._added:
            self._added.add(name)
            for row in self._rows.values():
                if row.put > row.deleted:
                    row.cells[name] = (row.put, None)

    def live(self) -> dict[int, dict[str, Any]]:
        """The rows that exist, by key."""
        found = {}
        for key, row in self._rows.items():
            if row.put > row.deleted:
                cells = {name: value for name, (ts, value) in row.cells.items() if ts > row.deleted}
                found[key] = {name: cells.get(name) for name in self.columns}
        return found


def _beats(value: Value, standing: Value) -> bool:
    if value is None or standing is None:
        return standing is None
    return value > standing if isinstance(value, int) and isinstance(standing, int) else str(value) > str(standing)
