"""Definitions as JSON: types, tables, views. Names of types are those of SQL, so files can be read by a person."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from belvedere.errors import Damaged
from belvedere.sql.catalog import Deletes, TableDef, Ties
from belvedere.sql.origin import Encoding, Origin, RowKey, StoredColumn
from belvedere.types import Column, Kind, Schema, Type

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def type_of(text: str) -> Type:
    """The type that `str(type)` wrote."""
    if found := _DECIMAL.fullmatch(text):
        return Type(Kind.DECIMAL, int(found[1]), int(found[2]))
    try:
        return Type(Kind(text))
    except ValueError as error:
        raise Damaged(f"the catalog names a type {text!r} that this program does not know") from error


def schema_json(schema: Schema) -> list[list[Any]]:
    return [[c.name, str(c.type), c.nullable] for c in schema]


def schema_of(columns: list[list[Any]]) -> Schema:
    return tuple(Column(name, type_of(text), nullable) for name, text, nullable in columns)


def table_json(table: TableDef) -> dict[str, Any]:
    found: dict[str, Any] = {"name": table.name, "columns": schema_json(table.columns), "key": list(table.key)}
    if table.ties is not Ties.LINEAGE:
        found["ties"] = table.ties.value
    if table.deletes is not Deletes.ROWS:
        found["deletes"] = table.deletes.value
    if table.origin is not None:
        columns = [_stored_json(column) for column in table.origin.columns]
        found["origin"] = {"table": table.origin.table, "columns": columns, "set_scope": table.origin.set_scope}
        if table.origin.row_key != RowKey():
            found["origin"]["row_key"] = asdict(table.origin.row_key)
    return found


def table_of(value: dict[str, Any]) -> TableDef:
    try:
        ties = Ties(value.get("ties", Ties.LINEAGE))
    except ValueError as error:
        raise Damaged(f"the catalog names a rule for ties {value['ties']!r} that this program does not know") from error
    try:
        deletes = Deletes(value.get("deletes", Deletes.ROWS))
    except ValueError as error:
        raise Damaged(f"the catalog names deletes of {value['deletes']!r}, which this program does not know") from error
    columns = schema_of(value["columns"])
    return TableDef(value["name"], columns, tuple(value["key"]), ties, deletes, _origin(value.get("origin")))


def _origin(value: dict[str, Any] | None) -> Origin | None:
    if value is None:
        return None
    try:
        columns = tuple(_stored(*column) for column in value["columns"])
    except ValueError as error:
        raise Damaged(f"the catalog names an encoding that this program does not know: {error}") from error
    return Origin(value["table"], columns, value["set_scope"], RowKey(**value.get("row_key", {})))


def _stored_json(column: StoredColumn) -> list[Any]:
    """What few columns have comes last, as fields."""
    found: list[Any] = [column.encoding.value, column.family, column.qualifier]
    others = {"width": column.width, "member": list(column.member), "schema": column.schema}
    given = {name: value for name, value in others.items() if value}
    return [*found, given] if given else found


def _stored(encoding: str, family: str, qualifier: str, others: Mapping[str, Any] | None = None) -> StoredColumn:
    given = dict(others or {})
    member = tuple(given.pop("member", ()))
    return StoredColumn(Encoding(encoding), family, qualifier, member=member, **given)


@dataclass(frozen=True, slots=True)
class ViewShape:
    """What reading a view's rows needs to know of it; its SQL and plan do not matter here."""

    name: str
    version: int
    schema: Schema
    visible: int
    key: tuple[int, ...]
    retention_ms: int | None = None

    @property
    def same_rows(self) -> tuple[Schema, int, tuple[int, ...]]:
        """Equal for versions between which a subscription can go on."""
        return (self.schema, self.visible, self.key)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "columns": schema_json(self.schema),
            "visible": self.visible,
            "key": list(self.key),
            "retention_ms": self.retention_ms,
        }

    @staticmethod
    def of(value: dict[str, Any]) -> ViewShape:
        return ViewShape(
            value["name"],
            value["version"],
            schema_of(value["columns"]),
            value["visible"],
            tuple(value["key"]),
            value["retention_ms"],
        )
