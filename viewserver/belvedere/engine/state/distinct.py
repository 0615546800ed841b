"""Which values a group holds, and how often: turns changes of rows into changes of the set of distinct values.

A (group, value) pair is known by a 128-bit hash alone, so no values are kept: whoever sums distinct values sees each
value in the very batch in which it appears or disappears. Entries of a group form a doubly linked list, for groups
that move or go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from belvedere.engine.state.hashing import combine, hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import BLOCK
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.minmax import read_weights, weight_part
from belvedere.engine.state.pages import VALUES, Paging
from belvedere.engine.state.ragged import Ragged, segments
from belvedere.engine.state.tally import Tally
from belvedere.engine.state.wide import inlined, kernel, prefetch
from belvedere.engine.vec import Vec

Arrays = dict[str, np.ndarray]

COUNT, NEXT, PREVIOUS, OWNER, TOUCHED = 0, 2, 3, 4, 5
ENTRY, ENTRY32 = 3, 6
"""Words and half-words of an entry: int64 count; int32 next, previous (entry + 1, 0 = none), owner, touched."""


@dataclass(slots=True)
class PairItems:
    """Ids of pairs (group, value), with how often they occur."""

    ids: np.ndarray
    counts: np.ndarray

    def hashes(self) -> np.ndarray:
        return np.ascontiguousarray(self.ids[:, 1])

    def take(self, index: np.ndarray) -> PairItems:
        return PairItems(self.ids[index], self.counts[index])

    def pack(self, ends: np.ndarray) -> list[Ragged]:
        return [segments(ends, self.ids), weight_part(ends, self.counts)]


class DistinctCounts:
    """Distinct values per group slot."""

    parts = 2

    def __init__(self) -> None:
        self._index = HashIndex()
        self._entries = Buffer(np.int64)
        self._heads = Buffer(np.int32)
        self._live = Tally()
        self._slots = 0
        self.paging = Paging(VALUES)

    def ensure(self, slots: int) -> None:
        self._slots = max(self._slots, slots)
        self._heads.reserve(self._slots)

    def counts(self, groups: np.ndarray) -> np.ndarray:
        """Distinct values in each group."""
        live = self._live.get(groups, self._slots)
        return np.zeros(len(groups), np.int64) if live is None else live

    def update(
        self, groups: np.ndarray, group_ids: np.ndarray, weight: np.ndarray, values: Vec
    ) -> tuple[np.ndarray, np.ndarray]:
        """Count rows; -> (row indices, +1 or -1): one row for each value that appeared in or vanished from its group.

        Only the net effect of the batch counts, so a retraction may come before its insertion."""
        ids = combine(group_ids, hash_rows([Vec(values.type, values.data)], len(groups)))
        big = self.paging.pick(groups)
        if big is not None:
            self.paging.note(groups[big], np.ascontiguousarray(ids[big, 1]))
        found, fresh = self._index.insert(ids)
        entries = self._arrays()
        rows, change = np.empty(len(groups), np.int64), np.empty(len(groups), np.int8)
        gone = np.empty(len(groups), np.int64)
        changed, left = shift(groups, found, fresh, weight, *entries, self._heads.array, rows, change, gone)
        if left:
            self._index.remove(ids[gone[:left]])
        self._index.end_epoch()
        rows, change = rows[:changed], change[:changed]
        if changed:
            self._live.add(groups[rows], change, self._slots)
        return rows, change

    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        self._entries.reserve((self._index.limit + 1) * ENTRY)
        return self._entries.array, self._entries.array.view(np.int32)

    def _members(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Entries of groups, one group after the other, and where each group's entries end."""
        ends = np.empty(len(groups), np.int64)
        _, halves = self._arrays()
        members = np.empty(int(self.counts(groups).sum()), np.int64)
        follow(groups, halves, self._heads.array, members, ends)
        return members, ends

    def clear(self, groups: np.ndarray) -> None:
        self.paging.clear(groups)
        members, _ = self._members(groups)
        if len(members):
            self._index.remove(self._index.ids(members))
            self._index.end_epoch()
            self._arrays()[0][: (self._index.limit + 1) * ENTRY].reshape(-1, ENTRY)[members] = 0
        self._heads.array[groups] = 0
        self._live.set(groups, 0, self._slots)

    def entries(self, groups: np.ndarray) -> tuple[np.ndarray, PairItems]:
        members, ends = self._members(groups)
        ids = self._index.ids(members)
        owner = np.repeat(np.arange(len(groups)), np.diff(ends, prepend=0))
        order = np.lexsort((ids[:, 1], ids[:, 0], owner))
        return ends, PairItems(ids[order], self._arrays()[0][members[order] * ENTRY + COUNT])

    def import_(self, groups: np.ndarray, parts: Sequence[Ragged]) -> None:
        sizes = parts[0].lengths // 16
        if not sizes.any():
            return
        ids = parts[0].words(np.uint64).reshape(-1, 2)
        owners = np.repeat(groups, sizes).astype(np.int32)
        found, _ = self._index.insert(ids)
        adopt(owners, found, read_weights(sizes, parts[1]), *self._arrays(), self._heads.array)
        self._live.add(owners, np.ones(len(owners), np.int8), self._slots)

    def nbytes(self) -> int:
        entries = self._entries.nbytes((self._index.limit + 1) * ENTRY)
        return self._index.nbytes() + entries + self._heads.nbytes(self._slots) + self._live.nbytes()

    def dump(self, slots: int) -> Arrays:
        self.ensure(slots)
        words, _ = self._arrays()
        out = {f"index.{k}": v for k, v in self._index.dump().items()}
        out["entries"] = words[: (self._index.limit + 1) * ENTRY]
        out["heads"] = self._heads.array[:slots]
        out["live"] = self._live.dump(slots)
        return out

    def load(self, arrays: Arrays) -> None:
        self._index = HashIndex.load({k[6:]: v for k, v in arrays.items() if k.startswith("index.")})
        self.ensure(len(arrays["heads"]))
        self._heads.array[: len(arrays["heads"])] = arrays["heads"]
        words, _ = self._arrays()
        words[: len(arrays["entries"])] = arrays["entries"]
        self._live.load(arrays["live"])


@inlined
def _link(entry: Any, owner: Any, halves: Any, heads: Any) -> None:
    o = entry * ENTRY32
    first = np.int64(heads[owner])
    halves[o + NEXT] = first
    halves[o + PREVIOUS] = 0
    halves[o + OWNER] = owner
    if first != 0:
        halves[(first - 1) * ENTRY32 + PREVIOUS] = entry + 1
    heads[owner] = entry + 1


@inlined
def _unlink(entry: Any, halves: Any, heads: Any) -> None:
    o = entry * ENTRY32
    after, before = np.int64(halves[o + NEXT]), np.int64(halves[o + PREVIOUS])
    if before != 0:
        halves[(before - 1) * ENTRY32 + NEXT] = after
    else:
        heads[halves[o + OWNER]] = after
    if after != 0:
        halves[(after - 1) * ENTRY32 + PREVIOUS] = before


@kernel("i4[:] i4[:] b1[:] i1[:] i8[:] i4[:] i4[:] i8[:] i1[:] i8[:]")
def shift(
    groups: Any,
    found: Any,
    fresh: Any,
    weights: Any,
    words: Any,
    halves: Any,
    heads: Any,
    rows: Any,
    change: Any,
    gone: Any,
) -> Any:
    """Add the weights to the entries found; -> numbers of rows in `rows` (with `change`), and of rows in `gone`.

    An entry is touched at its first row in the batch; what its count was then is put aside."""
    n = groups.shape[0]
    before = np.empty(n, np.int64)
    touched = np.int64(0)
    firsts = np.empty(n, np.int64)
    for i in range(n):
        if i + BLOCK < n:
            prefetch(words, np.int64(found[i + BLOCK]) * ENTRY)
        e = np.int64(found[i])
        o, p = e * ENTRY, e * ENTRY32
        if fresh[i]:
            words[o + COUNT] = 0
            halves[p + TOUCHED] = 0
            _link(e, np.int64(groups[i]), halves, heads)
        if halves[p + TOUCHED] == 0:
            halves[p + TOUCHED] = 1
            before[touched] = words[o + COUNT]
            firsts[touched] = i
            touched += 1
        words[o + COUNT] += weights[i]
    changed = left = np.int64(0)
    for k in range(touched):
        i = firsts[k]
        e = np.int64(found[i])
        now = words[e * ENTRY + COUNT]
        halves[e * ENTRY32 + TOUCHED] = 0
        if (now > 0) != (before[k] > 0):
            rows[changed] = i
            change[changed] = 1 if now > 0 else -1
            changed += 1
        if now == 0:
            _unlink(e, halves, heads)
            gone[left] = i
            left += 1
    return changed, left


@kernel("i4[:] i4[:] i4[:] i8[:] i8[:]")
def follow(groups: Any, halves: Any, heads: Any, members: Any, ends: Any) -> None:
    """Entries of each group by its list."""
    found = 0
    for j in range(groups.shape[0]):
        e = np.int64(heads[groups[j]])
        while e != 0:
            members[found] = e - 1
            found += 1
            e = np.int64(halves[(e - 1) * ENTRY32 + NEXT])
        ends[j] = found


@kernel("i4[:] i4[:] i8[:] i8[:] i4[:] i4[:]")
def adopt(owners: Any, found: Any, counts: Any, words: Any, halves: Any, heads: Any) -> None:
    """Entries that come from elsewhere."""
    for i in range(owners.shape[0]):
        e = np.int64(found[i])
        words[e * ENTRY + COUNT] = counts[i]
        halves[e * ENTRY32 + TOUCHED] = 0
        _link(e, np.int64(owners[i]), halves, heads)
