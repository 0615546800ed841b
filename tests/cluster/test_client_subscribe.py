"""Subscriptions over a cluster: exact changes, epoch by epoch, resumable, across replacements of the view."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from belvedere.cluster.client.database import ClusterDatabase
from belvedere.errors import CatalogError, EpochExpired, NotYet, ViewReplaced
from belvedere.model.view_change import ViewChange
from tests.cluster.client_pool import create
from tests.cluster.fake_pool import FakePool

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, price DOUBLE)"
SPEND = "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n, sum(price) AS total FROM orders GROUP BY 1"

MANIFEST = """
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: third}
spec: {query: "SELECT id, price FROM orders"}
"""


@pytest.fixture
def db(pool: FakePool) -> Iterator[ClusterDatabase]:
    with pool.connect() as made:
        create(pool, made, ORDERS, SPEND)
        yield made


def rows(change: ViewChange) -> list[tuple[int, Any]]:
    return [(int(w), tuple(row.values())) for w, row in zip(change.weights, change.table.to_pylist(), strict=True)]


def test_a_change_is_what_disappeared_and_what_appeared(pool: FakePool, db: ClusterDatabase) -> None:
    with_changes = db.subscribe("spend", timeout=0.05)
    db.put("orders", [{"id": 1, "customer": 7, "price": 1.0}, {"id": 2, "customer": 8, "price": 2.0}])
    first = pool.step()
    db.put("orders", {"id": 1, "customer": 8})
    second = pool.step()
    db.put("orders", {"id": 1, "customer": 8})  # nothing changes
    pool.step()
    changes = list(with_changes)
    assert [change.epoch for change in changes] == [first.epoch, second.epoch]
    assert sorted(rows(changes[0])) == [(1, (7, 1, 1.0)), (1, (8, 1, 2.0))]
    assert sorted(rows(changes[1])) == [(-1, (7, 1, 1.0)), (-1, (8, 1, 2.0)), (1, (8, 2, 3.0))]
    assert changes[1].added.to_pylist() == [{"customer": 8, "n": 2, "total": 3.0}]
    assert changes[1].removed.num_rows == 2


def test_it_is_resumed_where_it_stopped(pool: FakePool, db: ClusterDatabase) -> None:
    start = db.epoch
    epochs = []
    for n in range(6):
        db.put("orders", {"id": n, "customer": 1, "price": 1.0})
        epochs.append(pool.step().epoch)
    subscription = db.subscribe("spend", after=start, timeout=0.05)
    seen = [next(subscription).token for _ in range(2)]
    subscription.close()
    assert list(subscription) == []
    with pool.connect() as other:
        rest = [change.epoch for change in other.subscribe("SPEND", after=str(seen[-1]), timeout=0.05)]
    assert [token.epoch for token in seen] + rest == epochs


def test_after_the_token_of_a_write_come_the_changes_behind_it(pool: FakePool, db: ClusterDatabase) -> None:
    token = db.put("orders", {"id": 1, "customer": 1, "price": 1.0})
    pool.step()
    db.put("orders", {"id": 2, "customer": 1, "price": 1.0})
    pool.step()
    (change,) = db.subscribe("spend", after=token, timeout=0.05)
    assert sorted(rows(change)) == [(-1, (1, 1, 1.0)), (1, (1, 2, 2.0))]


def test_nothing_is_skipped_behind_the_token_of_a_write_of_long_ago(pool: FakePool, db: ClusterDatabase) -> None:
    token = db.put("orders", {"id": 1, "customer": 1, "price": 1.0})
    pool.step()
    db.put("orders", {"id": 2, "customer": 1, "price": 1.0})
    pool.collect(pool.step().epoch)
    pool.step()
    with pytest.raises(EpochExpired, match="what changed since may be gone"):
        db.subscribe("spend", after=token)
    assert db.get("spend", 1, at=token)["n"] == 2  # a read has all that there is


def test_the_first_write_after_a_long_pause_is_found(pool: FakePool, db: ClusterDatabase) -> None:
    pool.collect(pool.step().epoch)
    token = db.put("orders", {"id": 1, "customer": 1, "price": 1.0})
    pool.step()
    db.put("orders", {"id": 2, "customer": 1, "price": 1.0})
    pool.step()
    (change,) = db.subscribe("spend", after=token, timeout=0.05)
    assert sorted(rows(change)) == [(-1, (1, 1, 1.0)), (1, (1, 2, 2.0))]


def test_history_that_is_gone_is_refused(pool: FakePool, db: ClusterDatabase) -> None:
    start = db.epoch
    db.put("orders", {"id": 1, "customer": 1, "price": 1.0})
    pool.collect(pool.step().epoch)
    with pytest.raises(EpochExpired):
        db.subscribe("spend", after=start)
    with pytest.raises(CatalogError, match="'orders' is a base table"):
        db.subscribe("orders")
    with pytest.raises(CatalogError, match="no table or view 'x'"):
        db.subscribe("x")


def test_what_was_not_published_comes_with_the_next_epoch(pool: FakePool, db: ClusterDatabase) -> None:
    subscription = db.subscribe("spend", timeout=0.05)
    with pool.connect() as other:
        pool.publishes = False
        other.put("orders", {"id": 1, "customer": 1, "price": 1.0})
        pool.step()
        pool.publishes = True
        other.put("orders", {"id": 2, "customer": 1, "price": 1.0})
        pool.step()
    (change,) = list(subscription)
    assert rows(change) == [(1, (1, 2, 2.0))]


def test_a_row_that_is_as_it_was_is_no_change(pool: FakePool, db: ClusterDatabase) -> None:
    db.put("orders", [{"id": 1, "customer": 1, "price": 1.0}, {"id": 2, "customer": 2, "price": 1.0}])
    pool.step()
    subscription = db.subscribe("spend", timeout=0.05)
    with pool.connect() as other:
        pool.publishes = False
        other.put("orders", {"id": 1, "price": 5.0})
        pool.step()
        pool.publishes = True
        other.put("orders", [{"id": 1, "price": 1.0}, {"id": 2, "price": 2.0}])
        pool.step()
    (change,) = list(subscription)
    assert sorted(rows(change)) == [(-1, (2, 1, 1.0)), (1, (2, 1, 2.0))]


def test_a_view_that_is_replaced_with_the_same_columns_goes_on(pool: FakePool, db: ClusterDatabase) -> None:
    db.put("orders", [{"id": n, "customer": n % 3, "price": float("nan") if n else 1.0} for n in range(6)])
    pool.step()
    subscription = db.subscribe("spend", timeout=0.05)
    create(pool, db, SPEND.replace("CREATE", "CREATE OR REPLACE").replace("count(*)", "count(*) + customer"))
    db.put("orders", {"id": 9, "customer": 9, "price": 1.0})
    pool.step()
    pool.retire()
    pool.step()
    swapped, change = list(subscription)
    assert sorted((w, row[:2]) for w, row in rows(swapped)) == [(-1, (1, 2)), (-1, (2, 2)), (1, (1, 3)), (1, (2, 4))]
    assert rows(change) == [(1, (9, 10, 1.0))]


def test_a_view_with_other_columns_or_none_ends_the_subscription(pool: FakePool, db: ClusterDatabase) -> None:
    subscription = db.subscribe("spend", timeout=0.05)
    create(pool, db, "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT id, price FROM orders")
    with pytest.raises(ViewReplaced, match="got other columns or another key"):
        next(subscription)
    subscription = db.subscribe("spend", timeout=0.05)
    create(pool, db, "DROP MATERIALIZED VIEW spend")
    with pytest.raises(ViewReplaced, match="was dropped at epoch"):
        next(subscription)


# ---------------------------------------------------------------------- epochs that are published late, or never

REPLACED = SPEND.replace("CREATE", "CREATE OR REPLACE").replace("count(*)", "count(*) + customer")


def test_a_replacement_is_not_repeated_whatever_was_published_of_it(pool: FakePool, db: ClusterDatabase) -> None:
    """The publisher is slow: what names mean is published of the epochs at which it changes, not of all others."""
    db.put("orders", {"id": 1, "customer": 7, "price": 1.0})
    pool.step()
    pool.lags = True
    subscription = db.subscribe("spend", timeout=0.05)
    create(pool, db, REPLACED)
    swapped = next(subscription)
    assert sorted(rows(swapped)) == [(-1, (7, 1, 1.0)), (1, (7, 8, 1.0))]
    pool.step()
    epoch = pool.step().epoch
    assert list(subscription) == [] and subscription.epoch == epoch
    pool.step()
    threading.Timer(0.2, pool.catch_up).start()
    for last in (swapped.epoch, epoch):
        with pool.connect() as other:
            assert list(other.subscribe("spend", after=last, timeout=0.05)) == []
    assert not [e for e, _ in pool.store.changed("committed", epoch - 1, epoch)], "it was left out"


def test_an_epoch_behind_which_nothing_is_published_is_waited_for(pool: FakePool) -> None:
    with pool.connect(timeout=0.3) as db:
        create(pool, db, ORDERS, SPEND)
        pool.lags = True
        last = pool.step().epoch
        pool.step()
        with pytest.raises(NotYet, match=f"epoch {last} is committed, but neither it nor a later one is published"):
            db.subscribe("spend", after=last)


def test_a_view_is_followed_from_its_creation_on(pool: FakePool, db: ClusterDatabase) -> None:
    with pool.running():
        token = db.execute(SPEND.replace("spend", "other"))
        (manifested,) = db.apply_manifest(MANIFEST)
    db.put("orders", {"id": 1, "customer": 7, "price": 1.0})
    pool.step()
    for view, after in (("other", token), ("third", manifested)):
        with pool.connect() as other:
            (change,) = other.subscribe(view, after=after, timeout=0.05)
            assert change.added.num_rows == 1


def test_a_view_is_followed_from_a_snapshot_that_was_never_published(pool: FakePool, db: ClusterDatabase) -> None:
    pool.lags = True
    create(pool, db, SPEND.replace("spend", "other"))
    pool.step()
    with db.snapshot() as snapshot:
        db.put("orders", {"id": 1, "customer": 7, "price": 1.0})
        newest = pool.step().epoch
        pool.catch_up()
        pool.collect(newest)
        assert snapshot.scan("other").num_rows == 0
        (change,) = db.subscribe("other", after=snapshot.epoch, timeout=0.05)
        assert rows(change) == [(1, (7, 1, 1.0))]


@pytest.mark.parametrize("seed", range(6))
def test_changes_add_up_to_the_view(pool: FakePool, db: ClusterDatabase, seed: int) -> None:
    rng = random.Random(seed)
    subscription = db.subscribe("spend", timeout=0.05)
    rows_now: Counter[Any] = Counter()
    states: dict[int, Counter[Any]] = {}
    for _ in range(12):
        for _ in range(rng.randrange(4)):
            if rng.random() < 0.3:
                db.delete("orders", rng.randrange(12))
            else:
                db.put("orders", {"id": rng.randrange(12), "customer": rng.randrange(4), "price": rng.random()})
        pool.publishes = rng.random() < 0.8
        epoch = pool.step().epoch
        if pool.publishes:
            states[epoch] = Counter(tuple(row.values()) for row in db.scan("spend").to_pylist())
        if rng.random() < 0.3:
            for change in subscription:
                rows_now = _applied(rows_now, change, states)
            subscription = db.subscribe("spend", after=subscription.epoch, timeout=0.05)
    for change in subscription:
        rows_now = _applied(rows_now, change, states)
    assert rows_now == Counter(tuple(row.values()) for row in db.scan("spend").to_pylist())


def _applied(before: Counter[Any], change: ViewChange, states: dict[int, Counter[Any]]) -> Counter[Any]:
    after = Counter(before)
    for weight, row in rows(change):
        after[row] += weight
        assert after[row] in (0, 1)
    after = +after
    assert states.get(change.epoch, after) == after
    return after
