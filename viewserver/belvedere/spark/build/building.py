"""The driver of a build: view groups that wait for Spark, their parts one after the other, and what is told of them.

The pool keeps the epoch of the leaves readable as long as it waits (`protocol/catalog.py`), so nothing is pinned here.
A driver that is killed leaves documents that say which slices are written; the next one goes on with the others. Two
drivers write the same rows. When all is written, `done` tells the leader, and the pool takes it over with what changed
since.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from belvedere.cluster.catalog.aside import AsideBuild, leaf_tables
from belvedere.cluster.client.connecting import connect
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.errors import BelvedereError, Unavailable
from belvedere.protocol.messages import Epoch
from belvedere.spark.build.frames import SENT, part_frame
from belvedere.spark.build.task import SECONDS, Job, Worker
from belvedere.spark.engines import require_engine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_OF_A_SLICE = 200_000
"""A slice of so many rows of the leaves, with all that they become, fits into a task with ease."""
MOST_SLICES = 4096
LOOK_SECONDS = 1.0
FRESH_MS = 2_000
"""By how much views in service may be behind while a build runs, if nothing else is said."""
PAYLOADS_OF_A_BATCH = 16

Tell = Callable[[str], None]


@dataclass
class BuildReport:
    """How a build ended. `problem`: why it is not complete; empty if it is in the pool."""

    views: tuple[str, ...]
    view_group: int
    epoch: int
    rows: int = 0
    slices: int = 0
    resumed: int = 0
    """Slices that were written when it began."""
    seconds: float = 0.0
    stopped: bool = False
    """The views were changed or dropped meanwhile, so that there is nothing to build any more."""
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem

    def __str__(self) -> str:
        names = ", ".join(self.views)
        if self.problem:
            return f"{names}: {self.problem}"
        rate = f", {self.rows / self.seconds:,.0f} rows/s" if self.seconds > 0 else ""
        again = f", {self.resumed} slices were there" if self.resumed else ""
        return f"{names}: {self.rows} rows in {self.seconds:.1f} s{rate}, as of epoch {self.epoch}{again}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "views": list(self.views),
            "view_group": self.view_group,
            "epoch": self.epoch,
            "rows": self.rows,
            "slices": self.slices,
            "resumed": self.resumed,
            "seconds": round(self.seconds, 3),
            "stopped": self.stopped,
            "problem": self.problem,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class Settings:
    """`slices`: into which buckets are cut, 0: by the number of rows. `fresh_ms`: while views in service are further
    behind, tasks rest. `checkpoint`: a directory that all executors can reach; rows between parts are kept there, so
    that a driver that goes on has not to compute them again."""

    slices: int = 0
    fresh_ms: int = FRESH_MS
    checkpoint: str = ""
    memory_limit: int = 512 << 20


def build(
    spark: SparkSession,
    url: str,
    views: Collection[str] = (),
    settings: Settings | None = None,
    tell: Tell = lambda _: None,
    **access: str,
) -> Iterator[BuildReport]:
    """Build what a pool waits for (or of that the view groups of these views), older view groups first. Each report
    comes when the pool has taken the state over, and goes on by itself."""
    settings = settings or Settings()
    db = connect(url, timeout=SECONDS, **access)
    try:
        done: set[int] = set()
        while True:
            waiting = [one for one in waiting_builds(db) if one.view_group not in done]
            chosen = [one for one in waiting if not views or set(one.views) & set(views)]
            if not chosen:
                return
            done.add(chosen[0].view_group)
            yield _Driver(spark, db, url, access, chosen[0], settings, tell).run()
    finally:
        db.close()


@dataclass(frozen=True)
class WaitingBuild:
    """A view group that somebody has to compute."""

    views: tuple[str, ...]
    view_group: int
    since: Epoch
    engine: int


def waiting_builds(db: ClusterDatabase) -> list[WaitingBuild]:
    """What the pool waits for now."""
    told = db.status()
    found = [
        WaitingBuild(tuple(one["views"]), one["view_group"], Epoch(one["since"]), int(told.get("engine") or 0))
        for one in told["builds"]
        if one.get("by") == "spark" and one["since"]
    ]
    return sorted(found, key=lambda one: one.view_group)


class _Driver:
    def __init__(
        self,
        spark: SparkSession,
        db: ClusterDatabase,
        url: str,
        access: Mapping[str, str],
        waiting: WaitingBuild,
        settings: Settings,
        tell: Tell,
    ) -> None:
        self._spark, self._db, self._settings, self._tell = spark, db, settings, tell
        self._waiting, self._build = waiting, AsideBuild(waiting.view_group, waiting.since)
        require_engine(waiting.engine)
        self._report = BuildReport(waiting.views, waiting.view_group, waiting.since)
        self._job = self._plan(url, dict(access))
        self._kept: list[DataFrame] = []

    def _store(self) -> Any:
        return self._db.stores(self._db.deadline())

    def _plan(self, url: str, access: dict[str, str]) -> Job:
        since = self._waiting.since
        known = self._db.epochs.wait(lambda known: known.epoch >= since, self._db.deadline(SECONDS))
        if known is None:
            raise Unavailable(f"epoch {since} is planned and was not committed within {SECONDS:g} s")
        committed = known.committed
        document = self._store().get_document(committed.catalog_document)
        if document is None:
            raise Unavailable(f"document {committed.catalog_document!r} is not in the store")
        slices = self._slices(document)
        return Job(
            url,
            access,
            self._build,
            committed.catalog_document,
            self._waiting.engine,
            slices,
            self._settings.memory_limit,
        )

    def _slices(self, document: bytes) -> int:
        """As the driver before has cut it, whose slices may be written."""
        known = self._store().get_document(self._build.shape)
        if known is not None:
            return int(known)
        usage = self._store().usage()
        rows = sum(usage.get(table, 0) for table in leaf_tables(document, self._waiting.view_group))
        wanted = self._settings.slices or max(
            -(-rows // ROWS_OF_A_SLICE), self._spark.sparkContext.defaultParallelism if rows > ROWS_OF_A_SLICE else 1
        )
        slices = min(wanted, MOST_SLICES)
        self._store().put_document(self._build.shape, str(slices).encode())
        return slices

    # ------------------------------------------------------------------ the parts

    def run(self) -> BuildReport:
        report, job = self._report, self._job
        worker = Worker(job, self._db)
        report.slices = job.slices * len(worker.parts)
        before = self._store().list_documents(self._build.tasks)
        report.resumed = sum(name.endswith(f"-{job.slices}") for name in before)
        began = time.monotonic()
        watch = _Watch(self._db, self._build, report, self._settings.fresh_ms, self._tell, job.slices)
        watch.start()
        batch = self._spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")
        # a row is a batch of thousands of rows here
        self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(PAYLOADS_OF_A_BATCH))
        try:
            sent: DataFrame | None = None
            for at in range(len(worker.parts)):
                frame = self._carried_out(at, sent, last=at == len(worker.parts) - 1)
                sent = frame if sent is None else sent.unionByName(frame)
            if self._still_wanted():
                self._store().put_document(self._build.done, b"")
            else:
                report.stopped = True
                report.problem = "the view was changed or dropped meanwhile: nothing is left to build"
        except Exception as error:
            if self._still_wanted():
                raise
            report.stopped = True
            report.problem = f"the view was changed or dropped meanwhile: nothing is left to build ({_short(error)})"
        finally:
            self._spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch))
            watch.stop()
            for frame in self._kept:
                frame.unpersist()
        report.rows = watch.rows()
        report.seconds = time.monotonic() - began
        return report

    def _carried_out(self, at: int, sent: DataFrame | None, last: bool) -> DataFrame:
        """Run a part; returns what it sent, kept where it is not computed again."""
        from pyspark import StorageLevel

        place = self._settings.checkpoint and str(
            PurePath(self._settings.checkpoint)
            / f"belvedere-build-{self._build.view_group}-{self._build.since}-{at}-{self._job.slices}"
        )
        frame = part_frame(self._spark, self._job, at, sent)
        if not place or last:
            frame = frame.persist(StorageLevel.DISK_ONLY)
            self._kept.append(frame)
            frame.count()
            return frame
        if not self._is_there(place):
            frame.write.mode("overwrite").parquet(place)
        return self._spark.read.schema(SENT).parquet(place)

    def _is_there(self, place: str) -> bool:
        """Whether a driver before has come to the end of a part."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        path = jvm.org.apache.hadoop.fs.Path(f"{place}/_SUCCESS")
        return bool(path.getFileSystem(self._spark.sparkContext._jsc.hadoopConfiguration()).exists(path))

    def _still_wanted(self) -> bool:
        return any(
            (one.view_group, one.since) == (self._build.view_group, self._build.since)
            for one in waiting_builds(self._db)
        )


def _short(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


@dataclass
class _Watch:
    """Tells how far a build is, in the pool's status and here; makes tasks rest while views in service are late; and
    ends the build when nobody wants it any more."""

    db: ClusterDatabase
    build: AsideBuild
    report: BuildReport
    fresh_ms: int
    tell: Tell
    slices: int
    _ended: threading.Event = field(default_factory=threading.Event)
    _pace: int = 0
    _done: dict[str, int] = field(default_factory=dict)
    _began: float = 0.0
    _first: int = 0

    def start(self) -> None:
        self._began = time.monotonic()
        self._look()
        self._first = len(self._done)
        self._thread = threading.Thread(target=self._run, name="belvedere build", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(BelvedereError):
            self._look()

    def rows(self) -> int:
        return sum(self._done.values())

    def _run(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with contextlib.suppress(BelvedereError):  # the next look tells
                self._look()
                self._set_pace()

    def _look(self) -> None:
        store = self.db.stores(self.db.deadline())
        for name in store.list_documents(self.build.tasks):
            if name.endswith(f"-{self.slices}") and name not in self._done:
                self._done[name] = int(store.get_document(name) or b"0")
        done, total = len(self._done), self.report.slices
        seconds = time.monotonic() - self._began
        rate = self.rows() / seconds if seconds > 0 else 0.0
        fresh = done - self._first
        told = {
            "done": done,
            "total": total,
            "rows": self.rows(),
            "rows_per_s": round(rate),
            "remaining_s": round(seconds / fresh * (total - done), 1) if fresh else None,
        }
        store.put_document(self.build.progress, json.dumps(told).encode())
        left = f", about {told['remaining_s']} s left" if told["remaining_s"] is not None else ""
        self.tell(f"{', '.join(self.report.views)}: {done} of {total} slices, {self.rows()} rows{left}")

    def _set_pace(self) -> None:
        """Double the rest while views are late, halve it when they are not."""
        lag = int(self.db.status().get("lag_ms") or 0)
        wanted = min(max(2 * self._pace, 50), 5_000) if lag > self.fresh_ms else self._pace // 2
        if wanted != self._pace:
            self._pace = wanted
            self.db.stores(self.db.deadline()).put_document(self.build.pace, str(wanted).encode())
