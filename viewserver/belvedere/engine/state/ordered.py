"""Rows by slot in the order of their keys, kept up only where somebody reads in that order.

`SortedSlots` is the order itself: keys as bytes, whose order is that of the values (see `belvedere.model.keys`), and
slots sorted by them. `KeyOrder` keeps one in step with a table at next to no cost for whoever writes the table: writes
only note which slots hold another key than before, and the next read in order settles those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.state.arena import string_parts
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import ordered as k
from belvedere.engine.state.memory import Buffer
from belvedere.engine.vec import Vec
from belvedere.types import BINARY

_INDEXED = 1
_EVERY = 0xFF
"""No state has this value: every slot is noted."""
_SETTLED_ROWS = 1 << 13
"""Changes that are settled under one hold of the owner's lock."""
_HOPELESS_ROWS = 1 << 14
"""A table this small is settled faster than it is looked at."""
_ALL = np.iinfo(np.int64).max


class SortedSlots:
    """Slots in the order of their keys."""

    def __init__(self) -> None:
        self._keys = Columns([BINARY])
        self._heads = Buffer(np.uint64, k.BLOCK)
        self._slots = Buffer(np.int32, k.BLOCK)
        self._fill, self._directory, self._free = (Buffer(np.int32) for _ in range(3))
        self._ctl = np.zeros(3, np.int64)

    @staticmethod
    def of(slots: Sequence[np.ndarray], keys: Sequence[pa.BinaryArray]) -> SortedSlots:
        """The order of slots with these keys, both in pieces."""
        self = SortedSlots()
        for piece, part in zip(slots, keys, strict=True):
            self._keys.scatter(piece, [Vec(BINARY, part)])
        order, heads = _sort(keys)
        if len(order):
            self._reserve(len(order) // (k.BLOCK // 2) + 1)
            every = np.concatenate(slots) if len(slots) > 1 else slots[0]
            k.load(*self._blocks(), self._ctl, heads[order], np.ascontiguousarray(every[order], np.int32))
        return self

    def insert(self, slots: np.ndarray, keys: pa.BinaryArray) -> None:
        """Enter slots that are not in it."""
        self._keys.scatter(slots, [Vec(BINARY, keys)])
        fresh, done = np.ascontiguousarray(slots, np.int32), 0
        while done < len(fresh):
            self._reserve(self.blocks + 1 + (len(fresh) - done) // k.BLOCK)
            done = k.insert(*self._blocks(), self._ctl, self._free.array, *self._texts(), fresh, done)

    def remove(self, slots: np.ndarray) -> None:
        """Take slots out that are in it."""
        gone = np.ascontiguousarray(slots, np.int32)
        k.remove(*self._blocks(), self._ctl, self._free.array, *self._texts(), gone)
        self._keys.release(gone)

    def select(self, low: bytes, high: bytes | None, limit: int | None, reverse: bool) -> np.ndarray:
        """Slots (int32) of the keys from `low` up to `high`, which is not included (None: to the end)."""
        probe = np.frombuffer(bytearray(low if high is None else low + high) or bytearray(1), np.uint8)
        room = _ALL if limit is None else limit
        size = -1 if high is None else len(high)
        found: np.ndarray = k.select(
            *self._blocks(), self._ctl, *self._texts(), probe, len(low), size, room, int(reverse)
        )
        return found

    def keys(self, slots: np.ndarray) -> pa.BinaryArray:
        """The keys of slots that are in it."""
        return self._keys.gather(slots, [0])[0].to_arrow()

    @property
    def blocks(self) -> int:
        """Blocks in use."""
        return int(self._ctl[k.BLOCKS])

    def nbytes(self) -> int:
        blocks = int(self._ctl[k.USED])
        buffers = (self._heads, self._slots, self._fill, self._directory, self._free)
        return self._keys.nbytes() + sum(b.nbytes(blocks) for b in buffers)

    def _reserve(self, blocks: int) -> None:
        for buffer in (self._heads, self._slots, self._fill, self._directory, self._free):
            buffer.reserve(blocks)

    def _blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        return self._heads.array.reshape(-1), self._slots.array.reshape(-1), self._fill.array, self._directory.array

    def _texts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        arena = self._keys.arena(0)
        return self._keys.words(0)[0], arena.words.array, arena.text_bytes


def _sort(keys: Sequence[pa.BinaryArray]) -> tuple[np.ndarray, np.ndarray]:
    """The order of keys, given in pieces, and their first eight bytes."""
    count = sum(map(len, keys))
    first, second = np.empty(count, np.uint64), np.empty(count, np.uint64)
    at = 0
    for part in keys:
        stop = at + len(part)
        k.heads_of(*string_parts(part), first[at:stop], second[at:stop])
        at = stop
    order = np.lexsort((second, first))
    a, b = first[order], second[order]
    same = (a[1:] == a[:-1]) & (b[1:] == b[:-1])
    if same.any():
        # sixteen bytes do not tell these apart: compare whole keys, of those alone
        tied = np.zeros(count, np.bool_)
        tied[order[1:][same]] = tied[order[:-1][same]] = True
        which = np.flatnonzero(tied)
        whole = pa.chunked_array(keys, pa.binary()).cast(pa.large_binary()).take(pa.array(which)).combine_chunks()
        rank = np.zeros(count, np.int64)
        rank[which] = np.asarray(pc.rank(whole, sort_keys="ascending", tiebreaker="dense"))
        order = np.lexsort((rank, second, first))
    return order, first


def sort_keys(keys: pa.BinaryArray) -> np.ndarray:
    """Positions of keys in their order."""
    return _sort([keys])[0]


class KeyOrder:
    """The order of a table's rows, and the slots that it has yet to look at again. Its owner serialises all calls."""

    def __init__(self) -> None:
        self.sorted: SortedSlots | None = None
        """None until it is built; what changes meanwhile is noted already."""
        self._state = Buffer(np.uint8)  # by slot: 1 in the order, 2 noted
        self._limit = 0
        self._noted: list[np.ndarray] = []
        self.behind = 0
        """Slots to look at again."""

    def written(self, slots: np.ndarray, limit: int) -> None:
        """Rows were written at these slots (negative ones are skipped), all below `limit`. What has its place and keeps
        it, as most updates do, is not noted."""
        self._note(slots, limit, _INDEXED)

    def removed(self, slots: np.ndarray, limit: int) -> None:
        """Rows at these slots are gone."""
        self._note(slots, limit, _EVERY)

    def _note(self, slots: np.ndarray, limit: int, flag: int) -> None:
        if not len(slots):
            return
        self._reserve(limit)
        out = np.empty(len(slots), np.int32)
        count = int(k.note(self._state.array, plain(slots), flag, out))
        if count:
            self._noted.append(out[:count])
            self.behind += count

    def _reserve(self, limit: int) -> None:
        self._limit = max(self._limit, limit)
        self._state.reserve(limit)

    def hopeless(self, rows: int) -> bool:
        """So much was noted that sorting a table of so many rows anew is cheaper."""
        return self.sorted is not None and self.behind > _HOPELESS_ROWS + rows // 8

    def install(self, built: SortedSlots, slots: Sequence[np.ndarray], limit: int) -> None:
        """The order of these slots, as it was some notes ago."""
        self._reserve(limit)
        for piece in slots:
            self._state.array[piece] |= np.uint8(_INDEXED)
        self.sorted = built

    def settle(
        self, live: Callable[[np.ndarray], np.ndarray], keys: Callable[[np.ndarray], pa.BinaryArray]
    ) -> SortedSlots | None:
        """Bring some of what was noted up to date; the order, if that was all. `live`: mask of slots that have a row.
        `keys`: the keys of such rows."""
        assert self.sorted is not None
        if not self.behind:
            return self.sorted
        noted = np.concatenate(self._noted)
        now, later = noted[:_SETTLED_ROWS], noted[_SETTLED_ROWS:]
        state = self._state.array
        self.sorted.remove(now[state[now] & _INDEXED == _INDEXED])
        lives = live(now)
        state[now] = lives  # 1 where it has its place from now on, and the note is gone
        fresh = now[lives]
        if len(fresh):
            self.sorted.insert(fresh, keys(fresh))
        self._noted = [later] if len(later) else []
        self.behind = len(later)
        return self.sorted if not self.behind else None

    def nbytes(self) -> int:
        held = 0 if self.sorted is None else self.sorted.nbytes()
        return held + self._state.nbytes(self._limit) + 4 * self.behind
