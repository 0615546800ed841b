"""What of a real HBase's tables cannot be read: it is listed with the key, the cell and the reason, once, until it is
mended or deleted; views leave it out, and nothing else waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from belvedere.backend.hbase import sink
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.seam import Backend
from belvedere.backend.unreadable_rows import MOST, unreadable_rows
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.transport.loopback import LoopbackTransport
from belvedere.protocol.messages import Role
from belvedere.protocol.ring import MemberId
from tests.backend.hbase.followed_pool import FollowingPool, UserTable, following, key
from tests.cluster.real import until


@contextmanager
def client(pool: FollowingPool) -> Iterator[ClusterDatabase]:
    leader = next(member.address for member in pool._members() if member.role is Role.COORDINATOR)
    transport = LoopbackTransport(pool.hub, MemberId("reader"))
    with ClusterDatabase(
        [leader], transport, lambda *_: Backend("memory:", pool.store), max_age=0.0, store="served://here:1"
    ) as db:
        yield db


def listed(db: ClusterDatabase, relation: str = "orders") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in db.quarantine(relation).to_pylist()), key=repr)


def spoil(table: UserTable) -> None:
    """Rows that a load finds."""
    table.put_many({id: {"customer": 1, "total": "5.00", "hits": id} for id in range(5)})
    table.table.put(key(1), {b"d:total": b"much"})
    table.table.put(key(2), {b"d:customer": b"12345"})
    table.table.put(b"header", {b"d:total": b"1.00"})
    table.table.put(b"gone", {b"d:total": b"1.00"})
    table.table.delete(b"gone")


TOTAL = "column total (decimal(12,2), text): cast of a value that does not fit"
CUSTOMER = "column customer (int, int): a cell that its encoding cannot read"
HITS = "column hits (bigint, long): a cell that its encoding cannot read"
KEY = "row key: column 'id' (bigint) cannot be read as long"


def test_cells_and_row_keys_are_listed_until_they_are_mended_or_deleted(hbase: LocalHBase) -> None:
    with following(hbase, before=spoil, distributors=2) as (pool, table), client(pool) as db:
        wanted = [
            (1, None, "d:total", TOTAL),
            (2, None, "d:customer", CUSTOMER),
            (None, b"header", None, KEY),
        ]
        until(lambda: listed(db) == sorted(wanted, key=repr), 60.0, "what the load found")
        assert {row[0] for row in pool.view("big")} == {0, 3, 4}, "those that use the column leave the row out"
        assert [row[:2] for row in listed(db, "big")] == [(1, 1), (2, None)]

        table.table.put(key(3), {b"n:hits": b""})
        table.table.put(b"header", {b"d:total": b"2.00"})
        table.table.put(b"trailer-of-a-file", {b"d:customer": b"1"})
        table.table.put(b"unmapped", {b"d:other": b"1"})
        table.table.delete(b"never there")
        wanted += [
            (3, None, "n:hits", HITS),
            (None, b"trailer-of-a-file", None, "row key: bytes follow its last column, 'id'"),
        ]
        until(lambda: listed(db) == sorted(wanted, key=repr), 60.0, "what the log brought")
        report = db.verify("big")
        assert not report.complete and not report.compared and not report.ok
        assert "3 of 'orders'" in str(report.problem) and "5 rows of views and tables below" in report.incomplete

        table.put(1, total="7.00")
        table.delete(2, "customer")
        table.delete(3)
        table.table.delete(b"trailer-of-a-file")
        until(lambda: listed(db) == [(None, b"header", None, KEY)], 60.0, "what was mended has left")
        until(lambda: {row[0] for row in pool.view("big")} == {0, 1, 2, 4}, 60.0, "rows that are back")
        report = db.verify("big")
        assert report.compared and not report.complete and not report.missing and not report.extra
        assert "1 rows of views and tables below are in quarantine; the 4 rows shown are right" in str(report)
        table.table.delete(b"header")
        until(lambda: listed(db) == [], 60.0, "the last one has left")
        assert db.verify("big").ok


def test_a_row_that_was_deleted_while_another_sink_wrote_it_down_is_forgotten(
    hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    from belvedere.backend.unreadable_rows import UnreadableRow, put_unreadable

    monkeypatch.setattr(sink, "LOOK_S", 0.5)
    with following(hbase) as (pool, table):
        (stored,) = pool.log.tables()
        table.table.put(b"lives", {b"d:total": b"1.00"})
        put_unreadable(pool.store, stored, UnreadableRow(b"was deleted", "late"))
        until(lambda: [row.key for row in unreadable_rows(pool.store, stored)] == [b"lives"], 60.0, "only what lives")


def test_a_mapping_that_fits_nothing_is_bounded_and_named(hbase: LocalHBase) -> None:
    """A manifest whose row key is another one: no view breaks, the log is not held up, and the reason is told."""

    def fill(table: UserTable) -> None:
        with table.table.batch(batch_size=1000) as batch:
            for number in range(MOST + 500):
                batch.put(b"order-%06d" % number, {b"d:total": b"1.00"})

    with following(hbase, before=fill) as (pool, table), client(pool) as db:
        until(lambda: len(listed(db)) >= MOST, 60.0, "as many as are kept")
        found = listed(db)
        assert len(found) < 2 * MOST + 500 and {row[3] for row in found[:-1]} <= {
            "row key: bytes follow its last column, 'id'",
            f"row key: bytes follow its last column, 'id'; {MOST} row keys are kept at most, there may be more",
        }
        table.put(1, customer=1, total="9.00")
        until(lambda: [row[0] for row in pool.view("big")] == [1], 60.0, "rows that can be read are served")
        assert sum(s.figures_now()["log_unreadable"] for s in pool.sinks()) == 0
