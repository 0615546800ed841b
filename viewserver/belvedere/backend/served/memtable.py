"""Versions that were written recently: durable as whole writes, in memory by id, not yet in the table's tree.

A write of many rows at random places of a B-tree changes about as many pages, many times the bytes of the rows, and all
of them have to reach the disk before the call returns. So a write is made durable as it came, in one piece (a *run*),
and found in memory meanwhile; `compaction.py` takes many rows at a time to the tree, in the order of keys, where some
share a page and what was written over meanwhile is left out.

    write ──▶ run durable ──▶ ACTIVE ──enough rows──▶ MERGING ──all rows are in the tree──▶ runs are removed, dropped

Why it is safe: reads look at ACTIVE, MERGING and the tree, in this order, and take the greatest epoch; rows go from one
to the next and are there before they leave the former. Whatever stops in between, runs that are not removed are read
again at the next start and merged again, which writes the same versions with the same values. The order of runs is the
order of commits, so of two writes of one version the later one wins here, in the tree, and after a restart.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.backend.served import keys, wire
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.ordered import SortedSlots, sort_keys

_SALT = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], np.uint64)
"""Turns ids into others: an id of zeros is a free place to the index."""
_RUN = struct.Struct("<IQI")
"""Table, epoch, and what rows have beside their values (`wire.form_of`)."""
_FIRST = 64
_ROW_BYTES = 160
"""What a row costs in memory beside its value, about."""
_FEW = 32
NONE = -1


@dataclass(frozen=True)
class MemtableRows:
    """Versions in the order of keys. `high` is the first word of the id rotated, as in keys; `cells` as stored."""

    high: np.ndarray
    low: np.ndarray
    epochs: np.ndarray
    cells: list[bytes]

    def __len__(self) -> int:
        return len(self.high)

    def slice(self, start: int, stop: int) -> MemtableRows:
        return MemtableRows(
            self.high[start:stop], self.low[start:stop], self.epochs[start:stop], self.cells[start:stop]
        )

    def ids(self) -> np.ndarray:
        return keys.unrotated(self.high, self.low)


def joined(parts: Sequence[MemtableRows]) -> MemtableRows:
    """Rows one after the other."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return MemtableRows(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64), [])
    if len(parts) == 1:
        return parts[0]
    high, low, epochs = (np.concatenate([getattr(part, name) for part in parts]) for name in ("high", "low", "epochs"))
    return MemtableRows(high, low, epochs, [cell for part in parts for cell in part.cells])


def newest(parts: Sequence[MemtableRows]) -> MemtableRows:
    """Of each id the version with the greatest epoch; of equal ones that of the first part."""
    rows = joined(parts)
    if sum(len(part) > 0 for part in parts) < 2:
        return rows
    high, low, epochs, cells = rows.high, rows.low, rows.epochs, rows.cells
    order = np.lexsort((-epochs, low, high))  # stable: of equal epochs the first part comes first
    high, low = high[order], low[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    chosen = order[first]
    return MemtableRows(high[first], low[first], epochs[chosen], [cells[at] for at in chosen.tolist()])


class Memtable:
    """Versions of one table by id. Of an id they hang together from the newest to the oldest."""

    def __init__(self) -> None:
        self._index = HashIndex()
        self._head = np.full(_FIRST, NONE, np.int64)
        self._epochs = np.empty(_FIRST, np.int64)
        self._older = np.empty(_FIRST, np.int64)
        self._owner = np.empty(_FIRST, np.int32)
        self._cells: list[bytes] = []
        self._keys: list[tuple[np.ndarray, pa.BinaryArray]] = []
        """Slots and the keys of their rows, as they came."""
        self._sorted: SortedSlots | None = None
        """Slots in the order of keys, once somebody reads in that order."""
        self._entered = 0
        """So many pieces of `_keys` are in it."""

    def __len__(self) -> int:
        return len(self._cells)

    def put(self, ids: np.ndarray, epoch: int, cells: list[bytes], row_keys: pa.BinaryArray | None = None) -> None:
        slots, fresh = self._index.insert(ids ^ _SALT)
        if row_keys is not None and fresh.any():
            every = bool(fresh.all())
            self._keys.append((slots, row_keys) if every else (slots[fresh], row_keys.filter(pa.array(fresh))))
        self._head = _room(self._head, self._index.limit)
        heads = self._head[slots]
        known = heads != NONE
        theirs = np.where(known, self._epochs[heads], np.int64(NONE))
        late = theirs >= epoch
        if late.any():
            for at in np.flatnonzero(late).tolist():
                self._put_late(int(slots[at]), epoch, cells[at])
            kept = np.flatnonzero(~late)
            slots, heads, cells = slots[kept], heads[kept], [cells[at] for at in kept.tolist()]
        first, stop = len(self._cells), len(self._cells) + len(cells)
        self._reserve(stop)
        self._epochs[first:stop], self._older[first:stop], self._owner[first:stop] = epoch, heads, slots
        self._head[slots] = np.arange(first, stop)
        self._cells += cells

    def _put_late(self, slot: int, epoch: int, cell: bytes) -> None:
        """A version that is not newer than all others of its id."""
        newer, at = NONE, int(self._head[slot])
        while at != NONE and self._epochs[at] > epoch:
            newer, at = at, int(self._older[at])
        if at != NONE and self._epochs[at] == epoch:
            self._cells[at] = cell
            return
        made = len(self._cells)
        self._reserve(made + 1)
        self._epochs[made], self._older[made], self._owner[made] = epoch, at, slot
        self._older[newer] = made  # not the newest: whoever is, is dealt with in `put`
        self._cells.append(cell)

    def _reserve(self, count: int) -> None:
        self._epochs, self._older = _room(self._epochs, count), _room(self._older, count)
        self._owner = _room(self._owner, count)

    def find(self, ids: np.ndarray, below: int) -> np.ndarray:
        """Positions of the newest version `< below` of each id, NONE where there is none."""
        slots = self._index.find(ids ^ _SALT)
        found = np.where(slots >= 0, self._head[slots], np.int64(NONE))
        return self._back(found, below)

    def _back(self, found: np.ndarray, below: int) -> np.ndarray:
        """From positions on to versions that are `< below`."""
        at = np.flatnonzero(found != NONE)
        while len(at := at[self._epochs[found[at]] >= below]) > _FEW:
            found[at] = self._older[found[at]]
            at = at[found[at] != NONE]
        for one in at.tolist():  # of a few ids perhaps very many versions
            position = found[one]
            while position != NONE and self._epochs[position] >= below:
                position = self._older[position]
            found[one] = position
        return found

    def epochs(self, found: np.ndarray) -> np.ndarray:
        """Epochs at positions; NONE stays."""
        return np.where(found == NONE, np.int64(NONE), self._epochs[found])

    def cells(self, found: np.ndarray) -> list[bytes]:
        cells = self._cells
        return [cells[at] for at in found.tolist()]

    def visible(self, first: int, stop: int, below: int, only: np.ndarray | None = None) -> MemtableRows:
        """The newest version `< below` of each id in buckets `[first, stop)`, or those of a mask among them."""
        found = self._back(self._head[: self._index.limit].copy(), below)
        return self._rows(found[found != NONE], first, stop, only)

    def _rows(self, at: np.ndarray, first: int, stop: int, only: np.ndarray | None) -> MemtableRows:
        ids = self._index.ids(self._owner[at]) ^ _SALT
        high, low = keys.rotated(ids), ids[:, 1]
        buckets = high >> np.uint64(keys.REST)
        wanted = (buckets >= first) & (buckets < stop)
        inside = np.flatnonzero(wanted if only is None else wanted & only[buckets])
        inside = inside[np.lexsort((low[inside], high[inside]))]
        chosen = at[inside]
        return MemtableRows(high[inside], low[inside], self._epochs[chosen], [self._cells[i] for i in chosen.tolist()])

    def keys(self) -> tuple[pa.BinaryArray, np.ndarray] | None:
        """Keys and their ids, in order; None if rows have none."""
        if not self._keys:
            return None
        found = pa.concat_arrays([row_keys for _, row_keys in self._keys])
        order = sort_keys(found)
        slots = np.concatenate([slots for slots, _ in self._keys])[order]
        return found.take(pa.array(order)), self._index.ids(slots) ^ _SALT

    def ordered(self, low: bytes, high: bytes | None, count: int, reverse: bool) -> list[tuple[bytes, bytes]]:
        """The first keys of a range in order, with their ids."""
        fresh = self._keys[self._entered :]
        if fresh:
            slots, row_keys = np.concatenate([s for s, _ in fresh]), pa.concat_arrays([k for _, k in fresh])
            if self._sorted is None:
                self._sorted = SortedSlots.of([slots], [row_keys])
            else:
                self._sorted.insert(slots, row_keys)
            self._entered = len(self._keys)
        if self._sorted is None:
            return []
        found = self._sorted.select(low, high, count, reverse)
        return list(zip(self._sorted.keys(found).to_pylist(), self._ids(found), strict=True))

    def _ids(self, slots: np.ndarray) -> list[bytes]:
        packed = np.ascontiguousarray(self._index.ids(slots) ^ _SALT).tobytes()
        return [packed[at : at + 16] for at in range(0, len(packed), 16)]

    def all(self, horizon: int) -> MemtableRows:
        """Every version, in the order of keys, but for those that nobody can ask for any more."""
        count = len(self._cells)
        ids = self._index.ids(self._owner[:count]) ^ _SALT
        high, low, epochs = keys.rotated(ids), ids[:, 1], self._epochs[:count]
        order = np.lexsort((-np.arange(count), -epochs, low, high))
        high, low, epochs = high[order], low[order], epochs[order]
        same = np.zeros(count, np.bool_)
        same[1:] = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
        gone = np.zeros(count, np.bool_)
        # A newer version that is not above the horizon, or an id that one write held twice: the later one counts.
        gone[1:] = same[1:] & ((epochs[:-1] <= horizon) | (epochs[1:] == epochs[:-1]))
        kept = np.flatnonzero(~gone)
        return MemtableRows(high[kept], low[kept], epochs[kept], [self._cells[at] for at in order[kept].tolist()])


def _room(array: np.ndarray, count: int) -> np.ndarray:
    if count <= len(array):
        return array
    bigger = np.full(max(count, 2 * len(array)), NONE, array.dtype)
    bigger[: len(array)] = array
    return bigger


@dataclass(frozen=True, eq=False)
class Stored:
    """A write of one table, durable as this run."""

    run: int
    table: int
    epoch: int
    ids: np.ndarray
    cells: list[bytes]
    keys: pa.BinaryArray | None = None


@dataclass
class _Generation:
    tables: dict[int, Memtable] = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    last: int = 0
    """Number of the last run in it."""

    def put(self, write: Stored) -> None:
        self.tables.setdefault(write.table, Memtable()).put(write.ids, write.epoch, write.cells, write.keys)
        self.rows += len(write.cells)
        self.size += sum(map(len, write.cells)) + _ROW_BYTES * len(write.cells)
        self.size += 0 if write.keys is None else write.keys.nbytes
        self.last = max(self.last, write.run)


class RecentVersions:
    """What is not in the tree yet, of all tables. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = _Generation()
        self._merging: _Generation | None = None
        self.loads = 0
        """How often all rows were read again from runs: those that were being merged are active then."""

    @property
    def rows(self) -> int:
        return self._active.rows

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self._active.size

    @property
    def interrupted(self) -> bool:
        """Whether rows were being merged when something stopped it (asked by who merges)."""
        return self._merging is not None

    def put(self, write: Stored) -> None:
        with self._lock:
            self._active.put(write)

    def read(self, table: int, ids: np.ndarray, below: int) -> tuple[list[bytes | None], np.ndarray]:
        """Of each id the newest version `< below` as stored (None: there is none here), and its epoch (or NONE)."""
        count = len(ids)
        cells: list[bytes | None] = [None] * count
        epochs = np.full(count, NONE, np.int64)
        with self._lock:
            for generation in (self._active, self._merging):
                held = generation.tables.get(table) if generation is not None else None
                if held is None:
                    continue
                found = held.find(ids, below)
                theirs = held.epochs(found)
                newer = np.flatnonzero(theirs > epochs)
                for at, cell in zip(newer.tolist(), held.cells(found[newer]), strict=True):
                    cells[at] = cell
                epochs = np.maximum(epochs, theirs)
        return cells, epochs

    def visible(self, table: int, first: int, stop: int, below: int, only: np.ndarray | None = None) -> MemtableRows:
        """Of each id in buckets `[first, stop)` (of the mask) the newest version `< below`, in the order of keys."""
        with self._lock:
            generations = [g for g in (self._active, self._merging) if g is not None and table in g.tables]
            return newest([g.tables[table].visible(first, stop, below, only) for g in generations])

    def ordered(
        self, table: int, low: bytes, high: bytes | None, count: int, reverse: bool
    ) -> list[tuple[list[tuple[bytes, bytes]], bool]]:
        """Keys and ids of a range of keys, the first `count` ones of it, and whether these are all; of active rows and
        of those that are being merged."""
        with self._lock:
            generations = [g for g in (self._active, self._merging) if g is not None and table in g.tables]
            found = [g.tables[table].ordered(low, high, count, reverse) for g in generations]
        return [(entries, len(entries) < count) for entries in found]

    def versions(self) -> dict[int, int]:
        """How many there are, by table."""
        found: dict[int, int] = {}
        with self._lock:
            for generation in (self._active, self._merging):
                for number, held in generation.tables.items() if generation is not None else ():
                    found[number] = found.get(number, 0) + len(held)
        return found

    def switch(self) -> None:
        """Begin to merge what there is; what comes from now on is merged the next time."""
        with self._lock:
            if self._merging is None and self._active.rows:
                self._merging, self._active = self._active, _Generation()

    def merging(self, horizon: int) -> tuple[dict[int, MemtableRows], int]:
        """What is being merged, by table, and the number of its last run (0: nothing is)."""
        with self._lock:
            generation = self._merging
        if generation is None:
            return {}, 0
        # Nobody changes it any more, so it can be read without the lock.
        return {number: held.all(horizon) for number, held in generation.tables.items()}, generation.last

    def merging_keys(self) -> Iterator[tuple[int, pa.BinaryArray, np.ndarray]]:
        """Of what is being merged the keys with their ids, in order, by table."""
        with self._lock:
            generation = self._merging
        for number, held in generation.tables.items() if generation is not None else ():
            found = held.keys()
            if found is not None:
                yield number, *found

    def merged(self, last: int) -> None:
        """All of it is in the tree, and its runs are gone."""
        with self._lock:
            if self._merging is not None and self._merging.last == last:
                self._merging = None

    def drop(self, tables: Sequence[int]) -> None:
        with self._lock:
            for generation in (self._active, self._merging):
                if generation is not None:
                    for number in tables:
                        generation.tables.pop(number, None)

    def load(self, writes: Iterable[Stored]) -> None:
        """These instead of all there were, at once: who reads meanwhile sees the former ones or the new ones."""
        loaded = _Generation()
        for write in writes:
            loaded.put(write)
        with self._lock:
            self._active, self._merging = loaded, None
            self.loads += 1


# --- runs: writes as they came


def pack_run(table: int, epoch: int, write: TableWrite) -> bytes:
    content: bytes = wire.pack_rows(write).to_pybytes()
    return _RUN.pack(table, epoch, wire.form_of(write)) + content


def unpack_run(run: int, content: bytes) -> Stored:
    table, epoch, form = _RUN.unpack_from(content)
    ids, values, row_keys, hidden = wire.unpack_rows(pa.py_buffer(content).slice(_RUN.size), form)
    return Stored(run, table, epoch, ids, keys.cells(values, row_keys, hidden), row_keys)
