"""The client and time: calls end when they should, and what has expired while a machine slept is not believed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from belvedere.backend.memory import Moment
from belvedere.backend.seam import Backend, BaseTables
from belvedere.backend.served.client import FlightStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.cluster.client import reading
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.pins import Pins
from belvedere.cluster.transport.loopback import LoopbackTransport
from belvedere.errors import CatalogError, DiskError, EpochExpired, PeerUnavailable, StoreUnavailable
from belvedere.protocol.pins import horizon_document
from belvedere.protocol.ring import MemberId
from tests.cluster.client_pool import ORDERS, SPEND, create, order
from tests.cluster.fake_pool import FakePool


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def sleep_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a laptop does: CLOCK_MONOTONIC stands still meanwhile, CLOCK_BOOTTIME does not."""
    clock = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda which: clock(which) + 3600)


def test_a_pin_does_not_outlive_the_sleep_of_the_machine(
    pool: FakePool, db: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    with db.snapshot() as snapshot:
        sleep_an_hour(monkeypatch)
        pool.store.remove_documents(pool.store.list_documents("pins/"))
        with pool.connect() as other:
            other.put("orders", order(1, 8, "1"))
        pool.collect(pool.step().epoch)
        with pytest.raises(EpochExpired):
            snapshot.scan("spend")


def test_an_epoch_is_not_fresh_after_the_machine_slept(
    pool: FakePool, db: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = db.epochs.newest(db.deadline())
    assert db.epochs.fresh(known, db.deadline())
    sleep_an_hour(monkeypatch)
    assert not db.epochs.fresh(known, db.deadline())
    epoch = pool.step().epoch
    assert db.epochs.newest(db.deadline(), 60.0).epoch == epoch


@pytest.mark.parametrize("read", ["scan", "select", "verify", "quarantine"])
def test_a_read_that_takes_longer_than_the_retention_is_done_with_the_second_try(read: str) -> None:
    """The pool commits and collects while it reads, whenever it does."""
    pool = FakePool(retention_ms=1)
    with pool.connect() as db, pool.connect() as other:
        create(pool, db, ORDERS, SPEND)
        db.put("orders", order(1, 7, "1"))
        pool.step()
        scan, scans = pool.store.scan, []

        def slow(table: str, *arguments: Any) -> Iterator[Any]:
            scans.append(table)
            assert len(scans) < 20
            other.put("orders", order(1, 7, str(len(scans))))
            pool.collect(pool.step().epoch)
            time.sleep(0.01)
            yield from scan(table, *arguments)

        pool.store.scan = slow  # type: ignore[method-assign]
        calls: dict[str, Callable[[], bool]] = {
            "scan": lambda: db.scan("spend").num_rows == 1,
            "select": lambda: db.execute("SELECT * FROM spend").num_rows == 1,
            "verify": lambda: db.verify().ok,
            "quarantine": lambda: db.quarantine("spend").num_rows == 0,
        }
        assert calls[read]()
        until(lambda: not pool.store.list_documents("pins/"))


def test_an_unknown_name_is_refused_although_every_answer_tells_of_a_newer_epoch(
    pool: FakePool, db: ClusterDatabase
) -> None:
    create(pool, db, ORDERS)
    ask, asked = pool._ask, []

    def slow(*arguments: Any) -> bytes:
        if len(asked) < 20:
            asked.append(pool.step())
        return ask(*arguments)

    pool._ask = slow  # type: ignore[method-assign]
    with pytest.raises(CatalogError, match="no table or view 'nowhere'"):
        db.get("nowhere", 1)
    assert len(asked) == 2


def test_a_name_that_has_just_come_is_found(pool: FakePool) -> None:
    with pool.connect() as db, pool.connect(max_age=3600) as idle:
        assert not idle.catalog.tables
        create(pool, db, ORDERS, SPEND)
        assert idle.scan("spend").num_rows == 0


# ---------------------------------------------------------------------- timeouts


@pytest.fixture
def remote(pool: FakePool) -> Iterator[ClusterDatabase]:
    """A client whose store is behind a connection that would wait for long."""
    server = StoreServer([StoreService(pool.store)])

    def open_store(_: str, address: str) -> Backend:
        store = FlightStore(server.address, timeout=60.0)
        return Backend(address, store, cast(BaseTables, pool), store.within)

    seeds = [coordinator.address for coordinator in pool.coordinators]
    with ClusterDatabase(seeds, pool.hub.transport(MemberId("client")), open_store, timeout=60.0) as db:
        yield db
    server.close()


@pytest.mark.parametrize("call", ["get", "scan", "snapshot"])
def test_a_call_ends_with_its_timeout_when_the_store_is_frozen(
    pool: FakePool, remote: ClusterDatabase, call: str
) -> None:
    create(pool, remote, ORDERS)
    remote.get("orders", 1)
    thawed = threading.Event()

    to_the_end: list[str] = []

    def strike(name: str, moment: Moment) -> None:
        if name in ("read", "range", "put_document") and not thawed.wait(120):
            to_the_end.append(name)

    calls = {
        "get": lambda: remote.get("orders", 1, timeout=0.4),
        "scan": lambda: remote.scan("orders", timeout=0.4),
        "snapshot": lambda: remote.snapshot(timeout=0.4),
    }
    pool.store.faults = strike
    try:
        with pytest.raises(StoreUnavailable, match=r"gave up after 0\.4 s"):
            calls[call]()
        assert not to_the_end, "nobody waited until the store went on"
    finally:
        pool.store.faults = None
        thawed.set()


def test_a_scan_without_a_timeout_of_its_own_goes_on_while_rows_come(
    pool: FakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RANGE_ROWS", 25)
    with pool.connect(timeout=0.5) as db:
        create(pool, db, ORDERS)
        db.put("orders", [order(n, n, "1") for n in range(100)])
        pool.step()
        read_range = pool.store.range
        broken: list[int] = []

        def slow(*arguments: Any) -> Iterator[Any]:
            time.sleep(0.2)
            if not broken:
                broken.append(1)
                raise StoreUnavailable("the connection is gone")
            yield from read_range(*arguments)

        pool.store.range = slow  # type: ignore[method-assign]
        began = time.monotonic()
        assert db.scan("orders").num_rows == 100
        assert time.monotonic() - began > 0.5, "longer than a call may take in which nothing comes"
        broken.clear()
        with pytest.raises(StoreUnavailable, match=r"reading .* gave up after 0\.1 s: the connection is gone"):
            db.scan("orders", timeout=0.1)


def test_a_scan_that_breaks_off_again_and_again_is_not_a_storm(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS)
    asked: list[int] = []
    topology = pool._topology
    pool._topology = lambda transport: asked.append(1) or topology(transport)  # type: ignore[method-assign,func-returns-value]

    def broken(*_: Any) -> Iterator[Any]:
        raise StoreUnavailable("the connection is gone")
        yield

    pool.store.range = broken  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match=r"reading .* gave up after 1 s: the connection is gone"):
        db.scan("orders", timeout=1.0)
    assert 2 <= len(asked) < 20


def test_a_view_server_that_is_silent_is_asked_once_and_not_for_long(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    pool.server_sleeps = 5.0
    began = time.monotonic()
    for _ in range(5):
        row = db.get("spend", 7, timeout=0.5)
        assert row is not None and row["n"] == 1
    assert time.monotonic() - began < 5.0 and pool.asked_server == 1
    pool.server_sleeps = 0.0
    db.rows._silent.clear()  # as if some seconds had passed
    assert db.get("spend", 7) == row and pool.served == 1


def test_a_change_of_the_catalog_ends_with_the_timeout(pool: FakePool) -> None:
    thawed = threading.Event()

    to_the_end: list[Any] = []

    def freeze(*_: Any) -> bytes:
        if not thawed.wait(120):
            to_the_end.append(_)
        raise PeerUnavailable("too late")

    pool._ddl = freeze  # type: ignore[method-assign]
    with pool.connect(timeout=0.3) as db:
        with pytest.raises(
            PeerUnavailable, match=r"gave up after 0\.3 s: .*; the change may have happened all the same"
        ):
            db.execute(ORDERS)
        assert not to_the_end
    thawed.set()


def test_a_change_of_the_catalog_has_time_for_the_next_leader(pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one vanished without a word, after it had made the change."""
    monkeypatch.setattr("belvedere.cluster.client.pool.CALL_SECONDS", 0.2)
    change, thawed = pool._ddl, threading.Event()
    vanished = pool.leader

    def freeze(asked: LoopbackTransport, request: bytes) -> bytes:
        found = change(asked, request)
        if asked is vanished:
            pool.leader = pool.coordinators[1]
            thawed.wait(30)
        return found

    pool._ddl = freeze  # type: ignore[method-assign]
    with pool.connect(timeout=3.0) as db:
        db.execute(ORDERS)
        assert list(db.catalog.tables) == ["orders"] and db.status()["leader"] == "two"
    thawed.set()


# ---------------------------------------------------------------------- pins


def test_the_collector_may_come_while_pins_are_locked(pool: FakePool, db: ClusterDatabase) -> None:
    """A loop that is left leaves a subscription to the collector, which runs where something is allocated."""
    create(pool, db, ORDERS, SPEND)
    pins = db.pins = Pins(db.stores, 10.0, lease_ms=200)
    left = [db.subscribe("spend")]

    def collect() -> None:
        with pins._lock:
            left.clear()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(5)
    assert not left and not thread.is_alive()
    until(lambda: not pool.store.list_documents("pins/"))


def test_pins_are_renewed_whatever_went_wrong_before(pool: FakePool, db: ClusterDatabase) -> None:
    pins = Pins(db.stores, 10.0, lease_ms=200)
    held = pins.pin(db.epoch)
    failed: list[str] = []

    def strike(call: str, moment: Moment) -> None:
        if call == "put_document" and not failed:
            failed.append(call)
            raise DiskError("no room")

    pool.store.faults = strike
    before = pool.store.list_documents("pins/")
    until(lambda: bool(failed) and pool.store.list_documents("pins/") != before)
    pins.unpin(held)
    pins.close()
    assert not pool.store.list_documents("pins/")


def test_a_pin_that_the_leader_spared_is_renewed_below_the_horizon(pool: FakePool, db: ClusterDatabase) -> None:
    """It came when the leader had chosen the horizon and not written it yet."""
    epoch = db.epoch
    number = db.pins.pin(epoch)
    (before,) = pool.store.list_documents("pins/")
    pool.store.put_document(horizon_document(pool.step().epoch), b"")
    db.pins._write(db.deadline())
    (after,) = pool.store.list_documents("pins/")
    assert after != before and db.pins.protects(epoch)
    db.pins.unpin(number)


def test_closing_does_not_wait_for_a_store_that_is_frozen(
    pool: FakePool, db: ClusterDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belvedere.cluster.client.pins.CLOSE_SECONDS", 0.1)
    pins = Pins(db.stores, 10.0, lease_ms=200)
    held = pins.pin(db.epoch)
    frozen, thawed = threading.Event(), threading.Event()
    to_the_end: list[str] = []

    def strike(call: str, moment: Moment) -> None:
        if call == "put_document":
            frozen.set()
            if not thawed.wait(120):
                to_the_end.append(call)

    pool.store.faults = strike
    assert frozen.wait(60)
    pins.unpin(held)
    pins.close()
    assert not to_the_end, "the end does not wait for a renewal"
    pool.store.faults = None
    thawed.set()
