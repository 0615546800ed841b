"""Opening again: state is loaded for the plan that made it, whatever led to that plan."""

from __future__ import annotations

import json

import pytest

import belvedere
from belvedere.embedded.storage.plans import plan_json, plan_of
from belvedere.plan.nodes import Plan
from belvedere.plan.planner import plan_views

TABLES = [
    "CREATE TABLE a (id BIGINT PRIMARY KEY, k INT, x DOUBLE, d DECIMAL(10,2), s STRING, t TIMESTAMP)",
    "CREATE TABLE b (k INT PRIMARY KEY, name STRING, due DATE)",
]
WIDE = "SELECT k, count(*) AS n, sum(x) AS x, sum(d) AS d, max(s) AS s FROM a GROUP BY k"
NARROW = "SELECT k, count(*) AS n FROM a GROUP BY k"
JOIN = "SELECT a.id, b.name, a.x FROM a JOIN b ON a.k = b.k"
OVER = "SELECT count(*) AS groups, sum(n) AS n FROM narrow"


def create(name: str, query: str, word: str = "CREATE") -> str:
    return f"{word} MATERIALIZED VIEW {name} AS {query}"


HISTORIES = {
    "drop of what others share": [
        create("wide", WIDE), create("narrow", NARROW), create("over", OVER), "DROP MATERIALIZED VIEW wide",
    ],
    "replace with dependants": [
        create("narrow", NARROW), create("over", OVER), create("wide", WIDE),
        create("narrow", NARROW + " HAVING count(*) > 1", "CREATE OR REPLACE"),
    ],
    "replace of a shared side": [
        create("narrow", "SELECT id, k, s, x FROM a WHERE x > 0"), create("j", JOIN),
        create("j2", "SELECT a.id, a.s, b.due FROM a LEFT JOIN b ON a.k = b.k"),
        create("j", JOIN.replace("a.x", "a.d"), "CREATE OR REPLACE"), create("over", "SELECT count(*) AS n FROM j2"),
        "DROP MATERIALIZED VIEW j",
    ],
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
def test_state_is_loaded_after_views_were_replaced_and_dropped(tmp_path, history):
    def write(db: belvedere.Database, start: int) -> None:
        db.put("b", [{"k": k, "name": f"n{k}"} for k in range(start, start + 5)])
        rows = [{"id": i, "k": i % 7, "x": i / 3, "d": i, "s": f"s{i}"} for i in range(start, start + 40)]
        db.wait(db.put("a", rows))

    with belvedere.open(tmp_path) as db:
        for sql in TABLES:
            db.execute(sql)
        write(db, 0)
        for sql in HISTORIES[history]:
            db.execute(sql)
        write(db, 20)
        before = {name: db.scan(name).to_pylist() for name in db.catalog.views}
    for start in (30, 60):
        with belvedere.open(tmp_path) as db:
            assert db.status()["recovery"] == {"records": 0, "rebuilt": False, "build_rows": 0}
            if start == 30:
                assert {name: db.scan(name).to_pylist() for name in db.catalog.views} == before
            write(db, start)
            db.delete("a", [start, start + 1])
            assert db.verify().ok


def test_another_engine_version_is_rebuilt_from_base_rows(tmp_path, monkeypatch):
    with belvedere.open(tmp_path) as db:
        for sql in [*TABLES, create("wide", WIDE), create("j", JOIN)]:
            db.execute(sql)
        db.wait(db.put("a", [{"id": i, "k": i % 3, "x": 0.1} for i in range(50)]))
        before = db.scan("wide").to_pylist()
    monkeypatch.setattr("belvedere.engine.engine.ENGINE_VERSION", -1)
    with belvedere.open(tmp_path) as db:
        assert db.status()["recovery"]["rebuilt"] is True
        assert db.scan("wide").to_pylist() == before and db.verify().ok


QUERIES = [
    WIDE, JOIN,
    "SELECT id, CASE WHEN x > 1.5e0 THEN 'a' ELSE s END AS c FROM a WHERE t >= TIMESTAMP '2024-01-02 03:04:05.000006'",
    "SELECT DISTINCT name FROM b WHERE due < DATE '2024-02-03' OR name = X'00FF'",
    "SELECT id FROM a WHERE d > 1.25 AND k NOT IN (SELECT k FROM b) UNION ALL SELECT k FROM b",
    "SELECT a.id, b.name FROM a FULL JOIN b ON a.k = b.k AND a.x < 3",
]  # fmt: skip


def test_plans_survive_json():
    with belvedere.open() as db:
        for sql in TABLES:
            db.execute(sql)
        views = []
        for i, query in enumerate(QUERIES):
            query = query.replace(" OR name = X'00FF'", " OR CAST(name AS BINARY) = X'00FF'")
            db.execute(create(f"v{i}", query))
            views += plan_views(db.catalog, [db.catalog.views[f"v{i}"]], Plan(tuple(views)))
    again = plan_of(json.loads(json.dumps(plan_json(views))))
    assert again == tuple(views)
