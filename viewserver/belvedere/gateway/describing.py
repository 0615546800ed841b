"""What a table or view is, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from belvedere.errors import BelvedereError
from belvedere.gateway.databases import GatewayDatabase
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import Column, Kind, Type, decimal

_TYPE_NAMES = {Type(kind).arrow: kind.value for kind in Kind if kind is not Kind.DECIMAL}


def type_name(arrow: pa.DataType) -> str:
    """As SQL calls it: the same word as in descriptions."""
    if pa.types.is_decimal(arrow):
        return str(decimal(arrow.precision, arrow.scale))
    known: str | None = _TYPE_NAMES.get(arrow)
    return str(arrow) if known is None else known


def columns(schema: tuple[Column, ...]) -> list[dict[str, Any]]:
    return [{"name": c.name, "type": str(c.type), "nullable": c.nullable} for c in schema]


def describe(database: GatewayDatabase, catalog: Catalog, relation: TableDef | ViewDef) -> dict[str, Any]:
    """The `Description` of the API."""
    from belvedere.sql.text import create_text

    state, reason = "Ready", ""
    try:
        key = columns(database.db.key_columns(relation.name))
    except BelvedereError as error:  # a view that has failed, or is built for the first time
        key, state, reason = [], "Failed", str(error)
    told: dict[str, Any] = {
        "name": relation.name,
        "kind": "table" if isinstance(relation, TableDef) else "view",
        "columns": columns(relation.columns),
        "key": [column["name"] for column in key],
        "key_columns": key,
        "sql": create_text(relation),
        "dependants": sorted(view.name for view in catalog.views.values() if _reads(view, relation.name)),
    }
    if isinstance(relation, TableDef):
        return told | {"ties": relation.ties.value}
    return told | {
        "reads": sorted(relation.reads),
        "version": relation.version,
        "retention_ms": relation.retention_ms,
        "state": state,
        "reason": reason,
    }


def _reads(view: ViewDef, name: str) -> bool:
    return any(read.lower() == name.lower() for read in view.reads)


def json_type(column: Mapping[str, Any]) -> str:
    """The kind of JSON that a column has, for documentation."""
    return "number" if column["type"] in (Kind.INT.value, Kind.DOUBLE.value) else "string"
