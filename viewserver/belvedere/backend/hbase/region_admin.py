"""What operators do to regions: move, split, merge, flush, compact. It changes where rows are, never what they are.

Used by tests, on tables of any owner; Belvedere itself does nothing of it to a table that is not its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.connection import ADMIN, Server
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.regions import Region, by_encoded_name
from belvedere.errors import StoreUnavailable
from belvedere.retry import Backoff, Deadline, Retry, poll


class RegionAdmin:
    """`timeout`: seconds that each call may take until its effect is there."""

    def __init__(self, hbase: HBase, timeout: float = 60.0) -> None:
        self._hbase, self._timeout = hbase, timeout

    def regions(self, table: str) -> list[Region]:
        """All of them open; waits until they are."""
        found: list[Region] = []

        def settled() -> bool:
            nonlocal found
            found = self._hbase.regions.listed(table)
            return all(region.server is not None for region in found)

        def attempt() -> None:
            if not settled():
                raise StoreUnavailable(f"hbase table {table!r}: a region is not open")

        Retry(f"regions of {table!r}", deadline=Deadline(self._timeout), backoff=Backoff(0.02, 0.2)).run(attempt)
        return found

    def move(self, region: Region, server: Server) -> Region:
        """Returns the region as it is there."""
        request = messages.MoveRegionRequest(region=by_encoded_name(region.encoded))
        request.dest_server_name.CopyFrom(_name(server))
        self._hbase.master.call("MoveRegion", request, messages.Empty)
        found: list[Region] = []

        def moved() -> bool:
            found[:] = [one for one in self.regions(region.table) if one.name == region.name and one.server == server]
            return bool(found)

        self._until(moved, f"region {region.encoded} is not at {server}")
        return found[0]

    def split(self, region: Region, row: bytes) -> list[Region]:
        """Returns the two daughters."""
        request = messages.SplitRegionRequest(split_row=row, **_nonce())
        request.region_info.CopyFrom(
            messages.RegionInfo(
                region_id=region.id,
                table_name=TableName.parse(region.table).message(),
                start_key=region.start,
                end_key=region.stop,
            )
        )
        self._hbase.master.run("SplitRegion", request)
        return [
            one
            for one in self.regions(region.table)
            if one.start >= region.start and (not region.stop or region.stop > one.start)
        ]

    def merge(self, one: Region, other: Region) -> Region:
        """Two neighbours become one. Daughters of a split need a major compaction first: until then they refer to
        their parent's files, and for a moment afterwards."""
        self._until(
            lambda: all(self._info(region).mergeable for region in (one, other)),
            f"regions {one.encoded} and {other.encoded} of table {one.table!r} refer to files of others",
        )
        regions = [by_encoded_name(region.encoded) for region in (one, other)]
        self._hbase.master.run("MergeTableRegions", messages.MergeRegionsRequest(region=regions, **_nonce()))
        return next(region for region in self.regions(one.table) if region.start == min(one.start, other.start))

    def flush(self, table: str) -> None:
        for region in self.regions(table):
            self._call(region, "FlushRegion", messages.FlushRequest(region=region.specifier()), messages.FlushAnswer)

    def major_compact(self, table: str) -> None:
        """Flushed first; returns when each family of each region has one new file, or none."""
        self.flush(table)
        before = {region.name: self._files(region) for region in self.regions(table)}
        for region in self.regions(table):
            request = messages.CompactRequest(region=region.specifier(), major=True)
            self._call(region, "CompactRegion", request, messages.Empty)

        def done() -> bool:
            return all(
                self._state(region) == 0 and not (before.get(region.name, set()) & self._files(region))
                for region in self.regions(table)
            )

        self._until(done, f"the major compaction of table {table!r} has not ended")

    def request_compaction(self, table: str) -> None:
        """A major compaction, without waiting for it."""
        self.flush(table)
        for region in self.regions(table):
            request = messages.CompactRequest(region=region.specifier(), major=True)
            self._call(region, "CompactRegion", request, messages.Empty)

    def _files(self, region: Region) -> set[str]:
        descriptor = self._hbase.admin.descriptor(TableName.parse(region.table))
        families = [family.name.encode() for family in descriptor.families] if descriptor is not None else []
        request = messages.StoreFilesRequest(region=region.specifier(), family=families)
        return set(self._call(region, "GetStoreFile", request, messages.StoreFilesAnswer).store_file)

    def _state(self, region: Region) -> int:
        return int(self._info(region).compaction_state)

    def _info(self, region: Region) -> Any:
        request = messages.RegionInfoRequest(region=region.specifier(), compaction_state=True)
        return self._call(region, "GetRegionInfo", request, messages.RegionInfoAnswer)

    def _call(self, region: Region, method: str, request: object, answer: object) -> Any:
        assert region.server is not None
        with self._hbase.pool.connection(region.server, ADMIN) as connection:
            return connection.call(method, request, answer)[0]

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        if not poll(condition, Deadline(self._timeout), Backoff(0.02, 0.2)):
            raise StoreUnavailable(f"hbase: {what} after {self._timeout:g} s")


def _name(server: Server) -> Any:
    return messages.ServerName(host_name=server.host, port=server.port, start_code=server.code)


def _nonce() -> dict[str, int]:
    return {"nonce_group": secrets.randbits(62), "nonce": secrets.randbits(62) | 1}
