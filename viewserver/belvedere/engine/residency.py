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

from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.ragged import Ragged


class StateStore(Protocol):
    """The versioned tables of the store, as a shard reads them; ids are uint64[n, 2]."""

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        """Of the first of these ids, at least one and as many as are no burden, the value of the newest version
        `< below`; null where there is none or a tombstone."""

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """All rows of buckets `[first, stop)` at versions `< below`, in pieces, without tombstones. `only`
        (bool[16384]): of these buckets alone."""


class KeyStore(Protocol):
    """Packed state by table and key, as operators see it."""

    def load(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        """The values of these keys (uint64[n, 2]); null where there is none."""

    def load_some(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        """The same of the first of them, at least one: values of all of them may be more than one column can hold."""

    def save(self, table: str, ids: np.ndarray, values: pa.BinaryArray) -> None:
        """Replace the values of these keys; null removes one."""


class MemoryKeyStore:
    """A key store in a dict, for tests and simulation."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes]] = {}
        self.loads = 0

    def load(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        self.loads += 1
        rows = self.tables.get(table, {})
        return pa.array([rows.get(key.tobytes()) for key in ids], pa.binary())

    def load_some(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        return self.load(table, ids)

    def save(self, table: str, ids: np.ndarray, values: pa.BinaryArray) -> None:
        rows = self.tables.setdefault(table, {})
        for key, value in zip(ids, values.to_pylist(), strict=True):
            if value is None:
                rows.pop(key.tobytes(), None)
            else:
                rows[key.tobytes()] = value


class Facet(Protocol):
    """State of groups that lives beside their index: aggregates, or the rows of a join side."""

    def export(self, groups: np.ndarray) -> Ragged:
        """Each group by itself, independent of slots and of the order in which it grew."""

    def import_(self, groups: np.ndarray, values: Ragged) -> None:
        """Put exported groups into empty slots."""

    def follow(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        """These groups are to have as many pages as what was exported elsewhere, empty where nothing is known."""

    def evict(self, groups: np.ndarray) -> None:
        """Forget groups; they are in the store."""

    def drop(self, groups: np.ndarray) -> None:
        """These groups are empty: what the store holds of them beside their own value is to go."""

    def settle(self) -> None:
        """Nobody reads what the epoch removed any more."""


def distinct_ids(ids: np.ndarray) -> np.ndarray:
    """Each id once, in the order of their first occurrence."""
    if len(ids) < 2:
        return ids
    _, fresh = HashIndex().insert(ids)
    return ids if fresh.all() else np.asarray(ids[fresh])
