"""Base tables in HBase: what their manifests say, and what is refused."""

from __future__ import annotations

import pytest

from belvedere.errors import SqlError
from belvedere.model.describe import table_json, table_of
from belvedere.sql.catalog import Catalog, Deletes, TableDef
from belvedere.sql.manifest import parse_manifests
from belvedere.sql.manifest_target import EMBEDDED, Target, applicable
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.sql.statements import CreateTable

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
        (", encoding: long", "", "spec.columns[1]: column 'id' needs an encoding", "encodings: text, raw, int"),
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
