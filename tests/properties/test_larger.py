"""Thousands of rows per epoch, skewed keys, all kinds of operators at once: tables grow, shrink and are compacted."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

import belvedere
from tests.oracle.clock import clock
from tests.oracle.duck import Oracle, arrow_of
from tests.oracle.model import Base
from tests.oracle.values import same_bag, table_rows

TABLES = (
    "CREATE TABLE t (k BIGINT PRIMARY KEY, g INT, s STRING, d DOUBLE, c DECIMAL(24,4))",
    "CREATE TABLE u (k BIGINT PRIMARY KEY, g INT, n INT)",
)
VIEWS = {
    "sums": "SELECT g, count(*) AS n, sum(d) AS d, sum(c) AS c, min(s) AS lo, max(s) AS hi FROM t GROUP BY g",
    "extremes": "SELECT s, min(d) AS a, max(d) AS b, min(c) AS e, max(k) AS f, count(DISTINCT g) AS h "
    "FROM t GROUP BY s",
    "joined": "SELECT t.k, t.s, u.n FROM t JOIN u ON t.k = u.k WHERE u.n > 2",
    "padded": "SELECT t.k, u.n FROM t LEFT JOIN u ON t.k = u.k",
    "full_join": "SELECT t.k AS a, u.k AS b FROM t FULL JOIN u ON t.k = u.k AND u.n < 5",
    "fan_out": "SELECT t.s, count(*) AS n, sum(u.n) AS m FROM t JOIN u ON t.g = u.g GROUP BY t.s",
    "semi": "SELECT k FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND u.n = 0)",
    "anti": "SELECT k, g FROM u WHERE k NOT IN (SELECT k FROM t)",
    "uniq": "SELECT DISTINCT g, s FROM t",
    "both": "SELECT g, sum(x) AS x FROM (SELECT g, 1 AS x FROM t UNION ALL SELECT g, n FROM u) b GROUP BY g",
    "above": "SELECT n, count(*) AS m FROM sums GROUP BY n",
}


@pytest.mark.parametrize("seed", [1, 2])
def test_views_equal_recomputation_with_thousands_of_rows(seed: int, tmp_path: Path) -> None:
    rng, model, oracle = Random(seed), Base(), Oracle()
    stamp = clock()
    db = belvedere.open(tmp_path / "db", clock=stamp, sync=False)
    for ddl in TABLES:
        db.execute(ddl)
        model.create(ddl)
    for number, (name, sql) in enumerate(VIEWS.items()):
        if number % 2 == 0 or name == "sums":
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
    for epoch in range(9):
        token = None
        for table in ("t", "u"):
            rows, deletes = _batch(rng, table, growing=epoch < 4)
            model.write(table, rows, deletes, None)
            token = db.write(table, rows, deletes=deletes)
        if epoch == 2:
            for name, sql in VIEWS.items():
                if name not in db.catalog.views:
                    db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        if epoch == 6:
            db.close()
            db = belvedere.open(tmp_path / "db", clock=stamp, sync=False)
        db.wait(token)
        for shown in model.tables.values():
            oracle.show(shown.name, arrow_of(shown))
        oracle.show("sums", oracle.arrow(VIEWS["sums"]))
        for name in db.catalog.views:
            difference = same_bag(table_rows(db.scan(name)), oracle.rows(VIEWS[name]))
            assert difference is None, f"seed {seed}, epoch {epoch}, view {name}: {difference}"
    db.close()
    oracle.close()


def _batch(rng: Random, table: str, growing: bool) -> tuple[list[dict[str, Any]], list[bool]]:
    """Puts and deletes with skewed keys and groups; first mostly puts, later mostly deletes."""
    rows: list[dict[str, Any]] = []
    deletes = []
    for _ in range(rng.randint(800, 2000)):
        key = int(rng.paretovariate(0.3)) % 3000
        delete = rng.random() < (0.1 if growing else 0.6)
        row: dict[str, Any] = {"k": key}
        if not delete:
            row["g"] = None if rng.random() < 0.02 else int(rng.paretovariate(0.7)) % 60
            if table == "u":
                row["n"] = rng.randint(0, 9)
            else:
                row["s"] = rng.choice("abcdefgh") * rng.randint(0, 4)
                row["d"] = rng.randint(-4000, 4000) / 8
                row["c"] = Decimal(rng.randint(-(10**20), 10**20)).scaleb(-4)
        rows.append(row)
        deletes.append(delete)
    return rows, deletes
