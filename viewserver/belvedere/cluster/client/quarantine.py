"""Rows that a view cannot show, from the store, with the reason in words."""

from __future__ import annotations

import pyarrow as pa

from belvedere.cluster.catalog.catalogs import ServedView
from belvedere.cluster.client.stores import PatientStore
from belvedere.engine.vec import Status
from belvedere.engine.viewrows import decode_quarantine_rows, quarantine_table
from belvedere.protocol.ring import BUCKETS


def quarantined(store: PatientStore, view: ServedView, epoch: int) -> pa.Table:
    """Visible columns (cells that failed are NULL) and `reason`."""
    columns = view.node.schema[: view.node.visible]
    schema = pa.schema([*((c.name, c.type.arrow) for c in columns), ("reason", pa.string())])
    parts = []
    for ids, values in store.scan(quarantine_table(view.node), 0, BUCKETS, epoch + 1):
        found = decode_quarantine_rows(view.node, ids, values)
        reasons = [
            (f"column {view.node.schema[column].name}: " if column >= 0 else "condition: ") + Status(code).text
            for column, code in zip(found.column.tolist(), found.code.tolist(), strict=True)
        ]
        arrays = [vec.to_arrow() for vec in found.delta.columns[: len(columns)]]
        parts.append(pa.Table.from_arrays([*arrays, pa.array(reasons, pa.string())], schema=schema))
    return pa.concat_tables(parts) if parts else schema.empty_table()
