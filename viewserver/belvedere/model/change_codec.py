"""Changes of a base table as bytes, the one encoding that there is: in the input log of an embedded database, and in
the chunks of a cluster (`chunks.py`) from the client to the engine.

Only what was written is stored: columns that no row of a call carries are left out, masks appear only where rows
differ, and timestamps are a number and a step where the database's own clock gave them. The rest is described as JSON:

    k "put" | "delete" | "mixed" | "cells"   n rows   p names of columns with a presence mask
    x positions of columns with cells that could not be read
    frame (`physical.py`): the columns, the presence masks, the mask of deletes if mixed, the status bytes of the
    columns x, the `CellChange` of each row if cells, timestamps unless by the clock

An entry of the input log adds: t table, c columns in the batch, ts first timestamp or null if the batch has them, step
1 if each row is one microsecond after the row before, else 0, b size of the batch in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, nulls
from belvedere.errors import Damaged, DataError
from belvedere.model.physical import Buffer, PhysicalFrame, frame, pack, unframe
from belvedere.sql.catalog import TableDef
from belvedere.types import Type

Columns = tuple[tuple[str, Type], ...]


@dataclass(frozen=True, eq=False)
class WrittenRow:
    """Changes with only those columns that some row wrote, by name."""

    names: Columns
    changes: Changes

    @staticmethod
    def of(table: TableDef, changes: Changes) -> WrittenRow:
        """Of changes with all columns of the table, or those that it had when they were made."""
        if len(changes.columns) > len(table.columns):
            found, known = len(changes.columns), len(table.columns)
            raise DataError(f"base table {table.name!r} has {known} columns, {found} were written")
        names, columns, present = [], [], []
        for column, vec, mask in zip(table.columns, changes.columns, changes.present, strict=False):
            if mask is not None and mask.all():
                mask = None
            if mask is None or mask.any():
                names.append((column.name, vec.type))
                columns.append(vec)
                present.append(mask)
        return WrittenRow(tuple(names), replace(changes, columns=tuple(columns), present=tuple(present)))

    def resolve(self, table: TableDef) -> Changes:
        """With all columns of the table as it is now; those that were not written are absent."""
        written = {name: (type, i) for i, (name, type) in enumerate(self.names)}
        count = len(self.changes)
        columns: list[Vec] = []
        present: list[np.ndarray | None] = []
        for column in table.columns:
            type, at = written.pop(column.name, (column.type, None))
            if type != column.type:
                raise Damaged(f"column {column.name!r} of table {table.name!r} is {column.type}, a chunk has {type}")
            columns.append(nulls(column.type, count) if at is None else self.changes.columns[at])
            present.append(np.zeros(count, np.bool_) if at is None else self.changes.present[at])
        if written:
            raise Damaged(f"a chunk writes columns {', '.join(written)}, which table {table.name!r} does not have")
        return replace(self.changes, columns=tuple(columns), present=tuple(present))

    def slice(self, start: int, stop: int) -> WrittenRow:
        if start == 0 and stop == len(self.changes):
            return self
        found = self.changes
        return WrittenRow(
            self.names,
            Changes(
                tuple(vec.slice(start, stop) for vec in found.columns),
                tuple(None if mask is None else mask[start:stop] for mask in found.present),
                None if found.delete is None else found.delete[start:stop],
                found.ts[start:stop],
                None if found.kind is None else found.kind[start:stop],
            ),
        )

    def take(self, index: np.ndarray) -> WrittenRow:
        return WrittenRow(self.names, self.changes.take(index))


def is_mixed(changes: Changes) -> bool:
    """Whether there are puts and deletes, whose order matters."""
    return changes.delete is not None and bool(changes.delete.any()) and not bool(changes.delete.all())


def describe(written: WrittenRow, own_clock: bool) -> tuple[dict[str, Any], PhysicalFrame]:
    """What `read` needs to know, and the rows."""
    changes = written.changes
    masks = [(name, mask) for (name, _), mask in zip(written.names, changes.present, strict=True) if mask is not None]
    plain = [mask for _, mask in masks]
    kind = "put"
    if changes.delete is not None and changes.delete.any():
        kind = "delete" if changes.delete.all() else "mixed"
        if kind == "mixed":
            plain.append(changes.delete)
    failed = [i for i, vec in enumerate(changes.columns) if vec.errors is not None]
    plain += [status for i in failed if (status := changes.columns[i].status) is not None]
    if changes.kind is not None and changes.kind.any():
        kind = "cells"
        plain.append(changes.kind)
    if not own_clock:
        plain.append(changes.ts)
    described = {"n": len(changes), "p": [name for name, _ in masks], "k": kind}
    return described | ({"x": failed} if failed else {}), frame(changes.columns, plain)


def read(
    described: dict[str, Any],
    names: Columns,
    rows: Buffer,
    stamps: np.ndarray | None,
    ends: np.ndarray | Sequence[int],
) -> WrittenRow:
    """`stamps`: by the own clock, first timestamp and step of each entry, whose rows end at `ends`."""
    mixed, cells, failed = described["k"] == "mixed", described["k"] == "cells", described.get("x", [])
    wanted: list[type] = [np.bool_] * (len(described["p"]) + mixed) + [np.uint8] * (len(failed) + cells)
    columns, plain = unframe(rows, [type for _, type in names], wanted + ([np.int64] if stamps is None else []))
    ts = plain.pop() if stamps is None else _timestamps(stamps, ends)
    kind = plain.pop() if cells else None
    for at in reversed(failed):
        columns[at].status = plain.pop()
    masks = dict(zip(described["p"], plain, strict=False))
    present = tuple(masks.get(name) for name, _ in names)
    count: int = described["n"]
    delete = plain[-1] if mixed else np.ones(count, np.bool_) if described["k"] == "delete" else None
    return WrittenRow(names, Changes(tuple(columns), present, delete, ts, kind))


def encode(table: TableDef, changes: Changes, *, own_clock: bool) -> tuple[dict[str, Any], memoryview]:
    """Description (without timestamps if `own_clock`: they come when the order of the log is known) and batch."""
    written = WrittenRow.of(table, changes)
    described, rows = describe(written, own_clock)
    batch = pack(rows)
    names = [name for name, _ in written.names]
    return {
        "t": table.name,
        "c": names,
        **described,
        "ts": 0 if own_clock else None,
        "step": 0,
        "b": batch.nbytes,
    }, batch


def decode(table: TableDef, meta: dict[str, Any], buffer: Buffer) -> Changes:
    """The entry as the engine takes it, for the table as it is now (columns added since are absent)."""
    types = {c.name: c.type for c in table.columns}
    missing = [name for name in meta["c"] if name not in types]
    if missing:
        raise Damaged(f"the input log writes columns {', '.join(missing)} which table {table.name!r} does not have")
    names = tuple((name, types[name]) for name in meta["c"])
    stamps = None if meta["ts"] is None else np.array([[meta["ts"]], [meta["step"]]])
    return read(meta, names, buffer, stamps, [meta["n"]]).resolve(table)


def timestamps(first: int, step: int, count: int) -> np.ndarray:
    """Cell timestamps that the database's own clock gave."""
    return np.arange(first, first + count, dtype=np.int64) if step else np.full(count, first, np.int64)


def _timestamps(stamps: np.ndarray, ends: np.ndarray | Sequence[int]) -> np.ndarray:
    """Of each row, from first timestamp and step of each entry."""
    if len(ends) == 1:
        return timestamps(int(stamps[0, 0]), int(stamps[1, 0]), int(ends[0]))
    counts = np.diff(ends, prepend=0)
    first, step = np.repeat(stamps, counts, axis=1)
    return np.asarray(first + step * (np.arange(len(first)) - np.repeat(ends - counts, counts)))


def widen(table: TableDef, changes: Changes) -> Changes:
    """Changes made before columns were added, for the table as it is now."""
    extra = table.columns[len(changes.columns) :]
    if not extra:
        return changes
    count = len(changes)
    columns = changes.columns + tuple(nulls(c.type, count) for c in extra)
    present = changes.present + tuple(np.zeros(count, np.bool_) for _ in extra)
    return replace(changes, columns=columns, present=present)
