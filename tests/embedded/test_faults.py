"""The whole database on a disk that loses, tears, reorders and fails: nothing acknowledged is lost, views stay
exact."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from belvedere.embedded.database import Database
from belvedere.embedded.opening import make_options
from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.errors import BelvedereError, Closed, DiskError, Locked

VIEWS = {
    "sums": "SELECT g, count(*) AS n, sum(v) AS total FROM t GROUP BY g",
    "big": "SELECT id, v FROM t WHERE v > 50",
    "top": "SELECT count(*) AS groups, sum(total) AS total FROM sums",
}


def opened(files: FaultyFiles, **options) -> Database:
    small = {"snapshot_bytes": 6_000, "segment_bytes": 4_000, "threads": 1, **options}
    return Database("faulty", make_options(small), files)


class Model:
    """What was acknowledged, and the one call whose fate is unknown."""

    def __init__(self):
        self.rows: dict[int, tuple] = {}
        self.views: set[str] = set()
        self.unknown: dict[int, tuple | None] = {}

    def variants(self) -> list[dict]:
        after = dict(self.rows)
        for key, row in self.unknown.items():
            if row is None:
                after.pop(key, None)
            else:
                after[key] = row
        return [self.rows, after]


def check(db: Database, model: Model) -> None:
    db.wait(db._committer.epoch, timeout=20)
    found = {r["id"]: (r["g"], r["v"]) for r in db.scan("t").to_pylist()} if "t" in db.catalog.tables else {}
    assert found in model.variants()
    model.rows, model.unknown = found, {}
    for view in model.views:
        assert view in db.catalog.views
    for view in db.catalog.views:
        compare(db.scan(view).to_pylist(), view, found)
    model.views = set(db.catalog.views)


def compare(rows: list[dict], view: str, base: dict[int, tuple]) -> None:
    sums: dict = {}
    for group, value in base.values():
        n, total = sums.get(group, (0, None))
        sums[group] = (n + 1, total if value is None else value + (total or 0))
    if view == "sums":
        assert {r["g"]: (r["n"], r["total"]) for r in rows} == sums and len(rows) == len(sums)
    elif view == "big":
        assert sorted((r["id"], r["v"]) for r in rows) == sorted((k, v) for k, (_, v) in base.items() if v and v > 50)
    else:
        totals = [t for _, t in sums.values() if t is not None]
        assert rows == [{"groups": len(sums), "total": sum(totals) if totals else None}]


def work(db: Database, model: Model, rng: random.Random, operations: int) -> None:
    """Random calls; raises what the database raises."""
    for _ in range(operations):
        kind = rng.random()
        missing = [v for v in VIEWS if v not in db.catalog.views and (v != "top" or "sums" in db.catalog.views)]
        if "t" not in db.catalog.tables:
            db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v BIGINT)")
        elif kind < 0.1 and missing:
            name = rng.choice(missing)
            db.execute(f"CREATE MATERIALIZED VIEW IF NOT EXISTS {name} AS {VIEWS[name]}", wait=rng.random() < 0.7)
            if name in db.catalog.views:
                model.views.add(name)
        elif kind < 0.15:
            db.checkpoint()
        elif kind < 0.35 and model.rows:
            keys = rng.sample(sorted(model.rows), min(len(model.rows), rng.randint(1, 3)))
            model.unknown = dict.fromkeys(keys)
            db.delete("t", keys)
            model.rows, model.unknown = model.variants()[1], {}
        else:
            rows = [
                {"id": rng.randrange(40), "g": rng.choice([None, 1, 2, 3]), "v": rng.choice([None, rng.randrange(100)])}
                for _ in range(rng.randint(1, 6))
            ]
            model.unknown = {r["id"]: (r["g"], r["v"]) for r in rows}
            db.put("t", rows)
            model.rows, model.unknown = model.variants()[1], {}


@pytest.mark.parametrize("seed", range(60))
def test_power_cuts_lose_nothing_acknowledged(seed):
    rng = random.Random(seed)
    files = FaultyFiles(seed)
    model = Model()
    for _ in range(6):
        files.cut_after(rng.choice([rng.randint(0, 30), rng.randint(20, 200)]))
        db = None
        try:
            db = opened(files)
            check(db, model)
            work(db, model, rng, 25)
            if rng.random() < 0.3:
                db.close()
        except (BelvedereError, OSError) as error:
            assert files.dead or isinstance(error, Closed), error
        files = files.crash()
    db = opened(files)
    check(db, model)
    db.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_full_disk_refuses_writes_and_goes_on_when_there_is_room(seed):
    rng = random.Random(seed)
    files = FaultyFiles(seed)
    model = Model()
    db = opened(files)
    work(db, model, rng, 15)
    for _ in range(4):
        files.fail("write", after=rng.randint(0, 6), error=errno.ENOSPC, always=rng.random() < 0.5)
        try:
            work(db, model, rng, 10)
        except DiskError as error:
            assert "nothing was written" in str(error) or "waits for room" in str(error)
            model.unknown = {}
        files.heal()
        with contextlib.suppress(DiskError):
            db._runtime.call(lambda: None)  # it may say what it found before there was room
        check(db, model)
    assert db.verify().ok
    db.close()
    db = opened(files.crash())
    check(db, model)
    db.close()


@pytest.mark.parametrize("operation", ["sync", "rename", "create", "write", "truncate"])
@pytest.mark.parametrize("after", [0, 1, 3, 8])
def test_an_input_output_error_stops_the_database_with_its_reason_and_a_restart_mends_it(operation, after):
    rng = random.Random(after)
    files = FaultyFiles(after)
    model = Model()
    db = opened(files)
    work(db, model, rng, 20)
    files.fail(operation, after=after, error=errno.EIO)
    try:
        work(db, model, rng, 40)
        db.checkpoint()
        db.close()
    except (DiskError, Closed) as error:
        assert "scripted failure" in str(error)
        if isinstance(error, Closed):
            with pytest.raises(Closed, match="scripted failure"):
                db.put("t", {"id": 1})
    files = files.crash()
    db = opened(files)
    check(db, model)
    assert db.verify().ok
    db.close()


def test_a_second_writer_is_refused():
    files = FaultyFiles(1)
    db = opened(files)
    with pytest.raises(Locked, match="another process"):
        opened(files)
    db.close()
    opened(files).close()


def every_kind_of_sync(db: Database, model: Model) -> None:
    """Calls after each of which nobody syncs: records, new segments, snapshots with what they remove."""
    for round in range(3):
        for i in range(12):
            model.unknown = {i: (round, i + 45)}
            db.put("t", {"id": i, "g": round, "v": i + 45})
            model.rows, model.unknown = model.variants()[1], {}
        db.wait(db._committer.epoch, timeout=20)
        db.checkpoint()


def prepared() -> tuple[FaultyFiles, Database, Model]:
    files, model = FaultyFiles(5), Model()
    db = opened(files, snapshot_bytes=1 << 40, segment_bytes=1_500)  # snapshots only when asked for
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v BIGINT)")
    db.execute(f"CREATE MATERIALIZED VIEW sums AS {VIEWS['sums']}")
    model.views = {"sums"}
    return files, db, model


def test_whichever_sync_fails_the_database_stops_with_its_reason_and_a_restart_mends_it():
    files, db, model = prepared()
    before = files._counts["sync"]
    every_kind_of_sync(db, model)
    syncs = files._counts["sync"] - before
    db.close()
    assert syncs > 60
    for after in range(syncs):
        files, db, model = prepared()
        before = files._counts["sync"]
        files.fail("sync", after=after, error=errno.EIO)
        try:
            every_kind_of_sync(db, model)
        except (Closed, DiskError) as error:
            assert "scripted failure" in str(error)
        else:  # how many there are depends on what threads find to do together
            assert files._counts["sync"] - before <= after and after > 60
            db.close()
            continue
        with pytest.raises(Closed, match="scripted failure"):
            db.put("t", {"id": 1})
        with pytest.raises(Closed, match="scripted failure"):
            db.wait(db._committer.epoch + 1, timeout=20)
        db.close()
        db = opened(files.crash())
        check(db, model)
        db.close()


def test_a_sync_that_fails_at_the_end_is_told_as_an_error_of_ours():
    files = FaultyFiles(1)
    db = opened(files, sync=False, snapshot=False)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, v BIGINT)")
    db.put("t", {"id": 1})
    files.fail("sync", error=errno.EIO, always=True)
    with pytest.raises(Closed, match="scripted failure"):
        db.close()
