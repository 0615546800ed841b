"""Deltas: changed rows with weights (a Z-set), the only thing that flows between operators.

Within one epoch a delta is consolidated: an id occurs at most once with -1 (the row as it was) and at most once with +1
(as it is now). An update is such a pair; the two rows need not be adjacent. Big deltas travel as several chunks in a
`DeltaBuffer`, which spills to disk beyond a memory limit, so an epoch completes in bounded memory; the -1 of an id is
never in a later chunk than its +1.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from belvedere.engine.vec import Vec, concat, empty
from belvedere.types import Schema


@dataclass(slots=True)
class Delta:
    """`weight`: int8, +1 or -1. `id`: uint64[n, 2]. `error`: uint8 Status codes of rows whose membership itself failed
    (a WHERE or ON that raised), 1 (VALUE) elsewhere; None if no row has one."""

    columns: tuple[Vec, ...]
    weight: np.ndarray
    id: np.ndarray
    error: np.ndarray | None = None
    paired: np.ndarray | None = None
    """Mask of -1 rows whose id is known to have its +1 row in the same epoch (others may have one as well; None says
    nothing). Whoever keeps rows by id may skip them."""

    def __len__(self) -> int:
        return len(self.weight)

    def take(self, index: np.ndarray) -> Delta:
        error = None if self.error is None else self.error[index]
        return Delta(tuple(c.take(index) for c in self.columns), self.weight[index], take_ids(self.id, index), error)

    def filter(self, mask: np.ndarray) -> Delta:
        if self.columns and all(isinstance(c.data, np.ndarray) for c in self.columns):
            return self.take(np.flatnonzero(mask))  # one look at the mask instead of one per column
        error = None if self.error is None else self.error[mask]
        return Delta(tuple(c.filter(mask) for c in self.columns), self.weight[mask], take_ids(self.id, mask), error)

    def slice(self, start: int, stop: int) -> Delta:
        error = None if self.error is None else self.error[start:stop]
        return Delta(
            tuple(c.slice(start, stop) for c in self.columns), self.weight[start:stop], self.id[start:stop], error
        )

    def nbytes(self) -> int:
        return sum(c.nbytes() for c in self.columns) + 17 * len(self)


def take_ids(ids: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Ids at these positions (or where a mask is true): moved as one item of 16 bytes, which numpy does much faster
    than rows of two."""
    whole = np.ascontiguousarray(ids).view(np.complex128).reshape(-1)
    return np.asarray(whole[index].view(np.uint64).reshape(-1, 2))


def empty_delta(schema: Schema) -> Delta:
    """No change."""
    return Delta(tuple(empty(c.type) for c in schema), np.empty(0, np.int8), np.empty((0, 2), np.uint64))


def concat_deltas(parts: Sequence[Delta]) -> Delta:
    """Deltas of one schema, one after the other (the caller knows that the result is consolidated)."""
    if len(parts) == 1:
        return parts[0]
    error = None
    if any(p.error is not None for p in parts):
        error = np.concatenate([np.ones(len(p), np.uint8) if p.error is None else p.error for p in parts])
    columns = tuple(concat([p.columns[i] for p in parts]) for i in range(len(parts[0].columns)))
    paired = None
    if any(p.paired is not None for p in parts):
        paired = np.concatenate([np.zeros(len(p), np.bool_) if p.paired is None else p.paired for p in parts])
    weight, ids = np.concatenate([p.weight for p in parts]), np.concatenate([p.id for p in parts])
    return Delta(columns, weight, ids, error, paired)


class CellChange(enum.IntEnum):
    """What one change does to the columns that it names, in tables whose deletes take cells."""

    PUT = 0
    DELETE = 1
    """Masks every version up to its timestamp."""
    DELETE_VERSION = 2
    """Masks the version of exactly its timestamp."""
    SCANNED = 3
    """A put that was there before the log was followed: one of the log with the same timestamp is newer."""
    FORGOTTEN = 4
    """A correction by image: whatever is known of the row is forgotten, its tombstones included, if what is known has
    this digest (`CellTable.digests`), which stands in place of a timestamp. Else it does nothing. It counts before all
    other changes of its batch."""


@dataclass(slots=True)
class Changes:
    """Ordered changes of one base table, as received; what the DELTA operator merges by cell timestamp.

    `columns`: every column of the table, in its order. `present[i]`: mask of rows in which column i was written (None:
    all); key columns are always present. `delete`: mask of row deletes (None: all are puts). `ts`: int64 cell
    timestamps. `kind`: in tables whose deletes take cells the `CellChange` of each, uint8 (None: all are puts);
    `delete` is None there.
    """

    columns: tuple[Vec, ...]
    present: tuple[np.ndarray | None, ...]
    delete: np.ndarray | None
    ts: np.ndarray
    kind: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, index: np.ndarray) -> Changes:
        return Changes(
            tuple(vec.take(index) for vec in self.columns),
            tuple(None if mask is None else mask[index] for mask in self.present),
            None if self.delete is None else self.delete[index],
            self.ts[index],
            None if self.kind is None else self.kind[index],
        )


DeltaIterator = Iterator[Delta]
