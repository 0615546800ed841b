"""A pool in one process for tests of the client: real store, transport, catalogs and engine; a driver of a few lines.

Epochs happen when a test says so (`step`) or all the time (`running`). Two coordinators answer, one of them leads.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Backend, BaseTables, SourceInfo
from belvedere.cluster.catalog import catalogs, ddl
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.roles.publishing import Unpublished
from belvedere.cluster.roles.read_cache import ReadCache
from belvedere.cluster.roles.work import encode_keys
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.loopback import Hub, LoopbackTransport
from belvedere.engine.delta import Changes
from belvedere.engine.routing import route_changes
from belvedere.engine.shard import Shard
from belvedere.engine.version import ENGINE_VERSION
from belvedere.errors import CatalogError, PeerUnavailable, StoreUnavailable
from belvedere.model.requests import check_same, parted
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.messages import Attempt, Epoch, EpochPlan, Generation, Member, Role, Slice, Term
from belvedere.protocol.pins import PINS, PinDocument, horizon_document
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.sql.catalog import TableDef
from belvedere.sql.manifest_target import Target

SERVER = MemberId("server")
CLUSTER = "cluster"
STORE_ADDRESS = "memory://store"


class _State:
    def __init__(self, store: MemoryStore) -> None:
        self.load, self.scan = store.read, store.scan


@dataclass
class Written:
    table: TableDef
    changes: Changes
    source: SourceId
    seq: Seq


@dataclass
class FakePool:
    retention_ms: int = 60_000
    store_url: str = ""
    slice: int = BUCKETS // 2
    hub: Hub = field(default_factory=Hub)
    store: MemoryStore = field(default_factory=lambda: MemoryStore(previous_images=True))

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.committed = threading.Condition(self.lock)
        self.document, self.document_name = catalogs.empty(), ""
        self.building: dict[int, int] = {}
        self.positions: dict[SourceId, Seq] = {}
        self.pending: list[Written] = []
        self.requests: dict[str, tuple[str, Mapping[SourceId, Seq]]] = {}
        self.seqs: dict[SourceId, Seq] = {}
        self.plan: EpochPlan | None = None
        self.shard = Shard(_State(self.store), encode_keys=encode_keys, previous_images=self.store.previous_images)
        self.shard.own(np.zeros(BUCKETS, np.uint16), 0)
        self.recent = ReadCache(1 << 20)
        self.served = 0
        self.unpublished, self.lags = Unpublished(), False
        self.publishes, self.stalled, self.store_down, self.reads_refused = True, "", False, ""
        self.lose_write_answers = 0
        self.unknown_tables: set[str] = set()
        self.believed: dict[MemberId, MemberId] = {}
        """Coordinators that take another one than the leader for the leader."""
        self.strangers: tuple[Member, ...] = ()
        """Members of another cluster that are listed as well."""
        self.server_sleeps = 0.0
        self.asked_server = 0
        self.coordinators = [self._coordinator(name) for name in ("one", "two")]
        self.leader = self.coordinators[0]
        self.server = self.hub.transport(SERVER)
        self.server.start(lambda *_: None, {calls.READ: self._read})

    # ------------------------------------------------------------------ epochs

    def step(self, writes: int | None = None) -> EpochPlan:
        """One epoch: the oldest `writes` that are pending (or all), the newest catalog, one slice of each build."""
        with self.lock:
            taken = self.pending[:writes] if writes is not None else self.pending
            self.pending = self.pending[len(taken) :]
            last = 0 if self.plan is None else self.plan.epoch
            epoch = Epoch(max(int(time.time() * 1000), last + 1))
            compiled = catalogs.compile(self.document)
            slices = tuple(
                Slice(view_group, at, min(BUCKETS, at + self.slice)) for view_group, at in sorted(self.building.items())
            )
            for written in taken:
                self.positions[written.source] = written.seq
            plan = EpochPlan(
                epoch, (), dict(self.positions), compiled.version, self.document_name, compiled.stages, slices
            )
            self._compute(plan, taken, compiled)
            for part in slices:
                self.building[part.view_group] = part.stop
                if part.stop == BUCKETS:
                    del self.building[part.view_group]
            if self.publishes:
                self.unpublished.add(plan)
                if not self.lags:
                    self.catch_up()
            self.plan = plan
            self.committed.notify_all()
            return plan

    def catch_up(self) -> None:
        """Publish what a pool that `lags` has not published yet."""
        with self.lock:
            while (plan := self.unpublished.next()) is not None:
                calls.publish(self.store, plan)

    def _compute(self, plan: EpochPlan, taken: list[Written], compiled: catalogs.Compiled) -> None:
        self.shard.configure(compiled.shard)
        self.shard.begin(plan.epoch, {part.view_group: (part.first, part.stop) for part in plan.slices})
        stored = {table.name: table for table in compiled.shard.tables}
        owner = np.zeros(BUCKETS, np.uint16)
        for order, written in enumerate(taken):
            table = stored.get(written.table.name)
            if table is not None:
                for number, (_, payload, _) in enumerate(route_changes(table, written.changes, owner)):
                    self.shard.receive(0, (order, number), payload)
        for stage in range(compiled.stages):
            for out in self.shard.run(stage):
                self.shard.receive(out.stage, (0, 0), out.payload)
        writes = self.shard.finish()
        self.store.write(plan.epoch, writes)
        self.recent.add(plan.epoch, writes)
        self.shard.persisted(plan.epoch)
        self.shard.committed(plan.epoch)

    @contextlib.contextmanager
    def running(self, pause: float = 0.005) -> Iterator[None]:
        """Epochs one after the other, also empty ones."""
        stop = threading.Event()

        def run() -> None:
            while not stop.wait(pause):
                self.step()
                self.retire()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def retire(self) -> None:
        with self.lock:
            view_groups = {view_group.number for view_group in catalogs.compile(self.document).view_groups}
            changed = catalogs.retire(self.document, view_groups - set(self.building))
            if changed is not None:
                self._change(changed)

    def collect(self, horizon: int) -> None:
        """What a leader does when the retention has passed. Pins that are there live."""
        pins = (PinDocument.parse(name) for name in self.store.list_documents(PINS))
        horizon = min([horizon, *(pin.epoch for pin in pins if pin is not None)])
        self.store.put_document(horizon_document(Epoch(horizon)), b"")
        self.store.collect(horizon, horizon)

    def _change(self, document: bytes) -> None:
        compiled = catalogs.compile(document)
        self.document, self.document_name = document, f"catalog/{compiled.version:010d}-1"
        self.store.put_document(self.document_name, document)
        live = {view_group.number for view_group in compiled.view_groups}
        self.building = {n: at for n, at in self.building.items() if n in live} | dict.fromkeys(compiled.made, 0)

    # ------------------------------------------------------------------ calls

    def _coordinator(self, name: str) -> LoopbackTransport:
        made = self.hub.transport(MemberId(name))
        handlers = {
            calls.TOPOLOGY: lambda _: calls.encode(self._topology(made)),
            calls.COMMITTED: lambda request: self._ask(made, request),
            calls.DDL: lambda request: self._ddl(made, request),
            calls.STATUS: lambda _: self._status(made),
        }
        made.start(lambda *_: None, handlers)
        return made

    def _status(self, asked: LoopbackTransport) -> bytes:
        self._require_lead(asked)
        return calls.status_json({"pool": "default", "leader": asked.member, "stalled": self.stalled})

    def _topology(self, asked: LoopbackTransport) -> calls.Topology:
        members = [Member(c.member, Role.COORDINATOR, c.address, cluster=CLUSTER) for c in self.coordinators]
        members += [
            Member(SERVER, Role.VIEWSERVER, self.server.address, cluster=CLUSTER),
            Member(MemberId("s"), Role.STORE, STORE_ADDRESS, cluster=CLUSTER),
        ]
        leader = self.believed.get(asked.member, self.leader.member)
        generation = Generation(Attempt(1), Term(1), leader, 1, (SERVER,), (), engine=ENGINE_VERSION)
        present = (*self.strangers, *members)
        return calls.Topology(CLUSTER, leader, present, generation, self.retention_ms, self.store_url)

    def _require_lead(self, asked: LoopbackTransport) -> None:
        if asked is not self.leader:
            raise PeerUnavailable(f"{asked.member} does not lead")

    def _ask(self, asked: LoopbackTransport, request: bytes) -> bytes:
        self._require_lead(asked)
        ask = calls.decode(request, calls.StatusCall)
        with self.committed:
            self.committed.wait_for(lambda: self.plan is not None and self.plan.epoch > ask.after, ask.wait_ms / 1000)
            found = calls.CommittedRow() if self.plan is None else calls.committed_of(self.plan)
            return calls.encode(calls.Seen(found, 1, self.stalled))

    def _ddl(self, asked: LoopbackTransport, request: bytes) -> bytes:
        self._require_lead(asked)
        with self.lock:
            changed = ddl.change_catalog(
                self.document,
                calls.decode(request, calls.DdlCall),
                tuple(self.building),
                Target("default", self.retention_ms),
            )
            if changed is not None:
                self._change(changed)
            plan = self.step()
            compiled = catalogs.compile(self.document)
            return calls.encode(calls.Taken(plan.epoch, compiled.version, tuple(self.building)))

    def _read(self, request: bytes) -> bytes:
        self.asked_server += 1
        time.sleep(self.server_sleeps)
        asked, ids = calls.decode_read(request)
        if self.reads_refused:
            return calls.encode_rows(calls.RowsRead(1, self.reads_refused))
        known, values = self.recent.read(asked.table, ids, asked.epoch)
        self.served += int(known.sum())
        return calls.encode_rows(calls.RowsRead(1), known, values)

    # ------------------------------------------------------------------ base tables

    def put(
        self, table: TableDef, changes: Changes, *, own_clock: bool = True, request: str = ""
    ) -> Mapping[SourceId, Seq]:
        with self.lock:
            if self.store_down:
                raise StoreUnavailable("the store is down")
            if table.name in self.unknown_tables:
                raise CatalogError(f"no base table {table.name!r} here")
            name, digest = parted(request)
            known = self.requests.get(name) if name else None  # without a name, as with the store
            if known is not None:
                check_same(name, digest, known[0])
            else:
                known = self.requests[name] = digest, self._append(table, changes, own_clock)
            found = known[1]
            if self.lose_write_answers:
                self.lose_write_answers -= 1
                raise StoreUnavailable("the answer was lost")
            return found

    def written(self, name: str) -> Mapping[SourceId, Seq] | None:
        with self.lock:
            known = self.requests.get(name)
            return None if known is None else known[1]

    def _append(self, table: TableDef, changes: Changes, own_clock: bool) -> Mapping[SourceId, Seq]:
        source = SourceId(f"{table.name}/0")
        seq = self.seqs[source] = Seq(self.seqs.get(source, 0) + 1)
        self.store.list_source(SourceInfo(source, table.name, frozenset(), None, "node"))
        if own_clock:
            now = time.time_ns() // 1000
            step = np.arange(len(changes)) if changes.delete is not None else 0
            changes.ts = np.full(len(changes), now, np.int64) + step
        self.pending.append(Written(table, changes, source, seq))
        return {source: seq}

    def tables(self) -> dict[str, TableDef]:
        tables = catalogs.compile(self.document).shard.tables
        return {t.name: t for t in tables if t.name not in self.unknown_tables}

    def within(self, timeout: float, stream: float | None = None) -> FakePool:
        return self

    def close(self) -> None:
        """A client gives up its connection; the pool stays."""

    # ------------------------------------------------------------------ clients

    def connect(self, timeout: float = 10.0, max_age: float = 0.0) -> ClusterDatabase:
        def open_store(_: str, address: str) -> Backend:
            return Backend(address, self.store, cast(BaseTables, self))

        caller = self.hub.transport(MemberId("client"))
        seeds = [c.address for c in self.coordinators]
        return ClusterDatabase(seeds, caller, open_store, timeout=timeout, max_age=max_age)
