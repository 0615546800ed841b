"""Big groups in a store: their members are spread over pages by hash, so that one change rewrites one page.

A group of level n > 0 has 2^n pages; of level 0 its members are in its own value. The level follows the size with some
slack, so that a group at the border does not rewrite itself all the time; it depends on nothing but the sizes that the
group had after each epoch. It is all of the state that depends on more than the rows that are there now. Who computes
state anew, to compare it, takes the level of what is there (`Paging.follow`), if the size allows that level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from belvedere.engine.state.hashing import combine

BUCKET = np.uint64(16383)


@dataclass(frozen=True)
class Sizes:
    """Members per page: more than `most` split the pages, fewer than `least` join them, `good` is what they have
    then."""

    most: int
    good: int
    least: int


ROWS = Sizes(128, 64, 16)
"""Rows of joins."""
VALUES = Sizes(512, 256, 64)
"""Values of multisets, which are small."""
SMALLEST_PAGED = 2 * min(ROWS.least, VALUES.least)
"""No group with fewer members has pages."""


MOST_LEVEL = np.uint8(30)


class PageStore(Protocol):
    """Where the groups of an aggregate keep their pages; `kind` tells apart what they hold."""

    def ids(self, groups: np.ndarray) -> np.ndarray:
        """Ids of groups."""

    def save_pages(self, kind: int, ids: np.ndarray, values: pa.BinaryArray) -> None: ...

    def load_pages(self, kind: int, ids: np.ndarray) -> pa.BinaryArray: ...


@dataclass(slots=True)
class Rewrite:
    """Pages that must be written. `wanted`: position of the group << 32 | page, ascending. `stale`: the same for pages
    of levels (`old`) that the groups no longer have."""

    levels: np.ndarray
    wanted: np.ndarray
    old: np.ndarray
    stale: np.ndarray

    def groups(self) -> np.ndarray:
        """Mask of the groups that have pages to write."""
        mask = np.zeros(len(self.levels), np.bool_)
        mask[self.wanted >> 32] = True
        return mask

    def place(self, at: np.ndarray, hashes: np.ndarray) -> np.ndarray:
        """Which of the wanted pages each member (of the group at that position) is in, -1: none."""
        keys = at.astype(np.int64) << 32 | page_of(hashes, self.levels[at])
        place = np.searchsorted(self.wanted, keys)
        place[place == len(self.wanted)] = 0
        return np.where(self.wanted[place] == keys, place, -1) if len(self.wanted) else np.full(len(at), -1)

    def ids(self, group_ids: np.ndarray, full: np.ndarray) -> np.ndarray:
        """Ids of the wanted pages that are `full` (not empty), then of those that are not, then of stale ones."""
        order = np.concatenate([self.wanted[full], self.wanted[~full]])
        at, gone = order >> 32, self.stale >> 32
        return np.concatenate(
            [
                page_ids(group_ids[at], self.levels[at], order & 0xFFFFFFFF),
                page_ids(group_ids[gone], self.old[gone], self.stale & 0xFFFFFFFF),
            ]
        )


class Paging:
    """The levels of groups by slot, and which of their pages an epoch changed."""

    def __init__(self, sizes: Sizes):
        self._sizes = sizes
        self._level = np.zeros(0, np.uint8)
        self._dirty: list[tuple[np.ndarray, np.ndarray]] = []
        self._followed: dict[int, int] = {}
        self.used = False

    def levels(self, groups: np.ndarray) -> np.ndarray:
        if not self.used:
            return np.zeros(len(groups), np.uint8)
        self._reach(groups)
        return np.asarray(self._level[groups])

    def _reach(self, groups: np.ndarray) -> None:
        limit = int(groups.max()) + 1 if len(groups) else 0
        if limit > len(self._level):
            level = np.zeros(max(limit, 2 * len(self._level), 64), np.uint8)
            level[: len(self._level)] = self._level
            self._level = level

    def set(self, groups: np.ndarray, levels: np.ndarray) -> None:
        if self.used or levels.any():
            self.used = True
            self._reach(groups)
            self._level[groups] = levels

    def clear(self, groups: np.ndarray) -> None:
        """These slots may serve other groups."""
        if self.used:
            self._reach(groups)
            self._level[groups] = 0

    def pick(self, groups: np.ndarray) -> np.ndarray | None:
        """Mask of changed members whose pages must be noted; None if no group has pages."""
        if not self.used:
            return None
        mask = self.levels(groups) > 0
        return mask if mask.any() else None

    def note(self, groups: np.ndarray, hashes: np.ndarray) -> None:
        """Members with these hashes changed, of groups that have pages."""
        self._dirty.append((groups, hashes))

    def follow(self, groups: np.ndarray, levels: list[bytes]) -> None:
        """Levels of groups that are computed anew, as they are elsewhere; empty ones are 0."""
        self._followed = {
            group: level[0] for group, level in zip(groups.tolist(), levels, strict=True) if len(level) == 1
        }

    def settle(self) -> None:
        """What was noted has been written, or never will be."""
        self._dirty, self._followed = [], {}

    def rewrite(self, groups: np.ndarray, sizes: np.ndarray) -> Rewrite | None:
        """What must be written of groups that have these sizes now; None if none of them has or had pages."""
        old = self.levels(groups)
        known = old
        if self._followed:
            known = np.array([self._followed.get(group, 0) for group in groups.tolist()], np.uint8)
        new = level_for(self._sizes, sizes, np.minimum(known, MOST_LEVEL))
        if not old.any() and not new.any():
            return None
        self.set(groups, new)
        moved = old != new
        wanted = [every(np.flatnonzero(moved & (new > 0)), new)]
        place = np.full(len(self._level), -1, np.int64)
        place[groups] = np.where(moved, -1, np.arange(len(groups)))
        for changed, hashes in self._dirty:
            at = place[changed]
            stay = at >= 0
            wanted.append(at[stay] << 32 | page_of(hashes[stay], new[at[stay]]))
        stale = every(np.flatnonzero(moved & (old > 0)), old)
        return Rewrite(new, np.unique(np.concatenate(wanted)), old, stale)


def level_for(limits: Sizes, sizes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The levels (uint8) of groups that have these sizes and had these levels."""
    pages = np.left_shift(np.int64(1), levels.astype(np.int64))
    wrong = (sizes > limits.most * pages) | ((levels > 0) & (sizes < limits.least * pages))
    if not wrong.any():
        return levels
    ideal = np.ceil(np.log2(np.maximum(sizes, 1) / limits.good)).clip(0, 30).astype(np.uint8)
    return np.where(wrong, np.where(sizes > limits.most, ideal, np.uint8(0)), levels).astype(np.uint8)


def page_of(hashes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Which page of its group (of a level > 0) a member with this hash (uint64) is in."""
    return np.asarray((hashes >> (np.uint64(64) - levels.astype(np.uint64))).astype(np.int64))


def every(groups: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """All pages of the groups at these positions: position << 32 | page."""
    counts = np.left_shift(np.int64(1), levels[groups].astype(np.int64))
    at = np.repeat(groups.astype(np.int64), counts)
    return np.asarray(at << 32 | (np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)))


def page_ids(groups: np.ndarray, levels: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Ids of pages, in the buckets of their groups."""
    second = np.empty((len(groups), 2), np.uint64)
    second[:, 0], second[:, 1] = levels.astype(np.uint64) << np.uint64(32), numbers.astype(np.uint64)
    ids = combine(groups, second)
    ids[:, 0] = (ids[:, 0] & ~BUCKET) | (groups[:, 0] & BUCKET)
    return ids


def all_ids(groups: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ids of all pages of groups (given by id), and the position of the group of each."""
    pages = every(np.flatnonzero(levels), levels)
    at = pages >> 32
    return page_ids(groups[at], levels[at], pages & 0xFFFFFFFF), at
