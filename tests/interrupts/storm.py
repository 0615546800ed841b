"""Calls of one database, interrupted at random moments, and what must hold after each."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import belvedere
from belvedere.embedded.database import Database
from belvedere.errors import CatalogError, Closed, Locked
from tests.interrupts.injecting import Injected, Injector

PATIENCE = 20.0
ROWS = 3

Interrupt = Callable[[str, Callable[[], Any]], Any]
"""Runs a call of that name and raises `Injected` somewhere in it, or does not."""


class Storm:
    """A model of one table: what was acknowledged is there, batches that were interrupted are whole or absent."""

    def __init__(self, path: Path, seed: int, interrupt: Interrupt):
        self.random, self._path, self._interrupt = random.Random(seed), path, interrupt
        self.certain: dict[int, int] = {}
        self.unknown: list[dict[int, int | None]] = []
        """Rows (None: gone) that a call may have written before it was interrupted."""
        self.interrupted: dict[str, int] = {}
        self._next = 0
        self._gone = False
        self._others = set(threading.enumerate())
        """Threads of databases that tests before this one left open."""
        self.db = self._open()
        self.db.execute("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id))")
        self.db.execute(
            "CREATE MATERIALIZED VIEW s AS SELECT v % 7 AS k, count(*) AS n, sum(v) AS x FROM t GROUP BY v % 7"
        )
        self.epoch = self.db.epoch

    def _open(self) -> Database:
        return belvedere.open(self._path, sync=False, backlog_rows=1000)

    # ------------------------------------------------------------------ calls

    def step(self) -> None:
        """One call, interrupted or not; then the database works."""
        calls = [self.put] * 6 + [self.write] * 3 + [self.delete] * 3
        calls += [self.wait, self.get, self.get_base, self.scan, self.snapshot, self.subscribe, self.follow] * 2
        calls += [self.create_table, self.create_view, self.select, self.verify, self.status, self.checkpoint]
        calls += [self.close, self.open]
        call = self.random.choice(calls)
        try:
            call()
        except Injected:
            self.interrupted[call.__name__] = self.interrupted.get(call.__name__, 0) + 1
        except Exception as error:
            if "Injected" not in str(error):  # it came inside of DuckDB, which makes an error of its own of it
                raise
        if self._gone:
            self._in_time(self.db.close)
            self.db, self._gone = self._reopen(), False
        self.works()
        if call in (self.snapshot, self.subscribe, self.follow):
            gc.collect()
            assert self.db.status()["pins"] == []

    def _call(self, name: str, function: Callable[[], Any]) -> Any:
        return self._interrupt(name, function)

    def _batch(self) -> dict[int, int]:
        self._next += 1
        return {self._next * 10 + i: self.random.randrange(1000) for i in range(ROWS)}

    def _writes(self, rows: dict[int, int | None], name: str, function: Callable[[], Any]) -> None:
        try:
            self._call(name, function)
        except Injected:
            self.unknown.append(rows)
            raise
        self._acknowledge(rows)

    def _acknowledge(self, rows: dict[int, int | None]) -> None:
        for key, value in rows.items():
            self.certain.pop(key, None)
            if value is not None:
                self.certain[key] = value

    def put(self) -> None:
        rows = self._batch()
        given = [{"id": k, "v": v} for k, v in rows.items()]
        self._writes({**rows}, "put", lambda: self.db.put("t", given))

    def write(self) -> None:
        rows: dict[int, int | None] = {**self._batch()}
        gone = next(iter(self.certain), None)
        given = [{"id": k, "v": v} for k, v in rows.items()]
        if gone is not None:
            rows[gone] = None
            given.append({"id": gone, "v": 0})
        deletes = [row["id"] == gone for row in given]
        self._writes(rows, "write", lambda: self.db.write("t", given, deletes=deletes))

    def delete(self) -> None:
        keys = list(self.certain)[-ROWS:]
        self._writes(dict.fromkeys(keys), "delete", lambda: self.db.delete("t", keys))

    def wait(self) -> None:
        token = self.db.put("t", [])
        self._call("wait", lambda: self.db.wait(token, timeout=PATIENCE))

    def get(self) -> None:
        self._call("get", lambda: self.db.get("s", 3))

    def get_base(self) -> None:
        self._call("get_base", lambda: self.db.get("t", 11))

    def scan(self) -> None:
        self._call("scan", lambda: self.db.scan("s"))

    def select(self) -> None:
        self._call("select", lambda: self.db.execute("SELECT count(*) AS n FROM s"))

    def verify(self) -> None:
        self._call("verify", lambda: self.db.verify("s"))

    def status(self) -> None:
        self._call("status", lambda: self.db.status())

    def checkpoint(self) -> None:
        self._call("checkpoint", lambda: self.db.checkpoint())

    def snapshot(self) -> None:
        def read() -> None:
            with self.db.snapshot() as snapshot:
                snapshot.get("s", 3)
                snapshot.scan("s")

        self._call("snapshot", read)

    def subscribe(self) -> None:
        self._call("subscribe", lambda: self.db.subscribe("s"))

    def follow(self) -> None:
        self._call("follow", lambda: list(self.db.subscribe("s", after=self.epoch, timeout=0.01)))

    def create_table(self) -> None:
        self._ddl("u", "CREATE TABLE u (id BIGINT, PRIMARY KEY (id))", "DROP TABLE u")

    def create_view(self) -> None:
        self._ddl("w", "CREATE MATERIALIZED VIEW w AS SELECT id, v + 1 AS v1 FROM t WHERE v > 500", "DROP VIEW w")

    def _ddl(self, name: str, create: str, drop: str) -> None:
        statement = create if self.db.catalog.find(name) is None else drop
        try:
            self._call(statement[:6] + name, lambda: self.db.execute(statement))
        except CatalogError:
            # an interrupted one of the same name was carried out after all
            assert (self.db.catalog.find(name) is None) == (statement == drop)

    def close(self) -> None:
        self._gone = True
        self._call("close", lambda: self.db.close())

    def open(self) -> None:
        self._gone = True
        self._in_time(self.db.close)
        self._call("open", lambda: setattr(self, "db", self._open()))

    # ------------------------------------------------------------------ what must hold

    def works(self) -> None:
        """A write is taken in time, and read."""
        rows = self._batch()
        token = self._in_time(lambda: self.db.put("t", [{"id": k, "v": v} for k, v in rows.items()], timeout=PATIENCE))
        self._acknowledge({**rows})
        self.db.wait(token, timeout=PATIENCE)
        self._resolve()
        for key, value in rows.items():
            assert self.db.get("t", key) == {"id": key, "v": value}

    def _resolve(self) -> None:
        """What was handed over before a write that is visible is visible as well, as a whole, or will never be."""
        for rows in self.unknown:
            found = {key: self.db.get("t", key) for key in rows}
            happened = {
                value == (None if row is None else row["v"])
                for value, row in zip(rows.values(), found.values(), strict=True)
            }
            assert len(happened) <= 1, f"a torn batch: {rows}, found {found}"
            if happened == {True}:
                self._acknowledge(rows)
        self.unknown = []

    def check(self) -> None:
        """Exactly what was acknowledged, or found after an interrupt, is there; also after opening again."""
        for _ in range(2):
            held = self.db.scan("t").to_pydict()
            assert dict(zip(held["id"], held["v"], strict=True)) == self.certain
            self.db.wait(self.db.put("t", []), timeout=PATIENCE)
            report = self.db.verify("s")
            assert report.ok, report
            self.db.close()
            self.db = self._reopen()

    def end(self) -> None:
        """Nothing is left: no threads, no open files."""
        self.check()
        self._in_time(self.db.close)
        gc.collect()
        assert threads_of_databases(self._others) == []
        assert [f for f in open_files() if str(self._path) in f] == []

    def _reopen(self) -> Database:
        """An interrupted `open` lets go of the files in its own time, but soon."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._open()
            except Locked:
                gc.collect()
                if time.monotonic() > end:
                    raise
                time.sleep(0.001)

    def _in_time(self, call: Callable[[], Any]) -> Any:
        """In another thread, so that a call that hangs fails the test."""
        out: list[Any] = []

        def run() -> None:
            try:
                out.append(call())
            except Closed as error:
                out.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "it hangs"
        assert not isinstance(out[0], Closed), out[0]
        return out[0]


def by_bytecode(seed: int) -> Interrupt:
    """Raises before a random bytecode; how many a call has is known from the times before."""
    chosen = random.Random(seed)
    lengths: dict[str, int] = {}

    def interrupt(name: str, call: Callable[[], Any]) -> Any:
        if name not in lengths:
            lengths[name] = 0
            return call()  # the first one imports and compiles
        length = lengths[name]
        injector = Injector(chosen.randint(1, length + length // 10) if length else None)
        try:
            return injector.run(call)
        except Injected:
            raise
        finally:
            if injector.count > length or not injector.where:
                lengths[name] = injector.count

    return interrupt


def threads_of_databases(others: set[threading.Thread]) -> list[str]:
    """Threads that a database started and that have not ended, but `others`; those that end at this moment are waited
    for."""
    found = [t for t in threading.enumerate() if t.name.startswith("belvedere-") and t not in others]
    for thread in found:
        thread.join(PATIENCE)
    return [t.name for t in found if t.is_alive()]


def open_files() -> list[str]:
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return names
