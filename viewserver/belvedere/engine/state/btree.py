"""Multisets of int64 per group with their least and greatest member: one small B+-tree per group, all in one arena.

Deletes of any pattern cost about the same, which is what min and max need: the next minimum is always one leaf away.
Only removing a value equal to the cached least (greatest) makes that stale; reading it again looks at one leaf. A group
of up to 42 values is a single leaf. For the layout of nodes see `btree_nodes`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.btree_nodes import (
    INNER,
    LEAF,
    NEGATIVE,
    UNIT,
    allocate,
    cap,
    child_of,
    inner_insert,
    inner_remove,
    payload,
    payload_of,
    release,
    resize,
    split,
    stamp,
)
from belvedere.engine.state.jit import BLOCK
from belvedere.engine.state.wide import inlined, kernel, part, prefetch

LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
GROUP = 4
ROOT, STATE, LOW, HIGH = 0, 1, 2, 3
"""Record of a group: root (0: none), height << 2 | stale bits (1: low, 2: high), least and greatest value."""
DEPTH = 16
ROOM = BLOCK * (4 + 8 * DEPTH)
"""Units that one block of changes can take at worst: a leaf and an inner node on every level for each change."""
NO, YES = np.int64(0), np.int64(1)
"""Flags as integers: numba compiles a function anew for every literal bool."""


@part
def _grow(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, path: Any, left: Any, key: Any, right: Any) -> None:
    """Hook a new right sibling of leaf `left` in; path[k] = (node, child index) on the way down to it."""
    level = (roots[g + STATE] >> 2) - 1
    while True:
        if level < 0:
            r = allocate(mem, ctl, np.int64(0))
            o, p = r * UNIT, payload(r, np.int64(0))
            mem[o] += 2
            mem[o + 1] = LEAST
            mem[o + 2] = key
            m32[p] = left
            m32[p + 1] = right
            roots[g + ROOT] = r
            roots[g + STATE] += 4
            return
        h, i = path[level, 0], path[level, 1] + 1
        o = h * UNIT
        n, c = mem[o] & 0xFFFF, (mem[o] >> 16) & 255
        if n == cap(c) and c < INNER:  # only a root can be small: all others come from splits of full nodes
            h = resize(mem, m32, ctl, h, c + 1)
            roots[g + ROOT] = h
            c += 1
        if n < cap(c):
            inner_insert(mem, m32, h, i, key, right)
            return
        k = n - 4 if i == n else n >> 1  # an ascending load fills its nodes
        r = allocate(mem, ctl, INNER)
        o2 = r * UNIT
        p, p2 = payload(h, INNER), payload(r, INNER)
        for j in range(k, n):
            mem[o2 + 1 + j - k] = mem[o + 1 + j]
            m32[p2 + j - k] = m32[p + j]
        mem[o] += k - n
        mem[o2] += n - k
        bound = mem[o2 + 1]
        if i <= k:
            inner_insert(mem, m32, h, i, key, right)
        else:
            inner_insert(mem, m32, r, i - k, key, right)
        left, key, right = h, bound, r
        level -= 1


@part
def _shrink(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any) -> None:
    """Leaf h, at the end of the path, is under-full: merge it with a neighbour, and so on upwards."""
    level = (roots[g + STATE] >> 2) - 1
    leaf = True
    while level >= 0:
        parent, i = path[level, 0], path[level, 1]
        po, pp = parent * UNIT, payload_of(mem, parent)
        width = mem[po] & 0xFFFF
        head = mem[h * UNIT]
        c = (head >> 16) & 255
        if head & 0xFFFF == 0:
            release(mem, ctl, h)
            inner_remove(mem, m32, parent, i)
        else:
            if width < 2:
                break
            a, j = (h, i + 1) if i + 1 < width else (np.int64(m32[pp + i - 1]), i)
            b = np.int64(m32[pp + j])
            na, nb = mem[a * UNIT] & 0xFFFF, mem[b * UNIT] & 0xFFFF
            if na + nb > cap(c) * 5 // 8:
                break
            p, p2 = payload(a, c), payload(b, c)
            for q in range(nb):
                mem[a * UNIT + 1 + na + q] = mem[b * UNIT + 1 + q]
                m32[p + na + q] = m32[p2 + q]
            if not leaf:
                mem[a * UNIT + 1 + na] = mem[po + 1 + j]  # key 0 of b may stand for minus infinity
            mem[a * UNIT] = (mem[a * UNIT] + nb) | (mem[b * UNIT] & NEGATIVE)
            stamp(mem, ctl, a)
            release(mem, ctl, b)
            inner_remove(mem, m32, parent, j)
        n = mem[po] & 0xFFFF
        if level == 0:
            if n == 1:
                roots[g + ROOT] = m32[pp]
                roots[g + STATE] -= 4
                release(mem, ctl, parent)
            elif n == 0:
                roots[g + ROOT] = 0
                roots[g + STATE] &= 3
                release(mem, ctl, parent)
            break
        if n >= cap(INNER) // 4:
            break
        h = parent
        leaf = False
        level -= 1


@part
def _descend(roots: Any, g: Any, x: Any, mem: Any, m32: Any, path: Any) -> Any:
    h = roots[g + ROOT]
    for k in range(roots[g + STATE] >> 2):
        o = h * UNIT
        i = child_of(mem, o, mem[o] & 0xFFFF, x)
        path[k, 0] = h
        path[k, 1] = i
        h = np.int64(m32[payload_of(mem, h) + i])
    return h


@part
def _removed(roots: Any, g: Any, x: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any) -> None:
    """An entry has left leaf h: give memory back where the leaf became small."""
    n, c = mem[h * UNIT] & 0xFFFF, (mem[h * UNIT] >> 16) & 255
    if roots[g + STATE] < 4:
        if n == 0:
            release(mem, ctl, h)
            roots[g + ROOT] = 0
        elif c > 0 and n <= cap(c - 1) // 2:
            roots[g + ROOT] = resize(mem, m32, ctl, h, c - 1)
    elif n < cap(LEAF) // 4:
        _descend(roots, g, x, mem, m32, path)
        _shrink(roots, g, mem, m32, ctl, path, h)
    if roots[g + ROOT] == 0:
        roots[g + LOW] = GREATEST
        roots[g + HIGH] = LEAST
        roots[g + STATE] = 0


@part
def _full(roots: Any, g: Any, x: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any, insert: Any) -> Any:
    """Leaf h has no room: the next size class, or a split; -> the leaf for x."""
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    if c < LEAF:
        h = resize(mem, m32, ctl, h, c + 1)
        roots[g + ROOT] = h
        return h
    tidy = insert and not head & NEGATIVE
    if tidy and x > roots[g + HIGH] and not roots[g + STATE] & 2:  # ascending: the full leaf stays full
        r, key = allocate(mem, ctl, LEAF), x
        stamp(mem, ctl, h)
    elif tidy and x < roots[g + LOW] and not roots[g + STATE] & 1:  # descending
        r, key = allocate(mem, ctl, LEAF), roots[g + LOW]
        fresh = mem[r * UNIT]
        for i in range(UNIT << LEAF):
            mem[r * UNIT + i] = mem[o + i]
        mem[r * UNIT] = fresh | n
        mem[o] = head & ~0xFFFF
        stamp(mem, ctl, h)
    else:
        r, key = split(mem, m32, ctl, h)
    if r != 0:
        _descend(roots, g, x, mem, m32, path)
        _grow(roots, g, mem, m32, ctl, path, h, key, r)
        if x >= key:
            h = r
    return h


@part
def _add(roots: Any, g: Any, x: Any, w: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any) -> None:
    """Weight of x in group g += w; h: its leaf, or 0 if unknown. |w| < 2^31."""
    if h == 0:
        if roots[g + ROOT] == 0:
            roots[g + ROOT] = allocate(mem, ctl, np.int64(0))
            roots[g + STATE] = 0
            roots[g + LOW] = GREATEST
            roots[g + HIGH] = LEAST
        h = _descend(roots, g, x, mem, m32, path)
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    p = payload(h, c)
    if w < 0 or head & NEGATIVE:  # change an entry of the opposite sign
        i = 0
        while i < n:
            if mem[o + 1 + i] == x and (w < 0) == (m32[p + i] > 0):
                s = m32[p + i] + w
                if (s > 0) == (w < 0) and s != 0:
                    m32[p + i] = s
                    return
                n -= 1
                mem[o + 1 + i] = mem[o + 1 + n]
                m32[p + i] = m32[p + n]
                mem[o] -= 1
                w = s
                if x == roots[g + LOW]:
                    roots[g + STATE] |= 1
                if x == roots[g + HIGH]:
                    roots[g + STATE] |= 2
                if w == 0:
                    _removed(roots, g, x, mem, m32, ctl, path, h)
                    return
            else:
                i += 1
    if n == cap(c):
        h = _full(roots, g, x, mem, m32, ctl, path, h, w > 0)
        o = h * UNIT
        n, c = mem[o] & 0xFFFF, (mem[o] >> 16) & 255
        p = payload(h, c)
    mem[o + 1 + n] = x
    m32[p + n] = w
    mem[o] += 1
    if w < 0:
        mem[o] |= NEGATIVE
    else:
        if x < roots[g + LOW]:
            roots[g + LOW] = x
            roots[g + STATE] &= ~1
        if x > roots[g + HIGH]:
            roots[g + HIGH] = x
            roots[g + STATE] &= ~2


@inlined
def _prefetch_node(mem: Any, m32: Any, h: Any) -> None:
    """All lines of a node that hold entries."""
    n = mem[h * UNIT] & 0xFFFF
    for k in range(16, n + 1, 8):
        prefetch(mem, h * UNIT + k)
    p = payload_of(mem, h)
    for k in range(0, n, 16):
        prefetch(m32, p + k)


@kernel("i4[:] i8[:] i4[:] i8 i8[:] i8[:] i4[:] i8[:] i8[:,:]")
def add(slots: Any, values: Any, weights: Any, start: Any, roots: Any, mem: Any, m32: Any, ctl: Any, path: Any) -> Any:
    """Apply changes from `start` on; -> how far it came: less than all if the arena must grow first.

    Staged by blocks so that cache misses overlap: group records, roots, inner nodes level by level, leaves, then the
    changes themselves, which use the leaf found before unless its range has changed meanwhile."""
    n = slots.shape[0]
    room = mem.shape[0] // UNIT - 2
    leaf = np.zeros(BLOCK, np.int64)
    stamps = np.zeros(BLOCK, np.int64)
    levels = np.zeros(BLOCK, np.int64)
    for b in range(start, n, BLOCK):
        if ctl[0] + ROOM > room:
            return b
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(roots, np.int64(slots[i]) * GROUP)
        for i in range(b, stop):
            h = roots[np.int64(slots[i]) * GROUP + ROOT] * UNIT
            prefetch(mem, h)
            prefetch(mem, h + 8)
        deepest = np.int64(0)
        for i in range(b, stop):
            g = np.int64(slots[i]) * GROUP
            levels[i - b] = roots[g + STATE] >> 2
            leaf[i - b] = roots[g + ROOT] if levels[i - b] > 0 else 0
            deepest = max(deepest, levels[i - b])
        for level in range(deepest):
            for i in range(b, stop):
                if levels[i - b] > level:
                    _prefetch_node(mem, m32, leaf[i - b])
            for i in range(b, stop):
                if levels[i - b] > level:
                    h = leaf[i - b]
                    o = h * UNIT
                    h = np.int64(m32[payload_of(mem, h) + child_of(mem, o, mem[o] & 0xFFFF, values[i])])
                    leaf[i - b] = h
                    prefetch(mem, h * UNIT)
                    prefetch(mem, h * UNIT + 8)
        for i in range(b, stop):
            h = leaf[i - b]
            if h != 0:
                o = h * UNIT
                stamps[i - b] = mem[o] >> 32
                if weights[i] < 0:
                    _prefetch_node(mem, m32, h)
                else:
                    end = (mem[o] & 0xFFFF) + 1
                    prefetch(mem, o + end)
                    prefetch(m32, payload(h, LEAF) + end)
        for i in range(b, stop):
            g = np.int64(slots[i]) * GROUP
            h = leaf[i - b]
            if roots[g + STATE] < 4:
                h = roots[g + ROOT]
            elif h != 0 and stamps[i - b] != mem[h * UNIT] >> 32:
                h = np.int64(0)
            _add(roots, g, values[i], np.int64(weights[i]), mem, m32, ctl, path, h)
    return n


@part
def _collect(root: Any, height: Any, mem: Any, m32: Any, ctl: Any, values: Any, weights: Any, free: Any) -> Any:
    """Entries of a tree, into `values` and `weights` if they have room; frees the nodes if asked; -> their number."""
    stack = np.empty((DEPTH * 96, 2), np.int64)
    found = np.int64(0)
    depth = 0
    if root != 0:
        stack[0, 0], stack[0, 1] = root, height
        depth = 1
    while depth > 0:
        depth -= 1
        h, level = stack[depth, 0], stack[depth, 1]
        o = h * UNIT
        p = payload(h, (mem[o] >> 16) & 255)
        n = mem[o] & 0xFFFF
        for i in range(n):
            if level > 0:  # the last child goes onto the stack first: leaves come in the order of their values
                stack[depth, 0], stack[depth, 1] = np.int64(m32[p + n - 1 - i]), level - 1
                depth += 1
            else:
                if found < values.shape[0]:
                    values[found] = mem[o + 1 + i]
                    weights[found] = m32[p + i]
                found += 1
        if free == YES:
            release(mem, ctl, h)
    return found


@part
def _edge(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, right: Any) -> Any:
    """Greatest (right) or least value, from the leaf at that end."""
    h = roots[g + ROOT]
    for _ in range(roots[g + STATE] >> 2):
        h = np.int64(m32[payload_of(mem, h) + ((mem[h * UNIT] & 0xFFFF) - 1 if right == YES else 0)])
    o = h * UNIT
    head = mem[o]
    n, p = head & 0xFFFF, payload(h, (head >> 16) & 255)
    negative = False
    if head & NEGATIVE:
        for i in range(n):
            negative |= m32[p + i] < 0
        if not negative:
            mem[o] = head & ~NEGATIVE  # the insertions have arrived
    if negative:  # only between a retraction and its insertion: look at everything
        count = _collect(roots[g + ROOT], (roots[g + STATE] >> 2), mem, m32, ctl, mem[:0], mem[:0], NO)
        values = np.empty(count, np.int64)
        weights = np.empty(count, np.int64)
        _collect(roots[g + ROOT], (roots[g + STATE] >> 2), mem, m32, ctl, values, weights, NO)
        best = LEAST if right == YES else GREATEST
        for i in range(count):
            if weights[i] > 0:
                best = max(best, values[i]) if right == YES else min(best, values[i])
        return best
    best = mem[o + 1]
    if right == YES:
        for i in range(1, n):
            best = max(best, mem[o + 1 + i])
    else:
        for i in range(1, n):
            best = min(best, mem[o + 1 + i])
    return best


@kernel("i4[:] i8[:] i8[:] i4[:] i8[:] i8[:] i8[:]")
def read(slots: Any, roots: Any, mem: Any, m32: Any, ctl: Any, low: Any, high: Any) -> None:
    """Least and greatest value of each group (anything for empty groups)."""
    n = slots.shape[0]
    for j in range(n):
        if j + BLOCK < n:
            prefetch(roots, np.int64(slots[j + BLOCK]) * GROUP)
        g = np.int64(slots[j]) * GROUP
        if roots[g + STATE] & 3 != 0:
            if roots[g + STATE] & 1:
                roots[g + LOW] = _edge(roots, g, mem, m32, ctl, NO)
            if roots[g + STATE] & 2:
                roots[g + HIGH] = _edge(roots, g, mem, m32, ctl, YES)
            roots[g + STATE] &= ~3
        low[j], high[j] = roots[g + LOW], roots[g + HIGH]


@kernel("i4[:] i8[:] i8[:] i4[:] i8[:]")
def clear(slots: Any, roots: Any, mem: Any, m32: Any, ctl: Any) -> None:
    """Forget the values of these groups."""
    for j in range(slots.shape[0]):
        g = np.int64(slots[j]) * GROUP
        _collect(roots[g + ROOT], (roots[g + STATE] >> 2), mem, m32, ctl, mem[:0], mem[:0], YES)
        roots[g : g + GROUP] = 0


@kernel("i4[:] i8[:] i8[:] i4[:] i8[:] i8[:] i8[:] i8[:]")
def export(slots: Any, roots: Any, mem: Any, m32: Any, ctl: Any, ends: Any, values: Any, weights: Any) -> None:
    """Entries of each group one after the other; ends[j] = where those of group j end. Empty arrays: only count."""
    total = np.int64(0)
    for j in range(slots.shape[0]):
        g = np.int64(slots[j]) * GROUP
        root, height = roots[g + ROOT], roots[g + STATE] >> 2
        total += _collect(root, height, mem, m32, ctl, values[total:], weights[total:], NO)
        ends[j] = total
