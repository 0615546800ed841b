"""Members join and leave between epochs: what waits for what, and what an impatient drain does."""

from __future__ import annotations

from belvedere.protocol.assign import DRAIN_MS, Assign
from belvedere.protocol.assign import AssignPhase as Joining
from belvedere.protocol.messages import Attempt, Generation, Term
from belvedere.protocol.ring import MemberId
from belvedere.protocol.withdraw import Withdraw
from belvedere.protocol.withdraw import WithdrawPhase as Leaving

A, B, C = MemberId("a"), MemberId("b"), MemberId("c")


def generation(number: int, *servers: MemberId) -> Generation:
    return Generation(Attempt(number), Term(1), MemberId("leader"), number, servers, ())


def test_a_server_joins_when_no_epoch_is_open() -> None:
    assign = Assign()
    assert not assign.observe([C], open_epochs=2, now=0)
    assert assign.holds and assign.phases[C] is Joining.DRAINING
    assert not assign.observe([C], open_epochs=1, now=100)
    assert assign.observe([C], open_epochs=0, now=200)
    assert assign.phases[C] is Joining.ACTIVATING
    assert assign.begun(generation(2, A, C)) == [C]
    assert not assign.holds and assign.phases == {}


def test_a_drain_that_takes_too_long_is_cut_short() -> None:
    assign = Assign()
    assert not assign.observe([C], open_epochs=1, now=0)
    assert not assign.observe([C], open_epochs=1, now=DRAIN_MS - 1)
    assert assign.observe([C], open_epochs=1, now=DRAIN_MS)


def test_epochs_that_take_long_are_not_interrupted_by_one_who_joins() -> None:
    assign = Assign()
    assert not any(assign.observe([A], 1, now, patient=True) for now in range(0, 20 * DRAIN_MS, 100))
    assert assign.observe([A], 0, 21 * DRAIN_MS, patient=True)


def test_one_that_is_lost_before_it_joined_is_forgotten() -> None:
    assign = Assign()
    assign.observe([B, C], open_epochs=1, now=0)
    assign.observe([C], open_epochs=1, now=10)
    assert set(assign.phases) == {C}
    assert not assign.observe([], open_epochs=1, now=20)
    assert not assign.holds


def test_one_that_came_too_late_for_a_generation_still_joins() -> None:
    assign = Assign()
    assert assign.observe([B, C], open_epochs=0, now=0)
    assert assign.begun(generation(1, A, B)) == [B]
    assert assign.holds and set(assign.phases) == {C}


def test_a_server_is_released_once_when_the_record_is_without_it() -> None:
    withdraw = Withdraw()
    assert not withdraw.observe([B], [A, B], open_epochs=1, now=0)
    assert withdraw.holds and withdraw.phases[B] is Leaving.DRAINING
    assert withdraw.releasable([B], generation(1, A, B)) == []
    assert withdraw.observe([B], [A, B], open_epochs=0, now=50)
    assert withdraw.phases[B] is Leaving.LEAVING
    withdraw.begun(generation(2, A))
    assert withdraw.releasable([B], generation(2, A)) == [B]
    withdraw.observe([], [A], open_epochs=1, now=60)
    assert withdraw.releasable([B], generation(2, A)) == []
    assert not withdraw.holds
    assert withdraw.releasable([], generation(2, A)) == []
    assert withdraw.phases == {}


def test_one_that_never_had_a_part_may_go_at_once() -> None:
    withdraw = Withdraw()
    assert not withdraw.observe([], [A], open_epochs=2, now=0)
    assert withdraw.releasable([C], generation(1, A)) == [C]
