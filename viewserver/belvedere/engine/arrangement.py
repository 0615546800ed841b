"""Groups of one input under one key: the index that PRE-AGGREGATION, REVERSE-JOIN and DISTINCT over that key share.

Each key value has a group slot. Rows are counted per group, and a group that an epoch leaves empty is given up at its
end, so that within the epoch everyone may still read what it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.residency import Facet, KeyStore, distinct_ids
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import plain
from belvedere.engine.state.pages import SMALLEST_PAGED
from belvedere.engine.state.ragged import Ragged, find_tagged, join_tagged, tagged_parts
from belvedere.engine.vec import Status, Vec, canonical
from belvedere.errors import Damaged
from belvedere.types import BIGINT, Schema

SAVE_ROWS = 1 << 13
"""Groups or rows that are packed at once: what they hold of one column of text must stay below 2 GiB."""
_KEY = 1
"""Tag of a group's key and number of rows in its value."""
_NO_IDS = np.empty((0, 2), np.uint64)


@dataclass(slots=True)
class Grouping:
    """A buffer's chunks with, for each, the key ids and group slots of its rows."""

    buffer: DeltaBuffer
    keys: list[tuple[np.ndarray, np.ndarray]]
    born: np.ndarray | None = None
    """A group that begins to exist although no row is in it."""

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
        self.facets: dict[str, Facet] = {}
        self.store: KeyStore | None = None
        self.model: KeyStore | None = None
        """Where big groups are in as many pages as they shall be here."""
        self.name = ""
        self.born = False
        self._codec: RowCodec | None = None
        self._absent: HashIndex | None = None
        if not on:
            self.index.insert(hash_rows([], 1))

    def attach(self, store: KeyStore, name: str, *, shared: bool = False) -> None:
        """Keys that are not resident are in this store, under this name. Where groups are `shared` out among servers,
        that of no columns is one of them; else it stays here."""
        self.store, self.name = store, name
        self._codec = RowCodec([*self._types, BIGINT])
        if shared:
            self.index = HashIndex()

    def hashes(self, buffer: DeltaBuffer) -> list[np.ndarray]:
        """Key ids of the rows of every chunk."""
        return [hash_rows([delta.columns[i] for i in self.on], len(delta)) for delta in buffer]

    def apply(self, buffer: DeltaBuffer, hashes: Sequence[np.ndarray] | None = None) -> Grouping:
        """Find or make the groups of all rows, and count the rows in. With a store, the groups of `hashes` have been
        ensured."""
        keys = []
        if self.store is not None and hashes is None:
            hashes = self.hashes(buffer)
            self.ensure(hashes)
        for i, delta in enumerate(buffer):
            columns = [delta.columns[c] for c in self.on]
            ids = hash_rows(columns, len(delta)) if hashes is None else hashes[i]
            slots, fresh = self.index.insert(ids)
            if self.on and fresh.any():
                new = [c.filter(fresh) for c in columns]
                # Which of several equal doubles comes first must not show where rows come from several servers.
                self.keys.scatter(slots[fresh], new if self.store is None else [canonical(c) for c in new])
            self.rows = grown(self.rows, self.index.limit)
            add_at(self.rows, slots, plain(delta.weight))
            self._touched.add(slots, self.index.limit)
            keys.append((ids, slots))
        return Grouping(buffer, keys)

    def give_birth(self, grouping: Grouping) -> None:
        """The group of no columns exists from now on, even without a row. (With a store it is made when a view group
        begins, by the owner of its id.)"""
        self.born = True
        ids = hash_rows([], 1)
        if grouping.keys or self.index.find(ids)[0] >= 0:
            return
        slots, _ = self.index.insert(ids)
        self.rows = grown(self.rows, self.index.limit)
        self._touched.add(slots, self.index.limit)
        grouping.born = slots

    def regroup(self, buffer: DeltaBuffer) -> Grouping:
        """The groups of rows that are counted already: a new reader of this arrangement starts from them."""
        keys = []
        for delta in buffer:
            ids = hash_rows([delta.columns[i] for i in self.on], len(delta))
            keys.append((ids, self.index.find(ids)))
        return Grouping(buffer, keys)

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Group slots of key ids, -1 where there is no such group."""
        if self.store is not None:
            self.ensure([ids])
        return self.index.find(ids)

    def ensure(self, hashes: Sequence[np.ndarray]) -> None:
        """Load the groups of these ids that are in the store and not here."""
        assert self.store is not None
        unknown = [ids[self._unknown(ids)] for ids in hashes if len(ids)]
        missing = distinct_ids(np.concatenate(unknown)) if unknown else _NO_IDS
        while len(missing):
            values = self.store.load_some(self.name, missing)
            self._take_in(missing[: len(values)], values)
            missing = missing[len(values) :]

    def _take_in(self, ids: np.ndarray, values: pa.BinaryArray) -> None:
        """What the store has of these groups, null where there is none."""
        if values.null_count:
            if self._absent is None:
                self._absent = HashIndex()
            there = np.asarray(values.is_valid())
            self._absent.insert(ids[~there])
            ids, values = ids[there], values.drop_null()
        if len(ids):
            self._import(ids, Ragged.of_arrow(values))

    def _unknown(self, ids: np.ndarray) -> np.ndarray:
        unknown = self.index.find(ids) < 0
        if self._absent is not None and unknown.any():
            unknown &= self._absent.find(ids) < 0
        return np.asarray(unknown)

    def _import(self, ids: np.ndarray, values: Ragged) -> None:
        assert self._codec is not None
        slots, _ = self.index.insert(ids)
        self.rows = grown(self.rows, self.index.limit)
        key, *parts = find_tagged(values, [_KEY, *map(tag_of, self.facets)])
        if (key.lengths == 0).any():
            raise Damaged(f"state table {self.name}: a stored group has no key")
        columns, _ = self._codec.unpack(key)
        self.keys.scatter(slots, columns[:-1])
        self.rows[slots] = columns[-1].data
        for facet, part in zip(self.facets.values(), parts, strict=True):
            facet.import_(slots, part)

    def _save(self, live: np.ndarray, dead: np.ndarray) -> None:
        assert self.store is not None
        for start in range(0, len(live), SAVE_ROWS):
            self._save_live(live[start : start + SAVE_ROWS])
        if len(dead):
            self.store.save(self.name, self.index.ids(dead), pa.nulls(len(dead), pa.binary()))
            for facet in self.facets.values():
                facet.drop(dead)
        for facet in self.facets.values():
            facet.settle()

    def _save_live(self, live: np.ndarray) -> None:
        assert self.store is not None and self._codec is not None
        if self.model is not None:
            self._follow(self.model, live[self.rows[live] >= SMALLEST_PAGED])
        key = self._codec.pack([*self.keys.gather(live), Vec(BIGINT, self.rows[live])], len(live))
        # By tag: in which order facets came here depends on what this server has seen, and bytes must not.
        parts = [(tag_of(name), facet.export(live)) for name, facet in self.facets.items()]
        parts.sort(key=lambda part: part[0])
        for at, values in join_tagged([(_KEY, key), *parts]).pieces():
            self.store.save(self.name, self.index.ids(live[at : at + len(values)]), values)

    def _follow(self, model: KeyStore, big: np.ndarray) -> None:
        """Big groups are to have the pages that the model has of them, as far as their sizes allow it. What it has may
        be damaged: then it says nothing."""
        if len(big):
            known = [tagged_parts(value) for value in model.load(self.name, self.index.ids(big)).to_pylist()]
            for name, facet in self.facets.items():
                facet.follow(big, [parts.get(tag_of(name), b"") for parts in known])

    @property
    def dirty(self) -> bool:
        """Whether the running epoch left anything to end here."""
        return bool(self._touched.parts) or self._absent is not None

    def touch(self, groups: np.ndarray) -> None:
        """State beside these groups changed."""
        if self.store is not None:
            self._touched.add(groups, self.index.limit)

    def evict(self, groups: np.ndarray) -> None:
        """Forget groups between epochs; what they held is in the store."""
        if len(groups):
            for facet in self.facets.values():
                facet.evict(groups)
            self._forget(groups)
            self.index.end_epoch()

    def evict_ids(self, ids: np.ndarray) -> None:
        """The same for those of these ids that are here."""
        slots = self.index.find(ids)
        self.evict(slots[slots >= 0])

    def _forget(self, groups: np.ndarray) -> None:
        self.index.remove(self.index.ids(groups))
        self.keys.release(groups)
        self.rows[groups] = 0

    def end_epoch(self) -> None:
        """Save what the epoch touched, and give up the groups that are empty now."""
        touched = self._touched.all()
        self._touched.clear()
        self._absent = None
        if len(touched):
            empty = self.rows[touched] == 0 if self.on else np.zeros(len(touched), np.bool_)
            dead = touched[empty]
            if self.store is not None:
                self._save(touched[~empty], dead)
            if len(dead):
                for facet in self.facets.values():
                    facet.evict(dead)
                self._forget(dead)
        self.index.end_epoch()

    def undo(self) -> None:
        """Give the running epoch up: forget every group that it touched."""
        touched = self._touched.all()
        self._touched.clear()
        self._absent = None
        self.born = False
        for facet in self.facets.values():
            facet.settle()
        self.evict(touched)
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


def tag_of(name: str) -> int:
    """How a part of a group's value is found again: 31 bits of its owner's digest, never one of the small tags."""
    return int(name.rsplit(" ", 1)[-1][:8], 16) & 0x7FFFFFFF | 0x100


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
