"""Base tables in HBase: what their manifests say, and what is refused."""

from __future__ import annotations

import json

import pytest

from belvedere.errors import CatalogError, SqlError
from belvedere.model import catalog_change
from belvedere.model.describe import table_json, table_of
from belvedere.sql.catalog import Catalog, Deletes, TableDef
from belvedere.sql.manifest import parse_manifests
from belvedere.sql.manifest_target import EMBEDDED, Target, applicable
from belvedere.sql.origin import Encoding, Origin, RowKey, StoredColumn
from belvedere.sql.statements import AddColumns, CreateTable
from belvedere.types import BIGINT, Column

ORDERS = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {name: orders}
spec:
  hbase: {table: "shop:orders"}
  columns:
    - {name: total, type: "decimal(12,2)", cell: "d:total", encoding: text}
    - {name: id, type: bigint, encoding: long}
    - {name: note, type: string, cell: "d:"}
    - {name: code, type: string}
  key: [id, code]
"""


def load(text: str) -> TableDef:
    (manifest,) = parse_manifests(text, Catalog)
    assert isinstance(manifest.content, CreateTable)
    return manifest.content.table


def test_cells_and_encodings_are_part_of_the_definition() -> None:
    table = load(ORDERS)
    text = Encoding.TEXT
    columns = (
        StoredColumn(text, "d", "total"),
        StoredColumn(Encoding.LONG),
        StoredColumn(text, "d", ""),
        StoredColumn(text),
    )
    assert (table.deletes, table.origin) == (Deletes.CELLS, Origin("shop:orders", columns))
    assert table_of(table_json(table)) == table
    permitted = load(ORDERS.replace('"shop:orders"}', '"default:orders", setReplicationScope: true}'))
    assert permitted.origin is not None and permitted.origin.set_scope and permitted.origin.table == "orders"


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('"shop:orders"', '"shop/orders"', "spec.hbase.table: 'shop/orders' is no name", "NAMESPACE:NAME"),
        ('{table: "shop:orders"}', "{}", "spec.hbase: field 'table' is missing", None),
        ('"shop:orders"}', '"t", quorum: zk}', "spec.hbase.quorum: a pool has one HBase", "leave it out"),
        (", encoding: long", "", "spec.columns[1]: column 'id' needs an encoding", "encodings: text, raw, short"),
        ("encoding: long", "encoding: longs", "spec.columns[1].encoding: unknown encoding", "did you mean long?"),
        ("encoding: long", "encoding: double", "column 'id' is bigint, and the encoding 'double' holds none", "text"),
        ("encoding: long", "encoding: text", "key column 'id' has no width of its own", "put it last in the key"),
        ("encoding: long", 'encoding: long, cell: "d:id"', "column 'id' is of the key", "leave it out"),
        (', cell: "d:"', "", "spec.columns[2]: column 'note' needs a cell", "FAMILY:QUALIFIER"),
        ('"d:"', '"note"', "spec.columns[2].cell: 'note' names no cell", "FAMILY:QUALIFIER"),
        ('"d:"', '"d:*"', "spec.columns[2].cell: a whole family cannot be one column", "name each qualifier"),
        ('"d:"', '"d:total"', "spec.columns[2].cell: columns 'total' and 'note' are the same cell", None),
        ('cell: "d:"', 'cell: "d:", nullable: false', "column 'note': any row of HBase may lack its cell", "leave"),
        ("  key:", "  ties: value\n  key:", "spec.ties: rows of HBase have one lineage", "leave it out"),
    ],
)
def test_what_cannot_be_read_is_refused(old: str, new: str, message: str, hint: str | None) -> None:
    assert old in ORDERS
    with pytest.raises(SqlError) as caught:
        load(ORDERS.replace(old, new))
    assert message in caught.value.reason
    assert hint is None or (caught.value.hint is not None and hint in caught.value.hint)


EVENTS = """
apiVersion: belvedere.dev/v1alpha1
kind: BaseTable
metadata: {name: events}
spec:
  hbase: {table: "events", rowKey: {skipTo: "_", delimiter: "|"}}
  columns:
    - {name: site, type: string, width: 4}
    - {name: number, type: bigint, encoding: long}
    - {name: kind, type: string}
    - {name: city, type: string, cell: "d:doc", encoding: json, member: place.city}
    - {name: zip, type: int, cell: "d:doc", encoding: json, member: place.zip}
    - name: buyer
      type: bigint
      cell: "d:order"
      encoding: avro
      member: buyer.id
      schema: |
        {"type": "record", "name": "o", "fields": [
          {"name": "buyer", "type": ["null", {"type": "record", "name": "b", "fields": [
            {"name": "id", "type": "long"}]}]},
          {"name": "total", "type": "double"}]}
    - {name: total, type: double, cell: "d:order", encoding: avro, member: total}
    - {name: seen, type: timestamp, cell: "d:seen", encoding: millis}
  key: [site, number, kind]
"""


def test_parts_of_row_keys_and_members_are_part_of_the_definition() -> None:
    table = load(EVENTS)
    assert table.origin is not None and table.origin.row_key == RowKey(skip_to="_", delimiter="|")
    site, number, kind, city, zip, buyer, total, seen = table.origin.columns
    assert site == StoredColumn(Encoding.TEXT, width=4) and number == StoredColumn(Encoding.LONG)
    assert kind == StoredColumn(Encoding.TEXT) and seen == StoredColumn(Encoding.MILLIS, "d", "seen")
    assert city == StoredColumn(Encoding.JSON, "d", "doc", member=("place", "city")) and zip.member == ("place", "zip")
    assert buyer.schema == total.schema and json.loads(buyer.schema)["name"] == "o" and buyer.member == ("buyer", "id")
    assert table_of(json.loads(json.dumps(table_json(table)))) == table


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        ('skipTo: "_"', 'skip: 1, skipTo: "_"', "rowKey.skipTo: what is skipped has a length or an end", "leave out"),
        ('skipTo: "_"', "skip: 0", "spec.hbase.rowKey.skip: 0 is too small", "at least 1"),
        ('skipTo: "_"', "skip: 40000", "spec.hbase.rowKey.skip: 40000 is too big", "32767 bytes"),
        ('skipTo: "_"', "salt: 1", "spec.hbase.rowKey: unknown field 'salt'", "fields: skip, skipTo, delimiter"),
        ('delimiter: "|"', "delimiter: 7", "delimiter: expected the text that ends a part, found 7", '"|"'),
        ('delimiter: "|"', 'delimiter: ""', "delimiter: expected the text that ends a part", None),
        ("width: 4", "width: 0", "spec.columns[0].width: 0 is too small", None),
        ("width: 4", "cell: d:x", "spec.columns[0].cell: column 'site' is of the key", None),
        ("width: 4", "member: x", "spec.columns[0].member: column 'site' is of the key", None),
        ("width: 4", "encoding: json", "column 'site' is of the key, and 'json' stands in cells only", "ordered"),
        ("width: 4", "encoding: ordered", "parts in the form of OrderedBytes end by themselves", "leave out"),
        ("encoding: long", "encoding: long, width: 8", "the encoding 'long' has a length of its own", "leave it out"),
        ("type: string, width: 4", "type: binary", "key column 'site' is bytes, which may hold the delimiter", "last"),
        ("encoding: millis", "encoding: ordered", "the encoding 'ordered' holds none", "text holds every type"),
        ("encoding: millis", "encoding: millis, width: 8", "is in a cell, which knows how long it is", None),
        ("encoding: millis", "encoding: millis, member: a", "the encoding 'millis' has no members", None),
        ("encoding: millis", "encoding: text, schema: '{}'", "the encoding 'text' has no schema", None),
        ("member: place.zip", "member: place.", "'place.' names no member", "customer.address.city"),
        (", member: place.zip", "", "columns 'city' and 'zip' are the same cell", "give each a member"),
        ("encoding: json, member: place.zip", "encoding: text", "columns 'city' and 'zip' are the same cell", None),
        ('"d:order", encoding: avro', '"d:other", encoding: avro', "column 'total' needs the schema", "schema:"),
        ("member: total", "member: totals", "Avro's schema has no field 'totals'", "did you mean total?"),
        ("member: buyer.id", "member: buyer.id.x", "has no record with a field 'x'", None),
        ('{"type": "record", "name": "o"', "{", "the schema of column 'buyer' is not JSON", None),
        ('"d:doc", encoding: json, member: place.zip', '"d:*"', "a whole family cannot be one column", "name each"),
    ],
)
def test_what_no_row_key_or_cell_can_be_is_refused(old: str, new: str, message: str, hint: str | None) -> None:
    assert old in EVENTS
    changed = EVENTS.replace(old, new)
    if "encoding" not in new and "json, member: place.zip" in old:
        changed = changed.replace('type: int, cell: "d:*"', 'type: string, cell: "d:*"')
    with pytest.raises(SqlError) as caught:
        load(changed)
    assert message in caught.value.reason, caught.value.reason
    assert hint is None or (caught.value.hint is not None and hint in caught.value.hint)


def test_a_delimiter_needs_something_on_both_sides() -> None:
    one = ORDERS.replace('"shop:orders"', '"t", rowKey: {delimiter: "|"}')
    one = one.replace("    - {name: code, type: string}\n", "").replace("[id, code]", "[id]")
    with pytest.raises(SqlError, match="the key has one column, so nothing is between"):
        load(one)


def test_a_table_without_a_cell_is_refused() -> None:
    lines = [line for line in ORDERS.splitlines() if "cell" not in line]
    with pytest.raises(SqlError, match="a row of HBase lives while one of its cells does"):
        load("\n".join(lines))


def test_only_pools_that_follow_hbase_take_them_and_these_take_no_others() -> None:
    for target in (EMBEDDED, Target("default", 60_000)):
        with pytest.raises(SqlError, match="keeps its base tables itself"):
            list(applicable(ORDERS, Catalog, target))
    following = Target("default", 60_000, follows=True)
    (statement,) = applicable(ORDERS, Catalog, following)
    assert isinstance(statement, CreateTable)
    own = "\n".join(line for line in ORDERS.splitlines() if "hbase" not in line)
    for word in (', cell: "d:total", encoding: text', ", encoding: long", ', cell: "d:"'):
        own = own.replace(word, "")
    with pytest.raises(SqlError, match="does not say where in HBase it is"):
        list(applicable(own, Catalog, following))


def test_a_manifest_adds_columns_and_changes_none() -> None:
    catalog = Catalog().with_table(load(ORDERS))
    more = '    - {name: hits, type: bigint, cell: "n:hits", encoding: long}\n'
    wider = CreateTable(load(ORDERS.replace("  columns:\n", "  columns:\n" + more)))  # in front: names count
    change = catalog_change.reconcile(catalog, wider)
    assert isinstance(change, catalog_change.ColumnsAdded)
    table = change.table
    assert [c.name for c in table.columns] == ["total", "id", "note", "code", "hits"]
    assert table.origin is not None and table.origin.families == ("d", "n")
    assert table.origin.columns[-1] == StoredColumn(Encoding.LONG, "n", "hits")
    assert catalog_change.reconcile(change.catalog, wider) is None
    for was, now in (('"shop:orders"', '"other"'), ('"d:total"', '"d:sum"'), ('cell: "d:"', 'cell: "d:n"')):
        with pytest.raises(CatalogError, match="cannot be changed"):
            catalog_change.reconcile(catalog, CreateTable(load(ORDERS.replace(was, now))))
    with pytest.raises(CatalogError, match="can only be said in a manifest"):
        catalog_change.apply(catalog, AddColumns("orders", (Column("hits", BIGINT),)))
