"""A real cluster under load, for tests: processes on this machine, somebody who writes, and views computed anew.

Every write names its timestamps, so a write whose answer was lost can be repeated without changing anything, and what
must come out is known exactly.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import belvedere
from belvedere import errors
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.inquiry import status_of
from belvedere.cluster.process.local import ClusterShape, LocalCluster

TABLES = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2))",
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, name STRING)",
)
VIEWS = (
    "CREATE MATERIALIZED VIEW spend AS "
    "SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW big AS SELECT customer, n FROM spend WHERE n > 3",
    "CREATE MATERIALIZED VIEW named AS "
    "SELECT o.id, c.name, o.total FROM orders o JOIN customers c ON o.customer = c.id",
)
SHAPE = ClusterShape(viewservers=2, distributors=2, coordinators=2, session_timeout=4.0, sync=False)

Rows = dict[int, dict[str, Any]]
Truth = dict[str, Rows]


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for a condition; what it was at last is in the message."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


def status(cluster: LocalCluster) -> dict[str, Any]:
    return status_of(cluster.coordinators, 2.0)


def is_whole(cluster: LocalCluster, viewservers: int) -> bool:
    """Every view server that should be there has its share."""
    found = status(cluster)
    shares = [member for member in found.get("members", []) if member.get("share")]
    return len(shares) == viewservers and bool(found.get("generation"))


def started(directory: Path, shape: ClusterShape = SHAPE) -> LocalCluster:
    cluster = LocalCluster(directory, shape)
    try:
        cluster.start()
        until(lambda: is_whole(cluster, shape.viewservers), 120.0, "a generation with all view servers")
    except BaseException:
        cluster.stop()
        raise
    return cluster


def views_of(truth: Truth) -> dict[str, set[tuple[Any, ...]]]:
    """The views, the slow and obvious way."""
    groups: dict[int, list[Any]] = {}
    for row in truth["orders"].values():
        groups.setdefault(row["customer"], []).append(row["total"])
    customers = truth["customers"]
    return {
        "spend": {(customer, len(totals), sum(totals)) for customer, totals in groups.items()},
        "big": {(customer, len(totals)) for customer, totals in groups.items() if len(totals) > 3},
        "named": {
            (row["id"], customers[row["customer"]]["name"], row["total"])
            for row in truth["orders"].values()
            if row["customer"] in customers
        },
    }


class Load:
    """Writes all the time, from a thread of its own; knows what must be there."""

    def __init__(self, url: str, seed: int, pause: float = 0.005) -> None:
        self.db: ClusterDatabase = belvedere.connect(url, timeout=60.0)
        self.truth: Truth = {"orders": {}, "customers": {}}
        self.writes = 0
        self.failure: BaseException | None = None
        self._rng = random.Random(seed)
        self._ts = time.time_ns() // 1000  # later than those of earlier loads
        self._pause = pause
        self._tokens: dict[str, Any] = {}
        """Of the last write to each table: one table may be ahead of another."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Load:
        for statement in (*TABLES, *VIEWS):
            with contextlib.suppress(errors.CatalogError):  # an earlier load made it
                self.db.execute(statement)
        for name in self.truth:
            rows = self.db.scan(name).to_pylist()
            self.truth[name] = {row["id"]: row for row in rows}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60.0)
        self.db.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._write()
                time.sleep(self._pause)
        except BaseException as error:
            self.failure = error

    def _write(self) -> None:
        rng = self._rng
        self._ts += 1
        name = "customers" if rng.random() < 0.2 else "orders"
        ids = sorted({rng.randrange(30 if name == "customers" else 200) for _ in range(rng.randrange(1, 12))})
        if rng.random() < 0.25:
            self._insist(name, lambda: self.db.delete(name, ids, ts=self._ts))
            for id in ids:
                self.truth[name].pop(id, None)
        else:
            rows = [self._row(name, id) for id in ids]
            self._insist(name, lambda: self.db.put(name, rows, ts=self._ts))
            self.truth[name].update({row["id"]: row for row in rows})
        self.writes += 1

    def _row(self, name: str, id: int) -> dict[str, Any]:
        from decimal import Decimal

        rng = self._rng
        if name == "customers":
            return {"id": id, "name": f"name {rng.randrange(1000)}"}
        return {"id": id, "customer": rng.randrange(40), "total": Decimal(rng.randrange(-9999, 9999)) / 100}

    def _insist(self, table: str, write: Callable[[], Any]) -> None:
        while True:
            try:
                self._tokens[table] = write()
                return
            except errors.Unavailable:
                if self._stop.is_set():
                    raise

    def goes_on(self, writes: int = 10, seconds: float = 60.0) -> None:
        """Writes are taken, and become visible in views."""
        before = self.writes
        until(lambda: self.writes >= before + writes or self.failure, seconds, "more writes")
        assert self.failure is None, self.failure
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        for token in list(self._tokens.values()):
            self.db.wait(token, seconds)

    def check_now(self) -> int:
        """Views equal their queries over the base tables at one epoch; returns it."""
        with self.db.snapshot() as snapshot:
            bases: Truth = {name: {row["id"]: row for row in snapshot.scan(name).to_pylist()} for name in self.truth}
            for view, rows in views_of(bases).items():
                assert {tuple(row.values()) for row in snapshot.scan(view).to_pylist()} == rows, view
            return snapshot.epoch

    def check_all(self, seconds: float = 60.0) -> None:
        """Stop writing; everything that was written is there, once, and nothing else."""
        self._stop.set()
        self._thread.join(60.0)
        assert self.failure is None, self.failure
        self._wait(seconds)
        for name, rows in self.truth.items():
            assert {row["id"]: row for row in self.db.scan(name).to_pylist()} == rows, name
        for view, expected in views_of(self.truth).items():
            assert {tuple(row.values()) for row in self.db.scan(view).to_pylist()} == expected, view
