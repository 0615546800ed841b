"""Small values by name, in the family `d` of `_meta`: the documents of the pool, and what this backend itself has to
know of it (which tables there are, up to where it was collected).

A document is one cell, at a timestamp that its writer says, since a delete hides whatever has its timestamp: a region
server's clock may be behind that of the server which had the region before. Whoever writes looks whether that is what
is there now, and writes above what hides it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.keyvalues import PUT, KeyValues, same
from belvedere.backend.hbase.layout import DOCUMENT_FAMILY, LIVENESS, after
from belvedere.backend.hbase.packing import Content, cut, unpack
from belvedere.errors import StoreUnavailable

_TRIES = 40


class CellDocuments:
    """Documents whose rows begin with `prefix`. Thread-safe."""

    def __init__(self, cells: Cells, table: str, prefix: bytes) -> None:
        self._cells, self._table, self._prefix = cells, table, prefix

    def put(self, name: str, data: bytes) -> None:
        row = self._row(name)
        stamp = time.time_ns() // 1_000_000
        for number in range(_TRIES):
            values = cut(Content.ROW, data)
            qualifiers = [LIVENESS, *(b"_%d" % number for number in range(1, len(values)))]
            self._cells.put(self._table, _cells(row, qualifiers, stamp, values))
            there = self._newest(row)
            if there == stamp:
                return
            # It is hidden by a later one, or by a marker that tells nobody its time: look for it in growing steps.
            stamp = there + 1 if there is not None and there > stamp else stamp + (1 << number)
        raise StoreUnavailable(f"hbase table {self._table!r}: document {name!r} is hidden whenever it was written")

    def get(self, name: str) -> bytes | None:
        found = self._cells.get(self._table, pa.array([self._row(name)], pa.binary()), Columns(DOCUMENT_FAMILY))
        return _assembled(found)[0][1] if len(found) else None

    def list(self, prefix: str) -> list[str]:
        found = [name for name, _ in self._names(prefix)]
        return sorted(found)

    def everything(self, prefix: str = "") -> dict[str, bytes]:
        begin = self._row(prefix)
        scan = self._cells.scan(self._table, begin, after(begin), Columns(DOCUMENT_FAMILY))
        return {self._name(row): data for piece in scan for row, data in _assembled(piece)}

    def remove(self, names: Sequence[str]) -> None:
        """At the timestamp of what is there, so that a later one is not hidden."""
        if not names:
            return
        rows = pa.array(sorted({self._row(name) for name in names}), pa.binary())
        found = self._cells.get(self._table, rows, Columns(DOCUMENT_FAMILY, (LIVENESS,)))
        self._cells.delete(self._table, found.row, DOCUMENT_FAMILY, None, found.timestamp.tolist())

    def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Returns what is there then; short ones only."""
        row = self._row(name)
        for _ in range(_TRIES):
            value = bytes([Content.ROW]) + data
            self._cells.put_if_absent(self._table, row, DOCUMENT_FAMILY, LIVENESS, value)
            found = self.get(name)
            if found is not None:
                return found
        raise StoreUnavailable(f"hbase table {self._table!r}: document {name!r} is hidden whenever it was written")

    def _newest(self, row: bytes) -> int | None:
        found = self._cells.get(self._table, pa.array([row], pa.binary()), Columns(DOCUMENT_FAMILY, (LIVENESS,)))
        return int(found.timestamp[0]) if len(found) else None

    def _names(self, prefix: str) -> Iterator[tuple[str, int]]:
        begin = self._row(prefix)
        columns = Columns(DOCUMENT_FAMILY, (LIVENESS,))
        for piece in self._cells.scan(self._table, begin, after(begin), columns, keys_only=True):
            yield from zip(map(self._name, piece.row.to_pylist()), piece.timestamp.tolist(), strict=True)

    def _row(self, name: str) -> bytes:
        return self._prefix + name.encode()

    def _name(self, row: bytes) -> str:
        return row[len(self._prefix) :].decode()


def _cells(row: bytes, qualifiers: Sequence[bytes], stamp: int, values: Sequence[bytes]) -> KeyValues:
    count = len(values)
    return KeyValues(
        same(row, count),
        same(DOCUMENT_FAMILY.encode(), count),
        pa.array(qualifiers, pa.binary()),
        np.full(count, stamp, np.int64),
        np.full(count, PUT, np.uint8),
        pa.array(values, pa.binary()),
    )


def _assembled(found: KeyValues) -> list[tuple[bytes, bytes]]:
    """Documents of whole rows. Pieces that an earlier, longer content left are not counted."""
    rows: dict[bytes, dict[bytes, bytes]] = {}
    columns = (found.row.to_pylist(), found.qualifier.to_pylist(), found.value.to_pylist())
    for row, qualifier, value in zip(*columns, strict=True):
        rows.setdefault(row, {})[qualifier] = value
    documents = []
    for row, held in rows.items():

        def rest(_row: bytes, _stamp: int, count: int, held: dict[bytes, bytes] = held) -> list[bytes]:
            return [held[b"_%d" % number] for number in range(1, count)]

        if LIVENESS in held:
            documents.append((row, unpack(row, 0, held[LIVENESS], rest)[1]))
    return documents
