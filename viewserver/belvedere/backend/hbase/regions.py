"""Which region has a row, and which server has the region: read from `hbase:meta`, kept until it turns out wrong."""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import CLIENT, Server
from belvedere.backend.hbase.faults import RegionMoved
from belvedere.backend.hbase.keyvalues import KeyValues, decode
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.zookeeper import Registry, protobuf_of
from belvedere.errors import CatalogError, StoreUnavailable

META = "hbase:meta"
_META_REGION = b"hbase:meta,,1"
_BY_NAME, _BY_ENCODED_NAME = 1, 2
_SCAN_ROWS = 1000
_HASH = 32
"""Hexadecimal digits of an encoded name, which stand between two dots at the end of a region's name."""


@dataclass(frozen=True)
class Region:
    """Rows from `start` to `stop` (empty: the last region). `opened`: the sequence number with which it was opened;
    every later entry of its log has a greater one. `server`: None while it is open nowhere."""

    table: str
    name: bytes
    start: bytes
    stop: bytes
    id: int
    server: Server | None
    opened: int = 0

    @property
    def encoded(self) -> str:
        """The name that logs, files and the master use."""
        return self.name[-_HASH - 1 : -1].decode()

    def specifier(self) -> Any:
        return messages.RegionSpecifier(type=_BY_NAME, value=self.name)


def by_encoded_name(encoded: str) -> Any:
    return messages.RegionSpecifier(type=_BY_ENCODED_NAME, value=encoded.encode())


class Regions:
    """The regions of tables. Thread-safe."""

    def __init__(self, registry: Registry, pool: ConnectionPool) -> None:
        self._registry, self._pool = registry, pool
        self._lock = threading.Lock()
        self._known: dict[str, list[Region]] = {}

    def of(self, table: str) -> list[Region]:
        """In the order of their rows; may be out of date (`forget`)."""
        with self._lock:
            known = self._known.get(table)
        if known is None:
            known = self._meta_region() if table == META else self.listed(table)
            with self._lock:
                self._known[table] = known
        return known

    def with_row(self, table: str, row: bytes) -> Region:
        """The region that has the row, or would have it."""
        regions = self.of(table)
        return regions[bisect_right(regions, row, key=lambda region: region.start) - 1]

    def before_row(self, table: str, row: bytes) -> Region:
        """The region with the greatest row below this one; an empty row: the last region."""
        regions = self.of(table)
        if not row:
            return regions[-1]
        at = bisect_right(regions, row, key=lambda region: region.start) - 1
        return regions[at - 1] if regions[at].start == row and at else regions[at]

    def grouped(self, table: str, rows: Sequence[bytes]) -> list[tuple[Region, np.ndarray]]:
        """Positions of rows by the region that has them, in the order given."""
        regions = self.of(table)
        if len(regions) == 1:
            return [(regions[0], np.arange(len(rows)))]
        starts = [region.start for region in regions]
        at = np.fromiter((bisect_right(starts, row) - 1 for row in rows), np.int64, len(rows))
        return [(regions[region], np.flatnonzero(at == region)) for region in np.unique(at).tolist()]

    def forget(self, table: str) -> None:
        """What is known turned out to be wrong."""
        with self._lock:
            self._known.pop(table, None)

    def listed(self, table: str) -> list[Region]:
        """From `hbase:meta`, now. Without parents of a split that are there until they are cleaned up."""
        # `hbase:meta` sorts by table, start row and id: a blank sorts before the comma, and only this range has it all.
        cells = self._scan_meta(f"{table},,".encode(), f"{table} ,,".encode())
        regions = _regions(table, cells)
        if not regions:
            raise CatalogError(f"there is no hbase table {table!r}")
        for one, following in pairwise(regions):
            if one.stop != following.start:
                raise RegionMoved(f"hbase table {table!r}: its regions change, from {one.stop!r} on none is open")
        if regions[0].start or regions[-1].stop:
            raise RegionMoved(f"hbase table {table!r}: its regions change, its first or its last is not open")
        return regions

    def _meta_region(self) -> list[Region]:
        return [Region(META, _META_REGION, b"", b"", 1, self._registry.meta())]

    def _scan_meta(self, start: bytes, stop: bytes) -> KeyValues:
        (meta,) = self.of(META)
        request = messages.ScanRequest(region=meta.specifier(), number_of_rows=_SCAN_ROWS)
        request.scan.CopyFrom(messages.Scan(start_row=start, stop_row=stop, caching=_SCAN_ROWS))
        request.scan.column.add(family=b"info")
        assert meta.server is not None
        blocks = []
        try:
            with self._pool.connection(meta.server, CLIENT) as connection:
                answer, block = connection.call("Scan", request, messages.ScanResponse)
                blocks.append(bytes(block))
                while answer.more_results and answer.more_results_in_region:
                    more = messages.ScanRequest(scanner_id=answer.scanner_id, number_of_rows=_SCAN_ROWS)
                    answer, block = connection.call("Scan", more, messages.ScanResponse)
                    blocks.append(bytes(block))
                closing = messages.ScanRequest(scanner_id=answer.scanner_id, close_scanner=True, number_of_rows=0)
                connection.call("Scan", closing, messages.ScanResponse)
        except StoreUnavailable:
            self.forget(META)
            raise
        return decode(b"".join(blocks))


def _regions(table: str, cells: KeyValues) -> list[Region]:
    found: dict[bytes, dict[bytes, bytes]] = {}
    for row, qualifier, value in zip(_list(cells.row), _list(cells.qualifier), _list(cells.value), strict=True):
        found.setdefault(row, {})[qualifier] = value
    regions = [region for row, info in found.items() if (region := _region(table, row, info)) is not None]
    return sorted(regions, key=lambda region: region.start)


def _region(table: str, row: bytes, info: dict[bytes, bytes]) -> Region | None:
    if b"regioninfo" not in info:
        return None
    described = messages.RegionInfo.FromString(protobuf_of(info[b"regioninfo"]))
    if described.offline or described.split or described.replica_id or info.get(b"state") in (b"MERGED", b"SPLIT"):
        return None
    server = None
    if info.get(b"server") and info.get(b"state", b"OPEN") == b"OPEN":
        host, _, port = info[b"server"].decode().rpartition(":")
        server = Server(host, int(port), struct.unpack(">q", info[b"serverstartcode"])[0])
    opened = struct.unpack(">q", info[b"seqnumDuringOpen"])[0] if info.get(b"seqnumDuringOpen") else 0
    return Region(table, row, described.start_key, described.end_key, described.region_id, server, opened)


def _list(column: pa.BinaryArray) -> list[bytes]:
    listed: list[bytes] = column.to_pylist()
    return listed
