"""Counters per group slot that cost nothing until something is counted: skipped rows and errors are rare."""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.jit import BLOCK
from belvedere.engine.state.ragged import Ragged, nothing, where
from belvedere.engine.state.wide import WideRegion, kernel, prefetch

CODES = 8
"""Room for every error code of `vec.Status`, as columns of one record."""


class Tally:
    """A signed count per slot."""

    def __init__(self) -> None:
        self._region = WideRegion(np.int64)

    def add(self, slots: np.ndarray, weight: np.ndarray, limit: int) -> None:
        """Count the weights at int32 slots, all of them below `limit`."""
        add_weights(slots, weight, self._region.ensure(limit))

    def get(self, slots: np.ndarray, limit: int) -> np.ndarray | None:
        """Counts at slots below `limit`; None if nothing was ever counted."""
        if not len(self._region.array):
            return None
        return np.asarray(self._region.ensure(limit)[slots])

    def set(self, slots: np.ndarray, counts: np.ndarray | int, limit: int) -> None:
        if len(self._region.array) or np.any(counts):
            self._region.ensure(limit)[slots] = counts

    def export(self, slots: np.ndarray, limit: int) -> Ragged:
        """The count of each slot, nothing where it is 0."""
        counts = self.get(slots, limit)
        return nothing(len(slots)) if counts is None else where(counts, counts != 0)

    def import_(self, slots: np.ndarray, part: Ragged, limit: int) -> None:
        given = part.lengths > 0
        if given.any():
            self.set(slots[given], part.words(np.int64), limit)

    def nbytes(self) -> int:
        return self._region.nbytes()

    def dump(self, slots: int) -> np.ndarray:
        return self._region.ensure(slots)[:slots] if len(self._region.array) else self._region.array

    def load(self, counts: np.ndarray) -> None:
        self._region.load(counts)


class ErrorTally:
    """How many rows of each group hold each error."""

    def __init__(self) -> None:
        self._region = WideRegion(np.int64, CODES)

    def add(self, slots: np.ndarray, codes: np.ndarray, weight: np.ndarray, limit: int) -> None:
        index = slots.astype(np.int64) * CODES + codes
        np.add.at(self._region.ensure(limit), index, weight.astype(np.int64))

    def smallest(self, slots: np.ndarray, limit: int) -> np.ndarray | None:
        """The smallest error code present in each group, 0 where there is none; None if there is none at all."""
        if not len(self._region.array):
            return None
        present = self._region.table(limit)[slots] > 0
        if not present.any():
            return None
        return np.where(present.any(axis=1), present.argmax(axis=1), 0).astype(np.uint8)

    def get(self, slots: np.ndarray, limit: int) -> np.ndarray | None:
        """Counts by code (int64[n, CODES]); None if nothing was ever counted."""
        if not len(self._region.array):
            return None
        return np.asarray(self._region.table(limit)[slots])

    def set(self, slots: np.ndarray, counts: np.ndarray | int, limit: int) -> None:
        if len(self._region.array) or np.any(counts):
            self._region.table(limit)[slots] = counts

    def export(self, slots: np.ndarray, limit: int) -> Ragged:
        """The counts of each slot, nothing where all are 0."""
        counts = self.get(slots, limit)
        return nothing(len(slots)) if counts is None else where(counts, counts.any(axis=1))

    def import_(self, slots: np.ndarray, part: Ragged, limit: int) -> None:
        given = part.lengths > 0
        if given.any():
            self.set(slots[given], part.words(np.int64).reshape(-1, CODES), limit)

    def nbytes(self) -> int:
        return self._region.nbytes()

    def dump(self, slots: int) -> np.ndarray:
        return self._region.table(slots).reshape(-1) if len(self._region.array) else self._region.array

    def load(self, counts: np.ndarray) -> None:
        self._region.load(counts)


@kernel("i4[:] i1[:] i8[:]")
def add_weights(slots: Any, weights: Any, counts: Any) -> None:
    n = slots.shape[0]
    for j in range(n):
        if j + BLOCK < n:
            prefetch(counts, np.int64(slots[j + BLOCK]))
        counts[slots[j]] += np.int64(weights[j])
