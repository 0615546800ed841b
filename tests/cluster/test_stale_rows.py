"""`allow_stale` in a pool: the last good rows of a view that has failed, before and after a collection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.seam import RowShape, Store, TableWrite
from belvedere.cluster.catalog import catalogs, names
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.roles.void_rows import VoidRows, _keys
from belvedere.errors import CatalogError, ViewFailed
from belvedere.protocol.messages import Epoch
from tests.backend.conformance.conftest import make
from tests.cluster.client_pool import ORDERS, SPEND, create, order
from tests.cluster.fake_pool import FakePool

OTHER = "CREATE MATERIALIZED VIEW other AS SELECT id, customer FROM orders"
GOOD = [{"customer": 7, "n": 2}, {"customer": 8, "n": 1}]


def read(db: Any, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = db.scan("spend", columns=["customer", "n"], allow_stale=True, **options).to_pylist()
    return found


def failed(pool: FakePool) -> Epoch:
    """The pool's next epoch goes through without `spend`, after attempts that had written some of its rows."""
    assert pool.plan is not None
    before, epoch = pool.document, Epoch(pool.plan.epoch + 1)
    writes = attempt(pool)
    pool._change(catalogs.fail(before, {("spend", 1): "a bug"}, (), epoch, catalogs.version(before) + 1))
    pool.store.write(epoch, writes)
    while pool.step().epoch < epoch:
        pass
    assert catalogs.failed_at(pool.document, ())
    return epoch


def attempt(pool: FakePool) -> list[TableWrite]:
    """One row with other values, one that is removed, one that there was not before."""
    (shape,) = [one.shape for name, one in catalogs.names_at(pool.document, ()).items() if name == "spend"]
    table = "view spend 1"
    (found,) = pool.store.scan(table, 0, 1 << 14, 1 << 60)
    ids, values = found
    new = np.array([[1 << 20, 5]], np.uint64)
    keys = _keys(shape, ids, values).to_pylist()
    assert len(ids) == 2
    write = TableWrite(
        table,
        np.concatenate([ids, new]),
        pa.array([values[1].as_py(), None, values[1].as_py()], pa.binary()),
        True,
        pa.array([*keys, b"\x01\x80\0\0\0\0\0\0\x63"], pa.binary()),
        shape=RowShape(shape.schema, shape.key),
        before=pa.array([*values.to_pylist(), None], pa.binary()),
    )
    return [write]


@pytest.fixture
def orders(pool: FakePool, db: ClusterDatabase) -> ClusterDatabase:
    create(pool, db, ORDERS, SPEND, OTHER)
    db.put("orders", [order(1, 7, "1.00"), order(2, 7, "2.00"), order(3, 8, "3.00")])
    pool.step()
    return db


def test_stale_rows_are_those_of_before_the_failure_for_ever(pool: FakePool, orders: ClusterDatabase) -> None:
    db, before = orders, orders.epoch
    assert read(db) == GOOD, "of a view in service, the newest rows"
    token = db.put("orders", order(4, 9, "4.00"))
    epoch = failed(pool)
    for _ in range(2):
        with pytest.raises(ViewFailed, match="a bug"):
            db.get("spend", 7)
        assert read(db) == read(db, after=before) == GOOD
        assert (found := db.get("Spend", 7, allow_stale=True)) and found["n"] == 2
        assert db.get("spend", 9, allow_stale=True) is None
        assert db.lookup("spend", 8, columns=["n"], allow_stale=True).to_pylist() == [{"n": 1}]
        assert [column.name for column in db.key_columns("spend")] == ["customer"]
        for after in (token, epoch):
            with pytest.raises(ViewFailed, match=f"its rows are those of epoch {epoch - 1}, and the answer is to"):
                read(db, after=after)
        # now a leader collects, with a horizon behind all that was written
        horizon = pool.step().epoch
        assert VoidRows(pool.store).take_back(pool.document, horizon) in (0, 3)
        pool.collect(horizon)
    assert pool.store.collected() >= epoch
    create(pool, db, SPEND.replace("CREATE", "CREATE OR REPLACE"))
    assert read(db) == [*GOOD, {"customer": 9, "n": 1}]
    db.execute("DROP MATERIALIZED VIEW spend", wait=False)
    pool.step()
    with pytest.raises(CatalogError):
        read(db)


def test_without_taking_back_the_last_good_rows_are_lost(pool: FakePool, orders: ClusterDatabase) -> None:
    """What the test above would not notice if there were no void rows."""
    failed(pool)
    pool.collect(pool.step().epoch)
    assert read(orders) != GOOD
    pool.collect(pool.step().epoch)
    assert read(orders) != GOOD


def test_a_session_gets_no_stale_rows_once_it_has_read_or_written_later(
    pool: FakePool, orders: ClusterDatabase
) -> None:
    db = orders
    fresh, reading, writing = db.session(), db.session(), db.session()
    assert reading.get("spend", 7)["n"] == 2
    failed(pool)
    for session in (fresh, reading, writing):
        assert read(session) == GOOD == read(session)
    assert len(reading.scan("other")) == 3
    writing.put("orders", order(5, 7, "1.00"))
    pool.step()
    for session in (reading, writing):
        with pytest.raises(ViewFailed, match="the answer is to include later ones"):
            read(session)
    assert read(fresh) == GOOD


@pytest.fixture(params=["memory", "images", "lmdb", "small", "flight"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with ExitStack() as stack:
        yield make(request.param, tmp_path / "store", stack, request)


def test_void_rows_are_taken_back_in_every_store(store: Store) -> None:
    """In both epochs that may have been open; who does it again, also after the collection, changes nothing."""
    document = catalogs.execute(catalogs.execute(catalogs.empty(), ORDERS), OTHER)
    assert document is not None
    document = catalogs.fail(document, {("other", 1): "a bug"}, (), 20, 9)
    (view,) = [one.view for one in names.failed_at(document, ()).values()]
    ids = np.array([[n, n] for n in range(4)], np.uint64)
    packed = [b"one", b"two", b"three"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("belvedere.cluster.roles.void_rows._keys", lambda _, ids, __: keys.take(pa.array(ids[:, 0])))
        keys = pa.array([b"k%d" % n for n in range(4)], pa.binary())

        def write(epoch: int, at: list[int], values: list[bytes | None], before: list[bytes | None]) -> None:
            where, images = np.array(at), pa.array(before, pa.binary()) if store.previous_images else None
            shape = RowShape(view.shape.schema, view.shape.key)
            content = pa.array(values, pa.binary())
            store.write(
                epoch, [TableWrite(view.rows_table, ids[where], content, True, keys.take(where), None, shape, images)]
            )

        write(10, [0, 1, 2], list(packed), [None] * 3)
        write(20, [0, 3], [b"void", b"void"], [packed[0], None])
        write(21, [1, 3], [None, b"worse"], [packed[1], b"void"])
        leader = VoidRows(store)
        assert leader.take_back(document, Epoch(19)) == 0
        assert leader.take_back(document, Epoch(30)) == 4 and leader.take_back(document, Epoch(31)) == 0
        for collected in (False, True):
            if collected:
                store.collect(30, 30)
            values = store.read(view.rows_table, ids, 1 << 40).to_pylist()
            assert values == [*packed, None]
            assert VoidRows(store).take_back(document, Epoch(30)) == (0 if collected else 2)
