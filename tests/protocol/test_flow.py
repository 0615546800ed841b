"""A distributor's machine: every piece of a plan in one share, and reports of its own attempt only."""

from __future__ import annotations

import random

import pytest

from belvedere.protocol import driving as d
from belvedere.protocol.exactly_once import ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.protocol.flow import Distributor, pieces_of
from belvedere.protocol.messages import (
    Attempt,
    Begin,
    Committed,
    Epoch,
    EpochPlan,
    Failed,
    Generation,
    Idle,
    Released,
    Sent,
    Term,
)
from belvedere.protocol.ring import MemberId

ME, OTHER, LEADER = MemberId("d1"), MemberId("d2"), MemberId("c1")


def generation(number: int, distributors: tuple[MemberId, ...] = (ME, OTHER)) -> Generation:
    return Generation(Attempt(number), Term(1), LEADER, number, (MemberId("v1"),), distributors)


def plan(epoch: int, *writers: str) -> EpochPlan:
    pieces = tuple(
        InputPiece(ChunkId(WriterId(writer), i), SourceId("s"), Seq(i - 1), Seq(i)) for i, writer in enumerate(writers)
    )
    return EpochPlan(Epoch(epoch), pieces, {}, 0, "", 1)


@pytest.mark.parametrize("seed", range(20))
def test_every_piece_is_in_one_share(seed: int) -> None:
    chance = random.Random(seed)
    names = tuple(MemberId(f"d{i}") for i in range(chance.randrange(1, 6)))
    made = plan(10, *(chance.choice(["d0", "d1", "gone", "d4"]) for _ in range(chance.randrange(20))))
    shares = [pieces_of(made, generation(1, names), name) for name in names]
    assert sorted(i for share in shares for i, _ in share) == list(range(len(made.pieces)))
    for name, share in zip(names, shares, strict=True):
        assert all(piece is made.pieces[i] for i, piece in share)
        written_here = [piece for piece in made.pieces if piece.chunk.writer == name]
        assert all(piece in [p for _, p in share] for piece in written_here)


def test_an_epoch_is_distributed_once_and_reported_to_the_leader() -> None:
    machine = Distributor(ME)
    begin = Begin(generation(1), plan(10, "d1", "d2"), Epoch(0))
    (instruction,) = machine.handle(d.Received(LEADER, begin))
    assert isinstance(instruction, d.Distribute) and [i for i, _ in instruction.pieces] == [0]
    assert machine.handle(d.Received(LEADER, begin)) == []
    counts = {0: (1,)}
    (said,) = machine.handle(d.Distributed(Epoch(10), Attempt(1), counts, 5))
    assert said == d.Send(LEADER, Sent(Epoch(10), Attempt(1), ME, -1, counts, 5))
    assert machine.handle(d.Received(LEADER, Committed(Epoch(10)))) == [d.Commit(Epoch(10))]
    assert machine.handle(d.Received(LEADER, Committed(Epoch(10)))) == []


def test_answers_of_an_old_attempt_are_not_reported() -> None:
    machine = Distributor(ME)
    machine.handle(d.Received(LEADER, Begin(generation(1), plan(10), Epoch(0))))
    machine.handle(d.Received(LEADER, Begin(generation(2), plan(10), Epoch(0))))
    assert machine.handle(d.Distributed(Epoch(10), Attempt(1), {})) == []
    assert machine.handle(d.WorkFailed(Epoch(10), Attempt(1), "gone")) == []
    found = machine.handle(d.WorkFailed(Epoch(10), Attempt(2), "INPUT does not answer"))
    assert found[-1] == d.Send(LEADER, Failed(Epoch(10), Attempt(2), ME, "INPUT does not answer"))


def test_generations_without_this_distributor_are_not_its_own() -> None:
    machine = Distributor(ME)
    assert machine.handle(d.Received(LEADER, Begin(generation(1, (OTHER,)), plan(10), Epoch(0)))) == []
    machine.handle(d.Received(LEADER, Idle(generation(2), Epoch(9))))
    assert (machine.attempt, machine.committed) == (2, 9)
    machine.handle(d.Received(LEADER, Released(ME)))
    assert machine.released


def test_a_distributor_that_is_left_out_reports_nothing_of_its_attempt_any_more() -> None:
    machine = Distributor(ME)
    begin = Begin(generation(1), plan(10, "d1"), Epoch(0))
    machine.handle(d.Received(LEADER, begin))
    machine.handle(d.Received(LEADER, Idle(generation(2, (OTHER,)), Epoch(0))))
    assert machine.generation is None
    assert machine.handle(d.Distributed(Epoch(10), Attempt(1), {0: (1,)})) == []
    assert machine.handle(d.Received(LEADER, begin)) == []
