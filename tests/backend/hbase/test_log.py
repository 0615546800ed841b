"""Views over tables of a real HBase, kept by its replication."""

from __future__ import annotations

import random
import threading

import pytest
from thriftpy2.thrift import TException

from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.protocol.messages import Role
from tests.backend.hbase.followed_pool import FollowingPool, UserTable, converge, following, key
from tests.cluster.real import until


def server_of(hbase: LocalHBase, address: str) -> str:
    """The name of the region server at this address: its log says where it serves."""
    mark = "Serving as " + address.replace(":", ",")
    servers = [name for name in hbase.names if name.startswith("regionserver")]
    return next(name for name in servers if mark in hbase.log(name).read_text(errors="replace"))


def test_every_kind_of_change_reaches_the_views(hbase: LocalHBase) -> None:
    with following(hbase) as (pool, table):
        table.put_many({id: {"customer": id % 3, "total": f"{id}.50", "hits": id} for id in range(20)})
        converge(pool, table)
        table.put(1, total="100.00")
        table.put(50, customer=7)
        table.put(51, hits=3)
        table.delete(2)
        table.delete(3, "total")
        table.delete(4, "hits")
        converge(pool, table)
        table.table.counter_inc(b"\0" * 7 + b"\5", "n:hits", 10)
        table.delete(51, "hits")
        table.put(2, customer=1)
        converge(pool, table)


def test_deletes_of_versions_uncover_nothing_wrong(hbase: LocalHBase) -> None:
    """A delete of the newest version leaves its cell open until a newer write decides; of an older one is nothing."""
    with following(hbase) as (pool, table):
        for id in range(4):
            table.put(id, ts=100, customer=1, total="6.00", hits=1)
            table.put(id, ts=200, total="7.00", hits=2)
        converge(pool, table)
        table.delete_version(0, "total", 100)
        table.delete_version(1, "total", 200)
        table.delete_version(2, "total", 200, family_version=True)
        table.put(3, ts=300, customer=2)
        until(lambda: len(pool.view("big")) == 2, 60.0, "two rows in doubt are left out")
        assert {row[0] for row in pool.view("big")} == {0, 3}
        for id in (1, 2):
            table.put(id, ts=300, total="9.00")
        converge(pool, table)


def encoded(table: UserTable) -> list[str]:
    return [birth.encoded for birth in table.regions()]


def sources(pool: FollowingPool) -> set[str]:
    return {info.id.rsplit("/")[-1] for info in pool.log.sources()}


class Writer(threading.Thread):
    """An application that writes to the table until it is told to stop; each row counts how often it was written."""

    def __init__(self, table: UserTable, hbase: LocalHBase, rows: int = 300) -> None:
        super().__init__(daemon=True)
        self._table, self._rows, self._hbase = table, rows, hbase
        self._stopping = threading.Event()
        self.batches = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        rng = random.Random(7)
        while not self._stopping.is_set():
            try:
                ids = rng.sample(range(self._rows), 40)
                self._table.put_many({id: {"customer": id % 5, "total": f"{self.batches}.00"} for id in ids})
                for id in rng.sample(range(self._rows), 3):
                    self._table.delete(id, *rng.choice([(), ("total",), ("customer",)]))
                self.batches += 1
            except (TException, OSError) as error:
                self.failure = error  # a client of a server that was killed tries again
                self._stopping.wait(0.2)

    def wrote(self, batches: int) -> None:
        until(
            lambda: self.batches >= batches, 120.0, f"{batches} batches that are written (last failure: {self.failure})"
        )

    def stop(self) -> None:
        self._stopping.set()
        self.join(60.0)
        assert not self.is_alive()


def test_regions_that_move_split_and_merge_lose_and_repeat_nothing(hbase: LocalHBase) -> None:
    with following(hbase, distributors=2, splits=[key(100), key(200)]) as (pool, table):
        writer = Writer(table, hbase)
        writer.start()
        try:
            writer.wrote(3)
            first, second, third = encoded(table)
            table.move(second)
            table.split(first, key(50))
            writer.wrote(writer.batches + 3)
            table.merge(second, third)
            writer.wrote(writer.batches + 3)
            assert len(encoded(table)) == 3
        finally:
            writer.stop()
        converge(pool, table, 120.0)
        until(lambda: sources(pool) == set(encoded(table)), 60.0, "daughters that are sources, and forgotten parents")


def test_a_region_server_that_is_killed_loses_nothing(hbase: LocalHBase) -> None:
    with following(hbase) as (pool, table):
        writer = Writer(table, hbase)
        writer.start()
        try:
            writer.wrote(3)
            (birth,) = table.regions()
            name = server_of(hbase, birth.server)
            hbase.kill(name)
            hbase.start_one(name)
            writer.wrote(writer.batches + 3)
        finally:
            writer.stop()
            until(lambda: hbase.answers() is None, 120.0, "an hbase that is whole")
        converge(pool, table, 120.0)


def test_sinks_come_and_go(hbase: LocalHBase) -> None:
    with following(hbase, distributors=2) as (pool, table):
        writer = Writer(table, hbase)
        writer.start()
        try:
            writer.wrote(3)
            pool.processes["d"].stop()
            pool.ended("d", 30.0)
            writer.wrote(writer.batches + 2)
            pool.start(Role.DISTRIBUTOR, "d9")
            pool.processes["d1"].stop()
            pool.ended("d1", 30.0)
            writer.wrote(writer.batches + 2)
        finally:
            writer.stop()
        converge(pool, table, 120.0)


def test_a_table_of_the_same_name_that_was_dropped_does_not_count(hbase: LocalHBase) -> None:
    """A new peer begins with the log that is being written, and that has the entries of the old table."""

    def fill(table: UserTable) -> None:
        table.put_many({id: {"customer": 9, "total": "9.00"} for id in range(50)})
        table.recreate()

    with following(hbase, before=fill, scope=1) as (pool, table):
        table.put(1, customer=1, total="1.00")
        converge(pool, table)
        figures = [sink.figures_now() for sink in pool.sinks()]
        assert sum(f["log_foreign"] for f in figures) > 0


def test_the_peer_goes_with_its_last_table_and_users_tables_stay(
    hbase: LocalHBase, caplog: pytest.LogCaptureFixture
) -> None:
    with following(hbase) as (pool, table):
        assert f"hbase table {table.name}: REPLICATION_SCOPE of d, n was set to 1" in caplog.text
        table.put(1, customer=1)
        converge(pool, table)
        assert pool.peer in {peer.id for peer in pool.admin.peers()}
        for statement in ("DROP MATERIALIZED VIEW spend", "DROP MATERIALIZED VIEW big", "DROP TABLE orders"):
            pool.execute(statement)
        assert pool.peer not in {peer.id for peer in pool.admin.peers()}
        assert pool.store.list_documents("hbase/") == []
        assert table.rows() == {1: {"customer": 1}}


def test_answers_wait_while_input_is_over_its_quota(hbase: LocalHBase) -> None:
    with following(hbase) as (pool, table):
        table.put(1, customer=1)
        converge(pool, table)
        (sink,) = pool.sinks()
        sink.quota_bytes = -1
        until(lambda: sink.over_quota, 30.0, "the quota is noticed")
        table.put(2, customer=1)
        until(lambda: sink.server.delays > 0, 30.0, "an answer that waits")
        assert "quota" in sink.server.trouble
        assert pool.view("spend")[0][1] == 1
        sink.quota_bytes = 1 << 30
        converge(pool, table)
        assert sink.server.trouble == ""
