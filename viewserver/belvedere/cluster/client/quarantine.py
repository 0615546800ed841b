"""Rows that a view cannot show, from the store, with the reason in words."""

from __future__ import annotations

import pyarrow as pa

from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.client.stores import PatientStore
from belvedere.engine.vec import Status
from belvedere.model.stored_rows import quarantined_rows
from belvedere.plan.table_names import quarantine_table
from belvedere.protocol.ring import BUCKETS


def quarantined(store: PatientStore, view: ReadableView, epoch: int) -> pa.Table:
    """Visible columns (cells that failed are NULL) and `reason`."""
    shape = view.shape
    columns = shape.schema[: shape.visible]
    schema = pa.schema([*((c.name, c.type.arrow) for c in columns), ("reason", pa.string())])
    parts = []
    for _, values in store.scan(quarantine_table(shape), 0, BUCKETS, epoch + 1):
        found, failed, codes = quarantined_rows(shape.name, shape.schema, values)
        reasons = [
            (f"column {shape.schema[column].name}: " if column >= 0 else "condition: ") + Status(code).text
            for column, code in zip(failed.tolist(), codes.tolist(), strict=True)
        ]
        arrays = [vec.to_arrow() for vec in found[: len(columns)]]
        parts.append(pa.Table.from_arrays([*arrays, pa.array(reasons, pa.string())], schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()
