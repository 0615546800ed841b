"""The part of a `BaseTable` manifest that says that the rows are in HBase, and which cell is which column.

spec:
  hbase: {table: "shop:orders", setReplicationScope: true}
  columns:
    - {name: id, type: bigint, encoding: long}               # of the key: in the row key, in the order of the key
    - {name: code, type: string, encoding: text}
    - {name: total, type: "decimal(12,2)", cell: "d:total", encoding: text}
  key: [id, code]
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import Encoding, Origin, StoredColumn
from belvedere.sql.yaml_document import Reasons, YamlDocument, closest
from belvedere.types import Kind

HBASE_FIELDS = ("table", "setReplicationScope")
HBASE_REFUSED: Reasons = {
    "quorum": ("a pool has one HBase for all of its tables", "leave it out"),
    "zookeeper": ("a pool has one HBase for all of its tables", "leave it out"),
}
_TABLE = re.compile(r"([A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DEFAULTS = {Kind.STRING: Encoding.TEXT, Kind.BINARY: Encoding.RAW}


def read_origin(spec: YamlDocument, table: TableDef, columns: Mapping[str, YamlDocument]) -> Origin | None:
    """`columns`: of each column what the manifest says of it."""
    hbase = spec.optional("hbase")
    if hbase is None:
        for name, field in columns.items():
            for only in ("cell", "encoding"):
                if (given := field.optional(only)) is not None:
                    raise given.fail(f"column {name!r} is in no HBase", "leave it out, or say spec.hbase.table")
        return None
    hbase.mapping(HBASE_FIELDS, HBASE_REFUSED)
    named = hbase.require("table")
    if not _TABLE.fullmatch(named.text()):
        raise named.fail(f"{named.text()!r} is no name of a table in HBase", "write NAME or NAMESPACE:NAME")
    scope = hbase.optional("setReplicationScope")
    if (ties := spec.optional("ties")) is not None and ties.text() != "lineage":
        raise ties.fail("rows of HBase have one lineage", "leave it out")
    stored = tuple(_stored(table, name, columns[name]) for name in (c.name for c in table.columns))
    _check_cells(table, stored, columns)
    return Origin(named.text().removeprefix("default:"), stored, scope is not None and scope.flag())


def _stored(table: TableDef, name: str, field: YamlDocument) -> StoredColumn:
    type = next(c.type for c in table.columns if c.name == name)
    given, cell = field.optional("encoding"), field.optional("cell")
    if given is None:
        if type.kind not in _DEFAULTS:
            raise field.fail(f"column {name!r} needs an encoding", f"encodings: {', '.join(Encoding)}")
        encoding = _DEFAULTS[type.kind]
    elif given.text() not in list(Encoding):
        raise given.fail(f"unknown encoding {given.shown}", closest(given.text(), tuple(Encoding), "encodings"))
    else:
        encoding = Encoding(given.text())
    if not encoding.reads(type):
        raise field.fail(
            f"column {name!r} is {type}, and the encoding {encoding.value!r} holds none",
            "text holds every type but binary",
        )
    if name in table.key:
        if cell is not None:
            raise cell.fail(f"column {name!r} is of the key, and stands in the row key", "leave it out")
        if encoding.width is None and name != table.key[-1]:
            raise field.fail(
                f"key column {name!r} has no width of its own, and others follow it in the row key",
                "put it last in the key, or give it a fixed encoding: int, long, double, float, boolean",
            )
        return StoredColumn(encoding)
    if cell is None:
        raise field.fail(f"column {name!r} needs a cell", 'write cell: "FAMILY:QUALIFIER"')
    family, colon, qualifier = cell.text().partition(":")
    if not colon or not family:
        raise cell.fail(f"{cell.text()!r} names no cell", 'write "FAMILY:QUALIFIER"')
    if qualifier == "*":
        raise cell.fail("a whole family cannot be one column", "name each qualifier that is to be a column")
    if field.optional("nullable") is not None and not field.child("nullable").flag():
        raise field.child("nullable").fail(
            f"column {name!r}: any row of HBase may lack its cell, which reads as NULL", "leave it out"
        )
    return StoredColumn(encoding, family, qualifier)


def _check_cells(table: TableDef, stored: tuple[StoredColumn, ...], columns: Mapping[str, YamlDocument]) -> None:
    taken: dict[tuple[str, str], str] = {}
    for column, place in zip(table.columns, stored, strict=True):
        if not place.family:
            continue
        other = taken.setdefault((place.family, place.qualifier), column.name)
        if other != column.name:
            raise columns[column.name].child("cell").fail(f"columns {other!r} and {column.name!r} are the same cell")
    if not taken:
        raise columns[table.key[0]].fail(
            "no column has a cell, and a row of HBase lives while one of its cells does", "add a column with a cell"
        )
