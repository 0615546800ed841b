"""Sessions of the embedded database: own writes are read, nothing goes back. The cluster's are in tests/cluster."""

from __future__ import annotations

import pytest

import belvedere
from belvedere.errors import Closed, NotYet

TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT)"
VIEW = "CREATE MATERIALIZED VIEW totals AS SELECT n % 2 AS parity, count(*) AS c FROM t GROUP BY n % 2"


@pytest.fixture
def db(tmp_path):
    with belvedere.open(tmp_path / "db") as database:
        database.execute(TABLE)
        database.execute(VIEW)
        yield database


def test_a_session_reads_its_own_writes(db):
    with db.session() as s:
        for i in range(50):
            s.put("t", [{"id": i, "n": i}])
            assert s.get("totals", i % 2)["c"] == i // 2 + 1
        s.delete("t", [0])
        assert s.get("totals", 0)["c"] == 24
        s.write("t", [{"id": 1, "n": 2}, {"id": 3, "n": None}], deletes=[False, True])
        assert s.scan("totals").to_pydict() == {"parity": [0, 1], "c": [25, 23]}
        s.execute("INSERT INTO t (id, n) VALUES (100, 1)")
        assert s.execute("SELECT c FROM totals WHERE parity = 1").to_pydict() == {"c": [24]}
        s.put("t", [{"id": 101, "n": 1}])
        with s.snapshot() as snapshot:
            assert snapshot.get("totals", 1)["c"] == 25


def test_a_read_waits_for_the_sessions_writes_only_as_long_as_it_may(db, monkeypatch):
    with db.session(timeout=0.05) as s:
        s.get("totals", 1)
        monkeypatch.setattr(db, "_wait_for", lambda epoch, timeout: False)
        monkeypatch.setattr(type(db), "epoch", property(lambda self: 0))
        s.put("t", [{"id": 1, "n": 1}])
        for read in (lambda: s.get("totals", 1), lambda: s.scan("totals"), s.snapshot, lambda: s.subscribe("totals")):
            with pytest.raises(NotYet):
                read()


def test_another_process_goes_on_where_a_session_was(db, tmp_path):
    with db.session() as s:
        s.put("t", [{"id": 1, "n": 1}])
        assert s.get("totals", 1) == {"parity": 1, "c": 1}
        text = str(s.token)
    with (
        belvedere.open(tmp_path / "db", read_only=True) as reader,
        reader.session(after=text, timeout=20) as other,
    ):
        assert other.get("totals", 1) == {"parity": 1, "c": 1}
        with pytest.raises(Closed, match="reading only"):
            other.put("t", [{"id": 2, "n": 2}])


def test_a_sessions_token_covers_what_it_read_and_not_only_what_it_wrote(db):
    db.wait(db.put("t", [{"id": 1, "n": 1}]))
    with db.session() as s:
        s.get("totals", 1)
        assert s.token.epoch == db.epoch


def test_a_subscription_of_a_session_begins_after_what_the_session_has_seen(db):
    with db.session() as s:
        s.put("t", [{"id": 1, "n": 1}])
        changes = s.subscribe("totals", timeout=10)
        s.put("t", [{"id": 2, "n": 2}])
        assert next(iter(changes)).added.to_pydict() == {"parity": [0], "c": [1]}


def test_a_session_does_not_go_back_and_ends(db):
    with db.session() as s:
        with pytest.raises(ValueError, match="does not go back"):
            s.scan("totals", at=db.epoch)
        with pytest.raises(ValueError, match="is no token"):
            db.session(after="yesterday")
    for call in (lambda: s.get("totals", 1), lambda: s.put("t", []), lambda: s.token, lambda: s.scan("totals")):
        with pytest.raises(Closed, match="the session is closed"):
            call()
