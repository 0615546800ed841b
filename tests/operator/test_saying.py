"""What is said of tables, views and pools: found -> conditions, status, Events; and when it is worth writing."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from belvedere_operator import gateway
from belvedere_operator.api.condition import Condition, by_type, merged, no, yes
from belvedere_operator.api.materialized_view import MaterializedViewStatus, VerificationStatus
from belvedere_operator.api.reading import read, written
from belvedere_operator.api.view_pool import ViewPoolSpec, ViewPoolStatus
from belvedere_operator.decide.items import Item, Phase, PoolState, item_of
from belvedere_operator.decide.load import Assessment, Limit
from belvedere_operator.decide.pool_saying import (
    PoolFound,
    Workload,
    phase_of,
    pool_status,
    problem_of,
    scaling_events,
    target_lag_s,
    workload_of,
)
from belvedere_operator.decide.saying import Found, events_of, size, status_of
from belvedere_operator.decide.significance import EVERY_S, worth_writing
from belvedere_operator.gateway import DocumentResult, Problem, ViewFigures
from belvedere_operator.times import stamp
from tests.operator.resources import NOW, applied, figures, resource, table, view

UP = PoolState("default", Phase.UP)
SPEND = applied(view("spend", spec={"freshness": "2s"}))
NEW = item_of(view("spend"))
REFUSED = DocumentResult(
    "view", "spend", "refused", Problem("SqlError", "no column 'x' at line 1, column 8", "columns: id")
)
UNKNOWN = DocumentResult("view", "spend", "refused", Problem("UnknownRelation", "no table or view 'nope'"))
MADE = DocumentResult("view", "spend", "created")


def told(item: Item = SPEND, pool: PoolState = UP, *, view: Any = None, **more: Any) -> dict[str, tuple[str, str]]:
    """Status and reason of each condition. `view`: figures of the view, if the pool answers and has it."""
    if pool.up:
        more.setdefault("figures", figures(more={"spend": view} if view is not None else {}))
    status = status_of(item, Found(pool=pool, figures=more.pop("figures", None), now=NOW, **more))
    return {one.type: (one.status, one.reason) for one in status.conditions}


def ready(**more: Any) -> ViewFigures:
    return ViewFigures(**({"version": 1, "rows": 3, "quarantined": 0, "complete": True, "lag_ms": 20.0} | more))


KEY = ("MaterializedView", "spend")
CASES: list[tuple[str, dict[str, tuple[str, str]], dict[str, tuple[str, str]]]] = [
    (
        "all is well",
        told(view=ready()),
        {
            "Accepted": ("True", "Accepted"),
            "Built": ("True", "Built"),
            "Ready": ("True", "Serving"),
            "Fresh": ("True", "WithinTarget"),
            "Complete": ("True", "NoQuarantine"),
        },
    ),
    ("behind", told(view=ready(lag_ms=2500.0)), {"Fresh": ("False", "Behind"), "Ready": ("True", "Serving")}),
    (
        "within its own target, and not within the strictest of the pool",
        told(view=ready(lag_ms=1500.0), target_lag_s=1.0),
        {"Fresh": ("True", "WithinTarget")},
    ),
    (
        "behind its own target, though the pool asks for less",
        told(view=ready(lag_ms=2500.0), target_lag_s=9.0),
        {"Fresh": ("False", "Behind")},
    ),
    (
        "one without a target has that of its pool",
        told(applied(view("spend")), view=ready(lag_ms=2500.0), target_lag_s=9.0),
        {"Fresh": ("True", "WithinTarget")},
    ),
    (
        "rows in quarantine",
        told(view=ready(quarantined=2, complete=False)),
        {"Complete": ("False", "RowsInQuarantine"), "Ready": ("True", "Serving")},
    ),
    (
        "incomplete by what it reads",
        told(view=ready(complete=False)),
        {"Complete": ("False", "RowsInQuarantine")},
    ),
    (
        "being built for the first time",
        told(NEW, view=ViewFigures(state="Building", progress=40), results={KEY: MADE}),
        {"Accepted": ("True", "Accepted"), "Built": ("False", "Building"), "Ready": ("False", "Building")},
    ),
    (
        "built before anybody looked: nothing is left to wait for",
        told(NEW, view=ready(), results={KEY: MADE}),
        {"Accepted": ("True", "Accepted"), "Built": ("True", "Built"), "Ready": ("True", "Serving")},
    ),
    (
        "changed: the old one serves until the new one is seen",
        told(NEW, view=ready(), results={KEY: DocumentResult("view", "spend", "changed")}),
        {"Built": ("False", "Building"), "Ready": ("True", "Serving")},
    ),
    (
        "being built anew: the old one serves",
        told(view=ready(progress=40)),
        {"Built": ("False", "Building"), "Ready": ("True", "Serving")},
    ),
    (
        "the new version could not be built: the old one serves",
        told(view=ready(failed_build="1/0 in row 7")),
        {"Built": ("False", "BuildFailed"), "Ready": ("True", "Serving")},
    ),
    (
        "it has failed",
        told(view=ViewFigures(state="Failed", reason="boom", since=5)),
        {"Built": ("False", "Failed"), "Ready": ("False", "ViewFailed")},
    ),
    (
        "refused, and not there",
        told(NEW, results={KEY: REFUSED}),
        {"Accepted": ("False", "SqlError"), "Ready": ("False", "NotAccepted"), "Built": ("False", "NotBuilt")},
    ),
    (
        "refused, and the old one serves",
        told(view=ready(), results={KEY: REFUSED}),
        {"Accepted": ("False", "SqlError"), "Ready": ("True", "Serving")},
    ),
    ("waits for a table", told(NEW, results={KEY: UNKNOWN}), {"Accepted": ("False", "WaitsForRelation")}),
    (
        "there is no pool",
        told(NEW, PoolState("default", Phase.MISSING, "there is none")),
        {"Accepted": ("Unknown", "PoolMissing"), "Ready": ("False", "PoolMissing")},
    ),
    (
        "the pool starts",
        told(NEW, PoolState("default", Phase.STARTING, "store 0/1")),
        {"Accepted": ("Unknown", "PoolNotReady"), "Ready": ("Unknown", "PoolNotReady")},
    ),
    (
        "the pool does not answer: what was accepted stays so",
        told(SPEND, PoolState("default", Phase.UNREACHABLE, "no answer")),
        {"Ready": ("Unknown", "PoolNotReady")},
    ),
    (
        "the name is taken",
        told(NEW, waiting={KEY: ("NameTaken", "table 'spend'")}),
        {"Accepted": ("False", "NameTaken"), "Ready": ("False", "NameTaken")},
    ),
    (
        "suspended",
        told(applied(view("spend", spec={"suspend": True}))),
        {"Ready": ("False", "Suspended"), "Built": ("False", "Suspended")},
    ),
    (
        "being deleted, and read by others",
        told(
            applied(view("spend", deletionTimestamp=stamp(NOW))),
            view=ready(),
            waiting={KEY: ("HasDependants", "views read it: b")},
        ),
        {"Ready": ("False", "Deleting"), "Accepted": ("True", "Accepted")},
    ),
]


@pytest.mark.parametrize(("case", "found", "expected"), CASES, ids=[case[0] for case in CASES])
def test_conditions_of_views(case: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= found.items(), f"{case}: {found}"


def test_a_refusal_is_told_with_position_and_hint_and_stays_until_something_is_new() -> None:
    first = status_of(NEW, Found(UP, figures(), NOW, results={KEY: REFUSED}))
    text = by_type(first.conditions)["Accepted"].message
    assert text == "no column 'x' at line 1, column 8; hint: columns: id"
    again = dataclasses.replace(NEW, status=first)
    later = status_of(again, Found(UP, figures(), NOW + 10))
    assert by_type(later.conditions)["Accepted"] == by_type(first.conditions)["Accepted"]
    assert by_type(later.conditions)["Ready"].reason == "NotAccepted"
    assert later.applied is None


def test_what_was_applied_is_remembered_and_forgotten_with_suspension() -> None:
    assert status_of(NEW, Found(UP, figures(), NOW, results={KEY: MADE})).applied == NEW.digest()
    suspended = applied(view("spend", spec={"suspend": True}))
    assert status_of(suspended, Found(UP, figures(), NOW)).applied is None
    unreachable = PoolState("default", Phase.UNREACHABLE, "no answer")
    assert status_of(suspended, Found(unreachable, None, NOW)).applied is not None  # it may still be there


def test_figures_of_a_view() -> None:
    status = status_of(
        SPEND, Found(UP, figures(more={"spend": ready(bytes=1536, zones=(("customer",),), epoch=9)}), NOW)
    )
    assert isinstance(status, MaterializedViewStatus)
    assert (status.rows, status.size, status.lag, status.epoch) == (3, "1.5KiB", "<1s", 9)
    assert [zone.key for zone in status.zones] == [("customer",)] and status.zone_path == "(customer)"
    gone = status_of(dataclasses.replace(SPEND, status=status), Found(UP, figures(), NOW))
    assert isinstance(gone, MaterializedViewStatus) and (gone.rows, gone.lag, gone.zones) == (None, None, ())


def test_builds_have_a_beginning_and_an_end() -> None:
    building = figures(more={"spend": ViewFigures(state="Building", progress=10)})
    one = status_of(NEW, Found(UP, building, NOW, results={KEY: MADE}))
    two = status_of(dataclasses.replace(NEW, status=one), Found(UP, building, NOW + 30))
    three = status_of(dataclasses.replace(NEW, status=two), Found(UP, figures(more={"spend": ready()}), NOW + 60))
    assert isinstance(three, MaterializedViewStatus) and three.last_build is not None
    assert (three.last_build.started_at, three.last_build.completed_at) == (stamp(NOW), stamp(NOW + 60))


def test_a_view_that_was_made_again_was_built_again() -> None:
    status = status_of(SPEND, Found(UP, figures(more={"spend": ready()}), NOW))
    again = status_of(
        dataclasses.replace(SPEND, status=status),
        Found(UP, figures(more={"spend": ready()}), NOW + 90, results={KEY: MADE}),
    )
    assert isinstance(again, MaterializedViewStatus) and again.last_build is not None
    assert again.last_build.completed_at == stamp(NOW + 90)


def test_a_verification_is_said_and_stays() -> None:
    found = VerificationStatus("2026-01-01T00:00:00Z", 7, 10, 2, "2 rows differ")
    status = status_of(SPEND, Found(UP, figures(more={"spend": ready()}), NOW, verifications={"spend": (False, found)}))
    assert by_type(status.conditions)["Verified"].status == "False"
    later = status_of(dataclasses.replace(SPEND, status=status), Found(UP, figures(more={"spend": ready()}), NOW))
    assert isinstance(later, MaterializedViewStatus) and later.last_verification == found
    assert by_type(later.conditions)["Verified"].message == "2 rows differ"


def test_a_table_names_its_readers() -> None:
    status = status_of(applied(table("orders")), Found(UP, figures("spend", "b"), NOW))
    assert status.dependants == ("b", "spend")
    assert by_type(status.conditions)["Ready"].status == "True"


def test_times_of_conditions_change_with_their_status_only() -> None:
    first = merged((), [yes("Ready", "A", "one")], 1, "t1")
    second = merged(first, [yes("Ready", "B", "two")], 2, "t2")
    assert second == (Condition("Ready", "True", "B", "two", "t1", 2),)
    assert merged(second, [no("Ready", "C", "x")], 2, "t3")[0].last_transition_time == "t3"


def test_events_are_told_once_and_not_of_what_is_routine() -> None:
    before = merged((), [no("Ready", "Building", "")], 1, "t")
    after = merged(before, [yes("Ready", "Serving", "it can be read"), yes("Fresh", "WithinTarget", "")], 1, "t")
    assert [(e.reason, e.warning) for e in events_of(before, after)] == [("Ready", False)]
    assert events_of(after, after) == []
    failed = merged(after, [no("Ready", "ViewFailed", "boom")], 1, "t")
    assert [(e.reason, e.warning, e.message) for e in events_of(after, failed)] == [("ViewFailed", True, "Ready: boom")]
    assert events_of((), merged((), [no("Ready", "Creating", "")], 1, "t")) == []


@pytest.mark.parametrize(("number", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (5 << 40, "5.0TiB")])
def test_sizes(number: int, text: str) -> None:
    assert size(number) == text


# ---------------------------------------------------------------------- writing


def status(**more: Any) -> dict[str, Any]:
    return {"rows": 100, "bytes": 1000, "lag": "<1s", "figuresTime": stamp(NOW), "planVersion": 1} | more


WRITES = [
    ("nothing new", status(), 3600.0, False),
    ("another version", status(planVersion=2), 1.0, True),
    ("a few rows more", status(rows=105), 3600.0, False),
    ("many rows more, a moment ago", status(rows=200), 5.0, False),
    ("many rows more, a minute ago", status(rows=200), EVERY_S, True),
    ("another lag", status(lag="5s"), EVERY_S, True),
    ("figures for the first time", {k: v for k, v in status().items() if k != "rows"}, 1.0, True),
]


@pytest.mark.parametrize(("case", "before", "later", "expected"), WRITES, ids=[case[0] for case in WRITES])
def test_what_is_worth_writing(case: str, before: dict[str, Any], later: float, expected: bool) -> None:
    after = status(figuresTime=stamp(NOW + later))
    assert worth_writing(before, after, NOW + later) is expected


def test_the_text_of_an_assessment_is_no_reason_to_write() -> None:
    before = status(scaling={"desired": 2, "explanation": "busy 70 %"})
    assert not worth_writing(before, status(scaling={"desired": 2, "explanation": "busy 71 %"}), NOW + 1)
    assert worth_writing(before, status(scaling={"desired": 3, "explanation": "busy 99 %"}), NOW + 1)


# ---------------------------------------------------------------------- pools

SETTLED = tuple(Workload(role, 1, 1, 1, True) for role in ("coordinator", "viewserver", "gateway"))


def pool(**more: Any) -> dict[str, tuple[str, str]]:
    spec = read(ViewPoolSpec, more.pop("spec", {}))
    settings = {"workloads": SETTLED, "state": UP, "figures": figures(), "assessment": None} | more
    found = PoolFound(spec=spec, before=ViewPoolStatus(), generation=1, now=NOW, **settings)
    return {one.type: (one.status, one.reason) for one in pool_status(found).conditions}


SCALED = {"autoscaling": {"maxReplicas": 4}}
BOUND = Assessment(1.4, 2.0, 2, Limit.STORE, "lag 8 s; the store is the limit")
POOLS: list[tuple[str, dict[str, tuple[str, str]], dict[str, tuple[str, str]]]] = [
    ("all is well", pool(), {"Ready": ("True", "Serving"), "Progressing": ("False", "Settled")}),
    ("fixed", pool(), {"Autoscaling": ("False", "Fixed")}),
    ("scaled", pool(spec=SCALED), {"Autoscaling": ("True", "Active"), "StoreBound": ("False", "NotSeen")}),
    ("dry run", pool(spec={"autoscaling": {"maxReplicas": 4, "mode": "dryRun"}}), {"Autoscaling": ("False", "DryRun")}),
    (
        "nobody scales",
        pool(spec={"autoscaling": {"maxReplicas": 4, "scaler": "none"}}),
        {"Autoscaling": ("False", "NoScaler")},
    ),
    ("no KEDA", pool(spec={"autoscaling": {"maxReplicas": 4, "scaler": "keda"}}), {"Autoscaling": ("False", "NoKeda")}),
    (
        "KEDA",
        pool(spec={"autoscaling": {"maxReplicas": 4, "scaler": "keda"}}, keda=True),
        {"Autoscaling": ("True", "Active")},
    ),
    ("nobody serves figures", pool(spec=SCALED, serves_metrics=False), {"Autoscaling": ("False", "NoMetrics")}),
    (
        "another provider",
        pool(spec=SCALED, other_provider="kube-system/adapter"),
        {"Autoscaling": ("False", "AnotherMetricsProvider")},
    ),
    (
        "the store is the limit",
        pool(spec=SCALED, assessment=BOUND),
        {"StoreBound": ("True", "Detected"), "HotKey": ("False", "NotSeen")},
    ),
    (
        "stalled",
        pool(figures=figures(stalled="view a: boom"), state=PoolState("default", Phase.STALLED, "x")),
        {"Stalled": ("True", "EpochFails"), "Ready": ("False", "Stalled")},
    ),
    ("pods are missing", pool(workloads=(Workload("store", 1, 1, 0, True),)), {"Progressing": ("True", "PodsChange")}),
    (
        "it timed out, and went back to what works",
        pool(workloads=(Workload("coordinator", 2, 2, 2, True, "has timed out progressing"),)),
        {"Progressing": ("False", "Settled")},
    ),
    (
        "pods cannot be made",
        pool(workloads=(Workload("store", 1, 0, 0, True, "exceeded quota"),)),
        {"Progressing": ("False", "Trouble")},
    ),
    ("no ZooKeeper", pool(problem=("NoZooKeeper", "give one")), {"Ready": ("False", "NoZooKeeper")}),
]


@pytest.mark.parametrize(("case", "found", "expected"), POOLS, ids=[case[0] for case in POOLS])
def test_conditions_of_pools(case: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert expected.items() <= found.items(), f"{case}: {found}"


def test_a_pool_is_up_when_its_gateway_answers_for_it() -> None:
    missing = [Workload("store", 1, 1, 0, True), Workload("gateway", 1, 1, 1, True)]
    assert phase_of(missing, figures(), "", "p").phase is Phase.UP
    stalled = PoolState("p", Phase.STALLED, "stalled: view a: boom")
    assert phase_of(SETTLED, figures(stalled="view a: boom"), "", "p") == stalled and not stalled.up
    assert phase_of(missing, None, "refused", "p") == PoolState("p", Phase.STARTING, "pods ready: store 0/1")
    assert phase_of(SETTLED, None, "refused", "p") == PoolState("p", Phase.UNREACHABLE, "refused")


def test_a_workload_is_settled_when_the_controller_has_seen_it() -> None:
    def found(**status: Any) -> Workload:
        one = resource("Deployment", "d", {"replicas": 2}, generation=3)
        return workload_of(one | {"status": status}, "viewserver")

    good = {"observedGeneration": 3, "replicas": 2, "readyReplicas": 2, "updatedReplicas": 2}
    assert found(**good).settled
    for change in ({"observedGeneration": 2}, {"readyReplicas": 1}, {"updatedReplicas": 1}, {"replicas": 3}):
        assert not found(**good | change).settled
    condition = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    assert found(**good, conditions=[condition]).trouble == "exceeded quota"


def test_the_strictest_freshness_is_the_target() -> None:
    items = [
        item_of(view("a", spec={"freshness": "5s"})),
        item_of(view("b", spec={"freshness": "500ms", "suspend": True})),
    ]
    assert target_lag_s(read(ViewPoolSpec, {}), []) == 2.0
    assert target_lag_s(read(ViewPoolSpec, {}), items) == 5.0
    assert target_lag_s(read(ViewPoolSpec, {"autoscaling": {"maxReplicas": 2, "targetLag": "3s"}}), items) == 3.0


@pytest.mark.parametrize(
    ("spec", "zookeeper", "reason"),
    [
        ({}, "zk:1/x", None),
        ({}, "", "NoZooKeeper"),
        ({"retention": "3s"}, "zk:1/x", "InvalidSpec"),
        ({"epoch": "0.5ms"}, "zk:1/x", "InvalidSpec"),
    ],
)
def test_pools_that_cannot_be(spec: dict[str, Any], zookeeper: str, reason: str | None) -> None:
    found = problem_of(read(ViewPoolSpec, spec), zookeeper)
    assert (found[0] if found else None) == reason


def test_changes_of_the_number_are_told_with_figures() -> None:
    spec = read(ViewPoolSpec, SCALED)
    assessment = Assessment(2.8, 0.0, 4, Limit.NONE, "lag 0.1 s of 2 s, 2 view servers 98% busy of 70%; 4 needed")
    found = PoolFound(spec, ViewPoolStatus(), 1, UP, SETTLED, figures(), assessment, NOW)
    (event,) = scaling_events(found, 2, 4)
    assert event.reason == "ScaledUp" and event.message == f"view servers 2 -> 4: {assessment.explanation}"
    assert scaling_events(found, None, 4) == [] and scaling_events(found, 4, 4) == []
    dry = read(ViewPoolSpec, {"autoscaling": {"maxReplicas": 4, "mode": "dryRun"}})
    (event,) = scaling_events(dataclasses.replace(found, spec=dry), 2, 2)
    assert event.reason == "WouldScale" and "2 -> 4" in event.message
    before = pool_status(dataclasses.replace(found, spec=dry))
    assert scaling_events(dataclasses.replace(found, spec=dry, before=before), 2, 2) == []  # once


def test_a_status_survives_being_written_and_read() -> None:
    found = status_of(SPEND, Found(UP, figures(more={"spend": ready(zones=(("a", "b"),))}), NOW))
    assert read(MaterializedViewStatus, written(found), "status") == found


def test_a_build_is_read_as_pools_and_embedded_databases_tell_it() -> None:
    told = {
        "building": [{"views": ["spend", "top"], "done": 4096, "total": 16384}, {"views": [], "done": 0, "total": 0}]
    }
    assert gateway._building(told) == [("spend", 25), ("top", 25)]
    replaced = figures(more={"spend": ready(progress=25)})
    status = status_of(SPEND, Found(UP, replaced, NOW))
    found = by_type(status.conditions)
    assert (found["Built"].reason, found["Built"].message) == ("Building", "25 % done; the version before answers")
    assert found["Ready"].status == "True"


def test_a_resource_whose_name_another_one_has_says_nothing_of_that_one() -> None:
    waiting = {KEY: ("NameTaken", "MaterializedView 'older' is 'spend' in SQL already")}
    status = status_of(NEW, Found(UP, figures(more={"spend": ready()}), NOW, waiting=waiting))
    assert isinstance(status, MaterializedViewStatus) and status.rows is None
    found = by_type(status.conditions)
    assert {found[one].reason for one in ("Accepted", "Ready")} == {"NameTaken"}


@pytest.mark.parametrize(
    "later",
    [
        Found(PoolState("default", Phase.UNREACHABLE, "no answer"), None, NOW),
        Found(UP, figures(more={"spend": ViewFigures(state="Failed", reason="x")}), NOW),
        Found(UP, figures(), NOW),
    ],
    ids=["the pool does not answer", "the view failed", "the pool has lost it"],
)
def test_nobody_is_told_that_a_view_is_fresh_which_cannot_be_read(later: Found) -> None:
    good = status_of(SPEND, Found(UP, figures(more={"spend": ready()}), NOW))
    assert by_type(good.conditions)["Fresh"].status == "True"
    bad = by_type(status_of(dataclasses.replace(SPEND, status=good), later).conditions)
    assert (bad["Fresh"].status, bad["Fresh"].reason) == ("Unknown", "NotReady")
    assert "Fresh" not in by_type(status_of(NEW, later).conditions), "nothing was ever said of it"


def test_a_change_is_built_when_the_version_is_another_one() -> None:
    """What the pool lists as being built lags a moment behind what it was told."""
    was = dataclasses.replace(SPEND.status, plan_version=4)
    changed = {KEY: DocumentResult("MaterializedView", "spend", "changed")}
    item = dataclasses.replace(item_of(view("spend", "SELECT 1 AS x")), status=was)

    def built(status: Any, at: float, version: int, **more: Any) -> Any:
        pool = figures(more={"spend": ready(version=version)})
        return status_of(dataclasses.replace(item, status=status), Found(UP, pool, NOW + at, **more))

    one = built(was, 0, 4, results=changed)
    assert by_type(one.conditions)["Built"].reason == "Building"
    two = built(one, 2, 4)
    assert by_type(two.conditions)["Built"].reason == "Building", "the pool does not list it yet"
    three = built(two, 4, 5)
    assert by_type(three.conditions)["Built"].message == "version 5 is in service"
    assert (three.last_build.started_at, three.last_build.completed_at) == (stamp(NOW), stamp(NOW + 4))
    assert by_type(built(two, 40, 4).conditions)["Built"].reason == "Built", "no new version comes of this change"
    at_once = built(was, 0, 5, results=changed)
    assert by_type(at_once.conditions)["Built"].reason == "Built" and at_once.last_build.completed_at == stamp(NOW)
