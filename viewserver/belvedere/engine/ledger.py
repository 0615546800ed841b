"""What a shard has written and the store may not have yet, and what it reads from the store.

Writes of an epoch are collected while it ends. They are looked at before the store until they are known to be there
(`persisted`), and their ids are remembered until the epoch can no longer be undone (`committed`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.residency import StateStore
from belvedere.engine.routing import buckets_of
from belvedere.engine.state.index import HashIndex

PIECE_BYTES = 1 << 29
"""A table's writes of an epoch are one piece up to this size; a column of bytes ends at 2^31."""

LOAD_BYTES = 64 << 20
"""What is loaded at a time, about."""


class IdSet:
    """Ids by their position."""

    def __init__(self, ids: np.ndarray):
        self.index = HashIndex()
        self._at = np.empty(len(ids), np.int64)
        slots, _ = self.index.insert(ids)
        self._at[slots] = np.arange(len(ids))

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Positions, -1 where an id is not in the set."""
        slots = self.index.find(ids)
        return np.where(slots >= 0, self._at[slots], -1) if len(self._at) else slots.astype(np.int64)


@dataclass(slots=True)
class LedgerWrite:
    """What an epoch wrote to a table; null where the row is gone."""

    ids: np.ndarray
    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    hidden: np.ndarray | None = None
    before: pa.BinaryArray | None = None
    _set: IdSet | None = None

    def find(self, ids: np.ndarray) -> np.ndarray:
        if self._set is None:
            self._set = IdSet(self.ids)
        return self._set.find(ids)

    def filter(self, mask: np.ndarray) -> LedgerWrite:
        def part(array: pa.BinaryArray | None) -> pa.BinaryArray | None:
            return None if array is None else array.filter(pa.array(mask))

        hidden = None if self.hidden is None else self.hidden[mask]
        return LedgerWrite(
            self.ids[mask], self.values.filter(pa.array(mask)), part(self.keys), hidden, part(self.before)
        )

    def lengths(self) -> np.ndarray:
        """Bytes of each value, 0 where the row is gone."""
        return np.asarray(pc.fill_null(pc.binary_length(self.values), 0), np.int64)


@dataclass(slots=True)
class LedgerEpoch:
    """An epoch that can be undone, or whose writes the store may not have. `writes` is emptied when it has them,
    `touched` stays."""

    epoch: int
    writes: dict[str, list[LedgerWrite]] = field(default_factory=dict)
    touched: dict[str, list[np.ndarray]] = field(default_factory=dict)
    persisted: bool = False
    committed: bool = False


class Ledger:
    """Reads and writes of a shard. It is the `KeyStore` of its operators."""

    def __init__(self, store: StateStore):
        self._store = store
        self.epoch = 0
        self.open: list[LedgerEpoch] = []
        self._replaced: dict[str, LedgerWrite] = {}
        """Rows that were put in the place of damaged ones before the running epoch: what is read is these."""
        self._saving: dict[str, list[Saved]] = {}
        self.loads = self.loaded = self.absent = self.loaded_bytes = 0
        self.held = 0
        """Times that a row needed a key which was in memory."""

    # ------------------------------------------------------------------ reads

    def load(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        """The values before the running epoch."""
        found = []
        while len(ids):
            found.append(self.load_some(table, ids))
            ids = ids[len(found[-1]) :]
        return pa.concat_arrays(found) if found else pa.nulls(0, pa.binary())

    def load_some(self, table: str, ids: np.ndarray) -> pa.BinaryArray:
        """The values before the running epoch of the first of these ids, at least one."""
        self.loads += 1
        late = self._late(table)
        if not late:
            values = _plain(self._store.load(table, ids, self.epoch))
        else:
            values = self._load_late(table, ids, late)
        self.absent += values.null_count
        self.loaded += len(values) - values.null_count
        self.loaded_bytes += values.nbytes
        return values

    def _late(self, table: str) -> list[LedgerWrite]:
        """Writes that the store may not have yet, the newest first."""
        late = [written for one in reversed(self.open) for written in one.writes.get(table, ())]
        replaced = self._replaced.get(table)
        return late if replaced is None else [replaced, *late]

    def _load_late(self, table: str, ids: np.ndarray, late: list[LedgerWrite]) -> pa.BinaryArray:
        """The newest write that the store may not have yet; of other ids what the store has."""
        which, where = np.full(len(ids), -1, np.int64), np.zeros(len(ids), np.int64)
        sizes = np.zeros(len(ids), np.int64)
        for number, written in enumerate(late):
            unknown = np.flatnonzero(which < 0)
            found = written.find(ids[unknown])
            hits = unknown[found >= 0]
            which[hits], where[hits] = number, found[found >= 0]
            sizes[hits] = written.lengths()[where[hits]]
        count = 1 + int(np.searchsorted(np.cumsum(sizes[:-1]), LOAD_BYTES))
        parts: list[pa.BinaryArray] = []
        stored = np.flatnonzero(which[:count] < 0)
        if len(stored):
            parts.append(_plain(self._store.load(table, ids[stored], self.epoch)))
            if len(parts[0]) < len(stored):
                count, stored = int(stored[len(parts[0])]), stored[: len(parts[0])]
        order = [stored]
        for number, written in enumerate(late):
            order.append(np.flatnonzero(which[:count] == number))
            parts.append(written.values.take(pa.array(where[order[-1]])))
        back = np.empty(count, np.int64)
        back[np.concatenate(order)] = np.arange(count)
        return pa.concat_arrays(parts).take(pa.array(back))

    def scan_at(
        self, table: str, first: int, stop: int, only: np.ndarray, epoch: int
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """The same, as it was after an epoch that was committed long ago."""
        return self._store.scan(table, first, stop, epoch + 1, only)

    def scan(self, table: str, first: int, stop: int, only: np.ndarray) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """All rows of the buckets `[first, stop)` that are in the mask, before the running epoch."""
        late = self._late(table)
        for ids, values in self._store.scan(table, first, stop, self.epoch, only):
            for written in late:
                old = written.find(ids) >= 0
                if old.any():
                    ids, values = ids[~old], values.filter(pa.array(~old))
            if len(ids):
                yield ids, _plain(values)
        seen: list[LedgerWrite] = []
        for written in late:
            at = buckets_of(written.ids)
            keep = (at >= first) & (at < stop) & only[at] & np.asarray(pc.is_valid(written.values))
            for newer in seen:
                keep &= newer.find(written.ids) < 0
            seen.append(written)
            if keep.any():
                yield written.ids[keep], written.values.filter(pa.array(keep))

    # ------------------------------------------------------------------ repair

    def changed_since(self, table: str, ids: np.ndarray, epoch: int) -> np.ndarray:
        """Which of these an epoch after this one has written that is not known to be in the store, or can be undone."""
        found = np.zeros(len(ids), np.bool_)
        for one in self.open:
            for touched in one.touched.get(table, ()) if one.epoch > epoch else ():
                found |= IdSet(touched).find(ids) >= 0
        return found

    def replace(self, table: str, rows: LedgerWrite) -> None:
        """From now on these rows are what was there before the running epoch; they are among its writes, but for those
        that the epoch writes itself. `before`: what was really there."""
        assert table not in self._replaced
        self._replaced[table] = rows

    def replaced(self) -> dict[str, np.ndarray]:
        """Ids that were replaced in the running epoch."""
        return {table: rows.ids for table, rows in self._replaced.items()}

    def _with_replaced(self, writes: dict[str, list[LedgerWrite]]) -> None:
        """One write for each id: what the epoch made of a row that was replaced, or else the row itself. What readers
        had before is in both cases what was really there."""
        for table, rows in self._replaced.items():
            left = np.ones(len(rows.ids), np.bool_)
            for written in writes.get(table, ()):
                at = written.find(rows.ids)
                left &= at < 0
                if written.before is not None and rows.before is not None and (at >= 0).any():
                    there = rows.find(written.ids)
                    old = pa.concat_arrays([written.before, rows.before])
                    which = np.where(there >= 0, len(written.ids) + there, np.arange(len(written.ids)))
                    written.before = old.take(pa.array(which))
            if left.any():
                writes.setdefault(table, []).append(rows.filter(left))

    # ------------------------------------------------------------------ writes

    def save(
        self,
        table: str,
        ids: np.ndarray,
        values: pa.BinaryArray,
        keys: pa.BinaryArray | None = None,
        hidden: np.ndarray | None = None,
        before: pa.BinaryArray | None = None,
    ) -> None:
        """What else rows have (see `TableWrite`): with every call for a table, or with none."""
        if len(ids):
            self._saving.setdefault(table, []).append((ids, values, keys, hidden, before))

    def close_epoch(self) -> dict[str, list[LedgerWrite]]:
        """What was saved since the last call: the writes of the running epoch, which is open from now on."""
        writes = {}
        for table, parts in self._saving.items():
            writes[table] = [_joined(pieces) for pieces in _bounded(parts)]
        self._saving = {}
        self._with_replaced(writes)
        self._replaced = {}
        touched = {table: [w.ids for w in pieces] for table, pieces in writes.items()}
        self.open.append(LedgerEpoch(self.epoch, writes, touched))
        return writes

    def persisted(self, epoch: int) -> None:
        for one in self.open:
            if one.epoch <= epoch:
                one.persisted, one.writes = True, {}
        self._tidy()

    def committed(self, epoch: int) -> None:
        for one in self.open:
            one.committed |= one.epoch <= epoch
        self._tidy()

    def _tidy(self) -> None:
        self.open = [one for one in self.open if not (one.persisted and one.committed)]

    def undo(self, committed: int) -> list[LedgerEpoch]:
        """Forget the writes of later epochs; returns these."""
        self._saving, self._replaced = {}, {}
        gone = [one for one in self.open if one.epoch > committed]
        self.open = [one for one in self.open if one.epoch <= committed]
        return gone


Saved = tuple[np.ndarray, pa.BinaryArray, pa.BinaryArray | None, np.ndarray | None, pa.BinaryArray | None]
"""Ids, values, keys, which are hidden, previous images."""


def _bounded(parts: list[Saved]) -> Iterator[list[Saved]]:
    """Neighbours together, as many as one column can hold with ease."""
    piece: list[Saved] = []
    size = 0
    for part in parts:
        if piece and size + part[1].nbytes > PIECE_BYTES:
            yield piece
            piece, size = [], 0
        piece.append(part)
        size += part[1].nbytes
    yield piece


def _joined(parts: list[Saved]) -> LedgerWrite:
    if len(parts) == 1:
        return LedgerWrite(*parts[0])
    ids, values, keys, hidden, before = zip(*parts, strict=True)
    return LedgerWrite(
        np.concatenate(ids),
        pa.concat_arrays(values),
        None if keys[0] is None else pa.concat_arrays(keys),
        None if hidden[0] is None else np.concatenate(hidden),
        None if before[0] is None else pa.concat_arrays(before),
    )


def _plain(values: pa.Array) -> pa.BinaryArray:
    return values if values.type == pa.binary() else values.cast(pa.binary())
