"""Bytes of strings: one word per row refers to them, updates take the place of what they replace where they fit.

Memory that was never touched is by far the dearest to write, so an update that only appended would cost more in page
faults than in anything else. What no longer fits is garbage, and when more than half is, the arena is compacted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels.strings import (
    HUGE,
    UNIT,
    compact_refs,
    copy_refs,
    measure_refs,
    release_refs,
    store_strings,
)
from belvedere.engine.state.memory import Buffer

SLACK = 64
"""Bytes beyond the end of strings that kernels may touch."""
_SMALL = 1 << 13
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
    """The strings of one column. `used` and `garbage` count words of eight bytes, `text` the bytes of strings in
    use."""

    def __init__(self) -> None:
        self.words = Buffer(np.int64, slack=SLACK // 8)
        self.used = self.garbage = self.text = 0

    @property
    def text_bytes(self) -> np.ndarray:
        return self.words.array.view(np.uint8)

    def store(self, place: tuple[np.ndarray, int, int], slots: np.ndarray, array: pa.Array, status: np.ndarray) -> None:
        """Give the rows at `slots` (skipping negative ones) new strings. `place`: the flat rows, stride and offset, in
        words, of their references."""
        offsets, values = string_parts(array)
        total = int(offsets[-1]) - int(offsets[0])
        bound = total // 8 + len(array) * (1 if total < HUGE else 2 + UNIT)
        self.words.reserve(self.used + bound + 1)
        self.used, garbage, growth = store_strings(
            *place, slots, offsets, values, status, self.words.array, self.text_bytes, self.used
        )
        self.garbage += garbage
        self.text += growth

    def release(self, place: tuple[np.ndarray, int, int], slots: np.ndarray) -> None:
        """Forget the strings of the rows at `slots`."""
        freed, text = release_refs(*place, slots, self.words.array)
        self.garbage += freed
        self.text -= text

    def read(self, refs: np.ndarray, type: pa.DataType) -> pa.Array:
        """The referred strings as an Arrow array."""
        offsets = np.empty(len(refs) + 1, np.int32)
        total = int(measure_refs(refs, self.words.array, offsets))
        if total > 0x7FFFFFFF:
            raise OverflowError(f"{len(refs)} strings of together {total} bytes do not fit one batch; read fewer rows")
        out = np.empty(total + SLACK, np.uint8)
        copy_refs(refs, self.text_bytes, offsets, out)
        # the slack is there to be touched, but is no part of the array: it would go into files as it happens to be
        return pa.Array.from_buffers(type, len(refs), [None, pa.py_buffer(offsets), pa.py_buffer(out[:total])], 0)

    def read_one(self, ref: int) -> bytes:
        """One string; the way of single-row reads."""
        start, length = (ref >> 27) * 8, ref & 0xFFFFFF
        if length >= HUGE:
            length = int(self.words.array[ref >> 27])
            start += 8
        return self.text_bytes[start : start + length].tobytes()

    def crowded(self) -> bool:
        """More garbage than strings."""
        return self.garbage > _SMALL and 2 * self.garbage > self.used

    def compact(self, place: tuple[np.ndarray, int, int], limit: int) -> None:
        """Keep only what the references of slots below `limit` need."""
        rows, stride, offset = place
        fresh = Buffer(np.int64, rows=max(0, self.used - self.garbage), slack=SLACK // 8)
        target = fresh.array.view(np.uint8)
        self.used = int(compact_refs(rows, stride, offset, limit, self.text_bytes, target))
        self.words, self.garbage = fresh, 0

    def nbytes(self) -> int:
        return self.words.nbytes(self.used + SLACK // 8)
