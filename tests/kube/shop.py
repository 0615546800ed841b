"""Runs in a pod, with nothing but the image: writes to a pool and compares its views with naive Python.

    python - URL create | load SEED | status | check     the program comes on standard input

`load` writes until the file /tmp/stop exists, and compares the views at epochs in between; its last line is a JSON
object. `check` compares once more, and with the recomputation of `verify`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import time
from decimal import Decimal
from functools import partial
from typing import Any

import belvedere
from belvedere import errors

STATEMENTS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))",
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING)",
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW named AS "
    "SELECT o.id, c.name, o.total FROM orders o JOIN customers c ON o.customer = c.id",
)
STOP = "/tmp/stop"

Rows = dict[int, dict[str, Any]]


def views_of(orders: Rows, customers: Rows) -> dict[str, set[tuple[Any, ...]]]:
    groups: dict[int, list[Decimal]] = {}
    for row in orders.values():
        groups.setdefault(row["customer"], []).append(row["total"])
    return {
        "spend": {(customer, len(totals), sum(totals)) for customer, totals in groups.items()},
        "named": {
            (row["id"], customers[row["customer"]]["name"], row["total"])
            for row in orders.values()
            if row["customer"] in customers
        },
    }


def rows_of(snapshot: Any, table: str) -> Rows:
    return {row["id"]: row for row in snapshot.scan(table).to_pylist()}


def compare(db: Any) -> dict[str, int]:
    """All tables and views at one epoch; what is there. Ends the program if a view is wrong."""
    with db.snapshot() as snapshot:
        bases = {table: rows_of(snapshot, table) for table in ("orders", "customers")}
        for view, expected in views_of(**bases).items():
            found = [tuple(row.values()) for row in snapshot.scan(view).to_pylist()]
            if len(found) != len(expected) or set(found) != expected:
                sys.exit(f"view {view} at {snapshot.epoch}: {sorted(set(found) ^ expected)[:5]}")
        return {"epoch": snapshot.epoch, "orders": len(bases["orders"])}


def load(db: Any, seed: int) -> dict[str, Any]:
    """The last write of each key wins, so what is there in the end is known; a write of unknown outcome is repeated."""
    rng = random.Random(seed)
    truth = {table: rows_of(db, table) for table in ("orders", "customers")}  # what earlier loads left
    stamp, writes, slowest = time.time_ns() // 1000, 0, 0.0
    epochs: set[int] = set()
    tokens: dict[str, Any] = {}
    while not os.path.exists(STOP):
        stamp += 1
        table = "customers" if rng.random() < 0.2 else "orders"
        ids = sorted({rng.randrange(50 if table == "customers" else 500) for _ in range(10)})
        begun = time.monotonic()
        if rng.random() < 0.25:
            tokens[table] = insist(partial(db.delete, table, ids, ts=stamp))
            for id in ids:
                truth[table].pop(id, None)
        else:
            rows = [new_row(rng, table, id) for id in ids]
            tokens[table] = insist(partial(db.put, table, rows, ts=stamp))
            truth[table].update({row["id"]: row for row in rows})
        slowest = max(slowest, time.monotonic() - begun)
        writes += 1
        if writes % 20 == 0:
            with contextlib.suppress(errors.Unavailable):
                epochs.add(compare(db)["epoch"])
            print(json.dumps({"writes": writes, "epochs": len(epochs)}), flush=True)
        time.sleep(0.02)
    for token in tokens.values():
        db.wait(token, 120.0)
    for table, expected in truth.items():
        assert rows_of(db, table) == expected, f"table {table} lost or gained rows"
    compare(db)
    return {"writes": writes, "epochs": len(epochs), "slowest_write": round(slowest, 2)}


def insist(write: Any) -> Any:
    while True:
        with contextlib.suppress(errors.Unavailable):
            return write()


def new_row(rng: random.Random, table: str, id: int) -> dict[str, Any]:
    if table == "customers":
        return {"id": id, "name": f"name {rng.randrange(1000)}"}
    return {"id": id, "customer": rng.randrange(60), "total": Decimal(rng.randrange(-99999, 99999)) / 100}


def main(url: str, command: str, *words: str) -> None:
    with belvedere.connect(url, timeout=90.0) as db:
        if command == "create":
            for statement in STATEMENTS:
                db.execute(statement)
            answer: dict[str, Any] = {}
        elif command == "load":
            answer = load(db, int(words[0]))
        elif command == "status":
            answer = {"sharing": sum(bool(member.get("share")) for member in db.status()["members"])}
        else:
            answer = compare(db)
            for view in ("spend", "named"):
                db.verify(view)
        print(json.dumps({"done": True, **answer}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
