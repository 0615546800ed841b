"""An HBase as the owner of base tables: followed by a replication peer, never written, created or dropped.

One SERIAL peer per pool has all of its tables. It is made with the first table and removed with the last: a peer that
nobody answers keeps HBase's logs until its disks are full.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.checks import dial, obstacles, settings_of, unreachable, warnings
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import Peer, TableName
from belvedere.backend.hbase.followed import Ancestry, FollowedBook, FollowedTable
from belvedere.backend.hbase.loading import LoadBook, LoadRange, is_attempt, progress_of
from belvedere.backend.hbase.meta import MetaTable
from belvedere.backend.hbase.reloading import COMPARE, Reload, ReloadBook
from belvedere.backend.hbase.row_keys import check_invertible
from belvedere.backend.hbase.sink import LogSink
from belvedere.backend.hbase.zookeeper import cluster_key
from belvedere.backend.seam import (
    BaseTables,
    Committed,
    KeptLog,
    LoadProgress,
    OpenRange,
    PushEntries,
    ReloadState,
    SinkPlace,
    SourceInfo,
    Store,
)
from belvedere.backend.unreadable_rows import forget_unreadable
from belvedere.engine.delta import Changes
from belvedere.errors import CatalogError, DataError
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

log = logging.getLogger(__name__)

_ANNOUNCED = "hbase/announced/"


class HBaseLog:
    """Implements `Sources`, `BaseTables` and `Follower`."""

    def __init__(
        self,
        hbase: HBase,
        admin: PoolAdmin,
        store: Store,
        *,
        peer: str,
        place: SinkPlace | None = None,
    ) -> None:
        """`peer`: the name of the peer, and of the nodes in ZooKeeper where its sinks are. `place`: of a sink of this
        process."""
        self._place = place or SinkPlace()
        self._hbase, self._admin, self._store, self._peer = hbase, admin, store, peer
        self._book, self._loads, self._reloads = FollowedBook(store), LoadBook(store), ReloadBook(store)
        self._ancestry = Ancestry(self._book, MetaTable(hbase.registry, hbase.pool))

    @property
    def _base(self) -> str:
        return f"/belvedere-sinks/{self._peer}"

    def sink(self, push: PushEntries, committed: Committed) -> LogSink:
        """A sink of this pool, in this process."""
        return LogSink(self._hbase, self._store, push, committed, peer=self._peer, base=self._base, place=self._place)

    # --- tables before they are followed, and until their rows are here

    def announce(self, table: TableDef) -> None:
        assert table.origin is not None  # others are refused where a pool follows
        origin = TableName.parse(table.origin.table)
        found = obstacles(self._admin, origin, table.origin.families, permitted=table.origin.set_scope)
        self._admin.check_peer(self._peer)
        sinks = self._hbase.registry.sinks(self._base)
        lost = unreachable(sinks, self._admin.servers(), dial)
        if lost and len(lost) == len(sinks):  # one that has just died is still listed, and others do its work
            found += lost[:1]
        if found:
            raise CatalogError("; ".join(found))
        for warning in (*lost, *warnings(self._admin, int(time.time() * 1000), settings_of)):
            log.warning("%s", warning)
        self._store.put_document(_ANNOUNCED + table.name, b"")

    def recall(self, wanted: Collection[str]) -> None:
        announced = self._store.list_documents(_ANNOUNCED)
        self._store.remove_documents([name for name in announced if name.removeprefix(_ANNOUNCED) not in wanted])

    def kept_log(self) -> KeptLog | None:
        return self._admin.logs_kept().get(self._peer)

    def load_progress(self) -> dict[str, LoadProgress]:
        ranges: dict[str, list[LoadRange]] = {}
        for range in self._loads.ranges():
            ranges.setdefault(range.table, []).append(range)
        now = time.time()
        return {
            table: progress_of(each, now) for table, each in ranges.items() if not all(range.done for range in each)
        }

    def reload(self, id: str, table: str, start: str, stop: str) -> None:
        self._reloads.ask(Reload(table, id, self._pieces(table, start, stop)))

    def look(self, id: str, table: str) -> None:
        self._reloads.ask(Reload(table, id, self._pieces(table, "", ""), phase=COMPARE, looks=True))

    def _pieces(self, table: str, start: str, stop: str) -> tuple[tuple[str, str], ...]:
        """The parts of these rows that regions have."""
        followed = next((one for one in self._book.tables() if one.name == table and one.listed), None)
        if followed is None:
            raise CatalogError(f"base table {table!r} is not followed, so there is nothing to read again")
        if start or stop:
            check_invertible(followed.definition)
        first, last = row_key(start), row_key(stop)
        if last and first >= last:
            raise DataError(f"no row key is from {start!r} on and before {stop!r}; give the smaller one as the start")
        pieces = []
        for region in self._hbase.regions.listed(str(followed.origin)):
            low = max(first, region.start)
            high = min(last or region.stop, region.stop or last)
            if not high or low < high:
                pieces.append((low.hex(), high.hex()))
        return tuple(pieces)

    def reloads(self) -> list[ReloadState]:
        return [one.state for one in self._reloads.all()]

    def loading(self) -> bool:
        if self._store.list_documents(_ANNOUNCED) or next(self._loads.unfinished(), None) is not None:
            return True
        # An attempt is forgotten when all of it is committed.
        return any(is_attempt(region.encoded) for region in self._book.regions())

    # --- sources

    def sources(self) -> list[SourceInfo]:
        return self._book.sources()

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        self._book.forget_sources(sources)

    # --- base tables, which belong to HBase's users

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None:
        """Follow it. Can be repeated: the sinks take entries of it from the first step on, and answer none before the
        last."""
        if table.origin is None:
            raise CatalogError(
                f"base table {table.name!r} does not say which hbase table it is; base tables of this pool are those of"
                " hbase: give spec.hbase.table in the manifest"
            )
        known = {followed.name: followed for followed in self._book.tables()}
        if table.name in known and known[table.name].listed:
            self._widen(known[table.name], table)
            self._store.remove_documents([_ANNOUNCED + table.name])
            return
        followed = FollowedTable(table, False)
        changed = self._admin.replicate(followed.origin, table.origin.families, permitted=table.origin.set_scope)
        if changed:
            log.warning(
                "hbase table %s: REPLICATION_SCOPE of %s was set to 1, as setReplicationScope permits; nothing else"
                " of it is changed, and it stays so when the table is dropped here",
                followed.origin,
                ", ".join(changed),
            )
        self._book.put_table(followed)
        self._set_peer()
        self._loads.plan(followed, self._hbase.regions, table.origin.families)
        self._ancestry.list_regions(followed)
        self._store.remove_documents([_ANNOUNCED + table.name])

    def _widen(self, known: FollowedTable, table: TableDef) -> None:
        """Follow more columns of it, if there are more. Can be repeated. What sinks have left out so far was written
        before the scan of the new columns begins."""
        assert table.origin is not None
        loaded = len(known.definition.columns) if known.loaded is None else known.loaded
        if loaded >= len(table.columns):
            return
        families = dict.fromkeys(place.family for place in table.origin.columns[loaded:] if place.family)
        self._admin.replicate(known.origin, table.origin.families, permitted=table.origin.set_scope)
        self._book.widen_table(FollowedTable(table, True, loaded))
        self._set_peer()
        self._loads.plan(known, self._hbase.regions, tuple(families), f"columns{len(table.columns)}-")
        self._book.put_table(FollowedTable(table, True))

    def drop_table(self, table: str) -> None:
        """Follow it no more."""
        self._book.remove_table(table)
        self._loads.remove(table)
        self._reloads.remove(table)
        forget_unreadable(self._store, table)
        self._set_peer()

    def _set_peer(self) -> None:
        wanted: dict[TableName, tuple[str, ...]] = {}
        for table in self._book.tables():
            assert table.definition.origin is not None
            families = (*wanted.get(table.origin, ()), *table.definition.origin.families)
            wanted[table.origin] = tuple(dict.fromkeys(families))
        if not wanted:
            self._admin.remove_peer(self._peer)
            return
        peer = Peer(self._peer, cluster_key(self._hbase.registry.quorum, self._base), wanted)
        there = next((known for known in self._admin.peers() if known.id == self._peer), None)
        if there is None:
            self._admin.add_peer(peer)
        elif dict(there.tables) != wanted:
            self._admin.update_peer(peer)

    def tables(self) -> dict[str, TableDef]:
        """With the columns whose rows are loaded, or will be."""
        return {
            table.name: replace(table.definition, columns=table.definition.columns[: table.loaded])
            for table in self._book.tables()
            if table.listed
        }

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        raise self._not_ours(table)

    def put(
        self, table: TableDef, changes: Changes, *, own_clock: bool = True, request: str = ""
    ) -> Mapping[SourceId, Seq]:
        raise self._not_ours(table.name)

    def written(self, name: str) -> Mapping[SourceId, Seq] | None:
        return None  # nothing is written through a pool

    def ranges(self, table: str) -> list[OpenRange]:
        raise self._not_ours(table)

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        raise self._not_ours(source)

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        raise self._not_ours(a)

    def move(self, source: SourceId, node: str) -> None:
        raise self._not_ours(source)

    @staticmethod
    def _not_ours(what: str) -> CatalogError:
        return CatalogError(f"{what!r} belongs to the users of hbase; write and change it with a client of hbase")

    def within(self, timeout: float, stream: float | None = None) -> BaseTables:
        return self

    def close(self) -> None:
        """Connections are the caller's."""


def row_key(text: str) -> bytes:
    """As HBase's shell writes row keys: \\xHH is a byte, other characters are their UTF-8."""
    return b"".join(
        bytes([int(part[2:], 16)]) if _ESCAPED.fullmatch(part) else part.encode() for part in _PARTS.split(text)
    )


_ESCAPED, _PARTS = re.compile(r"\\x[0-9a-fA-F]{2}"), re.compile(r"(\\x[0-9a-fA-F]{2})")
