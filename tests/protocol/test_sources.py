"""What may be planned: single facts, and regions that split, merge, end and are forgotten while copies keep coming."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from belvedere import errors
from belvedere.protocol.driving import SourceFact
from belvedere.protocol.exactly_once import START, Chunk, ChunkId, InputPiece, Seq, SourceId, WriterId
from belvedere.protocol.lineage import Home, LineageContradiction, SourcePhase
from belvedere.protocol.sources import SourceBook
from tests.protocol import following

A, B, C, X = (SourceId(name) for name in "abcx")


def fact(source: SourceId, *parents: SourceId, last: int | None = None) -> SourceFact:
    return SourceFact(source, frozenset(parents), None if last is None else Seq(last))


def chunk(number: int, source: SourceId, first: int, last: int) -> Chunk:
    return Chunk(ChunkId(WriterId("w"), number), source, Seq(first), Seq(last))


def restored(**positions: int) -> SourceBook:
    made = SourceBook()
    made.restore({SourceId(name): Seq(seq) for name, seq in positions.items()})
    return made


def test_a_listed_source_is_planned_to_what_is_durable() -> None:
    made = SourceBook()
    index = [chunk(1, A, 0, 4), chunk(2, A, 3, 9)]
    assert made.observe(index, [fact(A)]) == []
    assert made.bounds() == {A: 9}
    assert made.choose({A: Seq(9)}) == (
        InputPiece(index[0].id, A, START, Seq(4)),
        InputPiece(index[1].id, A, Seq(4), Seq(9)),
    )
    assert made.positions_after({A: Seq(9)}) == {A: 9}
    assert made.plan({A: Seq(9)}) == [] and made.planned == {A: 9}
    assert made.bounds() == {}
    made.observe([*index, chunk(3, A, 10, 12)], [fact(A)])
    assert made.bounds() == {A: 12}


@pytest.mark.parametrize("left", [True, False])
def test_daughters_of_a_source_that_ended_where_it_is_durable_wait_for_what_is_durable(left: bool) -> None:
    """What is planned may have left INPUT: then the position says where it ended."""
    made = restored(a=4) if left else SourceBook()
    index = [chunk(2, B, 0, 3)] if left else [chunk(1, A, 0, 4), chunk(2, B, 0, 3)]
    ended = fact(A, last=-1 if left else 4)
    assert made.observe(index, [ended, fact(B, A)], {A}) == []
    if not left:
        assert made.bounds() == {A: 4} and made.held_up() == {B: {A}}
        made.plan({A: Seq(4)})
        assert made.observe(index, [ended, fact(B, A)], {A}) == []
    assert made.bounds() == {B: 3} and made.phase(A) is SourcePhase.EXHAUSTED
    assert made.observe([chunk(2, B, 0, 3)], [ended, fact(B, A)], {A}) == []
    assert made.forgettable({A: Seq(4)}) == (A,)


def test_daughters_wait_until_their_parent_is_planned_to_its_last_seq() -> None:
    made = SourceBook()
    index = [chunk(1, A, 0, 4), chunk(2, B, 0, 3)]
    made.observe(index, [fact(A, last=6), fact(B, A)])
    assert made.bounds() == {A: 4} and made.held_up() == {B: {A}}
    made.plan({A: Seq(4)})
    assert made.bounds() == {}
    made.observe([*index, chunk(3, A, 5, 6)], [fact(A, last=6), fact(B, A)])
    made.plan({A: Seq(6)})
    assert made.bounds() == {B: 3} and made.phase(A) is SourcePhase.EXHAUSTED


def test_a_new_leader_needs_positions_and_listing_only() -> None:
    listing = [fact(A, last=6), fact(B, A), fact(C, A)]
    made = restored(a=6, b=3)
    assert made.observe([chunk(1, B, 0, 7), chunk(2, C, 0, 2)], listing) == []
    assert made.bounds() == {B: 7, C: 2}
    behind = restored(a=5)
    behind.observe([chunk(1, A, 0, 6), chunk(2, C, 0, 2)], listing)
    assert behind.bounds() == {A: 6}


def test_a_parent_that_the_store_forgot_holds_nobody_up() -> None:
    made = restored(a=6)
    made.observe([chunk(1, B, 0, 7)], [fact(B, A)])
    assert made.bounds() == {B: 7}
    assert made.positions_after({B: Seq(7)}) == {B: 7}


def test_what_input_still_has_of_a_source_that_is_not_listed_comes_first() -> None:
    made = restored(a=6)
    made.observe([chunk(1, A, 5, 8), chunk(2, B, 0, 7)], [fact(B, A)])
    assert made.bounds() == {A: 8}
    assert made.positions_after({A: Seq(8)}) == {A: 8}
    made.plan({A: Seq(8)})
    assert made.bounds() == {B: 7}
    made.observe([chunk(3, A, 9, 9), chunk(2, B, 0, 7)], [fact(B, A)])
    assert made.bounds() == {A: 9}
    assert made.strays() == (), "a source with a position is one of ours, listed or not"
    made.observe([chunk(3, A, 9, 9), chunk(2, B, 0, 7)], [fact(B, A)])
    assert made.strays() == ()


def test_a_source_that_moves_is_closed_here_and_opened_there() -> None:
    made, daughter = SourceBook(), SourceFact(B, frozenset({A}), None, "x")
    assert made.home(A) == (Home.NOWHERE, None)
    made.observe([], [SourceFact(A, frozenset(), None, "x"), daughter])
    assert made.home(A) == (Home.OPEN, "x")
    index = [chunk(1, B, 0, 2)]
    for node, found in [("y", (Home.OPEN, "y")), ("", (Home.CLOSED, "y")), ("x", (Home.OPEN, "x"))]:
        made.observe(index, [SourceFact(A, frozenset(), None, node), daughter])
        assert made.home(A) == found
        assert made.held_up() == {B: {A}}, "whoever pushes it, its daughter waits for it"


def test_nothing_is_planned_beyond_the_end_and_it_is_reported_once() -> None:
    made = SourceBook()
    contradiction = LineageContradiction(A, "entries up to seq 9, but it ended at 6")
    assert made.observe([chunk(1, A, 0, 9)], [fact(A, last=6)]) == [contradiction]
    assert made.bounds() == {A: 6}
    assert made.observe([chunk(1, A, 0, 9)], [fact(A, last=6), fact(B)]) == []


def test_a_listing_that_contradicts_an_earlier_one_is_not_believed() -> None:
    made = SourceBook()
    made.observe([chunk(1, A, 0, 9)], [fact(A, last=9), fact(B, A)])
    assert made.observe([chunk(1, A, 0, 9)], [fact(A, last=5), fact(B, C)]) == [
        LineageContradiction(A, "last seq 5 after 9"),
        LineageContradiction(B, "parents (c) after (a)"),
    ]
    assert made.bounds() == {A: 9}


def test_sources_that_are_not_listed_are_ignored_and_their_chunks_go_after_a_later_listing() -> None:
    made = SourceBook()
    stranger, fresh = chunk(1, X, 0, 9), chunk(2, B, 0, 3)
    made.observe([stranger, fresh], [fact(A)])
    assert made.bounds() == {} and made.strays() == ()
    assert made.held_up() == {X: frozenset(), B: frozenset()}
    made.observe([stranger, fresh], [fact(A), fact(B)])
    assert made.bounds() == {B: 3} and made.strays() == (stranger.id,)


def test_a_source_is_forgotten_first_by_the_store_and_then_by_plans() -> None:
    made = restored(a=6, b=2)
    listing = [fact(A, last=6), fact(B, A)]
    made.observe([chunk(1, A, 0, 6), chunk(2, B, 0, 2)], listing)
    assert made.forgettable({A: Seq(6), B: Seq(2)}) == (), "INPUT has some of it"
    made.observe([chunk(2, B, 0, 2)], listing)
    assert made.forgettable({A: Seq(5), B: Seq(2)}) == (), "its last entry is not committed"
    assert made.forgettable({A: Seq(6), B: Seq(2)}) == (A,)
    assert made.positions_after({}) == {A: 6, B: 2}, "the store still lists it"
    made.observe([chunk(2, B, 0, 2)], [fact(B, A)])
    assert made.positions_after({}) == {B: 2}
    made.plan({B: Seq(2)})
    late = chunk(9, A, 3, 6)
    for _ in range(2):
        made.observe([late, chunk(3, B, 3, 5)], [fact(B, A)])
        assert made.bounds() == {B: 5}
    assert made.strays() == (late.id,)


def test_a_source_that_never_had_an_entry_can_be_forgotten() -> None:
    made = SourceBook()
    made.observe([], [fact(A, last=START), fact(B, A)])
    assert made.forgettable({}) == (A,)


def test_positions_are_kept_until_a_listing_was_heard() -> None:
    assert restored(a=6).positions_after({}) == {A: 6}


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_rows_keep_their_order_and_nothing_is_kept_for_ever(first: int) -> None:
    forgotten, copies = 0, 0
    for seed in range(first, first + 50):
        world = following.World(seed)
        world.run(300)
        forgotten, copies = forgotten + world.forgotten, copies + world.copies_of_forgotten
    assert forgotten > 50 and copies > 50


class ForgetsFirst(SourceBook):
    """A source is left out of plans before the store has forgotten it."""

    def positions_after(self, bounds: Mapping[SourceId, Seq]) -> dict[SourceId, Seq]:
        gone = self.forgettable(self._planned)
        return {s: seq for s, seq in super().positions_after(bounds).items() if s in bounds or s not in gone}


class AnyoneCounts(SourceBook):
    """What is pushed is planned, listed or not."""

    def bounds(self) -> dict[SourceId, Seq]:
        unknown = {s: seq for s, seq in self._arrived.items() if s not in self._facts and s not in self._planned}
        return super().bounds() | unknown


class EndedIsEnough(SourceBook):
    """The store may forget what ended, although not all of it is planned."""

    def forgettable(self, committed: Mapping[SourceId, Seq]) -> tuple[SourceId, ...]:
        return tuple(s for s, fact in self._facts.items() if fact.last is not None and s not in self._arrived)


class HastyStrays(SourceBook):
    """What the listing before it does not know is a stray."""

    def strays(self) -> tuple[ChunkId, ...]:
        return tuple(c.id for c in self._index if c.source not in self._facts and c.source not in self._planned)


class NoParents(SourceBook):
    """Parents are not looked at."""

    def bounds(self) -> dict[SourceId, Seq]:
        waiting = {s: self._arrived[s] for s in super().held_up() if s in self._facts and s in self._arrived}
        return super().bounds() | waiting


@pytest.mark.parametrize("bug", [ForgetsFirst, AnyoneCounts, EndedIsEnough, HastyStrays, NoParents])
def test_the_world_notices_a_known_bug(bug: type[SourceBook]) -> None:
    for seed in range(100):
        try:
            following.World(seed, bug).run(300)
        except (following.Wrong, errors.Damaged):
            return
    pytest.fail(f"{bug.__doc__}: not noticed in 100 histories")
