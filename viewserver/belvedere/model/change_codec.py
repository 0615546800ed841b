"""Changes of a base table as one entry of the input log, and back.

Only what was written is stored: columns that no row of a call carries are left out, masks appear only where rows
differ, and timestamps are one number where the database's own clock gave them. The JSON description of an entry:

    t table   k "put" | "delete" | "mixed"   n rows   c columns in the batch   p those of them with a presence mask
    ts first timestamp, or null if the batch has them   step 1: each row is one microsecond after the row before, else 0
    b size of the batch in bytes: a frame of the columns, the presence masks, the mask of deletes if mixed, timestamps
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, nulls
from belvedere.errors import Damaged
from belvedere.model.physical import frame, pack, unframe
from belvedere.sql.catalog import TableDef


def encode(table: TableDef, changes: Changes, *, own_clock: bool) -> tuple[dict[str, Any], memoryview]:
    """Description (without timestamps if `own_clock`: they come when the order of the log is known) and batch."""
    columns: list[Vec] = []
    names: list[str] = []
    masked: list[str] = []
    plain: list[np.ndarray] = []
    for column, vec, present in zip(table.columns, changes.columns, changes.present, strict=True):
        if present is not None and not present.all():
            if not present.any():
                continue
            masked.append(column.name)
            plain.append(present)
        names.append(column.name)
        columns.append(vec)
    kind = "put"
    if changes.delete is not None and changes.delete.any():
        kind = "delete" if changes.delete.all() else "mixed"
        if kind == "mixed":
            plain.append(changes.delete)
    if not own_clock:
        plain.append(changes.ts)
    batch = pack(frame(columns, plain))
    meta = {
        "t": table.name,
        "k": kind,
        "n": len(changes),
        "c": names,
        "p": masked,
        "ts": 0 if own_clock else None,
        "step": 0,
        "b": batch.nbytes,
    }
    return meta, batch


def decode(table: TableDef, meta: dict[str, Any], buffer: memoryview) -> Changes:
    """The entry as the engine takes it, for the table as it is now (columns added since are absent)."""
    types = {c.name: c.type for c in table.columns}
    missing = [name for name in meta["c"] if name not in types]
    if missing:
        raise Damaged(f"the input log writes columns {', '.join(missing)} which table {table.name!r} does not have")
    mixed, own_clock = meta["k"] == "mixed", meta["ts"] is not None
    wanted: list[type] = [np.bool_] * (len(meta["p"]) + mixed) + [np.int64] * (not own_clock)
    found, plain = unframe(buffer, [types[name] for name in meta["c"]], wanted)
    # By position: a user's column may have any name, also one of ours.
    written = dict(zip(meta["c"], found, strict=True))
    rest = iter(plain)
    masks = {name: next(rest) for name in meta["p"]}
    count: int = meta["n"]
    columns: list[Vec] = []
    present: list[np.ndarray | None] = []
    for column in table.columns:
        vec = written.get(column.name)
        if vec is not None:
            columns.append(vec)
            present.append(masks.get(column.name))
        else:
            columns.append(nulls(column.type, count))
            present.append(np.zeros(count, np.bool_))
    delete = next(rest) if mixed else np.ones(count, np.bool_) if meta["k"] == "delete" else None
    ts = timestamps(meta["ts"], meta["step"], count) if own_clock else next(rest)
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
