"""Kernels of rows in key order: slots in blocks, blocks in a directory.

A block holds up to BLOCK slots in order, each beside the first eight bytes of its key as a big-endian number, so most
comparisons touch nothing but the block. The directory names the blocks in order. Inserting moves part of a block, and
once in about BLOCK / 2 inserts part of the directory, which is one plain move of four bytes per block: cheaper, up to
some hundred million rows, than the levels of a tree, and a range is read block by block. Keys lie in an arena by slot
(see `strings` for references). `fill`: slots in each block. `ctl`: blocks in the directory, ever used, and free.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel, part
from belvedere.engine.state.kernels.strings import HUGE, length_of

BLOCK = 256
_LOADED = 192
"""Slots per block after a load: room for what comes between."""
BLOCKS, USED, FREE = 0, 1, 2


@part
def _place(refs, arena, slot):  # type: ignore[no-untyped-def]
    """Where in the arena a slot's key begins, and its length."""
    ref = refs[slot]
    length = length_of(ref, arena)
    return (ref >> 27) * 8 + (8 if length >= HUGE else 0), length


@part
def _head(data, start, length):  # type: ignore[no-untyped-def]
    head = np.uint64(0)
    for i in range(8):
        byte = np.uint64(data[start + i]) if i < length else np.uint64(0)
        head = (head << np.uint64(8)) | byte
    return head


@part
def _compare(a, a_start, a_length, b, b_start, b_length):  # type: ignore[no-untyped-def]
    """Below, at or above zero as key a is below, equal to or above key b; their heads are equal."""
    common = min(a_length, b_length)
    for i in range(8, common):
        x, y = a[a_start + i], b[b_start + i]
        if x != y:
            return np.int64(x) - np.int64(y)
    return a_length - b_length


@part
def _below(heads, slots, at, refs, arena, text, probe, start, length, head):  # type: ignore[no-untyped-def]
    """Whether the key at a place (a row of `heads` and `slots`, flat) is below the probe."""
    if heads[at] != head:
        return heads[at] < head
    own, size = _place(refs, arena, slots[at])
    return _compare(text, own, size, probe, start, length) < 0


@part
def _seek(heads, slots, fill, directory, ctl, refs, arena, text, probe, start, length):  # type: ignore[no-untyped-def]
    """(number in the directory, position in the block) of the first key that is not below the probe; a position may be
    the end of its block."""
    head = _head(probe, start, length)
    low, high = np.int64(0), ctl[BLOCKS]
    while low < high:  # the first block whose first key is not below the probe
        middle = (low + high) >> 1
        at = np.int64(directory[middle]) * BLOCK
        if _below(heads, slots, at, refs, arena, text, probe, start, length, head):
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return np.int64(0), np.int64(0)
    number = low - 1
    base = np.int64(directory[number]) * BLOCK
    low, high = np.int64(1), np.int64(fill[directory[number]])
    while low < high:
        middle = (low + high) >> 1
        if _below(heads, slots, base + middle, refs, arena, text, probe, start, length, head):
            low = middle + 1
        else:
            high = middle
    return number, low


@part
def _new_block(ctl, free):  # type: ignore[no-untyped-def]
    if ctl[FREE] > 0:
        ctl[FREE] -= 1
        return np.int64(free[ctl[FREE]])
    ctl[USED] += 1
    return ctl[USED] - 1


@part
def _enlist(directory, ctl, number, block):  # type: ignore[no-untyped-def]
    for i in range(ctl[BLOCKS], number, -1):
        directory[i] = directory[i - 1]
    directory[number] = block
    ctl[BLOCKS] += 1


@part
def _strike(fill, directory, ctl, free, number):  # type: ignore[no-untyped-def]
    block = directory[number]
    fill[block] = 0
    free[ctl[FREE]] = block
    ctl[FREE] += 1
    ctl[BLOCKS] -= 1
    for i in range(number, ctl[BLOCKS]):
        directory[i] = directory[i + 1]


@kernel("u8[:] i4[:] i4[:] i4[:] i8[:] i4[:] i8[:] i8[:] u1[:] i4[:] i8")
def insert(heads, slots, fill, directory, ctl, free, refs, arena, text, fresh, start):  # type: ignore[no-untyped-def]
    """Enter slots, from the one at `start` on, whose keys are in the arena already; returns how far it came: less than
    all if room for another block is needed first."""
    room = fill.shape[0]
    for i in range(start, fresh.shape[0]):
        if ctl[USED] - ctl[FREE] + 1 > room:
            return i
        slot = fresh[i]
        key, length = _place(refs, arena, slot)
        if ctl[BLOCKS] == 0:
            _enlist(directory, ctl, 0, _new_block(ctl, free))
            number, at = np.int64(0), np.int64(0)  # nothing can be sought in an empty block
        else:
            number, at = _seek(heads, slots, fill, directory, ctl, refs, arena, text, text, key, length)
        block = np.int64(directory[number])
        base = block * BLOCK
        if fill[block] == BLOCK:
            # keys that come in ascending order leave full blocks behind
            cut = BLOCK if at == BLOCK and number == ctl[BLOCKS] - 1 else BLOCK // 2
            other = _new_block(ctl, free)
            for j in range(cut, BLOCK):
                heads[other * BLOCK + j - cut] = heads[base + j]
                slots[other * BLOCK + j - cut] = slots[base + j]
            fill[other] = BLOCK - cut
            fill[block] = cut
            _enlist(directory, ctl, number + 1, other)
            if at > cut or cut == BLOCK:
                block, base, at = other, other * BLOCK, at - cut
        for j in range(fill[block], at, -1):
            heads[base + j] = heads[base + j - 1]
            slots[base + j] = slots[base + j - 1]
        heads[base + at] = _head(text, key, length)
        slots[base + at] = slot
        fill[block] += 1
    return fresh.shape[0]


@kernel("u8[:] i4[:] i4[:] i4[:] i8[:] i4[:] i8[:] i8[:] u1[:] i4[:]")
def remove(heads, slots, fill, directory, ctl, free, refs, arena, text, gone):  # type: ignore[no-untyped-def]
    """Take slots out, whose keys are still in the arena; returns how many were there."""
    removed = 0
    for i in range(gone.shape[0]):
        key, length = _place(refs, arena, gone[i])
        number, at = _seek(heads, slots, fill, directory, ctl, refs, arena, text, text, key, length)
        block = np.int64(-1)
        while number < ctl[BLOCKS]:  # beyond the first of equal keys, if there are any
            block = np.int64(directory[number])
            if at == fill[block]:
                number, at = number + 1, np.int64(0)
            elif slots[block * BLOCK + at] == gone[i]:
                break
            else:
                at += 1
        if number == ctl[BLOCKS]:
            continue
        base = block * BLOCK
        for j in range(at + 1, fill[block]):
            heads[base + j - 1] = heads[base + j]
            slots[base + j - 1] = slots[base + j]
        fill[block] -= 1
        removed += 1
        if fill[block] == 0:
            _strike(fill, directory, ctl, free, number)
        elif fill[block] < BLOCK // 4 and number + 1 < ctl[BLOCKS]:
            _merge(heads, slots, fill, directory, ctl, free, number)
        elif fill[block] < BLOCK // 4 and number > 0:
            _merge(heads, slots, fill, directory, ctl, free, number - 1)
    return removed


@part
def _merge(heads, slots, fill, directory, ctl, free, number):  # type: ignore[no-untyped-def]
    """Two neighbours become one, if that is then at most half full."""
    a, b = np.int64(directory[number]), np.int64(directory[number + 1])
    first, second = fill[a], fill[b]
    if first + second > BLOCK // 2:
        return
    for j in range(second):
        heads[a * BLOCK + first + j] = heads[b * BLOCK + j]
        slots[a * BLOCK + first + j] = slots[b * BLOCK + j]
    fill[a] = first + second
    _strike(fill, directory, ctl, free, number + 1)


@kernel("u8[:] i4[:] i4[:] i4[:] i8[:] u8[:] i4[:]")
def load(heads, slots, fill, directory, ctl, sorted_heads, sorted_slots):  # type: ignore[no-untyped-def]
    """Fill an empty index with slots in order."""
    n = sorted_slots.shape[0]
    blocks = (n + _LOADED - 1) // _LOADED
    for block in range(blocks):
        first = block * _LOADED
        size = min(_LOADED, n - first)
        for j in range(size):
            heads[block * BLOCK + j] = sorted_heads[first + j]
            slots[block * BLOCK + j] = sorted_slots[first + j]
        fill[block] = size
        directory[block] = block
    ctl[BLOCKS], ctl[USED], ctl[FREE] = blocks, blocks, 0


@kernel("u8[:] i4[:] i4[:] i4[:] i8[:] i8[:] i8[:] u1[:] u1[:] i8 i8 i8 i8")
def select(  # type: ignore[no-untyped-def]
    heads, slots, fill, directory, ctl, refs, arena, text, probe, low_length, high_length, limit, reverse
):
    """Slots of the keys from the first `low_length` bytes of the probe up to the `high_length` bytes behind them (below
    zero: to the end), at most `limit` of them, from the upper end if `reverse`."""
    number, at = _seek(heads, slots, fill, directory, ctl, refs, arena, text, probe, 0, low_length)
    end, end_at = ctl[BLOCKS], np.int64(0)
    if high_length >= 0:
        end, end_at = _seek(heads, slots, fill, directory, ctl, refs, arena, text, probe, low_length, high_length)
    count = np.int64(0)
    stop = min(end + 1, ctl[BLOCKS])
    for k in range(stop - number):
        i = stop - 1 - k if reverse != 0 else number + k
        count += (end_at if i == end else fill[directory[i]]) - (at if i == number else 0)
        if count >= limit:
            break
    count = max(np.int64(0), min(count, limit))
    out = np.empty(count, np.int32)
    if reverse != 0:
        number, at = end, end_at
        for i in range(count):
            while at == 0:
                number -= 1
                at = np.int64(fill[directory[number]])
            at -= 1
            out[i] = slots[np.int64(directory[number]) * BLOCK + at]
        return out
    for i in range(count):
        while at == fill[directory[number]]:
            number, at = number + 1, np.int64(0)
        out[i] = slots[np.int64(directory[number]) * BLOCK + at]
        at += 1
    return out


@kernel("i4[:] u1[:] u8[:] u8[:]")
def heads_of(offsets, data, first, second):  # type: ignore[no-untyped-def]
    """The first and the second eight bytes of keys as numbers that sort as they do, filled up with zeros."""
    for i in range(first.shape[0]):
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        first[i] = _head(data, start, length)
        second[i] = _head(data, start + 8, length - 8)


@kernel("u1[:] i4[:] i8 i4[:]")
def note(state, rows, flag, out):  # type: ignore[no-untyped-def]
    """Mark slots (negative ones are skipped) with the flag 2, but those whose state is `flag`; returns how many of them
    were not marked before, and puts these into `out`."""
    count = 0
    for i in range(rows.shape[0]):
        slot = rows[i]
        if slot >= 0 and state[slot] != flag and state[slot] & 2 == 0:
            state[slot] |= 2
            out[count] = slot
            count += 1
    return count
