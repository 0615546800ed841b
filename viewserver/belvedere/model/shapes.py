"""Rows of views as users see them: names and visible columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from belvedere.engine.delta import Delta
from belvedere.model.describe import ViewShape
from belvedere.plan.nodes import ViewNode
from belvedere.sql.catalog import ViewDef
from belvedere.types import Schema

Row = Sequence[Any]


def shape_of(node: ViewNode, definition: ViewDef) -> ViewShape:
    """What readers need to know of a planned view."""
    return ViewShape(definition.name, node.version, node.schema, node.visible, node.key, definition.retention_ms)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Columns as those of an Arrow table."""
    return pa.schema([pa.field(c.name, c.type.arrow) for c in schema])


def named(shape: ViewShape, row: Row) -> dict[str, Any]:
    """The visible columns of a row."""
    return {c.name: v for c, v in zip(shape.schema[: shape.visible], row, strict=False)}


def to_table(shape: ViewShape, rows: Delta) -> pa.Table:
    """The visible columns of rows as an Arrow table."""
    schema = arrow_schema(shape.schema[: shape.visible])
    return pa.Table.from_arrays([v.to_arrow() for v in rows.columns[: shape.visible]], schema=schema)
