"""Builds over much data: they tell how far they are, and go on where they were after a crash or a restart."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import belvedere
from belvedere.embedded import builds
from belvedere.embedded.database import Database
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.engine.build import Build
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.errors import BelvedereError
from tests.embedded import build_child

ROWS = 30_000


def fill(db: Database, rows: int = ROWS) -> None:
    ids = np.arange(rows)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT, v BIGINT)")
    db.execute("CREATE TABLE u (g BIGINT PRIMARY KEY, name STRING)")
    db.put("u", [{"g": g, "name": f"g{g}"} for g in range(20)])
    db.wait(db.put("t", pa.table({"id": ids, "g": ids % 13, "v": ids * 3})))


class Scans:
    """Counts the slots of base tables that builds scan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slots: dict[str, int] = {}
        scan = DeltaTable.scan

        def counted(table: DeltaTable, start: int, count: int, columns: Any) -> Any:
            name = table.table.name
            if sys._getframe(1).f_code.co_name == "advance":
                self.slots[name] = self.slots.get(name, 0) + min(count, table.limit - start)
            return scan(table, start, count, columns)

        monkeypatch.setattr(DeltaTable, "scan", counted)


@pytest.mark.parametrize("pieces", [3, 30, 58])
def test_a_build_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    path = tmp_path / "db"
    with belvedere.open(path) as db:
        fill(db)
    child = subprocess.Popen(
        [sys.executable, str(Path(build_child.__file__)), str(path), str(pieces)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert child.stdout is not None
    try:
        word, scanned = child.stdout.readline().split()
        assert word == "stopped"
        # a few pieces more, which no snapshot has
        child.kill()
    finally:
        child.wait(60)
        child.stdout.close()
    scans = Scans(monkeypatch)
    with belvedere.open(path, **build_child.OPTIONS) as db:
        recovered = db.status()["recovery"]["build_rows"]
        assert recovered == int(scanned) > 0
        db._wait_unless_full(lambda: "s" in db.catalog.views, "the view")
        slots = sum(table.limit for table in db._runtime.engine.tables.values())
        assert sum(scans.slots.values()) == slots - recovered, "nothing is scanned again, nothing is left out"
        db.wait(db.put("t", {"id": 1, "g": 3, "v": 5}))
        assert db.verify().ok and db.verify(state=True).ok


def held(db: Database, monkeypatch: pytest.MonkeyPatch, pieces: int) -> Any:
    """Lets a build do so many pieces of one scan each, and then wait until it is let go."""
    monkeypatch.setattr(builds, "PIECE_SECONDS", 0.0)
    busy = type(db._runtime.builds).busy.fget
    done = [0]

    def stands(self: Any) -> bool:
        return bool(busy(self)) and (self.current is None or done[0] < pieces)

    advance = Build.advance

    def counts(self: Build, rows: int) -> Any:
        done[0] += 1
        return advance(self, rows)

    monkeypatch.setattr(type(db._runtime.builds), "busy", property(stands))
    monkeypatch.setattr(Build, "advance", counts)
    return done


def test_a_build_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with belvedere.open(tmp_path / "db", build_rows=1000) as db:
        fill(db)
        assert db.status()["builds"] == []
        done = held(db, monkeypatch, 10)
        db.execute(f"CREATE MATERIALIZED VIEW s AS {build_child.VIEW}", wait=False)
        while done[0] < 10:
            db._runtime.call(lambda: None)
        (told,) = db.status()["builds"]
        assert told["views"] == ["s"] and told["total"] == ROWS + 20 and told["taken_over"] == 0
        assert 0 < told["done"] < told["total"] and told["share"] == told["done"] / told["total"]
        assert told["remaining_s"] is not None and told["remaining_s"] >= 0, "tenths of a second, perhaps none"
        db.put("t", {"id": ROWS + 5, "g": 1, "v": 1})
        done[0] = -1000
        db._runtime.call(lambda: None)
        db._wait_unless_full(lambda: "s" in db.catalog.views, "the view")
        assert db.status()["builds"] == [] and db.verify().ok


def test_a_build_that_was_closed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind a snapshot of the same epoch, and after another view that shares operators with it has gone."""
    path = tmp_path / "db"
    db = belvedere.open(path, build_rows=1000, build_snapshot_seconds=1e9)
    fill(db)
    db.execute("CREATE MATERIALIZED VIEW shared AS SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g")
    with monkeypatch.context() as patched:
        done = held(db, patched, 12)
        counts = "SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g"
        query = f"SELECT x.v, count(*) AS m, max(c.n) AS n FROM t x JOIN ({counts}) c ON x.v = c.g GROUP BY x.v"
        db.execute(f"CREATE MATERIALIZED VIEW first AS {query}", wait=False)
        while done[0] < 12:
            db._runtime.call(lambda: None)
        db._applied(db._submit_ddl({"op": "drop_view", "name": "shared"}))
        db.checkpoint()
        before = db.status()["builds"][0]["done"]
        done[0] = 6
        while done[0] < 12:
            db._runtime.call(lambda: None)
        scanned = db.status()["builds"][0]["done"]
        assert scanned > before
        db.close()
    with belvedere.open(path, build_rows=1000) as db:
        assert db.status()["recovery"]["build_rows"] >= scanned > 0
        db._wait_unless_full(lambda: "first" in db.catalog.views, "the view")
        db.wait(db.delete("t", list(range(0, 3000, 7))))
        assert db.verify().ok and db.verify(state=True).ok and set(db.catalog.views) == {"first"}


def test_a_build_over_another_engine_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from belvedere.engine import engine

    path = tmp_path / "db"
    db = belvedere.open(path, build_rows=1000)
    fill(db)
    with monkeypatch.context() as patched:
        done = held(db, patched, 10)
        db.execute(f"CREATE MATERIALIZED VIEW s AS {build_child.VIEW}", wait=False)
        while done[0] < 10:
            db._runtime.call(lambda: None)
        db.close()
    monkeypatch.setattr(engine, "ENGINE_VERSION", engine.ENGINE_VERSION + 1)
    with belvedere.open(path) as db:
        assert db.status()["recovery"]["build_rows"] == 0
        db._wait_unless_full(lambda: "s" in db.catalog.views, "the view")
        assert db.verify().ok


CRASHES = 60
FEW = 10


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < FEW else pytest.mark.long) for seed in range(CRASHES)]
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_power_cuts_at_any_moment_of_a_build(seed: int) -> None:
    """Views that replace others, over views and joins, while rows come and go; the power fails again and again."""
    rng = Random(seed)
    files = FaultyFiles(seed)
    options = DatabaseOptions(build_rows=rng.choice([20, 60]), build_snapshot_seconds=0.0, epoch_rows=100)
    db = Database(None, options, files)
    fill(db, 1500)
    db.execute("CREATE MATERIALIZED VIEW low AS SELECT g, count(*) AS n, sum(v) AS v FROM t GROUP BY g")
    wanted = {
        "low": "SELECT g, count(*) AS n, sum(v) AS v, max(id) AS m FROM t WHERE v > 30 GROUP BY g",
        "high": "SELECT u.name, low.n FROM u JOIN low ON u.g = low.g",
        "s": build_child.VIEW,
    }
    for _ in range(6):
        missing = [name for name in wanted if f"AS {wanted[name]}" not in created(db, name)]
        if not missing:
            break
        files.cut_after(rng.randrange(20, 160))
        try:
            if not db.status()["builds"]:
                sql = f"CREATE OR REPLACE MATERIALIZED VIEW {missing[0]} AS {wanted[missing[0]]}"
                db.execute(sql, wait=False)
            while True:
                db.put("t", [{"id": rng.randrange(2000), "g": rng.randrange(15), "v": rng.randrange(999)}])
                db.wait(db.delete("t", [rng.randrange(2000)]))
                if not db.status()["builds"]:
                    break
            files.cut_after(0)
        except BelvedereError:
            pass  # the power is gone
        files = files.crash()
        with contextlib.suppress(BelvedereError):
            db.close()
        db = Database(None, options, files)
    db._wait_unless_full(lambda: db._runtime.builds.pending is None, "the last build")
    for name, query in wanted.items():
        db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}")
    for report in (db.verify(), db.verify(state=True), db.verify(base=True)):
        assert report.ok, f"seed {seed}: {report}"
    db.close()


def created(db: Database, name: str) -> str:
    return str(db.execute(f"SHOW CREATE VIEW {name}")) if name in db.catalog.views else ""
