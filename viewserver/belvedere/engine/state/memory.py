"""Arrays that grow in place, so that big state never has to be copied to get bigger.

Small arrays are ordinary numpy arrays that double. Past `BIG` bytes an array moves, once, into a reservation of virtual
memory that is far larger than it: pages cost memory only when they are first written, the address stays, and huge pages
keep the TLB quiet. Only a table that outgrows even its reservation is copied again.

Reservations that nothing refers to any more are kept for the next table, pages and all, up to `IDLE_BYTES`: on virtual
machines whose host takes free memory back, the first touch of a page costs a hundred times what clearing it costs.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
import weakref
from typing import Any

import numpy as np

BIG = 1 << 21
RESERVATION = 1 << 32
IDLE_BYTES = 1 << 31
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_MINCORE = getattr(ctypes.CDLL(None), "mincore", None)
if _MINCORE is not None:
    _MINCORE.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


class Reservation:
    """Virtual memory, zero wherever it was not written. `used`: bytes from its start that may have been."""

    def __init__(self, size: int):
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
        self._map = mmap.mmap(-1, size, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without huge pages serves small ones
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.size = size
        self.used = 0
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def memory(self) -> Any:
        """The whole reservation as a buffer; when the last array over it is gone, it goes back to the pool."""
        memory = (ctypes.c_char * self.size).from_address(self._address)
        weakref.finalize(memory, POOL.give_back, self).atexit = False
        return memory

    def clear(self) -> None:
        """Zero again: what is known to be used by hand, since its pages are worth keeping, the rest by giving it up."""
        known = -(-self.used // mmap.PAGESIZE) * mmap.PAGESIZE
        ctypes.memset(self._address, 0, known)
        if known < self.size:
            self._map.madvise(mmap.MADV_DONTNEED, known, self.size - known)
        self.used = 0

    def worth_keeping(self) -> bool:
        """Whether most of it has pages: what was reserved and hardly touched would have to be asked for anew."""
        pages = np.zeros(self.used // mmap.PAGESIZE, np.uint8)
        size = len(pages) * mmap.PAGESIZE
        if _MINCORE is None or not size or _MINCORE(self._address, size, pages.ctypes.data) != 0:
            return False
        return 2 * int(np.count_nonzero(pages & 1)) > len(pages)


class ReservationPool:
    """Reservations without an owner, pages included."""

    def __init__(self) -> None:
        self._idle: list[Reservation] = []
        self._lock = threading.RLock()  # finalizers may run inside any allocation, also one of ours

    def take(self, nbytes: int) -> Reservation:
        """A zeroed reservation: the fitting idle one with most pages, else the largest new one the system grants
        (systems that forbid overcommitment get small ones)."""
        with self._lock:
            fitting = [r for r in self._idle if r.size >= 2 * nbytes]
            if fitting:
                best = max(fitting, key=lambda r: r.used)
                self._idle.remove(best)
            else:
                best = None
        if best is not None:
            best.clear()
            return best
        wanted = RESERVATION
        while wanted < 2 * nbytes:
            wanted *= 16
        while wanted > 4 * nbytes:
            try:
                return Reservation(wanted)
            except (OSError, ValueError):
                wanted //= 4
        return Reservation(-(-2 * nbytes // mmap.PAGESIZE) * mmap.PAGESIZE)

    def give_back(self, reservation: Reservation) -> None:
        if not reservation.worth_keeping():
            return
        with self._lock:
            idle = sum(r.used for r in self._idle)
            if idle + reservation.used <= IDLE_BYTES:
                self._idle.append(reservation)

    def trim(self) -> None:
        """Give all idle memory back to the system."""
        with self._lock:
            self._idle.clear()


POOL = ReservationPool()


class Buffer:
    """A zero-initialised array of rows. `array` has room for at least what was reserved; take it anew after
    `reserve`."""

    def __init__(self, dtype: Any, width: int = 1, rows: int = 0, slack: int = 0) -> None:
        """`width` > 1: rows of several items. `slack`: rows beyond the reserved ones that may be touched."""
        self.dtype, self.width, self.slack = np.dtype(dtype), width, slack
        self._reservation: Reservation | None = None
        self.array = np.zeros(self._shape(slack), self.dtype)
        if rows:
            self.reserve(rows)

    @property
    def item(self) -> int:
        """Bytes of one row."""
        return int(self.dtype.itemsize * self.width)

    def reserve(self, rows: int) -> None:
        """Make room for that many rows; the contents stay."""
        rows += self.slack
        have = len(self.array)
        nbytes = rows * self.item
        if rows > have:
            if nbytes <= BIG:
                array = np.zeros(self._shape(max(rows, 2 * have, 8)), self.dtype)
            else:
                reservation = POOL.take(nbytes)
                count = reservation.size // self.item
                array = np.frombuffer(reservation.memory(), self.dtype, count * self.width).reshape(self._shape(count))
                reservation.used = have * self.item
                self._reservation = reservation
            array[:have] = self.array[:have]
            self.array = array
        if self._reservation is not None and nbytes > self._reservation.used:
            self._reservation.used = nbytes

    def nbytes(self, rows: int) -> int:
        """Memory that `rows` used rows cost."""
        return self.array.nbytes if self._reservation is None else min(rows * self.item, self.array.nbytes)

    def _shape(self, rows: int) -> Any:
        return rows if self.width == 1 else (rows, self.width)
