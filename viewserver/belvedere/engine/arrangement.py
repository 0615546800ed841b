"""Groups of one input under one key: the index that PRE-AGGREGATION, REVERSE-JOIN and DISTINCT over that key share.

Each key value has a group slot. Rows are counted per group, and a group that an epoch leaves empty is given up at its
end, so that within the epoch everyone may still read what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from belvedere.engine.state.columns import Columns

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.vec import Status
from belvedere.types import Schema


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
        self.index = HashIndex()
        self.keys = Columns(self._types)
        self.rows = np.zeros(64, np.int64)
        self._touched = Touched()
        self.on_drop: list[Callable[[np.ndarray], None]] = []
        if not on:
            self.index.insert(hash_rows([], 1))

    def apply(self, buffer: DeltaBuffer) -> Grouping:
        """Find or make the groups of all rows, and count the rows in."""
        keys = []
        for delta in buffer:
            columns = [delta.columns[i] for i in self.on]
            ids = hash_rows(columns, len(delta))
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
        return self.index.find(ids)

    def end_epoch(self) -> None:
        """Give up the groups that are empty now."""
        touched = self._touched.all()
        self._touched.clear()
        if self.on and len(touched):
            dead = touched[self.rows[touched] == 0]
            if len(dead):
                for drop in self.on_drop:
                    drop(dead)
                self.index.remove(self.index.ids(dead))
                self.keys.release(dead)
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
