"""HBase's rules for cells, written down naively: what a Get of a row answers, given everything that was written to it.

This is the judge of DELTA's rules for such tables. It shares nothing with them, and `tests/backend/hbase` checks it
against a real HBase on random histories with flushes and major compactions.

A row is its cells: (column, timestamp, kind, value), written one after the other. Reading a column:

* a delete of the column, or of its family, masks every put up to its timestamp, written before or after it;
* a delete of a version masks the put of exactly its timestamp, likewise;
* of puts with one timestamp the one written last counts, of the others the newest;
* a family keeps so many versions: what is beyond them is invisible, and gone after a compaction, but as long as it is
  there a delete of a newer version uncovers it;
* a major compaction takes masked puts and the deletes themselves away: a put written later meets none of them.

A row is there while one of its columns has a value.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

Value = Hashable
Column = tuple[str, str]
"""Family and qualifier."""


class Kind(enum.Enum):
    PUT = 4
    DELETE_VERSION = 8
    DELETE_FAMILY_VERSION = 10
    DELETE_COLUMN = 12
    DELETE_FAMILY = 14


@dataclass(frozen=True)
class Cell:
    """`qualifier` is empty in deletes of families."""

    family: str
    qualifier: str
    ts: int
    kind: Kind
    value: Value = None


@dataclass
class HBaseRow:
    versions: Mapping[str, int]
    """How many each family keeps."""
    cells: list[Cell] = field(default_factory=list)

    def write(self, cells: Iterable[Cell]) -> None:
        self.cells += cells

    def read(self) -> dict[Column, tuple[int, Value]]:
        """Columns that have a value, with its timestamp."""
        found: dict[Column, tuple[int, Value]] = {}
        for family, qualifier in {(c.family, c.qualifier) for c in self.cells if c.kind is Kind.PUT}:
            visible = self._visible(family, qualifier)
            if visible:
                newest = max(visible)
                found[family, qualifier] = (newest, visible[newest])
        return found

    def major_compaction(self) -> None:
        kept: list[Cell] = []
        for family, qualifier in sorted({(c.family, c.qualifier) for c in self.cells if c.kind is Kind.PUT}):
            visible = self._visible(family, qualifier)
            newest = sorted(visible)[-self.versions[family] :]
            kept += [Cell(family, qualifier, ts, Kind.PUT, visible[ts]) for ts in newest]
        self.cells = kept

    def _visible(self, family: str, qualifier: str) -> dict[int, Value]:
        mine = [c for c in self.cells if c.family == family]
        upto = [
            c.ts
            for c in mine
            if c.kind is Kind.DELETE_FAMILY or (c.kind is Kind.DELETE_COLUMN and c.qualifier == qualifier)
        ]
        exactly = {
            c.ts
            for c in mine
            if c.kind is Kind.DELETE_FAMILY_VERSION or (c.kind is Kind.DELETE_VERSION and c.qualifier == qualifier)
        }
        puts = {c.ts: c.value for c in mine if c.kind is Kind.PUT and c.qualifier == qualifier}
        return {ts: value for ts, value in puts.items() if ts not in exactly and all(ts > mask for mask in upto)}
