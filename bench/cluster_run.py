"""A real cluster on this machine to be measured: processes, their CPU seconds, a stream of writes, every commit.

CPU seconds are those that the kernel has counted for a process (all threads, user and system), so other work on the
machine does not add to them, although it makes caches colder and epochs, which follow the clock, different.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import belvedere
from belvedere.backend.served.client import FlightStore
from belvedere.cluster.client.inquiry import status_of
from belvedere.cluster.client.token import ClusterToken
from belvedere.cluster.process.local import ClusterShape, LocalCluster
from belvedere.cluster.transport import calls
from belvedere.errors import BelvedereError
from belvedere.protocol.messages import Role
from bench.queries import CREATE_R, VIEWS
from bench.workload import Stream, stream_r

TICKS = os.sysconf("SC_CLK_TCK")
GROUPS = 100_000
PUT_ROWS = 10_000
"""Rows of one write when a backlog is made."""
PATIENCE = 600.0
LEADER = "coordinator-1"


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@dataclass(frozen=True)
class Commit:
    """An epoch that became visible to clients, when they heard of it (seconds, monotonic)."""

    at: float
    epoch: int
    seq: int
    """The newest write that is in it."""


class Commits:
    """Hears of every commit, in a thread of its own (a commit that follows within less than an answer takes is heard of
    together with it)."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self.seen: list[Commit] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commits", daemon=True)

    def __enter__(self) -> Commits:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10.0)

    def _run(self) -> None:
        last = -1
        while not self._stop.is_set():
            try:
                data = self._db.pool.ask_leader(calls.COMMITTED, calls.encode(calls.StatusCall(last, 500)), 2.0)
            except BelvedereError:
                continue
            found = calls.decode(data, calls.Seen).committed
            if found.epoch > last:
                last = found.epoch
                self.seen.append(Commit(time.monotonic(), last, max(found.positions.values(), default=0)))

    def between(self, begin: float, end: float) -> list[Commit]:
        return [commit for commit in self.seen if begin <= commit.at <= end]

    def longest_gap(self, begin: float, end: float) -> float:
        """The longest time without a commit that overlaps with this one."""
        times = [commit.at for commit in self.seen]
        inside = [at for at in times if begin < at < end]
        before = max((at for at in times if at <= begin), default=begin)
        after = min((at for at in times if at >= end), default=end)
        marks = [before, *inside, after]
        return max(b - a for a, b in itertools.pairwise(marks))


@dataclass
class Usage:
    """CPU seconds between two moments, by process, and the time on the clock."""

    wall: float
    by_process: dict[str, float] = field(default_factory=dict)

    def of(self, role: Role) -> float:
        return sum(seconds for name, seconds in self.by_process.items() if name.startswith(role.value))


class Bed:
    """A cluster with table R and view q3, and a client."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.db: Any = belvedere.connect(cluster.url, timeout=PATIENCE)

    def create(self, query: str = "q3") -> None:
        self.db.execute(CREATE_R)
        self.db.execute(f"CREATE MATERIALIZED VIEW {query} AS {VIEWS[query]}")
        self.wait_for_servers(self.cluster.shape.viewservers)

    def warm(self, rows: int = 50_000) -> None:
        """Load code and kernels everywhere: what follows is about rows."""
        self.write(stream_r(rows, GROUPS, seed=1))

    def write(self, stream: Stream, rows: int = PUT_ROWS, wait: bool = True) -> Any:
        token = None
        for part, deletes in stream.batches(rows):
            token = self.db.write("r", part, deletes=deletes)
        if wait:
            self.db.wait(token, PATIENCE)
        return token

    def cpu(self) -> dict[str, float]:
        pids = {name: child.pid for name, child in list(self.cluster.children.items())}
        return {name: cpu_seconds(pid) for name, pid in pids.items() if pid is not None}

    @contextmanager
    def used(self) -> Iterator[Usage]:
        usage, before, begin = Usage(0.0), self.cpu(), time.monotonic()
        yield usage
        usage.wall = time.monotonic() - begin
        usage.by_process = {name: seconds - before.get(name, 0.0) for name, seconds in self.cpu().items()}

    def status(self) -> dict[str, Any]:
        return status_of(self.cluster.coordinators, 5.0)

    def wait_for_servers(self, count: int) -> None:
        """Until so many view servers have a share of the ring."""
        self._until(
            lambda: sum(bool(member.get("share")) for member in self.status().get("members", ())) == count,
            f"{count} view servers have a share of the ring",
        )

    def without_leader(self) -> None:
        """Until the coordinator has left: writes reach INPUT, and nothing is planned. Caches stay warm."""
        self.cluster.retire(LEADER)
        self._until(lambda: LEADER not in self.cluster.children, "the coordinator is gone")

    def with_leader(self) -> None:
        self.cluster.add(Role.COORDINATOR)

    def input_is_full(self, token: Any) -> None:
        """Until everything up to this write is in INPUT."""
        store = FlightStore(self._store_address())
        wanted = dict(ClusterToken.parse(token).positions)

        def reached() -> bool:
            last: dict[str, int] = {}
            for chunk in store.chunks():
                last[chunk.source] = max(last.get(chunk.source, -1), chunk.last)
            return all(last.get(source, -1) >= seq for source, seq in wanted.items())

        try:
            self._until(reached, "the backlog is in INPUT")
        finally:
            store.close()

    def _store_address(self) -> str:
        members = self.db.pool.topology(self.db.deadline(PATIENCE)).members
        return str(next(member.address for member in members if member.role is Role.STORE))

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {PATIENCE:g} s: {what}")
            time.sleep(0.05)


@contextmanager
def bed(viewservers: int, distributors: int = 1, query: str = "q3") -> Iterator[Bed]:
    """A fresh cluster, warm; gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="belvedere-bench-"))
    try:
        with LocalCluster(directory, ClusterShape(viewservers=viewservers, distributors=distributors)) as cluster:
            found = Bed(cluster)
            found.create(query)
            found.warm()
            try:
                yield found
            finally:
                found.db.close()
    finally:
        keep = os.environ.get("BELVEDERE_BENCH_LOGS")
        if keep:
            shutil.copytree(directory / "logs", keep, dirs_exist_ok=True)
        shutil.rmtree(directory, ignore_errors=True)
