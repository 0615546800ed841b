"""Writes that are known by what they left in a row, and not by a position in a log: those to tables of HBase.

A client of HBase hears no sequence number. What it knows is the row and the timestamp of its cells; a write is in an
epoch if DELTA has these cells, newer ones, or deletes of them there. So a token names such a write as if it were a
source, `!TABLE/ID/KEYS.COLUMNS`, whose position is the timestamp. COLUMNS has a bit for each column that was written,
in the order of the table without its key, which has KEYS columns; none: any cell of the row will do, for those who know
only that it was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from belvedere.protocol.exactly_once import SourceId

_MARK = "!"


@dataclass(frozen=True, slots=True)
class RowMark:
    """`table`: its name in the store. `id`: of the row, its two words."""

    table: str
    id: tuple[int, int]
    columns: int = 0
    keys: int = 1

    @property
    def source(self) -> SourceId:
        return SourceId(f"{_MARK}{self.table}/{self.id[0]:016x}{self.id[1]:016x}/{self.keys}.{self.columns:x}")

    @staticmethod
    def parse(source: SourceId) -> RowMark | None:
        """None: it is a source of a log."""
        if not source.startswith(_MARK):
            return None
        table, _, rest = source.removeprefix(_MARK).rpartition("/")[0].rpartition("/")
        keys, _, columns = source.rpartition("/")[2].partition(".")
        try:
            return RowMark(table, (int(rest[:16], 16), int(rest[16:], 16)), int(columns, 16), int(keys))
        except ValueError:
            return None
