"""Groups of one input under one key: the index that PRE-AGGREGATION, REVERSE-JOIN and DISTINCT over that key share.

Each key value has a group slot. Rows are counted per group, and a group that an epoch leaves empty is given up at its
end, so that within the epoch everyone may still read what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from belvedere.engine.buffer import DeltaBuffer, decode, encode
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.residency import Facet, KeyStore, distinct_ids
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.vec import Status, Vec
from belvedere.errors import Damaged
from belvedere.types import BIGINT, Column, Schema


@dataclass(slots=True)
class Grouping:
    """A buffer's chunks with, for each, the key ids and group slots of its rows."""

    buffer: DeltaBuffer
    keys: list[tuple[np.ndarray, np.ndarray]]

    def __iter__(self) -> Iterator[tuple[Delta, np.ndarray, np.ndarray]]:
        for delta, (ids, slots) in zip(self.buffer, self.keys, strict=True):
            yield delta, ids, slots


class Arrangement:
    """Group slots of `schema`'s columns `on`. With no column there is one group, which always exists."""

    def __init__(self, schema: Schema, on: tuple[int, ...]):
        self.on = on
        self._types = [schema[i].type for i in on]
        self._packed = (*(schema[i] for i in on), Column("rows", BIGINT))
        self.index = HashIndex()
        self.keys = Columns(self._types)
        self.rows = np.zeros(64, np.int64)
        self._touched = Touched()
        self.facets: dict[str, Facet] = {}
        self._store: KeyStore | None = None
        self._name = ""
        self._absent: set[bytes] = set()
        if not on:
            self.index.insert(hash_rows([], 1))

    def attach(self, store: KeyStore, name: str) -> None:
        """Keys that are not resident are in this store, under this name (their facets under their own)."""
        self._store, self._name = store, name

    def apply(self, buffer: DeltaBuffer) -> Grouping:
        """Find or make the groups of all rows, and count the rows in."""
        keys = []
        for delta in buffer:
            columns = [delta.columns[i] for i in self.on]
            ids = hash_rows(columns, len(delta))
            self._ensure(ids)
            slots, fresh = self.index.insert(ids)
            if self.on and fresh.any():
                self.keys.scatter(slots[fresh], [c.filter(fresh) for c in columns])
            self.rows = grown(self.rows, self.index.limit)
            add_at(self.rows, slots, delta.weight)
            self._touched.add(slots, self.index.limit)
            keys.append((ids, slots))
        return Grouping(buffer, keys)

    def regroup(self, buffer: DeltaBuffer) -> Grouping:
        """The groups of rows that are counted already: a new reader of this arrangement starts from them."""
        keys = []
        for delta in buffer:
            ids = hash_rows([delta.columns[i] for i in self.on], len(delta))
            keys.append((ids, self.index.find(ids)))
        return Grouping(buffer, keys)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Group slots of key ids, -1 where there is no such group."""
        self._ensure(ids)
        return self.index.find(ids)

    def _ensure(self, ids: np.ndarray) -> None:
        """Load the groups of these ids that are in the store and not here."""
        if self._store is None:
            return
        missing = ids[self.index.find(ids) < 0]
        if len(missing):
            missing = distinct_ids(missing)
            missing = missing[[key.tobytes() not in self._absent for key in missing]]
        if not len(missing):
            return
        values = self._store.load(self._name, missing)
        self._absent.update(key.tobytes() for key, value in zip(missing, values, strict=True) if value is None)
        found = [i for i, value in enumerate(values) if value is not None]
        if not found:
            return
        wanted = missing[found]
        slots, _ = self.index.insert(wanted)
        self.rows = grown(self.rows, self.index.limit)
        rows = concat_deltas([decode(value, self._packed) for value in values if value is not None])
        self.keys.scatter(slots, rows.columns[:-1])
        self.rows[slots] = rows.columns[-1].data
        for name, facet in self.facets.items():
            packed = self._store.load(name, wanted)
            lost = [i for i, value in enumerate(packed) if value is None]
            if lost:
                raise Damaged(
                    f"state table {name}: {len(lost)} of {len(packed)} keys of a group are missing in the store"
                )
            facet.import_(slots, [value for value in packed if value is not None])

    def _save(self, live: np.ndarray, dead: np.ndarray) -> None:
        assert self._store is not None
        self._absent.clear()
        keys, counts = self.keys.gather(live), Vec(BIGINT, self.rows[live])
        rows = Delta((*keys, counts), np.ones(len(live), np.int8), self.index.ids(live))
        packed = [encode(rows.slice(i, i + 1)) for i in range(len(live))]
        self._store.save(self._name, rows.id, packed)
        for name, facet in self.facets.items():
            self._store.save(name, rows.id, facet.export(live))
        if len(dead):
            for name in (self._name, *self.facets):
                self._store.save(name, self.index.ids(dead), [None] * len(dead))

    def touch(self, groups: np.ndarray) -> None:
        """State beside these groups changed."""
        if self._store is not None:
            self._touched.add(groups, self.index.limit)

    def evict(self, groups: np.ndarray) -> None:
        """Forget groups between epochs; what they held is in the store."""
        assert self._store is not None
        for facet in self.facets.values():
            facet.evict(groups)
        self._forget(groups)
        self.index.end_epoch()

    def _forget(self, groups: np.ndarray) -> None:
        self.index.remove(self.index.ids(groups))
        self.keys.release(groups)
        self.rows[groups] = 0

    def end_epoch(self) -> None:
        """Give up the groups that are empty now."""
        touched = self._touched.all()
        self._touched.clear()
        if len(touched):
            empty = self.rows[touched] == 0 if self.on else np.zeros(len(touched), np.bool_)
            dead = touched[empty]
            if self._store is not None:
                self._save(touched[~empty], dead)
            if len(dead):
                for facet in self.facets.values():
                    facet.evict(dead)
                self._forget(dead)
        self.index.end_epoch()

    def nbytes(self) -> int:
        return self.index.nbytes() + self.keys.nbytes() + 8 * self.index.limit

    def dump(self) -> State:
        out = {f"index.{k}": v for k, v in self.index.dump().items()}
        out |= {f"keys.{k}": v for k, v in self.keys.dump().items()}
        out["rows"] = self.rows[: self.index.limit]
        return out

    def load(self, state: State) -> None:
        self.index = HashIndex.load(part(state, "index."))
        self.keys = Columns(self._types)
        self.keys.load(part(state, "keys."))
        self.rows = grown(np.array(state["rows"]), 64)


def part(state: State, prefix: str) -> State:
    """The arrays whose name begins with the prefix, without it."""
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def key_states(delta: Delta, on: tuple[int, ...]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Masks of rows whose key has a NULL (or an error), and of rows whose key has an error; None where no row does."""
    missing: np.ndarray | None = None
    failed: np.ndarray | None = None
    for i in on:
        status = delta.columns[i].status
        if status is None:
            continue
        not_value = status != Status.VALUE
        if not_value.any():
            missing = not_value if missing is None else missing | not_value
        errors = status > Status.VALUE
        if errors.any():
            failed = errors if failed is None else failed | errors
    return missing, failed
