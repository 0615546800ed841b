"""What `hbase:meta` says of the regions of a table beside where they are: from which regions they come, and with which
sequence number they were opened.

HBase keeps a row for each region, also for parents of splits and merges until they are cleaned up. The family
`rep_barrier` outlives the rest; `rep_barrier:parent` holds the names of the parents, until every peer is beyond them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.connection import CLIENT
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.keyvalues import decode
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.zookeeper import Registry, protobuf_of
from belvedere.retry import Backoff, Deadline, Retry

_REGION_NAME = b"hbase:meta,,1"
_ROWS = 1000
_VERSIONS = 2**31 - 1
_HASH = 32
_ESCAPE, _SEPARATOR = 0xFF, 0x00
_WAIT_S = 30.0


@dataclass(frozen=True)
class RegionBirth:
    """`name`: the whole one, which calls to region servers need. `opened`: the newest sequence number with which it was
    opened, 0 if it never was; later entries have greater ones. `server`: where it is, or empty. `ended`: it was split
    or merged."""

    name: bytes
    encoded: str
    parents: frozenset[str]
    opened: int
    server: str
    ended: bool


class MetaTable:
    """Reads `hbase:meta`; asks again when it has moved. Thread-safe."""

    def __init__(self, registry: Registry, pool: ConnectionPool) -> None:
        self._registry, self._pool = registry, pool

    def births(self, table: TableName) -> list[RegionBirth]:
        """Every region of a table that HBase remembers."""
        retry = Retry("reading hbase:meta", deadline=Deadline(_WAIT_S), backoff=Backoff(0.05, 1.0))
        return retry.run(lambda: list(self._births(str(table))))

    def _births(self, table: str) -> Iterator[RegionBirth]:
        rows: dict[bytes, dict[bytes, list[tuple[int, bytes]]]] = {}
        # Names begin with the table and a comma; a blank sorts before the comma, and only this range has them all.
        for block in self._scan(f"{table},,".encode(), f"{table} ,,".encode()):
            cells = decode(block)
            columns = (cells.row, cells.family, cells.qualifier, cells.value)
            for row, family, qualifier, value, ts in zip(
                *(column.to_pylist() for column in columns), cells.timestamp.tolist(), strict=True
            ):
                rows.setdefault(row, {}).setdefault(family + b":" + qualifier, []).append((ts, value))
        for row, found in rows.items():
            newest = {column: max(versions)[1] for column, versions in found.items()}
            opened = [
                int(struct.unpack(">q", value)[0])
                for column in (b"rep_barrier:seqnumDuringOpen", b"info:seqnumDuringOpen")
                for _, value in found.get(column, ())
                if value
            ]
            yield RegionBirth(
                row,
                _encoded(row),
                frozenset(map(_encoded, _parents(newest.get(b"rep_barrier:parent", b"")))),
                max(opened, default=0),
                newest.get(b"info:server", b"").decode(),
                _has_ended(newest),
            )

    def _scan(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        request = messages.ScanRequest(number_of_rows=_ROWS)
        request.region.type, request.region.value = 1, _REGION_NAME
        request.scan.CopyFrom(messages.Scan(start_row=start, stop_row=stop, caching=_ROWS, max_versions=_VERSIONS))
        for family in (b"info", b"rep_barrier"):
            request.scan.column.add(family=family)
        with self._pool.connection(self._registry.meta(), CLIENT) as connection:
            answer, block = connection.call("Scan", request, messages.ScanResponse)
            yield bytes(block)
            while answer.more_results and answer.more_results_in_region:
                more = messages.ScanRequest(scanner_id=answer.scanner_id, number_of_rows=_ROWS)
                answer, block = connection.call("Scan", more, messages.ScanResponse)
                yield bytes(block)
            closing = messages.ScanRequest(scanner_id=answer.scanner_id, close_scanner=True, number_of_rows=0)
            connection.call("Scan", closing, messages.ScanResponse)


def _has_ended(newest: dict[bytes, bytes]) -> bool:
    if newest.get(b"info:state") in (b"SPLIT", b"MERGED") or b"info:regioninfo" not in newest:
        return True
    return bool(messages.RegionInfo.FromString(protobuf_of(newest[b"info:regioninfo"])).split)


def _encoded(name: bytes) -> str:
    return name[-_HASH - 1 : -1].decode()


def _parents(value: bytes) -> list[bytes]:
    """Names in one value, separated by 0xFF 0x00; 0xFF in a name is doubled."""
    names, name, at = [], bytearray(), 0
    while at < len(value):
        if value[at] == _ESCAPE and at + 1 < len(value):
            at += 1
            if value[at] == _SEPARATOR:
                names.append(bytes(name))
                name.clear()
                at += 1
                continue
        name.append(value[at])
        at += 1
    return [*names, bytes(name)] if name else names
