"""Reading processes, subscriptions and pins under interrupts: exact at every epoch, and nothing lost or seen twice."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.embedded.reader import Reader
from belvedere.model.view_change import ViewChange
from tests.interrupts.injecting import Injected, Injector

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Moments:
    """Random moments of calls; about every third call is over before."""

    def __init__(self, seed: int, *, real: bool = False):
        self._random, self._real = random.Random(seed), real
        self._lengths: dict[str, int] = {}

    def interrupt(self, name: str, call: Callable[[], Any]) -> bool:
        """Run a call; true if it was interrupted."""
        length = self._lengths.get(name, 100)
        injector = Injector(self._random.randint(1, length + length // 2), real=self._real)
        try:
            injector.run(call)
        except Injected:
            self._lengths[name] = max(length, injector.count)
            return True
        self._lengths[name] = max(10, injector.count)
        return False


@pytest.fixture
def db(tmp_path: Path) -> Database:
    made = belvedere.open(tmp_path, sync=False)
    made.execute("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id))")
    made.execute("CREATE MATERIALIZED VIEW s AS SELECT id, v * 2 AS d FROM t")
    return made


def storm_of_reads(db: Database, path: Path, seed: int, steps: int) -> int:
    chosen, moments, count = random.Random(seed), Moments(seed), 0
    reader: Reader = belvedere.open(path, read_only=True)
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: reader.get("s", 1),
        "scan": lambda: reader.scan("s"),
        "base": lambda: reader.scan("t"),
        "snapshot": lambda: reader.snapshot().scan("s"),
        "subscribe": lambda: reader.subscribe("s"),
        "epoch": lambda: reader.epoch,
        "status": lambda: reader.status(),
        "catalog": lambda: reader.catalog,
    }
    for step in range(steps):
        token = db.put("t", [{"id": chosen.randrange(20), "v": step} for _ in range(3)])
        if step % 40 == 39:
            db.wait(token)
            db.checkpoint()
        name = chosen.choice(list(calls))
        count += moments.interrupt(name, calls[name])
        db.wait(token)
        assert reader.scan("s", after=token, timeout=60).equals(db.scan("s"))
        assert reader.scan("t").equals(db.scan("t"))
    gc.collect()
    assert reader.status()["pins"] == []
    reader.close()
    assert not list((path / "leases").glob("*"))
    db.close()
    return count


def test_a_reading_process_is_exact_after_an_interrupt(db: Database, tmp_path: Path) -> None:
    assert storm_of_reads(db, tmp_path, 3, 120) > 60


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 110))
def test_a_reading_process_is_exact_after_many_interrupts(db: Database, tmp_path: Path, seed: int) -> None:
    assert storm_of_reads(db, tmp_path, seed, 1500) > 700


@pytest.mark.parametrize("read_only", [False, True])
def test_a_subscription_goes_on_after_interrupts_without_losing_or_repeating_a_change(
    db: Database, tmp_path: Path, read_only: bool
) -> None:
    source: Any = belvedere.open(tmp_path, read_only=True) if read_only else db
    subscription = source.subscribe("s", timeout=20)
    epochs, steps = [], 8 if read_only else 40  # a reader that was interrupted loads again, which takes longer
    for step in range(steps):
        db.wait(db.put("t", [{"id": step, "v": step}]))
        epochs.append(db.epoch)
    seen: list[ViewChange] = []
    moments, stops = Moments(5, real=True), 0
    while len(seen) < len(epochs):
        before = len(seen)
        stopped = moments.interrupt("next", lambda: seen.append(next(subscription)))
        stops += stopped
        assert len(seen) == before + (not stopped)
    assert [change.epoch for change in seen] == epochs and stops > steps // 2
    assert [change.added.to_pydict()["id"] for change in seen] == [[step] for step in range(steps)]
    if read_only:
        source.close()
    db.close()


def test_a_pin_goes_with_its_holder(db: Database) -> None:
    snapshot, subscription = db.snapshot(), db.subscribe("s")
    assert len(db.status()["pins"]) == 2
    del snapshot
    assert [pin["purpose"] for pin in db.status()["pins"]] == ["subscription"]
    subscription.close()
    assert db.status()["pins"] == []
    db.close()


def test_a_database_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    db = belvedere.open(tmp_path, sync=False)
    db.execute("CREATE TABLE t (id BIGINT, PRIMARY KEY (id))")
    db.put("t", [{"id": 1}])
    instance = db._instance
    del db
    gc.collect()
    assert instance._changed.wait_for(lambda: instance._ended, 20)
    with belvedere.open(tmp_path) as again:
        assert again.get("t", 1) == {"id": 1}
