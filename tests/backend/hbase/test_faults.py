"""A pool of real processes over a real HBase, an application that writes, and one fault: nothing is lost, nothing
counts twice, the views are exact. `make torture-hbase` strikes them at random."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.sink_server import SinkServer
from tests.backend.hbase.followed_pool import MANIFEST, UserTable, converge, expected, following, key
from tests.backend.hbase.hbase_faults import FAULTS, Application, World, rows_of
from tests.backend.hbase.real_pool import RealPool, real_pool
from tests.backend.hbase.server import own, unique
from tests.backend.hbase.test_log import Writer
from tests.cluster.real import status, until

QUICK = ("kill region server", "split region", "kill distributor", "kill view server")
PAUSE_S = 70.0
"""Longer than a region server waits for an answer."""
BACKLOG = 500_000
AWAY_S = 90.0
"""Longer than a call of the pool is repeated."""


@dataclass
class Running:
    world: World
    pool: RealPool
    table: UserTable
    application: Application

    def compare(self, seconds: float = 180.0) -> None:
        self.world.whole()
        with self.application.at_rest():
            self.pool.converge(lambda: expected(rows_of(self.world.hbase, self.table)), seconds)


@pytest.fixture(scope="module")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHBase]:
    """Not the one of all other tests."""
    with own(tmp_path_factory.mktemp("hbase")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def running(hbase: LocalHBase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One pool for all tests: each leaves it whole."""
    table = UserTable(hbase, unique("plain"), [key(100), key(250)], scope=1)
    client = connect_hbase(hbase.zookeeper)
    application = Application(hbase, table, 1).start()
    try:
        with real_pool(hbase, tmp_path_factory.mktemp("pool"), viewservers=2) as pool:
            pool.db.apply_manifest(MANIFEST.format(table=table.name))
            world = World(hbase, client, pool.cluster, [table], pool.admin, pool.namespace, random.Random(1), 3.0)
            application.wrote(3)
            yield Running(world, pool, table, application)
            application.stop()
    finally:
        client.close()
        table.close()


@pytest.mark.parametrize("name", [p if p in QUICK else pytest.param(p, marks=pytest.mark.long) for p in FAULTS])
def test_one_fault_under_load(running: Running, name: str) -> None:
    running.application.wrote(3)
    FAULTS[name](running.world)
    running.application.wrote(3)
    running.compare()


@pytest.mark.long
def test_a_distributor_that_sleeps_for_longer_than_a_region_server_waits(running: Running) -> None:
    """What it had is sent to another one, and it writes it, too, when it wakes."""
    running.world.seconds = PAUSE_S
    try:
        FAULTS["pause distributor"](running.world)
    finally:
        running.world.seconds = 3.0
    running.application.wrote(5)
    running.compare()


@pytest.mark.long
def test_an_hbase_that_is_away_for_long_is_named_and_nothing_is_lost(running: Running) -> None:
    """Longer than calls are repeated and sessions last: the pool says why it stands still, and goes on by itself."""
    world = running.world
    servers = [name for name in world.hbase.names if name.startswith("regionserver")]
    running.application.wrote(3)
    for name in servers:
        world.hbase.kill(name)
    try:
        reason = until(
            lambda: status(running.pool.cluster).get("stalled"), 180.0, "a pool that says why it stands still"
        )
        assert "hbase" in reason
        time.sleep(AWAY_S)
    finally:
        for name in servers:
            world.hbase.start_one(name)
    world.whole()
    running.application.wrote(3)
    running.compare(300.0)
    assert not status(running.pool.cluster).get("stalled")


@pytest.mark.long
def test_a_backlog(running: Running) -> None:
    world = running.world
    world.admin.enable_peer(world.peer, False)
    try:
        with running.application.at_rest():
            for first in range(1000, 1000 + BACKLOG, 10_000):
                rows = range(first, first + 10_000)
                running.table.put_many({id: {"customer": id % 100, "total": f"{id % 9}.00"} for id in rows})
    finally:
        world.admin.enable_peer(world.peer)
    running.compare(600.0)


@pytest.mark.long
def test_loads_that_are_killed_again_and_again(hbase: LocalHBase, tmp_path: Any) -> None:
    table = UserTable(hbase, unique("loaded"), [key(id) for id in range(10_000, 80_000, 10_000)], scope=1)
    try:
        for first in range(0, 80_000, 10_000):
            rows = range(first, first + 10_000)
            table.put_many({id: {"customer": id % 100, "total": f"{id % 9}.00", "hits": id} for id in rows})
        rng = random.Random(5)
        with real_pool(hbase, tmp_path, viewservers=1, distributors=2) as pool:
            applied = threading.Thread(
                target=lambda: pool.db.apply_manifest(MANIFEST.format(table=table.name)), daemon=True
            )
            applied.start()
            killed = 0
            while applied.is_alive() and killed < 15:
                time.sleep(rng.uniform(0.3, 3.0))
                pids = [c.pid for c in pool.cluster.children.values() if c.role.value == "distributor" and c.pid]
                if pids:
                    os.kill(rng.choice(pids), signal.SIGKILL)
                    killed += 1
            applied.join(300.0)
            assert killed > 2
            pool.converge(lambda: expected(rows_of(hbase, table)), 300.0)
    finally:
        table.close()


def test_what_was_durable_and_not_answered_comes_again_elsewhere(
    hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sinks race: each may get what another one has written already."""
    rng, lost = random.Random(3), []
    answer = SinkServer._answer

    def silent(self: SinkServer, connection: Any, frame: memoryview) -> bytes:
        found = answer(self, connection, frame)
        if len(lost) < 12 and rng.random() < 0.5:
            lost.append(self.port)
            raise EOFError
        return found

    with following(hbase, distributors=2, splits=[key(100), key(200)]) as (pool, table):
        monkeypatch.setattr(SinkServer, "_answer", silent)
        writer = Writer(table, hbase)
        writer.start()
        try:
            writer.wrote(6)
            until(lambda: len(lost) >= 5, 120.0, "answers that are lost")
        finally:
            writer.stop()
        monkeypatch.setattr(SinkServer, "_answer", answer)
        converge(pool, table, 120.0)
