"""What a coordinator is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """`epoch_ms`: the shortest time between two plans. `max_rows`, `max_bytes`, `memory`: of an epoch, for each view
    server."""

    epoch_ms: int = 20
    collect_ms: int = 1000
    quiet_ms: int = 30_000
    """An epoch in which nobody reports anything for so long is begun again in a new generation, without those it
    waits for; the next time after twice as long."""
    target_ms: int = 200
    max_rows: int = 200_000
    max_bytes: int = 64 << 20
    memory: int = 256 << 20
    """Bytes that batches of open epochs may take: what a view server with a GiB keeps of them without spilling."""
    retention_ms: int = 60_000
    late_writer_ms: int = 30_000
    settle_ms: int = 0
