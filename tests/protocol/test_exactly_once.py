"""The filter on (source, seq): exact instructions for single events, and histories in which everything goes wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from belvedere import errors
from belvedere.protocol import exactly_once as eo
from belvedere.protocol.exactly_once import (
    Chunk,
    ChunkId,
    DuplicateFilter,
    InputPiece,
    RequestId,
    Seq,
    SourceEntry,
    SourceId,
    WriterId,
)
from tests.protocol import pushing

A, B = SourceId("a"), SourceId("b")
ONE, TWO = WriterId("one"), WriterId("two")


def entries(*seqs: int) -> tuple[SourceEntry, ...]:
    return tuple(SourceEntry(Seq(seq), ("row", "row")) for seq in seqs)


def received(request: int, source: SourceId, *seqs: int) -> eo.ReceivedEntries:
    return eo.ReceivedEntries(RequestId(request), source, entries(*seqs))


def chunk(writer: WriterId, number: int, first: int, last: int, source: SourceId = A) -> Chunk:
    return Chunk(ChunkId(writer, number), source, Seq(first), Seq(last))


def write(number: int, source: SourceId, *seqs: int) -> eo.Write:
    made = replace(chunk(ONE, number, seqs[0], seqs[-1], source), rows=2 * len(seqs))
    return eo.Write(made, entries(*seqs))


def written(number: int) -> eo.WrittenChunk:
    return eo.WrittenChunk(ChunkId(ONE, number))


def acknowledge(request: int) -> eo.Acknowledge:
    return eo.Acknowledge(RequestId(request))


def piece(writer: WriterId, number: int, after: int, last: int, source: SourceId = A) -> InputPiece:
    return InputPiece(ChunkId(writer, number), source, Seq(after), Seq(last))


def test_a_request_is_acknowledged_when_it_is_durable_and_not_before() -> None:
    filter = DuplicateFilter(ONE)
    assert filter.handle(received(1, A, 3, 5, 9)) == [write(1, A, 3, 5, 9)]
    assert filter.durable(A) == eo.START
    assert filter.handle(written(1)) == [acknowledge(1)]
    assert filter.durable(A) == 9
    assert filter.handle(written(1)) == []


def test_a_repeat_is_dropped_and_acknowledged_at_once() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3, 5, 9))
    filter.handle(written(1))
    assert filter.handle(received(2, A, 3, 5)) == [acknowledge(2)]
    assert filter.dropped == eo.Dropped(2, 4)


def test_a_request_cut_differently_brings_only_what_is_new() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3, 5))
    filter.handle(written(1))
    assert filter.handle(received(2, A, 5, 9, 10)) == [write(2, A, 9, 10)]
    assert filter.dropped == eo.Dropped(1, 2)


def test_a_request_on_a_new_connection_waits_for_the_write_of_the_old_one() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3, 5))
    assert filter.handle(received(2, A, 3, 5, 9)) == []
    assert filter.handle(received(3, A, 3)) == []
    assert filter.stages() == {1: eo.Stage.WRITING, 2: eo.Stage.WAITING, 3: eo.Stage.WAITING}
    assert filter.handle(written(1)) == [acknowledge(1), write(2, A, 9), acknowledge(3)]
    assert filter.handle(written(2)) == [acknowledge(2)]
    assert filter.stages() == {}


def test_after_a_failed_write_the_next_request_is_written_whole() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3, 5))
    filter.handle(received(2, A, 3, 5, 9))
    refuse = eo.Refuse(RequestId(1), "source a: not written to INPUT: disk full")
    assert filter.handle(eo.WriteFailed(ChunkId(ONE, 1), "disk full")) == [refuse, write(2, A, 3, 5, 9)]
    assert filter.handle(written(1)) == []
    assert filter.durable(A) == eo.START


def test_sources_do_not_wait_for_each_other() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3))
    assert filter.handle(received(2, B, 3)) == [write(2, B, 3)]


def test_a_restart_knows_what_the_index_and_the_last_plan_say() -> None:
    filter = DuplicateFilter(ONE)
    restored = eo.Restored([chunk(TWO, 1, 3, 5), chunk(TWO, 2, 7, 8)], {A: Seq(2), B: Seq(40)})
    assert filter.handle(restored) == []
    assert (filter.durable(A), filter.durable(B)) == (8, 40)
    assert filter.handle(received(1, B, 39, 40)) == [acknowledge(1)]
    assert filter.handle(received(2, A, 7, 8, 11)) == [write(1, A, 11)]


def test_what_is_learned_meanwhile_answers_those_who_wait() -> None:
    filter = DuplicateFilter(ONE)
    filter.handle(received(1, A, 3))
    filter.handle(received(2, A, 3, 5))
    assert filter.handle(eo.Restored([chunk(TWO, 1, 3, 5)], {})) == [acknowledge(2)]
    assert filter.handle(written(1)) == [acknowledge(1)]
    assert filter.durable(A) == 5


@pytest.mark.parametrize("seqs", [(5, 5), (5, 4), (-1,), (3, 9, 8)])
def test_seqs_that_do_not_grow_are_refused(seqs: tuple[int, ...]) -> None:
    (answer,) = DuplicateFilter(ONE).handle(received(1, A, *seqs))
    assert isinstance(answer, eo.Refuse) and "seqs must grow" in answer.reason


def test_an_empty_request_is_answered() -> None:
    assert DuplicateFilter(ONE).handle(received(1, A)) == [acknowledge(1)]


def test_overlapping_chunks_of_two_distributors_are_cut() -> None:
    index = [chunk(TWO, 1, 5, 30), chunk(ONE, 1, 3, 20), chunk(ONE, 2, 22, 50), chunk(TWO, 2, 3, 9)]
    assert eo.positions(index) == {A: 50}
    # 21 may be an entry: the chunk that begins at 22 does not follow 20.
    assert eo.choose({}, {A: Seq(50)}, index) == (piece(ONE, 1, -1, 20), piece(TWO, 1, 20, 30), piece(ONE, 2, 30, 50))


def test_a_plan_goes_on_where_the_last_one_ended_and_stops_at_its_bound() -> None:
    index = [chunk(ONE, 1, 3, 20), chunk(TWO, 1, 18, 30), chunk(ONE, 1, 7, 9, B)]
    assert eo.choose({A: Seq(10)}, {A: Seq(25), B: Seq(9)}, index) == (
        piece(ONE, 1, 10, 20),
        piece(TWO, 1, 20, 25),
        piece(ONE, 1, -1, 9, B),
    )
    assert eo.choose({A: Seq(30)}, {A: Seq(30)}, index) == ()


def test_equal_chunks_are_chosen_by_their_id() -> None:
    index = [chunk(TWO, 1, 3, 20), chunk(ONE, 7, 3, 20)]
    assert eo.choose({}, {A: Seq(20)}, index) == (piece(ONE, 7, -1, 20),)
    assert eo.choose({}, {A: Seq(20)}, index[::-1]) == (piece(ONE, 7, -1, 20),)


def test_a_plan_beyond_what_input_holds_is_an_error() -> None:
    with pytest.raises(errors.Damaged, match="source a ends at seq 20, a plan needs it up to 21"):
        eo.choose({}, {A: Seq(21)}, [chunk(ONE, 1, 3, 20)])


def test_chunks_are_collected_when_nothing_of_them_is_needed() -> None:
    index = [chunk(ONE, 1, 3, 20), chunk(ONE, 2, 15, 21), chunk(ONE, 3, 1, 1, B)]
    assert eo.collectable({A: Seq(20)}, index) == (ChunkId(ONE, 1),)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_every_entry_takes_effect_once_and_in_order(first: int) -> None:
    repeats = 0
    for seed in range(first, first + 50):
        world = pushing.World(seed)
        world.run(300)
        repeats += world.repeats
    assert repeats > 50


@pytest.mark.parametrize("bug", pushing.BUGS)
def test_the_world_notices_a_known_bug(bug: str) -> None:
    for seed in range(200):
        try:
            pushing.World(seed, bug).run(300)
        except (pushing.Wrong, errors.Damaged):
            return
    pytest.fail(f"{bug}: not noticed in 200 histories")
