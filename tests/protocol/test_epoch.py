"""The leader's book of epochs: what is done again, and what may be committed."""

from __future__ import annotations

from belvedere.protocol.epoch import EpochBook
from belvedere.protocol.messages import Attempt, Done, Epoch, EpochPlan, Generation, Pointer, Sent, Term
from belvedere.protocol.ring import MemberId

SERVER, FEEDER, LEADER = MemberId("v1"), MemberId("d1"), MemberId("c1")


def generation(number: int) -> Generation:
    return Generation(Attempt(number), Term(1), LEADER, number, (SERVER,), (FEEDER,))


def book(*epochs: int) -> EpochBook:
    """In generation 1, with these epochs open."""
    made = EpochBook()
    made.begin_generation(generation(1))
    for epoch in epochs:
        made.add(EpochPlan(Epoch(epoch), (), {}, 1, "catalog/1", 1), Pointer(Epoch(epoch), f"plan/{epoch}", ""), 0)
    return made


def acknowledge(made: EpochBook, epoch: int, attempt: int) -> None:
    """Everyone has done all of it."""
    made.sent(Sent(Epoch(epoch), Attempt(attempt), FEEDER, -1, {}))
    made.sent(Sent(Epoch(epoch), Attempt(attempt), SERVER, 0, {}))
    made.done(Done(Epoch(epoch), Attempt(attempt), SERVER, {}))


def committable(made: EpochBook) -> list[int]:
    return [one.plan.epoch for one in made.committable]


def test_an_epoch_that_is_acknowledged_and_not_committed_is_done_again() -> None:
    """Servers undo it when they adopt the generation. Were it not begun in it, they would go on with the next epoch as
    if they had processed this one, and answer reads of it with rows of the epoch before."""
    made = book(10, 11)
    acknowledge(made, 10, attempt=1)
    assert committable(made) == [10]
    begun = made.begin_generation(generation(2))
    assert [(begin.plan.epoch, begin.generation.number) for begin in begun] == [(10, 2), (11, 2)]
    assert committable(made) == []
    acknowledge(made, 10, attempt=1)
    assert committable(made) == [], "acknowledgements of the generation before"
    acknowledge(made, 10, attempt=2)
    assert committable(made) == [10]


def test_epochs_are_committed_in_their_order() -> None:
    made = book(10, 11)
    acknowledge(made, 11, attempt=1)
    assert committable(made) == []
    acknowledge(made, 10, attempt=1)
    assert committable(made) == [10, 11]
