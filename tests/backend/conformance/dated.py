"""A store whose epochs are those of our time: tests count from 1, the store behind gets what it gets in service.

Epochs are milliseconds since 1970. Small ones fit into anything; real ones need 41 bits of a version, sort above what a
store counts by itself, and differ in their last bits only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import Store, TableWrite
from belvedere.model.ranges import KeyRange

BEGIN = int(time.time() * 1000) - 600_000
"""Ten minutes ago: stores may forget history by the clock, and epochs may be ahead of it by a little only."""
Pieces = Iterator[tuple[np.ndarray, pa.BinaryArray]]


def real(epoch: int) -> int:
    """0 and below is before all epochs, here as there."""
    return BEGIN + epoch if epoch > 0 else epoch


@dataclass(frozen=True)
class DatedStore:
    """Calls that name an epoch; all others are those of the store behind."""

    store: Store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self.store.read(table, ids, real(below))

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self.store.read_some(table, ids, real(below))

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        found = self.store.written_at(table, ids, real(below))
        return np.where(found > 0, found - BEGIN, 0)

    def scan(self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None) -> Pieces:
        return self.store.scan(table, first, stop, real(below), only)

    def range(self, table: str, wanted: KeyRange, below: int) -> Pieces:
        return self.store.range(table, wanted, real(below))

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        self.store.write(real(epoch), writes)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        for epoch, ids in self.store.changed(table, real(after), real(upto)):
            yield epoch - BEGIN, ids

    def collect(self, horizon: int, tombstones: int) -> None:
        self.store.collect(real(horizon), real(tombstones))

    def collected(self) -> int:
        return max(0, self.store.collected() - BEGIN)
