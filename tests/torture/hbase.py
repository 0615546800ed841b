"""The torture test over a real HBase: random faults around a pool of real processes, while applications write.

    python -m tests.torture.hbase --minutes 10 [--seed 1] [--rest 120] [--faults "kill region server,flush"]

Two tables are written: one with HBase's own timestamps, and an odd one, whose application sets timestamps, old ones and
equal ones too. Every two minutes and at the end the applications rest, and the views are compared with what a scan of
the tables says. Of the odd table there are rows that no follower of a log can know (a put below a delete that a
compaction forgot): they are reloaded first, and must be right then.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.errors import BelvedereError
from belvedere.local.child import Leash
from tests.backend.hbase.followed_pool import MANIFEST, UserTable, expected, key
from tests.backend.hbase.hbase_faults import FAULTS, Application, World, rows_of
from tests.backend.hbase.real_pool import RealPool, real_pool
from tests.backend.hbase.server import unique

ODD = re.sub(r"name: (spend|big)\b", r"name: odd\1", MANIFEST.replace("orders", "odd"))
CONVERGE_S = 240.0
HEAVY = ("kill region server", "restart region server", "all region servers away", "restart zookeeper", "disable table")
"""Half as often as the others: HBase itself needs a while after them."""


@dataclass
class Report:
    faults: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    rows: int = 0
    corrected: int = 0
    batches: int = 0
    refused: int = 0
    longest_s: float = 0.0
    """From the moment that applications rest until views equal the table of ordinary timestamps."""

    def __str__(self) -> str:
        faults = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items()))
        failed = ", ".join(f"{name} {count}" for name, count in sorted(self.failed.items())) or "none"
        return (
            f"faults: {faults}\n(struck while hbase could not do it: {failed})\n"
            f"applications: {self.batches} batches, {self.refused} without an answer\n"
            f"compared {self.compared} times, {self.rows} rows the last time; right {self.longest_s:.1f} s after the"
            f" applications rest, at most; {self.corrected} rows of the odd table needed a reload"
        )


class Storm:
    """Faults, one after the other in each of two threads, with short pauses."""

    def __init__(self, world: World, names: Sequence[str], report: Report) -> None:
        self._world, self._names, self._report = world, names, report
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(2)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(400.0)
            assert not thread.is_alive(), "a fault does not come to its end"

    def _run(self, number: int) -> None:
        rng = random.Random(self._world.random.random() + number)
        weights = [0.5 if name in HEAVY else 1.0 for name in self._names]
        while not self._stopping.wait(rng.uniform(0.5, 4.0)):
            (name,) = rng.choices(self._names, weights)
            begun = time.monotonic()
            try:
                FAULTS[name](self._world)
                found = self._report.faults
            except (BelvedereError, AssertionError, OSError, StopIteration, KeyError) as error:
                found = self._report.failed  # beside another fault some cannot be done
                _say(f"{name}: {type(error).__name__}: {str(error)[:150]}")
            with self._lock:
                found[name] += 1
            _say(f"{name}, {time.monotonic() - begun:.1f} s")


def _say(text: str) -> None:
    print(time.strftime("%H:%M:%S"), text, flush=True)


def compare(pool: RealPool, hbase: LocalHBase, plain: UserTable, odd: UserTable, report: Report) -> None:
    """Raises AssertionError when views are not what the tables are."""
    begun = time.monotonic()
    rows: dict[int, dict[str, Any]] = {}

    def of_plain() -> dict[str, list[Any]]:
        rows.clear()
        rows.update(rows_of(hbase, plain))
        return expected(rows)

    def of_odd() -> dict[str, list[Any]]:
        """With a reload before each look: a write that comes late may be one that needs it."""
        while True:
            done = pool.db.reload("odd")
            report.corrected += done.corrected
            if not done.undecided:
                return {f"odd{name}": found for name, found in expected(rows_of(hbase, odd)).items()}

    pool.converge(of_plain, CONVERGE_S)
    report.longest_s = max(report.longest_s, time.monotonic() - begun)
    pool.converge(of_odd, CONVERGE_S)
    report.compared += 1
    report.rows = len(rows)
    _say(f"compared: {len(rows)} rows are right, {report.corrected} were corrected so far")


def run(hbase: LocalHBase, directory: Path, minutes: float, seed: int, rest: float, faults: Sequence[str]) -> Report:
    report = Report()
    client = connect_hbase(hbase.zookeeper)
    plain = UserTable(hbase, unique("plain"), [key(100), key(250)], scope=1)
    odd = UserTable(hbase, unique("odd"), [key(200)], scope=1)
    with ExitStack() as stack:
        stack.callback(client.close)
        pool = stack.enter_context(real_pool(hbase, directory, viewservers=2, distributors=2, coordinators=2))
        applications = [Application(hbase, plain, seed), Application(hbase, odd, seed + 1, rows=200, odd=True)]
        for application in applications:
            application.start()
            stack.callback(application.stop)
            application.wrote(5)
        pool.db.apply_manifest(MANIFEST.format(table=plain.name) + "---\n" + ODD.format(table=odd.name))
        world = World(
            hbase, client, pool.cluster, [plain, odd], pool.admin, pool.namespace, random.Random(seed), seconds=8.0
        )  # fmt: skip
        end = time.monotonic() + minutes * 60.0
        while time.monotonic() < end:
            storm = Storm(world, faults, report)
            storm.start()
            time.sleep(max(5.0, min(rest, end - time.monotonic())))
            storm.stop()
            world.whole()
            with applications[0].at_rest(), applications[1].at_rest():
                compare(pool, hbase, plain, odd, report)
        report.batches = sum(application.batches for application in applications)
        report.refused = sum(application.failures for application in applications)
    plain.close()
    odd.close()
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Torture a pool of real processes over a real HBase.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--rest", type=float, default=120.0, help="seconds between two comparisons")
    parser.add_argument("--faults", default=",".join(FAULTS), help="of these kinds only, with commas between them")
    parser.add_argument("--directory", type=Path, help="kept if given, or if something is wrong")
    given = parser.parse_args(arguments)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="torture-hbase-"))
    print(f"seed {given.seed}, in {directory}", flush=True)
    with LocalHBase(directory / "hbase", leash=Leash.OURS) as hbase:
        try:
            report = run(hbase, directory / "pool", given.minutes, given.seed, given.rest, given.faults.split(","))
        except (AssertionError, BelvedereError) as error:
            print(f"\nseed {given.seed} FAILED: {error}\nlogs and data are in {directory}", file=sys.stderr)
            return 1
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
