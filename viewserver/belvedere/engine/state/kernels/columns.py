"""Kernels that move columns in and out of rows kept by slot.

A row of state is a record of fixed width, so that touching a row costs one cache miss and not one per column. The kernels
take all columns of one item size at once: `offsets` (items from the start of the record), and for each the address and step (in
bytes) of its values outside. Slots below zero are skipped on the way in.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import (
    copy32,
    copy_bytes,
    kernel,
    load_1,
    load_4,
    load_8,
    prefetch,
    store_1,
    store_4,
    store_8,
)

_AHEAD = 16
_U = np.uint64
_S24 = _U(24)
CODE = _U(0xFFFFFF)
HUGE = 1 << 23
UNIT = 256
_ZERO = _U(0)


@kernel
def size_of(ref):  # type: ignore[no-untyped-def]
    """Bytes of the arena that a reference occupies."""
    code = np.int64(ref & CODE)
    return code if code < HUGE else (code - HUGE) * UNIT


@kernel
def gather_8(rows, stride, offsets, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        base = np.int64(slots[i]) * stride
        for c in range(k):
            store_8(addresses[c], i, steps[c], rows[base + offsets[c]])


@kernel
def gather_4(rows, stride, offsets, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        base = np.int64(slots[i]) * stride
        for c in range(k):
            store_4(addresses[c], i, steps[c], rows[base + offsets[c]])


@kernel
def gather_1(rows, stride, offsets, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        base = np.int64(slots[i]) * stride
        for c in range(k):
            store_1(addresses[c], i, steps[c], rows[base + offsets[c]])


@kernel
def scatter_8(rows, stride, offsets, addresses, steps, refs, slots, garbage):  # type: ignore[no-untyped-def]
    """`refs[c]` nonzero: column c is a string reference; what the overwritten one occupied goes to `garbage[c]`."""
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        if slots[i] < 0:
            continue
        base = np.int64(slots[i]) * stride
        for c in range(k):
            if refs[c] != 0:
                garbage[c] += size_of(_U(rows[base + offsets[c]]))
            rows[base + offsets[c]] = load_8(addresses[c], i, steps[c])


@kernel
def scatter_4(rows, stride, offsets, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        if slots[i] < 0:
            continue
        base = np.int64(slots[i]) * stride
        for c in range(k):
            rows[base + offsets[c]] = load_4(addresses[c], i, steps[c])


@kernel
def scatter_1(rows, stride, offsets, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offsets[0])
        if slots[i] < 0:
            continue
        base = np.int64(slots[i]) * stride
        for c in range(k):
            rows[base + offsets[c]] = load_1(addresses[c], i, steps[c])


@kernel
def gather_status(flags, slots, out):  # type: ignore[no-untyped-def]
    """Flags are kept inverted (0 = VALUE), so memory never touched says VALUE. Returns whether any row is not a value."""
    n = slots.shape[0]
    seen = np.uint8(0)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(flags, np.int64(slots[i + _AHEAD]))
        f = flags[slots[i]]
        seen |= f
        out[i] = f ^ np.uint8(1)
    return seen != 0


@kernel
def scatter_status(flags, slots, status):  # type: ignore[no-untyped-def]
    """An empty `status` means that all rows are values."""
    n = slots.shape[0]
    checked = status.shape[0] > 0
    for i in range(n):
        if slots[i] >= 0:
            flags[slots[i]] = (status[i] ^ np.uint8(1)) if checked else np.uint8(0)


@kernel
def make_refs(offsets, base, slots, status, refs):  # type: ignore[no-untyped-def]
    """References to strings that were copied to the arena as one block at `base`; returns the bytes nobody refers to."""
    checked = status.shape[0] > 0
    wasted = 0
    shift = base - np.int64(offsets[0])
    for i in range(offsets.shape[0] - 1):
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        if length == 0 or slots[i] < 0 or (checked and status[i] != 1):
            refs[i] = 0
            wasted += length
        else:
            refs[i] = _U((start + shift) << 24) | _U(length)
    return wasted


@kernel
def occupied(offsets, slots, status):  # type: ignore[no-untyped-def]
    """Arena bytes for strings stored one by one, when some of them are huge."""
    checked = status.shape[0] > 0
    total = 0
    for i in range(offsets.shape[0] - 1):
        if slots[i] >= 0 and not (checked and status[i] != 1):
            length = np.int64(offsets[i + 1]) - np.int64(offsets[i])
            total += length if length < HUGE else (length + 8 + UNIT - 1) // UNIT * UNIT
    return total


@kernel
def append_each(offsets, values, base, slots, status, arena, refs):  # type: ignore[no-untyped-def]
    """Store strings one by one; a huge one is preceded by its exact length in eight bytes."""
    checked = status.shape[0] > 0
    at = base
    for i in range(offsets.shape[0] - 1):
        refs[i] = 0
        start = np.int64(offsets[i])
        length = np.int64(offsets[i + 1]) - start
        if length == 0 or slots[i] < 0 or (checked and status[i] != 1):
            continue
        if length < HUGE:
            copy_bytes(arena, at, values, start, length)
            refs[i] = _U(at << 24) | _U(length)
            at += length
        else:
            units = (length + 8 + UNIT - 1) // UNIT
            for b in range(8):
                arena[at + b] = np.uint8((length >> (8 * b)) & 0xFF)
            copy_bytes(arena, at + 8, values, start, length)
            refs[i] = _U(at << 24) | _U(HUGE + units)
            at += units * UNIT


@kernel
def length_of(ref, arena):  # type: ignore[no-untyped-def]
    code = np.int64(ref & CODE)
    if code < HUGE:
        return code
    at = np.int64(ref >> _S24)
    length = np.int64(0)
    for b in range(8):
        length |= np.int64(arena[at + b]) << (8 * b)
    return length


@kernel
def measure_refs(refs, arena, offsets):  # type: ignore[no-untyped-def]
    """Arrow offsets of the referred strings; returns their total length (offsets are void if it passes 2 GiB)."""
    total = 0
    offsets[0] = 0
    for i in range(refs.shape[0]):
        total += length_of(refs[i], arena)
        offsets[i + 1] = np.int32(total & 0x7FFFFFFF)
    return total


@kernel
def copy_refs(refs, arena, out):  # type: ignore[no-untyped-def]
    """The referred strings one after the other. `out` and `arena` have 32 bytes to spare."""
    n = refs.shape[0]
    at = 0
    for i in range(n):
        if i + _AHEAD < n:
            ahead = np.int64(refs[i + _AHEAD] >> _S24)
            prefetch(arena, ahead)
            prefetch(arena, ahead + 31)
        start = np.int64(refs[i] >> _S24)
        length = np.int64(refs[i] & CODE)
        if length <= 32:
            copy32(out, at, arena, start)
        else:
            if length >= HUGE:
                length = length_of(refs[i], arena)
                start += 8
            copy_bytes(out, at, arena, start, length)
        at += length


@kernel
def compact_refs(rows, stride, offset, limit, arena, target):  # type: ignore[no-untyped-def]
    """Copy every string in use to `target`, in slot order; returns the bytes used there."""
    at = np.int64(0)
    for s in range(limit):
        if s + _AHEAD < limit:
            prefetch(arena, np.int64(_U(rows[(s + _AHEAD) * stride + offset]) >> _S24))
        ref = _U(rows[s * stride + offset])
        if ref != _ZERO:
            size = size_of(ref)
            copy_bytes(target, at, arena, np.int64(ref >> _S24), size)
            rows[s * stride + offset] = np.int64(_U(at << 24) | (ref & CODE))
            at += size
    return at


@kernel
def release_refs(rows, stride, offset, slots):  # type: ignore[no-untyped-def]
    """Forget the strings of these slots; returns the arena bytes that became garbage."""
    freed = 0
    n = slots.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            prefetch(rows, np.int64(slots[i + _AHEAD]) * stride + offset)
        if slots[i] >= 0:
            p = np.int64(slots[i]) * stride + offset
            freed += size_of(_U(rows[p]))
            rows[p] = 0
    return freed
