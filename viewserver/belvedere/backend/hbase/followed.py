"""Which tables of an HBase a pool follows, and which of their regions count: facts that HBase forgets, in documents.

    hbase/tables/NAME              the table; whether its regions have been listed; columns whose rows are loaded
    hbase/tables/NAME@COLUMNS      it has so many columns by now: who knows fewer reads it again
    hbase/regions/NAME/REGION      its parents, and from which sequence number on its entries count
    hbase/ended/NAME/REGION        it was split or merged, and everything of it is durable

NAME is that of the pool's store, which is never used again. A region of a followed table is a source, NAME/REGION; its
sequence ids are the seqs.

What counts. A table is followed from the moment that the replication peer has it: making a peer that keeps the order
(SERIAL) opens every region anew, and from that sequence number on a listed region counts. What came before is for the
load of rows that are there. A region that appears later counts if it descends from one that was listed; others belong
to a table of the same name that was dropped, before or since, and are ignored.

A region ends when an entry of a daughter comes: a SERIAL peer sends no entry of a daughter before all entries of her
parents are acknowledged, and acknowledged means durable. So the last seq needs no telling (`DURABLE_END`).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.meta import MetaTable, RegionBirth
from belvedere.backend.seam import Documents, SourceInfo
from belvedere.model.describe import table_json, table_of
from belvedere.protocol.exactly_once import DURABLE_END, SourceId
from belvedere.sql.catalog import TableDef

log = logging.getLogger(__name__)

_TABLES, _REGIONS, _ENDED = "hbase/tables/", "hbase/regions/", "hbase/ended/"
_WIDER = "@"


@dataclass(frozen=True)
class FollowedTable:
    """`listed`: its regions are known; before that nothing of it may be answered. `loaded`: of so many columns (None:
    of all) the ranges of rows that were there have been planned; it got the others later."""

    definition: TableDef
    listed: bool
    loaded: int | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def origin(self) -> TableName:
        assert self.definition.origin is not None
        return TableName.parse(self.definition.origin.table)


@dataclass(frozen=True)
class FollowedRegion:
    """`first`: its entries count from this sequence number on."""

    table: str
    encoded: str
    parents: frozenset[str]
    first: int

    @property
    def source(self) -> SourceId:
        return SourceId(f"{self.table}/{self.encoded}")


class FollowedBook:
    """The documents. Thread-safe; facts that never change are read once."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._lock = threading.Lock()
        self._listed: dict[str, FollowedTable] = {}
        self._regions: dict[str, FollowedRegion] = {}

    # --- tables

    def tables(self) -> list[FollowedTable]:
        """As of now: who asks after an earlier answer of somebody else misses none that this answer had."""
        widths: dict[str, int] = {}
        for document in self._documents.list_documents(_TABLES):
            name, _, columns = document.partition(_WIDER)
            widths[name] = max(widths.get(name, 0), int(columns or 0))
        names = list(widths)
        with self._lock:
            self._listed = {
                name: table
                for name, table in self._listed.items()
                if name in widths and len(table.definition.columns) >= widths[name]
            }
            known = dict(self._listed)
        found = []
        for name in names:
            table = known.get(name) or self._read_table(name)
            if table is not None:
                found.append(table)
        return found

    def _read_table(self, name: str) -> FollowedTable | None:
        data = self._documents.get_document(name)
        if data is None:
            return None  # dropped since
        value = json.loads(data)
        table = FollowedTable(table_of(value["table"]), value["listed"], value.get("loaded"))
        if table.listed and table.loaded is None:
            with self._lock:
                self._listed[name] = table
        return table

    def put_table(self, table: FollowedTable) -> None:
        value = {"table": table_json(table.definition), "listed": table.listed, "loaded": table.loaded}
        self._documents.put_document(_TABLES + table.name, json.dumps(value).encode())

    def widen_table(self, table: FollowedTable) -> None:
        """When it returns, whoever asks for the tables finds the wider one."""
        self.put_table(table)
        self._documents.put_document(f"{_TABLES}{table.name}{_WIDER}{len(table.definition.columns)}", b"")

    def remove_table(self, name: str) -> None:
        below = [f"{kind}{name}/" for kind in (_REGIONS, _ENDED)]
        regions = [document for prefix in below for document in self._documents.list_documents(prefix)]
        wider = self._documents.list_documents(f"{_TABLES}{name}{_WIDER}")
        self._documents.remove_documents([_TABLES + name])
        self._documents.remove_documents([*wider, *regions])

    # --- regions

    def region(self, table: str, encoded: str) -> FollowedRegion | None:
        return self._region(f"{_REGIONS}{table}/{encoded}")

    def regions(self, table: str | None = None) -> list[FollowedRegion]:
        names = self._documents.list_documents(_REGIONS if table is None else f"{_REGIONS}{table}/")
        return [region for region in map(self._region, names) if region is not None]

    def _region(self, name: str) -> FollowedRegion | None:
        with self._lock:
            known = self._regions.get(name)
        if known is None:
            data = self._documents.get_document(name)
            if data is None:
                return None
            value = json.loads(data)
            table, encoded = name.removeprefix(_REGIONS).rsplit("/", 1)
            known = FollowedRegion(table, encoded, frozenset(value["parents"]), value["first"])
            with self._lock:
                self._regions[name] = known
        return known

    def put_region(self, region: FollowedRegion) -> None:
        """Before anything of it is written to INPUT. A fact: repeated, it is the same."""
        value = {"parents": sorted(region.parents), "first": region.first}
        self._documents.put_document(f"{_REGIONS}{region.table}/{region.encoded}", json.dumps(value).encode())

    def end(self, table: str, regions: Iterable[str]) -> None:
        for encoded in regions:
            self._documents.put_document(f"{_ENDED}{table}/{encoded}", b"")

    def ended(self) -> set[str]:
        """Of all tables, as TABLE/REGION."""
        return {name.removeprefix(_ENDED) for name in self._documents.list_documents(_ENDED)}

    # --- as sources

    def sources(self) -> list[SourceInfo]:
        ended = self.ended()
        return [
            SourceInfo(
                region.source,
                region.table,
                frozenset(SourceId(f"{region.table}/{parent}") for parent in region.parents),
                DURABLE_END if region.source in ended else None,
                "",
            )
            for region in self.regions()
        ]

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        ended = self.ended()
        gone = [source for source in sources if source in ended]
        # The region first: an end that is left over says nothing of a region that is not there.
        self._documents.remove_documents([_REGIONS + source for source in gone])
        self._documents.remove_documents([_ENDED + source for source in gone])
        with self._lock:
            for source in gone:
                self._regions.pop(_REGIONS + source, None)


class Ancestry:
    """Finds out whether regions count that nobody has heard of, and writes it down."""

    def __init__(self, book: FollowedBook, meta: MetaTable) -> None:
        self._book, self._meta = book, meta

    def list_regions(self, table: FollowedTable) -> None:
        """The regions that count from now on, whatever their parents were: the peer has the table already."""
        for birth in self._meta.births(table.origin):
            if not birth.ended:
                self._book.put_region(FollowedRegion(table.name, birth.encoded, frozenset(), birth.opened))
        self._book.put_table(replace(table, listed=True))

    def look_for_daughters(self, table: FollowedTable) -> None:
        """Before HBase forgets who their parents were. Nothing has come of them yet, so nothing has ended."""
        births = {birth.encoded: birth for birth in self._meta.births(table.origin)}
        for encoded in births:
            self._adopt(table, encoded, births)

    def place(self, table: FollowedTable, encoded: str) -> FollowedRegion | None:
        """The region, an entry of which has come; None: it does not count. If it does, its ancestors have ended."""
        region = self._book.region(table.name, encoded)
        if region is None:
            # With all of its sisters: when the last of them comes, their parent may be long forgotten.
            self.look_for_daughters(table)
            region = self._book.region(table.name, encoded)
            if region is None:
                return None
        if region.parents:
            self._end_ancestors(region)
        return region

    def _adopt(self, table: FollowedTable, encoded: str, births: dict[str, RegionBirth]) -> FollowedRegion | None:
        known = self._book.region(table.name, encoded)
        if known is not None:
            return known
        birth = births.get(encoded)
        if birth is None:
            return None
        parents = [self._adopt(table, parent, births) for parent in sorted(birth.parents)]
        ours = frozenset(parent.encoded for parent in parents if parent is not None)
        if not ours:
            return None
        region = FollowedRegion(table.name, encoded, ours, 0)
        self._book.put_region(region)
        return region

    def _end_ancestors(self, region: FollowedRegion) -> None:
        ended = self._book.ended()
        waiting, fresh = list(region.parents), []
        while waiting:
            parent = waiting.pop()
            known = self._book.region(region.table, parent)
            if known is None or known.source in ended or parent in fresh:
                continue
            fresh.append(parent)
            waiting += known.parents
        self._book.end(region.table, fresh)
