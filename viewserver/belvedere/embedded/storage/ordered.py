"""Rows of a table in memory read in key order: the order is built by the first who asks and kept up for those who
follow.

Building looks at every row once, in pieces: the table's lock is free between them, and what changes meanwhile is noted
by the table (see `belvedere.engine.state.ordered`). Whoever reads later settles what was noted since the last read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.ordered import KeyOrder, SortedSlots
from belvedere.engine.vec import Vec
from belvedere.model.keys import KeyCodec, key_codec
from belvedere.model.ranges import KeyRange

T = TypeVar("T")
_PIECE_ROWS = 1 << 16


class SlotTable(Protocol):
    """A table of the engine, as far as order needs it."""

    order: KeyOrder | None

    @property
    def limit(self) -> int: ...

    def live(self, slots: np.ndarray) -> np.ndarray: ...

    def live_slots(self) -> np.ndarray: ...

    def gather(self, slots: np.ndarray, columns: Sequence[int]) -> tuple[Vec, ...]: ...


class OrderedRows:
    """Access to a table's rows in the order of the columns at `key`. `lock` protects the table."""

    def __init__(
        self, table: SlotTable, codec: KeyCodec, key: Sequence[int], lock: AbstractContextManager[object]
    ) -> None:
        self._table, self._codec, self._key, self._lock = table, codec, key, lock
        self._building = threading.Lock()

    def read(self, action: Callable[[SortedSlots], T]) -> T:
        """What the action makes of the rows in order; it is called under the lock."""
        while True:
            with self._lock:
                order = self._table.order
                if order is not None and order.sorted is not None:
                    settled = order.settle(self._table.live, self._keys)
                    if settled is not None:
                        return action(settled)
                    continue  # others may have the lock between two pieces
            self._build()

    def _keys(self, slots: np.ndarray) -> pa.BinaryArray:
        return self.encode(self._table.gather(slots, self._key), len(slots))

    def encode(self, columns: Sequence[Vec], count: int) -> pa.BinaryArray:
        """Keys of rows, of which these are the key columns."""
        return self._codec.encode([vec.to_arrow() for vec in columns], count)

    def _build(self) -> None:
        table = self._table
        with self._building:
            with self._lock:
                if table.order is not None and table.order.sorted is not None:
                    return
                order = table.order = KeyOrder()
                slots = table.live_slots()
            pieces = [slots[at : at + _PIECE_ROWS] for at in range(0, len(slots), _PIECE_ROWS)]
            keys = []
            for piece in pieces:
                with self._lock:
                    columns = table.gather(piece, self._key)
                keys.append(self.encode(columns, len(piece)))
            built = SortedSlots.of(pieces, keys)
            with self._lock:
                order.install(built, pieces, table.limit)


def base_range(table: DeltaTable, wanted: KeyRange, columns: Sequence[int]) -> tuple[Vec, ...]:
    """Columns of the rows of a base table in a range, in its order; for the thread that the table belongs to."""
    key = table.table.key_positions
    rows = OrderedRows(table, key_codec(table.table.columns, key), key, nullcontext())
    return rows.read(
        lambda order: table.gather(order.select(wanted.low, wanted.high, wanted.limit, wanted.reverse), columns)
    )
