"""Lineage of sources: exact instructions for single facts, and random splits, merges and moves heard of in disorder."""

from __future__ import annotations

import itertools

import pytest

from belvedere.protocol import lineage
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.protocol.lineage import (
    Arrived,
    AskParents,
    Born,
    Finish,
    Generation,
    Home,
    Ignore,
    Lineage,
    LineageContradiction,
    Listed,
    NodeId,
    NodeLost,
    Opened,
    Orphaned,
    Planned,
    SourceClosed,
    SourceEnded,
    SourcePhase,
    Start,
)
from tests.protocol import regions

A, B, C, D = (SourceId(name) for name in "abcd")
X, Y = NodeId("x"), NodeId("y")


def listed(*sources: SourceId) -> Listed:
    return Listed(frozenset(sources))


def born(source: SourceId, *parents: SourceId) -> Born:
    return Born(source, frozenset(parents))


def told(*events: lineage.Event) -> Lineage:
    made = Lineage()
    for event in events:
        made.handle(event)
    return made


def test_a_listed_source_runs_when_its_birth_is_known() -> None:
    made = Lineage()
    assert made.handle(Arrived(A, Seq(7))) == []
    assert made.handle(listed(A)) == [AskParents(A)]
    assert made.handle(born(A)) == [Start(A)]
    assert made.bounds() == {A: 7}
    assert made.handle(Planned(A, Seq(7))) == []
    assert made.bounds() == {}


def test_a_daughter_starts_when_its_parent_is_planned_to_its_last_seq() -> None:
    made = told(listed(A), born(A), Arrived(A, Seq(9)), Arrived(B, Seq(3)), born(B, A))
    assert made.phase(B) is SourcePhase.WAITING
    assert made.bounds() == {A: 9} and made.held_up() == {B: {A}}
    assert made.handle(Planned(A, Seq(9))) == []
    assert made.handle(SourceEnded(A, Seq(12))) == []
    assert made.handle(Arrived(A, Seq(12))) == []
    assert made.bounds() == {A: 12}
    assert made.handle(Planned(A, Seq(12))) == [Finish(A), Start(B)]
    assert made.bounds() == {B: 3} and made.held_up() == {}


def test_a_merged_source_waits_for_all_its_parents() -> None:
    made = told(listed(A, B), born(A), born(B), born(C, A, B), SourceEnded(A, START), Arrived(C, Seq(1)))
    assert made.phase(A) is SourcePhase.EXHAUSTED and made.phase(C) is SourcePhase.WAITING
    assert made.handle(SourceEnded(B, START)) == [Finish(B), Start(C)]


def test_a_source_without_known_parents_is_held_up_and_asked_for() -> None:
    made = told(listed(A), born(A))
    assert made.handle(Arrived(C, Seq(4))) == [AskParents(C)]
    assert made.handle(Arrived(C, Seq(5))) == []
    assert made.handle(born(C, B)) == [AskParents(B)]
    assert made.held_up() == {C: {B}} and made.phase(C) is SourcePhase.UNKNOWN
    made.handle(born(B, A))
    assert made.phase(C) is SourcePhase.WAITING
    assert made.handle(SourceEnded(B, START)) == []
    assert made.handle(SourceEnded(A, START)) == [Finish(A), Start(B), Finish(B), Start(C)]


def test_what_does_not_descend_from_the_listing_does_not_count() -> None:
    made = told(listed(A), born(A))
    assert made.handle(born(B)) == [Ignore(B)]
    made.handle(Arrived(C, Seq(4)))
    assert made.handle(born(C, B)) == [Ignore(C)]
    assert made.bounds() == {} and made.held_up() == {}


def test_a_listing_may_hold_a_parent_and_its_daughters() -> None:
    made = told(listed(A, B), born(B, A), born(A, D), Arrived(A, Seq(5)), Arrived(B, Seq(2)))
    assert made.bounds() == {A: 5}
    made.handle(SourceEnded(A, Seq(5)))
    assert made.handle(Planned(A, Seq(5))) == [Finish(A), Start(B)]


def test_nothing_is_planned_beyond_the_end_of_a_source() -> None:
    made = told(listed(A), born(A), SourceEnded(A, Seq(5)))
    (report,) = made.handle(Arrived(A, Seq(6)))
    assert report == LineageContradiction(A, "entries up to seq 6, but it ended at 5")
    assert made.bounds() == {A: 5}


def test_contradictions_are_reported_and_the_first_fact_stands() -> None:
    made = told(listed(A), born(A), born(B, A), SourceEnded(A, Seq(5)))
    assert made.handle(born(B, A)) == made.handle(SourceEnded(A, Seq(5))) == made.handle(listed(A)) == []
    assert made.handle(born(B, C)) == [LineageContradiction(B, "parents (c) after (a)")]
    assert made.handle(SourceEnded(A, Seq(6))) == [LineageContradiction(A, "last seq 6 after 5")]
    assert made.handle(listed(A, B)) == [LineageContradiction(B, "in one of two listings, of 1 and 2 sources")]
    circle = told(listed(A), born(C, B))
    assert LineageContradiction(B, "parents (c) descend from the source itself") in circle.handle(born(B, C))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_openings_and_closings_out_of_order_agree(order: tuple[int, ...]) -> None:
    events = [
        Opened(A, X, Generation(1)),
        SourceClosed(A, Generation(1)),
        Opened(A, Y, Generation(4)),
        NodeLost(X),
    ]
    assert told(*(events[i] for i in order)).home(A) == (Home.OPEN, Y)


def test_a_lost_node_orphans_what_it_pushed() -> None:
    made = told(listed(A, B), Opened(A, X, Generation(1)), Opened(B, Y, Generation(1)))
    assert made.handle(NodeLost(X)) == [Orphaned(A, X)]
    assert made.handle(NodeLost(X)) == []
    assert made.home(A) == (Home.LOST, X) and made.home(B) == (Home.OPEN, Y) and made.home(C) == (Home.NOWHERE, None)
    assert made.handle(Opened(A, Y, Generation(2))) == []
    assert made.home(A) == (Home.OPEN, Y)
    assert Orphaned(C, X) in made.handle(Opened(C, X, Generation(1)))
    made.handle(SourceClosed(B, Generation(1)))
    assert made.home(B) == (Home.CLOSED, Y)


@pytest.mark.parametrize("first", range(0, 200, 25))
def test_rows_keep_their_order_and_everything_drains(first: int) -> None:
    daughters = 0
    for seed in range(first, first + 25):
        world = regions.World(seed)
        world.run(250)
        daughters += sum(1 for source in world.started if world.regions[source].parents)
    assert daughters > 25


class NoBarrier(Lineage):
    """Daughters start at once."""

    def _due(self, name: SourceId, source: lineage._Source) -> SourcePhase:
        due = super()._due(name, source)
        return SourcePhase.RUNNING if due is SourcePhase.WAITING else due


class UnknownRuns(Lineage):
    """No known parents is taken for no parents."""

    def _due(self, name: SourceId, source: lineage._Source) -> SourcePhase:
        due = super()._due(name, source)
        return SourcePhase.RUNNING if due is SourcePhase.UNKNOWN and source.arrived > START else due


class DurableIsEnough(Lineage):
    """The barrier is on what is durable, not on what is planned."""

    def _due(self, name: SourceId, source: lineage._Source) -> SourcePhase:
        due = super()._due(name, source)
        ended = due is SourcePhase.RUNNING and source.last is not None and source.arrived >= source.last
        return SourcePhase.EXHAUSTED if ended else due


class EveryoneCounts(Lineage):
    """Ancestors are not looked at."""

    def _due(self, name: SourceId, source: lineage._Source) -> SourcePhase:
        due = super()._due(name, source)
        return SourcePhase.RUNNING if due is SourcePhase.FOREIGN else due


@pytest.mark.parametrize("bug", [NoBarrier, UnknownRuns, DurableIsEnough, EveryoneCounts])
def test_the_model_notices_a_known_bug(bug: type[Lineage]) -> None:
    for seed in range(50):
        try:
            regions.World(seed, bug).run(250)
        except regions.Wrong:
            return
    pytest.fail(f"{bug.__doc__}: not noticed in 50 histories")
