"""A change that is to be verified: what is done and said at each step, from what the pool and its Job tell."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from belvedere_operator.api.condition import by_type
from belvedere_operator.api.materialized_view import MaterializedViewStatus
from belvedere_operator.decide.items import VIEW, Item, Phase, PoolState, item_of
from belvedere_operator.decide.relations import Drop, Plan, decide
from belvedere_operator.decide.saying import Found, status_of
from belvedere_operator.decide.trials import Verdict, trial_name
from belvedere_operator.gateway import DocumentResult, PoolFigures, ViewFigures
from tests.operator.resources import NOW, applied, figures, table, view

UP = PoolState("default", Phase.UP)
TRIED: dict[str, Any] = {"verify": {"changes": True}}
OLD = applied(view("spend", "SELECT id FROM orders", spec=TRIED))
NEW = dataclasses.replace(item_of(view("spend", "SELECT id, total FROM orders", spec=TRIED)), status=OLD.status)
ORDERS = applied(table("orders"))
TRIAL = trial_name(NEW)


def plan(item: Item, told: PoolFigures, verdict: Verdict | None = None, name: str = TRIAL) -> Plan:
    return decide([ORDERS, item], UP, told, now=NOW, verdicts={} if verdict is None else {name: verdict})


def names(one: Plan) -> list[str]:
    return [item.sql_name for item in one.apply]


def test_a_new_version_is_built_aside_first() -> None:
    one = plan(NEW, figures("spend"))
    assert names(one) == [TRIAL] and one.drops == () and one.verify == ()
    (document,) = one.documents()
    assert document["spec"] == {"query": "SELECT id, total FROM orders", "name": TRIAL}
    building = figures("spend", more={TRIAL: ViewFigures(state="Building", progress=10)})
    assert (names(plan(NEW, building)), plan(NEW, building).verify) == ([], ())
    assert plan(NEW, building).trying[NEW.key][0] == "Building"


def test_it_is_verified_and_takes_its_place_and_the_trial_goes() -> None:
    both = figures("spend", TRIAL)
    assert plan(NEW, both).verify == (NEW,) and plan(NEW, both).trying[NEW.key][0] == "Verifying"
    taken = plan(NEW, both, Verdict(True, "3 rows"))
    assert names(taken) == ["spend"] and taken.drops == (), "they share state until the new one is in service"
    now = dataclasses.replace(NEW, status=dataclasses.replace(NEW.status, applied=NEW.digest()))
    replaced = figures(TRIAL, more={"spend": ViewFigures(progress=40)})
    assert plan(now, replaced).drops == ()
    assert plan(now, both).drops == (Drop(TRIAL, VIEW),) and plan(now, both).apply == ()


def test_one_that_differs_is_not_taken_and_the_version_before_answers() -> None:
    refused = plan(NEW, figures("spend", TRIAL), Verdict(False, "2 rows differ"))
    assert refused.apply == () and refused.drops == (Drop(TRIAL, VIEW),)
    found = Found(UP, figures("spend"), NOW, waiting=refused.waiting, trying=refused.trying)
    status = status_of(NEW, found)
    assert isinstance(status, MaterializedViewStatus) and status.applied == OLD.digest()
    said = by_type(status.conditions)
    for condition in ("Accepted", "Built"):
        assert (said[condition].status, said[condition].reason) == ("False", "VerificationFailed")
        assert "2 rows differ; the version before answers" in said[condition].message
    assert said["Ready"].status == "True"


def test_another_text_is_another_trial_and_the_old_text_ends_it() -> None:
    other = dataclasses.replace(item_of(view("spend", "SELECT total FROM orders", spec=TRIED)), status=OLD.status)
    told = figures("spend", TRIAL)
    changed = plan(other, told, Verdict(False, "2 rows differ"))
    assert names(changed) == [trial_name(other)] and changed.drops == (Drop(TRIAL, VIEW),)
    assert (plan(OLD, told).drops, plan(OLD, told).apply) == ((Drop(TRIAL, VIEW),), ())


@pytest.mark.parametrize(
    ("item", "told"),
    [
        (item_of(view("spend", spec=TRIED)), figures()),
        (NEW, figures(more={"spend": ViewFigures(state="Failed", reason="x")})),
        (dataclasses.replace(item_of(view("spend", "SELECT total FROM orders")), status=OLD.status), figures("spend")),
    ],
    ids=["the first version", "one that mends a failed view", "nobody asked"],
)
def test_what_is_applied_at_once(item: Item, told: PoolFigures) -> None:
    assert names(plan(item, told)) == ["spend"]


def test_a_trial_whose_text_is_refused_is_a_refusal_of_the_view() -> None:
    result = DocumentResult(VIEW, TRIAL, "created")
    found = Found(UP, figures("spend"), NOW, results={}, trying={NEW.key: ("Building", "aside")})
    assert result.problem is None
    status = status_of(NEW, found)
    assert isinstance(status, MaterializedViewStatus)
    assert status.applied == OLD.digest(), "the view itself was not changed yet"
    assert by_type(status.conditions)["Built"].reason == "Building"


def test_a_deleted_view_takes_its_trial_with_it_and_views_of_others_stay() -> None:
    gone = dataclasses.replace(NEW, deleting="2026-01-01T00:00:00Z")
    dropped = plan(gone, figures("spend", TRIAL, "other__next_12345678")).drops
    assert {drop.name for drop in dropped} == {"spend", TRIAL}
    away = PoolState("default", Phase.UNREACHABLE, "no answer")
    noted = decide([gone], away, None, now=NOW).pending_drops
    assert {drop.name for drop in noted} == {"spend", TRIAL}, "it is dropped when the pool is back"
    back = decide([], UP, figures("spend", TRIAL), now=NOW, pending=noted)
    assert {drop.name for drop in back.drops} == {"spend", TRIAL}
