"""kill -9 at random moments, more than a hundred times: everything acknowledged is there once, views equal a
recomputation."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import belvedere
from tests.embedded import crash_child

LIVES = 110
SEED = 7


class Nursery:
    """A process that has everything loaded and forks a writer for each life."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("crash_child.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        assert self.read() == {"ready": True}

    def read(self) -> dict:
        line = self.process.stdout.readline()
        assert line, "the nursery is gone"
        return json.loads(line)

    def fork(self, **command) -> int:
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        return self.read()["pid"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def test_kill_at_random_moments_loses_nothing_acknowledged(tmp_path):
    rng = random.Random(SEED)
    path, out = tmp_path / "db", tmp_path / "out"
    out.touch()
    nursery = Nursery()
    acknowledged = kills = checked = 0
    reader, seen = None, 0
    try:
        for life in range(LIVES):
            before = out.stat().st_size
            pid = nursery.fork(path=str(path), out=str(out), seed=SEED, acknowledged=acknowledged)
            _wait_for_life(out, before, rng)
            os.kill(pid, signal.SIGKILL)
            status = nursery.read()["status"]
            assert os.WIFSIGNALED(status), out.read_text()[before:]
            kills += 1
            for line in out.read_bytes()[before:].decode().splitlines():
                word, _, rest = line.partition(" ")
                assert word != "failed", json.loads(rest)
                checked += word == "checked"
                acknowledged = int(rest)
            if life >= 3:
                reader = reader or belvedere.open(path, read_only=True)
                seen = _read(reader, seen)
    finally:
        nursery.close()
    assert kills >= 100 and checked >= 60 and acknowledged > 100
    with belvedere.open(path, **crash_child.OPTIONS) as db:
        crash_child.check(db, SEED, acknowledged)


def _wait_for_life(out: Path, before: int, rng: random.Random) -> None:
    """Half of the writers die at any moment, also while they recover; half after they have begun to write."""
    if rng.random() < 0.3:
        time.sleep(rng.random() * 0.1)
        return
    deadline = time.monotonic() + 20
    while b"acknowledged" not in out.read_bytes()[before:] and time.monotonic() < deadline:
        if b"failed" in out.read_bytes()[before:]:
            return
        time.sleep(0.002)
    time.sleep(rng.random() * 0.08)


def _read(reader, seen: int) -> int:
    """A process that reads all the while never goes back, and finds views that fit each other."""
    with reader.snapshot() as snapshot:
        assert snapshot.epoch >= seen
        views = reader.catalog.views
        if "sums" in views and "top" in views:
            sums, top = snapshot.scan("sums").to_pylist(), snapshot.scan("top").to_pylist()
            assert top == [{"groups": len(sums), "total": sum(r["total"] for r in sums) if sums else None}]
        return snapshot.epoch
