"""The leader's book of the catalog: builds that wait for rows to be loaded."""

from __future__ import annotations

from belvedere.protocol.catalog import HOLD_READS, CatalogBook, Offer
from belvedere.protocol.driving import CatalogOffered
from belvedere.protocol.messages import Epoch, EpochPlan
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
            assert not one.is_due and all(part.first == part.stop for part in one.next()[1])
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
