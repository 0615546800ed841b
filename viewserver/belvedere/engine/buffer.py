"""Chunks of a delta on their way from one operator to the next; they spill to disk when memory runs out.

Receivers always drain, so an epoch that was planned completes whatever one key fans out to: what does not fit under the
budget is written as Arrow IPC to an unlinked temporary file and read back chunk by chunk, as often as it is iterated.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Delta
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Vec
from belvedere.spill import Budget, HeldItem, Spill
from belvedere.types import Schema

CHUNK_ROWS = 1 << 17
"""Operators that fan out emit at most this many rows at a time."""


class DeltaBuffer:
    """An append-only, re-iterable sequence of deltas of one schema."""

    def __init__(self, schema: Schema, budget: Budget):
        self.schema = schema
        self._spill: Spill[Delta] = Spill(budget, encode, lambda payload: decode(payload, schema))
        self._chunks: list[HeldItem[Delta]] = []
        self._following: list[DeltaBuffer] = []
        self.rows = 0

    def append(self, delta: Delta) -> None:
        """Add a chunk (empty ones are dropped)."""
        if len(delta):
            self._chunks.append(self._spill.hold(delta, delta.nbytes()))
            self.rows += len(delta)

    def extend(self, other: DeltaBuffer) -> None:
        """The chunks of another buffer behind the own ones; both stay readable, the other must not grow any more."""
        if other.rows:
            self._following.append(other)
            self.rows += other.rows

    def __iter__(self) -> Iterator[Delta]:
        for chunk in self._chunks:
            yield self._spill.fetch(chunk)
        for other in self._following:
            yield from other

    @property
    def spilled(self) -> bool:
        return self._spill.spilled or any(other.spilled for other in self._following)

    def close(self) -> None:
        """Forget the chunks and give the memory back."""
        self._chunks = []
        self._spill.close()
        for other in self._following:
            other.close()
        self._following = []

    def __del__(self) -> None:
        self.close()


def encode(delta: Delta) -> bytes:
    """A delta as one Arrow IPC stream. Status bytes travel beside the data, so errors survive."""
    names: list[str] = []
    arrays: list[pa.Array] = []
    for i, column in enumerate(delta.columns):
        names.append(f"d{i}")
        arrays.append(Vec(column.type, column.data).to_arrow())
        if column.status is not None:
            names.append(f"s{i}")
            arrays.append(pa.array(column.status, pa.uint8()))
    for name, array in (("w", delta.weight), ("lo", delta.id[:, 0]), ("hi", delta.id[:, 1]), ("e", delta.error)):
        if array is not None:
            names.append(name)
            arrays.append(pa.array(np.ascontiguousarray(array)))
    batch = pa.record_batch(arrays, names=names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def decode(payload: bytes, schema: Schema) -> Delta:
    """The inverse of `encode`."""
    batch = pa.ipc.open_stream(payload).read_next_batch()
    have = set(batch.schema.names)
    columns = []
    for i, column in enumerate(schema):
        vec = Vec.from_arrow(batch.column(f"d{i}"), column.type)
        vec.status = plain(batch.column(f"s{i}").to_numpy()) if f"s{i}" in have else None
        columns.append(vec)
    ids = np.empty((batch.num_rows, 2), np.uint64)
    ids[:, 0] = batch.column("lo").to_numpy()
    ids[:, 1] = batch.column("hi").to_numpy()
    error = plain(batch.column("e").to_numpy()) if "e" in have else None
    return Delta(tuple(columns), plain(batch.column("w").to_numpy()), ids, error)
