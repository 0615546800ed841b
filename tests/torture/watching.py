"""Who looks at the pool while it is tortured: one hears of every commit, one reads everything at an epoch, again and
again, and one judges what was read."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from belvedere import errors
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.epochs import Known
from belvedere.retry import Deadline
from tests.torture.checker import Checker, History, Sample, bag
from tests.torture.workload import TABLES, Journal

READ_SECONDS = 120.0
NOTICED_SECONDS = 2.0
LAGGING = 20
"""Samples that wait to be judged; more are not taken meanwhile."""

Connect = Callable[[], ClusterDatabase]


class Watcher(threading.Thread):
    """Base of threads whose failure is the test's."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def stop(self, seconds: float = READ_SECONDS) -> None:
        self.stopping.set()
        self.join(seconds)
        assert not self.is_alive(), f"{self.name} does not end"


class Commits(Watcher):
    """When was what committed, as a client hears of it."""

    def __init__(self, connect: Connect, history: History, say: Callable[[str], None]) -> None:
        super().__init__("commits")
        self._connect, self._history, self._say = connect, history, say
        self.times: list[float] = []

    def work(self) -> None:
        with self._connect() as db:
            last = 0
            while not self.stopping.is_set():
                known = _newer(db, last)
                if known is None:
                    continue
                assert known.epoch > last, f"epoch {known.epoch} after {last}"
                last = known.epoch
                self._history.saw(known.epoch, known.committed.positions)
                waited = self.since_last()
                self.times.append(time.monotonic())
                if NOTICED_SECONDS < waited < float("inf"):
                    self._say(f"epoch {last} is committed, the first one for {waited:.1f} s")

    def stall(self, begin: float, end: float) -> float:
        """The longest time without a commit that touches this span."""
        longest, before = 0.0, begin
        for at in [*self.times, time.monotonic()]:
            if at > begin:
                longest = max(longest, at - before)
            before = at
            if at > end:
                break
        return longest

    def since_last(self) -> float:
        return time.monotonic() - self.times[-1] if self.times else float("inf")


def _newer(db: ClusterDatabase, than: int) -> Known | None:
    try:
        return db.epochs.wait(lambda known: known.epoch > than, Deadline(5.0))
    except errors.Unavailable:
        return None


@dataclass
class Counts:
    samples: int = 0
    expired: int = 0
    unavailable: int = 0
    rows: int = 0
    queries: set[str] = field(default_factory=set)


class Sampler(Watcher):
    """Reads all tables and views at one epoch; hands it to a judge."""

    def __init__(self, connect: Connect, journal: Journal, history: History, judge: Judge, pause: float) -> None:
        super().__init__("sampler")
        self._connect, self._journal, self._history, self._judge = connect, journal, history, judge
        self._pause = pause
        self.counts = Counts()

    def work(self) -> None:
        with self._connect() as db:
            last = 0
            while not self.stopping.wait(self._pause):
                if self._judge.waiting >= LAGGING:
                    continue
                try:
                    sample = take(db, self._journal, self._history)
                except errors.EpochExpired:
                    self.counts.expired += 1
                    continue
                except errors.Unavailable:
                    self.counts.unavailable += 1
                    continue
                assert sample.epoch >= last, f"a session went back from epoch {last} to {sample.epoch}"
                last = sample.epoch
                self.counts.samples += 1
                self.counts.rows += sum(rows.num_rows for rows in (*sample.tables.values(), *sample.views.values()))
                self.counts.queries |= set(sample.queries)
                self._judge.give(sample)


class Subscriber(Watcher):
    """Keeps a copy of a view by its changes alone; breaks off and goes on all the time."""

    def __init__(self, connect: Connect, view: str) -> None:
        super().__init__(f"subscriber of {view}")
        self._connect, self._view = connect, view
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.epoch = 0
        self.changes = 0
        self.begun = 0
        """How often the copy had to be begun anew, because what came meanwhile was not kept."""

    def work(self) -> None:
        with self._connect() as db:
            self._copy(db)
            while not (self.stopping.is_set() and self.epoch >= db.epoch):
                try:
                    self._follow(db)
                except errors.Unavailable:
                    continue
                except errors.EpochExpired:
                    self._copy(db)

    def _copy(self, db: ClusterDatabase) -> None:
        while True:
            try:
                with db.snapshot() as snapshot:
                    self.rows, self.epoch = bag(snapshot.scan(self._view)), snapshot.epoch
                self.begun += 1
                return
            except (errors.Unavailable, errors.EpochExpired):
                continue

    def _follow(self, db: ClusterDatabase) -> None:
        subscription = db.subscribe(self._view, after=self.epoch, timeout=1.0)
        try:
            for change in subscription:
                assert change.epoch > self.epoch, f"a change of epoch {change.epoch} after {self.epoch}"
                self.rows.subtract(bag(change.removed))
                self.rows.update(bag(change.added))
                wrong = [row for row, count in self.rows.items() if count not in (0, 1)]
                assert not wrong, (
                    f"after the change of epoch {change.epoch} of {self._view}: {wrong[:3]} ({len(wrong)})"
                )
                self.rows = +self.rows
                self.epoch = change.epoch
                self.changes += 1
        finally:
            self.epoch = max(self.epoch, subscription.epoch)
            subscription.close()


class Judge(Watcher):
    """Compares samples with the truth."""

    def __init__(self, checker: Checker) -> None:
        super().__init__("judge")
        self._checker = checker
        self._samples: queue.Queue[Sample] = queue.Queue()
        self.judged = 0

    @property
    def waiting(self) -> int:
        return self._samples.qsize()

    def give(self, sample: Sample) -> None:
        self._samples.put(sample)

    def work(self) -> None:
        while not (self.stopping.is_set() and self._samples.empty()):
            try:
                sample = self._samples.get(timeout=0.2)
            except queue.Empty:
                continue
            self._checker.check(sample)
            self.judged += 1


def take(db: ClusterDatabase, journal: Journal, history: History) -> Sample:
    """Everything at the newest epoch."""
    with db.snapshot(timeout=READ_SECONDS) as snapshot:
        history.saw(snapshot.epoch, snapshot.positions)
        writes = len(journal)
        queries = {view.name: view.sql for view in snapshot.catalog.views.values()}
        tables = {name: snapshot.scan(name) for name in TABLES}
        views = {name: snapshot.scan(name) for name in queries}
    for view in queries:
        try:
            bad = db.quarantine(view)
        except errors.CatalogError:  # dropped meanwhile
            continue
        assert not bad.num_rows, f"view {view} has rows in quarantine: {bad.slice(0, 3).to_pylist()}"
    return Sample(snapshot.epoch, snapshot.positions, tables, views, queries, writes)
