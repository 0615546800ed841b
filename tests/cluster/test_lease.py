"""How long a session may be believed to live, at given times."""

from __future__ import annotations

import random

import pytest

from belvedere.cluster.coordination.lease import HEARTBEAT, LEASE, Lease
from belvedere.cluster.coordination.seam import SessionState

TIMEOUT = 12.0  # a lease of 8


def connected(at: float = 0.0) -> Lease:
    lease = Lease(TIMEOUT)
    lease.connected(at)
    assert lease.answered(at, at) is None
    assert lease.opened(at) is SessionState.CONNECTED
    return lease


def test_nothing_is_believed_before_there_is_an_answer() -> None:
    lease = Lease(TIMEOUT)
    assert not lease.valid(0.0)
    lease.connected(0.0)
    assert lease.opened(0.0) is None
    assert not lease.valid(0.0)
    assert lease.answered(sent=0.0, now=1.0) is SessionState.CONNECTED
    assert lease.valid(1.0)


def test_the_lease_counts_from_the_sending_of_what_was_answered() -> None:
    lease = connected(0.0)
    lease.answered(sent=3.0, now=7.0)
    assert lease.valid(10.9)
    assert not lease.valid(11.0)
    lease.answered(sent=1.0, now=10.0)  # an older one that came late
    assert not lease.valid(11.0)


def test_without_answers_it_is_suspended_and_then_lost() -> None:
    lease = connected(0.0)
    assert lease.tick(7.9) is None
    assert lease.tick(8.1) is SessionState.SUSPENDED
    assert lease.tick(8.0 + TIMEOUT) is None
    assert lease.tick(8.2 + TIMEOUT) is SessionState.LOST
    assert lease.tick(100.0) is None
    assert lease.answered(100.0, 100.0) is None
    assert lease.opened(100.0) is None
    assert not lease.valid(100.0)


def test_a_process_that_was_paused_does_not_believe_in_its_session() -> None:
    lease = connected(0.0)
    assert lease.state is SessionState.CONNECTED  # nobody had the time to notice
    assert not lease.valid(60.0)
    assert lease.tick(60.0) is SessionState.SUSPENDED
    assert lease.answered(sent=60.1, now=60.2) is SessionState.CONNECTED
    assert lease.valid(60.3)


def test_an_answer_that_is_old_when_it_comes_does_not_resume() -> None:
    lease = connected(0.0)
    lease.tick(9.0)
    assert lease.answered(sent=0.5, now=9.1) is None
    assert lease.state is SessionState.SUSPENDED


def test_a_broken_connection_suspends_and_answers_from_before_do_not_count() -> None:
    lease = connected(0.0)
    assert lease.disconnected(1.0) is SessionState.SUSPENDED
    assert not lease.valid(1.0)
    assert lease.disconnected(1.1) is None
    assert lease.answered(sent=0.9, now=1.2) is None
    lease.connected(2.0)
    assert lease.answered(sent=0.9, now=2.1) is None
    assert not lease.valid(2.1)
    assert lease.answered(sent=2.1, now=2.2) is SessionState.CONNECTED


def test_resuming_begins_the_count_anew() -> None:
    lease = connected(0.0)
    lease.disconnected(1.0)
    lease.connected(12.0)
    assert lease.answered(12.0, 12.5) is SessionState.CONNECTED
    assert lease.disconnected(13.0) is SessionState.SUSPENDED
    assert lease.tick(24.9) is None
    assert lease.tick(25.1) is SessionState.LOST


def test_a_session_that_expires_is_lost_at_once() -> None:
    assert connected().expired() is SessionState.LOST
    never_told = Lease(TIMEOUT)
    assert never_told.expired() is None
    assert never_told.state is SessionState.LOST
    never_told.connected(1.0)
    assert never_told.answered(1.0, 1.0) is None
    assert never_told.opened(1.0) is None


def test_a_shorter_timeout_of_the_server_counts_and_a_longer_one_does_not() -> None:
    lease = connected(0.0)
    lease.negotiated(60.0)
    assert lease.timeout == TIMEOUT
    lease.negotiated(3.0)
    assert lease.valid(1.9)
    assert not lease.valid(2.1)


def test_heartbeats_leave_room_for_one_that_is_lost() -> None:
    assert 2 * HEARTBEAT < LEASE < 1 - HEARTBEAT


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_a_valid_lease_means_a_living_session(seed: int) -> None:
    """A server that forgets a session a timeout after the last request, and messages that take as long as they like."""
    chance = random.Random(seed)
    lease, now, reachable, heard_at = Lease(TIMEOUT), 0.0, False, 0.0
    under_way: list[tuple[float, float]] = []
    lease.opened(now)
    for _ in range(400):
        now += chance.choice([0.01, 0.5, 2.0, chance.expovariate(0.2)])
        server_lives = now - heard_at <= TIMEOUT
        assert server_lives or not lease.valid(now)
        action = chance.random()
        if action < 0.1:
            lease.disconnected(now)
            reachable = False
        elif action < 0.3 and not reachable and server_lives:
            lease.connected(now)
            reachable = True
        elif action < 0.6 and reachable and server_lives:
            arrives = now + chance.choice([0.0, 0.3, 5.0])
            if arrives - heard_at <= TIMEOUT:
                heard_at = max(heard_at, arrives)
                under_way.append((now, arrives))
        elif action < 0.8 and under_way:
            sent, arrived = under_way.pop(chance.randrange(len(under_way)))
            if arrived <= now:
                lease.answered(sent, now)
        else:
            lease.tick(now)
