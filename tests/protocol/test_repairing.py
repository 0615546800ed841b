"""Repairs on their way into a plan: when one is planned, when it is refused, and that none is lost."""

from __future__ import annotations

from dataclasses import replace

from belvedere.protocol import driving as d
from belvedere.protocol import wire
from belvedere.protocol.epoch import OpenEpoch
from belvedere.protocol.gc_documents import DocumentGc, repair_document
from belvedere.protocol.messages import Epoch, EpochPlan, Pointer, PoolState, Repair, Slice
from belvedere.protocol.repairing import MOST_WAITING, RepairBook
from belvedere.protocol.ring import BUCKETS
from belvedere.protocol.store_requests import Asking

DOCUMENT = b"right rows"
PLAN = EpochPlan(Epoch(200), (), {}, 3, "catalog/3", 2, engine=5)


def offered(ticket: int = 1, name: str = "repair/1", **more: object) -> d.RepairOffered:
    repair = Repair(name, wire.digest(DOCUMENT), Epoch(100))
    return replace(d.RepairOffered(ticket, repair, 3, 5, (1,)), **more)  # type: ignore[arg-type]


class Leader:
    def __init__(self, kept: int | None = 50) -> None:
        self.asking = Asking()
        self.book = RepairBook(self.asking)
        if kept is not None:
            self.book.collected(Epoch(kept))

    def offer(self, event: d.RepairOffered, data: bytes | None = DOCUMENT, open_plan: EpochPlan | None = None) -> list:
        epochs = [] if open_plan is None else [OpenEpoch(open_plan, Pointer(open_plan.epoch, "p", "d"), 0)]
        found = self.book.offer(event, Epoch(150), epochs)
        asked = [one for one in found if isinstance(one, d.ReadDocument)]
        told = [one for one in found if not isinstance(one, d.ReadDocument)]
        for one in asked:
            assert one.name == event.repair.document
            told += self.asking.answered(d.DocumentRead(one.request, data))
        return told


def test_the_next_plan_names_it_and_whoever_offered_it_hears_the_epoch() -> None:
    leader, event = Leader(), offered()
    assert leader.offer(event) == [] and leader.book.is_due(())
    assert leader.book.next(PLAN, ()) == event
    assert leader.book.planned(PLAN) == [], "a plan without it takes nothing"
    assert leader.book.planned(replace(PLAN, repair=event.repair)) == [d.RepairTaken(1, Epoch(200))]
    assert not leader.book.is_due(()) and leader.book.next(PLAN, ()) is None


def test_it_stays_until_a_plan_with_it_is_in_the_record() -> None:
    leader = Leader()
    leader.offer(offered())
    for _ in range(3):  # plans that are prepared and given up
        assert leader.book.next(PLAN, ()) is not None
    assert leader.book.documents == {"repair/1"}


def test_nothing_is_planned_before_the_document_is_known_to_be_right() -> None:
    leader = Leader()
    event = offered()
    (asked,) = leader.book.offer(event, Epoch(150), [])
    assert isinstance(asked, d.ReadDocument) and not leader.book.is_due(()) and leader.book.next(PLAN, ()) is None
    assert leader.asking.answered(d.DocumentRead(asked.request, DOCUMENT)) == []
    assert leader.book.is_due(())


def test_a_document_that_is_missing_or_damaged_is_refused_and_has_to_be_made_again() -> None:
    for data, why in ((None, "is missing"), (b"other bytes", "is damaged")):
        leader = Leader()
        (told,) = leader.offer(offered(), data)
        assert why in told.refused and not told.again and not leader.book.documents


def test_one_that_is_offered_twice_is_planned_once_and_both_hear_of_it() -> None:
    leader, event = Leader(), offered()
    leader.offer(event)
    assert leader.offer(replace(event, ticket=2)) == []
    plan = replace(PLAN, repair=event.repair)
    assert leader.book.planned(plan) == [d.RepairTaken(1, Epoch(200)), d.RepairTaken(2, Epoch(200))]
    assert leader.offer(replace(event, ticket=3), open_plan=plan) == [d.RepairTaken(3, Epoch(200))]
    assert not leader.book.is_due(())


def test_two_answers_about_one_document_do_not_hide_what_comes_behind_it() -> None:
    leader, event = Leader(), offered()
    (asked,) = leader.book.offer(event, Epoch(150), [])
    leader.book.offer(replace(event, ticket=2), Epoch(150), [])
    assert isinstance(asked, d.ReadDocument)
    told = leader.asking.answered(d.DocumentRead(asked.request, None))
    assert [one.ticket for one in told if isinstance(one, d.RepairTaken)] == [1, 2]
    leader.offer(offered(3, "repair/2"))
    assert leader.book.is_due(())


def test_repairs_are_planned_one_by_one_in_their_order() -> None:
    leader = Leader()
    first, second = offered(1), offered(2, "repair/2")
    leader.offer(first)
    leader.offer(second)
    assert leader.book.next(PLAN, ()) == first
    leader.book.planned(replace(PLAN, repair=first.repair))
    assert leader.book.next(PLAN, ()) == second


def test_a_plan_that_changes_the_catalog_repairs_nothing() -> None:
    leader = Leader()
    leader.offer(offered())
    assert leader.book.next(replace(PLAN, catalog=4), ()) is None


def test_it_waits_for_builds_that_read_the_tables_and_for_no_others() -> None:
    leader = Leader()
    leader.offer(offered())
    assert not leader.book.is_due((1,)) and leader.book.is_due((2,))
    last = replace(PLAN, slices=(Slice(1, 8000, BUCKETS),))
    assert leader.book.next(last, ()) is None, "its last slice is in this plan"
    assert leader.book.next(replace(PLAN, slices=(Slice(2, 0, 8000),)), ()) is not None


def test_another_catalog_or_engine_makes_it_worthless() -> None:
    for catalog, engine in ((4, 5), (3, 6)):
        leader = Leader()
        leader.offer(offered())
        (told,) = leader.book.refuse_outdated(catalog, engine, Epoch(150))
        assert "has changed since" in told.refused and not told.again and not leader.book.documents  # type: ignore[union-attr]
    leader = Leader()
    leader.offer(offered())
    assert leader.book.refuse_outdated(3, 5, Epoch(150)) == [] and leader.book.documents


def test_an_offer_for_an_epoch_that_may_be_collected_is_refused() -> None:
    (told,) = Leader(kept=101).offer(offered())
    assert "is not kept" in told.refused and not told.again
    assert Leader(kept=100).offer(offered()) == []
    (told,) = Leader(kept=None).offer(offered())
    assert "does not know yet" in told.refused and told.again


def test_who_loses_the_lead_says_so() -> None:
    leader = Leader()
    leader.offer(offered())
    (told,) = leader.book.lost_lead(Epoch(150), "another one leads")
    assert told.again and "another one leads" in told.refused and not leader.book.documents  # type: ignore[union-attr]


def test_so_many_wait_and_no_more() -> None:
    leader = Leader()
    for number in range(MOST_WAITING):
        assert leader.offer(offered(number, f"repair/{number}")) == []
    (told,) = leader.offer(offered(99, "repair/99"))
    assert told.again and "wait already" in told.refused


def test_a_document_goes_when_nobody_can_want_it_any_more() -> None:
    gc, state = DocumentGc(), PoolState("c")
    name = repair_document(Epoch(100), 0, "client-1")
    assert gc.unneeded([name], state, 0, Epoch(100)) == ()
    assert gc.unneeded([name], state, 0, Epoch(101)) == (name,)
    assert gc.unneeded([name], state, 0, Epoch(101), {name}) == (), "it is offered, or in an open plan"
