"""Pins of one connection that has several: one that came too late does not take the others with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from belvedere.backend.memory import Moment
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.pins import Pins
from belvedere.errors import EpochExpired, StoreUnavailable, ViewReplaced
from belvedere.protocol.messages import Epoch
from belvedere.protocol.pins import PINS, PinDocument, horizon_document
from tests.cluster.client_pool import ORDERS, SPEND, create, order
from tests.cluster.fake_pool import FakePool


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def pinned(pool: FakePool) -> list[int]:
    pins = [PinDocument.parse(name) for name in pool.store.list_documents(PINS)]
    return [pin.epoch for pin in pins if pin is not None]


def sleep_an_hour(pool: FakePool, db: ClusterDatabase) -> None:
    """Longer than any lease: pins were not renewed, and what they protected is gone."""
    db.pins._since -= 3_600_000
    pool.store.remove_documents(pool.store.list_documents(PINS))
    with pool.connect() as other:
        other.put("orders", order(1, 8, "1"))
    pool.collect(pool.step().epoch)


def test_who_slept_can_pin_again_although_old_readers_are_still_there(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    old, followed = db.snapshot(), db.subscribe("spend", timeout=0.05)
    sleep_an_hour(pool, db)
    fresh = db.subscribe("spend", timeout=0.05)
    with db.snapshot(timeout=5.0) as snapshot:
        assert pinned(pool) == [snapshot.epoch]
        pool.collect(pool.step().epoch)
        assert snapshot.scan("orders").num_rows == 1
    assert list(fresh) == []
    with pytest.raises(EpochExpired):
        old.scan("orders")
    with pytest.raises(EpochExpired):
        next(followed)
    assert list(followed) == [], "it has ended"


def test_renewals_go_on_without_a_holder_that_is_too_late(pool: FakePool, db: ClusterDatabase) -> None:
    first, second = db.epoch, pool.step().epoch
    pins = Pins(db.stores, 10.0, lease_ms=200)
    held = [pins.pin(first), pins.pin(second)]
    assert pinned(pool) == [first]
    pool.store.put_document(horizon_document(Epoch(second)), b"")
    until(lambda: pinned(pool) == [second])
    before = pool.store.list_documents(PINS)
    until(lambda: pool.store.list_documents(PINS) != before)
    with pytest.raises(EpochExpired, match=f"epoch {first}: .*the oldest epoch that is still kept is {second}"):
        pins.pin(first)
    held.append(pins.pin(second))
    pins.close()
    assert not pinned(pool)


@pytest.fixture
def frozen(pool: FakePool, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """(The renewal of a pin hangs in the store, it may go on)."""
    monkeypatch.setattr("belvedere.cluster.client.pins.MARGIN_MS", 0)
    hangs, thawed = threading.Event(), threading.Event()

    def strike(call: str, moment: Moment) -> None:
        if call == "put_document" and threading.current_thread().name == "belvedere-pins":
            hangs.set()
            thawed.wait(30)

    pool.store.faults = strike
    return hangs, thawed


def test_a_pin_that_is_about_to_be_replaced_protects_nobody_new(
    pool: FakePool, db: ClusterDatabase, frozen: tuple[threading.Event, threading.Event]
) -> None:
    hangs, thawed = frozen
    first, second = db.epoch, pool.step().epoch
    pins = Pins(db.stores, 10.0, lease_ms=4_000)
    number = pins.pin(first)
    pins.move(number, second)
    pool.store.put_document(horizon_document(Epoch(second)), b"")
    assert pins.protects(first) and hangs.wait(60)
    threading.Timer(0.2, thawed.set).start()
    with pytest.raises(EpochExpired):
        pins.pin(first)
    pins.close()


def test_a_pin_does_not_wait_for_another_one_for_longer_than_it_may(
    pool: FakePool, db: ClusterDatabase, frozen: tuple[threading.Event, threading.Event]
) -> None:
    hangs, thawed = frozen
    create(pool, db, ORDERS)
    db.pins = Pins(db.stores, 10.0, lease_ms=400)
    with db.snapshot():
        assert hangs.wait(60)
        with pytest.raises(StoreUnavailable, match=r"gave up after 0\.2 s: another pin is still being written"):
            db.snapshot(timeout=0.2)
        thawed.set()


def test_a_subscription_that_cannot_go_on_lets_go_of_its_pin(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    subscription = db.subscribe("spend")
    create(pool, db, "DROP MATERIALIZED VIEW spend")
    with pytest.raises(ViewReplaced):
        next(subscription)
    until(lambda: not pinned(pool))
    assert list(subscription) == []
