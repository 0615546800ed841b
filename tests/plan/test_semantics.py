"""A plan means what its query means: both are interpreted naively on random data and compared."""

from __future__ import annotations

import random

import pytest

from belvedere.plan import nodes as n
from belvedere.plan import planner, sharing
from belvedere.plan.planner import plan_views
from belvedere.plan.zones import zones
from belvedere.sql.catalog import ViewDef

from .naive import Machine, result
from .random_queries import CATALOG, Maker, tables

BATCH = 25


def _compare(views: tuple[n.ViewNode, ...], definitions: list[ViewDef], rng: random.Random) -> None:
    for _ in range(3):
        data = tables(rng)
        machine = Machine(data)
        shown = dict(data)
        for view, definition in zip(views, definitions, strict=True):
            expected = result(definition.query, shown)
            assert machine.view(view) == expected, definition.name
            shown[definition.name] = list(expected.elements())


@pytest.mark.parametrize("seed", range(40))
def test_plan_of_a_random_query_gives_its_rows(seed: int) -> None:
    for i in range(BATCH):
        rng = random.Random(seed * 1000 + i)
        definitions = [ViewDef("v", "", Maker(rng).query(4))]
        _compare(plan_views(CATALOG, definitions, n.Plan(())), definitions, rng)


@pytest.mark.parametrize("seed", range(20))
def test_guarded_divisions_never_fail(seed: int) -> None:
    """Rewrites keep a conjunct that can fail behind the conjuncts written before it: no row ends up in quarantine."""
    for i in range(BATCH):
        rng = random.Random(555_000 + seed * 1000 + i)
        definitions = [ViewDef("v", "", Maker(rng, guarded=True).query(4))]
        _compare(plan_views(CATALOG, definitions, n.Plan(())), definitions, rng)


@pytest.mark.parametrize("seed", range(15))
def test_views_planned_together_or_one_by_one_give_the_same_rows(seed: int) -> None:
    for i in range(6):
        rng = random.Random(77_000 + seed * 100 + i)
        definitions: list[ViewDef] = []
        for j in range(4):
            known = {d.name: d.columns for d in definitions}
            definitions.append(ViewDef(f"v{j}", "", Maker(rng, known).query(3)))
        together = plan_views(CATALOG, definitions, n.Plan(()))
        _compare(together, definitions, rng)
        plan, catalog = n.Plan(()), CATALOG
        for definition in definitions:
            catalog = catalog.with_view(definition)
            plan = n.Plan((*plan.views, *plan_views(catalog, [definition], plan)))
        _compare(plan.views, definitions, rng)
        for one in (n.Plan(together), plan):
            _check_zones(one)


def _check_zones(plan: n.Plan) -> None:
    found = zones(plan)
    assert sorted(map(id, n.topological(plan))) == sorted(id(node) for z in found for node in z.nodes)
    for zone in found:
        assert all(i < zone.number for i in zone.inputs), "zones form no cycle"


@pytest.mark.parametrize("seed", range(12))
def test_what_is_remembered_and_looked_up_changes_no_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views one by one, some dropped between: the planner that remembers the last plan, one that begins anew, and one
    that compares every node with every other make the same plans."""
    rng = random.Random(880_000 + seed)
    catalog, plan = CATALOG, n.Plan(())
    for number in range(12):
        if plan.views and rng.random() < 0.2:
            plan = n.Plan(tuple(view for view in plan.views if rng.random() < 0.7))
        view = ViewDef(f"v{number}", "", Maker(rng).query(rng.randint(1, 3)))
        made = plan_views(catalog, [view], plan)
        with monkeypatch.context() as patch:
            patch.setattr(planner, "_LATEST", planner._Latest())
            assert plan_views(catalog, [view], plan) == made
            patch.setattr(sharing, "parts_of", lambda node: frozenset([((), None)]))
            patch.setattr(planner, "_LATEST", planner._Latest())
            assert plan_views(catalog, [view], plan) == made
        plan = n.Plan((*plan.views, *made))
