"""The embedded database as a user meets it."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import belvedere
from belvedere.errors import (
    CatalogError,
    Closed,
    DataError,
    EpochExpired,
    Locked,
    NotYet,
    StorageError,
    ViewReplaced,
)

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))"
SPEND = """
    CREATE MATERIALIZED VIEW spend AS
    SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer
"""


@pytest.fixture(params=["directory", "memory"])
def db(request, tmp_path):
    database = belvedere.open(tmp_path / "db" if request.param == "directory" else None)
    yield database
    database.close()


@pytest.fixture
def shop(db):
    db.execute(ORDERS)
    db.execute(SPEND)
    return db


def orders(*rows: tuple) -> list[dict]:
    return [{"id": i, "customer": c, "total": t} for i, c, t in rows]


def test_a_write_is_read_back_through_its_token(shop):
    token = shop.put("orders", orders((1, 7, "9.50"), (2, 7, 1), (3, 8, Decimal("2.25"))))
    assert shop.get("spend", 7, after=token) == {"customer": 7, "n": 2, "total": Decimal("10.50")}
    assert shop.get("SPEND", {"customer": 8}) == {"customer": 8, "n": 1, "total": Decimal("2.25")}
    assert shop.get("spend", 99) is None
    token = shop.delete("orders", [1, 3])
    assert shop.scan("spend", after=token).to_pylist() == [{"customer": 7, "n": 1, "total": Decimal("1.00")}]
    assert shop.get("orders", 2) == {"id": 2, "customer": 7, "total": Decimal("1.00")}
    assert shop.verify("spend").ok and shop.verify().ok


def test_rows_come_as_dicts_arrow_pandas_and_polars(shop):
    columns = {"id": [1, 2], "customer": [5, 5], "total": [Decimal("1.00"), None]}
    shop.put("orders", {"id": 9, "customer": 4})
    shop.put("orders", pa.table({**columns, "total": pa.array(columns["total"], pa.decimal128(12, 2))}))
    shop.put("orders", pa.RecordBatch.from_pydict({"id": [3], "customer": [5]}))
    shop.put("orders", pd.DataFrame({"id": [4, 5], "customer": [5, 6]}))
    token = shop.put("orders", pl.DataFrame({"id": [6], "customer": [6]}))
    assert {r["customer"]: r["n"] for r in shop.scan("spend", after=token).to_pylist()} == {4: 1, 5: 4, 6: 2}


def test_missing_columns_are_unchanged_none_is_null_and_the_last_of_equal_keys_wins(shop):
    shop.put("orders", orders((1, 7, 5)))
    shop.put("orders", {"id": 1, "total": 6})
    token = shop.put(
        "orders", [{"id": 1, "total": None}, {"id": 2, "customer": 7}, {"id": 2, "customer": 8, "total": 1}]
    )
    shop.wait(token)
    assert shop.get("orders", 1) == {"id": 1, "customer": 7, "total": None}
    assert shop.get("orders", 2) == {"id": 2, "customer": 8, "total": Decimal("1.00")}
    shop.wait(shop.put("orders", {"id": 3}))
    assert shop.get("orders", 3) == {"id": 3, "customer": None, "total": None}


def test_older_timestamps_lose(shop):
    shop.put("orders", orders((1, 7, 5)), ts=1000)
    shop.put("orders", orders((1, 7, 6)), ts=500)
    shop.delete("orders", 1, ts=700)
    shop.wait(shop.put("orders", orders((2, 7, 1), (3, 7, 1)), ts=[10, datetime(2020, 1, 1, tzinfo=UTC)]))
    assert shop.get("orders", 1)["total"] == 5
    with pytest.raises(DataError, match="2 timestamps were given for 1 rows"):
        shop.put("orders", {"id": 1}, ts=[1, 2])


def test_mixed_batches_are_ordered(shop):
    rows = pa.table({"id": [1, 1, 2, 2], "customer": [1, 1, 1, 1]})
    shop.wait(shop.write("orders", rows, deletes=np.array([False, True, True, False])))
    assert [r["id"] for r in shop.scan("orders").to_pylist()] == [2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"id": 1, "color": "red"}, r"no column 'color'; it has id, customer, total"),
        ({"customer": 1}, r"row 0: key column 'id' is missing"),
        ({"id": None}, r"column 'id', row 0: NULL in the primary key"),
        ([{"id": 1}, {"id": "x"}], r"column 'id' \(bigint\), row 1: 'x' does not fit; allowed is an integer"),
        ({"id": 1 << 63}, r"row 0: 9223372036854775808 does not fit"),
        ({"id": 1.5}, r"1.5 does not fit"),
        ({"id": True}, r"True does not fit"),
        ([{"id": 1, "total": "1.234"}], r"'1.234' does not fit; allowed is a number of at most 10 digits before and 2"),
        ({"id": 1, "total": "12345678901"}, r"does not fit"),
        ({"id": 1, "total": "NaN"}, r"does not fit"),
        ([1, 2], r"row 0: a row is a dict of columns; found 1"),
        (5, r"rows are a dict, a list of dicts"),
        (pa.table({"id": pa.array([1, 2], pa.int64()), "customer": pa.array(["a", "b"])}), r"row 0: 'a' does not fit"),
        (pa.table({"id": pa.array([1, None], pa.int64())}), r"row 1: NULL in the primary key"),
        (pa.table({"id": pa.array([1, 1 << 63], pa.uint64())}), r"row 1: 9223372036854775808"),
    ],
)
def test_values_that_do_not_fit_are_named_and_nothing_is_written(shop, rows, message):
    with pytest.raises(DataError, match=message):
        shop.put("orders", rows)
    shop.wait(shop.put("orders", []))
    assert shop.scan("orders").num_rows == 0


def test_nan_as_a_key_and_not_null_columns_are_refused(db):
    db.execute("CREATE TABLE d (x DOUBLE PRIMARY KEY, s STRING NOT NULL)")
    with pytest.raises(DataError, match="row 1: NaN in the primary key"):
        db.put("d", [{"x": 1.0, "s": "a"}, {"x": float("nan"), "s": "a"}])
    with pytest.raises(DataError, match="row 0: NULL in a column declared NOT NULL"):
        db.put("d", {"x": 1.0, "s": None})
    with pytest.raises(DataError, match="does not fit"):
        db.put("d", {"x": 1.0, "s": "\ud800"})


def test_every_type_comes_back_as_it_was_written(db):
    db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, b BOOLEAN, i INT, l BIGINT, d DOUBLE, m DECIMAL(10,3), w DECIMAL(38,2), "
        "s STRING, x BINARY, day DATE, at TIMESTAMP)"
    )
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT * FROM t")
    row = {
        "id": 1, "b": True, "i": -5, "l": 1 << 62, "d": -0.5, "m": Decimal("-1.125"), "w": Decimal("1" * 36 + ".25"),
        "s": "grüß", "x": b"\0\xff", "day": date(1969, 12, 31), "at": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    }  # fmt: skip
    nothing = {**dict.fromkeys(row), "id": 2}
    texts = {**nothing, "id": 3, "day": "2020-02-29", "at": "2020-02-29T12:00:00+01:00", "m": "7"}
    token = db.put("t", [row, nothing, texts])
    assert db.get("v", 1, after=token) == row
    assert db.get("v", 2) == nothing
    found = db.scan("v").to_pylist()
    assert found[:2] == [row, nothing]
    assert found[2]["day"] == date(2020, 2, 29) and found[2]["at"] == datetime(2020, 2, 29, 11, tzinfo=UTC)
    assert db.verify("v").ok


def test_ranges_follow_the_key_with_nulls_first_and_nan_last(db):
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a DOUBLE, s STRING)")
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT a, s, count(*) AS n FROM t GROUP BY a, s")
    values = [(None, "x"), (-1.5, "b"), (-1.5, None), (0.0, "a"), (2.0, "é"), (2.0, "z"), (float("nan"), "a")]
    token = db.put("t", [{"id": i, "a": a, "s": s} for i, (a, s) in enumerate(values)])
    db.wait(token)

    def keys(**bounds):
        return [(r["a"], r["s"]) for r in db.scan("v", **bounds).to_pylist()]

    ordered = [values[0], (-1.5, None), (-1.5, "b"), (0.0, "a"), (2.0, "z"), (2.0, "é")]
    assert keys()[:6] == ordered and np.isnan(keys()[6][0])
    assert keys(start=-1.5, stop=2.0) == ordered[1:4]
    assert keys(start=(-1.5, "a"), limit=2) == ordered[2:4]
    assert keys(stop=(2.0, "z")) == ordered[:4]
    assert keys(start={"a": 2.0}, limit=1) == [(2.0, "z")]
    with pytest.raises(DataError, match=r"\(a, s\): 2 values are needed, 3"):
        keys(start=(1, 2, 3))
    with pytest.raises(DataError, match=r"2 values are needed, 1"):
        db.get("v", 1.0)


def test_older_epochs_can_be_read_within_the_retention(tmp_path):
    now = [1_000_000_000_000]
    with belvedere.open(tmp_path, clock=lambda: now[0], retention=60) as db:
        db.execute(ORDERS)
        db.execute(SPEND)
        tokens = []
        for n in range(20):
            now[0] += 1_000_000
            tokens.append(db.put("orders", orders((n % 7, n % 3, n))))
            db.wait(tokens[-1])
        seen = [db.scan("spend", at=t).to_pylist() for t in tokens]
        for n, token in enumerate(tokens):
            last = {k % 7: k for k in range(n + 1)}
            expected: dict = {}
            for k in last.values():
                count, total = expected.get(k % 3, (0, 0))
                expected[k % 3] = (count + 1, total + k)
            assert {r["customer"]: (r["n"], r["total"]) for r in seen[n]} == expected
            for customer in range(3):
                row = db.get("spend", customer, at=token)
                assert (None if row is None else (row["n"], row["total"])) == expected.get(customer)
        moment = datetime.fromtimestamp(tokens[4].epoch / 1000 + 0.5, UTC)
        assert db.scan("spend", at=moment).to_pylist() == seen[4]
        now[0] += 50_000_000
        with pytest.raises(EpochExpired, match="retention of 60 s"):
            db.scan("spend", at=tokens[0])
        assert db.scan("spend", at=tokens[-1]).to_pylist() == seen[-1]
        with pytest.raises(NotYet):
            db.scan("spend", at=tokens[-1].epoch + 5)
    with belvedere.open(tmp_path, clock=lambda: now[0], retention=600) as db:
        assert [db.scan("spend", at=t).to_pylist() for t in tokens] == seen


def test_a_snapshot_reads_several_views_at_one_epoch_while_writes_go_on(shop):
    shop.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(n) AS n FROM spend")
    shop.wait(shop.put("orders", orders((1, 1, 1), (2, 2, 2))))
    with shop.snapshot() as snapshot:
        for n in range(3, 30):
            shop.wait(shop.put("orders", orders((n, n % 4, n))))
        assert snapshot.scan("total").to_pylist() == [{"n": 2}]
        assert sum(r["n"] for r in snapshot.scan("spend").to_pylist()) == 2
        assert snapshot.get("spend", 3) is None and snapshot.get("spend", 1)["n"] == 1
        assert len(shop.pins.held(0)) == 1
    assert shop.pins.held(0) == []


def test_subscriptions_resume_also_after_a_restart(tmp_path):
    with belvedere.open(tmp_path) as db:
        db.execute(ORDERS)
        db.execute(SPEND)
        start = db.epoch
        for n in range(6):
            token = db.put("orders", orders((n, n % 2, n)))
            db.wait(token)
        changes = list(db.subscribe("spend", after=start, timeout=0.01))
        assert [len(c.added) for c in changes] == [1] * 6 and changes[-1].epoch == token.epoch
        assert changes[2].removed.to_pylist() == [{"customer": 0, "n": 1, "total": Decimal(0)}]
    with belvedere.open(tmp_path) as db:
        again = list(db.subscribe("spend", after=changes[1].token, timeout=0.01))
        assert [(c.epoch, c.table.to_pylist(), c.weights.tolist()) for c in again] == [
            (c.epoch, c.table.to_pylist(), c.weights.tolist()) for c in changes[2:]
        ]
        live = db.subscribe("spend")
        writer = threading.Thread(target=lambda: db.put("orders", orders((100, 0, 1))))
        writer.start()
        change = next(live)
        writer.join()
        assert change.added.to_pylist()[0]["n"] == 4
        live.close()
        with pytest.raises(EpochExpired, match="since"):
            db.subscribe("spend", after=1)


def test_the_collector_may_come_while_pins_are_locked(tmp_path):
    """A loop that is left leaves a subscription to the collector, which runs where something is allocated."""
    with belvedere.open(tmp_path / "db") as writer:
        writer.execute(ORDERS)
        writer.execute(SPEND)
        with belvedere.open(tmp_path / "db", read_only=True) as reader:
            for database in (writer, reader):
                left = [database.subscribe("spend")]

                def collect(database=database, left=left):
                    with database.pins._lock:
                        left.clear()

                thread = threading.Thread(target=collect, daemon=True)
                thread.start()
                thread.join(5)
                assert not left and not thread.is_alive()
                assert not [pin for pin in database.status()["pins"] if pin["purpose"] == "subscription"]


def test_views_are_built_beside_writes(tmp_path):
    with belvedere.open(tmp_path, build_rows=500) as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
        ids = np.arange(30_000)
        db.put("t", pa.table({"id": ids, "g": ids % 10, "v": ids}))
        stop = threading.Event()
        beside = []

        def write():
            n = 0
            while not stop.is_set():
                n += 1
                key = (n * 7919) % 40_000
                built = sorted(db.status()["views"])
                db.put("t", {"id": key, "g": n % 10, "v": n}) if n % 5 else db.delete("t", key)
                if built == sorted(db.status()["views"]) != ["j", "s"]:
                    beside.append(n)  # began and ended before the next view was there

        writer = threading.Thread(target=write)
        writer.start()
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g")
        db.execute("CREATE MATERIALIZED VIEW j AS SELECT t.id, s.n FROM t JOIN s ON t.g = s.g WHERE t.v > 100")
        stop.set()
        writer.join()
        db.wait(db.put("t", {"id": -1, "g": 1, "v": 1}))
        assert len(beside) > 1
        assert db.verify().ok, str(db.verify())


def test_a_build_that_was_cut_short_starts_again(tmp_path):
    db = belvedere.open(tmp_path, build_rows=10)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT)")
    db.put("t", pa.table({"id": np.arange(5000), "g": np.arange(5000) % 10}))
    db.execute("CREATE MATERIALIZED VIEW s AS SELECT g, count(*) AS n FROM t GROUP BY g", wait=False)
    db.close()
    with belvedere.open(tmp_path) as db:
        db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS s AS SELECT g, count(*) AS n FROM t GROUP BY g")
        assert [r["n"] for r in db.scan("s").to_pylist()] == [500] * 10
        assert db.verify().ok


def test_closing_while_a_build_ends_is_quiet(tmp_path):
    for n in range(12):
        db = belvedere.open(tmp_path / str(n), build_rows=1 << (n % 4 + 6))
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT)")
        db.put("t", pa.table({"id": np.arange(2000 * (n % 3)), "g": np.arange(2000 * (n % 3)) % 10}))
        db.execute("CREATE MATERIALIZED VIEW s AS SELECT g, count(*) AS n FROM t GROUP BY g", wait=False)
        db.close()
        with belvedere.open(tmp_path / str(n)) as db:
            db.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS s AS SELECT g FROM t")
            assert db.scan("s").num_rows == (10 if n % 3 else 0)


def test_replacing_a_view_swaps_it_and_its_dependants_at_one_epoch(shop):
    shop.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(total) AS total FROM spend")
    shop.wait(shop.put("orders", orders((1, 1, 10), (2, 1, 20), (3, 2, 30))))
    same, other = shop.subscribe("total", timeout=30), shop.subscribe("spend", timeout=30)
    before = shop.epoch
    shop.execute(
        "CREATE OR REPLACE MATERIALIZED VIEW spend AS "
        "SELECT customer, sum(total) AS total FROM orders WHERE total > 15 GROUP BY customer"
    )
    assert shop.scan("total").to_pylist() == [{"total": Decimal(50)}]
    assert shop.scan("spend").column_names == ["customer", "total"]
    change = next(same)
    assert change.removed.to_pylist() == [{"total": Decimal(60)}] and change.added.to_pylist() == [
        {"total": Decimal(50)}
    ]
    with pytest.raises(ViewReplaced, match="other columns"):
        next(other)
    assert shop.scan("total", at=before).to_pylist() == [{"total": Decimal(60)}]
    assert shop.scan("spend", at=before).column_names == ["customer", "n", "total"]  # the subscriptions pin it
    shop.wait(shop.put("orders", orders((4, 2, 100))))
    assert shop.scan("total").to_pylist() == [{"total": Decimal(150)}]
    assert shop.verify().ok


@pytest.mark.parametrize("read_only", [False, True])
def test_a_pinned_epoch_sees_the_versions_of_its_time(tmp_path, read_only):
    with belvedere.open(tmp_path) as db:
        db.execute(ORDERS)
        db.execute(SPEND)
        db.execute("CREATE MATERIALIZED VIEW other AS SELECT id FROM orders")
        db.wait(db.put("orders", orders((1, 1, 10), (2, 2, 20))))
        reader = belvedere.open(tmp_path, read_only=True) if read_only else db
        with reader.snapshot() as snapshot:
            db.wait(db.put("orders", orders((3, 1, 30))))
            db.execute(
                "CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT customer, max(total) AS top FROM orders GROUP BY 1"
            )
            db.execute("DROP MATERIALIZED VIEW other")
            db.wait(db.put("orders", orders((4, 1, 40))))
            assert reader.get("spend", 1, after=db.epoch) == {"customer": 1, "top": Decimal(40)}
            assert snapshot.get("spend", 1) == {"customer": 1, "n": 1, "total": Decimal(10)}
            assert snapshot.scan("spend").num_rows == 2 and snapshot.scan("other").num_rows == 2
        with pytest.raises(CatalogError, match="other"):
            reader.scan("other")
        reader.close()


def test_what_others_need_cannot_be_dropped_and_cycles_are_refused(shop):
    shop.execute("CREATE MATERIALIZED VIEW total AS SELECT sum(total) AS total FROM spend")
    with pytest.raises(CatalogError, match="read by spend"):
        shop.execute("DROP TABLE orders")
    with pytest.raises(CatalogError, match="read by total"):
        shop.execute("DROP MATERIALIZED VIEW spend")
    with pytest.raises(CatalogError, match="total"):
        shop.execute("CREATE OR REPLACE MATERIALIZED VIEW spend AS SELECT total FROM total")
    with pytest.raises(CatalogError, match="exists already"):
        shop.execute(SPEND)
    with pytest.raises(CatalogError, match="exists already"):
        shop.execute(ORDERS)
    with pytest.raises(CatalogError, match="is a view"):
        shop.put("spend", {"customer": 1})
    for view in ("total", "spend"):
        shop.execute(f"DROP MATERIALIZED VIEW {view}")
    shop.execute("DROP TABLE orders")
    shop.execute("DROP TABLE IF EXISTS orders")
    with pytest.raises(CatalogError, match="nothing yet"):
        shop.put("orders", {"id": 1})


def test_columns_are_added_and_star_views_keep_theirs(tmp_path):
    with belvedere.open(tmp_path) as db:
        db.execute(ORDERS)
        db.execute("CREATE MATERIALIZED VIEW everything AS SELECT * FROM orders")
        db.put("orders", orders((1, 1, 1)))
        db.execute("ALTER TABLE orders ADD COLUMN note STRING")
        db.put("orders", {"id": 2, "customer": 2, "note": "new"})
        db.execute("CREATE MATERIALIZED VIEW notes AS SELECT note, count(*) AS n FROM orders GROUP BY note")
    with belvedere.open(tmp_path) as db:
        assert db.scan("everything").column_names == ["id", "customer", "total"]
        assert {r["note"]: r["n"] for r in db.scan("notes").to_pylist()} == {None: 1, "new": 1}
        assert db.verify().ok


def test_rows_that_fail_are_in_quarantine_until_they_are_mended(shop):
    shop.execute("CREATE MATERIALIZED VIEW ratio AS SELECT id, 100 / customer AS r FROM orders")
    shop.wait(shop.put("orders", orders((1, 0, 1), (2, 4, 1))))
    assert [r["id"] for r in shop.scan("ratio").to_pylist()] == [2]
    found = shop.quarantine("ratio").to_pylist()
    assert len(found) == 1 and found[0]["id"] == 1 and "division by zero" in found[0]["reason"]
    assert shop.status()["views"]["ratio"] | {"bytes": 0, "since": 0} == {
        "rows": 1, "version": 1, "quarantined": 1, "complete": False, "bytes": 0, "since": 0,
    }  # fmt: skip
    assert not shop.verify("ratio").ok
    shop.wait(shop.put("orders", {"id": 1, "customer": 5}))
    assert shop.quarantine("ratio").num_rows == 0 and shop.verify("ratio").ok


def test_statements_answer(shop):
    shop.execute("INSERT INTO orders (id, customer, total) VALUES (1, 7, 2.5), (2, 8, NULL)")
    shop.wait(shop.execute("DELETE FROM orders WHERE id = 2"))
    assert shop.execute("SELECT customer, total FROM spend ORDER BY 1").to_pylist() == [
        {"customer": 7, "total": Decimal("2.50")}
    ]
    assert shop.execute("SHOW TABLES").to_pylist() == [{"table": "orders", "columns": 3, "key": "id"}]
    assert shop.execute("SHOW VIEWS").to_pylist() == [
        {"view": "spend", "rows": 1, "key": "customer", "reads": "orders"}
    ]
    assert shop.execute("DESCRIBE spend")["column"].to_pylist() == ["customer", "n", "total"]
    assert "CREATE" in shop.execute("SHOW CREATE VIEW spend")
    assert "orders" in shop.execute("EXPLAIN spend")
    assert "orders" in shop.execute("EXPLAIN SELECT id FROM orders WHERE id > 5")


def test_a_token_that_is_not_committed_in_time_is_not_yet(shop):
    with pytest.raises(NotYet) as found:
        shop.get("spend", 1, after=shop.epoch + 10_000_000, timeout=0.01)
    assert found.value.lag >= 0


def test_after_closing_everything_says_closed(tmp_path):
    db = belvedere.open(tmp_path)
    db.execute(ORDERS)
    db.close()
    db.close()
    for call in (
        lambda: db.put("orders", {"id": 1}),
        lambda: db.scan("orders"),
        lambda: db.execute(SPEND),
        lambda: db.get("orders", 1),
    ):
        with pytest.raises(Closed):
            call()


def test_one_writer_and_any_number_of_readers(tmp_path):
    with pytest.raises(StorageError, match="no database"):
        belvedere.open(tmp_path / "none", read_only=True)
    with belvedere.open(tmp_path) as db, pytest.raises(Locked):
        belvedere.open(tmp_path)
    with belvedere.open(tmp_path) as db:
        reader = belvedere.open(tmp_path, read_only=True)
        db.execute(ORDERS)
        db.execute(SPEND)
        token = db.put("orders", orders((1, 1, 1), (2, 0, 5)))
        assert reader.get("spend", 1, after=token, timeout=5)["n"] == 1
        db.execute("CREATE MATERIALIZED VIEW ratio AS SELECT id, 1 / customer AS r FROM orders")
        assert reader.scan("ratio", after=db.epoch, timeout=5).num_rows == 1
        assert reader.quarantine("ratio").num_rows == 1
        with reader.snapshot() as snapshot:
            assert len(db.pins.held(db._now_ms())) == 1
            db.put("orders", orders((3, 1, 1)))
            db.checkpoint()
            db.wait(db.put("orders", orders((4, 1, 1))))
            assert reader.get("spend", 1)["n"] == 3
            assert snapshot.get("spend", 1)["n"] == 1
        assert reader.scan("orders").num_rows == 4 and reader.verify("spend").ok
        assert belvedere.open(tmp_path, read_only=True).get("spend", 1)["n"] == 3
        changes = list(reader.subscribe("spend", after=token, timeout=0.05))
        assert len(changes) == 2
        with pytest.raises(StorageError, match="reading only"):
            reader.execute("DROP TABLE orders")
        db.execute(
            "CREATE OR REPLACE MATERIALIZED VIEW spend AS "
            "SELECT customer, max(total) AS top FROM orders GROUP BY customer"
        )
        assert reader.get("spend", 0, after=db.epoch, timeout=5) == {"customer": 0, "top": Decimal(5)}
        reader.close()
        with pytest.raises(Closed):
            reader.get("spend", 1)


def test_manifests_are_applied_and_applying_again_changes_nothing(db):
    text = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {name: orders}
spec:
  columns: [{name: id, type: bigint}, {name: total, type: double}]
  key: [id]
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: spend}
spec:
  query: SELECT sum(total) AS total FROM orders
  retention: 2h
"""
    assert len(db.apply_manifest(text)) == 2
    epoch = db.epoch
    db.apply_manifest(text)
    assert db.epoch == epoch and db.catalog.views["spend"].retention_ms == 7_200_000


def test_arrays_may_be_used_again_as_soon_as_put_returns(db):
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)")
    db.execute("CREATE MATERIALIZED VIEW s AS SELECT count(*) AS n, sum(v) AS v FROM t")
    ids, values, deletes = np.empty(1000, np.int64), np.empty(1000, np.int64), np.zeros(1000, np.bool_)
    for n in range(50):
        ids[:] = np.arange(1000) + n * 1000
        values[:] = n
        token = db.write("t", pa.table({"id": ids, "v": values}), deletes=deletes)
        ids[:], values[:], deletes[:] = -1, -1, True
        deletes[:] = False
    assert db.get("s", (), after=token) == {"n": 50_000, "v": 1000 * sum(range(50))}
