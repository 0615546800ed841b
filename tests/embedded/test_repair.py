"""Verification of state, and repair: what is planted is found and mended, also across a crash and for readers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import belvedere
from belvedere.embedded.database import Database
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.reader import Reader
from belvedere.embedded.storage.faulty import FaultyFiles
from belvedere.engine.delta import Delta
from belvedere.errors import BelvedereError, CatalogError, DataError
from belvedere.model.verify import Report
from tests.embedded import damage
from tests.embedded.test_builds import held
from tests.oracle.clock import clock
from tests.properties.case import Drop, View, generate, write
from tests.properties.histories import Write
from tests.views.format import FILES, State, parse, steps
from tests.views.test_views import _do as carry_out

VIEWS = {
    "sums": "SELECT g, count(*) AS n, sum(x) AS s, max(s) AS m, count(DISTINCT s) AS d FROM t GROUP BY g",
    "pairs": "SELECT t.id, t.x, sums.n FROM t LEFT JOIN sums ON t.g = sums.g AND sums.n + t.id > 9",
    "total": "SELECT count(*) AS c, sum(n) AS n FROM sums",
    "plain": "SELECT id, x + 1 AS y, g FROM t WHERE g <> 5",
}


def fill(db: Database, seed: int = 1) -> None:
    rng = np.random.default_rng(seed)
    db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x DOUBLE, s STRING)")
    for name, query in VIEWS.items():
        db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    more(db, rng)


def more(db: Database, rng: np.random.Generator) -> None:
    token = None
    for _ in range(8):
        ids = [int(i) for i in rng.integers(0, 200, 30)]
        db.put("t", [{"id": i, "g": i % 9, "x": float(rng.normal()), "s": str(i % 5)} for i in ids])
        db.put("t", [{"id": int(i), "x": None} for i in rng.integers(0, 200, 3)])
        token = db.delete("t", [int(i) for i in rng.integers(0, 200, 4)])
    assert token is not None
    db.wait(token)


@pytest.fixture
def db() -> Iterator[Database]:
    with belvedere.open() as made:
        fill(made)
        yield made


def clean(db: Database) -> None:
    for report in (db.verify(), db.verify(state=True)):
        assert report.ok, str(report)


# ---------------------------------------------------------------------- finding and mending


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("plant", damage.ROWS, ids=lambda p: p.__name__)
def test_a_wrong_row_is_found_and_mended(db: Database, view: str, plant: damage.Plant) -> None:
    clean(db)
    assert plant(db, view)
    before = db.verify(view)
    assert before.differences == 1 and db.verify(view, state=True).ok
    told = db.repair(view, dry_run=True)
    assert told.tables[f"view {view}"] == 1 and not told.ok and told.dry_run and db.verify(view).differences == 1
    others = [row.problem for row in told.rows if row.table == f"view {view}"]
    assert others == [{"corrupt_row": "different", "delete_row": "missing", "add_row": "extra"}[plant.__name__]]
    with db.subscribe(view) as changes:
        done = db.repair(view)
        assert done.ok and done.mended == told.found and done.epoch > told.epoch
        change = next(iter(changes))
        assert change.epoch == done.epoch and len(change) == (2 if others == ["different"] else 1)
    clean(db)
    again = db.repair(view)
    assert again.ok and again.found == 0 == again.mended


@pytest.mark.parametrize("plant", damage.STATE, ids=lambda p: p.__name__)
def test_wrong_state_is_found_and_mended_before_and_after_it_spread(db: Database, plant: damage.Plant) -> None:
    assert plant(db, "")
    assert db.verify().ok, "rows are still right"
    report = db.verify(state=True)
    assert not report.ok and report.differences >= 1, str(report)
    wrong = next(part for part in report.parts if not part.ok)
    assert wrong.subject == "state" and "state of view" in str(wrong)
    found = [*wrong.missing, *wrong.extra, *(pair["found"] for pair in wrong.different)]
    assert all(len(row["id"]) == 32 and row["table"] for row in found) and found
    assert db.repair(wrong.view).ok
    clean(db)
    more(db, np.random.default_rng(7))
    clean(db)


def test_rows_that_wrong_state_made_are_mended_with_it(db: Database) -> None:
    assert damage.add_to_aggregate(db, "sums")
    for i in range(200):
        token = db.put("t", {"id": i, "g": i % 9, "x": 0.5, "s": "a"})
    db.wait(token)
    assert not db.verify("sums").ok
    report = db.repair("sums")
    assert report.ok and report.tables["view sums"] >= 1 and any("PreAggregation" in name for name in report.tables)
    clean(db)


def test_views_that_share_wrong_state_are_mended_together(db: Database) -> None:
    """Neither reads the other; what is wrong in one may have come from what is wrong behind both."""
    db.execute("CREATE MATERIALIZED VIEW twin AS SELECT g, min(x) AS m, min(s) AS k FROM t GROUP BY g")
    assert damage.corrupt_row(db, "twin") and "view twin" not in db.repair("sums", dry_run=True).tables
    assert damage.count_group(db, "sums")
    assert db.repair("sums").tables["view twin"] == 1
    clean(db)


def test_a_repair_goes_downstream(db: Database) -> None:
    """What is made of a view is mended with it; what is not, is not."""
    for view in ("sums", "pairs", "total", "plain"):
        assert damage.corrupt_row(db, view)
    assert {name for name in db.repair("sums", dry_run=True).tables if name.startswith("view")} == {
        "view sums", "view pairs", "view total",
    }  # fmt: skip
    assert db.repair("sums").ok
    assert [report.view for report in db.verify().parts if not report.ok] == ["plain"]
    assert db.repair("plain").ok
    clean(db)


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ({"keys": [1, 3]}, [1, 3]), ({"prefix": 1}, [1]), ({"start": 2, "stop": 4}, [2, 3]), ({"start": 7}, [7, 8]),
        ({"keys": [(2,), {"id": 4}]}, [2, 4]),
    ],
)  # fmt: skip
def test_only_what_is_asked_for_is_mended(db: Database, given: dict[str, Any], mended: list[int]) -> None:
    db.wait(db.put("t", [{"id": i, "g": 1, "x": float(i), "s": "a"} for i in range(9)]))
    db.wait(db.delete("t", list(range(9, 200))))
    right = {row["id"]: row["y"] for row in db.scan("plain").to_pylist()}
    held = db._runtime.tables["plain"]

    def plant() -> None:
        rows = held.table.rows()
        y = next(i for i, c in enumerate(held.shape.schema) if c.name == "y")
        columns = list(rows.columns)
        columns[y] = damage.other_values(columns[y])
        held.table.apply(Delta(tuple(columns), rows.weight, rows.id))
        held.table.end_epoch()

    damage.between_epochs(db, plant)
    assert db.repair("plain", dry_run=True, **given).tables["view plain"] == len(mended)
    assert db.repair("plain", **given).tables["view plain"] == len(mended)
    rows = {row["id"]: row["y"] for row in db.scan("plain").to_pylist()}
    assert [i for i in range(9) if rows[i] == right[i]] == mended
    assert db.verify("plain").differences == 9 - len(mended)


def test_a_repair_of_everything_does_not_look_first(db: Database) -> None:
    assert damage.corrupt_row(db, "sums") and damage.lose_side(db, "pairs")
    report = db.repair("sums", everything=True)
    assert report.ok and set(report.rebuilt) == {"sums", "pairs", "total"} and report.mended == 1
    clean(db)


def test_a_repair_while_a_view_is_built_begins_the_build_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build may have taken over what was wrong."""
    with belvedere.open(tmp_path / "db", build_rows=20) as db:
        fill(db)
        assert damage.add_to_aggregate(db, "sums") and damage.corrupt_row(db, "sums")
        with monkeypatch.context() as patched:
            done = held(db, patched, 4)
            query = "SELECT t.s, count(*) AS c, max(sums.n) AS n FROM t JOIN sums ON t.g = sums.g GROUP BY t.s"
            db.execute(f"CREATE MATERIALIZED VIEW beside AS {query}", wait=False)
            while done[0] < 4:
                db._runtime.call(lambda: None)
            assert db.status()["builds"]
            assert db.repair("sums").ok and db.status()["builds"]
        db._runtime.call(lambda: None)
        db._wait_unless_full(lambda: "beside" in db.catalog.views, "the view")
        clean(db)


def test_bad_requests_are_refused(db: Database) -> None:
    with pytest.raises(CatalogError, match="is not of some keys"):
        db.repair("sums", keys=[1], everything=True)
    with pytest.raises(CatalogError, match="'t', a base table is not of some keys"):
        db.repair("t", start=1)
    with pytest.raises(CatalogError, match="of keys, of a prefix, or"):
        db.repair("sums", keys=[1], start=1)
    with pytest.raises(CatalogError, match="nothing"):
        db.repair("nothing")
    with pytest.raises(DataError, match="the key of view 'sums'"):
        db.repair("sums", keys=[(1, 2)])
    with pytest.raises(CatalogError, match="one at a time"):
        db.verify(state=True, base=True)
    with pytest.raises(CatalogError, match="it has no state but its rows"):
        db.verify("t", state=True)


def test_rows_in_quarantine_are_mended_too(db: Database) -> None:
    db.execute("CREATE MATERIALIZED VIEW numbers AS SELECT id, CAST(s AS INT) AS n FROM t")
    db.wait(db.put("t", [{"id": 500 + i, "s": "x"} for i in range(3)]))
    held = db._runtime.tables["numbers"]
    assert db.quarantine("numbers").num_rows == 3

    def plant() -> None:
        row = held.quarantine.rows(held.quarantine.slots()[:1])
        held.quarantine.apply(Delta(row.columns, np.array([-1], np.int8), row.id))
        held.quarantine.end_epoch()

    damage.between_epochs(db, plant)
    assert "rows are in quarantine, but 3 rows" in str(db.verify("numbers").problem)
    assert db.repair("numbers", dry_run=True).tables == {"quarantine numbers": 1}
    db.repair("numbers")
    assert db.quarantine("numbers").num_rows == 3 and db.verify("numbers").differences == 0


# ---------------------------------------------------------------------- base rows


def corrupt_base(db: Database) -> None:
    def plant() -> None:
        table = db._runtime.engine.tables["t"]
        slot = table.live_slots()[:1]
        (vec,) = table.gather(slot, [2])
        columns = list(table.gather(slot, range(4)))
        columns[2] = damage.other_values(vec)
        table._columns.scatter(slot, columns)

    damage.between_epochs(db, plant)


def test_a_wrong_cell_in_memory_is_found_and_mended_from_snapshot_and_log(tmp_path: Path) -> None:
    with belvedere.open(tmp_path / "db") as db:
        fill(db)
        assert db.verify(base=True).ok
        db.checkpoint()
        more(db, np.random.default_rng(3))
        report = db.verify("sums", base=True)
        assert report.ok and report.subject == "table" and "equal its origin" in str(report)
        right = db.scan("t")
        corrupt_base(db)
        report = db.verify("t", base=True)
        assert not report.ok and report.counts == {"missing": 0, "extra": 0, "different": 1}
        assert str(report.different[0]["found"]["table"]) == "DELTA t"
        told = db.repair("sums")
        assert told.ok and told.tables["DELTA t"] == 1
        assert db.scan("t") == right and db.verify(base=True).ok
        clean(db)
        corrupt_base(db)
        assert db.repair("t").tables["DELTA t"] == 1
        clean(db)
        more(db, np.random.default_rng(4))
        clean(db)
        assert db.verify(base=True).ok


def test_base_rows_of_a_database_in_memory_are_nowhere_else() -> None:
    with belvedere.open() as db:
        fill(db)
        report = db.verify("t", base=True)
        assert report.ok and not report.compared and "has its rows nowhere else" in str(report)


# ---------------------------------------------------------------------- files, crashes, reading processes


def test_a_reading_process_and_a_reopened_database_agree_after_a_repair(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with belvedere.open(path) as db:
        fill(db)
        reader = belvedere.open(path, read_only=True)
        assert damage.corrupt_row(db, "sums")
        db.checkpoint()  # the damage is in the snapshot now
        young = belvedere.open(path, read_only=True)
        assert not young.verify("sums").ok and reader.verify("sums").ok
        assert db.repair("sums").ok
        for one in (db, reader, young):
            assert one.verify().ok, str(one.verify())
        more(db, np.random.default_rng(5))
        for one in (db, reader, young):
            assert one.verify().ok
        reader.close()
        young.close()
    with belvedere.open(path) as db:
        clean(db)


def test_damage_in_the_changelog_alone_is_found_and_left_behind(tmp_path: Path) -> None:
    """Reading processes see it, the writer does not."""
    path = tmp_path / "db"
    with belvedere.open(path) as db:
        fill(db)
        reader = belvedere.open(path, read_only=True)
        append = db._runtime.changelog.append

        def wrong(epoch: int, parts: Any, *more: Any, **named: Any) -> None:
            told = [(shape, delta.take(np.arange(len(delta) - 1))) for shape, delta in parts if len(delta)]
            append(epoch, [one for one in told if len(one[1])], *more, **named)

        db._runtime.changelog.append = wrong  # type: ignore[method-assign]
        db.wait(db.put("t", [{"id": 900 + i, "g": 100 + i, "x": 1.0, "s": "a"} for i in range(3)]))
        db._runtime.changelog.append = append  # type: ignore[method-assign]
        assert db.verify().ok and not reader.verify().ok
        told = db.repair("sums")
        assert told.ok and {"changelog sums", "changelog pairs"} <= set(told.tables)
        assert all(name.startswith("changelog") for name in told.tables)
        assert all(reader.verify(view).ok for view in ("sums", "pairs", "total"))
        clean(db)
        reader.close()


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("snapshot", [False, True], ids=["log alone", "damaged snapshot"])
@pytest.mark.parametrize("moment", ["asked", "durable", "mended", "recorded", "snapshot"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_crash_in_the_middle_leaves_all_or_nothing(
    monkeypatch: pytest.MonkeyPatch, moment: str, snapshot: bool
) -> None:
    """Whatever the files hold then, a database that is opened on them has the views that its log makes, once the
    repair is in it; and so has a process that reads them."""
    files = FaultyFiles(3)
    db = Database(None, DatabaseOptions(snapshot=False), files)
    fill(db)
    assert damage.corrupt_row(db, "sums") and damage.add_row(db, "plain")
    if snapshot:
        db.checkpoint()
    repairs, runtime = db._runtime.repairs, db._runtime
    left: list[FaultyFiles] = []

    def crash(*_: Any, **__: Any) -> Any:
        left.append(files.crash())
        raise Crash

    if moment == "asked":
        monkeypatch.setattr(db, "_submit_ddl", crash)
    elif moment == "durable":
        monkeypatch.setattr(repairs, "_mend", crash)
    elif moment == "mended":
        monkeypatch.setattr(runtime, "record", crash)
    elif moment == "recorded":
        monkeypatch.setattr(runtime, "publish", crash)
    else:
        snapshots = db._instance.snapshots
        assert snapshots is not None
        monkeypatch.setattr(snapshots, "take", crash)
    with pytest.raises(BaseException):
        db.repair("sums")
    monkeypatch.undo()
    with contextlib.suppress(BelvedereError):
        db.close()
    again = Database(None, DatabaseOptions(snapshot=False), left[0])
    report = again.verify("sums")
    assert report.ok == (moment != "asked" or not snapshot), str(report)
    assert again.verify("plain").ok == (not snapshot), "nobody asked for this one"
    assert again.verify(state=True).ok
    for view in ("sums", "plain"):
        assert again.repair(view).ok
    clean(again)
    more(again, np.random.default_rng(9))
    clean(again)
    reader = Reader(left[0], DatabaseOptions())
    assert reader.verify().ok, str(reader.verify())
    again.close()


# ---------------------------------------------------------------------- every kind of view

ALWAYS = {
    "agg_count_distinct", "agg_global", "agg_min_max", "distinct_rows", "join_full", "join_residual_full", "union_all",
    "not_in_subquery", "quarantine_group",
}  # fmt: skip
"""Stories in every run; the others are in long ones."""


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=() if p.stem in ALWAYS else pytest.mark.long) for p in FILES]
)
def test_damage_is_found_and_mended_in_every_story_of_views(path: Path) -> None:
    state = State()
    with belvedere.open(clock=clock()) as db:
        for step, _ in steps(parse(path)):
            carry_out(db, step, state, path.name)
        healthy(db, path.stem)
        for view in db.catalog.views:
            for plant in damage.ROWS:
                if not plant(db, view):
                    continue
                # DuckDB counts rows, so it can tell wherever it can compare; our own engine always can
                seen = db.verify(view)
                assert seen.differences or not seen.compared, f"{path.stem}, {view}: {plant.__name__}"
                told = db.repair(view)
                assert told.tables.get(f"view {view}") == 1 and not told.remaining, f"{path.stem}, {view}: {told}"
                healthy(db, f"{path.stem}, {plant.__name__}")
        for plant in damage.STATE:
            if not plant(db, ""):
                continue
            wrong = [one for one in parts(db.verify(state=True)) if not one.ok]
            assert wrong, f"{path.stem}: {plant.__name__}"
            assert db.repair(wrong[0].view).found
            healthy(db, f"{path.stem}, {plant.__name__}")


def parts(report: Report) -> tuple[Report, ...]:
    return report.parts or (report,)


def healthy(db: Database, what: str) -> None:
    for report in (*parts(db.verify()), *parts(db.verify(state=True))):
        assert not report.differences, f"{what}: {report}"


HEALTHY = 300
FEW = 30


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < FEW else pytest.mark.long) for seed in range(HEALTHY)]
)
def test_nothing_is_reported_where_nothing_was_planted(seed: int) -> None:
    """Random views, at random epochs of random histories; rows, state and repair."""
    case, rng = generate(seed), Random(seed)
    with belvedere.open(clock=clock()) as db:
        for table in case.tables:
            db.execute(table.ddl())
        known = set[str]()
        looks = {rng.randrange(len(case.steps)), len(case.steps) - 1}
        for number, step in enumerate(case.steps):
            if isinstance(step, View):
                word = "OR REPLACE " if step.name in known else ""
                known.add(step.name)
                db.execute(f"CREATE {word}MATERIALIZED VIEW {step.name} AS {step.sql.spark}")
            elif isinstance(step, Drop):
                known.discard(step.name)
                db.execute(f"DROP MATERIALIZED VIEW {step.name}")
            elif isinstance(step, Write):
                db.wait(write(db, step))
            if number in looks:
                healthy(db, f"seed {seed}, step {number}")
                for view in rng.sample(list(db.catalog.views), min(1, len(db.catalog.views))):
                    told = db.repair(view, dry_run=True)
                    assert not told.found, f"seed {seed}, step {number}: {told.tables}"
