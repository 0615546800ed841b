"""Changes of a base table as one entry of the input log, and back.

Only what was written is stored: columns that no row of a call carries are left out, masks appear only where rows
differ, and timestamps are one number where the database's own clock gave them. The JSON description of an entry:

    t table   k "put" | "delete" | "mixed"   n rows   c columns in the batch   p those of them with a presence mask
    ts first timestamp, or null if the batch has them   step 1: each row is one microsecond after the row before, else 0
    b size of the batch in bytes
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, nulls
from belvedere.errors import Damaged
from belvedere.sql.catalog import TableDef
from belvedere.store.embedded.physical import (
    deserialize,
    flat,
    from_physical,
    physical_type,
    serialize,
    to_physical,
    unflat,
)

_MASK = pa.uint8()


def encode(table: TableDef, changes: Changes, *, own_clock: bool) -> tuple[dict[str, Any], memoryview]:
    """Description (without timestamps if `own_clock`: they come when the order of the log is known) and batch."""
    arrays: list[pa.Array] = []
    fields: list[str] = []
    columns: list[str] = []
    masked: dict[str, np.ndarray] = {}
    for column, vec, present in zip(table.columns, changes.columns, changes.present, strict=True):
        if present is not None and not present.any():
            continue
        columns.append(column.name)
        arrays.append(to_physical(vec))
        fields.append(column.name)
        if present is not None and not present.all():
            masked[column.name] = present
    for name, mask in masked.items():
        arrays.append(flat(mask, _MASK))
        fields.append(f"p:{name}")
    kind = "put"
    if changes.delete is not None and changes.delete.any():
        kind = "delete" if changes.delete.all() else "mixed"
        if kind == "mixed":
            arrays.append(flat(changes.delete, _MASK))
            fields.append("d")
    if not own_clock:
        arrays.append(flat(changes.ts, pa.int64()))
        fields.append("ts")
    batch = serialize(arrays, fields)
    meta = {
        "t": table.name,
        "k": kind,
        "n": len(changes),
        "c": columns,
        "p": list(masked),
        "ts": 0 if own_clock else None,
        "step": 0,
    }
    return {**meta, "b": batch.nbytes}, batch


def decode(table: TableDef, meta: dict[str, Any], buffer: memoryview) -> Changes:
    """The entry as the engine takes it, for the table as it is now (columns added since are absent)."""
    types = {c.name: c.type for c in table.columns}
    missing = [name for name in meta["c"] if name not in types]
    if missing:
        raise Damaged(f"the input log writes columns {', '.join(missing)} which table {table.name!r} does not have")
    fields = [(name, physical_type(types[name])) for name in meta["c"]]
    fields += [(f"p:{name}", _MASK) for name in meta["p"]]
    if meta["k"] == "mixed":
        fields.append(("d", _MASK))
    if meta["ts"] is None:
        fields.append(("ts", pa.int64()))
    # By position: a user's column may have any name, also one of ours.
    arrays = iter(deserialize(buffer, fields))
    written = {name: next(arrays) for name in meta["c"]}
    masks = {name: unflat(next(arrays), np.bool_) for name in meta["p"]}
    count: int = meta["n"]
    columns: list[Vec] = []
    present: list[np.ndarray | None] = []
    for column in table.columns:
        if column.name in meta["c"]:
            columns.append(from_physical(written[column.name], column.type))
            present.append(masks.get(column.name))
        else:
            columns.append(nulls(column.type, count))
            present.append(np.zeros(count, np.bool_))
    delete = None
    if meta["k"] == "delete":
        delete = np.ones(count, np.bool_)
    elif meta["k"] == "mixed":
        delete = unflat(next(arrays), np.bool_)
    own = meta["ts"] is not None
    ts = timestamps(meta["ts"], meta["step"], count) if own else unflat(next(arrays), np.int64)
    return Changes(tuple(columns), tuple(present), delete, ts)


def timestamps(first: int, step: int, count: int) -> np.ndarray:
    """Cell timestamps that the database's own clock gave."""
    return np.arange(first, first + count, dtype=np.int64) if step else np.full(count, first, np.int64)


def widen(table: TableDef, changes: Changes) -> Changes:
    """Changes made before columns were added, for the table as it is now."""
    extra = table.columns[len(changes.columns) :]
    if not extra:
        return changes
    count = len(changes)
    columns = changes.columns + tuple(nulls(c.type, count) for c in extra)
    present = changes.present + tuple(np.zeros(count, np.bool_) for _ in extra)
    return replace(changes, columns=columns, present=present)
