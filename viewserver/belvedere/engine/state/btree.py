"""Multisets of int64 per group with their least and greatest member: one small B+-tree per group, all in one arena.

Deletes of any pattern cost about the same, which is what min and max need: the next minimum is always one leaf away.

All nodes live in one int64 array. Node = header word, keys (int64), payloads (int32, packed behind the keys):
  leaf    (value, weight), UNSORTED: insert appends, delete scans and moves the last entry down; values may repeat
  inner   (lower bound, child), sorted; key 0 counts as minus infinity
Size classes of 128 B << c hold 10, 20, 42, 84 entries; a group of up to 42 values is a single leaf of the smallest
class that fits. header = entries | class << 16 | NEGATIVE (a retraction came before its insertion) | stamp << 32. The
stamp changes with the key range of a node, so a leaf found early in a block can be used later without a new descent.
Only removing a value equal to the cached least (greatest) makes that stale; reading it again looks at one leaf. `ctl`:
0 units ever used, 1.. free lists by class, 8 units in use, 9 last stamp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.jit import BLOCK
from belvedere.engine.state.wide import inlined, kernel, part, prefetch

UNIT = 16
LEAF, INNER = np.int64(2), np.int64(3)
"""The largest class of leaves, and the class of inner nodes."""
NEGATIVE = 1 << 24
LEAST, GREATEST = -(1 << 63), (1 << 63) - 1
GROUP = 4
ROOT, STATE, LOW, HIGH = 0, 1, 2, 3
"""Record of a group: root (0: none), height << 2 | stale bits (1: low, 2: high), least and greatest value."""
DEPTH = 16
ROOM = BLOCK * (4 + 8 * DEPTH)
"""Units that one block of changes can take at worst: a leaf and an inner node on every level for each change."""
MOST = 2147483647
NO, YES = np.int64(0), np.int64(1)
"""Flags as integers: numba compiles a function anew for every literal bool."""


@inlined
def _cap(c: Any) -> Any:
    return ((UNIT << c) - 1) * 2 // 3


@inlined
def _payload(h: Any, c: Any) -> Any:
    """Index of payload 0 in the int32 view."""
    return 2 * (h * UNIT + 1 + _cap(c))


@inlined
def _stamp(mem: Any, ctl: Any, h: Any) -> None:
    ctl[9] = (ctl[9] + 1) & 0x7FFFFFFF
    mem[h * UNIT] = (mem[h * UNIT] & 0xFFFFFFFF) | (ctl[9] << 32)


@part
def _new(mem: Any, ctl: Any, c: Any) -> Any:
    h = ctl[1 + c]
    if h != 0:
        ctl[1 + c] = mem[h * UNIT + 1]
    else:
        h = ctl[0] + 1
        ctl[0] += 1 << c
    mem[h * UNIT] = c << 16
    _stamp(mem, ctl, h)
    ctl[8] += 1 << c
    return h


@part
def _free(mem: Any, ctl: Any, h: Any) -> None:
    """The stamp changes too: a leaf found earlier in the block must not be taken for this node's next life."""
    c = (mem[h * UNIT] >> 16) & 255
    mem[h * UNIT] = 0
    _stamp(mem, ctl, h)
    mem[h * UNIT + 1] = ctl[1 + c]
    ctl[1 + c] = h
    ctl[8] -= 1 << c


@inlined
def _child(mem: Any, o: Any, n: Any, x: Any) -> Any:
    """Last i with key[i] <= x, without branches."""
    lo = np.int64(0)
    while n > 1:
        half = n >> 1
        lo += half & -np.int64(mem[o + 1 + lo + half] <= x)
        n -= half
    return lo


@part
def _sort(mem: Any, m32: Any, o: Any, p: Any, n: Any) -> Any:
    """Shell sort of a leaf by value, then equal values merged; -> new number of entries."""
    for gap in (23, 10, 4, 1):
        for i in range(gap, n):
            v, w = mem[o + 1 + i], m32[p + i]
            j = i
            while j >= gap and mem[o + 1 + j - gap] > v:
                mem[o + 1 + j] = mem[o + 1 + j - gap]
                m32[p + j] = m32[p + j - gap]
                j -= gap
            mem[o + 1 + j] = v
            m32[p + j] = w
    k = 0
    for i in range(n):
        v, w = mem[o + 1 + i], np.int64(m32[p + i])
        if k > 0 and mem[o + k] == v and abs(m32[p + k - 1] + w) < MOST:
            m32[p + k - 1] += w
            if m32[p + k - 1] == 0:
                k -= 1
        else:
            mem[o + 1 + k] = v
            m32[p + k] = w
            k += 1
    return k


@part
def _resize(mem: Any, m32: Any, ctl: Any, h: Any, c2: Any) -> Any:
    """Move a leaf to another size class."""
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    h2 = _new(mem, ctl, c2)
    o2 = h2 * UNIT
    p, p2 = _payload(h, c), _payload(h2, c2)
    for i in range(n):
        mem[o2 + 1 + i] = mem[o + 1 + i]
        m32[p2 + i] = m32[p + i]
    mem[o2] |= n | (head & NEGATIVE)
    _free(mem, ctl, h)
    return h2


@inlined
def _pivot(mem: Any, o: Any, n: Any) -> Any:
    """Median of five spread entries."""
    st = n // 5
    a, b, d = mem[o + 1 + st // 2], mem[o + 1 + st], mem[o + 1 + 2 * st]
    e, f = mem[o + 1 + 3 * st], mem[o + 1 + 4 * st]
    a, b = min(a, b), max(a, b)
    d, e = min(d, e), max(d, e)
    a, d = min(a, d), max(a, d)  # a is out
    b, e = min(b, e), max(b, e)  # e is out
    return max(min(b, d), min(max(b, d), f))


@part
def _split(mem: Any, m32: Any, ctl: Any, h: Any) -> Any:
    """A full leaf keeps the values below a pivot, a new right leaf takes the rest; -> (right, pivot), or right = 0 if
    merging repeated values made room instead."""
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    p = _payload(h, c)
    if not head & NEGATIVE:
        pivot = _pivot(mem, o, n)
        below = same = np.int64(0)
        for i in range(n):
            below += np.int64(mem[o + 1 + i] < pivot)
            same += np.int64(mem[o + 1 + i] == pivot)
        if 4 * below >= n and 4 * below <= 3 * n and 8 * same <= n:
            r = _new(mem, ctl, c)
            o2, p2 = r * UNIT, _payload(r, c)
            k = q = np.int64(0)
            for i in range(n):  # partition without branches
                v, w = mem[o + 1 + i], m32[p + i]
                mem[o + 1 + k] = v
                m32[p + k] = w
                mem[o2 + 1 + q] = v
                m32[p2 + q] = w
                t = np.int64(v < pivot)
                k += t
                q += 1 - t
            mem[o] = (head & ~0xFFFF) | k
            mem[o2] |= q
            _stamp(mem, ctl, h)
            return r, pivot
    merged = _sort(mem, m32, o, p, n)
    if head & NEGATIVE:
        head &= ~NEGATIVE
        for i in range(merged):
            if m32[p + i] < 0:
                head |= NEGATIVE
    if merged < n - (n >> 2):
        mem[o] = (head & ~0xFFFF) | merged
        return np.int64(0), np.int64(0)
    n = merged
    r = _new(mem, ctl, c)
    o2, p2 = r * UNIT, _payload(r, c)
    k = n >> 1
    while k < n and mem[o + 1 + k] == mem[o + k]:  # entries of one value (weights past 2^31) stay together
        k += 1
    for i in range(k, n):
        mem[o2 + 1 + i - k] = mem[o + 1 + i]
        m32[p2 + i - k] = m32[p + i]
    mem[o] = (head & ~0xFFFF) | k
    mem[o2] |= (n - k) | (head & NEGATIVE)
    _stamp(mem, ctl, h)
    return r, mem[o2 + 1]


@part
def _inner_insert(mem: Any, m32: Any, h: Any, i: Any, key: Any, child: Any) -> None:
    o, p = h * UNIT, _payload(h, INNER)
    for j in range(mem[o] & 0xFFFF, i, -1):
        mem[o + 1 + j] = mem[o + j]
        m32[p + j] = m32[p + j - 1]
    mem[o + 1 + i] = key
    m32[p + i] = child
    mem[o] += 1


@part
def _inner_remove(mem: Any, m32: Any, h: Any, i: Any) -> None:
    o, p = h * UNIT, _payload(h, INNER)
    for j in range(i, (mem[o] & 0xFFFF) - 1):
        mem[o + 1 + j] = mem[o + 2 + j]
        m32[p + j] = m32[p + j + 1]
    mem[o] -= 1


@part
def _grow(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, path: Any, left: Any, key: Any, right: Any) -> None:
    """Hook a new right sibling of leaf `left` in; path[k] = (node, child index) on the way down to it."""
    level = (roots[g + STATE] >> 2) - 1
    while True:
        if level < 0:
            r = _new(mem, ctl, INNER)
            o, p = r * UNIT, _payload(r, INNER)
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
        n = mem[o] & 0xFFFF
        if n < _cap(INNER):
            _inner_insert(mem, m32, h, i, key, right)
            return
        k = n - 4 if i == n else n >> 1  # an ascending load fills its nodes
        r = _new(mem, ctl, INNER)
        o2 = r * UNIT
        p, p2 = _payload(h, INNER), _payload(r, INNER)
        for j in range(k, n):
            mem[o2 + 1 + j - k] = mem[o + 1 + j]
            m32[p2 + j - k] = m32[p + j]
        mem[o] += k - n
        mem[o2] += n - k
        bound = mem[o2 + 1]
        if i <= k:
            _inner_insert(mem, m32, h, i, key, right)
        else:
            _inner_insert(mem, m32, r, i - k, key, right)
        left, key, right = h, bound, r
        level -= 1


@part
def _shrink(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any) -> None:
    """Leaf h, at the end of the path, is under-full: merge it with a neighbour, and so on upwards."""
    level = (roots[g + STATE] >> 2) - 1
    leaf = True
    while level >= 0:
        parent, i = path[level, 0], path[level, 1]
        po, pp = parent * UNIT, _payload(parent, INNER)
        width = mem[po] & 0xFFFF
        head = mem[h * UNIT]
        c = (head >> 16) & 255
        if head & 0xFFFF == 0:
            _free(mem, ctl, h)
            _inner_remove(mem, m32, parent, i)
        else:
            if width < 2:
                break
            a, j = (h, i + 1) if i + 1 < width else (np.int64(m32[pp + i - 1]), i)
            b = np.int64(m32[pp + j])
            na, nb = mem[a * UNIT] & 0xFFFF, mem[b * UNIT] & 0xFFFF
            if na + nb > _cap(c) * 5 // 8:
                break
            p, p2 = _payload(a, c), _payload(b, c)
            for q in range(nb):
                mem[a * UNIT + 1 + na + q] = mem[b * UNIT + 1 + q]
                m32[p + na + q] = m32[p2 + q]
            if not leaf:
                mem[a * UNIT + 1 + na] = mem[po + 1 + j]  # key 0 of b may stand for minus infinity
            mem[a * UNIT] = (mem[a * UNIT] + nb) | (mem[b * UNIT] & NEGATIVE)
            _stamp(mem, ctl, a)
            _free(mem, ctl, b)
            _inner_remove(mem, m32, parent, j)
        n = mem[po] & 0xFFFF
        if level == 0:
            if n == 1:
                roots[g + ROOT] = m32[pp]
                roots[g + STATE] -= 4
                _free(mem, ctl, parent)
            elif n == 0:
                roots[g + ROOT] = 0
                roots[g + STATE] &= 3
                _free(mem, ctl, parent)
            break
        if n >= _cap(INNER) // 4:
            break
        h = parent
        leaf = False
        level -= 1


@part
def _descend(roots: Any, g: Any, x: Any, mem: Any, m32: Any, path: Any) -> Any:
    h = roots[g + ROOT]
    for k in range(roots[g + STATE] >> 2):
        o = h * UNIT
        i = _child(mem, o, mem[o] & 0xFFFF, x)
        path[k, 0] = h
        path[k, 1] = i
        h = np.int64(m32[_payload(h, INNER) + i])
    return h


@part
def _removed(roots: Any, g: Any, x: Any, mem: Any, m32: Any, ctl: Any, path: Any, h: Any) -> None:
    """An entry has left leaf h: give memory back where the leaf became small."""
    n, c = mem[h * UNIT] & 0xFFFF, (mem[h * UNIT] >> 16) & 255
    if roots[g + STATE] < 4:
        if n == 0:
            _free(mem, ctl, h)
            roots[g + ROOT] = 0
        elif c > 0 and n <= _cap(c - 1) // 2:
            roots[g + ROOT] = _resize(mem, m32, ctl, h, c - 1)
    elif n < _cap(LEAF) // 4:
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
        h = _resize(mem, m32, ctl, h, c + 1)
        roots[g + ROOT] = h
        return h
    tidy = insert and not head & NEGATIVE
    if tidy and x > roots[g + HIGH] and not roots[g + STATE] & 2:  # ascending: the full leaf stays full
        r, key = _new(mem, ctl, LEAF), x
        _stamp(mem, ctl, h)
    elif tidy and x < roots[g + LOW] and not roots[g + STATE] & 1:  # descending
        r, key = _new(mem, ctl, LEAF), roots[g + LOW]
        fresh = mem[r * UNIT]
        for i in range(UNIT << LEAF):
            mem[r * UNIT + i] = mem[o + i]
        mem[r * UNIT] = fresh | n
        mem[o] = head & ~0xFFFF
        _stamp(mem, ctl, h)
    else:
        r, key = _split(mem, m32, ctl, h)
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
            roots[g + ROOT] = _new(mem, ctl, np.int64(0))
            roots[g + STATE] = 0
            roots[g + LOW] = GREATEST
            roots[g + HIGH] = LEAST
        h = _descend(roots, g, x, mem, m32, path)
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    p = _payload(h, c)
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
    if n == _cap(c):
        h = _full(roots, g, x, mem, m32, ctl, path, h, w > 0)
        o = h * UNIT
        n, c = mem[o] & 0xFFFF, (mem[o] >> 16) & 255
        p = _payload(h, c)
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
def _prefetch_node(mem: Any, m32: Any, h: Any, c: Any) -> None:
    """All lines of a node that hold entries."""
    n = mem[h * UNIT] & 0xFFFF
    for k in range(16, n + 1, 8):
        prefetch(mem, h * UNIT + k)
    p = _payload(h, c)
    for k in range(0, n, 16):
        prefetch(m32, p + k)


@kernel
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
                    _prefetch_node(mem, m32, leaf[i - b], INNER)
            for i in range(b, stop):
                if levels[i - b] > level:
                    h = leaf[i - b]
                    o = h * UNIT
                    h = np.int64(m32[_payload(h, INNER) + _child(mem, o, mem[o] & 0xFFFF, values[i])])
                    leaf[i - b] = h
                    prefetch(mem, h * UNIT)
                    prefetch(mem, h * UNIT + 8)
        for i in range(b, stop):
            h = leaf[i - b]
            if h != 0:
                o = h * UNIT
                stamps[i - b] = mem[o] >> 32
                if weights[i] < 0:
                    _prefetch_node(mem, m32, h, LEAF)
                else:
                    end = (mem[o] & 0xFFFF) + 1
                    prefetch(mem, o + end)
                    prefetch(m32, _payload(h, LEAF) + end)
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
        p = _payload(h, (mem[o] >> 16) & 255)
        for i in range(mem[o] & 0xFFFF):
            if level > 0:
                stack[depth, 0], stack[depth, 1] = np.int64(m32[p + i]), level - 1
                depth += 1
            else:
                if found < values.shape[0]:
                    values[found] = mem[o + 1 + i]
                    weights[found] = m32[p + i]
                found += 1
        if free == YES:
            _free(mem, ctl, h)
    return found


@part
def _edge(roots: Any, g: Any, mem: Any, m32: Any, ctl: Any, right: Any) -> Any:
    """Greatest (right) or least value, from the leaf at that end."""
    h = roots[g + ROOT]
    for _ in range(roots[g + STATE] >> 2):
        h = np.int64(m32[_payload(h, INNER) + ((mem[h * UNIT] & 0xFFFF) - 1 if right == YES else 0)])
    o = h * UNIT
    head = mem[o]
    n, p = head & 0xFFFF, _payload(h, (head >> 16) & 255)
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


@kernel
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
        low[j] = roots[g + LOW]
        high[j] = roots[g + HIGH]


@kernel
def clear(slots: Any, roots: Any, mem: Any, m32: Any, ctl: Any) -> None:
    """Forget the values of these groups."""
    for j in range(slots.shape[0]):
        g = np.int64(slots[j]) * GROUP
        _collect(roots[g + ROOT], (roots[g + STATE] >> 2), mem, m32, ctl, mem[:0], mem[:0], YES)
        roots[g + ROOT] = 0
        roots[g + STATE] = 0
        roots[g + LOW] = 0
        roots[g + HIGH] = 0


@kernel
def export(slots: Any, roots: Any, mem: Any, m32: Any, ctl: Any, ends: Any, values: Any, weights: Any) -> None:
    """Entries of each group one after the other; ends[j] = where those of group j end. Empty arrays: only count."""
    total = np.int64(0)
    for j in range(slots.shape[0]):
        g = np.int64(slots[j]) * GROUP
        root, height = roots[g + ROOT], roots[g + STATE] >> 2
        total += _collect(root, height, mem, m32, ctl, values[total:], weights[total:], NO)
        ends[j] = total
