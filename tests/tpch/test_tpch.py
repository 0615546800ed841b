"""TPC-H queries as views, all at once, under refresh streams: equal to DuckDB after every batch.

The oracle's tables are DuckDB's own, changed by INSERT, UPDATE and DELETE. Views are compared exactly with the
recomputation of their bound queries, and (types of quotients and averages aside) with DuckDB's reading of the
original text.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

import belvedere
from belvedere.embedded.database import Database
from tests.oracle.duck import Oracle
from tests.oracle.values import same_bag, table_rows
from tests.tpch.data import TABLES, tables
from tests.tpch.queries import QUERIES
from tests.tpch.refresh import KEYS, Change, batches
from tests.views.oracle import view_sql

SEED = 20_240_229
BATCHES = 5
_NUMBERS = (int, float, Decimal)
LATE = ("q3", "q5", "q9", "q13", "q16", "q18")
"""Views created when the tables already have rows; the others see the rows arrive."""


class Shadow(Oracle):
    """DuckDB with tables of its own that take the same changes."""

    def fill(self, name: str, rows: pa.Table) -> None:
        self.show("incoming", rows)
        self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM incoming")

    def apply(self, change: Change) -> None:
        self.show("incoming", change.rows)
        keys = KEYS[change.table]
        match = " AND ".join(f"t.{k} = incoming.{k}" for k in keys)
        if change.delete:
            self.connection.execute(f"DELETE FROM {change.table} t USING incoming WHERE {match}")
        elif change.table in ("orders", "lineitem"):
            self.connection.execute(f"INSERT INTO {change.table} SELECT * FROM incoming")
        else:
            values = ", ".join(f"{c} = incoming.{c}" for c in change.rows.column_names if c not in keys)
            self.connection.execute(f"UPDATE {change.table} t SET {values} FROM incoming WHERE {match}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_views_equal_duckdb_after_every_refresh(tmp_path: Path) -> None:
    data, shadow = tables(), Shadow()
    with belvedere.open(tmp_path / "db") as db:
        for name, columns in TABLES.items():
            db.execute(f"CREATE TABLE {name} ({columns})")
        for name, sql in QUERIES.items():
            if name not in LATE:
                db.execute(f"CREATE MATERIALIZED VIEW {name} AS {sql}")
        for name, rows in data.items():
            db.wait(db.put(name, rows))
            shadow.fill(name, rows)
        for name in LATE:
            db.execute(f"CREATE MATERIALIZED VIEW {name} AS {QUERIES[name]}")
        _compare(db, shadow, "the load")
        for number, changes in enumerate(batches(data, BATCHES, SEED)):
            token = None
            for change in changes:
                if change.delete:
                    keys = table_rows(change.rows)
                    token = db.delete(change.table, keys if len(keys[0]) > 1 else [k for (k,) in keys])
                else:
                    token = db.put(change.table, change.rows)
                shadow.apply(change)
            db.wait(token)
            _compare(db, shadow, f"batch {number}")
    shadow.close()


def _compare(db: Database, shadow: Shadow, after: str) -> None:
    for name, sql in QUERIES.items():
        found = table_rows(db.scan(name))
        difference = same_bag(found, shadow.rows(view_sql(db.catalog, name)), exact=True)
        assert difference is None, f"{name} after {after}: {difference}"
        plain = [[float(v) if isinstance(v, _NUMBERS) else v for v in row] for row in shadow.rows(sql)]
        ours = [[float(v) if isinstance(v, _NUMBERS) else v for v in row] for row in found]
        difference = same_bag(ours, plain, relative=1e-5)
        assert difference is None, f"{name} after {after}, against DuckDB's own reading: {difference}"
    assert len(table_rows(db.scan("q18"))) > 0
