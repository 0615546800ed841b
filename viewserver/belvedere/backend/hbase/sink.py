"""A distributor as a replication sink: log entries in, runs of each region out, answered when all of it is durable."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.followed import Ancestry, FollowedBook, FollowedRegion, FollowedTable
from belvedere.backend.hbase.loading import LoadBook, Loader, LoadRange
from belvedere.backend.hbase.log_fence import LogFence
from belvedere.backend.hbase.meta import MetaTable
from belvedere.backend.hbase.pacing import CommittedView
from belvedere.backend.hbase.reloading import DONE, ReloadBook, Reloader
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.shared_look import SharedLook
from belvedere.backend.hbase.sink_server import SinkServer
from belvedere.backend.hbase.unreadable import UnreadableKeys
from belvedere.backend.hbase.wal import CellDecoder, EntryRun, read_request
from belvedere.backend.hbase.zookeeper import SinkRegistration
from belvedere.backend.seam import Committed, PushEntries, SinkPlace, Store
from belvedere.errors import BelvedereError, StoreUnavailable
from belvedere.model import chunks
from belvedere.protocol.exactly_once import SourceEntry, SourceId
from belvedere.retry import Superseded

log = logging.getLogger(__name__)

LOOK_S = 10.0
"""Between two looks for daughters of regions. HBase forgets parents after half a day at the earliest."""
QUOTA_BYTES = 16 << 30
"""What INPUT may hold before answers wait: the log stays in HBase then."""
_QUOTA_LOOK_S = 1.0
_LOAD_LOOK_S = 0.5
LOADERS = 4
"""Ranges that one sink reads at a time."""


@dataclass
class SinkFigures:
    """`foreign`: entries of regions that do not count; `early`: of those that do, from before the table was followed;
    `unreadable`: row keys that no mapping reads."""

    entries: int = 0
    rows: int = 0
    foreign: int = 0
    early: int = 0
    unreadable: int = 0
    newest_ms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class EntryReceiver:
    """What a request means: which of its entries count, and of which sources. Thread-safe."""

    def __init__(
        self, book: FollowedBook, ancestry: Ancestry, push: PushEntries, unreadable: UnreadableKeys | None = None
    ) -> None:
        self._ancestry, self._push, self._unreadable = ancestry, push, unreadable
        self._tables = SharedLook(book.tables)
        self._lock = threading.Lock()
        self._decoders: dict[str, CellDecoder] = {}
        self._places: dict[tuple[str, str], FollowedRegion | None] = {}
        self.figures = SinkFigures()

    def receive(self, request: memoryview, block: memoryview) -> None:
        # Asked for every request: if one sink takes entries of a table that another leaves out, entries are lost.
        tables = self._tables()
        pushed: list[tuple[SourceId, Sequence[SourceEntry]]] = []
        for layer in _layers(tables):
            runs = read_request(request, block, lambda name, layer=layer: self._decoder(layer.get(name)))  # type: ignore[misc]
            by_name = {table.name: table for table in layer.values()}
            for run in runs:
                self._count(run)
                entries = self._entries(by_name[run.table], run)
                if entries is not None:
                    pushed.append(entries)
        if pushed:
            self._push(pushed)

    def _decoder(self, table: FollowedTable | None) -> CellDecoder | None:
        if table is None:
            return None
        with self._lock:
            known = self._decoders.get(table.name)
            if known is None or known.table is not table.definition:
                meet = None if self._unreadable is None else partial(self._unreadable.meet, table)
                known = self._decoders[table.name] = CellDecoder(table.definition, meet)
            return known

    def _count(self, run: EntryRun) -> None:
        with self.figures.lock:
            self.figures.entries += len(run.seqs)
            self.figures.rows += len(run.rows.changes)
            self.figures.unreadable += len(run.unreadable)
            self.figures.newest_ms = max(self.figures.newest_ms, run.written)
        if run.unreadable:
            log.warning(
                "table %r: %d row keys cannot be read, such as %r", run.table, len(run.unreadable), run.unreadable[0]
            )

    def _entries(self, table: FollowedTable, run: EntryRun) -> tuple[SourceId, Sequence[SourceEntry]] | None:
        if not table.listed:
            raise StoreUnavailable(f"hbase table {str(table.origin)!r}: its regions are not listed yet")
        region = self._place(table, run.region)
        if region is None:
            with self.figures.lock:
                self.figures.foreign += len(run.seqs)
            return None
        counting = run.after(region.first - 1)
        with self.figures.lock:
            self.figures.early += len(run.seqs) - len(counting.seqs)
        if not len(counting.seqs):
            return None
        return region.source, chunks.parse(counting.payload())

    def _place(self, table: FollowedTable, encoded: str) -> FollowedRegion | None:
        key = table.name, encoded
        with self._lock:
            if key in self._places:
                return self._places[key]
        place = self._ancestry.place(table, encoded)
        if place is None:
            log.warning(
                "entries of region %s of hbase table %s are ignored: it descends from none that is followed; another"
                " table had this name, or has it now",
                encoded,
                table.origin,
            )
        with self._lock:
            self._places[key] = place
        return place


def _layers(tables: Sequence[FollowedTable]) -> list[dict[str, FollowedTable]]:
    """Tables by their names in HBase; those that follow one table more than once are in layers of their own."""
    layers: list[dict[str, FollowedTable]] = []
    for table in tables:
        name = str(table.origin)
        layer = next((layer for layer in layers if name not in layer), None)
        if layer is None:
            layer = {}
            layers.append(layer)
        layer[name] = table
    return layers


class LogSink:
    """A sink from its registration to its end."""

    def __init__(
        self,
        hbase: HBase,
        store: Store,
        push: PushEntries,
        committed: Committed,
        *,
        peer: str,
        base: str,
        place: SinkPlace | None = None,
        quota_bytes: int = QUOTA_BYTES,
    ) -> None:
        """`base`: where sinks of this pool are in ZooKeeper."""
        place = place or SinkPlace()
        self._ending = threading.Event()
        wait, committed = self._ending.wait, CommittedView(committed)
        self._book = FollowedBook(store)
        self._ancestry = Ancestry(self._book, MetaTable(hbase.registry, hbase.pool))
        self._loads, self._reloads = LoadBook(store), ReloadBook(store)
        cells, fence = RpcCells(hbase.regions, hbase.pool), LogFence(hbase, peer, wait)
        self._unreadable = UnreadableKeys(store, cells)
        self._loader = Loader(
            self._book, self._loads, cells, self._push_loaded, committed, wait, self._unreadable
        )  # fmt: skip
        self._reloader = Reloader(
            self._book, self._loads, self._reloads, self._loader, store, fence, committed, wait
        )  # fmt: skip
        self._push = push
        self._input, self.quota_bytes = store, quota_bytes
        self._receiver = EntryReceiver(self._book, self._ancestry, push, self._unreadable)
        self.over_quota, self._held = False, 0
        self._server = SinkServer(self._receive, place.host, place.port)
        try:
            self._registration = SinkRegistration(hbase.registry.quorum, base, place.advertise, self._server.port)
        except BelvedereError:
            self._server.close()
            raise
        works = [("sink watcher", self._watch), ("reloader", self._reload)]
        works += [(f"loader {number}", self._load) for number in range(LOADERS)]
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works]
        for thread in self._threads:
            thread.start()

    @property
    def figures(self) -> SinkFigures:
        return self._receiver.figures

    def input_bytes(self) -> int:
        return self._held

    def figures_now(self) -> Mapping[str, int]:
        figures, server = self.figures, self._server
        return {
            "log_requests": server.requests,
            "log_bytes": server.bytes,
            "log_delays": server.delays,
            "log_entries": figures.entries,
            "log_rows": figures.rows,
            "log_foreign": figures.foreign,
            "log_early": figures.early,
            "log_unreadable": figures.unreadable,
            "load_rows": self._loader.rows,
        }

    @property
    def server(self) -> SinkServer:
        return self._server

    def close(self) -> None:
        """Region servers are told first, then their connections end."""
        self._ending.set()
        self._registration.close()
        self._server.close()
        for thread in self._threads:
            thread.join(5.0)

    def _receive(self, request: memoryview, block: memoryview) -> None:
        self._check_quota()
        self._receiver.receive(request, block)

    def _push_loaded(self, runs: Sequence[tuple[SourceId, Sequence[SourceEntry]]]) -> None:
        self._check_quota()
        self._push(runs)

    def _check_quota(self) -> None:
        if self.over_quota:
            raise StoreUnavailable(
                f"INPUT holds more than its quota of {self.quota_bytes} bytes: the log stays in hbase"
            )

    def _load(self) -> None:
        """Ranges of rows that were there, one after the other, those that nobody else has begun."""
        while not self._ending.wait(_LOAD_LOOK_S):
            try:
                tables = {table.name: table for table in self._book.tables() if table.listed}
                for range in self._loads.unfinished():
                    if range.table in tables:
                        with self._claimed(range.claim) as ours:
                            if ours:
                                self._load_range(range)
            except BelvedereError as error:
                log.info("rows that were there are loaded later: %s", error)
            except Superseded:
                return

    def _reload(self) -> None:
        """What was asked for, of each table one after the other."""
        while not self._ending.wait(_LOAD_LOOK_S):
            try:
                for table in self._book.tables():
                    asked = [one for one in self._reloads.all(table.name) if one.phase != DONE]
                    if table.listed and asked:
                        with self._claimed(f"reload-{table.name}") as ours:
                            now = self._reloads.read(asked[0].document)
                            if ours and now is not None:
                                self._reloader.advance(table, now)
            except BelvedereError as error:
                log.info("a table is read again later: %s", error)
            except Superseded:
                return

    @contextlib.contextmanager
    def _claimed(self, what: str) -> Iterator[bool]:
        ours = self._registration.claim(what)
        try:
            yield ours
        finally:
            if ours:
                self._registration.release(what)

    def _load_range(self, range: LoadRange) -> None:
        """Read again what is durable of it: whoever had the claim may have come farther. And the table: it may have got
        columns, whose rows the range is there for."""
        now = self._loads.read(range.document)
        table = next((table for table in self._book.tables() if table.name == range.table), None)
        if now is not None and not now.done and table is not None:
            self._loader.load(table, now)

    def _watch(self) -> None:
        waited = LOOK_S
        while not self._ending.wait(_QUOTA_LOOK_S):
            waited += _QUOTA_LOOK_S
            try:
                self._look_at_input()
                if waited >= LOOK_S:
                    waited = 0.0
                    for table in self._book.tables():
                        if table.listed:
                            self._ancestry.look_for_daughters(table)
                            self._unreadable.look_again(table)
            except BelvedereError as error:
                log.info("the sink looks again later: %s", error)

    def _look_at_input(self) -> None:
        self._held = self._input.input_size().bytes
        over = self._held > self.quota_bytes
        if over and not self.over_quota:
            log.error(
                "INPUT holds more than its quota of %d bytes: answers to hbase wait, its log grows", self.quota_bytes
            )
        self.over_quota = over
