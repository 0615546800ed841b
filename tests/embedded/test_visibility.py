"""An epoch becomes visible at once: whoever reads in the middle of a commit sees nothing of it, or all of it.

A gate holds the engine's thread between two steps of the commit, so that every reader meets exactly that moment.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import belvedere
from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.engine import Engine
from tests.embedded.test_isolation import DEADLINE, Gate

VIEWS = {
    "sums": "SELECT g, sum(v) AS v FROM t GROUP BY g",
    "total": "SELECT sum(v) AS v, count(*) AS n FROM sums",
    "rows": "SELECT id, v FROM t",
}


def seen(reader: Any) -> dict[str, list[dict[str, Any]]]:
    return {name: reader.scan(name).to_pylist() for name in VIEWS}


def create(db: belvedere.Database) -> None:
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
    for name, query in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")


BEFORE = {"sums": [{"g": 1, "v": 5}], "total": [{"v": 5, "n": 1}], "rows": [{"id": 1, "v": 5}]}
AFTER = {
    "sums": [{"g": 1, "v": 5}, {"g": 2, "v": 7}],
    "total": [{"v": 12, "n": 2}],
    "rows": [{"id": 1, "v": 5}, {"id": 2, "v": 7}],
}


@pytest.mark.parametrize("table", range(3))
@pytest.mark.parametrize("step", ["begin", "finish"])
def test_readers_in_the_middle_of_a_commit_see_all_views_before_it_or_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, table: int
) -> None:
    """`begin`: rows are put into a view's table. `finish`: the epoch is committed, and the table is cleaned up."""
    gate = Gate()
    genuine, calls = getattr(ViewTable, step), []

    def held(self: ViewTable, *rest: Any, **named: Any) -> None:
        calls.append(self)
        if len(calls) == table + 1:
            gate.pass_through()
        genuine(self, *rest, **named)

    wanted = BEFORE if step == "begin" else AFTER
    with belvedere.open(tmp_path) as db, gate:
        create(db)
        first = db.put("t", {"id": 1, "g": 1, "v": 5})
        db.wait(first)
        db.status()  # answered by the engine's thread: it has finished that epoch, not only committed it
        epoch = db.epoch
        monkeypatch.setattr(ViewTable, step, held)
        token = db.put("t", {"id": 2, "g": 2, "v": 7})
        assert gate.reached.wait(DEADLINE)
        assert (db.epoch == epoch) == (step == "begin")
        assert seen(db) == wanted
        assert db.get("total", ()) == wanted["total"][0] and (db.get("rows", 2) is None) == (step == "begin")
        with db.snapshot() as snapshot:
            assert seen(snapshot) == wanted
            gate.open()
            db.wait(token, DEADLINE)
            assert seen(snapshot) == wanted, "a snapshot stays where it was taken"
        assert seen(db) == AFTER


def test_a_call_is_in_one_epoch_with_all_that_it_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for one row before the engine, which stands still: a second call would have to wait for it."""
    gate, step = Gate(), Engine.step

    def stalled(self: Engine, *rest: Any) -> Any:
        gate.pass_through()
        return step(self, *rest)

    with belvedere.open(tmp_path, backlog_rows=1) as db, gate:
        create(db)
        changes = db.subscribe("rows", timeout=DEADLINE)
        monkeypatch.setattr(Engine, "step", stalled)
        token = db.put("t", [{"id": n, "g": n % 7, "v": n} for n in range(100)], timeout=DEADLINE / 10)
        gate.open()
        change = next(changes)
        assert (change.epoch, change.added.num_rows, change.removed.num_rows) == (token.epoch, 100, 0)
        mixed = [{"id": n, "g": 1, "v": -n} for n in range(100)]
        token = db.write("t", mixed, deletes=[n >= 50 for n in range(100)])
        change = next(changes)
        assert (change.epoch, change.added.num_rows, change.removed.num_rows) == (token.epoch, 49, 99), "0 = -0"
