"""The kernel of DELTA for tables whose deletes take cells (HBase's rules): merge a batch of changes, in order.

A row is LIVE if every cell was put with the row's timestamp and nothing was deleted. Anything else has a side record,
as int64 words:

    number of the newest handful of tombstones (-1: none), first version tombstone (-1: none),
    then per cell: timestamp of its put (MIN: no cell), and up to which timestamp its versions are masked (MIN: none)

and is MIXED if a cell lives, else DEAD. Version tombstones ("the version of exactly that timestamp is gone") are few:
they are nodes of a list, (timestamp, 2 * cell + seen, next). `seen` says that such a put was here, so that an older
one, which DELTA has not kept, may be uncovered: then what the cell holds is open until a newer put or delete decides,
or the row is read again. An open cell has no timestamp, and puts below the uncovered version do not decide it.

Masks outlive the puts that come after them: an older put, or a deleted version, meets them as it does in HBase. So what
is here depends on the set of changes and not on their order, but for puts of one cell and timestamp.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import BLOCK, kernel, part, prefetch
from belvedere.engine.state.kernels.merge import (
    ABSENT,
    CLEAR,
    DEAD,
    FLAG_BYTE,
    LIVE,
    MIN,
    MIXED,
    MIXED_ROWS,
    ROWS,
    SIDE_FREE,
    SIDE_USED,
    SLOT_WORDS,
    TOMBSTONES,
    TOUCHED,
    TS_WORD,
    WRITE,
)
from belvedere.engine.state.kernels.table import aim, enter, home, locate

_S32 = np.uint64(32)

# kinds of changes, as in `delta.CellChange`
PUT = 0
DELETE = 1
DELETE_VERSION = 2
SCANNED = 3
FORGOTTEN = 4

# what a change does to a cell, besides KEEP, WRITE and CLEAR
OPEN = 3

# words of a side record
NUMBER = 0
VERSIONS = 1
HEAD = 2
"""Words before the cells."""

# counters after those of `merge`
NODE_USED = 5
NODE_FREE = 6
"""First free node + 1."""
COUNTS = 7


@part
def take_record(side, side_free, counts, t):  # type: ignore[no-untyped-def]
    """A side record whose cells were all put at `t`."""
    if counts[SIDE_FREE] > 0:
        counts[SIDE_FREE] -= 1
        k = np.int64(side_free[counts[SIDE_FREE]])
    else:
        k = counts[SIDE_USED]
        counts[SIDE_USED] = k + 1
    side[k, NUMBER] = -1
    side[k, VERSIONS] = -1
    for c in range((side.shape[1] - HEAD) // 2):
        side[k, HEAD + 2 * c] = t
        side[k, HEAD + 2 * c + 1] = MIN
    return k


@part
def drop_node(nodes, counts, node):  # type: ignore[no-untyped-def]
    nodes[node, 2] = counts[NODE_FREE] - 1
    counts[NODE_FREE] = node + 1


@part
def give_record(side, side_free, counts, nodes, k):  # type: ignore[no-untyped-def]
    node = side[k, VERSIONS]
    while node >= 0:
        after = nodes[node, 2]
        drop_node(nodes, counts, node)
        node = after
    side_free[counts[SIDE_FREE]] = k
    counts[SIDE_FREE] += 1


@part
def find_version(nodes, node, c, t):  # type: ignore[no-untyped-def]
    while node >= 0:
        if nodes[node, 0] == t and nodes[node, 1] >> 1 == c:
            return node
        node = nodes[node, 2]
    return np.int64(-1)


@part
def add_version(side, nodes, counts, k, c, t):  # type: ignore[no-untyped-def]
    if counts[NODE_FREE] > 0:
        node = counts[NODE_FREE] - 1
        counts[NODE_FREE] = nodes[node, 2] + 1
    else:
        node = counts[NODE_USED]
        counts[NODE_USED] = node + 1
    nodes[node, 0] = t
    nodes[node, 1] = 2 * c
    nodes[node, 2] = side[k, VERSIONS]
    side[k, VERSIONS] = node
    return node


@part
def uncovered(side, nodes, k, c):  # type: ignore[no-untyped-def]
    """The newest version of an open cell that was deleted; MIN if the cell is not open."""
    newest = MIN
    least = max(side[k, HEAD + 2 * c], side[k, HEAD + 2 * c + 1])
    node = side[k, VERSIONS]
    while node >= 0:
        if nodes[node, 1] == 2 * c + 1 and nodes[node, 0] > least:
            newest = max(newest, nodes[node, 0])
        node = nodes[node, 2]
    return newest


@part
def has_cells(side, k):  # type: ignore[no-untyped-def]
    some = False
    for c in range((side.shape[1] - HEAD) // 2):
        some = some or side[k, HEAD + 2 * c] != MIN
    return some


@part
def has_open_cells(side, nodes, k):  # type: ignore[no-untyped-def]
    if side[k, VERSIONS] >= 0:
        for c in range((side.shape[1] - HEAD) // 2):
            if uncovered(side, nodes, k, c) != MIN:
                return True
    return False


@part
def change_cell(side, nodes, counts, k, c, t, kind):  # type: ignore[no-untyped-def]
    """What a change does to one cell of a record: (action, whether a tombstone came, whether it was a masked put)."""
    at = HEAD + 2 * c
    put = side[k, at]
    mask = side[k, at + 1]
    if kind == DELETE:
        if t <= mask:
            return 0, False, False
        opened = put == MIN and side[k, VERSIONS] >= 0 and uncovered(side, nodes, k, c) != MIN
        side[k, at + 1] = t
        if put != MIN and put <= t:
            side[k, at] = MIN
            return CLEAR, True, False
        if opened and uncovered(side, nodes, k, c) == MIN:
            return CLEAR, True, False
        return 0, True, False
    if kind == DELETE_VERSION:
        if t <= mask:
            return 0, True, False
        node = find_version(nodes, side[k, VERSIONS], c, t)
        if node >= 0:
            return 0, False, False
        node = add_version(side, nodes, counts, k, c, t)
        if put == t:
            nodes[node, 1] |= 1
            side[k, at] = MIN
            return OPEN, True, False
        return 0, True, False
    if t <= mask:
        return 0, False, put == MIN and kind == PUT
    if side[k, VERSIONS] >= 0:
        node = find_version(nodes, side[k, VERSIONS], c, t)
        if node >= 0:
            before = uncovered(side, nodes, k, c)
            nodes[node, 1] |= 1
            if uncovered(side, nodes, k, c) > before:
                side[k, at] = MIN
                return (OPEN if before == MIN else 0), False, False
            return 0, False, False
        if put == MIN and t < uncovered(side, nodes, k, c):
            return 0, False, False
    if t > put or (t == put and kind == PUT):
        side[k, at] = t
        return WRITE, False, False
    return 0, False, False


@part
def forget_row(side, nodes, counts, k):  # type: ignore[no-untyped-def]
    """Nothing was ever put or deleted, as far as this record knows."""
    node = side[k, VERSIONS]
    while node >= 0:
        after = nodes[node, 2]
        drop_node(nodes, counts, node)
        node = after
    side[k, VERSIONS] = -1
    for j in range(HEAD, side.shape[1]):
        side[k, j] = MIN


@part
def is_even(side, k):  # type: ignore[no-untyped-def]
    """Whether a record says no more than one timestamp does."""
    if side[k, NUMBER] >= 0 or side[k, VERSIONS] >= 0:
        return False
    for c in range((side.shape[1] - HEAD) // 2):
        if side[k, HEAD + 2 * c] != side[k, HEAD] or side[k, HEAD + 2 * c + 1] != MIN:
            return False
    return side[k, HEAD] != MIN


@kernel(
    "u8[:] u8[:,:] i4[:] i8[:] i8[:] u1[:] i4[:] i8[:,:] i4[:] i8[:] i8[:,:] u8[:,:] i8[:] u1[:] u1[:,:] i4[:] "
    "i4[:] i4[:] u1[:,:] i4[:] u1[:] i8[:] i8[:] u1[:] i4[:] i8[:]"
)
def merge_cells(  # type: ignore[no-untyped-def]
    entries, ids, free, ctl, words, flags, side_of, side, side_free, counts, nodes,
    wanted, ts, kinds, present, slots, whole, made, cells, touched, before, change, repeated, was_open, buried, masked,
):  # fmt: skip
    """As `merge.merge`. `kinds`: empty if all are puts. `was_open`: of rows that changed, whether they were live only
    by cells that are open. `buried`: slots that got a tombstone. `masked`: puts below a mask in cells that are absent.
    Returns (touched rows, repeated changes, changes of parts, buried, masked)."""
    n = wanted.shape[0]
    partial = present.shape[1] > 0
    width = (side.shape[1] - HEAD) // 2
    pos = np.empty(BLOCK, np.int64)
    m = 0
    r = 0
    parts = 0
    b = 0
    d = 0
    for begin in range(0, n, BLOCK):
        stop = min(begin + BLOCK, n)
        for i in range(begin, stop):
            prefetch(entries, home(entries, wanted[i, 0] >> _S32))
        for i in range(begin, stop):
            aim(entries, ids, pos, i - begin, wanted[i, 0])
        for i in range(begin, stop):
            s, p = locate(entries, ids, pos[i - begin], wanted[i, 0], wanted[i, 1])
            fresh = s < 0
            if fresh:
                s = enter(entries, ids, free, ctl, p, wanted[i, 0], wanted[i, 1])
            slots[i] = s
            whole[i] = -1
            made[i] = s if fresh else -1
            t = ts[i]
            kind = kinds[i] if kinds.shape[0] > 0 else np.uint8(PUT)
            at = s * SLOT_WORDS + TS_WORD
            at_flag = s * SLOT_WORDS * 8 + FLAG_BYTE
            flag = flags[at_flag]
            state = flag & 0x7F
            full = True
            if partial:
                for c in range(width):
                    full = full and present[c, i] != 0
            put = kind in (PUT, SCANNED)
            done = False
            open_before = False
            if state == LIVE and put and (t < words[at] or (t == words[at] and kind == SCANNED)):
                pass
            elif full and put and state in (LIVE, ABSENT):
                if state == ABSENT:
                    counts[ROWS] += 1
                flags[at_flag] = LIVE | (flag & TOUCHED)
                words[at] = t
                whole[i] = s
                done = True
            elif state == LIVE and put and t == words[at]:
                for c in range(width):
                    if present[c, i] != 0:
                        cells[c, i] = WRITE
                        done = True
                parts += done
            else:
                if state in (LIVE, ABSENT):
                    k = take_record(side, side_free, counts, words[at] if state == LIVE else MIN)
                    side_of[s] = k
                    counts[MIXED_ROWS] += 1
                else:
                    k = np.int64(side_of[s])
                if state == MIXED:
                    open_before = not has_cells(side, k)
                tombstone = False
                doubt = False
                if kind == FORGOTTEN:
                    forget_row(side, nodes, counts, k)
                    tombstone = True  # it goes with the next ones that are forgotten
                    done = state != DEAD
                    if done:
                        for c in range(width):
                            cells[c, i] = CLEAR
                for c in range(width):
                    if kind != FORGOTTEN and (full or present[c, i] != 0):
                        action, came, hidden = change_cell(side, nodes, counts, k, c, t, kind)
                        tombstone = tombstone or came
                        doubt = doubt or hidden
                        if action != 0:
                            cells[c, i] = action
                            done = True
                parts += done
                if tombstone:
                    side[k, NUMBER] = max(side[k, NUMBER], 0)
                    buried[b] = s
                    b += 1
                if doubt:
                    masked[d] = i
                    d += 1
                lives = has_cells(side, k) or has_open_cells(side, nodes, k)
                was = state in (LIVE, MIXED)
                if lives and not was:
                    # What stood here before, if anything did, was released.
                    for c in range(width):
                        if cells[c, i] == 0:
                            cells[c, i] = CLEAR
                    counts[ROWS] += 1
                    if state == DEAD:
                        counts[TOMBSTONES] -= 1
                elif not lives:
                    if was:
                        counts[ROWS] -= 1
                    if state != DEAD:
                        counts[TOMBSTONES] += 1
                newest = MIN
                for c in range(width):
                    newest = max(newest, side[k, HEAD + 2 * c], side[k, HEAD + 2 * c + 1])
                words[at] = newest
                state_now = MIXED if lives else DEAD
                if is_even(side, k):
                    give_record(side, side_free, counts, nodes, k)
                    counts[MIXED_ROWS] -= 1
                    state_now = LIVE
                flags[at_flag] = state_now | (flag & TOUCHED)
            if done:
                if flag & TOUCHED:
                    repeated[r] = i
                    r += 1
                else:
                    flags[at_flag] |= TOUCHED
                    touched[m] = s
                    before[m] = state & 1  # LIVE or MIXED
                    was_open[m] = open_before
                    change[m] = i
                    m += 1
    return m, r, parts, b, d


@kernel("u1[:] i4[:] i8[:,:] i8[:,:] i4[:] u1[:]")
def open_rows(flags, side_of, side, nodes, slots, out):  # type: ignore[no-untyped-def]
    """Marks rows that are live only by cells that are open; returns how many are."""
    count = 0
    for i in range(slots.shape[0]):
        s = np.int64(slots[i])
        out[i] = (flags[s * SLOT_WORDS * 8 + FLAG_BYTE] & 0x7F) == MIXED and not has_cells(side, np.int64(side_of[s]))
        count += out[i]
    return count


@kernel("u1[:] i4[:] i8[:,:] i8[:,:] i4[:] i4[:]")
def rows_with_open_cells(flags, side_of, side, nodes, slots, out):  # type: ignore[no-untyped-def]
    """The rows among these that have an open cell; returns how many."""
    count = 0
    for i in range(slots.shape[0]):
        s = np.int64(slots[i])
        mixed = (flags[s * SLOT_WORDS * 8 + FLAG_BYTE] & 0x7F) == MIXED
        if mixed and has_open_cells(side, nodes, np.int64(side_of[s])):
            out[count] = slots[i]
            count += 1
    return count


@kernel("i8[:] u1[:] i4[:] i8[:,:] i8[:,:] i4[:] u1 i8[:,:]")
def describe_cells(words, flags, side_of, side, nodes, slots, masks, out):  # type: ignore[no-untyped-def]
    """Two words for each cell of these rows: when it was put (MIN: it is absent), and of an absent one the newest
    version that is known to be gone: one that was deleted where it is open, and with `masks` what is masked, too."""
    width = (side.shape[1] - HEAD) // 2
    for i in range(slots.shape[0]):
        s = np.int64(slots[i])
        if (flags[s * SLOT_WORDS * 8 + FLAG_BYTE] & 0x7F) == LIVE:
            for c in range(width):
                out[2 * c, i] = words[s * SLOT_WORDS + TS_WORD]
                out[2 * c + 1, i] = MIN
            continue
        k = np.int64(side_of[s])
        for c in range(width):
            out[2 * c, i] = side[k, HEAD + 2 * c]
            out[2 * c + 1, i] = MIN
            if side[k, HEAD + 2 * c] == MIN:
                out[2 * c + 1, i] = uncovered(side, nodes, k, c)
                if masks:
                    out[2 * c + 1, i] = max(out[2 * c + 1, i], side[k, HEAD + 2 * c + 1])


@kernel("i8[:] u1[:] i4[:] i8[:,:] i4[:] i8[:] i8[:,:] i4[:] i8 i4[:]")
def forget_tombstones(words, flags, side_of, side, side_free, counts, nodes, slots, number, gone):  # type: ignore[no-untyped-def]
    """Forget the tombstones of rows that got none since this handful; versions that hold a cell open stay. `gone`: rows
    of which nothing is left. Returns how many these are."""
    width = (side.shape[1] - HEAD) // 2
    m = 0
    for i in range(slots.shape[0]):
        s = np.int64(slots[i])
        at_flag = s * SLOT_WORDS * 8 + FLAG_BYTE
        state = flags[at_flag]
        if state != DEAD and state != MIXED:
            continue
        k = np.int64(side_of[s])
        if side[k, NUMBER] != number:
            continue
        previous = np.int64(-1)
        node = side[k, VERSIONS]
        while node >= 0:
            after = nodes[node, 2]
            c = nodes[node, 1] >> 1
            least = max(side[k, HEAD + 2 * c], side[k, HEAD + 2 * c + 1])
            if nodes[node, 1] & 1 and nodes[node, 0] > least:
                previous = node
            else:
                if previous < 0:
                    side[k, VERSIONS] = after
                else:
                    nodes[previous, 2] = after
                drop_node(nodes, counts, node)
            node = after
        side[k, NUMBER] = -1
        newest = MIN
        for c in range(width):
            side[k, HEAD + 2 * c + 1] = MIN
            newest = max(newest, side[k, HEAD + 2 * c])
        if state == DEAD:
            give_record(side, side_free, counts, nodes, k)
            counts[MIXED_ROWS] -= 1
            counts[TOMBSTONES] -= 1
            flags[at_flag] = ABSENT
            gone[m] = slots[i]
            m += 1
        elif is_even(side, k):
            words[s * SLOT_WORDS + TS_WORD] = newest
            give_record(side, side_free, counts, nodes, k)
            counts[MIXED_ROWS] -= 1
            flags[at_flag] = LIVE
        else:
            words[s * SLOT_WORDS + TS_WORD] = newest
    return m


@kernel("i4[:] i8[:,:] i8[:,:] i4[:] i8[:] i8[:]")
def measure_records(side_of, side, nodes, slots, sizes, out):  # type: ignore[no-untyped-def]
    """Words that each of these records takes as `dump_records` writes it, and where it starts; returns the total."""
    total = np.int64(0)
    for i in range(slots.shape[0]):
        k = np.int64(side_of[np.int64(slots[i])])
        size = np.int64(side.shape[1])
        node = side[k, VERSIONS]
        while node >= 0:
            size += 2
            node = nodes[node, 2]
        out[i] = total
        sizes[i] = size
        total += size
    return total


@kernel("i4[:] i8[:,:] i8[:,:] i4[:] i8[:] i8[:]")
def dump_records(side_of, side, nodes, slots, starts, out):  # type: ignore[no-untyped-def]
    """Records one after the other: their words, in place of the list how many versions it has, then these as
    (2 * cell + seen, timestamp), in order, so that equal records have equal bytes."""
    width = side.shape[1]
    for i in range(slots.shape[0]):
        k = np.int64(side_of[np.int64(slots[i])])
        at = starts[i]
        for j in range(width):
            out[at + j] = side[k, j]
        count = 0
        node = side[k, VERSIONS]
        while node >= 0:
            q = at + width + 2 * count
            while q > at + width and (
                out[q - 2] > nodes[node, 1] or (out[q - 2] == nodes[node, 1] and out[q - 1] > nodes[node, 0])
            ):
                out[q] = out[q - 2]
                out[q + 1] = out[q - 1]
                q -= 2
            out[q] = nodes[node, 1]
            out[q + 1] = nodes[node, 0]
            count += 1
            node = nodes[node, 2]
        out[at + VERSIONS] = count


@kernel("i4[:] i8[:,:] i4[:] i8[:] i8[:,:] i4[:] i8[:] i8[:] i8[:] i8")
def load_records(side_of, side, side_free, counts, nodes, slots, starts, given, numbers, cells):  # type: ignore[no-untyped-def]
    """The inverse for slots that have no record yet. `cells`: how many cells the records have; there may be more by
    now, which are absent. `numbers`: their handfuls."""
    for i in range(slots.shape[0]):
        k = take_record(side, side_free, counts, MIN)
        counts[MIXED_ROWS] += 1
        side_of[np.int64(slots[i])] = k
        at = starts[i]
        side[k, NUMBER] = numbers[i]
        for j in range(2 * cells):
            side[k, HEAD + j] = given[at + HEAD + j]
        for j in range(given[at + VERSIONS]):
            q = at + HEAD + 2 * cells + 2 * j
            node = add_version(side, nodes, counts, k, given[q] >> 1, given[q + 1])
            nodes[node, 1] = given[q]


@kernel("i4[:] i8[:,:] i4[:] i8[:] i8[:,:] i4[:]")
def release_records(side_of, side, side_free, counts, nodes, slots):  # type: ignore[no-untyped-def]
    for i in range(slots.shape[0]):
        give_record(side, side_free, counts, nodes, np.int64(side_of[np.int64(slots[i])]))
        counts[MIXED_ROWS] -= 1
