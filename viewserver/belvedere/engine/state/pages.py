"""Big groups in a store: their members are spread over pages by hash, so that one change rewrites one page.

A group of level n > 0 has 2^n pages. The level follows the size with some slack, so that a group at the border does not
rewrite itself all the time; it depends on nothing but the sizes that the group had after each epoch.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.hashing import combine

MOST, LEAST, GOOD = 64, 8, 32
"""Members per page: more split the pages, fewer join them, and what they have then."""
BUCKET = np.uint64(16383)


def level_for(sizes: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The levels (uint8) of groups that have these sizes and had these levels."""
    pages = np.left_shift(np.int64(1), levels.astype(np.int64))
    wrong = (sizes > MOST * pages) | ((levels > 0) & (sizes < LEAST * pages))
    if not wrong.any():
        return levels.copy()
    ideal = np.ceil(np.log2(np.maximum(sizes, 1) / GOOD)).clip(0, 30).astype(np.uint8)
    return np.where(wrong, np.where(sizes > MOST, ideal, np.uint8(0)), levels).astype(np.uint8)


def page_of(ids: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Which page of its group a member is in."""
    return np.asarray((ids[:, 1] >> (np.uint64(64) - levels.astype(np.uint64))).astype(np.int64))


def every(groups: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pages of groups: which group, and the page's number."""
    counts = np.left_shift(np.int64(1), levels.astype(np.int64))
    at = np.repeat(groups.astype(np.int64), counts)
    return at, np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts, counts)


def page_ids(groups: np.ndarray, levels: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Ids of pages, in the buckets of their groups."""
    second = np.empty((len(groups), 2), np.uint64)
    second[:, 0], second[:, 1] = levels.astype(np.uint64) << np.uint64(32), numbers.astype(np.uint64)
    ids = combine(groups, second)
    ids[:, 0] = (ids[:, 0] & ~BUCKET) | (groups[:, 0] & BUCKET)
    return ids
