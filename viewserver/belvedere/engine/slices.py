"""What a view group under construction takes of its leaves in an epoch.

Its slice is the buckets [first, stop). It gets the changes of rows in buckets below `first`, which it has already; all
rows of the slice as they are after the epoch; and nothing of the others, whose turn will come. After the slice that
ends with the last bucket it has seen every row once and every change since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Delta, take_ids
from belvedere.engine.ledger import IdSet, Ledger
from belvedere.engine.routing import buckets_of
from belvedere.engine.state.delta_table import BaseChange, DeltaTable
from belvedere.engine.viewrows import decode_view_rows, delta_table, view_table
from belvedere.plan import nodes


class Slices:
    """One slice, on the buckets of one server."""

    def __init__(self, ledger: Ledger, mine: np.ndarray, first: int, stop: int):
        self._ledger, self._mine, self._first, self._stop = ledger, mine, first, stop

    def of_table(
        self, node: nodes.DeltaNode, table: DeltaTable, change: BaseChange | None, changes: Iterator[Delta]
    ) -> Iterator[Delta]:
        """The share of a base table; `changes` is what it emits in this epoch."""
        for delta in changes:
            yield delta.filter(buckets_of(delta.id) < self._first)
        touched = np.empty((0, 2), np.uint64) if change is None else self._inside(change.touched)
        for ids, values in self._rows(delta_table(node.table), touched):
            rows = table.unpack(values)
            live = np.flatnonzero(~rows.dead)
            columns = tuple(rows.columns[c].take(live) for c in node.columns)
            error = None if rows.error is None else rows.error[live]
            yield Delta(columns, np.ones(len(live), np.int8), take_ids(ids, live), error)
        if len(touched):
            yield table.read(touched, node.columns)

    def of_view(self, view: nodes.ViewNode, changes: Sequence[Delta]) -> Iterator[Delta]:
        """The share of a view; `changes` is what the epoch did to it."""
        for delta in changes:
            yield delta.filter(buckets_of(delta.id) < self._first)
        touched = [self._inside(delta.id) for delta in changes]
        known = np.concatenate(touched) if touched else np.empty((0, 2), np.uint64)
        for ids, values in self._rows(view_table(view), known):
            yield decode_view_rows(view, ids, values)
        for delta in changes:
            buckets = buckets_of(delta.id)
            yield delta.filter((delta.weight > 0) & (buckets >= self._first) & (buckets < self._stop))

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
