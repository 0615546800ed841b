"""What a view server wrote lately, so that fresh rows can be read from it and not from the store.

Writes of views are remembered as they are, epoch by epoch, up to a number of bytes; a lookup goes from the newest epoch
that the reader may see to older ones. An id that is in none of them is not known here, and the store has it.

Why it is safe: an id found at version v has no newer one up to the epoch read, since this server has owned its bucket
all the time in between: whoever loses a bucket clears everything.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite


@dataclass(frozen=True, eq=False)
class _Rows:
    """What an epoch wrote to one table. Sorted when it is first looked at: most is never read from here."""

    write: TableWrite

    @functools.cached_property
    def _order(self) -> np.ndarray:
        order: np.ndarray = np.argsort(_sortable(self.write.ids), kind="stable")
        return order

    @functools.cached_property
    def _sorted(self) -> np.ndarray:
        found: np.ndarray = _sortable(self.write.ids)[self._order]
        return found

    def find(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For each wanted id its row, and whether it is there."""
        at = np.minimum(np.searchsorted(self._sorted, _sortable(wanted)), len(self._order) - 1)
        rows = self._order[at]
        return rows, (self.write.ids[rows] == wanted).all(axis=1)


@dataclass(frozen=True)
class _Written:
    epoch: int
    tables: dict[str, list[_Rows]]
    """An epoch may write a table in several pieces; an id is in one of them."""
    size: int


class ReadCache:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._epochs: deque[_Written] = deque()
        self._bytes = 0

    def add(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        kept = [write for write in writes if write.logged and len(write.ids)]
        if not kept:
            return
        tables: dict[str, list[_Rows]] = {}
        for write in kept:
            tables.setdefault(write.table, []).append(_Rows(write))
        size = sum(write.ids.nbytes + write.values.nbytes for write in kept)
        with self._lock:
            self._epochs.append(_Written(epoch, tables, size))
            self._bytes += size
            while self._bytes > self._limit:
                self._bytes -= self._epochs.popleft().size

    def undo(self, committed: int) -> None:
        """Epochs after this one will be done again."""
        with self._lock:
            while self._epochs and self._epochs[-1].epoch > committed:
                self._bytes -= self._epochs.pop().size

    def clear(self) -> None:
        with self._lock:
            self._epochs.clear()
            self._bytes = 0

    def read(self, table: str, ids: np.ndarray, epoch: int) -> tuple[np.ndarray, pa.BinaryArray]:
        """A mask of the ids that are known, and values (null: not known, or known to be gone)."""
        with self._lock:
            seen = [written.tables for written in self._epochs if written.epoch <= epoch]
        writes = [rows for tables in seen for rows in tables.get(table, ())]
        known = np.zeros(len(ids), np.bool_)
        values: list[bytes | None] = [None] * len(ids)
        for rows in reversed(writes):
            wanted = np.flatnonzero(~known)
            if not len(wanted):
                break
            at, found = rows.find(ids[wanted])
            for position, row in zip(wanted[found].tolist(), at[found].tolist(), strict=True):
                values[position] = rows.write.values[row].as_py()
            known[wanted[found]] = True
        return known, pa.array(values, pa.binary())


def _sortable(ids: np.ndarray) -> np.ndarray:
    """Both words as one string of 16 bytes that sorts as they do."""
    return np.ascontiguousarray(ids.astype(">u8")).view("S16").reshape(-1)
