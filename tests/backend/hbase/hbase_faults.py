"""What goes wrong around a pool that follows a real HBase, each kind by name; and an application that goes on writing.

Faults return when what they broke works again, or is on its way to. Each can strike at any time, beside the others'
effects; those that need something that is not so just now do nothing and say so.

The master is not killed: on a local file system, which does not know what is flushed, it loses its procedures with
that, and HBase does not start again.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import happybase
from thriftpy2.thrift import TException

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.client import HBase
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.backend.hbase.regions import Region
from belvedere.cluster.process.local import LocalCluster
from belvedere.errors import BelvedereError
from tests.backend.hbase.followed_pool import UserTable, key
from tests.cluster.real import until

WHOLE_S = 180.0


@dataclass
class World:
    """`peer`: the name of the pool's peer. `seconds`: how long what pauses does so."""

    hbase: LocalHBase
    client: HBase
    cluster: LocalCluster
    tables: list[UserTable]
    admin: PoolAdmin
    peer: str
    random: random.Random
    seconds: float = 5.0

    @property
    def regions(self) -> RegionAdmin:
        return RegionAdmin(self.client, WHOLE_S)

    def one_table(self) -> str:
        return self.random.choice(self.tables).name

    def one_region(self) -> Region:
        return self.random.choice(self.regions.regions(self.one_table()))

    def whole(self) -> None:
        """HBase answers again, with all of its servers."""
        until(lambda: self.hbase.answers() is None, WHOLE_S, "an hbase that is whole")

    def member(self, role: str) -> int | None:
        """The process of one that runs."""
        pids = [c.pid for c in self.cluster.children.values() if c.role.value == role and c.pid is not None]
        return self.random.choice(pids) if pids else None


def _server_name(world: World, region: Region) -> str:
    assert region.server is not None
    mark = f"Serving as {region.server.host},{region.server.port},{region.server.code}"
    servers = [name for name in world.hbase.names if name.startswith("regionserver")]
    return next(name for name in servers if mark in world.hbase.log(name).read_text(errors="replace"))


def kill_region_server(world: World) -> None:
    name = _server_name(world, world.one_region())
    world.hbase.kill(name)
    world.hbase.start_one(name)
    world.whole()


def all_region_servers_away(world: World) -> None:
    """Nothing of HBase can be read or written for a while: neither users' tables nor what the pool keeps there."""
    servers = [name for name in world.hbase.names if name.startswith("regionserver")]
    for name in servers:
        world.hbase.kill(name)
    time.sleep(world.seconds)
    for name in servers:
        world.hbase.start_one(name)
    world.whole()


def restart_region_server(world: World) -> None:
    """It gives its regions away before it ends."""
    name = _server_name(world, world.one_region())
    os.kill(world.hbase.pids()[name], signal.SIGTERM)
    until(lambda: name not in world.hbase.pids(), WHOLE_S, "a region server that has ended")
    world.hbase.start_one(name)
    world.whole()


def move_region(world: World) -> None:
    region = world.one_region()
    others = [server for server in world.client.admin.servers() if server != region.server]
    if others:
        world.regions.move(region, world.random.choice(others))


def split_region(world: World) -> None:
    region = world.one_region()
    start = int.from_bytes(region.start or key(0), "big")
    stop = int.from_bytes(region.stop, "big") if region.stop else start + 200
    if stop - start > 20 and len(world.regions.regions(region.table)) < 8:
        world.regions.split(region, key((start + stop) // 2))


def merge_regions(world: World) -> None:
    table = world.one_table()
    regions = world.regions.regions(table)
    if len(regions) > 2:
        at = world.random.randrange(len(regions) - 1)
        world.regions.major_compact(table)
        world.regions.merge(regions[at], regions[at + 1])


def disable_table(world: World) -> None:
    """By its owner, who enables it again."""
    request = messages.TableRequest(table_name=TableName.parse(world.one_table()).message())
    world.client.master.run("DisableTable", request)
    time.sleep(min(2.0, world.seconds))
    world.client.master.run("EnableTable", request)


def kill_gateway(world: World) -> None:
    world.hbase.kill("thrift")
    world.hbase.start_one("thrift")
    world.whole()


def restart_zookeeper(world: World) -> None:
    world.hbase.kill("zookeeper")
    world.hbase.start_one("zookeeper")
    world.whole()


def _kill(role: str) -> Callable[[World], None]:
    def strike(world: World) -> None:
        pid = world.member(role)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    return strike


def pause_distributor(world: World) -> None:
    """Longer than a region server waits for an answer, if the seconds are: then it sends the same to another sink, and
    the first goes on with what it had."""
    pid = world.member("distributor")
    if pid is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(world.seconds)
        finally:
            os.kill(pid, signal.SIGCONT)


def disable_peer(world: World) -> None:
    world.admin.enable_peer(world.peer, False)
    time.sleep(world.seconds)
    world.admin.enable_peer(world.peer)


def flush(world: World) -> None:
    world.regions.flush(world.one_table())


def major_compact(world: World) -> None:
    world.regions.major_compact(world.one_table())


def compact_pool(world: World) -> None:
    """The pool's own tables: state, INPUT, documents."""
    for table in world.admin.tables(world.admin.namespace):
        world.regions.request_compaction(str(table))


FAULTS: dict[str, Callable[[World], None]] = {
    "kill region server": kill_region_server,
    "restart region server": restart_region_server,
    "all region servers away": all_region_servers_away,
    "move region": move_region,
    "split region": split_region,
    "merge regions": merge_regions,
    "disable table": disable_table,
    "kill gateway": kill_gateway,
    "restart zookeeper": restart_zookeeper,
    "kill distributor": _kill("distributor"),
    "kill view server": _kill("viewserver"),
    "kill coordinator": _kill("coordinator"),
    "pause distributor": pause_distributor,
    "disable peer": disable_peer,
    "flush": flush,
    "major compaction": major_compact,
    "compaction of the pool's tables": compact_pool,
}


class Application:
    """Writes to tables with happybase in threads of its own, tries again when HBase is away, and rests on request.
    `odd`: the application sets timestamps itself, also old ones and twice the same, and deletes versions."""

    def __init__(self, hbase: LocalHBase, table: UserTable, seed: int, rows: int = 400, odd: bool = False) -> None:
        self._hbase, self._table, self._seed, self._rows, self._odd = hbase, table, seed, rows, odd
        self._stopping, self._resting, self._idle = threading.Event(), threading.Event(), threading.Event()
        self.batches = self.failures = 0
        self.last = ""
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Application:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(WHOLE_S)
        assert not self._thread.is_alive(), self.last

    @contextlib.contextmanager
    def at_rest(self) -> Iterator[None]:
        self._idle.clear()
        self._resting.set()
        assert self._idle.wait(WHOLE_S), self.last
        try:
            yield
        finally:
            self._resting.clear()

    def wrote(self, batches: int) -> None:
        """So many more."""
        wanted = self.batches + batches
        until(lambda: self.batches >= wanted, WHOLE_S, f"{batches} batches more; the last failure: {self.last}")

    def _run(self) -> None:
        rng = random.Random(self._seed)
        connection: Any = None
        while not self._stopping.is_set():
            if self._resting.is_set():
                self._idle.set()
                self._stopping.wait(0.1)
                continue
            try:
                if connection is None:
                    host, port = self._hbase.thrift
                    connection = happybase.Connection(host, port, timeout=20_000)
                self._write(connection.table(self._table.name), rng)
                self.batches += 1
                self._stopping.wait(0.05)
            except (TException, OSError) as error:
                self.failures += 1
                self.last = f"{type(error).__name__}: {error}"[:300]
                with contextlib.suppress(TException, OSError):
                    if connection is not None:
                        connection.close()
                connection = None
                self._stopping.wait(0.5)

    def _write(self, table: Any, rng: random.Random) -> None:
        encode = self._table.cells
        for ts in sorted(rng.sample(range(1, 60), 3)) if self._odd else [None]:
            with table.batch(timestamp=ts, batch_size=1000) as batch:
                for id in rng.sample(range(self._rows), 30):
                    cells = {"customer": id % 5, "total": f"{self.batches % 50}.00", "hits": self.batches}
                    names = rng.sample(sorted(cells), rng.choice([1, 2, 3, 3]))
                    batch.put(key(id), encode({name: cells[name] for name in names}))
            for id in rng.sample(range(self._rows), 4):
                columns = rng.choice([None, None, [b"d:total"], [b"d:customer", b"n:hits"]])
                table.delete(key(id), columns, timestamp=ts)
        if not self._odd:
            table.counter_inc(key(rng.randrange(self._rows)), "n:hits", 3)


def rows_of(hbase: LocalHBase, table: UserTable) -> dict[int, dict[str, Any]]:
    """What a client reads of it now, however often it has to ask."""
    found: dict[int, dict[str, Any]] = {}

    def read() -> bool:
        nonlocal found
        try:
            table.reconnect()
            found = table.rows()
        except (TException, OSError, BelvedereError):
            return False
        return True

    until(read, WHOLE_S, "a table that can be read")
    return found
