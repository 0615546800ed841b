"""Nodes of the B+-trees of `btree`: their layout in the arena, allocation, sorting and splitting.

All nodes live in one int64 array. Node = header word, keys (int64), payloads (int32, packed behind the keys):
  leaf    (value, weight), UNSORTED: insert appends, delete scans and moves the last entry down; values may repeat
  inner   (lower bound, child), sorted; key 0 counts as minus infinity
Size classes of 128 B << c hold 10, 20, 42, 84 entries; a lone leaf and a root take the smallest class that fits.
header = entries | class << 16 | NEGATIVE (a retraction came before its insertion) | stamp << 32. The stamp changes with
the key range of a node. `ctl`: 0 units ever used, 1.. free lists by class, 8 units in use, 9 last stamp.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.wide import inlined, part

UNIT = 16
LEAF, INNER = np.int64(2), np.int64(3)
"""The largest class of leaves, and of inner nodes."""
NEGATIVE = 1 << 24
MOST = 2147483647
"""Weights of entries stay below it; a value of more weight has several entries, in one leaf."""


@inlined
def cap(c: Any) -> Any:
    return ((UNIT << c) - 1) * 2 // 3


@inlined
def payload(h: Any, c: Any) -> Any:
    """Index of payload 0 in the int32 view, for a node of class c."""
    return 2 * (h * UNIT + 1 + cap(c))


@inlined
def payload_of(mem: Any, h: Any) -> Any:
    return payload(h, (mem[h * UNIT] >> 16) & 255)


@inlined
def stamp(mem: Any, ctl: Any, h: Any) -> None:
    ctl[9] = (ctl[9] + 1) & 0x7FFFFFFF
    mem[h * UNIT] = (mem[h * UNIT] & 0xFFFFFFFF) | (ctl[9] << 32)


@part
def allocate(mem: Any, ctl: Any, c: Any) -> Any:
    h = ctl[1 + c]
    if h != 0:
        ctl[1 + c] = mem[h * UNIT + 1]
    else:
        h = ctl[0] + 1
        ctl[0] += 1 << c
    mem[h * UNIT] = c << 16
    stamp(mem, ctl, h)
    ctl[8] += 1 << c
    return h


@part
def release(mem: Any, ctl: Any, h: Any) -> None:
    c = (mem[h * UNIT] >> 16) & 255
    mem[h * UNIT] = 0  # and no stamp: whoever found this node before looks again
    mem[h * UNIT + 1] = ctl[1 + c]
    ctl[1 + c] = h
    ctl[8] -= 1 << c


@inlined
def child_of(mem: Any, o: Any, n: Any, x: Any) -> Any:
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
def resize(mem: Any, m32: Any, ctl: Any, h: Any, c2: Any) -> Any:
    """Move a leaf to another size class."""
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    h2 = allocate(mem, ctl, c2)
    o2 = h2 * UNIT
    p, p2 = payload(h, c), payload(h2, c2)
    for i in range(n):
        mem[o2 + 1 + i] = mem[o + 1 + i]
        m32[p2 + i] = m32[p + i]
    mem[o2] |= n | (head & NEGATIVE)
    release(mem, ctl, h)
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
def split(mem: Any, m32: Any, ctl: Any, h: Any) -> Any:
    """A full leaf keeps the values below a pivot, a new right leaf takes the rest; -> (right, pivot), or right = 0 if
    merging repeated values made room instead."""
    o = h * UNIT
    head = mem[o]
    n, c = head & 0xFFFF, (head >> 16) & 255
    p = payload(h, c)
    if not head & NEGATIVE:
        pivot = _pivot(mem, o, n)
        below = same = np.int64(0)
        for i in range(n):
            below += np.int64(mem[o + 1 + i] < pivot)
            same += np.int64(mem[o + 1 + i] == pivot)
        if 4 * below >= n and 4 * below <= 3 * n and 8 * same <= n:
            r = allocate(mem, ctl, c)
            o2, p2 = r * UNIT, payload(r, c)
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
            stamp(mem, ctl, h)
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
    r = allocate(mem, ctl, c)
    o2, p2 = r * UNIT, payload(r, c)
    k = n >> 1
    while k < n and mem[o + 1 + k] == mem[o + k]:  # entries of one value (weights past 2^31) stay together
        k += 1
    for i in range(k, n):
        mem[o2 + 1 + i - k] = mem[o + 1 + i]
        m32[p2 + i - k] = m32[p + i]
    mem[o] = (head & ~0xFFFF) | k
    mem[o2] |= (n - k) | (head & NEGATIVE)
    stamp(mem, ctl, h)
    return r, mem[o2 + 1]


@part
def inner_insert(mem: Any, m32: Any, h: Any, i: Any, key: Any, child: Any) -> None:
    o, p = h * UNIT, payload_of(mem, h)
    for j in range(mem[o] & 0xFFFF, i, -1):
        mem[o + 1 + j] = mem[o + j]
        m32[p + j] = m32[p + j - 1]
    mem[o + 1 + i] = key
    m32[p + i] = child
    mem[o] += 1


@part
def inner_remove(mem: Any, m32: Any, h: Any, i: Any) -> None:
    o, p = h * UNIT, payload_of(mem, h)
    for j in range(i, (mem[o] & 0xFFFF) - 1):
        mem[o + 1 + j] = mem[o + 2 + j]
        m32[p + j] = m32[p + j + 1]
    mem[o] -= 1
