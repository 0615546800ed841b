"""Options of an embedded database, with their defaults."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

HOUR_MS = 3600 * 1000


def now_us() -> int:
    """Microseconds since 1970, by the system's clock."""
    return time.time_ns() // 1000


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """See `belvedere.open`."""

    sync: bool = True
    snapshot: bool = True
    retention_ms: int = HOUR_MS
    history_bytes: int = 16 << 30
    epoch_rows: int = 1 << 19
    memory_limit: int = 1 << 30
    backlog_rows: int = 4 << 20
    backlog_bytes: int = 1 << 30
    build_rows: int = 1 << 16
    build_snapshot_seconds: float = 10.0
    snapshot_bytes: int = 256 << 20
    segment_bytes: int = 64 << 20
    threads: int = 2
    tombstone_retention_ms: int = 10 * 24 * HOUR_MS
    clock: Callable[[], int] = now_us
