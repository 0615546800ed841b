"""Views that cannot be computed: the database and its other views go on."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.storage.faulty import MemoryFiles
from belvedere.engine import engine
from belvedere.errors import CatalogError, Closed, Defect, ViewFailed
from belvedere.plan.nodes import ViewNode

ORDERS = "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total BIGINT)"
SPEND = "CREATE MATERIALIZED VIEW spend AS SELECT customer, sum(total) AS total FROM orders GROUP BY customer"
BIG = "CREATE MATERIALIZED VIEW big AS SELECT customer, total FROM spend WHERE total > 10"
ALL = "CREATE MATERIALIZED VIEW everything AS SELECT id, total FROM orders"
SHARED = "CREATE MATERIALIZED VIEW counted AS SELECT customer, count(*) AS n FROM orders GROUP BY customer"


class Breaker:
    """Lets operators of views fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.views: set[tuple[str, int]] = set()
        self.error: Callable[[], Exception] = lambda: ZeroDivisionError("a bug")
        apply_task = engine.apply_task

        def fails(task: Any, operator: Any, inputs: list[Any], budget: Any) -> Any:
            broken = isinstance(task, ViewNode) and (task.name, task.version) in self.views
            if broken and any(one is not None and one.rows for one in inputs):
                raise self.error()
            return apply_task(task, operator, inputs, budget)

        monkeypatch.setattr(engine, "apply_task", fails)


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    return Breaker(monkeypatch)


@pytest.fixture(params=["memory", "directory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with belvedere.open(None if request.param == "memory" else tmp_path / "db") as made:
        for statement in (ORDERS, SPEND, BIG, ALL, SHARED):
            made.execute(statement)
        made.wait(made.put("orders", [{"id": 1, "customer": 7, "total": 5}, {"id": 2, "customer": 8, "total": 50}]))
        yield made


def rows(db: Any, view: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.scan(view).to_pylist()]


def test_a_view_that_fails_and_those_over_it_end_and_the_others_have_the_epoch(db: Database, breaker: Breaker) -> None:
    breaker.views = {("spend", 1)}
    token = db.put("orders", [{"id": 3, "customer": 7, "total": 20}])
    db.wait(token, 10.0)
    assert rows(db, "everything") == [(1, 5), (2, 50), (3, 20)]
    assert rows(db, "counted") == [(7, 2), (8, 1)]
    with pytest.raises(ViewFailed, match=r"view 'spend' cannot be read since epoch .*: ZeroDivisionError: a bug"):
        db.get("spend", 7)
    with pytest.raises(
        ViewFailed, match=r"view 'big' .*: it reads view 'spend', which failed: ZeroDivisionError: a bug"
    ):
        db.scan("big", after=token)
    for read in (
        lambda: db.lookup("Spend", 7),
        lambda: db.subscribe("spend"),
        lambda: db.quarantine("spend"),
        lambda: db.execute("SELECT * FROM spend WHERE total > 1"),
        lambda: db.execute("CREATE MATERIALIZED VIEW over AS SELECT total FROM spend"),
    ):
        with pytest.raises(ViewFailed):
            read()
    told = db.status()
    assert told["views"]["spend"]["state"] == "Failed" and "a bug" in told["views"]["spend"]["reason"]
    assert any("view 'spend' cannot be read" in problem for problem in told["problems"])
    db.wait(db.delete("orders", [2]), 10.0)
    assert rows(db, "everything") == [(1, 5), (3, 20)] and rows(db, "counted") == [(7, 2)]
    assert all(report.ok for report in [db.verify("everything"), db.verify("counted")])


def test_a_view_that_failed_is_created_again_or_dropped(db: Database, breaker: Breaker) -> None:
    breaker.views = {("spend", 1)}
    db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 20}]), 10.0)
    breaker.views = set()
    db.execute(SPEND.replace("CREATE", "CREATE OR REPLACE"))
    assert rows(db, "spend") == [(7, 25), (8, 50)]
    with pytest.raises(ViewFailed):
        db.scan("big")
    db.execute("DROP MATERIALIZED VIEW big")
    assert "big" not in db.status()["views"] and db.status()["problems"] == []
    db.execute(BIG)
    db.wait(db.put("orders", [{"id": 4, "customer": 9, "total": 11}]), 10.0)
    assert rows(db, "big") == [(7, 25), (8, 50), (9, 11)]


def test_two_views_that_fail_one_after_the_other_end_both(db: Database, breaker: Breaker) -> None:
    breaker.views = {("spend", 1), ("everything", 1)}
    db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 20}]), 10.0)
    assert {name for name, view in db.status()["views"].items() if view.get("state") == "Failed"} == {
        "spend",
        "big",
        "everything",
    }
    assert rows(db, "counted") == [(7, 2), (8, 1)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk"), MemoryError("no memory")], ids=["disk", "memory"])
def test_a_failure_of_the_machine_is_no_failure_of_a_view(db: Database, breaker: Breaker, error: Exception) -> None:
    breaker.views, breaker.error = {("spend", 1)}, lambda: error
    token = db.put("orders", [{"id": 3, "customer": 7, "total": 20}])
    with pytest.raises(Closed, match="the database stopped"):
        db.wait(token, 10.0)


def test_a_new_version_that_fails_leaves_the_old_one_in_service(db: Database, breaker: Breaker) -> None:
    breaker.views = {("spend", 2)}
    with pytest.raises(Exception, match="could not be built: ZeroDivisionError: a bug") as raised:
        db.execute(SPEND.replace("CREATE", "CREATE OR REPLACE").replace("sum(total)", "sum(total) + 1"))
    assert isinstance(raised.value, (Defect, belvedere.errors.CatalogError))
    db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 20}]), 10.0)
    assert rows(db, "spend") == [(7, 25), (8, 50)] and rows(db, "big") == [(7, 25), (8, 50)]


def test_subscribers_hear_of_all_before_and_then_why_it_ended(db: Database, breaker: Breaker) -> None:
    spend, everything = db.subscribe("spend", timeout=5.0), db.subscribe("everything", timeout=5.0)
    db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 1}]), 10.0)
    breaker.views = {("spend", 1)}
    db.wait(db.put("orders", [{"id": 4, "customer": 7, "total": 2}]), 10.0)
    assert next(spend).table.to_pylist() == [{"customer": 7, "total": 5}, {"customer": 7, "total": 6}]
    with pytest.raises(ViewFailed, match="a bug"):
        next(spend)
    assert [next(everything).table.to_pylist() for _ in range(2)] == [[{"id": 3, "total": 1}], [{"id": 4, "total": 2}]]
    spend.close(), everything.close()


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("still", [False, True], ids=["mended since", "still broken"])
def test_what_failed_stays_out_of_service_after_a_restart(
    tmp_path: Path, breaker: Breaker, snapshot: bool, still: bool
) -> None:
    options = {"snapshot": snapshot}
    with belvedere.open(tmp_path / "db", **options) as db:
        for statement in (ORDERS, SPEND, ALL):
            db.execute(statement)
        db.wait(db.put("orders", [{"id": 1, "customer": 7, "total": 5}]))
        breaker.views = {("spend", 1)}
        db.wait(db.put("orders", [{"id": 2, "customer": 7, "total": 6}]), 10.0)
        db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 7}]), 10.0)
        failed = db.status()["views"]["spend"]
        with belvedere.open(tmp_path / "db", read_only=True) as reader:
            assert rows(reader, "everything") == [(1, 5), (2, 6), (3, 7)]
            with pytest.raises(ViewFailed, match="a bug"):
                reader.scan("spend")
    breaker.views = {("spend", 1)} if still else set()
    with belvedere.open(tmp_path / "db", **options) as db:
        assert rows(db, "everything") == [(1, 5), (2, 6), (3, 7)]
        told = db.status()["views"]["spend"]
        assert told == failed if snapshot or not still else told["since"] < failed["since"]  # it fails earlier now
        with pytest.raises(ViewFailed, match="a bug"):
            db.scan("spend")
        breaker.views = set()
        db.execute(SPEND)
        assert rows(db, "spend") == [(7, 18)]
    with belvedere.open(tmp_path / "db", read_only=True) as reader:
        assert rows(reader, "spend") == [(7, 18)]


def test_what_fails_first_while_the_log_is_replayed_is_written_down_later(tmp_path: Path, breaker: Breaker) -> None:
    with belvedere.open(tmp_path / "db", snapshot=False) as db:
        for statement in (ORDERS, SPEND, ALL):
            db.execute(statement)
        db.wait(db.put("orders", [{"id": 1, "customer": 7, "total": 5}]))
    breaker.views = {("spend", 1)}
    with belvedere.open(tmp_path / "db", snapshot=False) as db:
        assert rows(db, "everything") == [(1, 5)]
        with pytest.raises(ViewFailed, match="a bug"):
            db.scan("spend")
        db.wait(db.put("orders", [{"id": 2, "customer": 7, "total": 6}]), 10.0)
    breaker.views = set()
    with belvedere.open(tmp_path / "db", snapshot=False) as db, pytest.raises(ViewFailed, match="a bug"):
        db.scan("spend")


def test_a_crash_before_the_failure_is_durable_leaves_nothing_of_it(breaker: Breaker) -> None:
    files = MemoryFiles()
    options = DatabaseOptions(snapshot=False)
    with Database(None, options, files) as db:
        for statement in (ORDERS, SPEND, ALL):
            db.execute(statement)
        db.wait(db.put("orders", [{"id": 1, "customer": 7, "total": 5}]))
        breaker.views = {("spend", 1)}

        def dies(operation: Any) -> None:
            raise Closed("the power is gone")

        db._runtime.builds.announce = dies
        token = db.put("orders", [{"id": 2, "customer": 7, "total": 6}])
        with pytest.raises(Closed, match="the power is gone"):
            db.wait(token, 10.0)
    breaker.views = set()
    with Database(None, options, files) as db:
        assert rows(db, "spend") == [(7, 11)] and rows(db, "everything") == [(1, 5), (2, 6)]


def stale(db: Any, view: str = "spend") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in db.scan(view, allow_stale=True).to_pylist()]


@pytest.mark.parametrize("snapshot", [False, True])
def test_who_allows_stale_rows_gets_those_of_before_the_failure(
    tmp_path: Path, breaker: Breaker, snapshot: bool
) -> None:
    """Until the view is dropped or replaced, also after restarts and in other processes."""
    options = {"snapshot": snapshot}
    with belvedere.open(tmp_path / "db", **options) as db:
        for statement in (ORDERS, SPEND, BIG, ALL):
            db.execute(statement)
        before = db.put("orders", [{"id": 1, "customer": 7, "total": 5}, {"id": 2, "customer": 8, "total": 50}])
        db.wait(before)
        assert stale(db) == rows(db, "spend") == [(7, 5), (8, 50)], "of a view in service, the newest rows"
        breaker.views = {("spend", 1)}
        after = db.put("orders", [{"id": 3, "customer": 7, "total": 20}])
        db.wait(after, 10.0)
        assert stale(db) == [(7, 5), (8, 50)] and stale(db, "BIG") == [(8, 50)]
        assert db.get("spend", 7, allow_stale=True) == {"customer": 7, "total": 5}
        assert db.get("spend", 9, allow_stale=True) is None
        assert db.lookup("spend", 8, allow_stale=True, after=before, columns=["total"]).to_pylist() == [{"total": 50}]
        assert [column.name for column in db.key_columns("spend")] == ["customer"]
        for read in (lambda: db.get("spend", 7), lambda: db.get("spend", 7, at=before.epoch + 10**9, allow_stale=True)):
            with pytest.raises(ViewFailed, match="a bug"):
                read()
        with pytest.raises(ViewFailed, match=f"a bug.*; its rows are those of epoch {before.epoch}, and the answer"):
            db.scan("spend", after=after, allow_stale=True)
        with belvedere.open(tmp_path / "db", read_only=True) as reader:
            assert stale(reader) == [(7, 5), (8, 50)]
            with pytest.raises(ViewFailed, match="later ones"):
                reader.get("spend", 7, after=str(after), allow_stale=True)
    breaker.views = set()
    with belvedere.open(tmp_path / "db", **options) as db:
        db.wait(db.put("orders", [{"id": 4, "customer": 9, "total": 1}]))
        assert stale(db) == [(7, 5), (8, 50)] and stale(db, "big") == [(8, 50)]
        with belvedere.open(tmp_path / "db", read_only=True) as reader:
            assert stale(reader, "big") == [(8, 50)]
        db.execute("DROP MATERIALIZED VIEW big")
        with pytest.raises(CatalogError, match="big"):
            stale(db, "big")
        db.execute(SPEND.replace("CREATE", "CREATE OR REPLACE"))
        assert stale(db) == rows(db, "spend") == [(7, 25), (8, 50), (9, 1)]
    with belvedere.open(tmp_path / "db", **options) as db:
        assert stale(db) == [(7, 25), (8, 50), (9, 1)]


def test_a_session_gets_no_stale_rows_once_it_has_read_or_written_later(db: Database, breaker: Breaker) -> None:
    fresh, reading, writing = db.session(), db.session(), db.session()
    assert reading.get("everything", 1) == {"id": 1, "total": 5}
    breaker.views = {("spend", 1)}
    db.wait(db.put("orders", [{"id": 3, "customer": 7, "total": 20}]), 10.0)
    for _ in range(2):  # to read old rows is not to read later ones
        assert fresh.get("spend", 7, allow_stale=True) == {"customer": 7, "total": 5}
        assert reading.lookup("spend", 7, allow_stale=True).to_pylist() == [{"customer": 7, "total": 5}]
        assert len(writing.scan("spend", allow_stale=True)) == 2
    with pytest.raises(ViewFailed, match="a bug"):
        fresh.get("spend", 7)
    assert reading.get("everything", 3, allow_stale=True) == {"id": 3, "total": 20}
    writing.put("orders", {"id": 4, "customer": 7, "total": 1})
    for session in (reading, writing):
        with pytest.raises(ViewFailed, match="and the answer is to include later ones"):
            session.get("spend", 7, allow_stale=True)
    assert fresh.get("spend", 7, allow_stale=True) is not None
