"""Kernels that move columns in and out of rows kept by slot.

A row of state is a record of fixed width, so that touching a row costs one or two cache misses and not one per column.
The kernels take all columns at once: for each its offset in the record, its width (1, 4 or 8 bytes; a wide decimal is
two columns), and the address and step of its values outside. Slots below zero are skipped on the way in.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import (
    kernel,
    load_1,
    load_4,
    load_8,
    prefetch,
    prefetch_at,
    store_1,
    store_4,
    store_8,
)

_AHEAD = 16


@kernel("i8 i8 i8[:] i8[:] i8[:] i8[:] i4[:]")
def gather_rows(base, stride, offsets, widths, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n:
            ahead = base + np.int64(slots[i + _AHEAD]) * stride
            prefetch_at(ahead)
            prefetch_at(ahead + stride - 1)
        row = base + np.int64(slots[i]) * stride
        for c in range(k):
            if widths[c] == 8:
                store_8(addresses[c], i, steps[c], load_8(row + offsets[c], 0, 0))
            elif widths[c] == 4:
                store_4(addresses[c], i, steps[c], load_4(row + offsets[c], 0, 0))
            else:
                store_1(addresses[c], i, steps[c], load_1(row + offsets[c], 0, 0))


@kernel("i8 i8 i8[:] i8[:] i8[:] i8[:] i4[:]")
def scatter_rows(base, stride, offsets, widths, addresses, steps, slots):  # type: ignore[no-untyped-def]
    n = slots.shape[0]
    k = offsets.shape[0]
    for i in range(n):
        if i + _AHEAD < n and slots[i + _AHEAD] >= 0:
            ahead = base + np.int64(slots[i + _AHEAD]) * stride
            prefetch_at(ahead)
            prefetch_at(ahead + stride - 1)
        if slots[i] < 0:
            continue
        row = base + np.int64(slots[i]) * stride
        for c in range(k):
            if widths[c] == 8:
                store_8(row + offsets[c], 0, 0, load_8(addresses[c], i, steps[c]))
            elif widths[c] == 4:
                store_4(row + offsets[c], 0, 0, load_4(addresses[c], i, steps[c]))
            else:
                store_1(row + offsets[c], 0, 0, load_1(addresses[c], i, steps[c]))


@kernel("u1[:] i4[:] u1[:]")
def gather_status(flags, slots, out):  # type: ignore[no-untyped-def]
    """Flags are kept inverted (0 = VALUE), so memory never touched says VALUE. Returns whether any row is not a
    value."""
    n = slots.shape[0]
    seen = np.uint8(0)
    for i in range(n):
        if i + _AHEAD < n:
            prefetch(flags, np.int64(slots[i + _AHEAD]))
        f = flags[slots[i]]
        seen |= f
        out[i] = f ^ np.uint8(1)
    return seen != 0


@kernel("u1[:] i4[:] u1[:]")
def scatter_status(flags, slots, status):  # type: ignore[no-untyped-def]
    """An empty `status` means that all rows are values."""
    n = slots.shape[0]
    checked = status.shape[0] > 0
    for i in range(n):
        if slots[i] >= 0:
            flags[slots[i]] = (status[i] ^ np.uint8(1)) if checked else np.uint8(0)
