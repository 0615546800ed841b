"""The writing process of the demo: owns the database, and reports every durable write to its parent.

Started as `python -m belvedere.cli.demo_writer PATH RATE`. On stdout, one JSON document per line: first what the
database contains, then each acknowledged operation. On stdin: the number of the operation to start with; anything more,
or the end, means stop. It is killed with SIGKILL in the middle of the demo, so nothing here may tidy up.
"""

from __future__ import annotations

import dataclasses
import json
import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import belvedere
from belvedere.cli import demo_shop

if TYPE_CHECKING:
    from belvedere.embedded.database import Database


def say(**document: Any) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


def operation(db: Database, number: int) -> tuple[int, Any]:
    """Do one operation; rows written and the token."""
    step_number, part = divmod(number, demo_shop.OPERATIONS_PER_STEP)
    writes = demo_shop.step(step_number)
    if part == 0:
        return len(writes.orders), db.put("orders", writes.orders)
    if part == 1:
        return len(writes.items), db.put("items", writes.items)
    return len(writes.deleted), db.delete("items", writes.deleted) if writes.deleted else None


def run(path: Path, rate: float) -> None:
    """Write until told to stop."""
    started = time.monotonic()
    fresh = not path.exists()
    db = belvedere.open(path)
    if fresh:
        demo_shop.create(db)
    say(ready=time.monotonic() - started, **dataclasses.asdict(demo_shop.Totals.query(db)))
    number = int(sys.stdin.readline())
    due = time.monotonic()
    while True:
        begun = time.monotonic()
        rows, token = operation(db, number)
        durable = time.monotonic()
        if token is not None:
            say(op=number, rows=rows, durable=durable - begun)
            db.wait(token)
            say(visible=time.monotonic() - begun)
        else:
            say(op=number, rows=rows, durable=0.0)
        number += 1
        due = max(due + rows / rate, time.monotonic() - 0.1)
        if select.select([sys.stdin], [], [], max(due - time.monotonic(), 0.0))[0]:
            break
    db.close()
    say(closed=True)


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]))
