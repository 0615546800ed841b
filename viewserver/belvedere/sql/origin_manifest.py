"""The part of a `BaseTable` manifest that says that the rows are in HBase, and which cell is which column.

spec:
  hbase: {table: "shop:orders", setReplicationScope: true, rowKey: {skip: 1, delimiter: "|"}}
  columns:
    - {name: id, type: bigint, encoding: long}               # of the key: in the row key, in the order of the key
    - {name: code, type: string, encoding: text}
    - {name: total, type: "decimal(12,2)", cell: "d:total", encoding: text}
    - {name: city, type: string, cell: "d:address", encoding: json, member: place.city}
  key: [id, code]
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import IN_CELLS_ONLY, WITH_MEMBERS, Encoding, Origin, RowKey, StoredColumn
from belvedere.sql.yaml_document import Reasons, YamlDocument, closest
from belvedere.types import Kind

HBASE_FIELDS = ("table", "setReplicationScope", "rowKey")
HBASE_REFUSED: Reasons = {
    "quorum": ("a pool has one HBase for all of its tables", "leave it out"),
    "zookeeper": ("a pool has one HBase for all of its tables", "leave it out"),
}
IN_HBASE = ("cell", "encoding", "width", "member", "schema")
"""What columns say only if the table is in HBase."""
ROW_KEY_FIELDS = ("skip", "skipTo", "delimiter")
_TABLE = re.compile(r"([A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DEFAULTS = {Kind.STRING: Encoding.TEXT, Kind.BINARY: Encoding.RAW}
_LONGEST_KEY = 32_767
_PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
"""Types of Avro; other names are of records, enums and the like that were described before."""


def read_origin(spec: YamlDocument, table: TableDef, columns: Mapping[str, YamlDocument]) -> Origin | None:
    """`columns`: of each column what the manifest says of it."""
    hbase = spec.optional("hbase")
    if hbase is None:
        for name, field in columns.items():
            for only in IN_HBASE:
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
    row_key = _row_key(hbase.optional("rowKey"))
    schemas = _schemas(columns)
    stored = tuple(_stored(table, name, columns[name], row_key, schemas) for name in (c.name for c in table.columns))
    _check_cells(table, stored, columns)
    _check_row_key(table, stored, row_key, hbase)
    return Origin(named.text().removeprefix("default:"), stored, scope is not None and scope.flag(), row_key)


# --- row keys


def _row_key(field: YamlDocument | None) -> RowKey:
    if field is None:
        return RowKey()
    field.mapping(ROW_KEY_FIELDS)
    skip, skip_to, delimiter = (field.optional(name) for name in ROW_KEY_FIELDS)
    if skip is not None and skip_to is not None:
        raise skip_to.fail("what is skipped has a length or an end", "leave out skip or skipTo")
    return RowKey(
        0 if skip is None else _bytes_of_key(skip), "" if skip_to is None else _mark(skip_to),
        "" if delimiter is None else _mark(delimiter),
    )  # fmt: skip


def _mark(field: YamlDocument) -> str:
    """Blanks and NUL are fine."""
    if not isinstance(field.value, str) or not field.value:
        raise field.fail(
            f"expected the text that ends a part, found {field.shown}", 'as in "|", or "\\0" for a byte 00'
        )
    return field.value


def _bytes_of_key(field: YamlDocument) -> int:
    count = field.number_from(1)
    if count > _LONGEST_KEY:
        raise field.fail(f"{count} is too big", f"a row key of HBase has up to {_LONGEST_KEY} bytes")
    return count


def _check_row_key(table: TableDef, stored: tuple[StoredColumn, ...], row_key: RowKey, hbase: YamlDocument) -> None:
    if row_key.delimiter and len(table.key) == 1:
        raise (
            hbase.child("rowKey")
            .child("delimiter")
            .fail("the key has one column, so nothing is between", "leave it out")
        )


def _of_key(table: TableDef, name: str, field: YamlDocument, encoding: Encoding, row_key: RowKey) -> StoredColumn:
    for only in ("cell", "member", "schema"):
        if (given := field.optional(only)) is not None:
            raise given.fail(f"column {name!r} is of the key, and stands in the row key", "leave it out")
    if encoding in IN_CELLS_ONLY:
        raise field.child("encoding").fail(
            f"column {name!r} is of the key, and {encoding.value!r} stands in cells only",
            "text and ordered hold most types",
        )
    width = None
    if (given := field.optional("width")) is not None:
        if encoding not in (Encoding.TEXT, Encoding.RAW):
            raise given.fail(f"the encoding {encoding.value!r} has a length of its own", "leave it out")
        width = _bytes_of_key(given)
    if encoding is Encoding.ORDERED and row_key.delimiter:
        raise field.child("encoding").fail(
            "parts in the form of OrderedBytes end by themselves", "leave out spec.hbase.rowKey.delimiter"
        )
    ends = width or encoding.width or row_key.delimiter or encoding is Encoding.ORDERED
    if not ends and name != table.key[-1]:
        raise field.fail(
            f"key column {name!r} has no width of its own, and others follow it in the row key",
            "put it last in the key, give its width or spec.hbase.rowKey.delimiter, or an encoding of fixed width",
        )
    if row_key.delimiter and encoding is Encoding.RAW and width is None and name != table.key[-1]:
        raise field.fail(
            f"key column {name!r} is bytes, which may hold the delimiter", "put it last in the key, or give its width"
        )
    return StoredColumn(encoding, width=width)


# --- columns


def _stored(
    table: TableDef, name: str, field: YamlDocument, row_key: RowKey, schemas: Mapping[str, str]
) -> StoredColumn:
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
        return _of_key(table, name, field, encoding, row_key)
    if encoding is Encoding.ORDERED:
        raise field.child("encoding").fail(f"column {name!r} is in a cell, and 'ordered' stands in row keys only")
    if (width := field.optional("width")) is not None:
        raise width.fail(f"column {name!r} is in a cell, which knows how long it is", "leave it out")
    if cell is None:
        raise field.fail(f"column {name!r} needs a cell", 'write cell: "FAMILY:QUALIFIER"')
    family, colon, qualifier = cell.text().partition(":")
    if not colon or not family:
        raise cell.fail(f"{cell.text()!r} names no cell", 'write "FAMILY:QUALIFIER"')
    if qualifier == "*" or "*" in family:
        raise cell.fail(
            "a whole family cannot be one column: which cells it has is known to no table, and a view would change "
            "with names that nobody listed",
            "name each qualifier that is to be a column",
        )
    if field.optional("nullable") is not None and not field.child("nullable").flag():
        raise field.child("nullable").fail(
            f"column {name!r}: any row of HBase may lack its cell, which reads as NULL", "leave it out"
        )
    member = _member(name, field, encoding)
    if encoding is not Encoding.AVRO:
        if (schema := field.optional("schema")) is not None:
            raise schema.fail(f"the encoding {encoding.value!r} has no schema", "leave it out")
        return StoredColumn(encoding, family, qualifier, member=member)
    if cell.text() not in schemas:
        raise field.fail(f"column {name!r} needs the schema of its Avro", "write schema: with Avro's JSON")
    _check_member(name, field, json.loads(schemas[cell.text()]), member)
    return StoredColumn(encoding, family, qualifier, member=member, schema=schemas[cell.text()])


def _member(name: str, field: YamlDocument, encoding: Encoding) -> tuple[str, ...]:
    given = field.optional("member")
    if given is None:
        return ()
    if encoding not in WITH_MEMBERS:
        raise given.fail(f"column {name!r}: the encoding {encoding.value!r} has no members", "leave it out")
    names = tuple(given.text().split("."))
    if not all(names):
        raise given.fail(f"{given.text()!r} names no member", "write it as in customer.address.city")
    return names


def _schemas(columns: Mapping[str, YamlDocument]) -> dict[str, str]:
    """Of each cell in Avro, told by one of its columns."""
    found: dict[str, str] = {}
    for name, field in columns.items():
        cell, schema = field.optional("cell"), field.optional("schema")
        if cell is None or schema is None:
            continue
        try:
            compact = json.dumps(json.loads(schema.text()), separators=(",", ":"), sort_keys=True)
        except (ValueError, RecursionError) as error:
            raise schema.fail(f"the schema of column {name!r} is not JSON: {error}") from None
        if found.setdefault(cell.text(), compact) != compact:
            raise schema.fail(
                f"column {name!r}: the cell {cell.text()!r} has another schema already", "give one of them"
            )
    return found


def _check_member(name: str, field: YamlDocument, schema: Any, member: tuple[str, ...]) -> None:
    """Members of records; what is behind the name of another type is left to those who read."""
    for step in member:
        options = [one for one in (schema if isinstance(schema, list) else [schema]) if one != "null"]
        records = [one for one in options if isinstance(one, dict) and one.get("type") == "record"]
        if not records:
            if any(isinstance(one, str) and one not in _PRIMITIVES for one in options):
                return
            raise field.child("member").fail(f"column {name!r}: Avro's schema has no record with a field {step!r}")
        fields = {one.get("name"): one.get("type") for record in records for one in record.get("fields", [])}
        if step not in fields:
            raise field.child("member").fail(
                f"column {name!r}: Avro's schema has no field {step!r}", closest(step, map(str, fields), "fields")
            )
        schema = fields[step]


def _check_cells(table: TableDef, stored: tuple[StoredColumn, ...], columns: Mapping[str, YamlDocument]) -> None:
    taken: dict[tuple[str, str], tuple[str, StoredColumn]] = {}
    for column, place in zip(table.columns, stored, strict=True):
        if not place.family:
            continue
        other, held = taken.setdefault((place.family, place.qualifier), (column.name, place))
        if other == column.name:
            continue
        field = columns[column.name].child("cell")
        if place.encoding is not held.encoding or not (place.member and held.member):
            raise field.fail(
                f"columns {other!r} and {column.name!r} are the same cell", "give each a member of its JSON"
            )
    if not taken:
        raise columns[table.key[0]].fail(
            "no column has a cell, and a row of HBase lives while one of its cells does", "add a column with a cell"
        )
