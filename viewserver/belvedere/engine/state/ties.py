"""Puts of one cell with one timestamp, in tables whose rule is the value (`ties: value`): the greatest value wins.

Several masters may write one row at one time, and no order of arrival is the right one. So before a batch is merged
each put gets, cell by cell, the greatest of the values that were put with its timestamp: in the batch, or earlier. Then
it does not matter which of them is merged last, and the merge itself need not look at values. (Deletes need nothing:
one of that timestamp masks all of these puts or none, whenever it comes.)

Values are ordered as SQL does, NULL first. Where SQL calls two values equal but they can be told apart (0.0 and -0.0,
NaNs), their bits decide, so that every replica keeps the same ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, concat
from belvedere.types import Kind

_SIGN = np.int64(np.iinfo(np.int64).min)


@dataclass(slots=True)
class Standing:
    """Cells that are there. `row`: for each change the position of its row among them, -1 if there is none. `columns`:
    their values; `ts`: int64[cells, rows], when each cell was written."""

    row: np.ndarray
    columns: tuple[Vec, ...]
    ts: np.ndarray


def settle(changes: Changes, ids: np.ndarray, cells: Sequence[int], standing: Standing) -> Changes:
    """The changes with the values that win. `cells`: the columns that are no keys."""
    puts = np.arange(len(changes)) if changes.delete is None else np.flatnonzero(~changes.delete)
    group = _groups(ids[puts], changes.ts[puts])
    has_row = standing.row[puts] >= 0
    columns = list(changes.columns)
    for i, column in enumerate(cells):
        mask = changes.present[column]
        written = np.ones(len(puts), np.bool_) if mask is None else mask[puts]
        stands = written & has_row
        stands[stands] = standing.ts[i, standing.row[puts[stands]]] == changes.ts[puts[stands]]
        contested = stands | _repeated(group, written)
        if contested.any():
            columns[column] = _greatest(
                columns[column], puts[contested], group[contested], standing.columns[i], standing.row, stands[contested]
            )
    return Changes(tuple(columns), changes.present, changes.delete, changes.ts)


def _groups(ids: np.ndarray, ts: np.ndarray) -> np.ndarray:
    """Numbers that are equal for changes of one row and timestamp."""
    order = np.lexsort((ts, ids[:, 1], ids[:, 0]))
    sorted_ids, sorted_ts = ids[order], ts[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (sorted_ids[1:] != sorted_ids[:-1]).any(axis=1) | (sorted_ts[1:] != sorted_ts[:-1])
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    return group


def _repeated(group: np.ndarray, written: np.ndarray) -> np.ndarray:
    """Changes that write a cell which another one of their group writes too."""
    if not len(group):
        return written
    counts = np.bincount(group[written], minlength=int(group.max()) + 1)
    return np.asarray(written & (counts[group] > 1))


def _greatest(
    column: Vec, at: np.ndarray, group: np.ndarray, standing: Vec, row: np.ndarray, stands: np.ndarray
) -> Vec:
    """The column with the greatest value of its group in each of the rows `at`; where it `stands`, the cell that is
    there takes part."""
    rivals = concat([column, standing])
    position = np.concatenate([at, len(column) + row[at[stands]]])
    of = np.concatenate([group, group[stands]])
    order = np.lexsort((*_order(rivals.take(position)), of))
    ends = np.flatnonzero(np.diff(of[order], append=-1))
    winner = np.empty(int(of.max()) + 1, np.int64)
    winner[of[order[ends]]] = position[order[ends]]
    index = np.arange(len(column))
    index[at] = winner[group]
    return rivals.take(index)


def _order(vec: Vec) -> list[np.ndarray]:
    """Keys of `lexsort`, the last one counts most."""
    valid = vec.valid
    if vec.type.varlen:
        keys = [np.asarray(pc.rank(vec.data, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)]
    elif vec.type.wide:
        keys = [vec.data[:, 0] ^ _SIGN, vec.data[:, 1]]
    elif vec.type.kind is Kind.DOUBLE:
        bits = vec.data.view(np.int64)
        keys = [np.where(bits < 0, ~bits ^ _SIGN, bits), np.isnan(vec.data)]
    else:
        keys = [vec.data]
    return [*(np.where(valid, key, 0) for key in keys), valid]
