"""What operators have in common."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow.compute as pc

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.vec import Vec
from belvedere.spill import Budget
from belvedere.types import Schema

State = dict[str, np.ndarray]
"""State as named arrays, for snapshots."""


class Operator(Protocol):
    """One node at run time."""

    def apply(self, *inputs: Any) -> Any:
        """Take the inputs' outputs of this epoch, change the state, return the output."""

    def current(self, *inputs: Any) -> Iterator[Delta]:
        """The whole output at this moment as +1 rows (a new consumer starts from it)."""

    def end_epoch(self) -> None:
        """Nobody reads what this epoch removed any more."""


def collect(schema: Schema, budget: Budget, deltas: Iterator[Delta]) -> DeltaBuffer:
    """A buffer of all of them."""
    buffer = DeltaBuffer(schema, budget)
    for delta in deltas:
        buffer.append(delta)
    return buffer


def grown(array: np.ndarray, size: int) -> np.ndarray:
    """The array with room for `size` entries (zeros behind the old ones); doubles, so growth is amortised."""
    if len(array) >= size:
        return array
    bigger = np.zeros((max(size, 2 * len(array), 64), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    return bigger


def differs(a: Vec, b: Vec) -> np.ndarray:
    """Mask of rows in which two columns of one type differ (NULL equals NULL, an error equals the same error)."""
    if a.type.varlen:
        unequal = pc.not_equal(a.data, b.data).to_numpy(zero_copy_only=False)
    elif a.type.wide:
        unequal = (a.data != b.data).any(axis=1)
    elif a.data.dtype == np.float64:
        unequal = a.data.view(np.int64) != b.data.view(np.int64)
    else:
        unequal = a.data != b.data
    if a.status is None and b.status is None:
        return np.asarray(unequal)
    left = np.ones(len(a), np.uint8) if a.status is None else a.status
    right = np.ones(len(b), np.uint8) if b.status is None else b.status
    return np.asarray((left != right) | ((left == 1) & unequal))
