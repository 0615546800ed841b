"""Verification of a pool's state: what is planted into its store is found, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.roles import verifying
from belvedere.errors import CatalogError
from belvedere.model.verify import Report
from belvedere.plan.table_names import delta_table
from tests.cluster.fake_pool import FakePool
from tests.cluster.test_recomputing import play
from tests.properties.case import Drop, View, generate, write
from tests.properties.histories import Write
from tests.views.format import FILES, State, parse, steps

QUERIES = {
    "sums": "SELECT g, count(*) AS n, sum(x) AS s, max(s) AS m FROM t GROUP BY g",
    "pairs": "SELECT t.id, t.x, u.name FROM t LEFT JOIN u ON t.g = u.g AND u.g > 2",
    "over": "SELECT sum(n) AS n FROM sums",
}


@pytest.fixture
def pool() -> FakePool:
    made = FakePool()
    made.step()
    return made


@pytest.fixture
def db(pool: FakePool) -> Iterator[ClusterDatabase]:
    with pool.connect() as db:
        db.execute("CREATE TABLE t (id BIGINT PRIMARY KEY, g INT, x DOUBLE, s STRING)", wait=False)
        db.execute("CREATE TABLE u (g INT PRIMARY KEY, name STRING)", wait=False)
        pool.step()
        db.put("u", [{"g": g, "name": f"g{g}"} for g in range(6)])
        db.put("t", [{"id": i, "g": i % 9, "x": i / 8, "s": str(i % 5)} for i in range(200)])
        pool.step()
        for name, query in QUERIES.items():
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}", wait=False)
            while pool.step() and pool.building:
                pass
        db.put("t", [{"id": i, "x": None} for i in range(0, 200, 7)])
        db.delete("t", list(range(3, 200, 11)))
        pool.step()
        yield db


def parts(report: Report) -> tuple[Report, ...]:
    return report.parts or (report,)


def tables_of(pool: FakePool) -> list[str]:
    """All that have rows, of views in service."""
    known = pool.store.tables()
    every = {
        table
        for one in catalogs.compile(pool.document).view_groups
        if one.number not in pool.building
        for table in verifying.group_tables(pool.document, one.number, known)
    }
    return [table for table in sorted(every) if newest(pool, table)]


def newest(pool: FakePool, table: str) -> list[bytes]:
    """Ids that have a row."""
    return sorted(id for id, row in pool.store._tables.get(table, {}).items() if row.values[-1] is not None)


def plant(pool: FakePool, table: str, kind: str, rng: Random) -> Callable[[], None]:
    """One row of a table of the store is another, is gone, or is one too many; returns what undoes it."""
    held = pool.store._tables[table]
    id = rng.choice(newest(pool, table))
    value = held[id].values[-1]
    assert value is not None
    if kind == "extra":
        other = id[:8] + bytes([id[8] ^ 1]) + id[9:]
        held[other] = type(held[id])()
        held[other].put(held[id].epochs[-1], value)
        return lambda: held.pop(other) and None
    held[id].values[-1] = None if kind == "missing" else value[:-1] + bytes([value[-1] ^ 1])

    def undo() -> None:
        held[id].values[-1] = value

    return undo


KINDS = ("different", "missing", "extra")


def found(report: Report) -> dict[str, dict[str, int]]:
    """By table, from the examples."""
    out: dict[str, dict[str, int]] = {}
    for part in parts(report):
        for kind in KINDS:
            for one in getattr(part, kind):
                row = one["found"] if kind == "different" else one
                counts = out.setdefault(row["table"], dict.fromkeys(KINDS, 0))
                counts[kind] += 1
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_of_every_table_counts(pool: FakePool, db: ClusterDatabase, kind: str) -> None:
    report = db.verify(state=True)
    assert report.ok and all(part.subject == "state" for part in parts(report)), str(report)
    tables = tables_of(pool)
    assert len(tables) >= 6
    for table in tables:
        undo = plant(pool, table, kind, Random(3))
        wrong = db.verify(state=True)
        assert not wrong.ok and found(wrong) == {table: dict.fromkeys(KINDS, 0) | {kind: 1}}, f"{table}: {wrong}"
        undo()
    assert db.verify(state=True).ok


def test_one_view_is_verified_with_those_that_share_its_state(pool: FakePool, db: ClusterDatabase) -> None:
    report = db.verify("pairs", state=True)
    assert report.ok and report.view == "pairs" and report.rows > 150 and "state of view pairs" in str(report)
    for table in tables_of(pool):
        undo = plant(pool, table, "missing", Random(1))
        mine = next(part.view for part in parts(db.verify(state=True)) if not part.ok)
        assert db.verify("pairs", state=True).ok == (mine != "pairs")
        undo()


def test_a_wrong_cell_of_delta_shows_in_the_state_that_is_made_of_it(pool: FakePool, db: ClusterDatabase) -> None:
    db.put("t", [{"id": 5, "g": 1, "x": 100.0, "s": "a"}])
    pool.step()
    db.put("t", [{"id": 5, "g": 1, "x": 200.0, "s": "a"}])
    pool.step()
    assert db.verify(state=True).ok
    held = pool.store._tables[delta_table("t")].values()
    row = next(row for row in held if len(row.values) >= 2 and row.epochs[-1] == epoch(pool))
    row.values[-1] = row.values[-2]
    assert {part.view for part in parts(db.verify(state=True)) if not part.ok} >= {"pairs"}


def epoch(pool: FakePool) -> int:
    assert pool.plan is not None
    return pool.plan.epoch


def test_what_dropped_views_left_in_shared_groups_is_no_damage(pool: FakePool, db: ClusterDatabase) -> None:
    query = "SELECT g, min(x) AS m, count(DISTINCT s) AS d FROM t GROUP BY g"
    db.execute(f"CREATE MATERIALIZED VIEW first AS {query}", wait=False)
    db.execute("CREATE MATERIALIZED VIEW second AS SELECT g, sum(x) AS m FROM t GROUP BY g", wait=False)
    while pool.step() and pool.building:
        pass
    db.execute("DROP MATERIALIZED VIEW first")
    pool.step()
    pool.retire()
    pool.step()
    report = db.verify(state=True)
    assert report.ok, str(report)


def test_base_rows_of_tables_of_the_pool_lie_once(pool: FakePool, db: ClusterDatabase) -> None:
    report = db.verify("t", base=True)
    assert report.ok and not report.compared and "a base row lies once, as DELTA" in str(report)
    assert [part.view for part in parts(db.verify(base=True))] == ["t", "u"]
    assert [part.view for part in parts(db.verify("over", base=True))] == ["t"]
    with pytest.raises(CatalogError, match="one at a time"):
        db.verify(base=True, state=True)


ALWAYS = {"agg_min_max", "join_full", "distinct_rows", "not_in_subquery", "quarantine_group", "view_over_bag"}


@pytest.mark.parametrize(
    "path", [pytest.param(p, id=p.stem, marks=() if p.stem in ALWAYS else pytest.mark.long) for p in FILES]
)
def test_damage_is_found_in_every_kind_of_view(path: Path) -> None:
    """A corrupted, a deleted and an extra row in every table of every view group."""
    pool, state, rng = FakePool(), State(), Random(path.stem)
    pool.step()
    with pool.connect() as db:
        for step, _ in steps(parse(path)):
            play(pool, db, step, state)
        assert db.verify(state=True).ok, str(db.verify(state=True))
        for table in tables_of(pool):
            kind = rng.choice(KINDS)
            undo = plant(pool, table, kind, rng)
            told = found(db.verify(state=True))
            assert told.get(table, {}).get(kind) == 1, f"{path.stem}, {table}, {kind}: {told}"
            undo()


HEALTHY, FEW = 300, 15


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=() if seed < FEW else pytest.mark.long) for seed in range(HEALTHY)]
)
def test_nothing_is_reported_where_nothing_was_planted(seed: int) -> None:
    """Random views at random epochs, while the history goes on."""
    case, rng = generate(seed), Random(seed)
    pool = FakePool()
    pool.step()
    with pool.connect() as db:
        for table in case.tables:
            db.execute(table.ddl(), wait=False)
            pool.step()
        known = set[str]()
        looks = {rng.randrange(len(case.steps)), len(case.steps) - 1}
        for number, step in enumerate(case.steps):
            if isinstance(step, View):
                word = "OR REPLACE " if step.name in known else ""
                known.add(step.name)
                db.execute(f"CREATE {word}MATERIALIZED VIEW {step.name} AS {step.sql.spark}", wait=False)
                while pool.step() and pool.building:
                    pass
            elif isinstance(step, Drop):
                known.discard(step.name)
                db.execute(f"DROP MATERIALIZED VIEW {step.name}", wait=False)
            elif isinstance(step, Write):
                write(db, step)
            if rng.random() < 0.7:
                pool.step()
            if number in looks:
                report = db.verify(state=True)
                assert report.ok, f"seed {seed}, step {number}: {report}"
