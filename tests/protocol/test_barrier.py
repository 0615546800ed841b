"""The counting barrier: exact expectations for single reports, and random flows checked against a ledger."""

from __future__ import annotations

import pytest

from belvedere.errors import Contradiction
from belvedere.protocol.barrier import BEFORE_STAGES, Barrier, CountingInbox
from belvedere.protocol.messages import Attempt, Counts, Done, Epoch, Expect, Sent
from belvedere.protocol.ring import MemberId
from tests.protocol import flowing

E, K = Epoch(10), Attempt(3)
A, B, D = MemberId("a"), MemberId("b"), MemberId("d")


def sent(sender: MemberId, stage: int, batches: Counts | None = None) -> Sent:
    return Sent(E, K, sender, stage, batches or {})


def expect(stage: int, batches: int) -> Expect:
    return Expect(E, K, stage, batches)


def test_each_server_is_told_once_for_each_stage_also_of_nothing() -> None:
    barrier = Barrier(E, K, (A, B), (D,), 2)
    assert barrier.start() == []
    assert barrier.sent(sent(D, BEFORE_STAGES, {0: (3, 0), 1: (1, 0)})) == [(A, expect(0, 3)), (B, expect(0, 0))]
    assert barrier.sent(sent(D, BEFORE_STAGES, {0: (3, 0)})) == []
    assert barrier.sent(sent(A, 0, {1: (1, 2)})) == []
    assert str(barrier.waiting_for()) == "waiting for b to compute stage 0 of 2"
    assert barrier.sent(sent(B, 0)) == [(A, expect(1, 2)), (B, expect(1, 2))]
    assert not barrier.complete
    assert barrier.done(Done(E, K, A)) and not barrier.done(Done(E, K, A))
    assert barrier.done(Done(E, K, B)) and barrier.complete and barrier.waiting_for() is None


def test_reports_of_others_are_ignored() -> None:
    barrier = Barrier(E, K, (A,), (D,), 1)
    for stranger in (
        Sent(Epoch(11), K, D, BEFORE_STAGES, {}),
        Sent(E, Attempt(2), D, BEFORE_STAGES, {}),
        Sent(E, Attempt(4), D, BEFORE_STAGES, {}),
        sent(B, BEFORE_STAGES),
        sent(D, 0),
        sent(A, 7),
    ):
        assert barrier.sent(stranger) == []
    assert barrier.sent(sent(D, BEFORE_STAGES)) == [(A, expect(0, 0))]
    assert not barrier.done(Done(E, Attempt(2), A)) and not barrier.done(Done(E, K, B))
    assert not barrier.complete


def test_two_rings_are_an_error() -> None:
    barrier = Barrier(E, K, (A, B), (D,), 2)
    assert barrier.sent(Sent(E, K, D, BEFORE_STAGES, {}, ring="one"))
    assert barrier.sent(Sent(E, K, A, 0, {}, ring="one")) == []
    with pytest.raises(Contradiction, match="b sends by ring other, d by ring one, of the same members"):
        barrier.sent(Sent(E, K, B, 0, {}, ring="other"))
    assert not barrier.sent(Sent(E, K, A, 0, {}, ring="one")), "it stays closed"


def test_without_distributors_the_first_stage_gets_nothing() -> None:
    barrier = Barrier(E, K, (A,), (), 1)
    assert barrier.start() == [(A, expect(0, 0))]
    assert barrier.start() == []


def test_a_catalog_without_stages_needs_acknowledgements_only() -> None:
    barrier = Barrier(E, K, (A,), (D,), 0)
    assert not barrier.complete
    assert barrier.done(Done(E, K, A)) and barrier.complete


@pytest.mark.parametrize(
    "report",
    [
        sent(D, BEFORE_STAGES, {0: (0, 1)}),
        sent(D, BEFORE_STAGES, {0: ()}),
        sent(D, BEFORE_STAGES, {2: (1,)}),
        sent(A, 0, {0: (1,)}),
        sent(A, 0, {1: (-1,)}),
    ],
)
def test_batches_that_nobody_would_wait_for_are_an_error(report: Sent) -> None:
    barrier = Barrier(E, K, (A,), (D,), 2)
    with pytest.raises(Contradiction, match="epoch 10, attempt 3"):
        barrier.sent(report)


def test_done_before_the_last_stage_was_told_is_an_error() -> None:
    barrier = Barrier(E, K, (A,), (D,), 1)
    with pytest.raises(Contradiction, match="a is done, but was not told yet what to expect in stage 0"):
        barrier.done(Done(E, K, A))


def test_people_can_see_what_an_epoch_waits_for() -> None:
    barrier = Barrier(E, K, (A, B), (D,), 1)
    assert str(barrier.waiting_for()) == "waiting for d to distribute the changes"
    barrier.sent(sent(D, BEFORE_STAGES))
    assert str(barrier.waiting_for()) == "waiting for a, b to compute stage 0 of 1"
    barrier.sent(sent(A, 0))
    barrier.sent(sent(B, 0))
    barrier.done(Done(E, K, A))
    assert str(barrier.waiting_for()) == "waiting for b to make the epoch durable"


def test_a_stage_is_ready_when_as_many_batches_came_as_were_reported() -> None:
    inbox = CountingInbox(E, K)
    assert inbox.batch(A, 0, 0) and inbox.batch(B, 0, 0)
    assert not inbox.ready(0) and inbox.missing(0) is None
    inbox.expect(0, 3)
    inbox.expect(0, 3)
    assert not inbox.ready(0) and inbox.missing(0) == 1
    assert not inbox.batch(A, 0, 0)
    assert not inbox.ready(0)
    assert inbox.batch(A, 0, 1)
    assert inbox.ready(0) and inbox.missing(0) == 0


def test_stages_become_ready_in_order() -> None:
    inbox = CountingInbox(E, K)
    inbox.expect(1, 0)
    assert not inbox.ready(1)
    inbox.expect(0, 1)
    assert not inbox.ready(1)
    inbox.batch(A, 0, 0)
    assert inbox.ready(0) and inbox.ready(1)


def test_numbers_may_come_in_any_order() -> None:
    inbox = CountingInbox(E, K)
    assert [inbox.batch(A, 0, number) for number in (2, 0, 2, 1, 1, 3, 0)] == [
        True,
        True,
        False,
        True,
        False,
        True,
        False,
    ]
    inbox.expect(0, 4)
    assert inbox.ready(0)


def test_more_than_was_reported_is_an_error_whoever_comes_first() -> None:
    inbox = CountingInbox(E, K)
    inbox.expect(0, 0)
    with pytest.raises(Contradiction, match="epoch 10, attempt 3, stage 0: 1 batches came, 0 were reported"):
        inbox.batch(A, 0, 0)
    inbox = CountingInbox(E, K)
    inbox.batch(A, 0, 0)
    with pytest.raises(Contradiction, match="1 batches came, 0 were reported"):
        inbox.expect(0, 0)
    inbox = CountingInbox(E, K)
    inbox.expect(0, 1)
    with pytest.raises(Contradiction, match="2 batches to expect, after 1"):
        inbox.expect(0, 2)


@pytest.mark.parametrize("servers", [10, 100, 400])
def test_messages_grow_with_servers_and_stages_only(servers: int) -> None:
    """Everyone sends to everyone, and the leader hears and says one message for each server and stage."""
    names = [MemberId(f"s{i}") for i in range(servers)]
    stages, heard, said = 3, 0, 0
    barrier = Barrier(E, K, names, (D,), stages)
    for sender, stage in [(D, BEFORE_STAGES), *((name, stage) for stage in range(stages) for name in names)]:
        counts = {stage + 1: (1,) * servers} if stage + 1 < stages else {}
        heard += 1
        for _, told in barrier.sent(sent(sender, stage, counts)):
            assert told.batches == (1 if told.stage == 0 else servers)
            said += 1
    for name in names:
        heard += 1
        barrier.done(Done(E, K, name))
    assert barrier.complete
    assert said == servers * stages
    assert heard == servers * (stages + 1) + 1


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_no_stage_is_computed_before_all_of_it_is_there(first: int) -> None:
    for seed in range(first, first + 100):
        flowing.World(seed).run()


class TellsEarly(Barrier):
    """One sender of a stage may be missing."""

    def _tell(self) -> list[tuple[MemberId, Expect]]:
        missing = self._missing[self._told - 1] if self._told < self.stages else set()
        if len(missing) == 1 and self._told > 0:
            self._missing[self._told - 1] = set()
            told = super()._tell()
            self._missing[self._told - 2] = missing
            return told
        return super()._tell()


class CountsRepeats(Barrier):
    """A repeated report is counted again."""

    def sent(self, report: Sent) -> list[tuple[MemberId, Expect]]:
        if report.attempt == self.attempt and report.sender not in self._missing[report.stage]:
            self._missing[report.stage].add(report.sender)
        return super().sent(report)


class AnyAttempt(Barrier):
    """Reports of another attempt count."""

    def _is_mine(self, epoch: Epoch, attempt: Attempt) -> bool:
        return True


class KeepsRepeats(CountingInbox):
    """Repeated batches are kept."""

    def batch(self, sender: MemberId, stage: int, number: int) -> bool:
        super().batch(sender, stage, number)
        return True


class Impatient(CountingInbox):
    """What is expected need not have come."""

    def ready(self, stage: int) -> bool:
        return stage in self._expected


@pytest.mark.parametrize("bug", [TellsEarly, CountsRepeats, AnyAttempt])
def test_the_flow_notices_a_known_bug_of_the_leader(bug: type[Barrier]) -> None:
    notices(lambda seed: flowing.World(seed, barrier=bug).run(), bug)


@pytest.mark.parametrize("bug", [KeepsRepeats, Impatient])
def test_the_flow_notices_a_known_bug_of_a_server(bug: type[CountingInbox]) -> None:
    notices(lambda seed: flowing.World(seed, inbox=bug).run(), bug)


def notices(run: object, bug: type) -> None:
    assert callable(run)
    for seed in range(100):
        try:
            run(seed)
        except (flowing.Wrong, Contradiction):
            return
    pytest.fail(f"{bug.__doc__}: not noticed in 100 histories")
