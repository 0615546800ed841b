"""Up to where a pool was collected, and which tables it has: kept in `_meta`, and read again when it may have changed.

A bound is a cell whose timestamp is its value: the newest wins, so it only grows, whoever writes it when.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.documents import CellDocuments
from belvedere.backend.hbase.keyvalues import PUT, KeyValues, same
from belvedere.backend.hbase.layout import CURRENT, DOCUMENT_FAMILY, PAST, TAG_BYTES
from belvedere.backend.row_shapes import pack_shape, unpack_shape
from belvedere.backend.seam import RowShape

_ROW = b"b/bounds"
_HORIZON, _FENCE, _COLLECTED, _SWEPT = b"horizon", b"fence", b"collected", b"swept"
_FRESH_S = 1.0
"""So long a process may take a bound for the current one where an older one does no harm: a write that is late by less
is hidden by the marker of the tombstone that it would have to revive."""


@dataclass(frozen=True)
class Bounds:
    """`horizon`: versions that only epochs before see may be gone. `fence`: writes of epochs up to it are ignored.
    `collected`: everything up to this horizon has gone. `swept`: tombstones up to this epoch have."""

    horizon: int = 0
    fence: int = 0
    collected: int = 0
    swept: int = 0


class StoredBounds:
    """Thread-safe."""

    def __init__(self, cells: Cells, table: str, now: Callable[[], float] = time.monotonic) -> None:
        self._cells, self._table, self._now = cells, table, now
        self._lock = threading.Lock()
        self._known, self._until = Bounds(), -1.0

    def read(self, *, fresh: bool = True) -> Bounds:
        with self._lock:
            if not fresh and self._now() < self._until:
                return self._known
        row = pa.array([_ROW], pa.binary())
        found = self._cells.get(self._table, row, Columns(DOCUMENT_FAMILY))
        held = dict(zip(found.qualifier.to_pylist(), found.timestamp.tolist(), strict=True))
        bounds = Bounds(*(held.get(name, 0) for name in (_HORIZON, _FENCE, _COLLECTED, _SWEPT)))
        with self._lock:
            self._known, self._until = bounds, self._now() + _FRESH_S
        return bounds

    def raise_to(self, bounds: Bounds) -> None:
        """Lower ones, and 0, are without effect."""
        named = {_HORIZON: bounds.horizon, _FENCE: bounds.fence, _COLLECTED: bounds.collected, _SWEPT: bounds.swept}
        held = {name: value for name, value in named.items() if value > 0}
        if held:
            count = len(held)
            self._cells.put(
                self._table,
                KeyValues(
                    same(_ROW, count),
                    same(DOCUMENT_FAMILY.encode(), count),
                    pa.array(list(held), pa.binary()),
                    np.array(list(held.values()), np.int64),
                    np.full(count, PUT, np.uint8),
                    same(b"", count),
                ),
            )
        self.read()


@dataclass(frozen=True)
class KnownTable:
    """A table of the pool. `keyed`: its rows are found by key, too. `shape`: of a view, which has a table of HBase.
    `past`: it is no view, and read at older epochs as well."""

    name: str
    tag: bytes
    keyed: bool
    shape: RowShape | None
    past: bool

    @property
    def family(self) -> str:
        """Of `_state`."""
        return PAST if self.past else CURRENT


class StoredTables:
    """The tables of a pool by name. A table is entered once, at its first write, whoever writes it. Thread-safe."""

    def __init__(self, documents: CellDocuments) -> None:
        self._documents = documents
        self._lock = threading.Lock()
        self._known: dict[str, KnownTable] = {}

    def get(self, name: str) -> KnownTable | None:
        with self._lock:
            known = self._known.get(name)
        if known is None:
            data = self._documents.get(name)
            known = None if data is None else self._remember(name, data)
        return known

    def enter(self, name: str, keyed: bool, shape: RowShape | None, logged: bool) -> KnownTable:
        """What it is from now on, or has been."""
        known = self.get(name)
        if known is not None:
            return known
        text = None if shape is None else pack_shape(shape)
        described = {"tag": secrets.token_hex(TAG_BYTES - 1), "keyed": keyed, "shape": text}
        described["past"] = shape is None and (keyed or logged)
        return self._remember(name, self._documents.put_if_absent(name, json.dumps(described).encode()))

    def all(self) -> list[KnownTable]:
        return [_table(name, data) for name, data in self._documents.everything().items()]

    def remove(self, names: list[str]) -> None:
        self._documents.remove(names)
        with self._lock:
            for name in names:
                self._known.pop(name, None)

    def _remember(self, name: str, data: bytes) -> KnownTable:
        known = _table(name, data)
        with self._lock:
            self._known[name] = known
        return known


def _table(name: str, data: bytes) -> KnownTable:
    held = json.loads(data)
    shape = None if held["shape"] is None else unpack_shape(held["shape"])
    # No tag consists of ff alone: what follows it is found by adding one.
    return KnownTable(name, b"\0" + bytes.fromhex(held["tag"]), held["keyed"], shape, held["past"])
