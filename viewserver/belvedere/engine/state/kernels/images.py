"""Kernels that compare and pick rows of batches; columns are given by address and width, strings by offsets and
bytes."""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import (
    copy32,
    copy_bytes,
    kernel,
    load64,
    load_1,
    load_4,
    load_8,
    store_1,
    store_4,
    store_8,
)


@kernel("i8 i8 i8[:] u1[:] i8 i8[:] u1[:] u1[:]")
def differ_fixed(width, old, old_at, old_status, new, new_at, new_status, differ):  # type: ignore[no-untyped-def]
    """Mark pairs (old[old_at[i]], new[new_at[i]]) whose status or bytes differ. Empty status: all values."""
    for i in range(differ.shape[0]):
        if differ[i]:
            continue
        a = old_at[i]
        b = new_at[i]
        x = old_status[a] if old_status.shape[0] > 0 else np.uint8(1)
        y = new_status[b] if new_status.shape[0] > 0 else np.uint8(1)
        if x != y:
            differ[i] = 1
        elif x == 1:
            if width == 8:
                differ[i] = load_8(old, a, 8) != load_8(new, b, 8)
            elif width == 4:
                differ[i] = load_4(old, a, 4) != load_4(new, b, 4)
            elif width == 1:
                differ[i] = load_1(old, a, 1) != load_1(new, b, 1)
            else:
                low = load_8(old, a, 16) != load_8(new, b, 16)
                differ[i] = low or load_8(old + 8, a, 16) != load_8(new + 8, b, 16)


@kernel("i4[:] u1[:] i8[:] u1[:] i4[:] u1[:] i8[:] u1[:] u1[:]")
def differ_strings(  # type: ignore[no-untyped-def]
    old, old_bytes, old_at, old_status, new, new_bytes, new_at, new_status, differ
):
    for i in range(differ.shape[0]):
        if differ[i]:
            continue
        a = old_at[i]
        b = new_at[i]
        x = old_status[a] if old_status.shape[0] > 0 else np.uint8(1)
        y = new_status[b] if new_status.shape[0] > 0 else np.uint8(1)
        if x != y:
            differ[i] = 1
        elif x == 1:
            p = np.int64(old[a])
            q = np.int64(new[b])
            length = np.int64(old[a + 1]) - p
            if length != np.int64(new[b + 1]) - q:
                differ[i] = 1
            else:
                j = 0
                while j + 8 <= length and load64(old_bytes, p + j) == load64(new_bytes, q + j):
                    j += 8
                while j < length and old_bytes[p + j] == new_bytes[q + j]:
                    j += 1
                differ[i] = j < length


@kernel("u1[:] u1[:] u1[:] i4[:] i8[:] i8[:] u8[:,:] i4[:] i8[:] i8[:] i8[:] u8[:,:] i4[:] u1[:]")
def select(  # type: ignore[no-untyped-def]
    before, after, changed, pair, change, source, ids, slots,
    old_rows, old_changes, new_rows, out_ids, out_slots, paired,
):  # fmt: skip
    """Rows to emit, of touched rows: first old images (`old_rows`: rank among rows that were live, `old_changes`: the
    change that touched it, `paired`: whether it has a new image), then new ones (`new_rows`: where it stands).
    `changed`: per pair of images. Returns how many of each."""
    o = 0
    was = 0
    for k in range(before.shape[0]):
        if before[k]:
            if not after[k] or changed[pair[k]]:
                c = change[k]
                old_rows[o] = was
                old_changes[o] = c
                out_ids[o, 0] = ids[c, 0]
                out_ids[o, 1] = ids[c, 1]
                out_slots[o] = slots[k]
                paired[o] = after[k]
                o += 1
            was += 1
    n = 0
    now = 0
    for k in range(before.shape[0]):
        if after[k]:
            if not before[k] or changed[pair[k]]:
                c = change[k]
                new_rows[n] = source[now]
                out_ids[o + n, 0] = ids[c, 0]
                out_ids[o + n, 1] = ids[c, 1]
                out_slots[o + n] = slots[k]
                n += 1
            now += 1
    return o, n


@kernel("u1[:] u1[:] i8[:] i4[:] i8[:] i8[:]")
def pair_up(before, after, source, pair, old_at, new_at):  # type: ignore[no-untyped-def]
    """Number the touched rows that have both images; `source[rank among live rows]` is where the new image stands."""
    p = 0
    was = 0
    now = 0
    for k in range(before.shape[0]):
        if before[k] and after[k]:
            pair[k] = p
            old_at[p] = was
            new_at[p] = source[now]
            p += 1
        was += before[k]
        now += after[k]
    return p


@kernel("i8 i8 i8[:] i8")
def pick_fixed(width, source, index, target):  # type: ignore[no-untyped-def]
    """target[i] = source[index[i]]"""
    for i in range(index.shape[0]):
        if width == 8:
            store_8(target, i, 8, load_8(source, index[i], 8))
        elif width == 4:
            store_4(target, i, 4, load_4(source, index[i], 4))
        elif width == 1:
            store_1(target, i, 1, load_1(source, index[i], 1))
        else:
            store_8(target, i, 16, load_8(source, index[i], 16))
            store_8(target + 8, i, 16, load_8(source + 8, index[i], 16))


@kernel("i4[:] i8[:] i4[:] i8")
def measure_picks(offsets, index, out, at):  # type: ignore[no-untyped-def]
    """Arrow offsets out[at + 1 ...] of the picked strings, going on from out[at]; returns the last one."""
    total = np.int64(out[at])
    for i in range(index.shape[0]):
        total += np.int64(offsets[index[i] + 1]) - np.int64(offsets[index[i]])
        out[at + i + 1] = np.int32(total & 0x7FFFFFFF)
    return total


@kernel("i4[:] u1[:] i8[:] u1[:] i8")
def pick_strings(offsets, values, index, target, to):  # type: ignore[no-untyped-def]
    """Copy the picked strings to `target` from `to` on; `target` has 32 bytes to spare."""
    last = values.shape[0] - 32
    for i in range(index.shape[0]):
        start = np.int64(offsets[index[i]])
        length = np.int64(offsets[index[i] + 1]) - start
        if length <= 32 and start <= last:
            copy32(target, to, values, start)
        else:
            copy_bytes(target, to, values, start, length)
        to += length
