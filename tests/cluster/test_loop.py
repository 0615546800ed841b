"""Threads of a process, its clock and its options."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from belvedere.cluster.coordination.clock import Clock
from belvedere.cluster.process.loop import Busy, Loop, Worker
from belvedere.cluster.process.options import ProcessOptions, spoken_protocols
from belvedere.errors import DataError
from belvedere.protocol.membership import OLDEST_PROTOCOL
from belvedere.protocol.messages import PROTOCOL, Role


def test_calls_run_in_order_in_the_thread_of_the_loop() -> None:
    loop = Loop()
    seen: list[tuple[int, int]] = []
    for number in range(100):
        loop.post(lambda number=number: seen.append((number, threading.get_ident())))  # type: ignore[misc]
    loop.post(loop.stop)
    loop.post(lambda: seen.append((-1, 0)))
    loop.run(lambda: None, 1.0)
    assert seen == [(number, threading.get_ident()) for number in range(100)]


def test_a_loop_that_is_busy_ticks_as_well() -> None:
    loop = Loop()
    ticks: list[float] = []
    work = [0]

    def again() -> None:
        work[0] += 1
        time.sleep(0.001)
        loop.post(again if len(ticks) < 5 else loop.stop)

    loop.post(again)
    loop.run(lambda: ticks.append(time.monotonic()), 0.005)
    assert len(ticks) >= 5
    assert work[0] > 5


def test_what_a_worker_raises_ends_the_loop() -> None:
    loop = Loop()
    worker = Worker("test", loop.fail)
    worker.do(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run(lambda: None, 0.01)
    worker.close()
    assert worker.join(5.0)


def test_a_closed_worker_begins_nothing() -> None:
    worker = Worker("test", lambda error: None)
    begun, go_on, done = threading.Event(), threading.Event(), []
    worker.do(lambda: (begun.set(), go_on.wait(120.0)))  # type: ignore[arg-type, return-value]
    worker.do(lambda: done.append(1))
    assert begun.wait(60.0)
    assert worker.waiting() == 1
    worker.close()
    go_on.set()
    assert worker.join(5.0)
    assert done == []
    assert 0.0 <= Busy(worker).share() <= 1.0


class Hands:
    """A wall clock and a stopwatch."""

    def __init__(self) -> None:
        self.wall, self.passed = 1000.0, 0.0
        self.clock = Clock(lambda: self.wall, lambda: self.passed)

    def after(self, seconds: float, jump: float = 0.0) -> int:
        self.wall += seconds + jump
        self.passed += seconds
        return self.clock.now()


def test_time_follows_the_clock_and_never_goes_back() -> None:
    hands = Hands()
    assert hands.after(1.0) == 1_001_000
    assert hands.after(1.0, jump=3600.0) == 4_602_000
    ahead = hands.after(1.0, jump=-2.0)
    assert ahead == 4_602_500, "half a second for each second until the clock has caught up"
    assert hands.after(1.0) == 4_603_000
    assert hands.after(10.0) == 4_612_000
    assert not hands.clock.lost


def test_the_time_is_overdue_after_a_pause_and_not_after_a_jump_of_the_clock() -> None:
    hands = Hands()
    hands.after(0.1, jump=3600.0)
    hands.passed += 0.2
    assert not hands.clock.overdue()
    hands.passed += 0.2
    assert hands.clock.overdue()
    hands.clock.now()
    assert not hands.clock.overdue()


def test_a_clock_that_was_set_back_far_is_given_up() -> None:
    hands = Hands()
    hands.after(1.0, jump=-8.0)
    assert hands.clock.lost


def test_options_say_what_is_wrong() -> None:
    with pytest.raises(DataError, match=r"role store: give the directory"):
        ProcessOptions(Role.STORE, "localhost:2181")
    with pytest.raises(DataError, match=r"no ZooKeeper"):
        ProcessOptions(Role.COORDINATOR, "")
    with pytest.raises(DataError, match=r"pool 'a/b'"):
        ProcessOptions(Role.COORDINATOR, "localhost:2181", pool="a/b")
    with pytest.raises(DataError, match=r"session timeout 0.1 s"):
        ProcessOptions(Role.COORDINATOR, "localhost:2181", session_timeout=0.1)
    with pytest.raises(DataError, match=r"retention 8 s: with a session timeout of 4 s it is at least 9 s"):
        ProcessOptions(Role.COORDINATOR, "localhost:2181", session_timeout=4.0, retention=8.0)
    ProcessOptions(Role.COORDINATOR, "localhost:2181", session_timeout=4.0, retention=9.0)
    found = ProcessOptions(Role.STORE, "localhost:2181", directory=Path("x"))
    assert found.name.startswith("store-")


def test_the_test_only_protocol() -> None:
    assert spoken_protocols(None) == (OLDEST_PROTOCOL, PROTOCOL)
    assert spoken_protocols(str(PROTOCOL)) == (OLDEST_PROTOCOL, PROTOCOL)
    assert spoken_protocols(str(PROTOCOL + 1)) == (PROTOCOL, PROTOCOL + 1)
