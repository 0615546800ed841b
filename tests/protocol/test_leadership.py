"""Who leads: exact instructions for single answers, and candidates that fight over a record in every way there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from belvedere.errors import Contradiction
from belvedere.protocol.driving import (
    Create,
    Elected,
    ReadRecord,
    RecordRead,
    Resign,
    SessionChanged,
    Swap,
    Swapped,
    Tick,
)
from belvedere.protocol.leadership import (
    CLOCK_OFF_MS,
    STAND_BACK_MS,
    Accepted,
    Leadership,
    Leads,
    MemberPhase,
    Stops,
)
from belvedere.protocol.membership import OLDEST_PROTOCOL
from belvedere.protocol.messages import Attempt, Epoch, Pointer, PoolState, Term
from belvedere.protocol.ring import MemberId
from tests.protocol import electing

ME, OTHER = MemberId("me"), MemberId("other")
NOW = 1_000_000
OLD = PoolState("c1", Term(4), OTHER, Attempt(9), Epoch(50))
MINE = replace(OLD, term=Term(5), leader=ME)


def at(now: int = NOW) -> Leadership:
    made = Leadership(ME, "c1")
    made.handle(Tick(now))
    return made


def leading(version: int = 8) -> Leadership:
    made = at()
    made.handle(Elected(True))
    made.handle(RecordRead(1, OLD, version - 1, NOW - 100_000))
    assert made.handle(Swapped(2, "done", version, NOW + 3)) == [Leads(MINE)]
    return made


def pointer(epoch: int) -> Pointer:
    return Pointer(Epoch(epoch), f"plan/{epoch}", "digest")


def test_a_candidate_reads_claims_and_leads() -> None:
    made = at()
    assert made.handle(Elected(True)) == [ReadRecord(1)]
    assert made.handle(RecordRead(1, OLD, 7, NOW)) == [Swap(2, MINE, 7)]
    assert not made.leading
    assert made.handle(Swapped(2, "done", 8, NOW)) == [Leads(MINE)]
    assert made.acting and made.state == MINE


def test_the_first_leader_creates_the_record() -> None:
    made = at()
    made.handle(Elected(True))
    first = PoolState("c1", Term(1), ME, protocol=OLDEST_PROTOCOL)
    assert made.handle(RecordRead(1, None)) == [Create(2, first)]
    assert made.handle(Swapped(2, "done", 0, NOW)) == [Leads(first)]
    again = at()
    again.handle(Elected(True))
    again.handle(RecordRead(1, None))
    assert again.handle(Swapped(2, "conflict")) == [ReadRecord(3)]


def test_a_claim_that_fails_starts_with_reading_again() -> None:
    made = at()
    made.handle(Elected(True))
    made.handle(RecordRead(1, OLD, 7, NOW))
    assert made.handle(Swapped(2, "conflict")) == [ReadRecord(3)]
    assert made.handle(RecordRead(3, None, failed=True)) == []
    assert made.handle(Tick(NOW + 1000)) == [ReadRecord(4)]


def test_one_proposal_at_a_time_and_the_newest_of_those_that_wait() -> None:
    made = leading()
    first, second, third = (replace(MINE, committed=Epoch(60 + i)) for i in range(3))
    assert made.propose(first) == [Swap(3, first, 8)]
    assert made.propose(second) == made.propose(third) == []
    assert made.handle(Swapped(3, "done", 9, NOW)) == [Accepted(first), Swap(4, third, 9)]
    assert made.busy
    assert made.handle(Swapped(4, "done", 10, NOW)) == [Accepted(third)]
    assert not made.busy and made.state == third


def test_a_conflict_ends_the_lead() -> None:
    made = leading()
    made.propose(replace(MINE, committed=Epoch(60)))
    reason = "another one has changed the record"
    assert made.handle(Swapped(3, "conflict")) == [Stops(reason), Resign(reason)]
    assert made.phase is MemberPhase.FOLLOWING and made.state is None
    assert made.handle(Tick(NOW + 60_000)) == []
    assert made.handle(Elected(True)) == [ReadRecord(5)]


def test_an_unknown_proposal_that_happened_is_accepted() -> None:
    made = leading()
    state = replace(MINE, committed=Epoch(60))
    made.propose(state)
    assert made.handle(Swapped(3, "unknown")) == []
    assert made.leading and not made.acting
    assert made.handle(Tick(NOW + 1000)) == [ReadRecord(4)]
    assert made.handle(RecordRead(4, state, 9, NOW)) == [Accepted(state)]
    assert made.acting


def test_an_unknown_proposal_that_did_not_happen_is_repeated_and_may_meet_itself() -> None:
    made = leading()
    state = replace(MINE, committed=Epoch(60))
    made.propose(state)
    made.handle(Swapped(3, "unknown"))
    made.handle(Tick(NOW + 1000))
    assert made.handle(RecordRead(4, MINE, 8, NOW)) == [Swap(5, state, 8)]
    assert made.handle(Swapped(5, "conflict")) == [ReadRecord(6)]
    assert made.handle(RecordRead(6, state, 9, NOW)) == [Accepted(state)]


def test_an_unknown_proposal_and_another_leader_in_the_record() -> None:
    made = leading()
    made.propose(replace(MINE, committed=Epoch(60)))
    made.handle(Swapped(3, "unknown"))
    made.handle(Tick(NOW + 1000))
    theirs = replace(MINE, term=Term(6), leader=OTHER)
    reason = "other leads since term 6"
    assert made.handle(RecordRead(4, theirs, 9, NOW)) == [Stops(reason), Resign(reason)]


def test_suspended_means_to_stop_and_to_read_before_going_on() -> None:
    made = leading()
    assert made.handle(SessionChanged(False)) == []
    assert made.leading and not made.acting
    assert made.handle(Tick(NOW + 100)) == []
    assert made.propose(replace(MINE, committed=Epoch(60))) == []
    assert made.handle(SessionChanged(True)) == [ReadRecord(5)]
    assert not made.acting
    assert made.handle(RecordRead(5, MINE, 8, NOW)) == [Swap(6, replace(MINE, committed=Epoch(60)), 8)]
    assert made.acting


def test_whoever_is_not_elected_any_more_stops() -> None:
    made = leading()
    assert made.handle(Elected(False)) == [Stops("not elected any more")]
    with pytest.raises(Contradiction, match="me proposes a state of the pool, but does not lead it"):
        made.propose(MINE)


@pytest.mark.parametrize("off", [-CLOCK_OFF_MS - 1, CLOCK_OFF_MS + 1])
def test_a_clock_that_is_off_does_not_lead(off: int) -> None:
    made = at()
    made.handle(Elected(True))
    made.handle(RecordRead(1, OLD, 7, NOW - 100_000))
    (resign,) = made.handle(Swapped(2, "done", 8, NOW - off))
    side = "ahead of" if off > 0 else "behind"
    assert isinstance(resign, Resign) and f"the clock of me is 5001 ms {side} ZooKeeper's" in resign.reason
    assert made.reason == resign.reason
    assert made.handle(Elected(True)) == []
    assert made.handle(Tick(NOW + STAND_BACK_MS)) == [ReadRecord(4)]


def test_a_record_from_the_future_is_not_claimed() -> None:
    made = at()
    made.handle(Elected(True))
    (resign,) = made.handle(RecordRead(1, OLD, 7, NOW + CLOCK_OFF_MS + 1))
    assert isinstance(resign, Resign) and "5001 ms behind" in resign.reason


def test_an_answer_that_took_long_proves_no_clock() -> None:
    made = at()
    made.handle(Elected(True))
    made.handle(RecordRead(1, OLD, 7, NOW))
    made.handle(Tick(NOW + 6000))
    (resign,) = made.handle(Swapped(2, "done", 8, NOW + 500))
    assert isinstance(resign, Resign)


@pytest.mark.parametrize("jump", [-CLOCK_OFF_MS - 1, CLOCK_OFF_MS + 1])
def test_a_clock_that_jumps_is_noticed_at_the_next_write(jump: int) -> None:
    made = leading()
    made.handle(Tick(NOW + jump))
    state = replace(MINE, committed=Epoch(60))
    made.propose(state)
    accepted, stops, resign = made.handle(Swapped(3, "done", 9, NOW))
    assert accepted == Accepted(state)
    assert isinstance(stops, Stops) and "5001 ms" in stops.reason and isinstance(resign, Resign)


def test_a_slow_answer_is_no_jump() -> None:
    made = leading()
    state = replace(MINE, committed=Epoch(60))
    made.propose(state)
    made.handle(Swapped(3, "unknown"))
    made.handle(Tick(NOW + 60_000))
    assert made.handle(RecordRead(4, state, 9, NOW + 20_000)) == [Accepted(state)]


def test_another_cluster_and_a_newer_protocol_are_not_led() -> None:
    for state, words in ((replace(OLD, cluster="c2"), "cluster 'c2'"), (replace(OLD, protocol=9), "protocol 9")):
        made = at()
        made.handle(Elected(True))
        (resign,) = made.handle(RecordRead(1, state, 7, NOW))
        assert isinstance(resign, Resign) and words in resign.reason


@pytest.mark.parametrize(
    ("state", "rule"),
    [
        (replace(MINE, term=Term(6)), "cluster, term and leader stay"),
        (replace(MINE, generation=Attempt(8)), "generations grow"),
        (replace(MINE, committed=Epoch(49)), "committed epochs grow"),
        (replace(MINE, open=(pointer(50),)), "open epochs follow the committed one"),
        (replace(MINE, open=(pointer(52), pointer(51))), "open epochs follow the committed one"),
    ],
)
def test_a_step_back_is_refused(state: PoolState, rule: str) -> None:
    with pytest.raises(Contradiction, match=rule):
        leading().propose(state)


def test_a_plan_is_never_abandoned() -> None:
    made = leading()
    made.propose(replace(MINE, open=(pointer(51), pointer(52))))
    with pytest.raises(Contradiction, match="an open epoch stays open until it is committed"):
        made.propose(replace(MINE, open=(pointer(52),)))
    made.propose(replace(MINE, committed=Epoch(51), open=(pointer(52),)))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_proposals_happen_once_and_the_lead_is_lost_to_others_only(first: int) -> None:
    accepted = 0
    for seed in range(first, first + 100):
        world = electing.World(seed)
        world.run(300)
        accepted += sum(candidate.accepted for candidate in world.candidates)
    assert accepted > 300


@pytest.mark.parametrize("bug", electing.BUGS)
def test_the_world_notices_a_known_bug(bug: type[Leadership]) -> None:
    for seed in range(200):
        try:
            electing.World(seed, bug).run(300)
        except (electing.Wrong, AssertionError, Contradiction):
            return
    pytest.fail(f"{bug.__doc__}: not noticed in 200 histories")
