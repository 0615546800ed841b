"""Kernels of member vectors: blocks of int32 row slots in one pool, in size classes of powers of two.

`heads[g]` = (start, size, class). Class -1: no block; a single member stands in `start` itself, so groups of one (the
usual side of a foreign key) cost no block. A block of class c holds 4 << c members and starts at a multiple of 4; a
freed block's first item links to the next free one of its class (in units of 4, plus one). `ctl[0]` counts pool items
in use, `ctl[1]` members.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel, part, prefetch

_AHEAD = 12
START = 0
SIZE = 1
CLASS = 2


@part
def take_block(pool, free, ctl, c):  # type: ignore[no-untyped-def]
    link = free[c]
    if link > 0:
        start = (link - 1) * 4
        free[c] = pool[start]
    else:
        start = ctl[0]
        ctl[0] = start + (np.int64(4) << c)
    return start


@part
def give_block(pool, free, start, c):  # type: ignore[no-untyped-def]
    pool[start] = free[c]
    free[c] = start // 4 + 1


@kernel("i8[:,:] i4[:] i8[:] i8[:] i4[:] i4[:] i4[:]")
def add_members(heads, pool, free, ctl, position, groups, rows):  # type: ignore[no-untyped-def]
    """Stops where the pool is too small for the next block, and returns how many were added."""
    n = groups.shape[0]
    for i in range(n):
        if i + 2 * _AHEAD < n:
            prefetch(heads, np.int64(groups[i + 2 * _AHEAD]))
        if i + _AHEAD < n:
            ahead = np.int64(groups[i + _AHEAD])
            if heads[ahead, CLASS] >= 0:
                prefetch(pool, heads[ahead, START] + heads[ahead, SIZE])
        g = np.int64(groups[i])
        r = rows[i]
        size = heads[g, SIZE]
        c = heads[g, CLASS]
        if size == 0:
            heads[g, START] = r
            heads[g, CLASS] = -1
        else:
            if c < 0 or size >= (np.int64(4) << c):
                if ctl[0] + (np.int64(8) << max(c, np.int64(0))) > pool.shape[0]:
                    return i
                start = take_block(pool, free, ctl, c + 1)
                if c < 0:
                    pool[start] = heads[g, START]
                else:
                    old = heads[g, START]
                    for j in range(size):
                        pool[start + j] = pool[old + j]
                    give_block(pool, free, old, c)
                heads[g, START] = start
                heads[g, CLASS] = c + 1
            pool[heads[g, START] + size] = r
        position[r] = size
        heads[g, SIZE] = size + 1
        ctl[1] += 1
    return n


@kernel("i8[:,:] i4[:] i8[:] i8[:] i4[:] i4[:] i4[:]")
def remove_members(heads, pool, free, ctl, position, groups, rows):  # type: ignore[no-untyped-def]
    """The last member takes the place of the removed one. A vector that is three quarters empty moves to a smaller
    block."""
    n = groups.shape[0]
    for i in range(n):
        if i + 2 * _AHEAD < n:
            prefetch(heads, np.int64(groups[i + 2 * _AHEAD]))
            prefetch(position, np.int64(rows[i + 2 * _AHEAD]))
        if i + _AHEAD < n:
            ahead = np.int64(groups[i + _AHEAD])
            if heads[ahead, CLASS] >= 0:
                prefetch(pool, heads[ahead, START] + position[rows[i + _AHEAD]])
                prefetch(pool, heads[ahead, START] + heads[ahead, SIZE] - 1)
        g = np.int64(groups[i])
        size = heads[g, SIZE] - 1
        c = heads[g, CLASS]
        heads[g, SIZE] = size
        ctl[1] -= 1
        if c < 0:
            continue
        start = heads[g, START]
        at = np.int64(position[rows[i]])
        last = pool[start + size]
        pool[start + at] = last
        position[last] = at
        if size <= 1:
            heads[g, START] = pool[start]
            heads[g, CLASS] = -1
            give_block(pool, free, start, c)
        elif c > 0 and size <= (np.int64(1) << c) and (free[c - 1] > 0 or ctl[0] + (np.int64(2) << c) <= pool.shape[0]):
            smaller = take_block(pool, free, ctl, c - 1)
            for j in range(size):
                pool[smaller + j] = pool[start + j]
            give_block(pool, free, start, c)
            heads[g, START] = smaller
            heads[g, CLASS] = c - 1


@kernel("i8[:,:] i4[:] i8[:]")
def size_members(heads, groups, out):  # type: ignore[no-untyped-def]
    for i in range(groups.shape[0]):
        g = np.int64(groups[i])
        out[i] = heads[g, SIZE] if g >= 0 and g < heads.shape[0] else 0


@kernel("i8[:,:] i4[:] i4[:] i4[:] i8 i8 i8 i8[:] i4[:]")
def probe_members(heads, pool, groups, stamp, mark, first, inner, which, rows):  # type: ignore[no-untyped-def]
    """Pairs (i, member) from member `inner` of groups[first] on, until `which` is full. Returns (pairs, next i, next
    member); next i is the number of groups when all is done. `stamp` may be empty."""
    limit = which.shape[0]
    n = groups.shape[0]
    checked = stamp.shape[0] > 0
    m = 0
    i = first
    j = inner
    while i < n:
        if i + 2 * _AHEAD < n and groups[i + 2 * _AHEAD] >= 0:
            prefetch(heads, np.int64(groups[i + 2 * _AHEAD]))
        if i + _AHEAD < n:
            ahead = np.int64(groups[i + _AHEAD])
            if ahead >= 0 and ahead < heads.shape[0] and heads[ahead, CLASS] >= 0:
                prefetch(pool, heads[ahead, START])
        g = np.int64(groups[i])
        size = heads[g, SIZE] if g >= 0 and g < heads.shape[0] else np.int64(0)
        if size > 0:
            single = heads[g, CLASS] < 0
            start = heads[g, START]
            while j < size:
                r = start if single else np.int64(pool[start + j])
                if not checked or stamp[r] != mark:
                    if m == limit:
                        return m, i, j
                    which[m] = i
                    rows[m] = r
                    m += 1
                j += 1
        j = 0
        i += 1
    return m, i, j
