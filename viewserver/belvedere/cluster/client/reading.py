"""Rows of views and base tables at an epoch, from the owner of their bucket or from the store.

A view server answers for what it remembers of its own writes; the store always knows. Scans go to the store. Base
tables are read from DELTA, so that a base table and the views over it belong together at every epoch.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere import errors
from belvedere.cluster.catalog.names import Readable, ReadableView
from belvedere.cluster.client.pool import Pool
from belvedere.cluster.client.stores import Stores
from belvedere.cluster.transport import calls
from belvedere.engine.delta import Delta, concat_deltas, empty_delta
from belvedere.model.keys import KeyCodec
from belvedere.model.ranges import KeyRange
from belvedere.model.stored_rows import base_rows, view_rows
from belvedere.protocol.messages import Epoch
from belvedere.protocol.ring import BUCKETS, buckets_of
from belvedere.retry import Deadline

OWNER_SECONDS = 1.0
"""How long a view server may take for an answer before the store is asked instead."""
ASKED_OF_OWNERS = 1024
"""More rows at once are asked of the store alone."""
RANGE_ROWS = 1 << 16
"""Rows that are asked for at a time."""
SILENT_SECONDS = 3.0
"""How long a view server that did not answer is not asked again: the store knows everything."""


class PoolReader:
    """Reads at an epoch that somebody else vouches for."""

    def __init__(self, pool: Pool, stores: Stores) -> None:
        self._pool, self._stores = pool, stores
        self._silent: dict[str, float] = {}
        """Addresses that did not answer, and until when they are not asked (monotonic)."""

    def get(
        self, served: Readable, ids: np.ndarray, epoch: int, deadline: Deadline, *, ask_owner: bool = True
    ) -> Delta:
        """The rows of these ids, those that exist."""
        values = None
        if ask_owner and isinstance(served, ReadableView) and len(ids) == 1:
            values = self._known_by_owner(served, ids, epoch, deadline)
        elif isinstance(served, ReadableView) and len(ids) <= ASKED_OF_OWNERS:
            values = self._known_by_owners(served, ids, epoch, deadline)
        if values is None:
            values = self.values(served.rows_table, ids, epoch, deadline)
        return decode(served, ids, values)

    def values(self, table: str, ids: np.ndarray, epoch: int, deadline: Deadline) -> pa.BinaryArray:
        return self._stores(deadline).read(table, ids, epoch + 1)

    def pieces(self, served: Readable, epoch: int, deadline: Deadline) -> Iterator[Delta]:
        """All rows, in pieces of some thousand, in no useful order."""
        for ids, values in self._stores(deadline).scan(served.rows_table, 0, BUCKETS, epoch + 1):
            piece = decode(served, ids, values)
            if len(piece):
                yield piece

    def range(self, served: Readable, codec: KeyCodec, wanted: KeyRange, epoch: int, deadline: Deadline) -> Delta:
        """The rows of a range, in its order."""
        parts = list(self._in_order(served, codec, wanted, epoch, deadline))
        return concat_deltas(parts) if parts else empty_delta(served.shape.schema)

    def _in_order(
        self, served: Readable, codec: KeyCodec, wanted: KeyRange, epoch: int, deadline: Deadline
    ) -> Iterator[Delta]:
        """Part by part: what breaks off is asked for again, so a part must not be too much."""
        left = wanted.limit
        while left is None or left > 0:
            count = RANGE_ROWS if left is None else min(left, RANGE_ROWS)
            answer = self._stores(deadline).range(served.rows_table, replace(wanted, limit=count), epoch + 1)
            parts = [decode(served, ids, values) for ids, values in answer]
            yield from parts
            found = sum(map(len, parts))
            if found < count:
                return
            deadline.progressed()
            left = None if left is None else left - found
            end = parts[-1].slice(len(parts[-1]) - 1, len(parts[-1]))
            last = codec.encode([end.columns[i].to_arrow() for i in served.shape.key], 1)[0].as_py()
            wanted = replace(wanted, high=last) if wanted.reverse else replace(wanted, low=last + b"\0")

    def rows(self, served: Readable, epoch: int, deadline: Deadline) -> Delta:
        parts = list(self.pieces(served, epoch, deadline))
        return concat_deltas(parts) if parts else empty_delta(served.shape.schema)

    def _known_by_owners(self, served: ReadableView, ids: np.ndarray, epoch: int, deadline: Deadline) -> pa.BinaryArray:
        """Each owner is asked for what it remembers, the store for the rest."""
        groups: dict[str, list[int]] = {}
        for at, bucket in enumerate(buckets_of(ids).tolist()):
            owner = self._pool.owner(bucket)
            groups.setdefault(owner[0] if owner is not None else "", []).append(at)
        values: list[Any] = [None] * len(ids)
        unknown: list[int] = []
        for places in groups.values():
            known = self._known_by_owner(served, ids[places], epoch, deadline)
            if known is None:
                unknown += places
                continue
            for at, value in zip(places, known.to_pylist(), strict=True):
                values[at] = value
        if unknown:
            stored = self.values(served.rows_table, ids[unknown], epoch, deadline)
            for at, value in zip(unknown, stored.to_pylist(), strict=True):
                values[at] = value
        return pa.array(values, pa.binary())

    def _known_by_owner(
        self, served: ReadableView, ids: np.ndarray, epoch: int, deadline: Deadline
    ) -> pa.BinaryArray | None:
        """What the owner of the bucket remembers; None if it does not, or is not there."""
        owner = self._pool.owner(int(buckets_of(ids)[0]))
        if owner is None or time.monotonic() < self._silent.get(owner[0], 0.0):
            return None
        address, generation = owner
        request = calls.encode_read(calls.ReadRows(served.rows_table, Epoch(epoch), generation.number), ids)
        patience = max(min(OWNER_SECONDS, deadline.left(2 * OWNER_SECONDS) / 2), 0.001)  # the store needs time as well
        try:
            answer, known, values = calls.decode_rows(self._pool.call(address, calls.READ, request, patience))
        except errors.Unavailable:
            self._silent[address] = time.monotonic() + SILENT_SECONDS
            return None
        except errors.Incompatible:
            return None
        self._silent.pop(address, None)
        if self._pool.outdated(answer.generation):
            with contextlib.suppress(errors.Unavailable):  # then it is found out another time
                self._pool.refresh(patience)
        return values if known is not None and known.all() else None


def decode(served: Readable, ids: np.ndarray, values: pa.BinaryArray) -> Delta:
    """Rows from values of the store; nulls are no rows."""
    if values.null_count:
        there = pc.is_valid(values).to_numpy(zero_copy_only=False)
        ids, values = ids[there], values.drop_null()
    if isinstance(served, ReadableView):
        return view_rows(served.shape.schema, ids, values)
    return base_rows(served.definition, ids, values)
