"""Small compiled loops that operators share; everything bigger lives with the state it works on."""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel


@kernel("i4[:] i4[:] i1[:]", "i8[:] i4[:] i1[:]")
def add_at(target, slots, weights):  # type: ignore[no-untyped-def]
    """target[slots[i]] += weights[i], slots may repeat."""
    for i in range(slots.shape[0]):
        target[slots[i]] += weights[i]


@kernel("i4[:] u1[:] i4[:]")
def touch(slots, marks, out):  # type: ignore[no-untyped-def]
    """Mark slots; write each that was not marked before to `out`, once; return how many."""
    count = 0
    for i in range(slots.shape[0]):
        slot = slots[i]
        if marks[slot] == 0:
            marks[slot] = 1
            out[count] = slot
            count += 1
    return count


@kernel("i4[:] i4[:] i4[:]")
def order_by_slot(slots, ends, order):  # type: ignore[no-untyped-def]
    """Positions ordered by slot, equal slots in their order. `ends`: zeros, one per slot and one more."""
    n = slots.shape[0]
    for i in range(n):
        ends[slots[i] + 1] += 1
    for s in range(1, ends.shape[0]):
        ends[s] += ends[s - 1]
    for i in range(n):
        s = slots[i]
        order[ends[s]] = i
        ends[s] += 1


class Touched:
    """The distinct slots that an epoch met, in order of first meeting; cleared in time proportional to them."""

    def __init__(self) -> None:
        self._marks = np.zeros(64, np.uint8)
        self.parts: list[np.ndarray] = []

    def add(self, slots: np.ndarray, limit: int) -> np.ndarray:
        """The slots among these that were not met before; `limit` bounds every slot."""
        if len(self._marks) < limit:
            marks = np.zeros(max(limit, 2 * len(self._marks)), np.uint8)
            marks[: len(self._marks)] = self._marks
            self._marks = marks
        out = np.empty(len(slots), np.int32)
        fresh = out[: touch(slots, self._marks, out)]
        if len(fresh):
            self.parts.append(fresh)
        return fresh

    def all(self) -> np.ndarray:
        return np.concatenate(self.parts) if self.parts else np.empty(0, np.int32)

    def clear(self) -> None:
        for part in self.parts:
            self._marks[part] = 0
        self.parts = []
