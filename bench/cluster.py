"""The cluster of real processes: what a base operation costs, how fresh views are, what scaling interrupts.

    PYTHONPATH=viewserver:. python bench/cluster.py [operations] [part ...]      parts: cost load reads ranges builds

Everything runs on one machine: ZooKeeper, coordinator, store, distributor and view servers, this client, and whatever
else it has to do. CPU seconds per operation mean something on a busy machine, ratios within one run more, times least.
Results are in `bench/results/cluster.json`; a part that was not asked for keeps what is there.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from belvedere.protocol.messages import Role
from bench.cluster_run import GROUPS, PATIENCE, Bed, Commits, bed
from bench.harness import Stolen, machine, percentile
from bench.workload import Stream, stream_r

RESULTS = Path(__file__).parent / "results" / "cluster.json"
GOALS = {
    "operations_per_cpu_second_of_a_view_server": 100_000,
    "cpu_of_four_against_one": 1.3,
    "freshness_ms": [100, 750],
    "pause_of_commits_p99_s": 1.0,
}
ROUNDS = 3
SMALL_PUT = 500
"""Rows of one write under steady load."""
WRITERS = 4
"""Threads that write when the maximum is looked for: one would measure how long a write takes."""
HALF_LOAD_SECONDS = 20.0
SETTLING_SECONDS = 2.0
"""Until the load has begun: before it nobody writes, so nothing is committed."""
SCALE_STEPS = 10
STEP_SECONDS = 8.0
PROBES_PER_SECOND = 10.0
SCANNED = "belvedere_store_scanned_rows_total"
PROBES = 64
"""That may wait at a time."""


def backlog(cluster: Bed, operations: int) -> dict[str, Any]:
    """A backlog in INPUT, then a leader who has it worked off: CPU of everyone, for each operation."""
    stream = stream_r(operations, GROUPS)
    cluster.without_leader()
    with cluster.used() as writing:
        token = cluster.write(stream, wait=False)
        cluster.input_is_full(token)
    with Commits(cluster.db) as commits, cluster.used() as working:
        cluster.with_leader()
        cluster.db.wait(token, PATIENCE)
    per_operation = {
        role.value: {
            "writing_us": writing.of(role) / operations * 1e6,
            "maintaining_us": working.of(role) / operations * 1e6,
        }
        for role in Role
    }
    seen = [commit for commit in commits.seen if commit.seq > commits.seen[0].seq]
    return {
        "operations": operations,
        "operations_per_cpu_second_of_view_servers": operations / working.of(Role.VIEWSERVER),
        "cpu_per_operation": per_operation,
        "epochs": len(seen),
        "rows_per_epoch": operations / max(1, len(seen)),
        "wall_operations_per_second": operations / working.wall,
    }


def cost(operations: int) -> dict[str, Any]:
    """One view server, and four, the same work; in turn, so that noise hits both, and medians."""
    found: dict[int, list[dict[str, Any]]] = {1: [], 4: []}
    for _ in range(ROUNDS):
        for servers, runs in found.items():
            with bed(servers) as cluster:
                runs.append(backlog(cluster, operations))
                _say(f"{servers} view servers", runs[-1])
    rates = {
        servers: [float(run["operations_per_cpu_second_of_view_servers"]) for run in runs]
        for servers, runs in found.items()
    }
    whole = {servers: statistics.median(map(_maintaining, runs)) for servers, runs in found.items()}
    return {
        "one": found[1],
        "four": found[4],
        "operations_per_cpu_second_of_a_view_server": statistics.median(rates[1]),
        "cpu_of_four_against_one": whole[4] / whole[1],
        "cpu_of_four_against_one_view_servers_alone": statistics.median(rates[1]) / statistics.median(rates[4]),
        "view_servers_alone_by_round": [one / four for one, four in zip(rates[1], rates[4], strict=True)],
    }


def _maintaining(run: dict[str, Any]) -> float:
    """Microseconds of CPU of all processes for each operation."""
    return float(sum(role["maintaining_us"] for role in run["cpu_per_operation"].values()))


class Feed:
    """Writes at a steady rate, and looks when some of the writes become visible in a read."""

    def __init__(self, cluster: Bed, rate: float, seconds: float) -> None:
        """`seconds`: for how long there is something to write."""
        self._db, self._rate = cluster.db, rate / WRITERS
        self.freshness: list[float] = []
        self.late = 0.0
        """Seconds by which a writer was behind its rate at worst."""
        self._stop = threading.Event()
        streams = [stream_r(int(self._rate * seconds), GROUPS, seed=40 + number) for number in range(WRITERS)]
        self._threads = [threading.Thread(target=self._write, args=(stream,), daemon=True) for stream in streams]
        self._threads.append(threading.Thread(target=self._probe, daemon=True))
        self._probes = ThreadPoolExecutor(PROBES, "probe")
        self._newest: tuple[float, Any] | None = None

    def __enter__(self) -> Feed:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self._probes.shutdown()

    def _write(self, stream: Stream) -> None:
        begin, written = time.monotonic(), 0
        for rows, deletes in stream.batches(SMALL_PUT):
            due = begin + written / self._rate
            self.late = max(self.late, time.monotonic() - due)
            if self._stop.wait(max(0.0, due - time.monotonic())):
                return
            token = self._db.write("r", rows, deletes=deletes)
            self._newest = (time.monotonic(), token)
            written += rows.num_rows

    def _probe(self) -> None:
        """On a schedule, whether the probes before have come back or not: times that are bad are not looked at less."""
        while not self._stop.wait(1 / PROBES_PER_SECOND):
            newest, self._newest = self._newest, None
            if newest is not None:
                self._probes.submit(self._look, *newest)

    def _look(self, written: float, token: Any) -> None:
        """Read after a write that has just returned: how long until the read can answer."""
        self._db.get("q3", 1, after=token, timeout=PATIENCE)
        self.freshness.append(time.monotonic() - written)


def maximum(cluster: Bed, operations: int) -> float:
    """Operations per second on the clock, from the first write to the last commit, with writes as small as later. The
    second of two times counts: at first the store has room for rows that it merges later, and seems faster."""
    return [_as_fast_as_possible(cluster, operations, seed=20 + 10 * turn) for turn in range(2)][-1]


def _as_fast_as_possible(cluster: Bed, operations: int, seed: int) -> float:
    streams = [stream_r(operations // WRITERS, GROUPS, seed=seed + number) for number in range(WRITERS)]
    threads = [
        threading.Thread(target=cluster.write, args=(stream, SMALL_PUT), name=f"writer {number}", daemon=True)
        for number, stream in enumerate(streams)
    ]
    begin = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return operations / (time.monotonic() - begin)


def load(operations: int) -> dict[str, Any]:
    """Freshness at half load; then one view server more, and one less, at the same load. Several times over, since what
    the host takes away changes from minute to minute; medians of freshness, and all pauses together."""
    rounds = [_load_once(operations) for _ in range(ROUNDS)]
    pauses = [pause for found in rounds for pause in found["pauses_s"]]
    return {
        "rounds": rounds,
        "freshness_ms": [statistics.median(found["freshness_ms"][at] for found in rounds) for at in range(2)],
        "pause_of_commits_p99_s": percentile(pauses, 0.99),
        "pause_of_commits_median_s": statistics.median(pauses),
    }


def _load_once(operations: int) -> dict[str, Any]:
    with bed(2) as cluster:
        highest = maximum(cluster, operations)
        rate = highest / 2
        seconds = HALF_LOAD_SECONDS + STEP_SECONDS * SCALE_STEPS + 120
        with Commits(cluster.db) as commits, Feed(cluster, rate, seconds) as feed:
            begun, stolen = time.monotonic(), Stolen()
            time.sleep(HALF_LOAD_SECONDS)
            fresh, late, stolen_share = list(feed.freshness), feed.late, stolen.share()
            usual = commits.longest_gap(begun + SETTLING_SECONDS, time.monotonic())
            stolen = Stolen()
            pauses = [scale_step(cluster, commits, 3 if step % 2 == 0 else 2) for step in range(SCALE_STEPS)]
        found = {
            "maximum_per_second": highest,
            "load_per_second": rate,
            "freshness_ms": [1000 * percentile(fresh, 0.5), 1000 * percentile(fresh, 0.99)],
            "probes": len(fresh),
            "stolen": stolen_share,
            "writing_late_s": late,
            "longest_gap_without_scaling_s": usual,
            "pauses_s": pauses,
            "stolen_while_scaling": stolen.share(),
            "writing_late_while_scaling_s": feed.late,
        }
        _say("half load", found)
        return found


def scale_step(cluster: Bed, commits: Commits, servers: int) -> float:
    """The longest time without a commit, from asking for so many servers to some seconds after they are there."""
    begin = time.monotonic()
    cluster.cluster.scale(servers)
    cluster.wait_for_servers(servers)
    time.sleep(max(2.0, STEP_SECONDS - (time.monotonic() - begin)))
    return commits.longest_gap(begin, time.monotonic())


def reads(operations: int) -> dict[str, Any]:
    """Point reads of one client while nobody writes, and while somebody does (at most 2,000 operations a second)."""
    with bed(2) as cluster:
        rng = np.random.default_rng(5)
        quiet = _get_times(cluster, rng)
        with Feed(cluster, 2_000.0, 60.0):
            busy = _get_times(cluster, rng)
        found = {
            "get_ms": [1000 * percentile(quiet, 0.5), 1000 * percentile(quiet, 0.99)],
            "get_under_load_ms": [1000 * percentile(busy, 0.5), 1000 * percentile(busy, 0.99)],
        }
        _say("reads", found)
        return found


def ranges(operations: int) -> dict[str, Any]:
    """Reads in key order by one client while nobody writes: a view with a row for each row of R."""
    with bed(1, query="q1") as cluster:
        cluster.write(stream_r(operations, GROUPS, seed=2))
        keys = np.sort(cluster.db.scan("q1", columns=["k"])["k"].to_numpy())
        starts = np.random.default_rng(5).choice(keys[:-100], 1_000).tolist()
        found: dict[str, Any] = {"rows": len(keys)}
        kinds: dict[str, Callable[[int], Any]] = {
            "get_ms": lambda key: cluster.db.get("q1", key),
            "lookup_ms": lambda key: cluster.db.lookup("q1", key),
            "scan_of_100_ms": lambda key: cluster.db.scan("q1", start=key, limit=100),
        }
        for name, read in kinds.items():
            times = []
            for key in starts:
                begin = time.perf_counter()
                read(key)
                times.append(1000 * (time.perf_counter() - begin))
            found[name] = [percentile(times, 0.5), percentile(times, 0.99)]
        _say("ranges", found)
        return found


def builds(rows: int) -> dict[str, Any]:
    """A view over a table of so many rows, built by four servers: how often the store reads each row for it."""
    with bed(4) as cluster:
        stream = stream_r(rows, GROUPS, seed=2)
        cluster.write(stream)
        held = cluster.db.execute("SELECT count(*) AS n FROM r").to_pylist()[0]["n"]
        before = _settled(cluster, held)  # counting them has read them as well
        with cluster.used() as used:
            cluster.db.execute("CREATE MATERIALIZED VIEW built AS SELECT a, count(*) AS n FROM r GROUP BY a")
        read = _settled(cluster, before + held) - before
    return {"rows": held, "rows_read": read, "read_per_row": read / held, "cpu_store_s": used.of(Role.STORE)}


def _scanned(cluster: Bed) -> float:
    """What the store says of itself, at one of the ports where it listens."""
    (pid,) = [child.pid for child in cluster.cluster.children.values() if child.role is Role.STORE]
    for port in _ports(pid):
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as answer:
                lines = answer.read().decode().splitlines()
            return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(SCANNED))
    raise OSError(f"process {pid}, the store, serves no metrics")


def _ports(pid: int | None) -> list[int]:
    """Where a process listens."""
    held = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            held.add(os.readlink(file))
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held]


def _settled(cluster: Bed, least: float) -> float:
    """The figure is told once in a while: what it is when it has reached the least, and does not change any more."""
    cluster._until(lambda: _scanned(cluster) >= least, "the store has told of the rows that it read")
    time.sleep(SETTLING_SECONDS)
    return _scanned(cluster)


def _get_times(cluster: Bed, rng: np.random.Generator, count: int = 2_000) -> list[float]:
    times = []
    for key in rng.integers(0, GROUPS, count).tolist():
        begin = time.monotonic()
        cluster.db.get("q3", key)
        times.append(time.monotonic() - begin)
    return times


def _say(what: str, found: dict[str, Any]) -> None:
    print(f"{what}: {json.dumps(found, default=float)}", flush=True)


PARTS = {"cost": cost, "load": load, "reads": reads, "ranges": ranges, "builds": builds}


def main(arguments: list[str]) -> None:
    operations = next((int(word) for word in arguments if word.isdigit()), 1_000_000)
    wanted = [word for word in arguments if word in PARTS] or list(PARTS)
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in wanted:
        found = PARTS[name](operations)
        results[name] = {**found, "machine": machine(), "load_average_after": os.getloadavg()[0]}
        results["goals"] = GOALS
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1, default=float) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
