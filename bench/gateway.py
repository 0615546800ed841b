"""The gateway under load: `python -m bench.gateway [embedded] [pool] [scans] [events] [writes]`.

Point reads are driven by wrk (Debian's package of that name), everything else by small clients here. What counts is the
CPU time of the gateway's process; the embedded database is part of that process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

import belvedere
from belvedere.cluster.process.local import ClusterShape, LocalCluster

ROWS, GROUPS = 100_000, 10_000
SECONDS = float(os.environ.get("BENCH_SECONDS", "8"))
ARROW = "application/vnd.apache.arrow.stream"
KEYS = f"""
math.randomseed(7)
request = function()
  return wrk.format("GET", "/v1/relations/spend/row?key=" .. math.random(0, {GROUPS - 1}))
end
done = function(summary, latency, requests)
  io.write(string.format("RESULT %d %d %f %f %f\\n", summary.requests, summary.errors.status + summary.errors.read
    + summary.errors.connect + summary.errors.timeout, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    summary.duration / 1e6))
end
"""


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextlib.contextmanager
def gateway(*arguments: str) -> Iterator[tuple[int, str]]:
    """Its process and URL."""
    command = [
        sys.executable,
        "-m",
        "belvedere.cli.main",
        *arguments,
        "--port",
        "0",
        "--max-requests-per-caller",
        "256",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        while httpx.get(f"{url}/readyz").status_code != 200:
            time.sleep(0.1)
        yield process.pid, url
    finally:
        process.terminate()
        process.wait(60)


def fill(db: Any) -> None:
    db.execute("CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2), city STRING)")
    db.execute(
        "CREATE MATERIALIZED VIEW spend AS"
        " SELECT customer, count(*) AS n, sum(total) AS total FROM orders GROUP BY customer"
    )
    db.execute("CREATE MATERIALIZED VIEW all_orders AS SELECT id, customer, total, city FROM orders")
    token = None
    for start in range(0, ROWS, 10_000):
        ids = range(start, start + 10_000)
        token = db.put("orders", [{"id": i, "customer": i % GROUPS, "total": "9.50", "city": "Oslo"} for i in ids])
    db.wait(token, 300)


@contextlib.contextmanager
def embedded(directory: Path) -> Iterator[tuple[int, str]]:
    path = str(directory / "bench.bv")
    if not Path(path).exists():
        with belvedere.open(path) as db:
            fill(db)
    with gateway("--db", path, "serve") as found:
        yield found


@contextlib.contextmanager
def pool(directory: Path) -> Iterator[tuple[int, str]]:
    shape = ClusterShape(viewservers=1, distributors=1, coordinators=1, session_timeout=10.0, sync=False)
    cluster = LocalCluster(directory / "pool", shape)
    try:
        cluster.start()
        with belvedere.connect(cluster.url, timeout=120.0) as db:
            fill(db)
        with gateway("--url", cluster.url, "gateway") as found:
            yield found
    finally:
        cluster.stop()


# ---------------------------------------------------------------------- point reads


def wrk(url: str, pid: int, connections: int) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(KEYS)
        script.flush()
        before = cpu(pid)
        command = ["wrk", "-t1", f"-c{connections}", f"-d{SECONDS:g}s", "--timeout", "10s", "-s", script.name, url]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        used = cpu(pid) - before
    line = next(line for line in told.splitlines() if line.startswith("RESULT"))
    requests, failed, p50, p99, seconds = map(float, line.split()[1:])
    assert not failed, told
    return {"requests": requests, "rate": requests / seconds, "per_cpu": requests / used, "p50": p50, "p99": p99}


async def paced(url: str, rate: float, seconds: float) -> list[float]:
    """Milliseconds of point reads that begin at a fixed rate, whatever the ones before take."""
    host, _, port = url.removeprefix("http://").partition(":")
    free: asyncio.Queue[Any] = asyncio.Queue()
    for _ in range(64):
        free.put_nowait(await asyncio.open_connection(host, int(port)))
    took: list[float] = []

    async def one(key: int, due: float) -> None:
        reader, writer = await free.get()
        writer.write(f"GET /v1/relations/spend/row?key={key} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        took.append((time.perf_counter() - due) * 1000)
        free.put_nowait((reader, writer))

    began, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (left := due - time.perf_counter()) > 0.001:
            await asyncio.sleep(left)
        tasks.append(asyncio.ensure_future(one(number * 7919 % GROUPS, due)))
    await asyncio.gather(*tasks)
    while not free.empty():
        free.get_nowait()[1].close()
    return took


def point_reads(name: str, pid: int, url: str) -> None:
    wrk(url, pid, 4)
    for connections in (1, 16, 64):
        found = wrk(url, pid, connections)
        print(
            f"{name}: point reads, {connections} connections: {found['per_cpu']:,.0f} per CPU second,"
            f" {found['rate']:,.0f}/s, p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms",
            flush=True,
        )
    rate = found["rate"] / 2
    took = sorted(asyncio.run(paced(url, min(rate, 1500.0), SECONDS)))
    print(
        f"{name}: point reads at {min(rate, 1500.0):,.0f}/s: p50 {statistics.median(took):.2f} ms,"
        f" p99 {took[int(len(took) * 0.99)]:.2f} ms; resident {resident(pid):.0f} MB",
        flush=True,
    )


# ---------------------------------------------------------------------- scans


def scans(name: str, pid: int, url: str) -> None:
    with httpx.Client(base_url=url, timeout=60.0) as client:
        for what, accept in (("Arrow", ARROW), ("JSON", "application/json"), ("NDJSON", "application/x-ndjson")):
            client.get("/v1/relations/all_orders/rows?limit=1", headers={"accept": accept})
            before, rows, until = cpu(pid), 0, time.monotonic() + SECONDS
            while time.monotonic() < until:
                answer = client.get(f"/v1/relations/all_orders/rows?limit={ROWS}", headers={"accept": accept})
                answer.raise_for_status()
                rows += ROWS
            print(f"{name}: scan as {what}: {rows / (cpu(pid) - before):,.0f} rows per CPU second", flush=True)


# ---------------------------------------------------------------------- events

_SUBSCRIBER = """
import asyncio, sys, json, time
host, port, count, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
async def one(ready):
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
    writer.write(b"GET /v1/relations/spend/changes HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    last = seen = 0
    rest = b""
    began = False
    while True:
        data = rest + await reader.read(1 << 16)
        *lines, rest = data.split(b"\\n")
        for line in lines:
            if line.startswith(b"id: "):
                number = int(line[4:])
                assert number > last, (number, last)
                last = number
                if not began:
                    began = True
                    ready()
            elif line.startswith(b'data: {"epoch"') and b'"added"' in line:
                seen += line.count(b'"customer"') // 2 or 1
                if seen >= wanted:
                    writer.close()
                    return seen
async def main():
    left = count
    def ready():
        nonlocal left
        left -= 1
        if not left:
            print("READY", flush=True)
    found = await asyncio.gather(*(one(ready) for _ in range(count)))
    print("DONE", min(found), max(found), flush=True)
asyncio.run(main())
"""


def events(name: str, pid: int, url: str, count: int = 1000, rate: int = 100) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    changes = int(rate * SECONDS)
    empty, most = resident(pid), [0.0]
    arguments = [sys.executable, "-c", _SUBSCRIBER, host, port, str(count), str(changes)]
    subscribers = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert subscribers.stdout is not None
    assert subscribers.stdout.readline() == "READY\n"
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            most[0] = max(most[0], resident(pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    before, began = cpu(pid), time.monotonic()
    with httpx.Client(base_url=url, timeout=60.0) as client, ThreadPoolExecutor(16) as writers:

        def write(number: int) -> None:
            row = {"id": 10_000_000 + number, "customer": number % GROUPS, "total": "1.00"}
            client.post("/v1/relations/orders/rows", json=row).raise_for_status()

        made = []
        for number in range(changes):
            due = began + number / rate
            if (left := due - time.monotonic()) > 0:
                time.sleep(left)
            made.append(writers.submit(write, number))
        for one in made:
            one.result()
    written = time.monotonic() - began
    line = subscribers.stdout.readline()
    took, used = time.monotonic() - began, cpu(pid) - before
    stop.set()
    watcher.join()
    subscribers.wait(60)
    assert line.startswith("DONE"), line
    print(
        f"{name}: {count:,} subscribers, {changes / written:.0f} changes/s: all delivered in order, the last"
        f" {took - written:.2f} s after its write; {used / took:.2f} CPUs; resident {empty:.0f} MB before,"
        f" {most[0]:.0f} MB at most",
        flush=True,
    )


# ---------------------------------------------------------------------- a write, and a read that includes it


def writes(name: str, pid: int, url: str) -> None:
    took = []
    with httpx.Client(base_url=url, timeout=60.0) as client:
        for number in range(int(60 * SECONDS)):
            row = {"id": 20_000_000 + number, "customer": number % GROUPS, "total": "1.00"}
            began = time.perf_counter()
            token = client.post("/v1/relations/orders/rows", json=row).json()["token"]
            headers = {"belvedere-after": token}
            answer = client.get(f"/v1/relations/spend/row?key={number % GROUPS}", headers=headers)
            took.append((time.perf_counter() - began) * 1000)
            assert answer.status_code == 200, answer.text
    took.sort()
    print(
        f"{name}: write of a row to `get` after its token: p50 {statistics.median(took):.2f} ms,"
        f" p99 {took[int(len(took) * 0.99)]:.2f} ms",
        flush=True,
    )


PARTS = {"reads": point_reads, "scans": scans, "events": events, "writes": writes}


def main(wanted: list[str]) -> None:
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is missing: apt-get install wrk")
    kinds = [kind for kind in ("embedded", "pool") if kind in wanted] or ["embedded", "pool"]
    parts = [part for part in PARTS if part in wanted] or list(PARTS)
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as directory:
        for kind in kinds:
            with (embedded if kind == "embedded" else pool)(Path(directory)) as (pid, url):
                for part in parts:
                    PARTS[part](kind, pid, url)


if __name__ == "__main__":
    main(sys.argv[1:])
