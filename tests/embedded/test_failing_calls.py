"""What the registry says of a function decides plans and state: calls that can fail, results that can be NULL."""

from __future__ import annotations

import math

import belvedere


def ids(db: belvedere.Database, view: str) -> list[int]:
    return [row["id"] for row in db.scan(view).to_pylist()]


def test_a_row_whose_like_fails_is_nobodys_partner() -> None:
    with belvedere.open() as db:
        db.execute("CREATE TABLE a (id BIGINT PRIMARY KEY)")
        db.execute("CREATE TABLE b (k BIGINT PRIMARY KEY, id BIGINT NOT NULL, s STRING, p STRING)")
        db.execute("CREATE MATERIALIZED VIEW semi AS SELECT id FROM a WHERE id IN (SELECT id FROM b WHERE s LIKE p)")
        db.execute(
            "CREATE MATERIALIZED VIEW anti AS SELECT id FROM a WHERE id NOT IN (SELECT id FROM b WHERE s LIKE p)"
        )
        db.put("a", [{"id": 1}, {"id": 2}, {"id": 3}])
        broken = {"k": 2, "id": 2, "s": "x", "p": "x\\"}
        db.wait(db.put("b", [{"k": 1, "id": 1, "s": "x", "p": "x"}, broken]))
        assert (ids(db, "semi"), ids(db, "anti")) == ([1], [2, 3])
        assert db.quarantine("semi").num_rows == db.quarantine("anti").num_rows == 1
        db.wait(db.put("b", [{"k": 3, "id": 2, "s": "x", "p": "x"}]))
        assert (ids(db, "semi"), ids(db, "anti")) == ([1, 2], [3])
        db.wait(db.delete("b", [3]))
        assert (ids(db, "semi"), ids(db, "anti")) == ([1], [2, 3])
        db.wait(db.put("b", [{**broken, "p": "x"}]))
        assert (ids(db, "semi"), ids(db, "anti")) == ([1, 2], [3])
        assert db.verify().ok


def test_nan_as_a_decimal_is_null_and_not_in_knows() -> None:
    with belvedere.open() as db:
        db.execute("CREATE TABLE m (id BIGINT PRIMARY KEY, x DECIMAL(10,2) NOT NULL)")
        db.execute("CREATE TABLE n (id BIGINT PRIMARY KEY, d DOUBLE NOT NULL)")
        db.execute(
            "CREATE MATERIALIZED VIEW v AS SELECT id FROM m WHERE x NOT IN (SELECT cast(d AS DECIMAL(10,2)) FROM n)"
        )
        db.put("m", [{"id": 1, "x": "1.00"}, {"id": 2, "x": "2.00"}])
        db.wait(db.put("n", [{"id": 1, "d": 2.0}]))
        assert ids(db, "v") == [1]
        db.wait(db.put("n", [{"id": 2, "d": math.nan}]))
        assert ids(db, "v") == []
        assert db.verify().ok


def test_an_outer_join_stays_one_where_its_condition_fails_on_padded_rows() -> None:
    with belvedere.open() as db:
        db.execute("CREATE TABLE a (id BIGINT PRIMARY KEY, y INT)")
        db.execute("CREATE TABLE b (id BIGINT PRIMARY KEY, x INT)")
        query = "FROM a LEFT JOIN b ON a.id = b.id WHERE b.x + 10 % a.y > 0"
        db.execute(f"CREATE MATERIALIZED VIEW v AS SELECT a.id {query}")
        db.put("a", [{"id": 1, "y": 3}, {"id": 2, "y": 0}, {"id": 3, "y": 3}])
        db.wait(db.put("b", [{"id": 1, "x": 1}]))
        assert ids(db, "v") == [1]
        assert db.quarantine("v").num_rows == 1, "NULL + an error is an error"


def test_verification_sees_texts_and_remainders_that_fail() -> None:
    with belvedere.open() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, p DECIMAL(12,2))")
        db.execute("CREATE MATERIALIZED VIEW padded AS SELECT id, lpad('a', n, 'b') AS s FROM t")
        db.execute("CREATE MATERIALIZED VIEW rest AS SELECT id, 7 % n AS r, 7 div n AS q FROM t")
        db.execute("CREATE MATERIALIZED VIEW squared AS SELECT id, p * p AS s FROM t")
        rows = [{"id": 1, "n": 3, "p": "9999999999.99"}, {"id": 2, "n": 0, "p": "2"}, {"id": 3, "n": 2**31 - 1}]
        db.wait(db.put("t", rows))
        reports = {name: db.verify(name) for name in ("padded", "rest", "squared")}
        assert all(report.compared and not report.differences for report in reports.values()), reports
        assert {name: report.quarantined for name, report in reports.items()} == {"padded": 1, "rest": 1, "squared": 0}
