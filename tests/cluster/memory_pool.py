"""A pool in one process: ZooKeeper, network and store in memory, members as they are, each in threads of its own."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from belvedere import errors
from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Backend, SourceInfo
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.coordination.memory import MemoryCoordination, MemoryZooKeeper
from belvedere.cluster.coordination.seam import Coordination
from belvedere.cluster.process import logs
from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.process.process import Process
from belvedere.cluster.roles.run import maker
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.loopback import Hub, LoopbackTransport
from belvedere.engine import shard
from belvedere.model import chunks
from belvedere.model.rows import GivenRows
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.messages import Member, Role
from belvedere.protocol.ring import BUCKETS, MemberId
from tests.cluster.real import until

SOURCE = SourceId("orders/0")
STATEMENTS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))",
    "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n FROM orders GROUP BY customer",
)


class Pool:
    """ZooKeeper, network and store in memory; processes as threads."""

    def __init__(self, fed_by: Backend | None = None) -> None:
        """`fed_by`: a backend with base tables that are the pool's, and whose sources feed it."""
        self.zookeeper, self.hub = MemoryZooKeeper(), Hub()
        self.store = MemoryStore("cluster-a")
        self._fed_by = fed_by
        self.processes: dict[str, Process] = {}
        self.said: dict[str, io.StringIO] = {}
        self.codes: dict[str, int] = {}
        self.connections: dict[str, list[MemoryCoordination]] = {}
        self.reachable = True
        self._threads: dict[str, threading.Thread] = {}
        self._seq = 0

    def start(self, role: Role, name: str, store: MemoryStore | None = None, **settings: Any) -> Process:
        options = ProcessOptions(role, "memory", name=name, store="memory", leave_within=1.0, **settings)
        said = self.said[name] = io.StringIO()
        process = Process(
            options,
            maker(role),
            lambda _: self._connect(name),
            lambda _, member, __: LoopbackTransport(self.hub, member),
            lambda *_: self._backend(store or self.store),
            logs.get("default", role.value, name, stream=said, form="json"),
        )
        thread = threading.Thread(target=lambda: self.codes.update({name: process.run()}), name=name, daemon=True)
        self.processes[name], self._threads[name] = process, thread
        thread.start()
        return process

    def _backend(self, store: MemoryStore) -> Backend:
        fed_by = self._fed_by
        if fed_by is None:
            return Backend("memory:", store)
        return Backend("memory:", store, fed_by.base, fed_by=fed_by.store)

    def _connect(self, name: str) -> Coordination:
        connection = self.zookeeper.connect()
        self.connections.setdefault(name, []).append(connection)
        if not self.reachable:
            self.zookeeper.suspend(connection)
        return connection

    def whole(self, prefix: str = "") -> None:
        """One of each role, with a generation."""
        self.start(Role.COORDINATOR, f"{prefix}c")
        self.start(Role.VIEWSERVER, f"{prefix}v")
        self.start(Role.DISTRIBUTOR, f"{prefix}d")
        until(lambda: self.status().get("generation") and len(self.shares()) == 1, 20.0, "a generation")

    def stop(self) -> None:
        for name, process in self.processes.items():
            if self._threads[name].is_alive():
                process.stop()
        for name, thread in self._threads.items():
            thread.join(10.0)
            assert not thread.is_alive(), f"{name} does not end"
            self.processes[name].close()

    def ended(self, name: str, seconds: float = 10.0) -> int:
        self._threads[name].join(seconds)
        return self.codes[name]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said[name].getvalue().splitlines()]

    def heard(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.events(name) if line["event"] == event]

    # ------------------------------------------------------------------ clients

    def call(self, name: str, request: bytes = b"") -> bytes:
        client = LoopbackTransport(self.hub, MemberId("client"))
        members = self._members()
        leader = next((m.address for m in members if m.role is Role.COORDINATOR), "")
        return client.call(leader, name, request, 10.0)

    def _members(self) -> list[Member]:
        watcher = self.zookeeper.connect()
        watcher.start(1.0)
        try:
            return watcher.members()
        finally:
            watcher.close()

    def status(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.call(calls.STATUS))
        except errors.Unavailable as error:
            return {"error": str(error)}
        return found

    def shares(self) -> list[str]:
        return [member["id"] for member in self.status().get("members", []) if member.get("share")]

    def define(self) -> None:
        for number, statement in enumerate(STATEMENTS):
            request = calls.encode(calls.DdlCall(f"ticket {number}", statement))
            calls.decode(self.call(calls.DDL, request), calls.Taken)
        if self._fed_by is None:
            self.store.list_source(SourceInfo(SOURCE, "orders", frozenset(), None, "node"))
        until(lambda: self.status().get("building") == [], 20.0, "a view that is built")

    def write(self, customer: int) -> Seq:
        """One order, durable in INPUT."""
        self._seq += 1
        table = catalogs.compile(self._document()).tables["orders"].stored
        changes = GivenRows(table).puts([{"id": self._seq, "customer": customer, "total": "1.00"}])
        assert changes is not None
        changes.ts = np.full(len(changes), self._seq, np.int64)
        payload = chunks.entry(table, Seq(self._seq), changes)
        chunk = Chunk(ChunkId(WriterId("writer"), self._seq), SOURCE, Seq(self._seq), Seq(self._seq), 1, len(payload))
        self.store.put_chunks([(chunk, payload)])
        return Seq(self._seq)

    def _document(self) -> bytes:
        name = self.store.list_documents("catalog/")[-1]
        found = self.store.get_document(name)
        assert found is not None
        return found

    def committed(self) -> calls.CommittedRow:
        return calls.decode(self.call(calls.COMMITTED, calls.encode(calls.StatusCall())), calls.Seen).committed

    def covers(self, seq: Seq) -> bool:
        return self.committed().positions.get(SOURCE, -1) >= seq

    def failed(self) -> Mapping[str, catalogs.FailedView]:
        """Views that cannot be read at the committed epoch."""
        committed = self.committed()
        document = self.store.get_document(committed.catalog_document)
        assert document is not None
        return catalogs.failed_at(document, committed.building)

    def rows(self, view: str = "spend") -> int:
        served = [v for group in catalogs.compile(self._document()).view_groups for v in group.views]
        node = next(v.node for v in reversed(served) if v.definition.name == view)
        return sum(len(ids) for ids, _ in self.store.scan(shard.view_table(node), 0, BUCKETS, 1 << 60))
