"""What is to be done about tables and views: observed -> actions, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere_operator.api.view_pool import PendingDrop
from belvedere_operator.decide.items import Item, Phase, PoolState, item_of
from belvedere_operator.decide.ordering import mentioned, readers_last
from belvedere_operator.decide.relations import GRACE_S, RETRY_S, Attempt, Plan, decide
from belvedere_operator.times import stamp
from tests.operator.resources import NOW, applied, figures, table, view

UP = PoolState("default", Phase.UP)
STARTING = PoolState("default", Phase.STARTING, "pods ready: store 0/1")
STALLED = PoolState("default", Phase.STALLED, "stalled: view spend: 1/0")
GONE = PoolState("default", Phase.MISSING, "there is no ViewPool 'default'")
DELETING = PoolState("default", Phase.DELETING, "ViewPool 'default' is being deleted")
JUST_NOW, LONG_AGO = stamp(NOW - 5), stamp(NOW - GRACE_S - 1)


def plan(items: list[Item], pool: PoolState, told: Any = None, **more: Any) -> Plan:
    return decide(items, pool, told, now=NOW, **more)


def names(items: Any) -> list[str]:
    return [item.name for item in items]


def dropped(found: Plan) -> list[str]:
    return [drop.name for drop in found.drops]


def test_all_that_is_pending_is_one_change_with_readers_last() -> None:
    items = [
        item_of(view("c", "SELECT x FROM b")),
        item_of(view("b", "SELECT x FROM a")),
        item_of(view("a")),
        item_of(table("orders")),
    ]
    assert names(plan(items, UP, figures(tables=())).apply) == ["orders", "a", "b", "c"]


def test_what_the_pool_has_is_not_sent_again() -> None:
    assert plan([applied(table("orders")), applied(view("spend"))], UP, figures("spend")) == Plan()


@pytest.mark.parametrize(
    ("change", "sent"),
    [
        ({"query": "SELECT total FROM orders"}, True),
        ({"key": ["id"]}, True),
        ({"retention": "1h"}, True),
        ({"freshness": "2s"}, False),
        ({"verify": {"schedule": "@daily"}}, False),
        ({"reclaimPolicy": "Retain"}, False),
        ({"pool": "default"}, False),
    ],
)
def test_a_change_is_sent_if_it_means_something_to_the_database(change: dict[str, Any], sent: bool) -> None:
    before = applied(view("spend"))
    after = item_of(view("spend", spec=change) | {"status": {"applied": before.status.applied}})
    assert bool(plan([after], UP, figures("spend")).apply) is sent


def test_a_view_that_the_pool_has_lost_is_sent_again() -> None:
    assert names(plan([applied(view("spend"))], UP, figures()).apply) == ["spend"]


def test_nothing_is_sent_to_a_pool_that_is_not_up() -> None:
    for state in (STARTING, STALLED, GONE, DELETING):
        assert plan([item_of(view("spend"))], state).apply == ()


def test_what_was_refused_is_tried_again_when_something_changes_or_a_while_later() -> None:
    broken, told = item_of(view("broken", "SELEC")), figures()
    refused = Attempt(frozenset([broken.digest()]), NOW - 1)
    assert plan([broken], UP, told, last=refused).apply == ()
    assert names(plan([broken], UP, told, last=Attempt(refused.digests, NOW - RETRY_S)).apply) == ["broken"]
    other = item_of(view("other"))
    assert names(plan([broken, other], UP, told, last=refused).apply) == ["broken", "other"]


def test_the_finalizer_comes_first() -> None:
    assert names(plan([item_of(view("spend", finalizers=[]))], STARTING).finalize) == ["spend"]


def test_a_name_belongs_to_the_oldest() -> None:
    old = item_of(view("spend"))
    new = item_of(view("other", spec={"name": "SPEND"}, creationTimestamp="2026-02-01T00:00:00Z"))
    found = plan([new, old], UP, figures())
    assert names(found.apply) == ["spend"]
    assert found.waiting[new.key] == (
        "NameTaken",
        "MaterializedView 'spend' is 'SPEND' in SQL already; give this one another spec.name",
    )


def test_a_spec_that_cannot_be_read_is_named_and_the_others_go_on() -> None:
    broken = item_of(view("broken", spec={"frehsness": "2s"}))
    found = plan([broken, item_of(view("spend"))], UP, figures())
    assert names(found.apply) == ["spend"]
    assert found.waiting[broken.key][0] == "InvalidSpec" and "frehsness" in found.waiting[broken.key][1]


def test_paused_resources_are_left_alone() -> None:
    pause = {"annotations": {"belvedere.dev/paused": "true"}}
    items = [item_of(view("a", **pause)), item_of(view("b", deletionTimestamp=LONG_AGO, **pause))]
    assert plan(items, UP, figures("a", "b")) == Plan()


# ---------------------------------------------------------------------- suspend


def test_a_suspended_view_is_taken_out_and_comes_back() -> None:
    suspended = applied(view("spend", spec={"suspend": True}))
    found = plan([suspended], UP, figures("spend"))
    assert (dropped(found), found.apply, found.release) == (["spend"], (), ())
    assert plan([suspended], UP, figures()) == Plan()
    assert names(plan([applied(view("spend"))], UP, figures()).apply) == ["spend"]


def test_a_view_that_others_read_is_not_suspended_without_them() -> None:
    below = applied(view("below", "SELECT id FROM spend"))
    spend = applied(view("spend", spec={"suspend": True}))
    told = figures("spend", "below", reads={"below": ("spend",)})
    found = plan([spend, below], UP, told)
    assert dropped(found) == []
    assert found.waiting[spend.key] == ("HasDependants", "views read it: below; delete or suspend them first")
    both = applied(view("below", "SELECT id FROM spend", spec={"suspend": True}))
    assert dropped(plan([spend, both], UP, told)) == ["below", "spend"]


# ---------------------------------------------------------------------- deletion: no finalizer hangs


def test_a_deleted_view_is_dropped() -> None:
    found = plan([applied(view("spend", deletionTimestamp=JUST_NOW))], UP, figures("spend"))
    assert (dropped(found), names(found.release)) == (["spend"], [])  # released when that is done


RELEASED = [
    ("the pool is gone", GONE, None, {}, LONG_AGO),
    ("the pool is being deleted", DELETING, None, {}, JUST_NOW),
    ("it is kept on purpose", UP, figures("spend"), {"reclaimPolicy": "Retain"}, JUST_NOW),
    ("it is kept on purpose, whatever the pool does", STALLED, None, {"reclaimPolicy": "Retain"}, JUST_NOW),
    ("it was never there", UP, figures(), {}, JUST_NOW),
    ("it was never there, in a stalled pool", STALLED, figures(), {}, JUST_NOW),
    ("its spec cannot be read", UP, figures(), {"frehsness": "2s"}, JUST_NOW),
]


@pytest.mark.parametrize(("case", "pool", "told", "spec", "since"), RELEASED, ids=[case[0] for case in RELEASED])
def test_a_deleted_view_goes_at_once_where_nothing_is_to_be_dropped(
    case: str, pool: PoolState, told: Any, spec: dict[str, Any], since: str
) -> None:
    found = plan([item_of(view("spend", spec=spec, deletionTimestamp=since))], pool, told)
    assert (names(found.release), dropped(found), found.pending_drops) == (["spend"], [], ()), case


@pytest.mark.parametrize("pool", [STALLED, STARTING, PoolState("default", Phase.UNREACHABLE, "no answer")])
def test_a_pool_that_cannot_drop_is_given_a_while_and_the_drop_is_noted(pool: PoolState) -> None:
    early = applied(view("spend", deletionTimestamp=JUST_NOW))
    found = plan([early], pool)
    assert (found.release, found.pending_drops) == ((), ())
    assert found.waiting[early.key] == ("PoolNotReady", f"pool 'default' cannot drop it now: {pool.reason}")
    found = plan([applied(view("spend", deletionTimestamp=LONG_AGO))], pool)
    assert (names(found.release), found.pending_drops) == (["spend"], (PendingDrop("MaterializedView", "spend"),))


def test_a_noted_drop_is_done_when_the_pool_is_back() -> None:
    noted = (PendingDrop("MaterializedView", "spend"),)
    assert plan([], STALLED, None, pending=noted).pending_drops == noted
    found = plan([], UP, figures("spend"), pending=noted)
    assert (dropped(found), found.pending_drops) == (["spend"], ())
    assert plan([], UP, figures(), pending=noted) == Plan()


def test_a_noted_drop_is_forgotten_when_the_name_is_taken_up_again() -> None:
    noted = (PendingDrop("MaterializedView", "spend"),)
    found = plan([item_of(view("spend"))], UP, figures("spend"), pending=noted)
    assert (dropped(found), found.pending_drops, names(found.apply)) == ([], (), ["spend"])


def test_a_failed_view_is_dropped_like_any_other() -> None:
    from belvedere_operator.gateway import ViewFigures

    told = figures(more={"spend": ViewFigures(state="Failed", reason="1/0", reads=("orders",))})
    assert dropped(plan([applied(view("spend", deletionTimestamp=JUST_NOW))], UP, told)) == ["spend"]


def test_a_table_that_views_read_stays_and_says_why() -> None:
    orders = applied(table("orders", spec={"reclaimPolicy": "Delete"}, deletionTimestamp=LONG_AGO))
    found = plan([orders, applied(view("spend"))], UP, figures("spend"))
    assert (dropped(found), found.release) == ([], ())
    assert found.waiting[orders.key] == ("HasDependants", "views read it: spend; delete or suspend them first")


def test_a_whole_file_that_is_deleted_goes_from_the_last_reader_to_the_table() -> None:
    gone = {"deletionTimestamp": JUST_NOW}
    items = [
        applied(table("orders", spec={"reclaimPolicy": "Delete"}, **gone)),
        applied(view("a", **gone)),
        applied(view("b", "SELECT id FROM a", **gone)),
    ]
    told = figures("a", "b", reads={"b": ("a",)})
    assert dropped(plan(items, UP, told)) == ["b", "a", "orders"]


def test_a_view_of_somebody_else_stands_against_a_drop() -> None:
    """Made by hand, or by another operator: it has no resource here."""
    orders = applied(table("orders", spec={"reclaimPolicy": "Delete"}, deletionTimestamp=JUST_NOW))
    found = plan([orders, applied(view("a", deletionTimestamp=JUST_NOW))], UP, figures("a", "foreign"))
    assert dropped(found) == ["a"]
    assert found.waiting[orders.key][1] == "views read it: a, foreign; delete or suspend them first"


def test_the_loser_of_a_name_goes_without_taking_the_view_with_it() -> None:
    old = applied(view("spend"))
    loser = item_of(view("other", spec={"name": "spend"}, deletionTimestamp=JUST_NOW))
    found = plan([old, loser], UP, figures("spend"))
    assert (names(found.release), dropped(found)) == (["other"], [])


# ---------------------------------------------------------------------- order


def test_names_are_found_in_texts() -> None:
    assert mentioned('SELECT a.x, `b c`, "D" FROM e1 -- f\n') >= {"a", "x", "b c", "d", "from", "e1", "f"}


def test_views_that_mention_each_other_are_sent_in_some_order() -> None:
    """Only the database knows whether that is a circle or a comment."""
    items = [item_of(view("a", "SELECT 1 FROM b")), item_of(view("b", "SELECT 1 FROM orders -- not a"))]
    assert sorted(names(readers_last(items))) == ["a", "b"]


def test_a_long_chain_of_views_is_ordered() -> None:
    items = [item_of(view(f"v{i}", f"SELECT id FROM v{i - 1}")) for i in range(2000)]
    assert names(readers_last(reversed(items))) == [f"v{i}" for i in range(2000)]
