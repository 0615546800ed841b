"""Rows of HBase whose row keys cannot be read: which of them live is asked of HBase, not made of changes.

A sink that meets such a row key, in a put or a delete, reads the row: what lives is written down before the change is
acknowledged, what does not is forgotten. So a row is there once, however often it is sent, and goes when it is deleted.
All are read again now and then, for the sink that asked before another one's delete and wrote after it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.followed import FollowedTable
from belvedere.backend.hbase.row_keys import RowKeyReader
from belvedere.backend.unreadable_rows import (
    MOST,
    Documents,
    UnreadableRow,
    count_unreadable,
    put_unreadable,
    remove_unreadable,
    unreadable_rows,
)


class UnreadableKeys:
    """Thread-safe."""

    def __init__(self, documents: Documents, cells: Cells) -> None:
        self._documents, self._cells = documents, cells
        self._lock = threading.Lock()
        self._full: dict[str, bool] = {}

    def meet(self, table: FollowedTable, reader: RowKeyReader, keys: Sequence[bytes]) -> None:
        """Row keys of changes that the reader cannot read."""
        if self._is_full(table.name):
            return
        living = self._living(table, keys)
        for key in living:
            put_unreadable(self._documents, table.name, UnreadableRow(key, reader.reason(key)))
        remove_unreadable(self._documents, table.name, [key for key in keys if key not in living])
        with self._lock:
            self._full.pop(table.name, None)

    def look_again(self, table: FollowedTable) -> None:
        known = [row.key for row in unreadable_rows(self._documents, table.name)]
        if known:
            living = self._living(table, known)
            remove_unreadable(self._documents, table.name, [key for key in known if key not in living])
        with self._lock:
            self._full.pop(table.name, None)

    def _is_full(self, table: str) -> bool:
        with self._lock:
            known = self._full.get(table)
        if known is None:
            known = count_unreadable(self._documents, table) >= MOST
            with self._lock:
                self._full[table] = known
        return known

    def _living(self, table: FollowedTable, keys: Sequence[bytes]) -> set[bytes]:
        """Those that have a cell which the table maps."""
        assert table.definition.origin is not None
        cells: dict[str, list[bytes]] = {}
        for column in table.definition.origin.columns:
            if column.family:
                cells.setdefault(column.family, []).append(column.qualifier.encode())
        rows, found = pa.array(keys, pa.binary()), set()
        for family, qualifiers in cells.items():
            columns = Columns(family, tuple(dict.fromkeys(qualifiers)))
            found.update(self._cells.get(str(table.origin), rows, columns).row.to_pylist())
        return found
