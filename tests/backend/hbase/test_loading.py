"""Rows that were in a table before it was followed."""

from __future__ import annotations

import contextlib
import re
import threading
from dataclasses import replace
from typing import Any

import pytest

from belvedere import errors
from belvedere.backend.hbase import loading, rpc_cells
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.followed import FollowedBook
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.log import HBaseLog
from belvedere.protocol.messages import Role
from tests.backend.hbase.followed_pool import MANIFEST, UserTable, converge, expected, following, key
from tests.backend.hbase.test_log import Writer
from tests.backend.hbase.test_widening import followed
from tests.cluster.real import until


def fill(table: UserTable) -> None:
    table.put_many({id: {"customer": id % 7, "total": f"{id % 11}.00", "hits": id} for id in range(3000)})
    for id in range(0, 300, 3):
        table.delete(id)
    for id in range(1, 300, 3):
        table.delete(id, "total")
    table.put(1, ts=5, total="1.00")  # masked by a delete that stands
    table.put(5000, ts=100, customer=1, total="6.00")
    table.put(5000, ts=200, total="7.00")
    table.delete_version(5000, "total", 200)


def test_rows_that_were_there_and_those_that_are_written_meanwhile(hbase: LocalHBase) -> None:
    with following(hbase, distributors=2, splits=[key(1000), key(2000)], before=fill) as (pool, table):
        writer = Writer(table, hbase, rows=3000)
        writer.start()
        writer.wrote(4)
        writer.stop()
        until(lambda: not pool.log.load_progress(), 60.0, "all ranges are read")
        converge(pool, table, 120.0)
        until(lambda: all("load-" not in info.id for info in pool.log.sources()), 60.0, "attempts are forgotten")


def test_a_load_goes_on_where_another_distributor_ended(hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc_cells, "_SCAN_ROWS", 100)
    with following(hbase, before=fill, built=False) as (pool, table):
        until(lambda: any(range.after for range in loading.LoadBook(pool.store).ranges()), 60.0, "a load has begun")
        pool.processes["d"].stop()
        pool.ended("d", 30.0)
        (progress,) = pool.status()["loading"].values()
        pool.start(Role.DISTRIBUTOR, "d2")
        until(lambda: not pool.log.load_progress(), 60.0, "all ranges are read")
        assert progress["read"] < progress["ranges"] == 2
        converge(pool, table, 120.0)


def test_views_wait_until_the_rows_that_were_there_are_in(hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch) -> None:
    """A view with a part of the rows would be an answer that is wrong."""
    loading_may_begin = threading.Event()
    load = loading.Loader.load

    def wait(self: loading.Loader, *given: Any) -> None:
        assert loading_may_begin.wait(60.0)
        load(self, *given)

    monkeypatch.setattr(loading.Loader, "load", wait)
    with following(hbase, before=fill, built=False) as (pool, table):
        until(lambda: [(p.done, p.ranges) for p in pool.log.load_progress().values()] == [(0, 2)], 60.0, "two ranges")
        table.put(9000, customer=1, total="6.00")
        until(lambda: any(pool.committed().positions.values()), 60.0, "a row of the log is committed")
        first = pool.committed().epoch
        pool.log.recall([])  # what nobody creates is no reason to wait; a load is
        until(lambda: pool.committed().epoch > first or pool.status()["building"], 60.0, "time has passed")
        assert pool.status()["building"] and pool.view("spend") == []
        loading_may_begin.set()
        until(lambda: pool.status()["building"] == [], 60.0, "views that are built")
        assert {name: pool.view(name) for name in ("spend", "big")} == expected(table.rows())


def test_a_load_counts_until_it_is_committed() -> None:
    """Read to its end it may still be in INPUT: its attempt is a source until all of it is in an epoch."""
    world = followed()
    log = world.log()
    book, loads = FollowedBook(world.store), loading.LoadBook(world.store)
    assert not log.loading()
    loads.add("orders", "", ["d"], [("", "")])
    assert log.loading()
    attempt = loading.new_attempt("orders")
    book.put_region(attempt)
    (range,) = loads.ranges()
    loads.put(replace(range, done=True))
    book.end("orders", [attempt.encoded])
    assert log.loading()
    log.forget_sources([attempt.source])
    assert not log.loading()


def test_columns_that_are_added_later_are_loaded(hbase: LocalHBase) -> None:
    """Of a family that was not followed; beside an application that writes."""
    narrow = re.sub(r"    - .*hits.*\n", "", MANIFEST.partition("---")[0])
    with following(hbase, distributors=2, before=fill, apply=False) as (pool, table):
        pool.apply(narrow.format(table=table.name))
        writer = Writer(table, hbase, rows=3000)
        writer.start()
        writer.wrote(2)
        with pytest.raises(errors.CatalogError, match="only be said in a manifest"):
            pool.execute("ALTER TABLE orders ADD COLUMN hits BIGINT")
        pool.apply(MANIFEST.format(table=table.name))
        for id in range(100):
            table.put(id, hits=id + 7)
        writer.wrote(writer.batches + 2)
        writer.stop()
        converge(pool, table, 120.0)
        assert {c.name for c in pool.log.tables()["orders"].columns} == {"id", "customer", "total", "hits"}


@pytest.mark.parametrize("step", ["replicate", "widen_table", "_set_peer", "plan"])
def test_columns_are_loaded_though_the_leader_ends_in_between(
    hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    narrow = re.sub(r"    - .*hits.*\n", "", MANIFEST.partition("---")[0])
    place = {"replicate": PoolAdmin, "widen_table": FollowedBook, "_set_peer": HBaseLog, "plan": loading.LoadBook}
    real, ended = getattr(place[step], step), []

    def ends(self: Any, *given: Any, **named: Any) -> Any:
        found = real(self, *given, **named)
        if not ended:
            ended.append(True)
            raise errors.StoreUnavailable("the leader ends here")
        return found

    with following(hbase, before=fill, apply=False) as (pool, table):
        pool.apply(narrow.format(table=table.name))
        monkeypatch.setattr(place[step], step, ends)
        with contextlib.suppress(errors.StoreUnavailable):
            pool.apply(MANIFEST.format(table=table.name))
        assert ended
        pool.apply(MANIFEST.format(table=table.name))  # the next one does what was left, whoever asks
        converge(pool, table, 120.0)


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (("{table}", "no_such_table"), "there is no hbase table 'no_such_table'"),
        (('"d:total"', '"x:total"'), "has no column family 'x'; it has d, n"),
        ((", setReplicationScope: true", ""), "has REPLICATION_SCOPE 0: its changes are not in the log for others"),
    ],
)
def test_tables_that_cannot_be_followed_are_refused_and_leave_nothing(
    hbase: LocalHBase, manifest: tuple[str, str], message: str
) -> None:
    with following(hbase, apply=False) as (pool, table):
        text = MANIFEST.replace("{table}", table.name) if manifest[0] != "{table}" else MANIFEST
        with pytest.raises(errors.CatalogError, match=re.escape(message)):
            pool.apply(text.replace(*manifest).replace("{{", "{").replace("}}", "}"))
        assert pool.log.tables() == {} and pool.log.sources() == []
        assert pool.peer not in {peer.id for peer in pool.admin.peers()}
