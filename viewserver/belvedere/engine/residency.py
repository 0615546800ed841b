"""State that is not in memory: keys are loaded when an epoch needs them and written through when it ends.

A view server holds only part of the state of the buckets it owns; the rest is in the store. `KeyStore` is that store as
the engine sees it: named state tables of packed values under 128-bit keys. One batched `load` per table and touched set
of keys, one `save` per table and epoch. Everything resident is clean between epochs, so any key may be evicted then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa


class StateStore(Protocol):
    """The versioned tables of the store, as a shard reads them; ids are uint64[n, 2]."""

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        """Of each id the value of its newest version `< below`; null where there is none or a tombstone."""

    def scan(self, table: str, first: int, stop: int, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """All rows of buckets `[first, stop)` at versions `< below`, in pieces, without tombstones."""


class KeyStore(Protocol):
    """Packed state by table and key."""

    def load(self, table: str, ids: np.ndarray) -> list[bytes | None]:
        """The values of these keys (uint64[n, 2]); None where there is none."""

    def save(self, table: str, ids: np.ndarray, values: Sequence[bytes | None]) -> None:
        """Replace the values of these keys; None removes one."""


class MemoryKeyStore:
    """A key store in a dict, for tests and simulation."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.loads = 0

    def load(self, table: str, ids: np.ndarray) -> list[bytes | None]:
        self.loads += 1
        rows = self.tables.get(table, {})
        return [rows.get(key.tobytes()) for key in ids]

    def save(self, table: str, ids: np.ndarray, values: Sequence[bytes | None]) -> None:
        rows = self.tables.setdefault(table, {})
        for key, value in zip(ids, values, strict=True):
            if value is None:
                rows.pop(key.tobytes(), None)
            else:
                rows[key.tobytes()] = value


class Facet(Protocol):
    """State of groups that lives beside their index: aggregates, or the rows of a join side."""

    def export(self, groups: np.ndarray) -> list[bytes]:
        """Each group by itself, independent of slots."""

    def import_(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        """Put exported groups into empty slots."""

    def evict(self, groups: np.ndarray) -> None:
        """Forget groups; they are in the store."""


def distinct_ids(ids: np.ndarray) -> np.ndarray:
    """Each id once."""
    pairs = np.ascontiguousarray(ids).view([("lo", np.uint64), ("hi", np.uint64)]).reshape(-1)
    return np.unique(pairs).view(np.uint64).reshape(-1, 2)
