"""The torture test: a pool of real processes under load while they are killed, paused, scaled and restarted.

    python -m tests.torture.run --minutes 10 [--seed 1] [--directory DIR] [--out bench/results/torture.json]

Three parts: a *storm* with a fault every second or two; *single faults*, each after the pool has come to rest, to
measure how long commits pause because of it; and the *end*: nobody disturbs, everything drains, and every acknowledged
write must be in every view, once. During all of it everything is read at one epoch, over and over, and compared with a
computation of its own over exactly the writes that belong to that epoch.

Correctness is asserted. Times are reported: they depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import belvedere
from belvedere import errors
from belvedere.backend.served.client import FlightStore
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.inquiry import status_of
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.engine.warm import compile_kernels
from tests.torture.chaos import LEAVE_SECONDS, Administrator, Chaos, Fault, observe
from tests.torture.checker import Checker, History, bag
from tests.torture.lineage import Ranges
from tests.torture.watching import Commits, Judge, Sampler, Subscriber, Watcher, take
from tests.torture.workload import LATER, TABLES, VIEWS, Journal, Writers, first_rows, manifest

START_SECONDS = 120.0
DRAIN_SECONDS = 120.0
REST_SECONDS = 90.0
CONNECT_SECONDS = 120.0
PAUSE_SECONDS = 2.0
CALM_SECONDS = 10.0
CRASH_SECONDS = 3.0
"""Commits should pause for so long after a crash, and the session timeout, at most."""
"""Nothing that happened so long ago is felt any more."""
SINGLE = (
    "add viewserver",
    "retire viewserver",
    "kill viewserver",
    "kill distributor",
    "kill leader",
    "kill store",
    "pause viewserver",
    "add distributor",
    "retire distributor",
)
CRASHES = ("kill viewserver", "kill distributor", "kill leader", "kill store")
SCALING = ("add viewserver", "retire viewserver")


@dataclass(frozen=True)
class Settings:
    seed: int = 1
    storm_seconds: float = 30.0
    singles: int = 1
    """How many single faults of each kind."""
    rate: float = 15.0
    sample_pause: float = 0.5
    session_timeout: float = 4.0
    loud: bool = False


class Torture:
    """One run. `report` has the numbers, also of one that failed."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.settings, self.directory = settings, directory
        shape = ClusterShape(viewservers=3, distributors=2, coordinators=2, session_timeout=settings.session_timeout)
        self.cluster = LocalCluster(directory / "cluster", shape)
        self.journal, self.ranges, self.history = Journal(), Ranges(), History()
        self.checker = Checker(self.journal, self.ranges, self.history)
        self.writers = Writers(self.connect, self.journal, settings.seed, settings.rate)
        self.commits = Commits(self.connect, self.history, self.say)
        self.judge = Judge(self.checker)
        self.sampler = Sampler(self.connect, self.journal, self.history, self.judge, settings.sample_pause)
        self.subscriber = Subscriber(self.connect, "spend")
        self.watchers = (self.commits, self.judge, self.sampler, self.subscriber)
        self.chaos = Chaos(self.cluster, settings.seed, self.say, self.commits.since_last)
        self.single: list[tuple[Fault, float]] = []
        self.inflicted: list[Fault] = []
        """One at a time."""
        self.report: dict[str, Any] = {"seed": settings.seed, "session_timeout_s": settings.session_timeout}
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        directory.mkdir(parents=True, exist_ok=True)
        self._trace = open(directory / "trace.log", "a")  # noqa: SIM115 closed at the end

    def connect(self) -> ClusterDatabase:
        return belvedere.connect(self.cluster.url, timeout=CONNECT_SECONDS)

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self._begun:7.1f}  {text}"
        with self._lock:
            print(time.strftime("%H:%M:%S"), line, file=self._trace, flush=True)
            if self.settings.loud:
                print(line, flush=True)

    # ------------------------------------------------------------------ the run

    def run(self) -> None:
        """Raises AssertionError when something is wrong."""
        try:
            compile_kernels()  # once, not in all processes at the same time
            with self.cluster:
                self._prepare()
                self._storm()
                self._singles()
                self._end()
        except BaseException as error:
            self.say(f"FAILED: {error}")
            raise
        finally:
            self._sum_up()
            self._trace.close()

    def _prepare(self) -> None:
        self._until(lambda: self._is_whole(), START_SECONDS, "a generation with all view servers")
        with self.connect() as db:
            for sql in TABLES.values():
                db.execute(sql)
            db.apply_manifest(manifest())
            for name in LATER:
                db.execute(f"CREATE MATERIALIZED VIEW {name} AS {VIEWS[name]}")
            observe(db, self.ranges)
            write = self.journal.begin("accounts", first_rows(), [False] * len(first_rows()), None)
            self.journal.resolve(write, db.put("accounts", first_rows()))
            db.wait(self.journal.token(), START_SECONDS)
        self.say(f"pool with {len(VIEWS)} views at {self.cluster.url}")
        self.writers.start()
        for watcher in self.watchers:
            watcher.start()

    def _storm(self) -> None:
        administrator = Administrator(self.connect, self.ranges, self.settings.seed, 2.0, self.say)
        begin = time.monotonic()
        self.chaos.start()
        administrator.start()
        while time.monotonic() < begin + self.settings.storm_seconds:
            self._look(self.chaos, administrator)
            time.sleep(0.2)
        self.say("the storm ends")
        self.chaos.stop()
        administrator.stop()
        self._look(self.chaos, administrator)
        calm = time.monotonic()
        self._until(self._is_at_rest, REST_SECONDS, "commits of a whole pool after the storm")
        self.report["storm"] = {
            "seconds": round(calm - begin, 1),
            "faults": _counted(fault.kind for fault in self.chaos.faults),
            "administrator": administrator.done,
            "left_alone_s": _spread(self.chaos.breaths),
            "at_rest_again_s": round(time.monotonic() - calm, 2),
            **self._storm_stalls(begin, calm),
        }

    def _singles(self) -> None:
        rng = random.Random(self.settings.seed)
        chaos = Chaos(self.cluster, self.settings.seed + 1, self.say)
        if self.settings.singles:
            time.sleep(2 * CALM_SECONDS)  # for freshness at rest
        for _ in range(self.settings.singles):
            for kind in rng.sample(SINGLE, len(SINGLE)):
                self._until(self._is_at_rest, REST_SECONDS, f"commits of a whole pool before: {kind}")
                self._single(chaos, kind)
        chaos.settle()
        bad = [(name, code) for name, _, code in chaos.left if code != 0]
        assert not bad, f"withdrawn in peace, and they ended with {bad}"
        self.report["left_in_peace_s"] = _spread([seconds for _, seconds, _ in chaos.left])

    def _single(self, chaos: Chaos, kind: str) -> None:
        before = chaos.members()
        fault = chaos.inflict(kind, PAUSE_SECONDS)
        if fault is None:
            return
        self.inflicted.append(fault)
        chaos.wait_until_left()
        time.sleep(max(0.0, fault.at + fault.lasts + 0.1 - time.monotonic()))
        chaos.look_after()
        if kind.startswith("kill"):
            ids = before.get(fault.target, [])
            self._until(lambda: chaos.members().get(fault.target, ids) != ids, REST_SECONDS, f"another {fault.target}")
        self._until(self._is_at_rest, REST_SECONDS, f"commits of a whole pool after: {kind}")
        stall = self.commits.stall(fault.at, time.monotonic())
        self.single.append((fault, stall))
        self.say(f"{kind}: no commits for {stall:.2f} s")

    def _end(self) -> None:
        """Nobody disturbs any more: everything that was acknowledged is in every view, once."""
        self.say("writers stop")
        self.writers.stop()
        self._look()
        with self.connect() as db:
            begin = time.monotonic()
            db.wait(self.journal.token(), DRAIN_SECONDS)
            self.report["drained_s"] = round(time.monotonic() - begin, 2)
            self.sampler.stop()
            self.judge.stop()
            self.commits.stop()
            self.subscriber.stop()
            self._look()
            last = take(db, self.journal, self.history)
            self.checker.check(last)
            copied, there = self.subscriber.rows, bag(last.views["spend"])
            assert copied == there, f"the copy by changes differs: {copied - there}, {there - copied}"
            self.checker.check_nothing_waits()
            self._until(lambda: not self._left_over(db), DRAIN_SECONDS, lambda: f"empty INPUT: {self._left_over(db)}")
        dead = [child.name for child in self.cluster.children.values() if not child.running]
        assert not dead, f"processes that do not run: {dead}"
        self.say("everything is there, once")

    def _left_over(self, db: ClusterDatabase) -> str:
        """What the store holds that should be gone in a pool at rest."""
        store = FlightStore(db.pool.store_address(db.deadline()), timeout=10.0)
        try:
            chunks = [f"{chunk.source} {chunk.first}-{chunk.last}" for chunk in store.chunks()]
            ended = [info.id for info in store.sources() if info.last is not None]
        except errors.Unavailable as error:
            return str(error)
        finally:
            store.close()
        said = [f"chunks {chunks[:5]} ({len(chunks)})"] * bool(chunks) + [f"ended sources {ended}"] * bool(ended)
        return ", ".join(said)

    # ------------------------------------------------------------------ looking

    def _look(self, *more: Watcher) -> None:
        """Whoever failed fails the test."""
        for failure in self.writers.failures:
            raise AssertionError(f"a writer failed: {type(failure).__name__}: {failure}") from failure
        for watcher in (*self.watchers, *more):
            if watcher.failure is not None:
                text = f"{watcher.name}: {type(watcher.failure).__name__}: {watcher.failure}"
                raise AssertionError(text) from watcher.failure

    def _until(self, condition: Callable[[], Any], seconds: float, what: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self._look()
            if time.monotonic() > deadline:
                text = what if isinstance(what, str) else what()
                raise AssertionError(f"not within {seconds:g} s: {text}; {status_of(self.cluster.coordinators, 5.0)}")
            time.sleep(0.1)

    def _is_whole(self) -> bool:
        """Everyone who should be there is, once, and every view server has its share."""
        wanted = sorted(child.name for child in list(self.cluster.children.values()) if child.wanted)
        found = status_of(self.cluster.coordinators, 2.0).get("members", [])
        sharing = all(member.get("share") for member in found if member["role"] == "viewserver")
        return sharing and sorted(str(member["id"]).rpartition("-")[0] for member in found) == wanted

    def _is_at_rest(self) -> bool:
        """Everyone has his share, and commits have come steadily for a while."""
        now = time.monotonic()
        return self.commits.stall(now - 1.5, now) < 1.0 and self._is_whole()

    # ------------------------------------------------------------------ numbers

    def _storm_stalls(self, begin: float, end: float) -> dict[str, Any]:
        """Gaps between commits; and for each how long it lasted after the last fault in it."""
        times = [begin, *(at for at in self.commits.times if begin < at < end), end]
        gaps = [(a, b) for a, b in itertools.pairwise(times) if b - a > 0.5]
        after = []
        for a, b in gaps:
            hit = [
                fault.at + fault.lasts
                for fault in self.chaos.faults
                if fault.at < b and fault.at + fault.lasts > a - 0.5
            ]
            after.append(b - max((min(at, b) for at in hit), default=a))
        return {
            "commits": len(times) - 2,
            "longest_stall_s": round(max((b - a for a, b in gaps), default=0.0), 2),
            "stalled_share": round(sum(b - a for a, b in gaps) / (end - begin), 3),
            "stall_after_last_fault_s": _spread(after),
        }

    def _sum_up(self) -> None:
        times = self.commits.times
        spent = times[-1] - times[0] if len(times) > 1 else 0.0
        by_kind: dict[str, list[float]] = {}
        for fault, stall in self.single:
            by_kind.setdefault(fault.kind, []).append(stall)
        self.report |= {
            "writes": len(self.journal),
            "rows": self.journal.rows,
            "retried_writes": self.journal.retried,
            "commits": len(times),
            "commits_per_s": round(len(times) / spent, 2) if spent else 0.0,
            "samples": self.sampler.counts.samples,
            "samples_judged": self.judge.judged,
            "sampled_rows": self.sampler.counts.rows,
            "samples_expired": self.sampler.counts.expired,
            "samples_unavailable": self.sampler.counts.unavailable,
            "changes_followed": self.subscriber.changes,
            "copies_begun": self.subscriber.begun,
            "views_sampled": sorted(self.sampler.counts.queries),
            "stall_s": {kind: _spread(stalls) for kind, stalls in sorted(by_kind.items())},
            "crash_stall_s": _spread([s for kind in CRASHES for s in by_kind.get(kind, [])]),
            "scale_stall_s": _spread([s for kind in SCALING for s in by_kind.get(kind, [])]),
            "left_in_storm": {
                "seconds": _spread([seconds for _, seconds, _ in self.chaos.left]),
                "exit_codes": _counted(str(code) for _, _, code in self.chaos.left),
            },
            "freshness_s": _spread([seconds for _, seconds in self.writers.fresh]),
            "freshness_at_rest_s": _spread(
                [seconds for at, seconds in self.writers.fresh if self._is_calm(at, seconds)]
            ),
        }

    def _is_calm(self, at: float, seconds: float) -> bool:
        """Whether nothing happened in this time, and for a while before."""
        faults = (*self.chaos.faults, *self.inflicted)
        return not any(f.at <= at + seconds and f.at + f.lasts > at - CALM_SECONDS for f in faults)


def _counted(items: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        found[item] = found.get(item, 0) + 1
    return dict(sorted(found.items()))


def _spread(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    most = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(most, int(len(ordered) * 0.99))], 3),
        "most": round(ordered[most], 3),
    }


def as_text(report: dict[str, Any]) -> str:
    """For people."""

    def spread(found: dict[str, float]) -> str:
        return "none" if not found else "{count} times, p50 {p50:.2f}, p99 {p99:.2f}, most {most:.2f} s".format(**found)

    def goal(found: dict[str, float], seconds: float) -> str:
        return f" (goal {seconds:g} s: {'met' if found['most'] <= seconds else 'MISSED'})" if found else ""

    crash, left = report["crash_stall_s"], report.get("left_in_peace_s", {})
    storm = report.get("storm", {})
    lines = [
        f"seed {report['seed']}: {report['writes']} writes of {report['rows']} rows ({report['retried_writes']} tries "
        f"without an answer), {report['commits']} commits seen ({report['commits_per_s']} in a second)",
        f"samples: {report['samples_judged']} judged, {report['sampled_rows']} rows read, "
        f"{report['samples_expired']} expired, {report['samples_unavailable']} without an answer; "
        f"{report['changes_followed']} changes followed",
    ]
    if storm:
        lines += [
            f"storm of {storm['seconds']} s: {storm['commits']} commits, faults {storm['faults']}, "
            f"administrator {storm['administrator']}",
            f"  no commits for {storm['longest_stall_s']} s at most, {storm['stalled_share']:.0%} of the time; "
            f"after the last fault in a stall: {spread(storm['stall_after_last_fault_s'])}",
            f"  left alone after 15 s without commits until there was one: {spread(storm['left_alone_s'])}",
            f"  withdrawn: {spread(report['left_in_storm']['seconds'])}, codes {report['left_in_storm']['exit_codes']}",
        ]
    lines += [f"no commits because of: {kind}: {spread(found)}" for kind, found in report["stall_s"].items()]
    lines += [
        f"no commits because of a crash: {spread(crash)}{goal(crash, CRASH_SECONDS + report['session_timeout_s'])}",
        f"no commits because of scaling by one: {spread(report['scale_stall_s'])}",
        f"withdrawn in peace: {spread(left)}{goal(left, LEAVE_SECONDS)}",
        f"freshness, of everything: {spread(report['freshness_s'])}",
        f"freshness at rest: {spread(report['freshness_at_rest_s'])}",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Torture a pool of real processes.")
    parser.add_argument("--minutes", type=float, default=10.0, help="of the storm")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--singles", type=int, default=5, help="single faults of each kind, after the storm")
    parser.add_argument("--rate", type=float, default=15.0, help="writes in a second")
    parser.add_argument("--directory", type=Path, help="kept if given, or if something is wrong")
    parser.add_argument("--out", type=Path, default=Path("bench/results/torture.json"), help="the report as JSON")
    given = parser.parse_args(arguments)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="torture-"))
    settings = Settings(given.seed, given.minutes * 60.0, given.singles, given.rate, loud=True)
    print(f"seed {given.seed}, in {directory}", flush=True)
    torture = Torture(directory, settings)
    try:
        torture.run()
    except AssertionError as error:
        print(as_text(torture.report))
        print(f"\nseed {given.seed} FAILED: {error}\nlogs and data are in {directory}", file=sys.stderr)
        return 1
    print(as_text(torture.report))
    if given.out.parent.is_dir():
        given.out.write_text(json.dumps(torture.report | {"cpus": os.cpu_count()}, indent=1) + "\n")
    if given.directory is None:
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
