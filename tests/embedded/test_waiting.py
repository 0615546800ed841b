"""Waiting without Conditions: nobody sleeps through a wake-up, and who leaves is forgotten."""

from __future__ import annotations

import threading

from belvedere.waiting import Latch, Waiters, Wakeup, start_thread


def test_every_waiter_sees_its_condition_come_true():
    waiters, state, seen = Waiters(), [0], []
    threads = [
        threading.Thread(target=lambda n=n: seen.append((n, waiters.wait_for(lambda: state[0] >= n, 20))))
        for n in range(50)
    ]
    for thread in threads:
        thread.start()
    for n in range(50):
        state[0] = n
        waiters.notify()
    for thread in threads:
        thread.join(20)
    assert sorted(seen) == [(n, True) for n in range(50)] and not waiters._latches


def test_a_wait_that_takes_too_long_leaves_nothing_behind():
    waiters = Waiters()
    assert not waiters.wait_for(lambda: False, 0.001) and not waiters._latches


def test_wake_ups_before_the_wait_count_once_and_a_latch_stays_open():
    wakeup, latch = Wakeup(), Latch()
    wakeup.set()
    wakeup.set()
    wakeup.wait(20)
    assert not wakeup._lock.acquire(blocking=False), "the second one was no other"
    assert not latch.wait(0)
    latch.open()
    assert latch.wait(0)


def test_a_thread_that_cannot_be_started_is_told(monkeypatch):
    failed, told = [], Latch()

    def refuse(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    start_thread(lambda: None, "never", lambda error: (failed.append(str(error)), told.open()))
    assert told.wait(20) and failed == ["can't start new thread"]
