"""Manifests: what `kubectl apply` and `belvedere apply` both take."""

from __future__ import annotations

import pytest

from belvedere.errors import SqlError
from belvedere.sql.catalog import Catalog
from belvedere.sql.manifest import Manifest, parse_manifests
from belvedere.sql.statements import CreateTable, CreateView

SHOP = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata:
  name: web-orders
  labels: {team: shop}
spec:
  columns:
    - {name: id, type: bigint}
    - {name: customer, type: string, nullable: false}
    - {name: total, type: "decimal(12,2)", hbase: {qualifier: t}}
  key: [id]
  hbase: {table: orders, family: d}
---
---
apiVersion: belvedere.dev/v1alpha1
kind: MaterializedView
metadata: {name: daily-spend}
spec:
  name: spend
  query: |
    SELECT customer, sum(total) AS total
    FROM web_orders GROUP BY customer
  key: [customer]
  pool: default
  freshness: 5s
  retention: 1h
  suspend: false
"""


def load(text: str) -> list[Manifest]:
    catalogs = [Catalog()]
    found = []
    for manifest in parse_manifests(text, lambda: catalogs[-1]):
        found.append(manifest)
        if isinstance(manifest.statement, CreateTable):
            catalogs.append(catalogs[-1].with_table(manifest.statement.table))
        else:
            catalogs.append(catalogs[-1].with_view(manifest.statement.view))
    return found


def test_tables_and_views() -> None:
    table, view = load(SHOP)
    assert isinstance(table.statement, CreateTable) and isinstance(view.statement, CreateView)
    assert table.statement.table.name == "web_orders" and table.statement.table.key == ("id",)
    assert [(c.name, str(c.type), c.nullable) for c in table.statement.table.columns] == [
        ("id", "bigint", False),
        ("customer", "string", False),
        ("total", "decimal(12,2)", True),
    ]
    assert table.extra == {"hbase": {"table": "orders", "family": "d"}}
    assert (view.number, view.resource, view.statement.or_replace) == (3, "daily-spend", True)
    assert view.statement.view.name == "spend" and view.statement.view.key == ("customer",)
    assert view.statement.view.retention_ms == 3_600_000
    assert view.extra == {"pool": "default", "freshness": "5s", "suspend": False}


def changed(old: str, new: str) -> str:
    assert old in SHOP
    return SHOP.replace(old, new)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (changed("v1alpha1\nkind: BaseTable", "v2\nkind: BaseTable"), "document 1, apiVersion: unknown", "v1alpha1"),
        (changed("kind: BaseTable", "kind: Table"), "document 1, kind: unknown kind 'Table'", "BaseTable"),
        (changed("  key: [id]", "  keys: [id]"), "document 1, spec: unknown field 'keys'", "did you mean key?"),
        (changed("  key: [id]", "  key: id"), "document 1, spec.key: expected a list, found a text", None),
        (changed("  key: [id]", "  key: [nr]"), "document 1, spec.key[0]: no column 'nr'", "columns: id"),
        (changed("type: bigint", "type: float"), "spec.columns[0].type: type float is not supported", "use double"),
        (changed("type: bigint", "kind: bigint"), "document 1, spec.columns[0]: field 'type' is missing", None),
        (changed("nullable: false", "nullable: 3"), "spec.columns[1].nullable: expected true or false", None),
        (changed("name: customer, type", "name: ID, type"), "spec.columns[1]: column 'ID' twice", None),
        (changed("retention: 1h", "retention: 1 fortnight"), "document 3, spec.retention: '1 fortnight' is not", "1h"),
        (changed("retention: 1h", "retention: 60"), "document 3, spec.retention: 60 is not a duration", "1h"),
        (changed("suspend: false", "suspend: maybe"), "document 3, spec.suspend: expected true or false", None),
        (changed("pool: default", "pool: 7"), "document 3, spec.pool: expected a text, found a number", None),
        (changed("key: [customer]", "key: [nobody]"), "document 3, spec.query: key column 'nobody'", "customer"),
        (changed("  query: |", "  sql: |"), "document 3, spec: unknown field 'sql'", "query"),
        ("- 1", "document 1, top level: expected fields, found a list", None),
    ],
)
def test_refusals_name_document_and_path(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        load(text)
    assert message in caught.value.reason
    if hint is not None:
        assert caught.value.hint is not None and hint in caught.value.hint


def test_sql_errors_keep_their_position() -> None:
    with pytest.raises(SqlError) as caught:
        load(changed("FROM web_orders", "FROM weborders"))
    assert (caught.value.line, caught.value.column) == (2, 6)
    assert "document 3, spec.query: no table or view 'weborders'" in caught.value.reason


def test_broken_yaml_is_located() -> None:
    with pytest.raises(SqlError) as caught:
        load("kind: [a\nb: c")
    assert "not YAML" in caught.value.reason and caught.value.line == 2
