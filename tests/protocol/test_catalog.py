"""The leader's book of the catalog: builds that wait for rows to be loaded."""

from __future__ import annotations

from belvedere.protocol.catalog import HOLD_READS, CatalogBook, Offer
from belvedere.protocol.driving import CatalogOffered
from belvedere.protocol.messages import NEVER, Epoch, EpochPlan, Slice
from belvedere.protocol.ring import BUCKETS


def offered(book: CatalogBook) -> None:
    book.offer = Offer(CatalogOffered(1, 1, b"", 1, (7,), (7,), loads=True), "catalog/1", durable=True)
    book.hold()


def plan(book: CatalogBook, epoch: int) -> EpochPlan:
    made = book.plan(Epoch(epoch), (), {}, (), 1)
    book.planned(made)
    return made


def test_a_build_takes_nothing_while_rows_are_loaded_and_is_not_forgotten() -> None:
    book = CatalogBook(20)
    offered(book)
    assert book.is_due, "the catalog itself waits for nothing"
    made = plan(book, 1)
    assert [(part.view_group, part.first, part.stop) for part in made.slices] == [(7, 0, 0)]
    book.observe(made, 5)
    successor = CatalogBook(20)
    successor.restore(made)
    for one in (book, successor):
        assert one.current.building == {7: 0}
        one.heard(True)
        assert not one.is_due
        for _ in range(HOLD_READS):
            assert not one.is_due and all(part.first == part.stop for part in one.next(Epoch(1))[1])
            one.heard(False)
        assert one.is_due
        while one.current.building:
            (part,) = plan(one, 2).slices
            assert part.stop > part.first
        assert part.stop == BUCKETS


def test_an_answer_that_was_on_its_way_when_the_table_came_starts_no_build() -> None:
    book = CatalogBook(20)
    book.heard(False)
    offered(book)
    book.heard(False)
    assert [part.stop for part in plan(book, 1).slices] == [0]


def test_builds_go_on_where_nothing_was_ever_loaded() -> None:
    book = CatalogBook(20)
    book.offer = Offer(CatalogOffered(1, 1, b"", 1, (7,), (7,)), "catalog/1", durable=True)
    assert [part.stop > part.first for part in plan(book, 1).slices] == [True]


def aside_book(over: tuple[int, ...] = ()) -> CatalogBook:
    """View group 7 is computed by somebody else, and 8 reads it (or what `over` says)."""
    book = CatalogBook(20)
    offered = CatalogOffered(1, 1, b"", 1, (7, 8), (7, 8), aside=(7,), over=((8, over or (7,)),))
    book.offer = Offer(offered, "catalog/1", durable=True)
    return book


def test_what_is_computed_aside_waits_for_it_and_what_reads_it_does_too() -> None:
    book = aside_book()
    made = plan(book, 5)
    assert made.slices == (Slice(7, 0, 0, Epoch(5), awaits=True), Slice(8, 0, 0, over=(7,)))
    successor = CatalogBook(20)
    successor.restore(made)
    for one in (book, successor):
        assert not one.is_due, "there is nothing that a plan could do"
        assert one.current.awaited == {7: 5} and one.current.held == 5
        one.computed([(7, Epoch(4))])
        assert not one.is_due, "of another epoch"
        assert plan(one, 6).slices == made.slices
        one.computed([(7, Epoch(5))])
        assert one.is_due
        first, second = plan(one, 7).slices
        assert (first.since, first.awaits, first.first) == (5, False, 0) and first.stop > 0
        assert second.stop > 0 and second.since == NEVER
        one.computed([])
        assert plan(one, 8).slices[0].first == first.stop, "what is in a plan is not asked for again"
        assert one.current.held == 5
        while one.current.building:
            plan(one, 9)
        assert one.current.held is None and not one.current.aside and not one.current.over


def test_what_reads_other_view_groups_is_built_meanwhile() -> None:
    book = aside_book(over=(3,))
    assert plan(book, 5).slices[1].stop > 0


def test_the_epoch_of_what_is_computed_aside_comes_when_rows_are_loaded() -> None:
    book = aside_book()
    book.hold()
    assert plan(book, 5).slices[0] == Slice(7, 0, 0, NEVER, awaits=True)
    assert book.current.held is None and not book.is_due
    for _ in range(HOLD_READS):
        book.heard(False)
    assert book.is_due
    assert plan(book, 9).slices[0] == Slice(7, 0, 0, Epoch(9), awaits=True)


def test_one_that_is_dropped_is_not_awaited_any_more() -> None:
    book = aside_book()
    plan(book, 5)
    book.offer = Offer(CatalogOffered(2, 2, b"", 1, (), (8,)), "catalog/2", durable=True)
    (left,) = plan(book, 6).slices
    assert left.view_group == 8 and left.stop > 0
    assert not book.current.awaited and book.current.held is None
