"""Manifests: what `kubectl apply` and `belvedere apply` both take."""

from __future__ import annotations

from itertools import pairwise

import pytest

from belvedere.errors import SqlError
from belvedere.sql.catalog import Catalog
from belvedere.sql.manifest import Manifest, parse_manifests
from belvedere.sql.statements import CreateTable, CreateView
from belvedere.sql.view_pool import Autoscaling, ViewPool

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
    - {name: total, type: "decimal(12,2)"}
  key: [id]
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
  retention: 1h
  build: auto
  suspend: false
"""


def load(text: str) -> list[Manifest]:
    catalogs = [Catalog()]
    found = []
    for manifest in parse_manifests(text, lambda: catalogs[-1]):
        found.append(manifest)
        if isinstance(manifest.content, CreateTable):
            catalogs.append(catalogs[-1].with_table(manifest.content.table))
        elif isinstance(manifest.content, CreateView):
            catalogs.append(catalogs[-1].with_view(manifest.content.view))
    return found


def test_tables_and_views() -> None:
    table, view = load(SHOP)
    assert isinstance(table.content, CreateTable) and isinstance(view.content, CreateView)
    assert table.name == table.content.table.name == "web_orders" and table.content.table.key == ("id",)
    assert [(c.name, str(c.type), c.nullable) for c in table.content.table.columns] == [
        ("id", "bigint", False),
        ("customer", "string", False),
        ("total", "decimal(12,2)", True),
    ]
    assert (view.spec.number, view.resource, view.content.or_replace) == (3, "daily-spend", True)
    assert view.name == view.content.view.name == "spend" and view.content.view.key == ("customer",)
    assert view.content.view.retention_ms == 3_600_000


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
        (changed("name: id, type: bigint", "name: id"), "document 1, spec.columns[0]: field 'type' is missing", None),
        (changed("nullable: false", "nullable: 3"), "spec.columns[1].nullable: expected true or false", None),
        (changed("name: customer, type", "name: ID, type"), "spec.columns[1]: column 'ID' twice", None),
        (changed("retention: 1h", "retention: 1 fortnight"), "document 3, spec.retention: '1 fortnight' is not", "1h"),
        (changed("retention: 1h", "retention: 60"), "document 3, spec.retention: 60 is not a duration", "1h"),
        (changed("suspend: false", "suspend: maybe"), "document 3, spec.suspend: expected true or false", None),
        (changed("pool: default", "pool: 7"), "document 3, spec.pool: expected a text, found a number", None),
        (changed("key: [customer]", "key: [nobody]"), "document 3, spec.query: key column 'nobody'", "customer"),
        (changed("  query: |", "  sql: |"), "document 3, spec: unknown field 'sql'", "query"),
        ("- 1", "document 1, top level: expected fields, found a list", None),
        (changed("  key: [id]", "  key: []"), "document 1, spec.key: expected a list, found an empty one", None),
        (changed("nullable: false", "nulable: false"), "spec.columns[1]: unknown field 'nulable'", "mean nullable?"),
        (changed("kind: BaseTable", "kind: Basetable"), "unknown kind 'Basetable'", "did you mean BaseTable?"),
        (changed("  labels: {team", "  lables: {team"), "document 1, metadata: unknown field 'lables'", "labels"),
        (changed("team: shop", "team: 7"), "document 1, metadata.labels.team: expected a text, found 7", "quotes"),
        (changed("team: shop", "belvedere.dev/paused: 'true'"), "'belvedere.dev/paused' has no meaning here", "leave"),
        (changed("  labels", "  namespace: shop\n  labels"), "metadata.namespace: a database has no namesp", "kubectl"),
        (changed("  labels", "  uid: abc\n  labels"), "document 1, metadata.uid: this is what a server tells", "leave"),
        (changed("spec:\n  columns", "status: {}\nspec:\n  columns"), "document 1, status: this is what", "leave it"),
        (
            changed("  key: [id]", "  key: [id]\n  hbase: {table: t}"),
            "document 1, spec.columns[0]: column 'id' needs an encoding",
            "encodings: text, raw, short, int, long",
        ),
        (changed("  key: [id]", "  key: [id]\n  store: hbase"), "document 1, spec.store: a base table lives", None),
        (
            changed("  key: [id]", "  key: [id]\n  ties: seq"),
            "spec.ties: ties are settled by lineage or value, not",
            None,
        ),
        (
            changed("nullable: false", "hbase: {qualifier: q}"),
            "spec.columns[1].hbase: the table is in HBase",
            None,
        ),
        (
            changed("nullable: false", "encoding: text"),
            "columns[1].encoding: column 'customer' is in no HBase",
            None,
        ),
        (changed("retention: 1h", "freshness: 5s"), "document 3, spec.freshness: a view has no pace", "belvedere lag"),
        (
            changed("retention: 1h", "verify: 1d"),
            "document 3, spec.verify: views are verified when",
            "belvedere verify",
        ),
        (changed("suspend: false", "suspend: true"), "document 3, spec.suspend: a view cannot be suspended", "drop"),
        (changed("build: auto", "build: epoch"), "document 3, spec.build: unknown way", "did you mean epochs?"),
        (changed("build: auto", "build: {by: hand}"), "spec.build: expected a text, found fields", None),
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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("web_orders", "use 'web-orders'; in SQL dashes are underscores"),
        ("Orders", "use 'orders'"),
        ("-orders-", "use 'orders'"),
        ("a..b", "spec.name"),
        ('"größe"', "use 'gr-e'"),
        ('"日"', "spec.name is the name in SQL"),
        ("o" * 254, "Kubernetes takes 253"),
    ],
)
def test_names_that_kubernetes_would_not_take_are_refused(name: str, hint: str) -> None:
    with pytest.raises(SqlError, match=r"document 1, metadata\.name: ") as caught:
        load(changed("name: web-orders", f"name: {name}"))
    assert caught.value.hint is not None and hint in caught.value.hint


def test_dashes_are_underscores_in_sql_and_a_dot_needs_a_name() -> None:
    dotted = changed("name: web-orders", "name: web.orders")
    with pytest.raises(SqlError, match=r"document 1, spec: 'web\.orders' has a dot") as caught:
        load(dotted)
    assert caught.value.hint is not None and "spec.name" in caught.value.hint
    table, _ = load(dotted.replace("spec:\n  columns", "spec:\n  name: web_orders\n  columns"))
    assert (table.resource, table.name) == ("web.orders", "web_orders")


def test_two_documents_for_one_name_are_refused() -> None:
    """A table and a view share their names, which ignore case; the second would replace the first, or be refused as
    something that exists."""
    again = SHOP + "---" + SHOP.split("---")[2].replace("daily-spend", "other").replace("name: spend", "name: Spend")
    with pytest.raises(SqlError, match="document 4, top level: 'Spend' is described twice, in document 3 as well"):
        load(again)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("  key: [id]", "  key: [id]\n  key: [customer]", 13),
        ("{name: id, type", "{name: id, 'name': nr, type", 9),
        ("kind: BaseTable", "kind: BaseTable\nkind: MaterializedView", 4),
    ],
)
def test_a_field_that_stands_twice_is_refused_where_it_does(old: str, new: str, line: int) -> None:
    with pytest.raises(SqlError, match="twice") as caught:
        load(changed(old, new))
    assert caught.value.line == line


def test_what_is_merged_in_may_be_overridden() -> None:
    text = changed(
        "  columns:\n", "  columns:\n    - &text {name: note, type: string}\n    - {<<: *text, name: memo}\n"
    )
    table, _ = load(text)
    assert isinstance(table.content, CreateTable)
    assert [c.name for c in table.content.table.columns][:2] == ["note", "memo"]


@pytest.mark.parametrize("text", ["[" * 5000, "a: 2024-13-45", "a: \x07"])
def test_what_yaml_cannot_take_is_refused(text: str) -> None:
    with pytest.raises(SqlError, match="the file is not YAML"):
        load(text)


POOL = """
apiVersion: belvedere.dev/v1alpha1
kind: ViewPool
metadata: {name: reports}
spec:
  backend: served://store:7400
  replicas: 3
  distributors: 2
  epoch: 20ms
  retention: 1h
"""
SCALED = POOL.replace("replicas: 3", "autoscaling: {minReplicas: 2, maxReplicas: 8, targetLag: 2s}")


FOLDED = "[&a [x], " + ", ".join(f"&{b} [{', '.join([f'*{a}'] * 10)}]" for a, b in pairwise("abcdefghijkl")) + "]"
"""A short text that would be 10^11 of them."""


@pytest.mark.parametrize(
    "folded",
    [
        changed("kind: MaterializedView", f"kind: {FOLDED}"),
        changed("apiVersion: belvedere.dev/v1alpha1\nkind: Mat", f"apiVersion: {FOLDED}\nkind: Mat"),
        changed("name: daily-spend", f"name: {FOLDED}"),
        changed("name: daily-spend", f"name: v, labels: {{a: {FOLDED}}}"),
        changed("retention: 1h", f"retention: {FOLDED}"),
        changed("build: auto", f"build: {FOLDED}"),
        changed("pool: default", f"pool: {FOLDED}"),
        changed("suspend: false", f"suspend: {FOLDED}"),
        changed("key: [customer]", f"key: {FOLDED}"),
        POOL.replace("20ms", FOLDED),
        POOL.replace("replicas: 3", f"replicas: {FOLDED}"),
    ],
)
def test_a_message_does_not_unfold_what_aliases_fold(folded: str) -> None:
    with pytest.raises(SqlError, match="a list") as caught:
        load(folded)
    assert len(str(caught.value)) < 1000


def test_null_is_as_good_as_nothing() -> None:
    """Kubernetes writes it for what is not given."""
    _, view = load(changed("retention: 1h", "retention: null\n  freshness: null"))
    assert isinstance(view.content, CreateView) and view.content.view.retention_ms is None


def test_pools() -> None:
    (pool,) = load(POOL)
    assert pool.name == "reports"
    assert pool.content == ViewPool("reports", "served://store:7400", 3, None, 2, 20, 3_600_000)
    (scaled,) = load(SCALED)
    assert isinstance(scaled.content, ViewPool)
    assert (scaled.content.replicas, scaled.content.autoscaling) == (None, Autoscaling(2, 8, 2000))
    (empty,) = load(POOL.partition("spec:")[0] + "spec: {}")
    assert empty.content == ViewPool("reports", None, None, None, None, None, None)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (POOL.replace("replicas", "replica"), "spec: unknown field 'replica'", "did you mean replicas?"),
        (POOL.replace("replicas: 3", "replicas: 0"), "spec.replicas: 0 is too small", "at least 1"),
        (POOL.replace("replicas: 3", "replicas: true"), "spec.replicas: expected a whole number, found true", None),
        (POOL.replace("replicas: 3", "replicas: 1.5"), "spec.replicas: expected a whole number, found a number", None),
        (POOL.replace("distributors: 2", "distributors: -1"), "spec.distributors: -1 is too small", None),
        (POOL.replace("20ms", "0s"), "spec.epoch: '0s' is too short", "at least 1ms"),
        (POOL.replace("20ms", "20"), "spec.epoch: 20 is not a duration", "500ms"),
        (POOL.replace("served://store:7400", "store"), "spec.backend: 'store' is no URL", "served://"),
        (POOL + "  autoscaling: {maxReplicas: 2}", "spec: replicas and autoscaling contradict", "keep one"),
        (SCALED.replace("maxReplicas: 8", "maxReplicas: 1"), "spec.autoscaling.maxReplicas: 1 is too sm", "at least 2"),
        (SCALED.replace("maxReplicas: 8, ", ""), "spec.autoscaling: field 'maxReplicas' is missing", None),
        (SCALED.replace("targetLag", "targetlag"), "spec.autoscaling: unknown field 'targetlag'", "mean targetLag?"),
        (POOL + "---" + POOL, "document 2, top level: 'reports' is described twice", None),
    ],
)
def test_pools_that_make_no_sense_are_refused(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(SqlError) as caught:
        load(text)
    assert message in caught.value.reason
    assert hint is None or (caught.value.hint is not None and hint in caught.value.hint)


def test_a_pool_may_have_the_name_of_a_table() -> None:
    assert [manifest.name for manifest in load(POOL.replace("reports", "web-orders") + "---" + SHOP)] == [
        "web-orders",
        "web_orders",
        "spend",
    ]


def test_broken_yaml_is_located() -> None:
    with pytest.raises(SqlError) as caught:
        load("kind: [a\nb: c")
    assert "not YAML" in caught.value.reason and caught.value.line == 2
