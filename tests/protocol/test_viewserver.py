"""A view server's machine: what counts, in which order it computes, and what a new generation does to it."""

from __future__ import annotations

import random

import pytest

from belvedere.protocol import driving as d
from belvedere.protocol.messages import (
    Attempt,
    Batch,
    Begin,
    Committed,
    Done,
    Epoch,
    EpochPlan,
    Expect,
    Failed,
    Generation,
    Idle,
    PoolState,
    Released,
    Sent,
    Term,
)
from belvedere.protocol.ring import MemberId
from belvedere.protocol.viewserver import ViewServer, ViewServerPhase, overtaken

ME, OTHER, LEADER, FEEDER = MemberId("v1"), MemberId("v2"), MemberId("c1"), MemberId("d1")


def generation(number: int, servers: tuple[MemberId, ...] = (ME, OTHER)) -> Generation:
    return Generation(Attempt(number), Term(1), LEADER, number, servers, (FEEDER,))


def plan(epoch: int, stages: int = 2) -> EpochPlan:
    return EpochPlan(Epoch(epoch), (), {}, 1, "catalog/1", stages)


def begin(epoch: int, number: int = 1, committed: int = 0, stages: int = 2) -> Begin:
    return Begin(generation(number), plan(epoch, stages), Epoch(committed))


def batch(epoch: int, stage: int, number: int, attempt: int = 1, sender: MemberId = FEEDER) -> Batch:
    return Batch(Epoch(epoch), Attempt(attempt), stage, sender, number)


class Server:
    def __init__(self) -> None:
        self.machine = ViewServer(ME)

    def hear(self, *messages: object) -> list[object]:
        found: list[object] = []
        for message in messages:
            found += self.machine.handle(d.Received(LEADER, message))  # type: ignore[arg-type]
        return found

    def computed(self, epoch: int, stage: int, attempt: int = 1) -> list[object]:
        return list(self.machine.handle(d.Computed(Epoch(epoch), Attempt(attempt), stage, {})))

    def persisted(self, epoch: int, attempt: int = 1) -> list[object]:
        return list(self.machine.handle(d.Persisted(Epoch(epoch), Attempt(attempt))))


def kinds(instructions: list[object]) -> list[str]:
    return [type(i.message if isinstance(i, d.Send) else i).__name__ for i in instructions]


def test_an_epoch_from_begin_to_acknowledgement() -> None:
    server = Server()
    assert kinds(server.hear(begin(10))) == ["Adopt", "Open"]
    assert kinds(server.hear(batch(10, 0, 0))) == ["Keep"]
    assert server.hear(Expect(Epoch(10), Attempt(1), 0, 1)) == [d.Compute(Epoch(10), Attempt(1), 0, 1)]
    assert kinds(server.computed(10, 0)) == ["Sent"]
    assert server.hear(Expect(Epoch(10), Attempt(1), 1, 0)) == [d.Compute(Epoch(10), Attempt(1), 1, 0)]
    assert kinds(server.computed(10, 1)) == ["Sent", "Persist"]
    assert server.persisted(10) == [d.Send(LEADER, Done(Epoch(10), Attempt(1), ME, {}))]
    assert server.hear(Committed(Epoch(10))) == [d.Commit(Epoch(10))]
    assert server.machine.phases() == {}


def test_a_stage_waits_for_every_batch_and_repeats_do_not_count() -> None:
    server = Server()
    server.hear(begin(10))
    assert server.hear(Expect(Epoch(10), Attempt(1), 0, 2), batch(10, 0, 0)) == [d.Keep(batch(10, 0, 0))]
    assert server.hear(batch(10, 0, 0)) == []
    assert kinds(server.hear(batch(10, 0, 1))) == ["Keep", "Compute"]


def test_batches_of_another_attempt_do_not_count() -> None:
    server = Server()
    server.hear(begin(10, number=5), Expect(Epoch(10), Attempt(5), 0, 1))
    assert server.hear(batch(10, 0, 0, attempt=4)) == []
    assert kinds(server.hear(batch(10, 0, 0, attempt=5))) == ["Keep", "Compute"]


def test_batches_that_come_before_their_generation_are_kept_for_it() -> None:
    server = Server()
    server.hear(begin(10))
    early = batch(10, 0, 0, attempt=2)
    assert server.hear(early) == [d.Keep(early)]
    found = server.hear(begin(10, number=2))
    assert kinds(found) == ["Adopt", "Keep", "Open"]
    assert server.hear(Expect(Epoch(10), Attempt(2), 0, 1)) == [d.Compute(Epoch(10), Attempt(2), 0, 1)]


def test_the_next_epoch_is_opened_while_the_last_one_is_written_and_not_before() -> None:
    server = Server()
    server.hear(begin(10, stages=1), Expect(Epoch(10), Attempt(1), 0, 0))
    assert server.hear(begin(11, stages=1), Expect(Epoch(11), Attempt(1), 0, 0)) == []
    found = server.computed(10, 0)
    assert kinds(found) == ["Sent", "Persist", "Open", "Compute"]
    assert server.machine.phases() == {10: (ViewServerPhase.WRITING, 1), 11: (ViewServerPhase.COMPUTING, 0)}


def test_a_new_generation_undoes_to_what_the_leader_names_and_ignores_old_answers() -> None:
    server = Server()
    server.hear(begin(10, stages=1), Expect(Epoch(10), Attempt(1), 0, 0))
    found = server.hear(begin(10, number=2, committed=9, stages=1))
    assert found == [d.Adopt(generation(2), Epoch(9)), d.Open(plan(10, 1), Attempt(2))]
    assert server.computed(10, 0, attempt=1) == []
    assert server.persisted(10, attempt=1) == []
    assert server.hear(begin(10, number=1, stages=1)) == []
    assert server.hear(Expect(Epoch(10), Attempt(1), 0, 0)) == []


def test_answers_of_an_old_attempt_do_not_count_for_the_present_one() -> None:
    """The same epoch and stage: what the old attempt sent was counted by its number, and it may have failed alone."""
    server = Server()
    for number in (1, 2):
        server.hear(begin(10, number, stages=1), Expect(Epoch(10), Attempt(number), 0, 0))
    computing = {Epoch(10): (ViewServerPhase.COMPUTING, 0)}
    assert server.machine.phases() == computing
    assert server.computed(10, 0, attempt=1) == []
    assert server.machine.handle(d.WorkFailed(Epoch(10), Attempt(1), "the disk is full")) == []
    assert server.machine.phases() == computing
    assert kinds(server.computed(10, 0, attempt=2)) == ["Sent", "Persist"]
    assert server.persisted(10, attempt=1) == [], "what is durable is what the old attempt wrote"
    assert kinds(server.persisted(10, attempt=2)) == ["Done"]


def test_a_failure_is_reported_with_its_view_and_nothing_goes_on_until_the_next_generation() -> None:
    server = Server()
    server.hear(begin(10, stages=1), Expect(Epoch(10), Attempt(1), 0, 0))
    found = server.machine.handle(d.WorkFailed(Epoch(10), Attempt(1), "overflow", "spend"))
    assert found[-1] == d.Send(LEADER, Failed(Epoch(10), Attempt(1), ME, "overflow", "spend"))
    assert server.hear(begin(11, stages=1)) == []
    assert kinds(server.hear(begin(10, number=2, stages=1))) == ["Adopt", "Open"]


def test_more_batches_than_were_reported_fail_the_attempt() -> None:
    server = Server()
    server.hear(begin(10), batch(10, 0, 0), batch(10, 0, 1))
    found = server.hear(Expect(Epoch(10), Attempt(1), 0, 1))
    assert isinstance(found[-1], d.Send) and isinstance(found[-1].message, Failed)
    assert "2 batches came, 1 were reported" in found[-1].message.reason


def test_generations_without_this_server_are_not_its_own() -> None:
    server = Server()
    assert server.hear(Idle(generation(1, (OTHER,)), Epoch(0))) == []
    assert server.hear(Idle(generation(2), Epoch(7))) == [d.Adopt(generation(2), Epoch(7))]
    server.hear(Released(OTHER))
    assert not server.machine.released
    server.hear(Released(ME))
    assert server.machine.released


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_order_each_stage_is_computed_once_with_all_its_batches(seed: int) -> None:
    chance = random.Random(seed)
    server = Server()
    epochs, stages = [10, 11, 12], 3
    messages: list[object] = [begin(epoch, stages=stages) for epoch in epochs]
    sizes = {(epoch, stage): chance.randrange(3) for epoch in epochs for stage in range(stages)}
    number = dict.fromkeys(epochs, 0)
    for (epoch, stage), size in sizes.items():
        messages.append(Expect(Epoch(epoch), Attempt(1), stage, size))
        for _ in range(size):
            messages += [batch(epoch, stage, number[epoch])] * chance.choice([1, 1, 2])
            number[epoch] += 1
    chance.shuffle(messages)
    # All messages of the leader may overtake those of others, but `Begin`s come in order.
    begins = iter(sorted((m for m in messages if isinstance(m, Begin)), key=lambda m: m.plan.epoch))
    messages = [next(begins) if isinstance(m, Begin) else m for m in messages]
    kept: dict[tuple[int, int], int] = {}
    order: list[tuple[int, int]] = []
    acknowledged: list[int] = []

    def carry_out(instructions: list[object]) -> None:
        for instruction in instructions:
            match instruction:
                case d.Keep(found):
                    kept[found.epoch, found.stage] = kept.get((found.epoch, found.stage), 0) + 1
                case d.Compute(epoch, _, stage, batches):
                    assert kept.get((epoch, stage), 0) == batches == sizes[epoch, stage]
                    order.append((epoch, stage))
                    carry_out(server.computed(epoch, stage))
                case d.Persist(epoch, _):
                    carry_out(server.persisted(epoch))
                case d.Send(_, Done(epoch)):
                    acknowledged.append(epoch)
                case d.Send(_, Sent()):
                    pass

    # The generation is known first: what comes before it is counted when it begins, and kept twice in the count here.
    carry_out(server.hear(Idle(generation(1), Epoch(0))))
    for message in messages:
        carry_out(server.hear(message))
    assert order == [(epoch, stage) for epoch in epochs for stage in range(stages)]
    assert acknowledged == epochs


def test_a_server_that_is_left_out_gives_up_its_work_and_comes_back_with_a_later_generation() -> None:
    server = Server()
    server.hear(begin(10, 1), batch(10, 0, 0), Expect(Epoch(10), Attempt(1), 0, 1))
    without = Idle(generation(2, (OTHER,)), Epoch(0))
    assert kinds(server.hear(without)) == ["GiveUp", "Note"]
    assert server.computed(10, 0) == [] and server.machine.generation is None
    assert server.hear(without, begin(10, 1), batch(10, 1, 0), batch(10, 0, 0, attempt=2)) == []
    assert kinds(server.hear(batch(20, 0, 0, attempt=3), begin(20, 3, committed=10))) == [
        "Keep",
        "Adopt",
        "Keep",
        "Open",
    ]


def test_an_attempt_writes_while_the_record_says_that_it_is_current_and_not_committed() -> None:
    def asked(committed: int, generation: int) -> str:
        state = PoolState("c", generation=Attempt(generation), committed=Epoch(committed))
        return overtaken(state, Epoch(10), Attempt(3))

    assert asked(9, 3) == ""
    assert "epoch 10 is committed" in asked(10, 3) and "epoch 11 is committed" in asked(11, 4)
    assert "in generation 4" in asked(9, 4)
    assert "no record" in overtaken(None, Epoch(10), Attempt(3))
