"""The capacity model for 1 to 400 view servers: the protocol in virtual time, with costs measured on this machine.

    PYTHONPATH=viewserver:. python bench/scale.py [largest] [same-costs] [add]

Costs are measured first, in this run, by the engine, the wire and the store alone (`measured`); with `same-costs` those
of the last run are taken, on a machine that has other things to do or to see what a change of the protocol does. With
`add` only sizes that the last run did not come to are done, with its costs. Then
for each size: the highest throughput, the lag at half of it, what a scale step interrupts, control messages for each
epoch, the busiest server. Results: `bench/results/scale.json` and `.svg`.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import TableWrite
from belvedere.cluster.transport.flight import FlightTransport
from belvedere.engine.warm import warm
from belvedere.protocol import wire
from belvedere.protocol.barrier import Barrier
from belvedere.protocol.messages import Attempt, Epoch, Sent
from belvedere.protocol.ring import MemberId, Ring, RingVersion
from bench import micro_shard, micro_store, micro_wire
from bench.capacity import Costs, Outcome, Pool, Workload, step_up
from bench.harness import machine

RESULTS = Path(__file__).parent / "results"
SIZES = (1, 2, 5, 10, 25, 50, 100, 200, 400)
STORES_PER_SERVER = 2
"""Processes of the store for each view server in the model: so many keep up with it, as measured."""
LEARNING = 6.0
LONGEST_LEARNING = 60.0
"""Seconds that a pool gets to find out how large its epochs should be: it begins with small ones, and what is written
meanwhile has to be caught up before the lag says anything about the load."""
STEADY = 0.05
"""What is committed may differ from what comes by so much: epochs begin before a window and end after it."""
VMS_UPDATES = 1_000_000
"""The highest rate that the authors of VMS report (Adler et al., Scalable Support for Incremental View Maintenance in
Key-Value Stores, TUM 2017), on a cluster of their own; an operation of q3 changes one row of the view, too."""
ROWS_WRITTEN = 1.6
"""Rows that an operation of q3 makes the store write: the base row, the group, the row of the view (shared by
operations of one epoch)."""


# ---------------------------------------------------------------------- costs


def measured() -> Costs:
    """What things cost on this machine. Latencies between machines are assumed, everything else is measured here."""
    costs = Costs()
    small, big = engine(1_000), engine(20_000)
    row = max(0.5, (big["seconds"] - small["seconds"]) / (big["rows"] - small["rows"]) * 1e6)
    epoch = max(500.0, small["seconds"] / micro_shard.SERVERS * 1e6 - row * small["rows"] / micro_shard.SERVERS)
    cold = engine(20_000, cold=True)
    load_row = max(0.0, (cold["seconds"] - big["seconds"]) / big["rows"] * 1e6)
    route = big["route"] / big["rows"] * 1e6
    message, queued, row_moved = transport()
    write, write_row = store()
    return replace(
        costs,
        row=row,
        epoch=epoch,
        load_row=load_row,
        distribute_row=route,
        message=message,
        queued=queued,
        row_moved=row_moved,
        count=count_cost(),
        adopt=adopt_cost(),
        write=write,
        write_row=write_row * ROWS_WRITTEN / STORES_PER_SERVER,
        call=write,
    )


def engine(batch: int, cold: bool = False) -> dict[str, float]:
    """CPU seconds of one epoch of q3 on all shards together (the best of several), and of routing its rows."""
    rng = np.random.default_rng(3)
    pool = micro_shard.Pool("q3")
    live = 100_000
    pool.epoch(micro_shard.R, micro_shard.operations(rng, live, 100_000, live, True))
    best, route = float("inf"), float("inf")
    for _ in range(6):
        if cold:
            for shard in pool.shards:
                shard.evict()
        pool.seconds = {}
        pool.epoch(micro_shard.R, micro_shard.operations(rng, live, 100_000, batch, False))
        best = min(best, pool.seconds["run"] + pool.seconds["finish"])
        route = min(route, pool.seconds["route"])
    return {"rows": batch, "seconds": best, "route": route}


def transport() -> tuple[float, float, float]:
    """Microseconds of CPU on one side (the dearer one): of a message that goes alone, as most do in a pool, where they
    go to many receivers; of one that is queued with others; of a row of 100 bytes."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=micro_wire.serve, args=(queue,), daemon=True)
    process.start()
    address = queue.get()
    sending = FlightTransport("127.0.0.1", member=micro_wire.HERE)
    sending.start(lambda sender, message, payload: None, {})
    sending.know(micro_wire.THERE, address)

    def cpu(count: int, work: Callable[[], object]) -> float:
        work()
        sending.drain(60)
        return min(max(micro_wire.measure(sending, address, count, work)[1:]) for _ in range(3))

    def send(payload: bytes) -> None:
        sending.send(micro_wire.THERE, micro_wire.BATCH, payload)

    try:
        message = cpu(500, lambda: micro_wire.one_at_a_time(sending))
        queued = cpu(5_000, lambda: send(b"x" * 200))
        row = (cpu(500, lambda: send(b"x" * 200_000)) - cpu(500, lambda: send(b"x" * 20_000))) / 1800
    finally:
        sending.close()
        process.terminate()
    return message, queued, max(0.0, row)


def count_cost() -> float:
    """Microseconds for each receiver that a report names: reading it, adding it up."""
    servers = [MemberId(f"viewserver-{n:03d}") for n in range(400)]
    barrier = Barrier(Epoch(1), Attempt(1), servers, (), 2)
    reports = [wire.encode(Sent(Epoch(1), Attempt(1), name, 0, {1: (1,) * len(servers)})) for name in servers]
    begin = time.process_time()
    for data in reports:
        report = wire.decode(data)
        assert isinstance(report, Sent)
        barrier.sent(report)
    return (time.process_time() - begin) / len(reports) / len(servers) * 1e6


def adopt_cost() -> float:
    """Microseconds for each server of a ring that is not known yet."""
    begin = time.process_time()
    Ring.of(RingVersion(1), [MemberId(f"a-server-{n}") for n in range(200)])
    return (time.process_time() - begin) / 200 * 1e6


def store() -> tuple[float, float]:
    """Microseconds until a write of few rows is durable (clock, median), and of the store's CPU for a row."""
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as directory:
        served = micro_store.Served(os.path.join(directory, "store"))
        rng = np.random.default_rng(0)
        ids = rng.integers(0, 2**64, (200_000, 2), np.uint64)
        values = pa.array([rng.bytes(micro_store.VALUE) for _ in range(20_000)], pa.binary())
        times = []
        for epoch in range(1, 60):
            begin = time.perf_counter()
            served.store.write(epoch, [TableWrite("t", ids[:5], values.slice(0, 5))])
            times.append(time.perf_counter() - begin)
        cpu = served.cpu()
        for epoch in range(100, 120):
            part = np.unique(ids[rng.integers(0, len(ids), 20_000)], axis=0)
            served.store.write(epoch, [TableWrite("t", part, values.slice(0, len(part)))])
            served.store.collect(epoch - 2, epoch - 100)
        time.sleep(2.0)  # what it does behind the writers' backs is counted, too
        cpu = served.cpu() - cpu
        served.stop()
    return sorted(times)[len(times) // 2] * 1e6, cpu / (20 * 19_000) * 1e6


# ---------------------------------------------------------------------- the model


def size(servers: int, costs: Costs) -> dict[str, Any]:
    """All figures of one size."""
    gc.collect()
    gc.disable()  # millions of events that wait are no garbage, and looking through them would take most of the time
    begin = time.process_time()
    limit = 1e6 / (costs.row + costs.epoch / 200_000)
    full = Pool(servers, costs, Workload(rate=1.2 * limit * servers))
    look = 4.0 + servers / 50  # epochs of many servers take longer
    full.run(LEARNING + servers / 25)  # how much an epoch may hold
    highest = full.run(look)
    half = Pool(servers, costs, Workload(rate=highest.throughput / 2))
    calm = settled(half, look)
    took, stepped = step_up(half, look)
    found = {
        "servers": servers,
        "throughput_per_s": highest.throughput,
        "per_server_per_s": highest.throughput / servers,
        "rows_per_epoch": highest.rows / max(1, highest.epochs),
        "lag_p50_s": calm.lag(0.5),
        "lag_p99_s": calm.lag(0.99),
        "epochs_per_s_at_half_load": calm.epochs / calm.seconds,
        "step_s": took,
        "pause_s": stepped.gap,
        "gap_without_step_s": calm.gap,
        "control_messages_per_epoch": (calm if calm.control else highest).control_per_epoch,
        "batches_per_epoch": calm.batches / max(1, calm.epochs),
        "busiest_against_mean": busiest(servers, 0.0),
        "busiest_against_mean_zipf": busiest(servers, 1.0),
        "leader_busy_at_half_load": calm.leader_busy,
        "leader_busy_at_full_load": highest.leader_busy,
        "cpu_s_of_the_simulation": time.process_time() - begin,
    }
    gc.enable()
    print(json.dumps(found, default=float), flush=True)
    return found


def settled(pool: Pool, look: float) -> Outcome:
    """What is seen when no backlog grows or is worked off any more: as much is committed as comes."""
    spent, seen = LEARNING, pool.run(LEARNING)
    while spent < LONGEST_LEARNING:
        before, seen = seen, pool.run(look)
        spent += look
        steady = abs(seen.throughput / pool.load.rate - 1.0) < STEADY
        if steady and before.lags.size and seen.lags.size and seen.lag(0.5) > 0.9 * before.lag(0.5):
            break
    return seen


def busiest(servers: int, zipf: float) -> float:
    """Rows of the busiest server against the mean, many rows on the ring of so many servers."""
    load = Workload(rate=20_000.0 * servers, fan_out=0.0, zipf=zipf)
    costs = Costs(distribute_row=0.0, row=0.1, write_row=0.1)
    seen: Outcome = Pool(servers, costs, load, distributors=2).run(1.5)
    return seen.busiest


def linear(points: list[dict[str, Any]]) -> dict[str, float]:
    """Control messages = a + b * servers, and how much of their variation that leaves unexplained."""
    n = np.array([point["servers"] for point in points], float)
    messages = np.array([point["control_messages_per_epoch"] for point in points], float)
    b, a = np.polyfit(n, messages, 1) if len(points) > 1 else (0.0, messages[0])
    rest = messages - (a + b * n)
    unexplained = float((rest**2).sum() / max(1.0, ((messages - messages.mean()) ** 2).sum()))
    return {"per_server": float(b), "constant": float(a), "unexplained": unexplained}


def plot(points: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    n = [point["servers"] for point in points]
    figure, axes = pyplot.subplots(2, 2, figsize=(11, 8), constrained_layout=True)
    first = points[0]["throughput_per_s"]
    top = axes[0][0]
    top.plot(n, [point["throughput_per_s"] for point in points], "o-", label="model")
    top.plot(n, [first * size for size in n], "--", color="grey", label="linear in the number of view servers")
    top.axhline(VMS_UPDATES, ls=":", color="firebrick", label="VMS on HBase: up to 1 M view updates per second")
    top.set(xscale="log", yscale="log", xlabel="view servers", ylabel="base operations per second", title="throughput")
    top.legend()
    lag = axes[0][1]
    lag.plot(n, [point["lag_p50_s"] for point in points], "o-", label="p50")
    lag.plot(n, [point["lag_p99_s"] for point in points], "o-", label="p99")
    lag.set(
        xscale="log", xlabel="view servers", ylabel="seconds", title="lag at half load (VMS: no figure)", ylim=(0, None)
    )
    lag.legend()
    step = axes[1][0]
    step.plot(n, [point["step_s"] for point in points], "o-", label="until the new server has its part")
    step.plot(n, [point["pause_s"] for point in points], "o-", label="longest time without a commit")
    step.plot(n, [point["gap_without_step_s"] for point in points], "--", color="grey", label="the same, no step")
    step.set(
        xscale="log",
        xlabel="view servers",
        ylabel="seconds",
        title="scale step n to n + 1 (VMS: no figure)",
        ylim=(0, None),
    )
    step.legend()
    control = axes[1][1]
    control.plot(n, [point["control_messages_per_epoch"] for point in points], "o-")
    control.set(xlabel="view servers", ylabel="messages", title="control messages per epoch")
    figure.savefig(path)


def main(largest: int, same_costs: bool, add: bool) -> None:
    points: list[dict[str, Any]] = []
    if same_costs or add:
        last = json.loads((RESULTS / "scale.json").read_text())
        costs = Costs(**last["costs_us"])
        points = last["points"] if add else []
    else:
        warm()
        costs = measured()
    print(json.dumps(asdict(costs)), flush=True)
    done = {point["servers"] for point in points}
    for servers in SIZES:
        if servers in done:
            continue
        if servers > largest:
            break
        points.append(size(servers, costs))
        results = {
            "machine": machine(),
            "costs_us": asdict(costs),
            "stores_per_server": STORES_PER_SERVER,
            "control_messages": linear(points),
            "points": points,
        }
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "scale.json").write_text(json.dumps(results, indent=1, default=float) + "\n")
    plot(points, RESULTS / "scale.svg")


if __name__ == "__main__":
    words = sys.argv[1:]
    main(next((int(word) for word in words if word.isdigit()), SIZES[-1]), "same-costs" in words, "add" in words)
