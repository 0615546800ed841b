"""Writes as bodies of requests: Arrow where all rows have the same columns, JSON where they differ in that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.gateway.client.caller import ARROW, JSON
from belvedere.gateway.client.forms import dumps, to_json
from belvedere.sql.catalog import TableDef


@dataclass(frozen=True, slots=True)
class WriteBody:
    """`route`: below the table: rows, deletes or changes."""

    route: str
    media_type: str
    body: bytes
    query: list[tuple[str, str]] = field(default_factory=list)


def write_body(table: TableDef, changes: Changes, *, own_clock: bool) -> WriteBody:
    """The request that makes these changes. `own_clock`: the database gives the timestamps."""
    delete = changes.delete
    if delete is not None and delete.all():
        return _arrow("deletes", table, changes, list(table.key_positions), None, own_clock)
    written = [at for at, mask in enumerate(changes.present) if mask is None or mask.any()]
    if any(mask is not None and not mask.all() for mask in (changes.present[at] for at in written)):
        return _json(table, changes, written, own_clock)
    return _arrow("rows" if delete is None else "changes", table, changes, written, delete, own_clock)


def _arrow(
    route: str, table: TableDef, changes: Changes, written: list[int], delete: np.ndarray | None, own_clock: bool
) -> WriteBody:
    names = [table.columns[at].name for at in written]
    arrays = [changes.columns[at].to_arrow() for at in written]
    query = []
    if delete is not None:
        query.append(("deletes", _unused(table, "deletes")))
        names.append(query[-1][1])
        arrays.append(pa.array(delete))
    if not own_clock:
        one = int(changes.ts[0])
        if (changes.ts == one).all():
            query.append(("ts", str(one)))
        else:
            query.append(("ts_column", _unused(table, "ts")))
            names.append(query[-1][1])
            arrays.append(pa.array(changes.ts))
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return WriteBody(route, ARROW, sink.getvalue().to_pybytes(), query)


def _json(table: TableDef, changes: Changes, written: list[int], own_clock: bool) -> WriteBody:
    values = {at: [to_json(v) for v in changes.columns[at].to_arrow().to_pylist()] for at in written}
    query = []
    extra: dict[str, list[int]] = {}
    if not own_clock:
        query.append(("ts_column", _unused(table, "ts")))
        extra[query[-1][1]] = changes.ts.tolist()
    rows = [
        {
            **{table.columns[at].name: values[at][n] for at in written if _has(changes, at, n)},
            **{name: column[n] for name, column in extra.items()},
        }
        for n in range(len(changes))
    ]
    delete = changes.delete
    if delete is None:
        return WriteBody("rows", JSON, dumps(rows).encode(), query)
    keys = {*table.key, *extra}
    items: Iterable[dict[str, Any]] = (
        {"delete": {name: value for name, value in row.items() if name in keys}} if gone else {"put": row}
        for row, gone in zip(rows, delete.tolist(), strict=True)
    )
    return WriteBody("changes", JSON, dumps(list(items)).encode(), query)


def _has(changes: Changes, at: int, row: int) -> bool:
    mask = changes.present[at]
    return mask is None or bool(mask[row])


def _unused(table: TableDef, name: str) -> str:
    """A name that no column has."""
    taken = {column.name.lower() for column in table.columns}
    name = f"_{name}"
    while name in taken:
        name = f"_{name}"
    return name
