"""The kernel of DELTA: merge a batch of changes, in order, into row images with timestamps.

Per row: one timestamp and a state. ABSENT: a slot just made. LIVE: every cell and the row's liveness carry the row's
timestamp. DEAD: a tombstone of that timestamp. MIXED: live, but cells differ in age; the row's timestamp is that of its
liveness (the newest put), and a side record holds the newest delete seen (`side[k, 0]`) and the timestamp of every cell
(MIN: never written since). TOUCHED is set on rows changed in the running batch.

A put of the key writes liveness, so cells are never newer than liveness. A LIVE row needs no memory of older deletes:
whatever they mask is older than every cell. That keeps one word per row enough unless somebody writes parts of rows.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import BLOCK, kernel, part, prefetch
from belvedere.engine.state.kernels.table import aim, enter, home, locate

_U = np.uint64
_S32 = _U(32)

ABSENT = 0
LIVE = 1
DEAD = 2
MIXED = 3
TOUCHED = 0x80
_MAX = np.int64(np.iinfo(np.int64).max)
MIN = np.int64(np.iinfo(np.int64).min)

# where the timestamp and the state stand beside the id of a slot
SLOT_WORDS = 4
TS_WORD = 2
FLAG_BYTE = 24

# what a change does to a cell
KEEP = 0
WRITE = 1
CLEAR = 2

# counters of a table
ROWS = 0
TOMBSTONES = 1
SIDE_USED = 2
SIDE_FREE = 3
MIXED_ROWS = 4


@part
def give_side(side_free, counts, k):  # type: ignore[no-untyped-def]
    side_free[counts[SIDE_FREE]] = k
    counts[SIDE_FREE] += 1
    counts[MIXED_ROWS] -= 1


@part
def take_side(side_free, counts):  # type: ignore[no-untyped-def]
    counts[MIXED_ROWS] += 1
    if counts[SIDE_FREE] > 0:
        counts[SIDE_FREE] -= 1
        k = np.int64(side_free[counts[SIDE_FREE]])
    else:
        k = counts[SIDE_USED]
        counts[SIDE_USED] = k + 1
    return k


@part
def delete_mixed(words, at, flags, at_flag, side, side_free, counts, k, t, cells, i):  # type: ignore[no-untyped-def]
    """A delete at `t` of a row whose cells differ in age; returns whether the row changed."""
    if t <= side[k, 0]:
        return False
    if words[at] <= t:
        flags[at_flag] = DEAD | (flags[at_flag] & TOUCHED)
        words[at] = t
        give_side(side_free, counts, k)
        counts[ROWS] -= 1
        counts[TOMBSTONES] += 1
        return True
    side[k, 0] = t
    masked = False
    for c in range(side.shape[1] - 1):
        if side[k, 1 + c] != MIN and side[k, 1 + c] <= t:
            side[k, 1 + c] = MIN
            cells[c, i] = CLEAR
            masked = True
    return masked


@part
def put_mixed(words, at, flags, at_flag, side, side_free, counts, k, t, present, full, cells, i):  # type: ignore[no-untyped-def]
    """A put at `t` of a row whose cells differ in age; returns whether a cell was written."""
    if t <= side[k, 0]:
        return False
    wrote = False
    even = True
    newest = max(words[at], t)
    for c in range(side.shape[1] - 1):
        if (full or present[c, i] != 0) and t >= side[k, 1 + c]:
            side[k, 1 + c] = t
            cells[c, i] = WRITE
            wrote = True
        even = even and side[k, 1 + c] == newest
    words[at] = newest
    if even:
        give_side(side_free, counts, k)
        flags[at_flag] = LIVE | (flags[at_flag] & TOUCHED)
    return wrote


@part
def put_part(side, k, tombstone, others, t, present, cells, i, clear):  # type: ignore[no-untyped-def]
    """Begin a side record: cells present get `t`, the others carry `others`."""
    side[k, 0] = tombstone
    for c in range(side.shape[1] - 1):
        if present[c, i] != 0:
            side[k, 1 + c] = t
            cells[c, i] = WRITE
        else:
            side[k, 1 + c] = others
            if clear:
                cells[c, i] = CLEAR


@kernel(
    "u8[:] u8[:,:] i4[:] i8[:] i8[:] u1[:] i4[:] i8[:,:] i4[:] i8[:] u8[:,:] i8[:] b1[:] u1[:,:] i4[:] "
    "i4[:] i4[:] u1[:,:] i4[:] u1[:] i8[:] i8[:]"
)
def merge(  # type: ignore[no-untyped-def]
    entries, ids, free, ctl, words, flags, side_of, side, side_free, counts,
    wanted, ts, delete, present, slots, whole, made, cells, touched, before, change, repeated,
):  # fmt: skip
    """`slots`: row of every change. `whole`: that row where the change replaces all of it, else -1. `made`: where it is
    new. `cells`: for each cell what the change does (only if rows are written in part). `touched`, `before`, `change`:
    rows that changed, whether they were live, the (first) change that did it. `repeated`: later changes of touched
    rows. Returns (touched rows, repeated changes, changes of parts)."""
    n = wanted.shape[0]
    partial = present.shape[1] > 0
    deletes = delete.shape[0] > 0
    pos = np.empty(BLOCK, np.int64)
    m = 0
    r = 0
    parts = 0
    for b in range(0, n, BLOCK):
        stop = min(b + BLOCK, n)
        for i in range(b, stop):
            prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(b, stop):
            aim(entries, ids, pos, i - b, wanted[i, 0])
        for i in range(b, stop):
            s, p = locate(entries, ids, pos[i - b], wanted[i, 0], wanted[i, 1])
            fresh = s < 0
            if fresh:
                s = enter(entries, ids, free, ctl, p, wanted[i, 0], wanted[i, 1])
            slots[i] = s
            whole[i] = -1
            made[i] = s if fresh else -1
            t = ts[i]
            at = s * SLOT_WORDS + TS_WORD
            at_flag = s * SLOT_WORDS * 8 + FLAG_BYTE
            flag = flags[at_flag]
            state = flag & 0x7F
            done = False
            if deletes and delete[i]:
                if state == LIVE:
                    if t >= words[at]:
                        flags[at_flag] = DEAD | (flag & TOUCHED)
                        words[at] = t
                        counts[ROWS] -= 1
                        counts[TOMBSTONES] += 1
                        done = True
                elif state == DEAD:
                    words[at] = max(words[at], t)
                elif state == MIXED:
                    done = delete_mixed(
                        words, at, flags, at_flag, side, side_free, counts, np.int64(side_of[s]), t, cells, i
                    )
                    parts += done
                else:
                    flags[at_flag] = DEAD
                    words[at] = t
                    counts[TOMBSTONES] += 1
                    done = True
            else:
                full = True
                if partial:
                    for c in range(present.shape[0]):
                        full = full and present[c, i] != 0
                if state == LIVE:
                    if t >= words[at]:
                        if full:
                            words[at] = t
                            whole[i] = s
                            done = True
                        elif t == words[at]:
                            for c in range(present.shape[0]):
                                if present[c, i] != 0:
                                    cells[c, i] = WRITE
                                    done = True
                            parts += done
                        else:
                            k = take_side(side_free, counts)
                            side_of[s] = k
                            put_part(side, k, MIN, words[at], t, present, cells, i, False)
                            flags[at_flag] = MIXED | (flag & TOUCHED)
                            words[at] = t
                            done = True
                            parts += 1
                elif state == MIXED:
                    k = np.int64(side_of[s])
                    if full and t >= words[at] and t > side[k, 0]:
                        give_side(side_free, counts, k)
                        flags[at_flag] = LIVE | (flag & TOUCHED)
                        words[at] = t
                        whole[i] = s
                        done = True
                    else:
                        done = put_mixed(
                            words, at, flags, at_flag, side, side_free, counts, k, t, present, full, cells, i
                        )
                        parts += done
                elif state == ABSENT or t > words[at]:
                    tombstone = MIN
                    if state == DEAD:
                        tombstone = words[at]
                        counts[TOMBSTONES] -= 1
                    counts[ROWS] += 1
                    words[at] = t
                    done = True
                    if full:
                        flags[at_flag] = LIVE | (flag & TOUCHED)
                        whole[i] = s
                    else:
                        k = take_side(side_free, counts)
                        side_of[s] = k
                        put_part(side, k, tombstone, MIN, t, present, cells, i, True)
                        flags[at_flag] = MIXED | (flag & TOUCHED)
                        parts += 1
            if done:
                if flag & TOUCHED:
                    repeated[r] = i
                    r += 1
                else:
                    flags[at_flag] |= TOUCHED
                    touched[m] = s
                    before[m] = state & 1  # LIVE or MIXED
                    change[m] = i
                    m += 1
    return m, r, parts


@kernel("u1[:] i4[:] u1[:]")
def untouch(flags, touched, after):  # type: ignore[no-untyped-def]
    """End of the batch: clear the marks and tell which touched rows are live. Returns how many are."""
    n = touched.shape[0]
    live = 0
    for i in range(n):
        if i + 16 < n:
            prefetch(flags, np.int64(touched[i + 16]) * SLOT_WORDS * 8)
        at = np.int64(touched[i]) * SLOT_WORDS * 8 + FLAG_BYTE
        flags[at] &= 0x7F
        after[i] = flags[at] & 1
        live += after[i]
    return live


@kernel("i4[:] i8[:] i4[:] i8[:]")
def last_changes(touched, change, slots, repeated):  # type: ignore[no-untyped-def]
    """For rows changed several times, let `change` name the last one. Few rows are: a small table of those is
    enough."""
    size = 16
    while size < 2 * repeated.shape[0]:
        size *= 2
    keys = np.zeros(size, np.int32)
    last = np.empty(size, np.int64)
    for j in range(repeated.shape[0]):
        s = slots[repeated[j]]
        p = (np.int64(s) * 0x9E3779B1 >> 12) & (size - 1)
        while keys[p] != 0 and keys[p] != s + 1:
            p = (p + 1) & (size - 1)
        keys[p] = s + 1
        last[p] = repeated[j]
    for i in range(touched.shape[0]):
        s = touched[i]
        p = (np.int64(s) * 0x9E3779B1 >> 12) & (size - 1)
        while keys[p] != 0:
            if keys[p] == s + 1:
                change[i] = last[p]
                break
            p = (p + 1) & (size - 1)
