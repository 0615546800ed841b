"""What `Database.status` tells: plain numbers, made in the engine's thread so that they belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belvedere.embedded.pins import PinLeases
from belvedere.embedded.runtime import Runtime
from belvedere.embedded.snapshots import Checkpointer
from belvedere.embedded.storage.commit import Committer
from belvedere.embedded.storage.log import InputLog
from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.graph import Task, digest
from belvedere.plan.nodes import DeltaNode, topological


def collect(
    runtime: Runtime, committer: Committer, log: InputLog | None, snapshots: Checkpointer | None, leases: PinLeases
) -> dict[str, Any]:
    """Everything at once."""
    now = committer.clock.now() // 1000
    written, committed = committer.epoch, runtime.committed
    problems = [p for p in (runtime.waiting_for_room, snapshots.problem if snapshots is not None else None) if p]
    problems += [view.problem for view in runtime.builds.refused.values()]
    return {
        "epoch": committed,
        "written_epoch": written,
        "age_ms": max(0, now - committed),
        "lag_ms": 0 if written <= committed else max(0, now - committed),
        "backlog_rows": committer.rows,
        "tables": {
            name: {"rows": len(table), "tombstones": table.tombstones, "bytes": table.nbytes()}
            for name, table in runtime.engine.tables.items()
        },
        "views": views(runtime.tables)
        | {
            name: {"state": "Failed", "since": view.failed, "reason": view.reason}
            for name, view in runtime.builds.refused.items()
            if view.failed
        },
        "builds": runtime.builds.progress,
        "memory": _memory(runtime),
        "log": {} if log is None else {"bytes": sum(s.size for s in log.segments), "segments": len(log.segments)},
        "snapshot": {} if snapshots is None else {"epoch": snapshots.epoch, "bytes": snapshots.size},
        "history": {"floor": runtime.changelog.floor, "bytes": runtime.changelog.nbytes},
        "spilled_bytes": runtime.engine.budget.spilled_bytes,
        "pins": leases.held(now),
        "problems": problems,
    }


def views(tables: Mapping[str, ViewTable]) -> dict[str, Any]:
    """Numbers about each view."""
    return {
        name: {
            "rows": len(view),
            "version": view.shape.version,
            "quarantined": len(view.quarantine),
            "complete": len(view.quarantine) == 0,
            "bytes": view.nbytes(),
            "since": view.since,
        }
        for name, view in tables.items()
    }


def _memory(runtime: Runtime) -> dict[str, Any]:
    """Bytes of all state and views, and what the columns that the plans need would take as plain arrays."""
    tables: dict[str, dict[str, int]] = {}
    needed: dict[str, set[int]] = {}
    for node in topological(runtime.engine.plan):
        if isinstance(node, DeltaNode):
            needed.setdefault(node.table, set()).update(node.columns)
    for name, table in runtime.engine.tables.items():
        columns = sorted(needed.get(name, ()))
        tables[f"DELTA {name}"] = {"bytes": table.nbytes(), "plain_bytes": _plain(runtime, name, columns)}
    digests: dict[Task, str] = {}
    for state, size in runtime.engine.sizes().items():
        label = f"{type(state).__name__} {digest(state, digests)[:8]}"
        tables[label] = {"bytes": size.bytes, "plain_bytes": size.plain}
    for name, view in runtime.tables.items():
        tables[f"view {name}"] = {"bytes": view.nbytes(), "plain_bytes": view.table.plain_bytes()}
    return {
        "bytes": sum(t["bytes"] for t in tables.values()),
        "plain_bytes": sum(t["plain_bytes"] for t in tables.values()),
        "tables": tables,
    }


def _plain(runtime: Runtime, name: str, columns: list[int]) -> int:
    """Plain size of some columns of a base table, from a sample of its rows."""
    table = runtime.engine.tables[name]
    rows, start = 0, 0
    sample, _ = table.scan(start, 1 << 14, columns)
    rows = len(sample)
    if not rows:
        return 0
    size = sum(c.nbytes() for c in sample.columns)
    return int(size / rows * len(table))
