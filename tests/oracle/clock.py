"""A clock for databases under test: it starts soon after 1970, so that small explicit timestamps are recent.

With the real clock, `ts=100` would lie half a century behind, and its tombstones beyond the retention.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

START = 1_000_000_000
"""Microseconds: later than every explicit timestamp of a test, and less than the tombstone retention after 1970."""


def clock() -> Callable[[], int]:
    """Microseconds since 1970; every call is one later than the one before."""
    ticks = itertools.count(START)
    return lambda: next(ticks)
