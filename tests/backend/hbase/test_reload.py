"""Tables that are read again: after bulk loads, after deletes that were lost, beside those who write."""

from __future__ import annotations

import pytest

from belvedere import errors
from belvedere.backend.hbase import reloading
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.log import row_key
from belvedere.backend.hbase.region_admin import RegionAdmin
from belvedere.protocol.messages import Role
from tests.backend.hbase.followed_pool import FollowingPool, UserTable, converge, expected, following, key
from tests.backend.hbase.server import unique
from tests.backend.hbase.test_log import Writer
from tests.cluster.real import until


def damage(hbase: LocalHBase, table: UserTable) -> None:
    """What the log does not know of: rows that came, rows that went, and no delete marker left that would say so."""
    for id in range(20):
        table.put_past_the_log(5000 + id, 50 + id, customer=1, total="7.00", hits=id)
    for id in range(100, 140):
        table.delete_past_the_log(id)
    compact(hbase, table)
    for id in range(120, 130):  # older than what the lost delete took
        table.put_past_the_log(id, 5, customer=2, total="8.00")
    for id in range(200, 210):  # older than a delete that the log knows, and HBase does not any more
        table.put_past_the_log(id, 5, customer=3, total="9.00")


def compact(hbase: LocalHBase, table: UserTable) -> None:
    client = connect_hbase(hbase.zookeeper)
    try:
        RegionAdmin(client).major_compact(table.name)
    finally:
        client.close()


def filled(pool: FollowingPool, table: UserTable) -> None:
    table.put_many({id: {"customer": id % 7, "total": f"{id % 11}.00", "hits": id} for id in range(300)})
    for id in range(200, 220):
        table.delete(id)
    converge(pool, table)


def test_a_reload_brings_bulk_loads_and_takes_what_hbase_has_no_more(hbase: LocalHBase) -> None:
    with following(hbase, splits=[key(110), key(5005)]) as (pool, table):
        filled(pool, table)
        damage(hbase, table)
        assert {name: pool.view(name) for name in ("spend", "big")} != expected(table.rows())
        state = pool.reload()
        converge(pool, table)
        assert state.corrected == 50 and state.undecided == 0  # 40 that are gone or others, 10 behind a mask
        # Nothing was left behind that would mask or hold back what comes now.
        table.put(105, ts=6, customer=4, total="6.00")
        table.put(203, ts=6, total="1.00")
        table.delete(125)
        converge(pool, table)
        assert pool.reload().corrected == 0
        until(lambda: all("load-" not in info.id for info in pool.log.sources()), 60.0, "attempts are forgotten")


def test_a_comparison_counts_what_is_wrong_and_corrects_nothing(hbase: LocalHBase) -> None:
    """Rows that the log never told of, lost deletes, other cells; nothing where nothing was planted, under writes."""
    with following(hbase, splits=[key(110), key(5005)]) as (pool, table):
        filled(pool, table)
        writer = Writer(table, hbase)
        writer.start()
        try:
            for _ in range(2):
                writer.wrote(writer.batches + 2)
                state = pool.look()
                assert state.counts[1:4] == (0, 0, 0) and state.corrected == 0, state
        finally:
            writer.stop()
        filled(pool, table)
        damage(hbase, table)
        before = pool.view("big")
        state = pool.look()
        # 20 bulk-loaded rows and 10 behind a mask are missing, 30 deletes were lost, 10 rows have older cells
        assert state.counts[1:4] == (30, 30, 10) and state.undecided == 0, state
        assert [len(ids) for ids in state.examples] == [10, 10, 10] and state.counts[0] >= 280 - 30
        assert pool.view("big") == before and state.corrected == 0
        pool.reload()
        assert pool.look().counts[1:] == (0, 0, 0, 0)


def test_a_reload_of_a_range_leaves_the_rest(hbase: LocalHBase) -> None:
    with following(hbase, splits=[key(110)]) as (pool, table):
        filled(pool, table)
        damage(hbase, table)
        wrong = {row[0] for row in pool.view("big")} ^ {row[0] for row in expected(table.rows())["big"]}
        assert {105, 115} <= wrong
        pool.reload(escaped(key(100)), escaped(key(110)))
        left = {row[0] for row in pool.view("big")} ^ {row[0] for row in expected(table.rows())["big"]}
        assert left == {id for id in wrong if not 100 <= id < 110}


def escaped(row: bytes) -> str:
    return "".join(f"\\x{byte:02X}" for byte in row)


def test_row_keys_are_written_as_in_the_shell_of_hbase() -> None:
    assert row_key("ab\\x00\\xfFé\\y") == b"ab\x00\xff" + "é\\y".encode()
    assert row_key(escaped(key(300))) == key(300)


def test_rows_that_are_written_meanwhile_are_right(hbase: LocalHBase) -> None:
    with following(hbase, distributors=2) as (pool, table):
        filled(pool, table)
        damage(hbase, table)
        writer = Writer(table, hbase, rows=300)
        writer.start()
        writer.wrote(2)
        state = pool.reload()
        writer.stop()
        assert state.corrected + state.undecided
        if state.undecided:  # rows that were never at rest between two looks
            state = pool.reload()
        assert state.undecided == 0
        converge(pool, table)


@pytest.mark.parametrize("step", ["_catch_up", "_replace", "_look"])
def test_a_reload_goes_on_when_its_distributor_ends(
    hbase: LocalHBase, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It ends after a step was done and before that is written down."""
    real = getattr(reloading.Reloader, step)
    ended: list[bool] = []

    def ends(self: reloading.Reloader, *given: object) -> object:
        found = real(self, *given)
        if not ended:
            ended.append(True)
            raise errors.StoreUnavailable("the distributor ends here")
        return found

    with following(hbase) as (pool, table):
        filled(pool, table)
        damage(hbase, table)
        monkeypatch.setattr(reloading.Reloader, step, ends)
        id = unique("reload")
        pool.log.reload(id, "orders", "", "")
        pool.log.reload(id, "orders", "", "")
        until(lambda: bool(ended), 60.0, "an end at the step")
        pool.processes["d"].stop()
        pool.ended("d", 30.0)
        pool.start(Role.DISTRIBUTOR, "d2")
        pool.reloaded(id)
        converge(pool, table)
