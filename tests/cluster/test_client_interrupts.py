"""Interrupts in calls of a client: it goes on, and holds nothing that nobody needs."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from belvedere.cluster.client.database import ClusterDatabase
from belvedere.errors import Closed
from tests.cluster.client_pool import ORDERS, SPEND, create
from tests.cluster.fake_pool import FakePool
from tests.interrupts.injecting import Injected, Injector

# What is raised in a callback of the collector is reported and dropped.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

# The transport in memory starts a thread per call, with all of Python's Conditions; the real one is C++.
# In a callback of a weak reference Python drops the exception, and pytest keeps it with all frames and what they hold.
SPARED = ("threading.py", "loopback.py", "_weakrefset.py")


def interrupted(chosen: random.Random, length: int, call: Callable[[], Any]) -> bool:
    try:
        Injector(chosen.randint(1, length), spared=SPARED).run(call)
    except Injected:
        return True
    return False


def test_reads_and_pins_go_on_after_interrupts(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    calls: list[Callable[[], Any]] = [
        lambda: db.snapshot().scan("spend"),
        lambda: db.subscribe("spend"),
        lambda: db.get("spend", 1),
        lambda: db.scan("spend"),
        lambda: db.pins.pin(db.epoch),
    ]
    chosen, count = random.Random(7), 0
    for call in calls:
        counter = Injector(spared=SPARED)
        counter.run(call)
        for _ in range(30):
            count += interrupted(chosen, counter.count, call)
            with db.snapshot(timeout=20) as snapshot:
                assert snapshot.epoch == db.epoch
    assert count > 100
    gc.collect()
    with db.pins._lock:
        db.pins._let_go()
        assert not db.pins._held, "what the store has of them ends with its lease"


@pytest.mark.parametrize("seed", range(20))
def test_a_close_that_was_interrupted_can_be_finished(pool: FakePool, db: ClusterDatabase, seed: int) -> None:
    closed: list[bool] = []
    db._on_close = lambda: closed.append(True)
    snapshot = db.snapshot()
    interrupted(random.Random(seed), 120, lambda: db.close())
    db.close()
    assert closed and not pool.store.list_documents("pins/")
    with pytest.raises(Closed):
        snapshot.scan("orders")
