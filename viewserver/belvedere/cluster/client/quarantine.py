"""Rows that a view cannot show, and what of a base table cannot be read, from the store, with the reason in words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from belvedere.backend.unreadable_rows import MOST, unreadable_rows
from belvedere.cluster.catalog.names import ReadableView, ServedTable
from belvedere.cluster.client.stores import PatientStore
from belvedere.engine.delta import Delta
from belvedere.engine.vec import Status
from belvedere.model.describe import ViewShape
from belvedere.model.stored_rows import quarantined_rows, stored_base_rows
from belvedere.plan.table_names import quarantine_table
from belvedere.protocol.ring import BUCKETS
from belvedere.sql.catalog import TableDef


def quarantined(store: PatientStore, view: ReadableView, epoch: int) -> pa.Table:
    """Visible columns (cells that failed are NULL) and `reason`."""
    pieces = store.scan(quarantine_table(view.shape), 0, BUCKETS, epoch + 1)
    parts = [with_reasons(view.shape, values) for _, values in pieces]
    return pa.concat_tables(parts) if parts else with_reasons(view.shape, pa.array([], pa.binary()))


def with_reasons(shape: ViewShape, values: pa.BinaryArray) -> pa.Table:
    """The same of some rows as they are stored."""
    columns = shape.schema[: shape.visible]
    schema = pa.schema([*((c.name, c.type.arrow) for c in columns), ("reason", pa.string())])
    found, failed, codes = quarantined_rows(shape.name, shape.schema, values)
    reasons = [
        (f"column {shape.schema[column].name}: " if column >= 0 else "condition: ") + Status(code).text
        for column, code in zip(failed.tolist(), codes.tolist(), strict=True)
    ]
    arrays = [vec.to_arrow() for vec in found[: len(columns)]]
    return pa.Table.from_arrays([*arrays, pa.array(reasons, pa.string())], schema=schema)


def unreadable(store: PatientStore, table: ServedTable, epoch: int) -> pa.Table:
    """Of a base table of another system: the key's columns, or the row key if that cannot be read; the cell, unless it
    is the row as a whole; and the reason. All rows are looked at."""
    definition = table.definition
    schema = pa.schema(
        [
            *((definition.columns[i].name, definition.columns[i].type.arrow) for i in definition.key_positions),
            ("row_key", pa.binary()),
            ("cell", pa.string()),
            ("reason", pa.string()),
        ]
    )
    parts = [
        part
        for ids, values in store.scan(table.rows_table, 0, BUCKETS, epoch + 1)
        for part in _of_base_rows(definition, *stored_base_rows(table.stored, ids, values), schema)
    ]
    rows = unreadable_rows(store, table.stored.name)
    if rows:
        keys = [pa.nulls(len(rows), schema.field(i).type) for i in range(len(definition.key))]
        reasons = [f"row key: {row.reason}" for row in rows]
        if len(rows) >= MOST:
            reasons[-1] += f"; {MOST} row keys are kept at most, there may be more"
        found = [pa.array([row.key for row in rows], pa.binary()), pa.nulls(len(rows), pa.string())]
        parts.append(pa.Table.from_arrays([*keys, *found, pa.array(reasons, pa.string())], schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()


def _of_base_rows(table: TableDef, rows: Delta, error: np.ndarray | None, schema: pa.Schema) -> Iterator[pa.Table]:
    assert table.origin is not None
    keys = table.key_positions

    def failing(at: np.ndarray, cell: str | None, reasons: list[str]) -> pa.Table:
        columns = [rows.columns[i].take(at).to_arrow() for i in keys]
        found = [
            pa.nulls(len(at), pa.binary()),
            pa.array([cell] * len(at), pa.string()),
            pa.array(reasons, pa.string()),
        ]
        return pa.Table.from_arrays([*columns, *found], schema=schema)

    if error is not None:
        at = np.flatnonzero(error > Status.VALUE)
        yield failing(at, None, [f"row: {Status(code).text}" for code in error[at].tolist()])
    for column, vec, stored in zip(table.columns, rows.columns, table.origin.columns, strict=True):
        if vec.status is None or not stored.family:
            continue
        at = np.flatnonzero(vec.status > Status.VALUE)
        if len(at):
            what = f"column {column.name} ({column.type}, {stored.encoding.value}): "
            reasons = [what + Status(code).text for code in vec.status[at].tolist()]
            yield failing(at, f"{stored.family}:{stored.qualifier}", reasons)
