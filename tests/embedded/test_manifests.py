"""Manifests against what exists: new columns are added, everything else that differs is refused."""

from __future__ import annotations

import pytest

import belvedere
from belvedere.errors import CatalogError

TABLE = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {{name: orders}}
spec: {{columns: [{columns}], key: [{key}]}}
"""
ID, TOTAL, NOTE = "{name: id, type: bigint}", "{name: total, type: double}", "{name: note, type: string}"


def manifest(*columns: str, key: str = "id") -> str:
    return TABLE.format(columns=", ".join(columns), key=key)


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
    ],
)
def test_other_differences_are_refused_and_change_nothing(db, text, message):
    before = db.catalog
    with pytest.raises(CatalogError, match=message):
        db.apply_manifest(text)
    assert db.catalog is before


def test_a_table_where_a_view_is(db):
    db.execute("CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    with pytest.raises(CatalogError, match="'v' exists already"):
        db.apply_manifest(manifest(ID, TOTAL).replace("name: orders", "name: v"))
