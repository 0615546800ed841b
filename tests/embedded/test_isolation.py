"""Isolation: views that stand still, and views that are being built, hold up no write, but at the configured backlog.

A gate stands in the way of the engine, and writers are other threads, so nothing here depends on who is faster.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import belvedere
from belvedere.engine.build import Build
from belvedere.engine.engine import Engine
from belvedere.errors import NotYet

LIMIT = 50
"""Rows of backlog."""
DEADLINE = 30.0
SUMS = "SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g"


class Gate:
    """Everyone who comes to `pass_through` waits until it is opened, at the latest when its block ends: a database can
    be closed then, whatever the test found."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self._open.wait(2 * DEADLINE), "nobody opened the gate"

    def open(self) -> None:
        self._open.set()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


def beside(function: Callable[[], Any]) -> Any:
    """What it returns, from a thread of its own; fails if it does not return in time."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(function()), daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert not thread.is_alive(), "it waits"
    (value,) = returned
    return value


def filled(path: Path, **options: Any) -> belvedere.Database:
    db = belvedere.open(path, **options)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
    ids = np.arange(3000)
    db.put("t", pa.table({"id": ids, "g": ids % 10, "v": ids}))
    db.execute(f"CREATE MATERIALIZED VIEW served AS {SUMS}")
    return db


def row(n: int) -> dict[str, int]:
    return {"id": 10_000 + n, "g": 77, "v": n}


def test_writes_return_while_views_stand_still_and_wait_at_the_backlog_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    step = Engine.step

    def stalled(self: Engine, *rest: Any) -> Any:
        gate.pass_through()
        return step(self, *rest)

    with filled(tmp_path, backlog_rows=LIMIT) as db, gate:
        monkeypatch.setattr(Engine, "step", stalled)
        before = db.epoch
        tokens = beside(lambda: [db.put("t", row(n)) for n in range(LIMIT)])
        assert gate.reached.wait(DEADLINE) and db.epoch == before, "no view has any of it"
        with pytest.raises(NotYet, match="the backlog of 50 rows"):
            db.put("t", row(LIMIT), timeout=0.01)
        late = threading.Thread(target=lambda: tokens.append(db.put("t", row(LIMIT + 1))), daemon=True)
        late.start()
        gate.open()
        late.join(DEADLINE)
        assert len(tokens) == LIMIT + 1, "there is room again"
        wanted = {"g": 77, "n": LIMIT + 1, "v": sum(range(LIMIT)) + LIMIT + 1}
        assert db.get("served", 77, after=tokens[-1], timeout=DEADLINE) == wanted, "what was refused was not written"
    with belvedere.open(tmp_path) as db:
        assert db.get("served", 77) == wanted, "what was acknowledged while views stood still was durable"


@pytest.mark.parametrize("statement", ["CREATE MATERIALIZED VIEW", "CREATE OR REPLACE MATERIALIZED VIEW"])
def test_writes_return_while_a_view_is_built_or_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    gate = Gate()
    advance = Build.advance

    def stalled(self: Build, max_rows: int) -> Any:
        if self.started:
            gate.pass_through()
        return advance(self, max_rows)

    name = "served" if "REPLACE" in statement else "built"
    with filled(tmp_path, build_rows=100) as db, gate:
        monkeypatch.setattr(Build, "advance", stalled)
        text = f"{statement} {name} AS SELECT g, count(*) AS n, sum(v) + 0 AS v FROM t WHERE id >= 0 GROUP BY g"
        building = threading.Thread(target=lambda: db.execute(text), daemon=True)
        building.start()
        assert gate.reached.wait(DEADLINE)
        tokens = beside(lambda: [*(db.put("t", row(n)) for n in range(20)), db.delete("t", list(range(1000)))])
        assert building.is_alive(), "all of that was written in the middle of the build"
        gate.open()
        building.join(DEADLINE)
        assert db.get(name, 77, after=tokens[-1]) == {"g": 77, "n": 20, "v": sum(range(20))}
        assert db.verify().ok, str(db.verify())


def test_views_in_service_go_on_while_another_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that has always another piece to do: epochs are committed between its pieces."""
    released = threading.Event()
    advance = Build.advance

    def endless(self: Build, max_rows: int) -> Any:
        return {} if self.started and not released.is_set() else advance(self, max_rows)

    with filled(tmp_path, build_rows=100) as db:
        monkeypatch.setattr(Build, "advance", endless)
        try:
            db.execute("CREATE MATERIALIZED VIEW built AS SELECT g, max(v) AS v FROM t GROUP BY g", wait=False)
            for n in range(5):
                token = db.put("t", row(n))
                found = db.get("served", 77, after=token, timeout=DEADLINE)
                assert found == {"g": 77, "n": n + 1, "v": sum(range(n + 1))}
            assert "built" not in db.catalog.views
        finally:
            released.set()
        db.execute(
            "CREATE MATERIALIZED VIEW IF NOT EXISTS last AS SELECT id FROM t WHERE v < 0"
        )  # builds go one by one
        assert db.get("built", 77) == {"g": 77, "v": 4}
        assert db.verify().ok, str(db.verify())
