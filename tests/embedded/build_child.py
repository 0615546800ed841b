"""Builds a view and stops in the middle, when a snapshot of it is durable; somebody kills it there.

    python build_child.py PATH PIECES

Writes go on while it builds; it prints `stopped`, and how many rows were scanned until the snapshot.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import belvedere
from belvedere.engine.build import Build

OPTIONS: dict[str, Any] = {"build_rows": 500, "build_snapshot_seconds": 0.0}
VIEW = "SELECT t.g, count(*) AS n, sum(t.v) AS v, max(u.name) AS name FROM t LEFT JOIN u ON t.g = u.g GROUP BY t.g"


def main(path: str, pieces: int) -> None:
    advance, done = Build.advance, 0
    db = belvedere.open(path, **OPTIONS)
    snapshots = db._instance.snapshots
    assert snapshots is not None

    def stops(self: Build, rows: int) -> Any:
        nonlocal done
        done += 1
        if done == pieces:
            snapshots.take(wait=True, anew=True)
            print("stopped", self.progress[0], flush=True)
        if done == pieces + 4:  # what comes after the snapshot is lost
            while True:
                time.sleep(60)
        return advance(self, rows)

    Build.advance = stops  # type: ignore[method-assign]
    threading.Thread(target=write, args=(db,), daemon=True).start()
    db.execute(f"CREATE MATERIALIZED VIEW s AS {VIEW}")


def write(db: Any) -> None:
    for i in range(1 << 30):
        db.put("t", {"id": i * 37 % 30_000, "g": i % 11, "v": i})
        db.delete("t", [i * 91 % 30_000])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
