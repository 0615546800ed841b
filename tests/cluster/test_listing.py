"""What the leader sees of INPUT: the first chunks of each source, and figures of all of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import SourceInfo
from belvedere.cluster.roles.coordinator import CoordinatorMember
from belvedere.cluster.roles.input_listing import Listing, WaitingInput
from belvedere.protocol.driving import Note
from belvedere.protocol.exactly_once import (
    DURABLE_END,
    START,
    Chunk,
    ChunkId,
    Seq,
    SourceId,
    WriterId,
    choose,
    positions,
)

A, B = SourceId("a"), SourceId("b")


def store_with(*sources: SourceId) -> MemoryStore:
    store = MemoryStore()
    for source in sources:
        store.list_source(SourceInfo(source, "t", frozenset(), None, "node"))
    return store


def put(store: MemoryStore, source: SourceId, first: int, last: int, writer: str = "w") -> None:
    id = ChunkId(WriterId(f"{writer}-{source}"), first)
    store.put_chunks([(Chunk(id, source, Seq(first), Seq(last), rows=last - first + 1, size=10, at=1000 + first), b"")])


def test_a_long_index_is_read_in_parts_and_counted_as_a_whole() -> None:
    store = store_with(A, B)
    for first in range(0, 100, 2):
        put(store, A, first, first + 1)
    put(store, B, 0, 9)
    listing = Listing(store, store, limit=4)
    chunks, facts = listing.read()
    assert positions(chunks) == {A: 7, B: 9} and len(chunks) == 5 and {fact.id for fact in facts} == {A, B}
    assert listing.waiting({}) == WaitingInput(110, 510, 1000)
    assert listing.waiting({A: Seq(3)}) == WaitingInput(106, 490, 1000)
    assert listing.waiting({A: Seq(7), B: Seq(9)}) == WaitingInput(92, 460, 1006)
    store.remove_chunks([chunk.id for chunk in chunks])
    assert positions(listing.read()[0]) == {A: 15}
    assert listing.waiting({}) == WaitingInput(92, 460, 1008)


def test_what_was_shown_is_shown_again_although_copies_that_begin_earlier_come_later() -> None:
    """The machine knows that A is durable up to 7: a plan up to there must find all of its chunks."""
    store = store_with(A)
    for first in range(0, 40, 2):
        put(store, A, first, first + 1)
    listing = Listing(store, store, limit=4)
    bounds = positions(listing.read()[0])
    for writer in ("late", "later", "latest"):
        put(store, A, 0, 0, writer)
    chunks, _ = listing.read()
    assert positions(chunks)[A] >= bounds[A] == 7
    assert [(piece.after, piece.last) for piece in choose({}, bounds, chunks)] == [(-1, 1), (1, 3), (3, 5), (5, 7)]


def test_a_source_that_ended_where_it_is_durable_ends_at_the_last_chunk_of_all_and_not_of_the_first() -> None:
    store = MemoryStore()
    store.list_source(SourceInfo(A, "t", frozenset(), DURABLE_END, "node"))
    store.list_source(SourceInfo(B, "t", frozenset({A}), None, "node"))
    for first in range(0, 40, 2):
        put(store, A, first, first + 1)
    listing = Listing(store, store, limit=4)
    chunks, facts = listing.read()
    assert positions(chunks)[A] == 7
    assert [(fact.id, fact.last, fact.durable_end) for fact in facts] == [(A, 39, True), (B, None, False)]
    store.remove_chunks([chunk.id for chunk in store.chunks()])
    put(store, B, 0, 1)
    put(store, SourceId("unheard"), 0, 0)  # it is listed anew
    assert next(fact.last for fact in listing.read()[1] if fact.id == A) == 39, "an end is a fact"
    _, facts = Listing(store, store, limit=4).read()
    assert facts[0].durable_end and facts[0].last == START, "all of it is committed: its position tells"


def test_a_short_index_is_read_whole_and_asks_for_no_figures() -> None:
    store = store_with(A)
    put(store, A, 0, 2)
    asked: list[str] = []
    store.faults = lambda call, moment: asked.append(call)
    listing = Listing(store, store, limit=2)
    assert listing.waiting({}) == WaitingInput(0, 0, 0)
    listing.read()
    assert asked == ["sources", "chunks"] and listing.waiting({}) == WaitingInput(3, 10, 1000)


def test_a_source_that_input_has_and_the_listing_has_not_is_listed_at_once() -> None:
    """However young the listing is: its rows would wait, and rows of a daughter behind those of its parent."""
    store = store_with(A)
    put(store, A, 0, 2)
    listing = Listing(store, store, clock=lambda: 7.0)
    assert [fact.id for fact in listing.read()[1]] == [A]
    store.list_source(SourceInfo(B, "t", frozenset((A,)), None, "node"))
    assert [fact.id for fact in listing.read()[1]] == [A], "nothing has come of it"
    put(store, B, 0, 0)
    chunks, facts = listing.read()
    assert positions(chunks) == {A: 2, B: 0} and {fact.id for fact in facts} == {A, B}


def test_a_leader_reads_sources_anew_in_each_term(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing is good for a second; what a leader of the next term sees must not be older than its takeover."""
    made: list[Listing] = []
    member = object.__new__(CoordinatorMember)
    store = store_with(A)
    member.around = SimpleNamespace(store=store, sources=store)  # type: ignore[assignment]
    member.overview = member.repairs = SimpleNamespace(noted=lambda note: None)  # type: ignore[assignment]
    monkeypatch.setattr(CoordinatorMember, "note", lambda self, note: made.append(self.listing))
    for term in (1, 2):
        member._carry_out(Note("leading", {"term": term, "committed": 0}))
    assert made[0] is not made[1]
