"""A pool in this process that follows tables of a real HBase, and clients that write to them."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import happybase

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.admin import Admin, PoolAdmin
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.connection import ADMIN, CLIENT
from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.backend.hbase.keyvalues import LATEST
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.log import HBaseLog
from belvedere.backend.hbase.master import Master
from belvedere.backend.hbase.meta import MetaTable
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.regions import Regions
from belvedere.backend.hbase.sink import LogSink
from belvedere.backend.hbase.zookeeper import Registry
from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Backend, ReloadState
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.loopback import LoopbackTransport
from belvedere.engine import shard
from belvedere.model.stored_rows import view_rows
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import BUCKETS, MemberId
from tests.backend.hbase.server import unique
from tests.cluster.memory_pool import Pool
from tests.cluster.real import until

MANIFEST = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: orders}}
spec:
  hbase: {{table: "{table}", setReplicationScope: true}}
  columns:
    - {{name: id, type: bigint, encoding: long}}
    - {{name: customer, type: int, cell: "d:customer", encoding: int}}
    - {{name: total, type: "decimal(12,2)", cell: "d:total", encoding: text}}
    - {{name: hits, type: bigint, cell: "n:hits", encoding: long}}
  key: [id]
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {{name: spend}}
spec:
  query: >
    SELECT customer, count(*) AS n, sum(total) AS total, sum(hits) AS hits FROM orders GROUP BY customer
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {{name: big}}
spec:
  query: SELECT id, customer, total, hits FROM orders WHERE total >= 5 OR total IS NULL
"""
FAMILIES = ("d", "n")


class FollowingPool(Pool):
    def __init__(self, hbase: LocalHBase, peer: str) -> None:
        super().__init__()
        self.hbase, self.peer = hbase, peer
        self.client = connect_hbase(hbase.zookeeper)
        self.admin = PoolAdmin(self.client.master, peer, peer)
        self.log = HBaseLog(self.client, self.admin, self.store, peer=peer)

    def _backend(self, store: MemoryStore) -> Backend:
        return Backend("memory:", store, self.log, fed_by=self.log, follower=self.log)

    def apply(self, manifest: str, built: bool = True) -> None:
        request = calls.encode(calls.DdlCall(unique("ticket"), manifest, manifest=True))
        calls.decode(self.call(calls.DDL, request, 120.0), calls.Taken)
        if built:
            until(lambda: self.status().get("building") == [], 60.0, "views that are built")

    def call(self, name: str, request: bytes = b"", seconds: float = 10.0) -> bytes:
        client = LoopbackTransport(self.hub, MemberId("client"))
        leader = next((m.address for m in self._members() if m.role is Role.COORDINATOR), "")
        return client.call(leader, name, request, seconds)

    def view(self, name: str) -> list[tuple[Any, ...]]:
        """Rows as Python values, sorted."""
        served = [v for group in catalogs.compile(self._document()).view_groups for v in group.views]
        node = next(v.node for v in reversed(served) if v.definition.name == name)
        rows = []
        for ids, values in self.store.scan(shard.view_table(node), 0, BUCKETS, 1 << 60):
            delta = view_rows(node.schema, ids, values)
            columns = [column.to_arrow().to_pylist() for column in delta.columns]
            rows += list(zip(*columns, strict=True))
        width = len(next(v.definition.columns for v in reversed(served) if v.definition.name == name))
        return sorted((row[:width] for row in rows), key=repr)

    def reload(self, start: str = "", stop: str = "", seconds: float = 120.0) -> ReloadState:
        """Wait until it is done."""
        (table,) = self.log.tables()
        id = unique("reload")
        self.log.reload(id, table, start, stop)
        return self.reloaded(id, seconds)

    def look(self, seconds: float = 120.0) -> ReloadState:
        """Compare, and correct nothing."""
        (table,) = self.log.tables()
        id = unique("look")
        self.log.look(id, table)
        return self.reloaded(id, seconds)

    def reloaded(self, id: str, seconds: float = 120.0) -> ReloadState:
        found: list[ReloadState] = []

        def done() -> bool:
            found[:] = [one for one in self.log.reloads() if one.id == id and one.phase == "done"]
            return bool(found)

        until(done, seconds, "a reload that is done")
        return found[0]

    def execute(self, statement: str) -> None:
        request = calls.encode(calls.DdlCall(unique("ticket"), statement))
        calls.decode(self.call(calls.DDL, request, 120.0), calls.Taken)

    def sinks(self) -> list[LogSink]:
        """Of the distributors that run."""
        members = [process.current for process in self.processes.values()]
        found = [getattr(member, "sink", None) for member in members]
        return [sink for sink in found if isinstance(sink, LogSink)]

    def close(self) -> None:
        self.stop()
        for name in self.log.tables():
            self.log.drop_table(name)
        self.client.close()


@contextmanager
def following(
    hbase: LocalHBase,
    distributors: int = 1,
    before: Callable[[UserTable], None] | None = None,
    scope: int = 0,
    splits: Sequence[bytes] = (),
    apply: bool = True,
    built: bool = True,
) -> Iterator[Any]:
    """A table of users, and a pool that follows it. `before`: what happens to the table before it is followed."""
    name = unique("orders")
    table = UserTable(hbase, name, splits, scope)
    pool = FollowingPool(hbase, unique("peer"))
    try:
        if before is not None:
            before(table)
        pool.whole()
        for number in range(1, distributors):
            pool.start(Role.DISTRIBUTOR, f"d{number}")
        if apply:
            pool.apply(MANIFEST.format(table=name), built)
        yield pool, table
    finally:
        pool.close()
        table.close()


class UserTable:
    """A table as an application makes and writes it, and as a scan of it answers."""

    def __init__(
        self,
        hbase: LocalHBase,
        name: str,
        splits: Sequence[bytes] = (),
        scope: int = 0,
        families: Sequence[str] = FAMILIES,
        versions: int = 5,
    ) -> None:
        self.name, self._splits, self._scope, self._families, self._versions = name, splits, scope, families, versions
        self.pool = ConnectionPool(60.0)
        self.registry = Registry(hbase.zookeeper)
        self.master = Master(self.registry, self.pool)
        self._create()
        self._hbase = hbase
        self._connections: dict[int, happybase.Connection] = {}

    def reconnect(self) -> None:
        """A gateway that was started again knows no connection of before; they close when nobody uses them."""
        self._connections.clear()

    @property
    def table(self) -> happybase.Table:
        """Each thread has a connection of its own: one takes the answers to another's calls for its own."""
        thread = threading.get_ident()
        connection = self._connections.get(thread)
        if connection is None:
            host, port = self._hbase.thrift
            connection = self._connections[thread] = happybase.Connection(host, port, timeout=60_000)
        table: happybase.Table = connection.table(self.name)
        return table

    @staticmethod
    def cells(values: Mapping[str, Any]) -> dict[bytes, bytes]:
        return {_CELLS[name]: _ENCODE[name](value) for name, value in values.items()}

    def _create(self) -> None:
        attributes = {"VERSIONS": str(self._versions), "REPLICATION_SCOPE": str(self._scope)}
        families = tuple(Family(family, attributes) for family in self._families)
        # HBase compacts by itself when there are three files, and if these are all it forgets deletes: never here.
        quiet = {"hbase.hstore.compaction.min": "1000"}
        described = TableDescriptor(TableName.parse(self.name), families, configuration=quiet)
        request = messages.CreateTableRequest(table_schema=described.message(), split_keys=self._splits)
        self.master.run("CreateTable", request)

    def _drop(self) -> None:
        for step in ("DisableTable", "DeleteTable"):
            self.master.run(step, messages.TableRequest(table_name=TableName.parse(self.name).message()))

    def recreate(self) -> None:
        """Another table of the same name."""
        self._drop()
        self._create()

    def split(self, region: str, row: bytes) -> None:
        request = messages.SplitRegionRequest(region_info=self._info(region), split_row=row)
        self.master.run("SplitRegion", request)

    def _info(self, region: str) -> Any:
        request = messages.RegionInfoRequest()
        (birth,) = [birth for birth in self.regions() if birth.encoded == region]
        request.region.type, request.region.value = 1, birth.name
        with self.pool.connection(self.server(birth.server), ADMIN) as connection:
            return connection.call("GetRegionInfo", request, messages.RegionInfoAnswer)[0].region_info

    def merge(self, *regions: str) -> None:
        request = messages.MergeRegionsRequest(forcible=False)
        for region in regions:
            request.region.add(type=2, value=region.encode())
        self.master.run("MergeTableRegions", request)

    def move(self, region: str) -> None:
        """To another region server."""
        (birth,) = [birth for birth in self.regions() if birth.encoded == region]
        to = next(s for s in Admin(self.master).servers() if f"{s.host}:{s.port}" != birth.server)
        request = messages.MoveRegionRequest()
        request.region.type, request.region.value = 2, region.encode()
        server = request.dest_server_name
        server.host_name, server.port, server.start_code = to.host, to.port, to.code
        self.master.call("MoveRegion", request, messages.Empty)
        until(
            lambda: any(b.encoded == region and b.server == f"{to.host}:{to.port}" for b in self.regions()),
            60.0,
            "a region that has moved",
        )

    def put(self, id: int, ts: int | None = None, **cells: Any) -> None:
        self.table.put(key(id), self.cells(cells), timestamp=ts)

    def put_many(self, rows: Mapping[int, Mapping[str, Any]]) -> None:
        with self.table.batch(batch_size=1000) as batch:
            for id, cells in rows.items():
                batch.put(key(id), self.cells(cells))

    def delete(self, id: int, *names: str, ts: int | None = None) -> None:
        self.table.delete(key(id), [_CELLS[name] for name in names] or None, timestamp=ts)

    def put_past_the_log(self, id: int, ts: int, **cells: Any) -> None:
        """As a bulk load does: the rows are there, and the log does not know of them."""
        mutation = messages.Mutation(mutate_type=_PUT, durability=_SKIP_WAL)
        for name, value in cells.items():
            family, _, qualifier = _CELLS[name].partition(b":")
            column = mutation.column_value.add(family=family)
            column.qualifier_value.add(qualifier=qualifier, timestamp=ts, value=_ENCODE[name](value))
        self.mutate(id, mutation)

    def delete_past_the_log(self, id: int) -> None:
        mutation = messages.Mutation(mutate_type=_DELETE, durability=_SKIP_WAL)
        for family in self._families:
            column = mutation.column_value.add(family=family.encode())
            column.qualifier_value.add(qualifier=b"", timestamp=LATEST, delete_type=_FAMILY)
        self.mutate(id, mutation)

    def mutate(self, id: int, mutation: Any) -> None:
        """What Thrift has no call for: through the RPC of the region server that has the row."""
        mutation.row = key(id)
        regions = Regions(self.registry, self.pool)
        region = regions.with_row(self.name, key(id))
        request = messages.MutateRequest(mutation=mutation, region=region.specifier())
        assert region.server is not None
        with self.pool.connection(region.server, CLIENT) as connection:
            connection.call("Mutate", request, messages.MutateResponse)

    def delete_version(self, id: int, name: str, ts: int, family_version: bool = False) -> None:
        family, _, qualifier = _CELLS[name].partition(b":")
        mutation = messages.Mutation(mutate_type=3)
        column = mutation.column_value.add(family=family)
        kind = 3 if family_version else 0
        column.qualifier_value.add(qualifier=b"" if family_version else qualifier, timestamp=ts, delete_type=kind)
        self.mutate(id, mutation)

    def regions(self) -> list[Any]:
        births = MetaTable(self.registry, self.pool).births(TableName.parse(self.name))
        return [birth for birth in births if not birth.ended]

    def server(self, address: str) -> Any:
        return next(s for s in Admin(self.master).servers() if f"{s.host}:{s.port}" == address)

    def rows(self) -> dict[int, dict[str, Any]]:
        return {
            struct.unpack(">q", row)[0]: {
                name: _DECODE[name](cells[cell]) for name, cell in _CELLS.items() if cell in cells
            }
            for row, cells in self.table.scan(batch_size=1000)
        }

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._drop()
        self.pool.close()


def key(id: int) -> bytes:
    return struct.pack(">q", id)


_PUT, _DELETE, _SKIP_WAL, _FAMILY = 2, 3, 1, 2
_CELLS = {"customer": b"d:customer", "total": b"d:total", "hits": b"n:hits"}
_ENCODE: dict[str, Callable[[Any], bytes]] = {
    "customer": lambda v: struct.pack(">i", v),
    "total": lambda v: str(v).encode(),
    "hits": lambda v: struct.pack(">q", v),
}
_DECODE: dict[str, Callable[[bytes], Any]] = {
    "customer": lambda v: struct.unpack(">i", v)[0],
    "total": lambda v: v.decode(),
    "hits": lambda v: struct.unpack(">q", v)[0],
}


def expected(rows: Mapping[int, Mapping[str, Any]]) -> dict[str, list[tuple[Any, ...]]]:
    """The views, computed from a scan of the table."""
    groups: dict[Any, list[Mapping[str, Any]]] = {}
    for row in rows.values():
        groups.setdefault(row.get("customer"), []).append(row)

    def total(members: list[Mapping[str, Any]], name: str) -> Any:
        values = [Decimal(m[name]) if name == "total" else m[name] for m in members if name in m]
        return sum(values) if values else None

    spend = [(c, len(m), total(m, "total"), total(m, "hits")) for c, m in groups.items()]
    big = [
        (id, row.get("customer"), Decimal(row["total"]) if "total" in row else None, row.get("hits"))
        for id, row in rows.items()
        if "total" not in row or Decimal(row["total"]) >= 5
    ]
    return {"spend": sorted(spend, key=repr), "big": sorted(big, key=repr)}


def converge(pool: FollowingPool, table: UserTable, seconds: float = 60.0) -> None:
    """Wait until the views are what a scan of the table says."""
    converge_with(lambda: expected(table.rows()), pool.view, seconds)


_READ_AGAIN_S = 15.0


def converge_with(
    wanted: Callable[[], Mapping[str, list[Any]]], view: Callable[[str], list[Any]], seconds: float
) -> Mapping[str, list[Any]]:
    """Wait until views have the rows that are wanted; returns these. They are read again now and then: a write whose
    client gave up waiting is still tried by the gateway, and comes when HBase is there again."""
    end = time.monotonic() + seconds
    while True:
        rows = wanted()
        found: dict[str, list[Any]] = {}

        def equal(rows: Mapping[str, list[Any]] = rows, found: dict[str, list[Any]] = found) -> bool:
            found.update({name: view(name) for name in rows})
            return found == rows

        try:
            until(equal, max(1.0, min(_READ_AGAIN_S, end - time.monotonic())), "views that equal the table")
            return rows
        except AssertionError as error:
            if time.monotonic() >= end:
                raise AssertionError(f"after {seconds:g} s: {differences(rows, found)}") from error


def differences(wanted: Mapping[str, list[Any]], found: Mapping[str, list[Any]]) -> str:
    """Some rows of each view that is not as it should be."""
    told = []
    for name, rows in wanted.items():
        missing = [row for row in rows if row not in found.get(name, [])]
        extra = [row for row in found.get(name, []) if row not in rows]
        if missing or extra:
            told.append(
                f"{name} lacks {len(missing)}, such as {missing[:3]}, and has {len(extra)} too many, {extra[:3]}"
            )
    return "; ".join(told)
