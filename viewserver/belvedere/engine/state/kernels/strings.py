"""Kernels of string arenas: words of eight bytes, and references to pieces of them kept in rows.

A reference is (first word << 27 | spare words << 24 | code); 0 is the empty string. A code below HUGE is the length in
bytes; the piece then has the words that the length needs and the spare ones, so that a longer string may later take the
place of a shorter one. From HUGE on a code counts units of 256 bytes, and the first word holds the exact length.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import copy32, copy_bytes, kernel, load64, part, prefetch

_AHEAD = 16
_CODE = 0xFFFFFF
_SPARE = 7
HUGE = 1 << 23
UNIT = 32
"""Words in a unit of 256 bytes."""


@part
def words_of(ref):  # type: ignore[no-untyped-def]
    """Words of the arena that a reference holds."""
    code = ref & _CODE
    if code >= HUGE:
        return (code - HUGE) * UNIT
    return ((code + 7) >> 3) + ((ref >> 24) & _SPARE)


@part
def length_of(ref, arena):  # type: ignore[no-untyped-def]
    """Bytes of the string."""
    code = ref & _CODE
    return code if code < HUGE else arena[ref >> 27]


@kernel("i8[:] i8 i8 i4[:] i4[:] u1[:] u1[:] i8[:] u1[:] i8")
def store_strings(  # type: ignore[no-untyped-def]
    rows, stride, offset, slots, offsets, values, status, arena, arena_bytes, used
):
    """Give rows new strings: in the place of their old ones where they fit, else at the end (`used`, in words).
    `status` may be empty; rows without a value keep an empty string. Returns (words used, words that became garbage,
    growth in bytes)."""
    n = slots.shape[0]
    checked = status.shape[0] > 0
    end = values.shape[0]
    garbage = 0
    growth = np.int64(0)
    for i in range(n):
        if i + 2 * _AHEAD < n and slots[i + 2 * _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + 2 * _AHEAD]) * stride + offset)
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            ahead = rows[np.int64(slots[i + _AHEAD]) * stride + offset]
            if ahead != 0:
                prefetch(arena, ahead >> 27)
                prefetch(arena, (ahead >> 27) + 3)
        if slots[i] < 0:
            continue
        at = np.int64(slots[i]) * stride + offset
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        if checked and status[i] != 1:
            length = np.int64(0)
        ref = rows[at]
        room = words_of(ref)
        need = (length + 7) >> 3
        if ref != 0:
            growth -= length_of(ref, arena)
        growth += length
        if length >= HUGE:
            garbage += room
            units = (need + UNIT) // UNIT
            arena[used] = length
            copy_bytes(arena_bytes, (used + 1) * 8, values, start, length)
            rows[at] = (used << 27) | (HUGE + units)
            used += units * UNIT
        elif need <= room and room < (HUGE >> 3):
            spare = min(room - need, _SPARE)
            garbage += room - need - spare
            word = ref >> 27
            if start + need * 8 <= end:
                for w in range(need):
                    arena[word + w] = np.int64(load64(values, start + w * 8))
            else:
                copy_bytes(arena_bytes, word * 8, values, start, length)
            rows[at] = (word << 27) | (spare << 24) | length if need + spare > 0 else 0
        else:
            garbage += room
            if length == 0:
                rows[at] = 0
                continue
            if length <= 32 and start + 32 <= end:
                copy32(arena_bytes, used * 8, values, start)
            else:
                copy_bytes(arena_bytes, used * 8, values, start, length)
            rows[at] = (used << 27) | length
            used += need
    return used, garbage, growth


@kernel("i8[:] i8[:] i4[:]")
def measure_refs(refs, arena, offsets):  # type: ignore[no-untyped-def]
    """Arrow offsets of the referred strings; returns their total length (offsets are void if it passes 2 GiB)."""
    total = 0
    offsets[0] = 0
    for i in range(refs.shape[0]):
        total += length_of(refs[i], arena)
        offsets[i + 1] = np.int32(total & 0x7FFFFFFF)
    return total


@kernel("i8[:] u1[:] i4[:] u1[:]")
def copy_refs(refs, arena_bytes, offsets, out):  # type: ignore[no-untyped-def]
    """The referred strings one after the other. `out` and the arena have 32 bytes to spare."""
    n = refs.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            ahead = (refs[i + _AHEAD] >> 27) * 8
            prefetch(arena_bytes, ahead)
            prefetch(arena_bytes, ahead + 31)
        start = (refs[i] >> 27) * 8
        at = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - at
        if length <= 32:
            copy32(out, at, arena_bytes, start)
        else:
            copy_bytes(out, at, arena_bytes, start + (8 if length >= HUGE else 0), length)


@kernel("i8[:] i8 i8 i8 u1[:] u1[:]")
def compact_refs(rows, stride, offset, limit, arena_bytes, target_bytes):  # type: ignore[no-untyped-def]
    """Copy every string in use to the target, in slot order and without spare words; returns the words used there."""
    used = np.int64(0)
    for s in range(limit):
        if s + _AHEAD < limit:
            prefetch(arena_bytes, (rows[(s + _AHEAD) * stride + offset] >> 27) * 8)
        ref = rows[s * stride + offset]
        if ref != 0:
            code = ref & _CODE
            words = (code - HUGE) * UNIT if code >= HUGE else (code + 7) >> 3
            copy_bytes(target_bytes, used * 8, arena_bytes, (ref >> 27) * 8, words * 8)
            rows[s * stride + offset] = (used << 27) | code if words > 0 else 0
            used += words
    return used


@kernel("i8[:] i8 i8 i4[:] i8[:]")
def release_refs(rows, stride, offset, slots, arena):  # type: ignore[no-untyped-def]
    """Forget the strings of these slots; returns (words that became garbage, bytes of the strings)."""
    freed = 0
    text = 0
    n = slots.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offset)
        if slots[i] >= 0:
            at = np.int64(slots[i]) * stride + offset
            ref = rows[at]
            if ref != 0:
                freed += words_of(ref)
                text += length_of(ref, arena)
                rows[at] = 0
    return freed, text
