"""Definitions as JSON: types, tables, views. Names of types are those of SQL, so files can be read by a person."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from belvedere.errors import Damaged
from belvedere.sql.catalog import Deletes, TableDef, Ties
from belvedere.sql.origin import Encoding, Origin, StoredColumn
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
        columns = [[c.encoding.value, c.family, c.qualifier] for c in table.origin.columns]
        found["origin"] = {"table": table.origin.table, "columns": columns, "set_scope": table.origin.set_scope}
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
        columns = tuple(StoredColumn(Encoding(encoding), *cell) for encoding, *cell in value["columns"])
    except ValueError as error:
        raise Damaged(f"the catalog names an encoding that this program does not know: {error}") from error
    return Origin(value["table"], columns, value["set_scope"])


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
