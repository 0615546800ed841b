"""Kernels that read blocks of cells and write-ahead log entries as HBase sends them.

Numbers are big-endian; a cell (KeyValue) is

    int32 length, int32 key length, int32 value length,
    key: int16 row length, row, uint8 family length, family, qualifier, int64 timestamp, uint8 type
    value, and tags, which nobody reads

where every cell begins is known only from the one before, so one pass in compiled code is the way to columns of
positions: 30 ns a cell, where Python takes half a microsecond. Each length is checked against the one that holds it, so
that a block that lies never makes a reader leave it.
"""

from __future__ import annotations

import numpy as np

from belvedere.engine.state.jit import kernel, part

_HEAD = 8
"""Bytes of a cell before its key: the lengths of key and value."""
_TAIL = 9
"""Bytes of a key after its qualifier: timestamp and type."""

ROW = 0
ROW_SIZE = 1
VALUE = 2
VALUE_SIZE = 3
COLUMN = 4
TYPE = 5
TS = 6
FIELDS = 7
"""Numbers that `read_cells` writes of each cell."""

UNKNOWN_COLUMN = -1
UNKNOWN_ACTION = 4


@part
def int32_at(data, at):  # type: ignore[no-untyped-def]
    return np.int64(
        np.int32(
            (np.uint32(data[at]) << np.uint32(24))
            | (np.uint32(data[at + 1]) << np.uint32(16))
            | (np.uint32(data[at + 2]) << np.uint32(8))
            | np.uint32(data[at + 3])
        )
    )


@part
def int64_at(data, at):  # type: ignore[no-untyped-def]
    value = np.uint64(0)
    for i in range(8):
        value = (value << np.uint64(8)) | np.uint64(data[at + i])
    return np.int64(value)


@part
def same_bytes(a, at, b, start, size):  # type: ignore[no-untyped-def]
    i = 0
    while i < size and a[at + i] == b[start + i]:
        i += 1
    return i == size


@part
def column_of(data, family, family_size, qualifier, size, type, names, starts, hint):  # type: ignore[no-untyped-def]
    """Position of a column among those that are mapped, or UNKNOWN_COLUMN. `names`, `starts`: family and qualifier of
    each, one after the other. The search begins at `hint`, since rows name their columns in the same order. A delete of
    a family names no column: its position is that of one of the family's columns, behind all columns."""
    count = (starts.shape[0] - 1) // 2
    whole = type in (10, 14)
    for step in range(count):
        c = hint + step
        if c >= count:
            c -= count
        begin = starts[2 * c]
        middle = starts[2 * c + 1]
        end = starts[2 * c + 2]
        fits = middle - begin == family_size and (whole or end - middle == size)
        if fits and same_bytes(data, family, names, begin, family_size):
            if whole:
                return count + c
            if same_bytes(data, qualifier, names, middle, size):
                return np.int64(c)
    return np.int64(UNKNOWN_COLUMN)


@kernel("u1[:] i8 i8 i8[:] i8[:] i8[:]")
def measure_entries(data, pos, end, counts, begins, ends):  # type: ignore[no-untyped-def]
    """Where the cells of each entry lie in a block. Returns the position behind the last, or a negative one where
    something does not fit (-1 - position)."""
    for e in range(counts.shape[0]):
        begins[e] = pos
        for _ in range(counts[e]):
            if pos + 4 > end:
                return -1 - pos
            size = int32_at(data, pos)
            if size < _HEAD + 3 + _TAIL or size > end - pos - 4:
                return -1 - pos
            pos += 4 + size
        ends[e] = pos
    return pos


@kernel("u1[:] i8[:] i8[:] i8[:] u1[:] i8[:] i8[:,:] i8[:]")
def read_cells(data, begins, ends, counts, names, starts, out, used):  # type: ignore[no-untyped-def]
    """Positions and numbers of the cells of entries, whose spans are sound. `used`: rows of `out` up to each entry's
    end. Returns -1, or the position of a cell whose parts do not fit into it."""
    n = 0
    columns = (starts.shape[0] - 1) // 2
    hint = np.int64(0)
    for e in range(counts.shape[0]):
        pos = begins[e]
        for _ in range(counts[e]):
            at = pos + 4
            end = at + int32_at(data, pos)
            key = int32_at(data, at)
            value = int32_at(data, at + 4)
            if key < 3 + _TAIL or value < 0 or key > end - at - _HEAD or value > end - at - _HEAD - key:
                return pos
            row = at + _HEAD + 2
            row_size = np.int64(data[row - 2]) << 8 | np.int64(data[row - 1])
            family = row + row_size + 1
            tail = at + _HEAD + key - _TAIL
            if family > tail:
                return pos
            family_size = np.int64(data[family - 1])
            qualifier = family + family_size
            if qualifier > tail:
                return pos
            type = np.int64(data[tail + 8])
            if columns > 0:
                c = column_of(data, family, family_size, qualifier, tail - qualifier, type, names, starts, hint)
            else:
                c = np.int64(UNKNOWN_COLUMN)
            if 0 <= c < columns:
                hint = c + 1 if c + 1 < columns else np.int64(0)
            out[n, ROW] = row
            out[n, ROW_SIZE] = row_size
            out[n, VALUE] = tail + _TAIL
            out[n, VALUE_SIZE] = value
            out[n, COLUMN] = c
            out[n, TYPE] = type
            out[n, TS] = int64_at(data, tail)
            n += 1
            pos = end
        used[e] = n
    return -1


@part
def action_of(type):  # type: ignore[no-untyped-def]
    """What a type of cell does, as in `delta.CellChange`; UNKNOWN_ACTION if it is none that is known."""
    if type == 4:
        return 0
    if type in (12, 14):
        return 1
    if type in (8, 10):
        return 2
    return UNKNOWN_ACTION


@kernel("u1[:] i8[:,:] i8[:] i8[:] i8[:] i8[:] i8[:] u1[:] i8[:] i8[:,:] u1[:,:]")
def group_cells(  # type: ignore[no-untyped-def]
    data, cells, used, families, seen, ends, ts, kind, first, cell_of, present
):
    """Makes changes of cells: neighbours of one entry with one row, timestamp and action that name different columns
    are one. `families`: a number for the family of each column. `seen`: scratch, -1 for each column. Of each change:
    `ts`, `kind`, `first`: one of its cells; `present[c]`: whether it names column c, `cell_of[c]`: the cell that has
    its value. `ends`: changes up to the end of each entry. Returns how many there are, or -1 - position of a cell whose
    type is unknown."""
    m = np.int64(-1)
    start = np.int64(0)
    columns = families.shape[0]
    for e in range(used.shape[0]):
        open = np.int64(-1)
        action = np.int64(0)
        for i in range(start, used[e]):
            c = cells[i, COLUMN]
            if c == UNKNOWN_COLUMN:
                continue
            whole = c >= columns
            if whole:
                c -= columns
            mine = action_of(cells[i, TYPE])
            if mine == UNKNOWN_ACTION:
                return -1 - i
            fits = (
                open >= 0
                and mine == action
                and cells[i, TS] == cells[open, TS]
                and cells[i, ROW_SIZE] == cells[open, ROW_SIZE]
                and same_bytes(data, cells[i, ROW], data, cells[open, ROW], cells[i, ROW_SIZE])
            )
            if fits:
                if whole:
                    for j in range(columns):
                        fits = fits and (families[j] != families[c] or seen[j] != m)
                else:
                    fits = seen[c] != m
            if not fits:
                m += 1
                open = np.int64(i)
                action = mine
                ts[m] = cells[i, TS]
                kind[m] = mine
                first[m] = i
            if whole:
                for j in range(columns):
                    if families[j] == families[c]:
                        seen[j] = m
                        present[j, m] = 1
            else:
                seen[c] = m
                present[c, m] = 1
                if mine == 0:
                    cell_of[c, m] = i
        start = used[e]
        ends[e] = m + 1
    return m + 1


@kernel("u1[:] i8[:] i8[:] i8 i8[:] u1[:]")
def read_big_endian(data, at, size, width, out, status):  # type: ignore[no-untyped-def]
    """Signed numbers of `width` bytes. A negative position is no value (status 0), another size one that cannot be read
    (status 7)."""
    shift = 64 - 8 * width
    for i in range(at.shape[0]):
        out[i] = 0
        if at[i] < 0:
            status[i] = 0
        elif size[i] != width:
            status[i] = 7
        else:
            value = np.int64(0)
            for j in range(width):
                value = (value << 8) | np.int64(data[at[i] + j])
            out[i] = (value << shift) >> shift
            status[i] = 1


@kernel("u1[:] i8[:] i8[:] i4[:] u1[:]")
def copy_texts(data, at, size, offsets, out):  # type: ignore[no-untyped-def]
    """Texts one after the other; a negative position is none."""
    pos = np.int64(0)
    for i in range(at.shape[0]):
        offsets[i] = pos
        if at[i] >= 0:
            for j in range(size[i]):
                out[pos + j] = data[at[i] + j]
            pos += size[i]
    offsets[at.shape[0]] = pos


# --- entries: the protobuf messages of a request, WALEntry within ReplicateWALEntryRequest


@part
def varint_at(data, pos, end):  # type: ignore[no-untyped-def]
    """(value, position behind it); a negative position if it does not end in time."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while pos < end and shift < np.uint64(70):
        byte = data[pos]
        value |= np.uint64(byte & 0x7F) << shift
        pos += 1
        if byte < 0x80:
            return np.int64(value), pos
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@part
def skip_field(data, pos, end, wire):  # type: ignore[no-untyped-def]
    if wire == 0:
        _, pos = varint_at(data, pos, end)
        return pos
    if wire == 1:
        return pos + 8 if pos + 8 <= end else np.int64(-1)
    if wire == 5:
        return pos + 4 if pos + 4 <= end else np.int64(-1)
    if wire == 2:
        size, pos = varint_at(data, pos, end)
        return pos + size if pos >= 0 and 0 <= size <= end - pos else np.int64(-1)
    return np.int64(-1)


REGION = 0
REGION_SIZE = 1
TABLE = 2
TABLE_SIZE = 3
SEQ = 4
WRITTEN = 5
CELLS = 6
CLUSTERS = 7
"""How many clusters the entry has passed already."""
INLINE = 8
"""Cells that are in the message itself, which no version of HBase that can be a source sends."""
ENTRY_FIELDS = 9


@part
def read_key(data, pos, end, out, n):  # type: ignore[no-untyped-def]
    """A WALKey."""
    while pos < end:
        tag, pos = varint_at(data, pos, end)
        if pos < 0:
            return False
        field = tag >> 3
        wire = tag & 7
        if field in (1, 2) and wire == 2:
            size, pos = varint_at(data, pos, end)
            if pos < 0 or size < 0 or size > end - pos:
                return False
            which = REGION if field == 1 else TABLE
            out[n, which] = pos
            out[n, which + 1] = size
            pos += size
        elif field in (3, 4) and wire == 0:
            value, pos = varint_at(data, pos, end)
            out[n, SEQ if field == 3 else WRITTEN] = value
        else:
            if field in (5, 8):  # cluster_id, cluster_ids
                out[n, CLUSTERS] += 1
            pos = skip_field(data, pos, end, wire)
        if pos < 0:
            return False
    return True


@kernel("u1[:] i8 i8 i8[:,:]")
def read_entries(data, pos, end, out):  # type: ignore[no-untyped-def]
    """The entries of a request in [pos, end): positions of region and table, sequence id, when it was written, number
    of cells. Returns how many there are, or -1 if the message cannot be read, or -2 if `out` is too small."""
    n = 0
    while pos < end:
        tag, pos = varint_at(data, pos, end)
        if pos < 0:
            return -1
        if tag != 0x0A:  # field 1, a message
            pos = skip_field(data, pos, end, tag & 7)
            if pos < 0:
                return -1
            continue
        size, pos = varint_at(data, pos, end)
        if pos < 0 or size < 0 or size > end - pos:
            return -1
        if n == out.shape[0]:
            return -2
        for j in range(ENTRY_FIELDS):
            out[n, j] = 0
        stop = pos + size
        while pos < stop:
            tag, pos = varint_at(data, pos, stop)
            if pos < 0:
                return -1
            if tag == 0x0A:  # key
                length, pos = varint_at(data, pos, stop)
                if pos < 0 or length < 0 or length > stop - pos or not read_key(data, pos, pos + length, out, n):
                    return -1
                pos += length
            elif tag == 0x18:  # associated_cell_count
                value, pos = varint_at(data, pos, stop)
                out[n, CELLS] = value
            else:
                out[n, INLINE] += tag == 0x12
                pos = skip_field(data, pos, stop, tag & 7)
            if pos < 0:
                return -1
        n += 1
    return n


@kernel("u1[:] i8[:,:] i8[:] i8[:]")
def number_regions(data, entries, number, firsts):  # type: ignore[no-untyped-def]
    """Numbers the distinct regions of entries in order of first meeting; `firsts`: the first entry of each. Few regions
    share a request, and an entry mostly has that of the one before. Returns how many there are."""
    m = 0
    last = 0
    for e in range(entries.shape[0]):
        size = entries[e, REGION_SIZE]
        g = -1
        for step in range(m):
            c = last if step == 0 else step - 1
            f = firsts[c]
            if entries[f, REGION_SIZE] == size and same_bytes(data, entries[e, REGION], data, entries[f, REGION], size):
                g = c
                break
        if g < 0 and m > 0:  # with the last one first, one of the others was not tried
            f = firsts[m - 1]
            if entries[f, REGION_SIZE] == size and same_bytes(data, entries[e, REGION], data, entries[f, REGION], size):
                g = m - 1
        if g < 0:
            g = m
            firsts[m] = e
            m += 1
        number[e] = g
        last = g
    return m
