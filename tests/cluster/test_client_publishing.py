"""What a coordinator publishes for clients when it cannot publish every epoch."""

from __future__ import annotations

import pytest

from belvedere.cluster.roles import publishing
from belvedere.cluster.roles.publishing import Unpublished
from belvedere.protocol.messages import Epoch, EpochPlan, Slice
from belvedere.protocol.ring import BUCKETS


def plan(epoch: int, document: str = "a", built: int | None = None) -> EpochPlan:
    slices = () if built is None else (Slice(1, 0, built),)
    return EpochPlan(Epoch(epoch), (), {}, 1, document, 1, slices)


def rest(queue: Unpublished) -> list[int]:
    found = []
    while (given := queue.next()) is not None:
        found.append(given.epoch)
    return found


def test_of_epochs_with_the_same_names_only_the_newest_waits() -> None:
    queue = Unpublished()
    assert queue.add(plan(1)) and queue.waiting
    assert rest(queue) == [1] and not queue.waiting
    assert queue.add(plan(2))
    assert not queue.add(plan(3)) and not queue.add(plan(4))
    assert rest(queue) == [4]


def test_the_first_epoch_with_other_names_is_never_left_out() -> None:
    queue = Unpublished()
    plans = [
        plan(1),
        plan(2),
        plan(3, "b", built=5),  # a view is created
        plan(4, "b", built=7),
        plan(5, "b", built=BUCKETS),  # and complete
        plan(6, "b"),
        plan(7, "b"),
        plan(8, "c"),  # what it replaces is dropped
        plan(9, "c"),
    ]
    for given in plans:
        queue.add(given)
    assert rest(queue) == [1, 3, 5, 8, 9]


def test_what_could_not_be_published_comes_again_unless_a_later_epoch_covers_it() -> None:
    queue = Unpublished()
    assert queue.add(plan(1))
    assert queue.next() == plan(1)
    assert not queue.add(plan(2)), "whoever publishes goes on with it"
    queue.failed()
    assert queue.waiting and rest(queue) == [1, 2]
    assert queue.add(plan(3))
    queue.next()
    queue.failed()
    assert queue.waiting, "sources are not forgotten before it is there"
    queue.next()
    queue.add(plan(4))
    queue.failed()
    assert rest(queue) == [4]


def test_it_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST", 3)
    queue = Unpublished()
    for epoch in range(1, 9):
        queue.add(plan(epoch, str(epoch)))
    assert rest(queue) == [1, 2, 8]


def test_what_is_being_published_is_not_known_to_be_there() -> None:
    queue = Unpublished()
    queue.add(plan(1))
    assert queue.next() == plan(1)
    assert queue.waiting
    assert queue.next() is None
    assert not queue.waiting
