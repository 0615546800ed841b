"""The capacity model: what the protocol costs grows with the servers, not faster, and work is spread evenly.

All times in here are virtual: they follow from the costs and the machines alone.
"""

from __future__ import annotations

import numpy as np
import pytest

from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion
from bench.capacity import Costs, Outcome, Pool, Workload, step_up

FEW_ROWS = Workload(rate=1_000)


def control_per_epoch(servers: int) -> float:
    pool = Pool(servers, Costs(), FEW_ROWS)
    pool.run(0.4)
    return pool.run(0.8).control_per_epoch


def test_control_messages_of_an_epoch_are_linear_in_servers() -> None:
    sizes = np.array([10, 50, 400])
    found = np.array([control_per_epoch(int(n)) for n in sizes])
    # Begin, Expect and Sent for each of two stages, Done, Committed; distributors: Begin, Sent, Committed.
    expected = 7 * sizes + 3 * -(-sizes // 8)
    assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("servers", [10, 400])
def test_work_is_spread_evenly(servers: int) -> None:
    costs = Costs(distribute_row=0.0, row=0.5, write_row=0.5)
    pool = Pool(servers, costs, Workload(rate=50_000 * servers, fan_out=0.0), distributors=2)
    seen = pool.run(0.8)
    assert seen.loads.sum() > 2_000 * servers and len(seen.loads) == servers
    assert seen.busiest <= 1.1


@pytest.mark.parametrize("servers", [10, 400])
def test_buckets_are_spread_evenly(servers: int) -> None:
    loads = Ring.of(RingVersion(1), [MemberId(f"server-{n}") for n in range(servers)]).loads()
    assert loads.sum() == BUCKETS and loads.max() / loads.mean() <= 1.1


def saturated(servers: int) -> Outcome:
    pool = Pool(servers, Costs(row=20.0, write_row=1.0), Workload(rate=80_000 * servers))
    pool.run(4.0)
    return pool.run(4.0)


def test_throughput_grows_with_servers() -> None:
    one, four = saturated(1), saturated(4)
    assert 0.6 * 50_000 < one.throughput <= 50_000, "a row costs 20 us"
    assert 3.2 < four.throughput / one.throughput <= 4.1


def test_everything_below_capacity_is_committed_with_little_lag() -> None:
    pool = Pool(4, Costs(), Workload(rate=40_000))
    pool.run(1.0)
    seen = pool.run(5.0)
    assert seen.throughput == pytest.approx(40_000, rel=0.05)
    assert seen.lag(0.99) < 0.5


def test_a_hot_key_makes_one_server_busy() -> None:
    even = Pool(10, Costs(), Workload(rate=50_000)).run(1.0)
    skewed = Pool(10, Costs(), Workload(rate=50_000, zipf=1.0)).run(1.0)
    assert skewed.busiest > even.busiest + 0.1


def test_servers_join_and_leave_under_load() -> None:
    pool = Pool(3, Costs(), Workload(rate=30_000))
    pool.run(1.0)
    took, seen = step_up(pool, 2.0)
    assert len(pool.servers) == 4
    assert 0 < took < 1 and seen.gap < 1
    assert seen.loads.min() > 0, "the new one has its share"
    pool.shrink()
    after = pool.run(2.0)
    assert len(pool.servers) == 3 and len(after.loads) == 3
    assert after.throughput == pytest.approx(30_000, rel=0.05)


def test_the_same_seed_is_the_same_history() -> None:
    def run() -> tuple[int, int, list[int]]:
        pool = Pool(5, Costs(), Workload(rate=20_000), seed=3)
        pool.run(1.0)
        return pool.committed[-1].epoch, sum(plan.rows for plan in pool.committed), pool.run(1.0).loads.tolist()

    assert run() == run()
