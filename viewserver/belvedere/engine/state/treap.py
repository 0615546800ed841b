"""Multisets of byte strings per group with their least and greatest member: one treap per group, all in one node array.

Unlike in a B+-tree there are no separators: each distinct value of a group is held once, by its own node, and dies
with it, so nothing has to be counted to know when its bytes are free. A node is one cache line, and its first 32 bytes
of the value are images: four integers, most significant byte first, so that comparing them in order compares the
bytes. Only what ties on these looks at the tail, which lives in `text` in blocks of the size classes 16, 24, 32, 48,
64, ... bytes.

Node (8 words): 4 images, start of the tail (or link of the free list), weight; then int32: length, priority, left,
right. Node 0 is no node: its left link holds the root of the group at hand. Group record (int32[4]): root, first, last
node (0: not known). `ctl`: 0 nodes ever used, 1 head of the free nodes, 2 nodes in use, 3 bytes of text ever used, 4
bytes in use, 5 random state, 8.. heads + 1 of free blocks by class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from belvedere.engine.state.jit import load64
from belvedere.engine.state.wide import U0, bitlen, copy_bytes, inlined, kernel, part, prefetch, swap64

NODE, NODE32 = 8, 16
START, WEIGHT = 4, 5
LENGTH, PRIORITY, LEFT, RIGHT = 12, 13, 14, 15
IMAGES, HEAD = 4, 32
"""Words and bytes of a value that are in the node."""
GROUP = 4
CONTROL = 80
BLOCK = 16
SIGN = np.uint64(1 << 63)


@inlined
def _images(text: Any, start: Any, length: Any, probe: Any) -> None:
    """The first 32 bytes as four integers, padded with zeros; flipped so that signed comparison orders them."""
    for k in range(IMAGES):
        x = U0
        if length >= 8 * k + 8:
            x = swap64(load64(text, start + 8 * k))
        else:
            for i in range(8 * k, length):
                x |= np.uint64(text[start + i]) << np.uint64(56 - 8 * (i - 8 * k))
        probe[k] = np.int64(x ^ SIGN)


@inlined
def _class(size: Any) -> Any:
    """Class of a block of `size` > 0 bytes: 16, 24, 32, 48, 64, ..."""
    if size <= 16:
        return np.int64(0)
    k = bitlen(np.uint64(size - 1)) - 1  # 2^k < size <= 2^(k+1)
    return 2 * (k - 4) + (1 if size <= 3 << (k - 1) else 2)


@inlined
def _size(c: Any) -> Any:
    return (np.int64(16) if c & 1 == 0 else np.int64(24)) << (c >> 1)


@inlined
def _tails(a: Any, i: Any, la: Any, b: Any, j: Any, lb: Any) -> Any:
    """Sign of the comparison of two values that agree in their heads; their tails are at a[i] and b[j]."""
    for k in range(min(la, lb) - HEAD):
        if a[i + k] != b[j + k]:
            return -1 if a[i + k] < b[j + k] else 1
    return np.int64(la > lb) - np.int64(la < lb)


@inlined
def _compare(ext: Any, start: Any, length: Any, probe: Any, node: Any, n64: Any, n32: Any, text: Any) -> Any:
    """Sign of (value - node's value); the value is ext[start : start + length], its images are in `probe`."""
    o = node * NODE
    for k in range(IMAGES):
        if probe[k] != n64[o + k]:
            return np.int64(-1) if probe[k] < n64[o + k] else np.int64(1)
    m = np.int64(n32[node * NODE32 + LENGTH])
    return np.int64(_tails(ext, start + HEAD, length, text, n64[o + START], m))


@inlined
def _order(a: Any, b: Any, n64: Any, n32: Any, text: Any) -> Any:
    """Sign of (value of node a - value of node b)."""
    o, p = a * NODE, b * NODE
    for k in range(IMAGES):
        if n64[o + k] != n64[p + k]:
            return np.int64(-1) if n64[o + k] < n64[p + k] else np.int64(1)
    la, lb = np.int64(n32[a * NODE32 + LENGTH]), np.int64(n32[b * NODE32 + LENGTH])
    return np.int64(_tails(text, n64[o + START], la, text, n64[p + START], lb))


@inlined
def _draw(ctl: Any) -> Any:
    """The next pseudo-random priority (31 bits): splitmix64, so that equal histories make equal trees."""
    x = np.uint64(ctl[5]) + np.uint64(0x9E3779B97F4A7C15)
    ctl[5] = np.int64(x)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x >> np.uint64(33))


@part
def _make(
    ext: Any, start: Any, length: Any, probe: Any, w: Any, priority: Any, n64: Any, n32: Any, text: Any, ctl: Any
) -> Any:
    node = ctl[1]
    if node != 0:
        ctl[1] = n64[node * NODE + START]
    else:
        ctl[0] += 1
        node = ctl[0]
    ctl[2] += 1
    o, p = node * NODE, node * NODE32
    at = np.int64(0)
    if length > HEAD:
        c = _class(length - HEAD)
        size = _size(c)
        at = ctl[8 + c] - 1
        if at >= 0:
            ctl[8 + c] = text[at : at + 8].view(np.int64)[0]
        else:
            at = ctl[3]
            ctl[3] += size
        ctl[4] += size
        copy_bytes(text, at, ext, start + HEAD, length - HEAD)
    for k in range(IMAGES):
        n64[o + k] = probe[k]
    n64[o + START] = at
    n64[o + WEIGHT] = w
    n32[p + LENGTH] = length
    n32[p + PRIORITY] = priority
    n32[p + LEFT] = 0
    n32[p + RIGHT] = 0
    return node


@part
def _drop(node: Any, n64: Any, n32: Any, text: Any, ctl: Any) -> None:
    length = np.int64(n32[node * NODE32 + LENGTH])
    if length > HEAD:
        c = _class(length - HEAD)
        at = n64[node * NODE + START]
        text[at : at + 8].view(np.int64)[0] = ctl[8 + c]
        ctl[8 + c] = at + 1
        ctl[4] -= _size(c)
    n64[node * NODE + START] = ctl[1]
    ctl[1] = node
    ctl[2] -= 1


@part
def _merge(link: Any, a: Any, b: Any, n32: Any) -> None:
    """Hang trees a < b, joined, at the link."""
    while a != 0 and b != 0:
        if n32[a * NODE32 + PRIORITY] >= n32[b * NODE32 + PRIORITY]:
            n32[link] = a
            link = a * NODE32 + RIGHT
            a = np.int64(n32[link])
        else:
            n32[link] = b
            link = b * NODE32 + LEFT
            b = np.int64(n32[link])
    n32[link] = a + b


@part
def _change(g: Any, node: Any, link: Any, w: Any, roots: Any, n64: Any, n32: Any, text: Any, ctl: Any) -> None:
    """Change the weight of the node that hangs at the link; it goes when nothing is left of it."""
    weight = n64[node * NODE + WEIGHT] + w
    n64[node * NODE + WEIGHT] = weight
    if weight != 0:
        return
    r = g * GROUP
    _merge(link, np.int64(n32[node * NODE32 + LEFT]), np.int64(n32[node * NODE32 + RIGHT]), n32)
    _drop(node, n64, n32, text, ctl)
    for known in (1, 2):
        if roots[r + known] == node:
            roots[r + known] = 0
    roots[r] = n32[LEFT]


@part
def _add(
    g: Any,
    ext: Any,
    start: Any,
    length: Any,
    w: Any,
    probe: Any,
    roots: Any,
    n64: Any,
    n32: Any,
    text: Any,
    ctl: Any,
) -> None:
    """Weight of a value in group g += w. One descent finds the value or, by a priority drawn before, where it has to
    go."""
    priority = _draw(ctl)
    r = g * GROUP
    n32[LEFT] = roots[r]
    link = np.int64(LEFT)
    place = np.int64(-1)
    least = greatest = True
    node = np.int64(n32[link])
    while node != 0:
        if place < 0 and n32[node * NODE32 + PRIORITY] < priority:
            place = link
        sign = _compare(ext, start, length, probe, node, n64, n32, text)
        if sign == 0:
            _change(g, node, link, w, roots, n64, n32, text, ctl)
            return
        if sign < 0:
            link = node * NODE32 + LEFT
            greatest = False
        else:
            link = node * NODE32 + RIGHT
            least = False
        node = np.int64(n32[link])
    if place >= 0:
        link = place
        node = np.int64(n32[link])
    fresh = _make(ext, start, length, probe, w, priority, n64, n32, text, ctl)
    n32[link] = fresh
    low, high = fresh * NODE32 + LEFT, fresh * NODE32 + RIGHT
    while node != 0:  # split what hung there
        if _order(node, fresh, n64, n32, text) < 0:
            n32[low] = node
            low = node * NODE32 + RIGHT
            node = np.int64(n32[low])
        else:
            n32[high] = node
            high = node * NODE32 + LEFT
            node = np.int64(n32[high])
    n32[low] = 0
    n32[high] = 0
    if least:
        roots[r + 1] = fresh
    if greatest:
        roots[r + 2] = fresh
    roots[r] = n32[LEFT]


@kernel("i4[:] i4[:] i4[:] u1[:] i4[:] i4[:] i8[:] i4[:] u1[:] i8[:]")
def add(
    slots: Any, starts: Any, stops: Any, ext: Any, weights: Any, roots: Any, n64: Any, n32: Any, text: Any, ctl: Any
) -> None:
    """Apply changes; value i is ext[starts[i] : stops[i]]. The caller made room for a node and its text per change."""
    n = slots.shape[0]
    probes = np.empty((BLOCK, IMAGES), np.int64)
    at = np.empty(BLOCK, np.int64)
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(roots, np.int64(slots[i]) * GROUP)
        for i in range(b, stop):
            at[i - b] = roots[np.int64(slots[i]) * GROUP]
            prefetch(n64, at[i - b] * NODE)
            start = np.int64(starts[i])
            _images(ext, start, np.int64(stops[i]) - start, probes[i - b])
        left = True
        while left:  # all descents one level at a time: their cache misses overlap, and the changes find all warm
            left = False
            for i in range(b, stop):
                node = at[i - b]
                if node != 0:
                    start = np.int64(starts[i])
                    length = np.int64(stops[i]) - start
                    sign = _compare(ext, start, length, probes[i - b], node, n64, n32, text)
                    node = np.int64(n32[node * NODE32 + (LEFT if sign < 0 else RIGHT)]) if sign != 0 else np.int64(0)
                    at[i - b] = node
                    prefetch(n64, node * NODE)
                    left |= node != 0
        for i in range(b, stop):
            start = np.int64(starts[i])
            length = np.int64(stops[i]) - start
            g, w = np.int64(slots[i]), np.int64(weights[i])
            _add(g, ext, start, length, w, probes[i - b], roots, n64, n32, text, ctl)


@kernel("i4[:] i4[:] i4[:] b1 i8[:]")
def ends(slots: Any, roots: Any, n32: Any, right: Any, nodes: Any) -> None:
    """The first (or last) node of each group, 0 if it is empty."""
    side, known = (RIGHT, 2) if right else (LEFT, 1)
    for j in range(slots.shape[0]):
        r = np.int64(slots[j]) * GROUP
        node = np.int64(roots[r + known])
        if node == 0:
            node = np.int64(roots[r])
            if node != 0:
                while n32[node * NODE32 + side] != 0:
                    node = np.int64(n32[node * NODE32 + side])
                roots[r + known] = node
        nodes[j] = node


@kernel("i8[:] i8[:] i8[:] i4[:] u1[:] u1[:]")
def fetch(nodes: Any, offsets: Any, n64: Any, n32: Any, text: Any, out: Any) -> None:
    """Write the values of nodes (0: none) at their offsets."""
    for j in range(nodes.shape[0]):
        node = nodes[j]
        if node != 0:
            length = np.int64(n32[node * NODE32 + LENGTH])
            at = np.int64(offsets[j])
            head = length if length < HEAD else np.int64(HEAD)
            for i in range(head):
                image = np.uint64(n64[node * NODE + (i >> 3)]) ^ SIGN
                out[at + i] = np.uint8((image >> np.uint64(56 - 8 * (i & 7))) & np.uint64(255))
            if length > HEAD:
                copy_bytes(out, at + HEAD, text, n64[node * NODE + START], length - HEAD)


DEEP = 1024
"""A treap of 2^31 nodes is less than 200 deep in all likelihood there is."""


@kernel("i4[:] i4[:] i8[:] i4[:] u1[:] i8[:]")
def forget(slots: Any, roots: Any, n64: Any, n32: Any, text: Any, ctl: Any) -> None:
    """Give all nodes of these groups back."""
    stack = np.empty(DEEP, np.int64)
    for j in range(slots.shape[0]):
        r = np.int64(slots[j]) * GROUP
        stack[0] = roots[r]
        depth = np.int64(roots[r] != 0)
        while depth > 0:
            depth -= 1
            node = stack[depth]
            for side in (LEFT, RIGHT):
                child = np.int64(n32[node * NODE32 + side])
                if child != 0:
                    stack[depth] = child
                    depth += 1
            _drop(node, n64, n32, text, ctl)
        roots[r : r + GROUP] = 0


@kernel("i4[:] i4[:] i4[:] i8[:] i8[:]")
def in_order(slots: Any, roots: Any, n32: Any, ends: Any, nodes: Any) -> None:
    """Nodes of each group in the order of their values, into `nodes` as far as it has room; those of group j end at
    ends[j]."""
    stack = np.empty(DEEP, np.int64)
    found = np.int64(0)
    for j in range(slots.shape[0]):
        node = np.int64(roots[np.int64(slots[j]) * GROUP])
        depth = 0
        while depth > 0 or node != 0:
            while node != 0:
                stack[depth] = node
                depth += 1
                node = np.int64(n32[node * NODE32 + LEFT])
            depth -= 1
            node = stack[depth]
            if found < nodes.shape[0]:
                nodes[found] = node
            found += 1
            node = np.int64(n32[node * NODE32 + RIGHT])
        ends[j] = found


@kernel("i8[:] i4[:] i8[:]")
def lengths(nodes: Any, n32: Any, offsets: Any) -> Any:
    """Offsets of the nodes' values if laid out one after the other; -> their total length."""
    total = np.int64(0)
    offsets[0] = 0
    for j in range(nodes.shape[0]):
        if nodes[j] != 0:
            total += n32[nodes[j] * NODE32 + LENGTH]
        offsets[j + 1] = total
    return total
