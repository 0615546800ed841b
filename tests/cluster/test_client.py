"""The client of a cluster against a pool in one process: reads, writes, tokens, snapshots, DDL, failures on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest

import belvedere
from belvedere.backend.memory import Moment
from belvedere.backend.seam import Backend, BaseTables
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.token import ClusterToken
from belvedere.cluster.roles import quarantine_counts
from belvedere.errors import (
    BelvedereError,
    CatalogError,
    Closed,
    DataError,
    EpochExpired,
    NotYet,
    PeerUnavailable,
    SqlError,
    StoreUnavailable,
    Unavailable,
)
from belvedere.protocol.messages import Member, Role
from belvedere.protocol.ring import MemberId
from tests.cluster.client_pool import ORDERS, SPEND, create, order
from tests.cluster.fake_pool import STORE_ADDRESS, FakePool


def test_a_read_after_a_write_includes_it(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    token = db.put("orders", [order(1, 7, "9.50"), order(2, 8, "1")])
    with pytest.raises(NotYet) as late:
        db.get("spend", 7, after=token, timeout=0.05)
    assert late.value.lag >= 0
    assert db.get("spend", 7) is None
    pool.step()
    assert db.get("spend", 7, after=token) == {"customer": 7, "n": 1, "total": Decimal("9.50")}
    assert db.get("SPEND", {"customer": 8}, after=str(token)) == {"customer": 8, "n": 1, "total": Decimal("1.00")}
    assert db.get("orders", 2) == {"id": 2, "customer": 8, "total": Decimal("1.00")}
    token = db.delete("orders", [1])
    pool.step()
    assert db.get("spend", 7, after=token) is None
    assert db.get("orders", 1) is None
    assert db.scan("orders").to_pylist() == [{"id": 2, "customer": 8, "total": Decimal("1.00")}]


def test_the_answers_are_those_of_the_embedded_database(pool: FakePool, db: ClusterDatabase) -> None:
    script = [
        ORDERS,
        SPEND,
        "CREATE MATERIALIZED VIEW big AS SELECT customer, total FROM spend WHERE total > 5",
        "INSERT INTO orders VALUES (1, 7, 9.5), (2, 7, 1), (3, 8, 2)",
        "INSERT INTO orders (id, total) VALUES (4, 3)",
        "DELETE FROM orders WHERE id = 2",
    ]
    questions = [
        "SELECT o.id, s.n FROM orders o JOIN spend s ON o.customer = s.customer ORDER BY o.id",
        "SHOW TABLES",
        "SHOW VIEWS",
        "SHOW CREATE VIEW big",
        "SHOW CREATE TABLE orders",
        "DESCRIBE spend",
        "EXPLAIN big",
        "EXPLAIN SELECT customer FROM spend WHERE n > 1",
    ]
    wrong = [
        "SELECT * FROM nowhere",
        "DROP TABLE orders",
        "SELEC 1",
        "",
        "SELECT 1; SELECT 2",
        "INSERT INTO spend VALUES (1)",
    ]
    with belvedere.open() as embedded, pool.running():
        for statement in script:
            token = embedded.execute(statement)
            remote = db.execute(statement)
        embedded.wait(token)
        db.wait(remote)
        for question in questions:
            expected, found = embedded.execute(question), db.execute(question)
            if isinstance(expected, pa.Table):
                assert found.to_pylist() == expected.to_pylist(), question
            elif not question.startswith("EXPLAIN"):
                assert found == expected, question
            assert type(found) is type(expected)
        for statement in wrong:
            with pytest.raises(BelvedereError) as first:
                embedded.execute(statement)
            with pytest.raises(BelvedereError) as second:
                db.execute(statement)
            assert (type(second.value), str(second.value)) == (type(first.value), str(first.value))
        for name in ("orders", "spend", "big"):
            assert db.scan(name).equals(embedded.scan(name))
            assert db.key_columns(name) == embedded.key_columns(name)
        assert db.scan("orders", start=2, stop=4).to_pylist() == embedded.scan("orders", start=2, stop=4).to_pylist()
        assert db.scan("orders", limit=2).to_pylist() == embedded.scan("orders", limit=2).to_pylist()
        for options in ({"reverse": True, "limit": 2}, {"columns": ["customer", "id"]}, {"start": 2, "reverse": True}):
            assert db.scan("orders", **options).equals(embedded.scan("orders", **options))
        for key in (1, 7, None, 99):
            for name in ("orders", "spend"):
                assert db.lookup(name, key).equals(embedded.lookup(name, key))
        with db.snapshot() as snapshot:
            assert snapshot.lookup("orders", 2, columns=["id"]).equals(embedded.lookup("orders", 2, columns=["id"]))
        for call in (
            lambda d: d.lookup("spend", "x"),
            lambda d: d.lookup("spend", 1, 2),
            lambda d: d.lookup("spend"),
            lambda d: d.scan("orders", start=4, stop=2),
            lambda d: d.scan("orders", columns=["town"]),
        ):
            with pytest.raises(BelvedereError) as first:
                call(embedded)
            with pytest.raises(BelvedereError) as second:
                call(db)
            assert (type(second.value), str(second.value)) == (type(first.value), str(first.value))
        assert db.verify().ok


def test_rows_are_checked_before_anything_is_sent(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    with pytest.raises(DataError, match=r"'total'.*row 1.*nothing was written"):
        db.put("orders", [order(1, 7, "1"), order(2, 7, "x")])
    with pytest.raises(DataError, match="has no column 'price'"):
        db.put("orders", {"id": 1, "price": 2})
    with pytest.raises(CatalogError, match="'spend' is a view"):
        db.put("spend", {"customer": 1})
    with pytest.raises(CatalogError, match="no table or view 'order'; there is orders, spend"):
        db.put("order", {"id": 1})
    assert not pool.pending
    assert db.put("orders", []) == ClusterToken(db.epoch)
    db.write("orders", [order(1, 7, "1"), order(1, 7, "2")], deletes=[False, True])
    pool.step()
    assert db.scan("orders").num_rows == 0
    db.put("orders", pa.table({"id": [5], "customer": [1]}), ts=datetime(2024, 1, 1, tzinfo=UTC))
    db.put("orders", {"id": 5, "customer": 2}, ts=1)
    pool.step()
    assert db.get("orders", 5) == {"id": 5, "customer": 1, "total": None}


def test_a_column_that_somebody_else_added_is_known_at_once(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS)
    with pool.connect() as other:
        other.execute("ALTER TABLE orders ADD COLUMN note STRING")
        other.execute("CREATE TABLE people (id BIGINT PRIMARY KEY)")
    db.put("orders", {"id": 1, "note": "x"})
    db.put("people", {"id": 1})
    pool.step()
    assert db.get("orders", 1) == {"id": 1, "customer": None, "total": None, "note": "x"}


def test_older_epochs_can_be_read_until_they_are_collected(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    epochs, tokens = [], []
    for n in range(1, 6):
        tokens.append(db.put("orders", order(n, 7, "1")))
        epochs.append(pool.step().epoch)
    for n, epoch in enumerate(epochs, 1):
        assert db.get("spend", 7, at=epoch)["n"] == n
        assert db.get("spend", 7, at=tokens[n - 1])["n"] == n
        assert db.scan("spend", at=epoch).to_pylist()[0]["n"] == n
        assert db.scan("orders", at=epoch).num_rows == n
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=epoch)
        assert db.get("spend", 7, at=at)["n"] == n
    assert db.get("spend", 7, at=datetime.now(UTC))["n"] == 5
    with pytest.raises(NotYet, match="is not committed yet"):
        db.get("spend", 7, at=epochs[-1] + 1_000_000)
    first = pool.plan
    with pytest.raises(EpochExpired, match=r"no table or view 'spend'.*it is there now"):
        db.get("spend", 7, at=_before_spend(pool))
    pool.collect(epochs[2])
    assert db.get("spend", 7, at=epochs[2])["n"] == 3
    with pytest.raises(EpochExpired, match=f"the oldest that can be read is {epochs[2]}"):
        db.get("spend", 7, at=epochs[1])
    assert first is pool.plan


def _before_spend(pool: FakePool) -> int:
    published = [epoch for epoch, _ in pool.store.changed("committed", 0, 1 << 60)]
    return published[1]


def test_a_snapshot_is_pinned_and_stays(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    with db.snapshot() as snapshot:
        pins = pool.store.list_documents("pins/")
        assert len(pins) == 1 and str(snapshot.epoch) in pins[0]
        db.put("orders", order(2, 7, "1"))
        pool.step()
        assert db.get("spend", 7)["n"] == 2
        assert snapshot.get("spend", 7)["n"] == 1
        assert snapshot.scan("orders").num_rows == 1
        with db.snapshot() as second:
            assert second.get("spend", 7)["n"] == 2
        assert snapshot.get("spend", 7)["n"] == 1
    deadline = time.monotonic() + 60
    while pool.store.list_documents("pins/") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not pool.store.list_documents("pins/")
    pool.collect(db.epoch)
    with pytest.raises(EpochExpired, match="older than what is kept"):
        db.snapshot(at=snapshot.epoch)


def test_a_pin_that_came_too_late_is_noticed_by_the_reads(pool: FakePool, db: ClusterDatabase) -> None:
    """Without a lease that holds, a read looks at the horizon afterwards."""
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    snapshot = db.snapshot()
    db.put("orders", order(1, 8, "1"))
    pool.step()
    db.pins._since -= 3_600_000  # as if it had not been renewed for an hour
    pool.store.remove_documents(pool.store.list_documents("pins/"))
    pool.collect(db.epoch)
    with pytest.raises(EpochExpired):
        snapshot.get("spend", 7)
    snapshot.close()


def test_a_read_whose_epoch_is_collected_meanwhile_is_done_again(pool: FakePool) -> None:
    """Retention 0: the row that the first try looks for is gone before it looks."""
    pool.retention_ms = 0
    with pool.connect(max_age=3600) as db:
        create(pool, db, ORDERS, SPEND)
        db.put("orders", order(1, 7, "1"))
        pool.step()
        pool.reads_refused = "not today"
        strikes = []

        def strike(call: str, moment: Moment) -> None:
            if call == "read" and moment is Moment.BEFORE and not strikes and threading.current_thread() is reader:
                strikes.append(call)
                pool.put(pool_table(pool), changes_of(db), own_clock=True, request="later")
                pool.collect(pool.step().epoch)

        reader = threading.current_thread()
        db.epochs.newest(db.deadline(), 0.0)
        pool.store.faults = strike
        assert db.get("spend", 7) == {"customer": 7, "n": 1, "total": Decimal(2)}, "it is 1 before, 2 after, never gone"
        pool.store.faults = None
        assert strikes


def pool_table(pool: FakePool) -> Any:
    return catalogs.compile(pool.document).tables["orders"].stored


def changes_of(db: ClusterDatabase) -> Any:
    from belvedere.model.rows import GivenRows

    changes = GivenRows(db.catalog.tables["orders"]).puts([order(1, 7, "2")])
    assert changes is not None
    return changes


def test_gets_go_to_the_owner_and_fall_back_on_the_store(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    assert db.get("spend", 7)["n"] == 1 and pool.served == 1
    pool.reads_refused = "this server has not processed the epoch"
    assert db.get("spend", 7)["n"] == 1 and pool.served == 1
    pool.reads_refused = ""
    pool.recent.clear()
    assert db.get("spend", 7)["n"] == 1 and pool.served == 1
    pool.hub.cut(pool.server.address)
    assert db.get("spend", 7)["n"] == 1


def test_a_change_of_leader_is_a_delay(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    token = db.put("orders", order(1, 7, "1"))
    pool.hub.cut(pool.leader.address)
    pool.step()
    assert db.get("spend", 7, after=token, timeout=5)["n"] == 1, "the store tells what is committed"
    pool.leader = pool.coordinators[1]
    assert db.status()["leader"] == "two"
    create(pool, db, "CREATE TABLE more (id BIGINT PRIMARY KEY)")
    assert "more" in db.catalog.tables


def test_what_stays_away_is_named_when_the_time_is_up(pool: FakePool) -> None:
    db = pool.connect(timeout=0.3)
    for coordinator in pool.coordinators:
        pool.hub.cut(coordinator.address)
    with pytest.raises(PeerUnavailable, match=r"changing the catalog: gave up after 0.3 s: .* does not answer"):
        db.execute(ORDERS)
    with pytest.raises(PeerUnavailable, match="no coordinator answers"):
        pool.connect(timeout=0.1)
    for coordinator in pool.coordinators:
        pool.hub.mend(coordinator.address)
    create(pool, db, ORDERS)
    pool.store_down = True
    with pytest.raises(StoreUnavailable, match=r"writing to table 'orders': gave up after 0.2 s: the store is down"):
        db.put("orders", order(1, 7, "1"), timeout=0.2)
    db.close()
    db.close()
    with pytest.raises(Closed):
        db.get("orders", 1)


def test_a_write_whose_answer_was_lost_happens_once(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    pool.lose_write_answers = 2
    token = db.put("orders", order(1, 7, "1"))
    assert len(pool.pending) == 1
    pool.step()
    assert db.get("spend", 7, after=token)["n"] == 1


def test_ddl_whose_answer_was_lost_happens_once(pool: FakePool, db: ClusterDatabase) -> None:
    answered = pool._ddl
    lost = []

    def lose(asked: Any, request: bytes) -> bytes:
        found = answered(asked, request)
        if not lost:
            lost.append(request)
            raise PeerUnavailable("the answer was lost")
        return found

    pool._ddl = lose  # type: ignore[method-assign]
    create(pool, db, ORDERS)
    assert lost and list(db.catalog.tables) == ["orders"]
    with pytest.raises(CatalogError, match="'orders' exists already"):
        db.execute(ORDERS)


def test_a_store_that_breaks_off_in_the_middle_of_a_scan(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS)
    db.put("orders", pa.table({"id": list(range(10_000)), "customer": [1] * 10_000}))
    pool.step()
    scan, broken = pool.store.scan, []

    def breaking(*arguments: Any) -> Iterator[Any]:
        for number, piece in enumerate(scan(*arguments)):
            if number == 1 and len(broken) < 3:
                broken.append(number)
                raise StoreUnavailable("the connection is gone")
            yield piece

    pool.store.scan = breaking  # type: ignore[method-assign]
    assert db.execute("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 10_000}]
    assert len(broken) >= 2


def test_a_client_goes_to_the_store_that_it_was_told(pool: FakePool, db: ClusterDatabase) -> None:
    """And asks the topology for none."""
    create(pool, db, ORDERS)
    opened: list[str] = []

    def open_store(url: str, _: str) -> Backend:
        opened.append(url)
        return Backend(url, pool.store)

    seeds = [coordinator.address for coordinator in pool.coordinators]
    caller = pool.hub.transport(MemberId("another client"))
    with ClusterDatabase(seeds, caller, open_store, max_age=0.0, store="served://elsewhere:1") as told:
        assert told.scan("orders").num_rows == 0
    assert opened == ["served://elsewhere:1"]


def test_a_client_goes_where_the_leader_says(pool: FakePool, db: ClusterDatabase) -> None:
    """And to the member with role store as well, where the backend leaves the state to it."""
    create(pool, db, ORDERS)
    opened: list[tuple[str, str]] = []

    def open_store(url: str, address: str) -> Backend:
        opened.append((url, address))
        return Backend(url, pool.store)

    seeds = [coordinator.address for coordinator in pool.coordinators]
    for url in ("hbase://zk:2181/shop", "hbase://zk:2181/shop?state=served"):
        pool.store_url = url
        caller = pool.hub.transport(MemberId(f"client of {url}"))
        with ClusterDatabase(seeds, caller, open_store, max_age=0.0) as told:
            assert told.scan("orders").num_rows == 0
    (alone, nobody), (beside, member) = opened
    assert (alone, nobody, beside) == ("hbase://zk:2181/shop", "", "hbase://zk:2181/shop?state=served")
    assert member == STORE_ADDRESS


def test_a_range_of_a_base_table_costs_what_it_returns(pool: FakePool, db: ClusterDatabase) -> None:
    """By a key of two columns, at any epoch, whatever was deleted around it."""
    create(pool, db, "CREATE TABLE lines (doc STRING, line INT, text STRING, PRIMARY KEY (doc, line))")
    lines = [{"doc": doc, "line": line, "text": f"{doc}{line}"} for doc in ("b", "a", "c") for line in range(100)]
    db.put("lines", lines)
    pool.step()
    before = db.snapshot()
    db.delete("lines", [("b", line) for line in range(1, 99)])
    db.delete("lines", [("nobody", 1)])
    db.put("lines", [{"doc": "b", "line": 50, "text": "again"}])
    pool.step()
    asked, came = pool.store.range, []

    def counted(*arguments: Any) -> Iterator[Any]:
        for ids, values in asked(*arguments):
            came.append(len(ids))
            yield ids, values

    pool.store.range = counted  # type: ignore[method-assign]
    pool.store.scan = None  # type: ignore[assignment, method-assign]

    def shown(table: pa.Table) -> list[str]:
        assert sum(came) == table.num_rows
        came.clear()
        return [f"{row['doc']}{row['line']}" for row in table.to_pylist()]

    assert shown(db.lookup("lines", "b")) == ["b0", "b50", "b99"]
    assert db.lookup("lines", "b", 50)["text"].to_pylist() == ["again"]
    came.clear()
    assert shown(db.scan("lines", start=("a", 98), limit=4)) == ["a98", "a99", "b0", "b50"]
    assert shown(db.scan("lines", stop=("b", 60), limit=3, reverse=True)) == ["b50", "b0", "a99"]
    assert shown(db.lookup("lines", "nobody")) == [] and db.get("lines", ("nobody", 1)) is None
    assert len(shown(db.scan("lines"))) == 203
    with before:
        assert shown(before.lookup("lines", "b", columns=["doc", "line"], limit=3)) == ["b0", "b1", "b2"]
        assert before.get("lines", ("b", 7)) == {"doc": "b", "line": 7, "text": "b7"}


def test_writes_return_while_the_pool_stands_still(pool: FakePool) -> None:
    """No epoch happens all the while: whoever waited for a view would wait in vain."""
    with pool.connect(timeout=20.0) as db:
        create(pool, db, ORDERS, SPEND)
        before = pool.plan
        tokens = [db.put("orders", order(id, 7, "1.00")) for id in range(30)]
        tokens.append(db.delete("orders", [0, 1]))
        assert pool.plan is before and len(pool.pending) == 31
        with pytest.raises(NotYet):
            db.get("spend", 7, after=tokens[0], timeout=0.05)
        pool.step()
        assert db.get("spend", 7, after=tokens[-1]) == {"customer": 7, "n": 28, "total": Decimal("28.00")}


def test_views_are_waited_for_and_a_stalled_pool_is_named(pool: FakePool) -> None:
    with pool.connect(timeout=0.2) as db:
        with pool.running():
            db.execute(ORDERS)
            db.put("orders", order(1, 7, "1"))
            db.execute(SPEND)
            assert db.get("spend", 7) is not None
        pool.stalled = "view other: division by zero"
        with pytest.raises(Unavailable, match="the views are created, and the pool does not get on: view other"):
            db.execute(SPEND.replace("spend", "other"))


def test_a_manifest_is_applied_as_a_whole(pool: FakePool, db: ClusterDatabase) -> None:
    from tests.cluster.test_catalogs import MANIFEST

    with pool.running():
        tokens = db.apply_manifest(MANIFEST)
        assert len(tokens) == 3
        assert set(db.catalog.views) == {"spend", "big"}
        with pytest.raises(SqlError, match=r"document 2, spec\.query"):
            db.apply_manifest(MANIFEST.replace("FROM orders", "FROM ordres"))
        assert db.apply_manifest("") == []
        with pytest.raises(SqlError, match=r"document 2, spec\.retention: view 'spend' asks for a retention of 7200 s"):
            db.apply_manifest(MANIFEST.replace("{query", "{retention: 2h, query", 1))
        with pytest.raises(CatalogError, match="asks for a retention of 7200 s, pool 'default' keeps history for 60 s"):
            db.execute("CREATE MATERIALIZED VIEW long RETENTION '2h' AS SELECT id FROM orders")


def test_a_replaced_view_is_swapped_when_it_is_complete(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    db.execute(SPEND.replace("CREATE", "CREATE OR REPLACE").replace("count(*)", "count(*) + 10"), wait=False)
    seen = []
    while pool.building:
        seen.append(db.get("spend", 7)["n"])
        pool.step()
    assert seen and set(seen) == {1}
    assert db.get("spend", 7)["n"] == 11
    pool.retire()
    pool.step()
    assert db.get("spend", 7)["n"] == 11
    with pool.connect() as other:
        other.execute("DROP MATERIALIZED VIEW spend")
    with pytest.raises(CatalogError, match="no table or view 'spend'"):
        db.get("spend", 7)


def test_rows_that_fail_are_in_quarantine(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, "CREATE MATERIALIZED VIEW inverse AS SELECT id, 1 / customer AS x FROM orders")
    db.put("orders", [order(1, 0, "1"), order(2, 2, "1")])
    plan = pool.step()
    assert quarantine_counts.count(pool.store, pool.document, plan.epoch) == {"inverse": 1}
    found = db.quarantine("inverse").to_pylist()
    assert [row["id"] for row in found] == [1] and "division" in found[0]["reason"]
    assert db.scan("inverse").to_pylist() == [{"id": 2, "x": 0.5}]
    report = db.verify("inverse")
    assert report.compared and not report.complete
    db.put("orders", order(1, 1, "1"))
    plan = pool.step()
    assert quarantine_counts.count(pool.store, pool.document, plan.epoch) == {"inverse": 0}
    assert db.quarantine("inverse").num_rows == 0 and db.verify("inverse").ok


def test_epochs_that_were_not_published_are_not_read(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    first = pool.step().epoch
    pool.publishes = False
    db.put("orders", order(2, 7, "1"))
    hidden = pool.step().epoch
    pool.publishes = True
    db.put("orders", order(3, 7, "1"))
    last = pool.step().epoch
    assert [db.get("spend", 7, at=e)["n"] for e in (first, hidden, last)] == [1, 1, 3]


def test_a_snapshot_of_an_epoch_that_is_never_published_stays_at_it(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    db.put("orders", order(1, 7, "1"))
    pool.step()
    pool.publishes = False
    token = db.put("orders", order(2, 7, "1"))
    hidden = pool.step().epoch
    pool.publishes = True
    with db.snapshot() as snapshot:
        assert snapshot.epoch == hidden and snapshot.positions == dict(token.positions)
        db.put("orders", order(3, 7, "1"))
        pool.step()
        assert db.get("spend", 7)["n"] == 3
        assert snapshot.get("spend", 7)["n"] == 2 and snapshot.scan("orders").num_rows == 2
        assert set(snapshot.catalog.views) == {"spend"}


def test_a_table_that_the_store_does_not_have_yet_is_waited_for(pool: FakePool, db: ClusterDatabase) -> None:
    pool.unknown_tables.add("orders")
    create(pool, db, ORDERS)
    threading.Timer(0.1, pool.unknown_tables.clear).start()
    token = db.put("orders", order(1, 7, "1"))
    pool.step()
    db.wait(token)
    pool.unknown_tables.add("orders")
    with pytest.raises(CatalogError, match="no base table 'orders' here"):
        db.put("orders", order(1, 7, "1"), timeout=0.1)


def test_tables_of_the_store_are_those_that_the_catalog_names(pool: FakePool, db: ClusterDatabase) -> None:
    create(
        pool,
        db,
        ORDERS,
        SPEND,
        "CREATE TABLE people (id BIGINT PRIMARY KEY, name STRING)",
        "CREATE MATERIALIZED VIEW named AS SELECT o.id, 1 / o.customer AS x, p.name FROM orders o JOIN people p "
        "ON o.customer = p.id",
        "CREATE MATERIALIZED VIEW names AS SELECT DISTINCT name FROM people",
    )
    db.put("orders", [order(1, 7, "1"), order(2, 0, "1")])
    db.put("people", [{"id": 7, "name": "x"}, {"id": 0, "name": "y"}])
    pool.step()
    found = set(pool.store.usage()) - {"committed"}
    named = catalogs.store_tables(pool.document)
    assert found <= named and named - found == {"quarantine spend 1", "quarantine names 3"}, "nothing failed in these"


def test_a_session_does_not_go_back_when_an_old_leader_answers(pool: FakePool, db: ClusterDatabase) -> None:
    create(pool, db, ORDERS, SPEND)
    old = pool.plan
    db.put("orders", order(1, 7, "1"))
    pool.step()
    epoch = db.epoch
    assert db.get("spend", 7)["n"] == 1
    pool.plan = old
    assert db.epoch == epoch
    assert db.get("spend", 7)["n"] == 1
    with db.snapshot() as snapshot:
        assert snapshot.epoch == epoch


def test_who_leads_is_asked_of_the_one_who_says_so(pool: FakePool, db: ClusterDatabase) -> None:
    """The first coordinator has not heard yet that the second one leads."""
    create(pool, db, ORDERS)
    first, second = pool.coordinators
    pool.leader, pool.believed = second, {first.member: pool.server.member}
    assert db.status()["leader"] == second.member


def test_members_of_another_cluster_in_a_pool_of_the_same_name_are_not_asked(pool: FakePool) -> None:
    opened: list[str] = []
    pool.strangers = (
        Member(MemberId("theirs"), Role.STORE, "memory://theirs", cluster="theirs"),
        Member(MemberId("boss"), Role.COORDINATOR, pool.server.address, cluster="theirs"),
    )

    def open_store(_: str, address: str) -> Backend:
        opened.append(address)
        return Backend(address, pool.store, cast(BaseTables, pool))

    seeds = [coordinator.address for coordinator in pool.coordinators]
    with ClusterDatabase(seeds, pool.hub.transport(MemberId("client")), open_store) as db:
        create(pool, db, ORDERS)
        assert db.get("orders", 1) is None
        assert set(db.pool._coordinators()) == set(seeds)
    assert opened == [STORE_ADDRESS]


def test_a_session_sees_what_others_write(pool: FakePool, db: ClusterDatabase) -> None:
    """Its token is of long ago, and no reason to stay there."""
    create(pool, db, ORDERS, SPEND)
    with db.session(timeout=5) as session, pool.connect() as other:
        session.put("orders", order(1, 7, "1"))
        pool.step()
        assert session.get("spend", 7)["n"] == 1
        other.put("orders", order(2, 7, "1"))
        pool.step()
        assert session.get("spend", 7)["n"] == 2
        assert session.scan("spend").to_pylist()[0]["n"] == 2
