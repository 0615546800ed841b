"""Kernels that pack rows and parts of state into byte strings, and take them apart again.

Positions are int64 into one byte array; values stand at any alignment, little-endian. Everything here is generic: one
compiled variant serves every schema.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import (
    copy_bytes,
    kernel,
    load32,
    load_1,
    load_4,
    load_8,
    store_1,
    store_4,
    store_8,
)

LONG = 255
"""A part of this length or more has its length in four bytes behind this mark."""


@kernel("i8 i8[:] i8[:] i8[:] i8[:] i8[:] i8[:] u1[:,:]")
def pack_fixed(base, at, offsets, widths, addresses, steps, columns, status):  # type: ignore[no-untyped-def]
    """Write the fixed part of rows that begin at `base` + at[i]: for each port its offset, width and source. Where the
    status (by column, then row; may be empty) is not VALUE, zeros are written: bytes depend on nothing unspecified."""
    checked = status.shape[1] > 0
    for i in range(at.shape[0]):
        row = base + at[i]
        for c in range(offsets.shape[0]):
            blank = checked and status[columns[c], i] != 1
            if widths[c] == 8:
                store_8(row + offsets[c], 0, 0, np.int64(0) if blank else load_8(addresses[c], i, steps[c]))
            elif widths[c] == 4:
                store_4(row + offsets[c], 0, 0, np.int32(0) if blank else load_4(addresses[c], i, steps[c]))
            else:
                store_1(row + offsets[c], 0, 0, np.uint8(0) if blank else load_1(addresses[c], i, steps[c]))


@kernel("i8 i8[:] i8[:] i8[:] i8[:] i8[:]")
def unpack_fixed(base, at, offsets, widths, addresses, steps):  # type: ignore[no-untyped-def]
    """The inverse: read the fixed part of rows at `base` + at[i] into columns."""
    for i in range(at.shape[0]):
        row = base + at[i]
        for c in range(offsets.shape[0]):
            if widths[c] == 8:
                store_8(addresses[c], i, steps[c], load_8(row + offsets[c], 0, 0))
            elif widths[c] == 4:
                store_4(addresses[c], i, steps[c], load_4(row + offsets[c], 0, 0))
            else:
                store_1(addresses[c], i, steps[c], load_1(row + offsets[c], 0, 0))


@kernel("u1[:] i8[:] i8 b1[:] u1[:,:] b1[:] u1[:]")
def pack_tail(out, at, fixed, odd, status, failed, error):  # type: ignore[no-untyped-def]
    """The first byte of each row, and behind its fixed part the status of every column (where one is not VALUE) and the
    row's error (where it has one); `at` moves behind what was written."""
    columns = status.shape[0]
    for i in range(at.shape[0]):
        p = at[i]
        flags = np.uint8(0)
        q = p + fixed
        if odd[i]:
            flags |= np.uint8(1)
            for c in range(columns):
                out[q + c] = status[c, i]
            q += columns
        if failed[i]:
            flags |= np.uint8(2)
            out[q] = error[i]
            q += 1
        out[p] = flags
        at[i] = q


@kernel("u1[:] i8[:] i8 u1[:,:] u1[:]")
def unpack_tail(data, at, fixed, status, error):  # type: ignore[no-untyped-def]
    """Status bytes and errors; `at` moves to the first string. -> (some status is not VALUE, some row failed)."""
    columns = status.shape[0]
    odd = failed = False
    for i in range(at.shape[0]):
        p = at[i]
        q = p + fixed
        if data[p] & 1:
            odd = True
            for c in range(columns):
                status[c, i] = data[q + c]
            q += columns
        else:
            for c in range(columns):
                status[c, i] = 1
        error[i] = 1
        if data[p] & 2:
            failed = True
            error[i] = data[q]
            q += 1
        at[i] = q
    return odd, failed


@kernel("u1[:] i8[:] i4[:] i4[:] u1[:]")
def pack_text(out, at, starts, lengths, values):  # type: ignore[no-untyped-def]
    """Copy one string per row to its place; `at` moves behind it."""
    for i in range(at.shape[0]):
        n = np.int64(lengths[i])
        if n > 0:
            copy_bytes(out, at[i], values, np.int64(starts[i]), n)
            at[i] += n


@kernel("u1[:] i8[:] i4[:] u1[:]")
def unpack_text(data, at, offsets, out):  # type: ignore[no-untyped-def]
    """Copy one string per row from its place to `out` at the row's offset; `at` moves behind it."""
    for i in range(at.shape[0]):
        n = np.int64(offsets[i + 1]) - np.int64(offsets[i])
        if n > 0:
            copy_bytes(out, np.int64(offsets[i]), data, at[i], n)
            at[i] += n


@kernel("i8[:,:] i8[:,:] u1[:] i8[:] u1[:]")
def join_parts(starts, stops, data, at, out):  # type: ignore[no-untyped-def]
    """Row by row the parts (by part, then row) with their lengths before them; `at` moves behind each row."""
    parts = starts.shape[0]
    for i in range(at.shape[0]):
        p = at[i]
        for k in range(parts):
            n = stops[k, i] - starts[k, i]
            if n < LONG:
                out[p] = n
                p += 1
            else:
                out[p] = LONG
                for b in range(4):
                    out[p + 1 + b] = (n >> (8 * b)) & 255
                p += 5
            if n > 0:
                copy_bytes(out, p, data, starts[k, i], n)
            p += n
        at[i] = p


@kernel("i8[:] i8[:] u1[:] i8[:,:] i8[:,:]")
def split_parts(starts, stops, data, first, last):  # type: ignore[no-untyped-def]
    """Where the parts of each row begin and end; -> False if some row does not end with its last part."""
    parts = first.shape[0]
    sound = True
    for i in range(starts.shape[0]):
        p = starts[i]
        for k in range(parts):
            n = np.int64(0)
            if p < stops[i]:
                n = np.int64(data[p])
                p += 1
                if n == LONG:
                    n = np.int64(load32(data, p)) if p + 4 <= stops[i] else stops[i]
                    p += 4
            else:
                sound = False
            if p + n > stops[i]:
                sound = False
                n = np.int64(0)
            first[k, i] = p
            last[k, i] = p + n
            p += n
        sound &= p == stops[i]
    return sound


@kernel("i8[:] i8[:] u1[:] i8[:] i8[:,:] i8[:,:]")
def find_tags(starts, stops, data, tags, first, last):  # type: ignore[no-untyped-def]
    """Where the part of each tag begins and ends in rows of (tag, length, bytes); first = -1 where it is missing."""
    for i in range(starts.shape[0]):
        for k in range(tags.shape[0]):
            first[k, i] = -1
            last[k, i] = -1
        p = starts[i]
        while p + 8 <= stops[i]:
            tag = np.int64(load32(data, p))
            n = np.int64(load32(data, p + 4))
            p += 8
            for k in range(tags.shape[0]):
                if tags[k] == tag:
                    first[k, i] = p
                    last[k, i] = p + n
            p += n


@kernel("i8[:,:] i8[:,:] u1[:] i8[:] i8[:] u1[:]")
def join_tagged(starts, stops, data, tags, at, out):  # type: ignore[no-untyped-def]
    """Row by row the parts with their tags and lengths before them; empty parts are left out."""
    for i in range(at.shape[0]):
        p = at[i]
        for k in range(tags.shape[0]):
            n = stops[k, i] - starts[k, i]
            if n > 0:
                for b in range(4):
                    out[p + b] = (tags[k] >> (8 * b)) & 255
                    out[p + 4 + b] = (n >> (8 * b)) & 255
                copy_bytes(out, p + 8, data, starts[k, i], n)
                p += 8 + n
        at[i] = p


@kernel("i8[:] i8[:] u1[:] i8[:] u1[:]")
def gather_bytes(starts, stops, data, at, out):  # type: ignore[no-untyped-def]
    """Copy pieces of `data` to where `at` says."""
    for i in range(starts.shape[0]):
        n = stops[i] - starts[i]
        if n > 0:
            copy_bytes(out, at[i], data, starts[i], n)


@kernel("i8[:] i8[:] i8[:]")
def sort_segments(ends, values, weights):  # type: ignore[no-untyped-def]
    """Sort the values of each segment, their weights with them. They come nearly sorted (by leaves of a tree)."""
    begin = np.int64(0)
    for j in range(ends.shape[0]):
        end = ends[j]
        for i in range(begin + 1, end):
            v = values[i]
            w = weights[i]
            k = i - 1
            while k >= begin and values[k] > v:
                values[k + 1] = values[k]
                weights[k + 1] = weights[k]
                k -= 1
            values[k + 1] = v
            weights[k + 1] = w
        begin = end
