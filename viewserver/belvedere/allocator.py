"""Keep freed memory in the process instead of giving it back to the system and asking for it again every epoch.

Each epoch makes and drops temporary columns of some hundred kilobytes. By default glibc maps and unmaps those, and
Arrow's allocator gives pages back after 10 ms, so every epoch would pay for fresh, zeroed pages: measured, up to
half of all CPU time.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_KEEP = 1 << 30
_PAD = 1 << 26


def before_arrow_is_loaded() -> None:
    """Arrow's allocator (mimalloc) reads its settings once, when pyarrow is imported."""
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "-1")


def keep_freed_memory() -> bool:
    """Tell the C library; false where it is not glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return all(
        mallopt(option, value) == 1
        for option, value in ((_M_MMAP_THRESHOLD, _KEEP), (_M_TRIM_THRESHOLD, _KEEP), (_M_TOP_PAD, _PAD))
    )
