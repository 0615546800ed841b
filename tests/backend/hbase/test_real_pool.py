"""Whole pools over a real HBase: real processes, an application that writes with happybase, and who reads the views."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from belvedere import errors
from belvedere.backend.hbase.local.cluster import LocalHBase
from tests.backend.hbase.followed_pool import MANIFEST, UserTable, expected, key
from tests.backend.hbase.real_pool import RealPool, real_pool
from tests.backend.hbase.server import unique
from tests.cluster.real import until


@pytest.mark.parametrize("options", ["", "?state=served"])
def test_views_over_a_table_that_was_there(hbase: LocalHBase, tmp_path: Path, options: str) -> None:
    """Rows that were there, those that are written, and deletes of a cell, a column and a row."""
    table = UserTable(hbase, unique("orders"))
    try:
        table.put_many({id: {"customer": id % 7, "total": f"{id % 11}.00", "hits": id} for id in range(500)})
        with real_pool(hbase, tmp_path, options) as pool:
            pool.db.apply_manifest(MANIFEST.format(table=table.name))
            assert {name: pool.rows(name) for name in ("spend", "big")} == expected(table.rows())
            assert pool.db.get("orders", 3) == {"id": 3, "customer": 3, "total": Decimal("3.00"), "hits": 3}
            table.put(1, total="100.00")
            table.put(1000, customer=3)
            table.delete(2)
            table.delete(3, "total")
            table.table.counter_inc(b"\0" * 7 + b"\5", "n:hits", 10)
            pool.converge(lambda: expected(table.rows()))
            assert pool.db.get("orders", 2) is None
            _look_back(pool, table)
            assert (pool.cluster.directory / "store").exists() == bool(options)
            assert any(str(name).startswith(f"{pool.namespace}:spend.") for name in pool.admin.tables(pool.namespace))
    finally:
        table.close()


def _look_back(pool: RealPool, table: UserTable) -> None:
    """Older epochs, changes since, and several reads at one, of rows that have been written more often than HBase keeps
    versions."""
    before, start = pool.rows("big"), pool.db.epoch
    for number in range(6):
        table.put(7, customer=1, total=f"{number + 50}.00")
        until(lambda n=number: pool.db.get("big", 7)["total"] == n + 50, 60.0, "a row that was written")  # type: ignore[misc]
    assert sorted((tuple(row.values()) for row in pool.db.scan("big", at=start).to_pylist()), key=repr) == before
    with pool.db.snapshot() as snapshot:
        for number in range(6):
            table.put(7, customer=1, total=f"{number + 90}.00")
            until(lambda n=number: pool.db.get("orders", 7)["total"] == n + 90, 60.0, "a base row")  # type: ignore[misc]
        assert snapshot.get("orders", 7)["total"] == snapshot.get("big", 7)["total"] == 55
    added = []
    for change in pool.db.subscribe("big", after=start, timeout=20.0):
        added += [int(row["total"]) for row in change.added.to_pylist()]
        if added[-1] == 95:
            break
    assert added == [*range(50, 56), *range(90, 96)]


@pytest.mark.parametrize("way", ["", "?thrift="])
def test_sessions_and_those_who_write_elsewhere(hbase: LocalHBase, tmp_path: Path, way: str) -> None:
    """A session reads what it wrote; whoever wrote with another client waits for the row and its timestamp."""
    table = UserTable(hbase, unique("orders"))
    try:
        options = way + "{}:{}".format(*hbase.thrift) if way else ""
        with real_pool(hbase, tmp_path, options, distributors=1) as pool, pool.db.session() as session:
            pool.db.apply_manifest(MANIFEST.format(table=table.name))
            for number in range(5):
                session.put("orders", {"id": 1, "customer": 7, "total": f"{number + 10}.50", "hits": number})
                assert session.get("big", 1)["total"] == Decimal(f"{number + 10}.50")
            assert table.rows() == {1: {"customer": 7, "total": "14.50", "hits": 4}}
            session.put("orders", [{"id": 1, "total": None}, {"id": 2, "customer": 7, "total": "6.00"}])
            assert session.get("spend", 7) == {"customer": 7, "n": 2, "total": Decimal("6.00"), "hits": 4}
            session.delete("orders", [1])
            session.put("orders", {"id": 1, "hits": 9})  # in the millisecond of the delete, if HBase is quick
            assert session.get("big", 1) == {"id": 1, "customer": None, "total": None, "hits": 9}
            assert not session.token.positions, "what was read needs no list of rows"

            table.put(3, customer=8, total="9.00")
            (written,) = {ts for _, ts in table.table.row(key(3), include_timestamp=True).values()}
            token = pool.db.wait_for("orders", 3, written, timeout=60.0)
            assert pool.db.get("big", 3, after=str(token))["total"] == 9
            with pytest.raises(errors.NotYet, match=r"is not committed after 0\.5 s"):
                pool.db.wait_for("orders", 3, written + 1, timeout=0.5)
            with pytest.raises(errors.CatalogError, match="'spend' is a view"):
                pool.db.wait_for("spend", 7, written)

            many = [{"id": number, "customer": 1, "total": "5.00"} for number in range(100, 300)]
            assert session.put("orders", many).epoch, "so many rows are named by an epoch"
            assert session.get("spend", 1)["n"] == 200
    finally:
        table.close()
