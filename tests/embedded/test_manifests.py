"""Manifests and what is there: new columns are added, other differences refused, as is what an embedded database cannot
honour."""

from __future__ import annotations

import pytest

import belvedere
from belvedere.errors import CatalogError, EpochExpired, SqlError

TABLE = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: orders}}
spec: {{columns: [{columns}], key: [{key}]{more}}}
"""
ID, TOTAL, NOTE = "{name: id, type: bigint}", "{name: total, type: double}", "{name: note, type: string}"


def manifest(*columns: str, key: str = "id", more: str = "") -> str:
    return TABLE.format(columns=", ".join(columns), key=key, more=more)


@pytest.fixture
def db(tmp_path):
    with belvedere.open(tmp_path / "db") as database:
        database.apply_manifest(manifest(ID, TOTAL))
        database.put("orders", {"id": 1, "total": 2.5})
        yield database


def test_new_columns_are_added_and_applying_again_changes_nothing(db):
    db.apply_manifest(manifest(ID, NOTE, TOTAL))
    assert [c.name for c in db.catalog.tables["orders"].columns] == ["id", "total", "note"]
    db.wait(db.put("orders", {"id": 2, "note": "new"}))
    assert db.scan("orders").to_pylist() == [
        {"id": 1, "total": 2.5, "note": None},
        {"id": 2, "total": None, "note": "new"},
    ]
    epoch = db.epoch
    db.apply_manifest(manifest(ID, NOTE, TOTAL))
    db.apply_manifest(manifest(TOTAL, ID, NOTE))
    assert db.epoch == epoch


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (manifest(ID, TOTAL, key="id, total"), r"key \(id\), not \(id, total\)"),
        (manifest(ID), "a column 'total' that is not listed"),
        (manifest(ID, TOTAL.replace("double", "bigint")), "total double, not total bigint"),
        (manifest(ID, TOTAL, NOTE.replace("}", ", nullable: false}")), "'note'; a new column must be nullable"),
        (manifest(ID, TOTAL.replace("}", ", nullable: false}")), "total double, not total double not null"),
        (manifest(ID, TOTAL, more=", ties: value"), "ties by lineage, not by value; that cannot be changed"),
    ],
)
def test_other_differences_are_refused_and_change_nothing(db, text, message):
    before = db.catalog
    with pytest.raises(CatalogError, match=message):
        db.apply_manifest(text)
    assert db.catalog is before


def test_ties_by_value_outlive_a_restart(tmp_path):
    text = manifest(ID, TOTAL, more=", ties: value")
    for total in (3.5, 2.5, 1.5):
        with belvedere.open(tmp_path / "db") as db:
            db.apply_manifest(text)
            db.wait(db.put("orders", {"id": 1, "total": total}, ts=7))
            assert db.get("orders", 1) == {"id": 1, "total": 3.5}
            assert "TBLPROPERTIES ('ties' = 'value')" in str(db.execute("SHOW CREATE TABLE orders"))


def test_a_table_where_a_view_is(db):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    with pytest.raises(CatalogError, match="'v' exists already"):
        db.apply_manifest(manifest(ID, TOTAL).replace("name: orders", "name: v"))


VIEW = """
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: all-orders}
spec: {query: "SELECT id, total FROM orders"}
"""
POOL = """
apiVersion: belvedere.dev/v1alpha1
kind: ViewPool
metadata: {name: default}
spec: {replicas: 3}
"""


def view(**options: str) -> str:
    return VIEW.replace("spec: {", "spec: {" + "".join(f"{name}: {value}, " for name, value in options.items()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POOL, "document 1, spec: ViewPool 'default' cannot be applied here: an embedded database is one process"),
        (POOL.replace("3", "0"), r"document 1, spec\.replicas: 0 is too small"),
        (view(pool="reports"), r"spec\.pool: view 'all_orders' belongs to pool 'reports', an embedded database is the"),
        (
            manifest(ID, TOTAL).replace("key:", "pool: p, key:"),
            r"spec\.pool: table 'orders' belongs to pool 'p', an emb",
        ),
        (view(suspend="true"), r"document 1, spec\.suspend: a view cannot be suspended"),
        (view(freshness="5s"), r"document 1, spec\.freshness: a view has no pace of its own"),
    ],
)
def test_what_an_embedded_database_cannot_honour_is_refused_and_changes_nothing(db, text, message):
    before = db.catalog
    with pytest.raises(SqlError, match=message):
        db.apply_manifest(text)
    assert db.catalog is before


def test_what_asks_for_nothing_else_is_applied(db):
    """The embedded database is the pool that views belong to which name none."""
    db.apply_manifest(view(pool="default", suspend="false", build="epochs"))
    assert db.scan("all_orders").to_pylist() == [{"id": 1, "total": 2.5}]
    epoch = db.epoch
    db.apply_manifest(view(build="auto"))
    assert db.epoch == epoch


def test_each_view_has_the_retention_of_its_manifest(tmp_path):
    now = [1_800_000_000_000_000]
    with belvedere.open(tmp_path / "db", clock=lambda: now[0]) as db:
        db.apply_manifest(manifest(ID, TOTAL) + "---" + view(retention="10s"))
        db.apply_manifest(view(retention="2d").replace("all-orders", "long-kept"))
        first = db.put("orders", {"id": 1, "total": 2.5})
        db.wait(first)
        now[0] += 60_000_000
        db.wait(db.put("orders", {"id": 2, "total": 0.5}))
        now[0] += 60_000_000
        assert db.scan("long_kept", at=first).to_pylist() == [{"id": 1, "total": 2.5}]
        with pytest.raises(EpochExpired, match="'all_orders' is older than its retention of 10 s"):
            db.scan("all_orders", at=first)
