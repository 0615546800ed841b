"""Bytes of strings: appended in blocks, referred to by one word per row, compacted when more than half is garbage.

A reference is (position << 24 | code); 0 is the empty string. Codes below 2**23 are the length itself; above, they count units
of 256 bytes and the exact length stands in the first eight bytes, so a string may have up to 2 GiB.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels.columns import (
    HUGE,
    append_each,
    compact_refs,
    copy_refs,
    make_refs,
    measure_refs,
    occupied,
)
from belvedere.engine.state.memory import Buffer

SLACK = 64
_SMALL = 1 << 16
_NO_BYTES = np.zeros(1, np.uint8)


def string_parts(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Offsets (int32[n + 1]) and bytes of a string or binary array, as kernels take them."""
    if array.type not in (pa.string(), pa.binary()):
        array = array.cast(pa.binary() if pa.types.is_large_binary(array.type) else pa.string())
    count = len(array)
    if count == 0:
        return np.zeros(1, np.int32), _NO_BYTES
    _, offsets, values = array.buffers()
    bounds = np.frombuffer(offsets, np.int32)[array.offset : array.offset + count + 1]
    if values is None or values.size == 0:
        return plain(bounds), _NO_BYTES
    return plain(bounds), plain(np.frombuffer(values, np.uint8))


class Arena:
    """The bytes of one column."""

    def __init__(self) -> None:
        self.buffer = Buffer(np.uint8, slack=SLACK)
        self.used = 0
        self.garbage = 0

    def append(self, array: pa.Array, slots: np.ndarray, status: np.ndarray) -> np.ndarray:
        """Store strings; returns references (uint64[n]), 0 where the slot is negative or the row holds no value."""
        offsets, values = string_parts(array)
        refs = np.empty(len(array), np.uint64)
        first, total = int(offsets[0]), int(offsets[-1]) - int(offsets[0])
        if total >= HUGE and int(np.diff(offsets).max()) >= HUGE:
            total = int(occupied(offsets, slots, status))
            self.buffer.reserve(self.used + total)
            append_each(offsets, values, self.used, slots, status, self.buffer.array, refs)
        else:
            self.buffer.reserve(self.used + total)
            self.buffer.array[self.used : self.used + total] = values[first : first + total]
            self.garbage += int(make_refs(offsets, self.used, slots, status, refs))
        self.used += total
        return refs

    def read(self, refs: np.ndarray, type: pa.DataType) -> pa.Array:
        """The referred strings as an Arrow array."""
        offsets = np.empty(len(refs) + 1, np.int32)
        total = int(measure_refs(refs, self.buffer.array, offsets))
        if total > 0x7FFFFFFF:
            raise OverflowError(f"{len(refs)} strings of together {total} bytes do not fit one batch; read fewer rows")
        out = np.empty(total + SLACK, np.uint8)
        copy_refs(refs, self.buffer.array, out)
        return pa.Array.from_buffers(type, len(refs), [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0)

    def read_one(self, ref: int) -> bytes:
        """One string; the way of single-row reads."""
        start, code = ref >> 24, ref & 0xFFFFFF
        bytes_ = self.buffer.array
        if code >= HUGE:
            code = int.from_bytes(bytes_[start : start + 8].tobytes(), "little")
            start += 8
        return bytes_[start : start + code].tobytes()

    def crowded(self) -> bool:
        """More garbage than strings."""
        return self.garbage > _SMALL and 2 * self.garbage > self.used

    def compact(self, rows: np.ndarray, stride: int, offset: int, limit: int) -> None:
        """Keep only what the references in these rows need."""
        fresh = Buffer(np.uint8, rows=max(0, self.used - self.garbage), slack=SLACK)
        self.used = int(compact_refs(rows, stride, offset, limit, self.buffer.array, fresh.array))
        self.buffer, self.garbage = fresh, 0

    def nbytes(self) -> int:
        return self.buffer.nbytes(self.used + SLACK)
