"""What a view group under construction takes of its leaves in an epoch.

Its slice is the buckets [first, stop). It gets the changes of rows in buckets below `first`, which it has already; all
rows of the slice as they are after the epoch; and nothing of the others, whose turn will come. After the slice that
ends with the last bucket it has seen every row once and every change since.

One whose state was computed aside, from its leaves as they were after an epoch `since`, has seen the rows of then:
of the slice it gets what the leaves are now and were not then (+1), and what they were and are not any more (-1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.buffer import CHUNK_ROWS
from belvedere.engine.delta import Delta, take_ids
from belvedere.engine.ledger import IdSet, Ledger
from belvedere.engine.routing import buckets_of
from belvedere.engine.state.delta_table import BaseChange, DeltaTable
from belvedere.engine.viewrows import decode_view_rows, delta_table, view_table
from belvedere.plan import nodes

Unpack = Callable[[np.ndarray, pa.BinaryArray], Delta]


class Slices:
    """One slice, on the buckets of one server."""

    def __init__(self, ledger: Ledger, mine: np.ndarray, first: int, stop: int, since: int = 0):
        self._ledger, self._mine, self._first, self._stop, self._since = ledger, mine, first, stop, since

    def of_table(
        self, node: nodes.DeltaNode, table: DeltaTable, change: BaseChange | None, changes: Iterator[Delta]
    ) -> Iterator[Delta]:
        """The share of a base table; `changes` is what it emits in this epoch."""
        for delta in changes:
            yield delta.filter(buckets_of(delta.id) < self._first)

        def unpacked(ids: np.ndarray, values: pa.BinaryArray) -> Delta:
            rows = table.unpack(values)
            live = np.flatnonzero(~rows.dead)
            columns = tuple(rows.columns[c].take(live) for c in node.columns)
            error = None if rows.error is None else rows.error[live]
            return Delta(columns, np.ones(len(live), np.int8), take_ids(ids, live), error)

        touched = np.empty((0, 2), np.uint64) if change is None else self._inside(change.touched)
        old = self._old(delta_table(node.table), unpacked)
        for ids, values in self._rows(delta_table(node.table), touched):
            yield from old.replaced_by(ids, values)
        if len(touched):
            yield from old.gone(touched)
            yield table.read(touched, node.columns)
        yield from old.left()

    def of_view(self, view: nodes.ViewNode, changes: Sequence[Delta]) -> Iterator[Delta]:
        """The share of a view; `changes` is what the epoch did to it."""
        for delta in changes:
            yield delta.filter(buckets_of(delta.id) < self._first)
        touched = [self._inside(delta.id) for delta in changes]
        known = np.concatenate(touched) if touched else np.empty((0, 2), np.uint64)
        old = self._old(view_table(view), lambda ids, values: decode_view_rows(view, ids, values))
        for ids, values in self._rows(view_table(view), known):
            yield from old.replaced_by(ids, values)
        if len(known):
            yield from old.gone(known)
        for delta in changes:
            buckets = buckets_of(delta.id)
            yield delta.filter((delta.weight > 0) & (buckets >= self._first) & (buckets < self._stop))
        yield from old.left()

    def _old(self, table: str, unpack: Unpack) -> _Old:
        """What was taken in before."""
        if not self._since or self._first == self._stop:
            return _Old(unpack, ())
        return _Old(unpack, self._ledger.scan_at(table, self._first, self._stop, self._mine, self._since))

    def _inside(self, ids: np.ndarray) -> np.ndarray:
        buckets = buckets_of(ids)
        return np.asarray(ids[(buckets >= self._first) & (buckets < self._stop)])

    def _rows(self, table: str, touched: np.ndarray) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """Stored rows of my buckets in the slice that this epoch did not touch. The buckets of a server are strewn over
        the slice; the store reads these alone, so that together the servers read a table once."""
        known = IdSet(touched)
        for ids, values in self._ledger.scan(table, self._first, self._stop, self._mine):
            fresh = known.find(ids) < 0
            if fresh.all():
                yield ids, values
            elif fresh.any():
                yield ids[fresh], values.filter(pa.array(fresh))


class _Old:
    """Rows of the slice as they were, by id: those that are found again unchanged are none of our business."""

    def __init__(self, unpack: Unpack, pieces: Iterable[tuple[np.ndarray, pa.BinaryArray]]):
        self._unpack = unpack
        found = list(pieces)
        self._ids = np.concatenate([ids for ids, _ in found]) if found else np.empty((0, 2), np.uint64)
        values = pa.chunked_array([values.cast(pa.large_binary()) for _, values in found], pa.large_binary())
        self._values = values.combine_chunks() if found else pa.nulls(0, pa.large_binary())
        self._places = IdSet(self._ids)
        self._open = np.ones(len(self._ids), np.bool_)
        """Rows that nothing was said of yet."""

    def replaced_by(self, ids: np.ndarray, values: pa.BinaryArray) -> Iterator[Delta]:
        """These are there now: what goes for them, then those of them that come."""
        if not len(self._ids):
            yield self._unpack(ids, values)
            return
        at = self._places.find(ids)
        before = self._values.take(pa.array(at, mask=at < 0))
        same = pc.fill_null(pc.equal(before, values.cast(pa.large_binary())), False).to_numpy(zero_copy_only=False)
        self._open[at[same]] = False
        yield from self._taken(at[(at >= 0) & ~same])
        if not same.all():
            yield self._unpack(ids[~same], values.filter(pa.array(~same)))

    def gone(self, ids: np.ndarray) -> Iterator[Delta]:
        """What there was under these ids goes."""
        at = np.unique(self._places.find(ids))
        yield from self._taken(at[at >= 0])

    def left(self) -> Iterator[Delta]:
        """All that was not found again goes."""
        yield from self._taken(np.flatnonzero(self._open))

    def _taken(self, at: np.ndarray) -> Iterator[Delta]:
        at = at[self._open[at]]
        self._open[at] = False
        for start in range(0, len(at), CHUNK_ROWS):
            part = at[start : start + CHUNK_ROWS]
            rows = self._unpack(self._ids[part], self._values.take(pa.array(part)).cast(pa.binary()))
            yield Delta(rows.columns, np.full(len(rows), -1, np.int8), rows.id, rows.error)
