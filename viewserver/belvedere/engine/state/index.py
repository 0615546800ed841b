"""From a 128-bit id to a small integer: the slot under which everything else about a row is kept."""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import table as k
from belvedere.engine.state.memory import Buffer

_FIRST = 16
_MAX_LOAD = 0.6
_NEW_LOAD = 0.3


class HashIndex:
    """Ids to int32 slots. Slots freed in an epoch stay as they are until `end_epoch`, then they are reused."""

    def __init__(self, extra: int = 0) -> None:
        """`extra`: words per slot that the owner keeps beside the id, in the same cache line."""
        self._entries = Buffer(np.uint64, rows=_FIRST)
        self.entries = self._entries.array[:_FIRST]
        self._ids = Buffer(np.uint64, 2 + extra)
        self._free = Buffer(np.int32)
        self._pending = Buffer(np.int32)
        self.ctl = np.zeros(4, np.int64)

    def __len__(self) -> int:
        return int(self.ctl[k.LIVE])

    @property
    def limit(self) -> int:
        """Slots ever used: every slot is below it."""
        return int(self.ctl[k.USED])

    @property
    def all_ids(self) -> np.ndarray:
        """Ids by slot, then the extra words (capacity many; take it anew after `reserve`). For kernels of this
        package."""
        return self._ids.array

    @property
    def free(self) -> np.ndarray:
        return self._free.array

    @property
    def pending(self) -> np.ndarray:
        return self._pending.array

    def reserve(self, count: int) -> None:
        """Make room for that many new ids."""
        need = len(self) + count
        old = len(self.entries)
        if need > _MAX_LOAD * old:
            size = int(need / _NEW_LOAD) + 8
            self._entries.reserve(size)
            self.entries = self._entries.array[:size]
            k.expand(self.entries, old, np.empty(len(self) + 1, np.uint64))
        reusable = int(self.ctl[k.FREE])
        self._ids.reserve(self.limit + max(0, count - reusable))

    def find(self, ids: np.ndarray) -> np.ndarray:
        """Slots (int32) of ids, -1 where absent."""
        out = np.empty(len(ids), np.int32)
        k.find_ids(self.entries, self._ids.array, plain(ids), out)
        return out

    def find_one(self, id: np.ndarray) -> int:
        """Slot of one id (uint64[2]), or -1."""
        return int(k.find_one(self.entries, self._ids.array, id[0], id[1]))

    def insert(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Slots of ids, and which of them are new. Equal ids of one call get one slot, fresh at the first."""
        self.reserve(len(ids))
        out, fresh = np.empty(len(ids), np.int32), np.empty(len(ids), np.bool_)
        k.insert_ids(self.entries, self._ids.array, self._free.array, self.ctl, plain(ids), out, fresh)
        return out, fresh

    def remove(self, ids: np.ndarray) -> np.ndarray:
        """Forget ids; their slots (or -1) are reused only after `end_epoch`."""
        self.reserve_removals(len(ids))
        out = np.empty(len(ids), np.int32)
        k.remove_ids(self.entries, self._ids.array, self._pending.array, self.ctl, plain(ids), out)
        return out

    def reserve_removals(self, count: int) -> None:
        """Make room for that many freed slots."""
        self._pending.reserve(int(self.ctl[k.PENDING]) + count)

    def removed(self) -> np.ndarray:
        """Slots freed since the last end of an epoch."""
        return np.asarray(self._pending.array[: self.ctl[k.PENDING]].copy())

    def end_epoch(self) -> None:
        """Nobody reads removed rows any more: their slots may be used again."""
        pending = int(self.ctl[k.PENDING])
        if pending:
            self._free.reserve(int(self.ctl[k.FREE]) + pending)
            k.settle(self._ids.array, self._free.array, self._pending.array, self.ctl)

    def slots(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Live slots (int32, ascending), of a range of slots if given."""
        stop = self.limit if stop is None else min(stop, self.limit)
        out = np.empty(max(0, stop - start), np.int32)
        found = np.asarray(out[: k.live_slots(self._ids.array, start, stop, out)])
        if self.ctl[k.PENDING]:
            found = found[np.isin(found, self.removed(), invert=True)]
        return found

    def ids(self, slots: np.ndarray) -> np.ndarray:
        """Ids (uint64[n, 2]) of slots, also of those freed in this epoch."""
        out = np.empty((len(slots), 2), np.uint64)
        k.gather_ids(self._ids.array, np.ascontiguousarray(slots, np.int32), out)
        return out

    def nbytes(self) -> int:
        count = self.limit
        entries = self._entries.nbytes(len(self.entries))
        freed = self._free.nbytes(int(self.ctl[k.FREE])) + self._pending.nbytes(int(self.ctl[k.PENDING]))
        return entries + self._ids.nbytes(count) + freed

    def dump(self) -> dict[str, np.ndarray]:
        """Arrays from which `load` makes an equal index; call it between epochs."""
        return {
            "ids": self._ids.array[: self.limit, :2].copy(),
            "free": self._free.array[: self.ctl[k.FREE]].copy(),
            "pending": self.removed(),
        }

    @classmethod
    def load(cls, arrays: dict[str, np.ndarray]) -> HashIndex:
        """The index that was dumped, with the same slots."""
        index = cls()
        ids, free = arrays["ids"], arrays["free"]
        index._ids.reserve(len(ids))
        index._ids.array[: len(ids)] = ids
        index._free.reserve(len(free))
        index._free.array[: len(free)] = free
        pending = arrays["pending"]
        live = len(ids) - len(free) - len(pending)
        index.reserve(live)
        index.ctl[:] = len(ids), len(free), live, 0
        if len(pending):
            index._ids.array[pending] = 0
        k.rebuild(index.entries, index._ids.array, len(ids))
        if len(pending):
            index._ids.array[pending] = ids[pending]
            index.reserve_removals(len(pending))
            index._pending.array[: len(pending)] = pending
            index.ctl[k.PENDING] = len(pending)
        return index
