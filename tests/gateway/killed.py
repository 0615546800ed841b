"""Gateways that are killed under load: whoever writes, reads and subscribes through them notices a delay and no more.

    writers ──┐                      ┌──▶ gateway 1 ─┐
    readers ──┼──▶ balancer (a port) ┤               ├──▶ the database
    subscriber┘                      └──▶ gateway 2 ─┘      kill -9, start again, all the time

Each writer has its own rows and one session: what it reads is what it has written last, never older and never newer.
So a write that is lost, or one that happens a second time behind a later one, is found by the next read. The subscriber
keeps a copy of the view by changes alone; each change must begin where the one before it ended.

`python -m tests.gateway.killed [embedded|pool] SECONDS SEED` runs it for longer and writes its report.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import belvedere
from belvedere import errors
from tests.cluster.proxy import Proxy
from tests.ports import lasting_port

TABLE = "CREATE TABLE counters (id BIGINT PRIMARY KEY, writer BIGINT, n BIGINT)"
VIEW = "CREATE MATERIALIZED VIEW totals AS SELECT writer, count(*) AS rows, sum(n) AS n FROM counters GROUP BY writer"
PATIENCE = 120.0
START_SECONDS = 120.0


class Gateway:
    """A process that is killed and started again on the same port."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self.port = lasting_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "belvedere.cli.main", *self._command, "--port", str(self.port)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        said = self._process.stdout.readline()
        assert said.startswith(b"serving"), f"the gateway does not start: {said!r}"

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        process = self._process
        if process is not None:
            os.kill(process.pid, how)
            process.wait(60)
            assert process.stdout is not None
            process.stdout.close()
            self._process = None


class Balancer(Proxy):
    """To whichever of several ports somebody listens on."""

    def __init__(self, targets: Sequence[int]) -> None:
        self._targets, self._turn = list(targets), 0
        super().__init__(targets[0])

    @property
    def _target(self) -> int:
        for _ in self._targets:
            self._turn += 1
            port = self._targets[self._turn % len(self._targets)]
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return port
        return self._targets[0]

    @_target.setter
    def _target(self, port: int) -> None:
        """The base has one."""


class Load:
    """Threads that write, read and subscribe; a failure of one of them is the test's."""

    def __init__(self, url: str, seed: int, writers: int = 3) -> None:
        self._url, self._seed = url, seed
        self._stop = threading.Event()
        self.failures: list[BaseException] = []
        self.writes = self.changes = 0
        self.answered: list[float] = []
        """When writes were answered, and read back."""
        self.expected: dict[int, dict[int, int]] = {writer: {} for writer in range(writers)}
        self.copy: dict[int, tuple[int, int]] = {}
        self._subscribed = threading.Event()
        self._threads = [self._thread(lambda w=writer: self._write(w)) for writer in range(writers)]  # type: ignore[misc]
        self._follower = self._thread(self._follow)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self.failures.append(error)
                self._stop.set()

        return threading.Thread(target=run, daemon=True)

    def start(self) -> None:
        self._follower.start()
        assert self._subscribed.wait(PATIENCE) or self.failures, "the subscriber does not begin"
        for thread in self._threads:
            thread.start()

    def _write(self, writer: int) -> None:
        rng, mine = random.Random(self._seed * 100 + writer), self.expected[writer]
        with belvedere.connect(self._url, timeout=PATIENCE) as db, db.session(timeout=PATIENCE) as session:
            while not self._stop.is_set():
                ids = [writer * 1000 + rng.randrange(20) for _ in range(rng.randrange(1, 5))]
                if mine and rng.random() < 0.2:
                    gone = rng.choice(list(mine))
                    session.delete("counters", [gone])
                    del mine[gone]
                else:
                    rows = {id: rng.randrange(1000) for id in ids}
                    session.put("counters", [{"id": id, "writer": writer, "n": n} for id, n in rows.items()])
                    mine |= rows
                self.writes += 1
                wanted = {"writer": writer, "rows": len(mine), "n": sum(mine.values())} if mine else None
                found = session.get("totals", writer)
                assert found == wanted, f"writer {writer} reads {found} after write {self.writes}, not {wanted}"
                self.answered.append(time.monotonic())

    def _follow(self) -> None:
        with belvedere.connect(self._url, timeout=PATIENCE) as db:
            changes = db.subscribe("totals", timeout=0.5)
            self._subscribed.set()
            last = changes.epoch
            while True:
                done = self._stop.is_set()
                for change in changes:
                    assert change.epoch > last, f"epoch {change.epoch} came after {last}"
                    last = change.epoch
                    self._apply(change)
                if done:
                    return
                changes = db.subscribe("totals", after=changes.epoch, timeout=0.5)

    def _apply(self, change: Any) -> None:
        for row in change.removed.to_pylist():
            before = self.copy.pop(row["writer"], None)
            assert before == (row["rows"], row["n"]), f"{row} disappears, and the copy has {before}"
        for row in change.added.to_pylist():
            assert row["writer"] not in self.copy, f"{row} appears a second time"
            self.copy[row["writer"]] = row["rows"], row["n"]
        self.changes += 1

    def finish(self) -> None:
        """Everybody ends; what is there is what was written, once."""
        for thread in self._threads:
            if thread.is_alive() and not self._stop.is_set():
                self._stop.set()
        for thread in (*self._threads, self._follower):
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a thread of the load does not end"
        if self.failures:
            raise self.failures[0]
        expected = {w: (len(rows), sum(rows.values())) for w, rows in self.expected.items() if rows}
        with belvedere.connect(self._url, timeout=PATIENCE) as db:
            shown = {row["writer"]: (row["rows"], row["n"]) for row in db.scan("totals").to_pylist()}
            assert shown == expected, f"the view has {shown}, written was {expected}"
            assert self.copy == expected, f"the subscriber has {self.copy}, written was {expected}"
            assert db.verify("totals").ok


def torture(gateways: Sequence[Gateway], define: Callable[[str], None], seconds: float, kills: int, seed: int) -> Load:
    """Under load, kill a gateway so many times in this time, and start it again."""
    rng = random.Random(seed)
    for gateway in gateways:
        gateway.start()
    balancer = Balancer([gateway.port for gateway in gateways])
    url = f"http://127.0.0.1:{balancer.port}"
    load = Load(url, seed)
    try:
        define(url)
        load.start()
        for number in range(kills):
            before, deadline = load.writes, time.monotonic() + PATIENCE
            if load._stop.wait(rng.uniform(0.3, 1.0) * seconds / kills):
                break
            while load.writes < before + 3 and not load.failures:  # it is in the middle of something
                assert time.monotonic() < deadline, "nobody gets on"
                load._stop.wait(0.02)
            gateway = rng.choice(gateways)
            gateway.kill(signal.SIGTERM if number % 4 == 3 else signal.SIGKILL)
            gateway.start()
        load.finish()
    finally:
        load._stop.set()
        balancer.stop()
        for gateway in gateways:
            with contextlib.suppress(errors.BelvedereError, OSError):
                gateway.kill()
    return load


def report(kind: str, seconds: float, seed: int, directory: Path) -> dict[str, Any]:
    """Of a run with a kill every four seconds; raises if anything was wrong."""
    from tests.cluster.real import started

    kills = int(seconds / 4)
    with contextlib.ExitStack() as stack:
        if kind == "pool":
            cluster = started(directory / "cluster")
            stack.callback(cluster.stop)
            gateways = [Gateway(["gateway", "--url", cluster.url]) for _ in range(2)]
        else:
            gateways = [Gateway(["serve", "--db", str(directory / "db")])]
        load = torture(gateways, define_over, seconds, kills, seed)
    pauses = sorted(after - before for before, after in itertools.pairwise(sorted(load.answered)))
    return {
        "database": kind,
        "gateways": len(gateways),
        "seconds": round(load.answered[-1] - load.answered[0]),
        "killed": kills - kills // 4,
        "terminated": kills // 4,
        "writes": load.writes,
        "changes": load.changes,
        "longest pause without an answer, s": round(pauses[-1], 2),
        "pauses over 2 s": sum(pause > 2.0 for pause in pauses),
    }


def main(kind: str, seconds: str, seed: str) -> None:
    with tempfile.TemporaryDirectory(prefix="belvedere-killed-") as directory:
        found = report(kind, float(seconds), int(seed), Path(directory))
    print(json.dumps(found, indent=1))


def define_over(url: str) -> None:
    with belvedere.connect(url, timeout=PATIENCE) as db:
        db.execute(TABLE)
        db.execute(VIEW)


if __name__ == "__main__":
    main(*sys.argv[1:])
