"""Plans and catalogs that nobody needs go, whoever left them; those that somebody may need stay."""

from __future__ import annotations

from belvedere.protocol.gc_documents import CATALOGS, PLANS, DocumentGc, catalog_document, plan_document
from belvedere.protocol.messages import Epoch, EpochPlan, Pointer, PoolState, Term
from tests.protocol.test_coordinator import pool

NEVER_REACHED = Epoch(0)


def _plan(epoch: int, catalog: int, term: int) -> EpochPlan:
    return EpochPlan(Epoch(epoch), (), {}, catalog, catalog_document(catalog, term, 1), stages=1)


def _pointer(epoch: int, term: int) -> Pointer:
    return Pointer(Epoch(epoch), plan_document(Epoch(epoch), term), "digest")


def _record() -> PoolState:
    """Term 3; epoch 20 is committed, epoch 30, which a predecessor planned, is open."""
    return PoolState("c", Term(3), committed=Epoch(20), committed_plan=_pointer(20, 2), open=(_pointer(30, 2),))


def test_plans_that_the_record_does_not_name_go_unless_they_are_on_their_way_into_it() -> None:
    kept = [plan_document(Epoch(20), 2), plan_document(Epoch(30), 2), plan_document(Epoch(40), 3)]
    gone = [
        plan_document(Epoch(10), 1),
        plan_document(Epoch(20), 1),  # another one's of the same time
        plan_document(Epoch(40), 2),  # of a leader who was lost before it was in the record
        plan_document(Epoch(15), 3),  # removed before, and written again by a write that came late
    ]
    assert DocumentGc().unneeded([*kept, *gone, "pins/1"], _record(), 0, NEVER_REACHED) == tuple(gone)


def test_catalogs_stay_while_an_epoch_that_names_them_can_be_read() -> None:
    gc = DocumentGc()
    for epoch, catalog, term in ((20, 4, 2), (30, 4, 2), (40, 5, 3), (50, 6, 3)):
        gc.committed(_plan(epoch, catalog, term), "")
    names = [catalog_document(version, term, 1) for version, term in ((3, 1), (4, 1), (4, 2), (5, 3), (6, 3), (7, 3))]

    def kept(horizon: int) -> list[str]:
        gone = gc.unneeded(names, _record(), 6, Epoch(horizon))
        return [name for name in names if name not in gone]

    assert kept(19) == names, "what was before the takeover is not known"
    assert kept(20) == kept(39) == names[2:], "and of version 4 the one that plans name"
    assert kept(40) == names[3:]
    assert kept(99) == names[4:], "the newest, and one that is offered"


def test_a_catalog_that_was_offered_to_a_leader_who_was_lost_goes() -> None:
    names = (catalog_document(4, 2, 1), catalog_document(5, 2, 1), catalog_document(5, 3, 1))
    assert DocumentGc().unneeded(names, _record(), 4, NEVER_REACHED) == (names[1],)


def test_superseded_plans_are_said_once() -> None:
    gc = DocumentGc()
    gc.committed(_plan(20, 1, 2), "a")
    gc.committed(_plan(30, 1, 2), "b")
    assert gc.superseded(Epoch(30)) == ("a",)
    assert gc.superseded(Epoch(30)) == ()


def test_a_pool_gets_rid_of_what_lost_leaders_left() -> None:
    table = pool(3)
    table.write("a")
    table.run_until(lambda: len(table.commits) == 1)
    left = (plan_document(Epoch(table.now + 77), 0), catalog_document(9, 0, 1))
    for name in left:
        table.documents[name] = b"left over"
    table.write("a")
    table.run_until(lambda: len(table.commits) == 2 and not set(left) & set(table.documents))
    state, _ = table.record or (None, 0)
    assert state is not None and state.committed_plan is not None
    assert [name for name in table.documents if name.startswith(PLANS)] == [state.committed_plan.document]
    assert not [name for name in table.documents if name.startswith(CATALOGS)]
