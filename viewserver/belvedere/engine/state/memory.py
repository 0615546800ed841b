"""Arrays that grow in place, so that big state never has to be copied to get bigger.

Small arrays are ordinary numpy arrays that double. Past `BIG` bytes an array moves, once, into a reservation of virtual
memory that is far larger than it: pages cost memory only when they are first written, the address stays, and huge pages
keep the TLB quiet. Only a table that outgrows even its reservation is copied again, piece by piece, giving pages back
on the way.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np

BIG = 1 << 21
RESERVATION = 1 << 32
_PIECE = 1 << 26
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)


def _reserve(nbytes: int) -> mmap.mmap:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    memory = mmap.mmap(-1, nbytes, flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages serves small ones
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


class Buffer:
    """A zero-initialised array of rows. `array` has room for at least what was reserved; take it anew after
    `reserve`."""

    def __init__(self, dtype: Any, width: int = 1, rows: int = 0, slack: int = 0) -> None:
        """`width` > 1: rows of several items. `slack`: rows beyond the reserved ones that may be touched."""
        self.dtype, self.width, self.slack = np.dtype(dtype), width, slack
        self._memory: mmap.mmap | None = None
        self.array = np.zeros(self._shape(slack), self.dtype)
        if rows:
            self.reserve(rows)

    @property
    def item(self) -> int:
        """Bytes of one row."""
        return int(self.dtype.itemsize) * self.width

    def reserve(self, rows: int) -> None:
        """Make room for that many rows; the contents stay."""
        rows += self.slack
        have = len(self.array)
        if rows <= have:
            return
        nbytes = rows * self.item
        if nbytes <= BIG:
            array = np.zeros(self._shape(max(rows, 2 * have, 8)), self.dtype)
            array[:have] = self.array
            self.array = array
            return
        memory = self._map(nbytes)
        array = np.frombuffer(memory, self.dtype, len(memory) // self.item * self.width).reshape(
            self._shape(len(memory) // self.item)
        )
        self._move(array, have)
        self._memory, self.array = memory, array

    def nbytes(self, rows: int) -> int:
        """Memory that `rows` used rows cost."""
        return self.array.nbytes if self._memory is None else min(rows * self.item, self.array.nbytes)

    def _shape(self, rows: int) -> Any:
        return rows if self.width == 1 else (rows, self.width)

    def _map(self, nbytes: int) -> mmap.mmap:
        """The largest reservation the system grants: systems that forbid overcommitment get small ones."""
        wanted = RESERVATION
        while wanted < 2 * nbytes:
            wanted *= 16
        while wanted > 4 * nbytes:
            try:
                return _reserve(wanted)
            except (OSError, ValueError):
                wanted //= 4
        return _reserve(-(-2 * nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)

    def _move(self, array: np.ndarray, have: int) -> None:
        step = max(1, _PIECE // self.item)
        for start in range(0, have, step):
            stop = min(start + step, have)
            array[start:stop] = self.array[start:stop]
            if self._memory is not None and (start * self.item) % mmap.PAGESIZE == 0:
                length = (stop - start) * self.item // mmap.PAGESIZE * mmap.PAGESIZE
                if length:
                    self._memory.madvise(mmap.MADV_DONTNEED, start * self.item, length)
