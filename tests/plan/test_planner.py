"""What the planner promises beyond the rows: refusals, sharing, keys, and that big plans stay cheap."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from belvedere.errors import CatalogError, UnsupportedSql
from belvedere.plan import nodes as n
from belvedere.plan.explain import StateSize, describe, explain
from belvedere.plan.layout import Box, lay_out
from belvedere.plan.planner import plan_views
from belvedere.sql.catalog import Catalog, ViewDef
from belvedere.sql.text import expr_text
from belvedere.sql.views import bind_query

from .tpch import catalog as tpch


def _views(*sqls: str) -> tuple[list[ViewDef], Catalog]:
    catalog, found = tpch(), []
    for i, sql in enumerate(sqls):
        view = ViewDef(f"v{i}", sql, bind_query(sql, catalog))
        catalog = catalog.with_view(view)
        found.append(view)
    return found, catalog


def _plan(*sqls: str) -> n.Plan:
    views, catalog = _views(*sqls)
    return n.Plan(plan_views(catalog, views, n.Plan(())))


def _of(plan: n.Plan, kind: type) -> list[n.Node]:
    return [node for node in n.topological(plan) if isinstance(node, kind)]


@pytest.mark.parametrize(
    "sql",
    [
        "select c_name from customer,\n  orders where c_acctbal > o_totalprice",
        "select c_name from customer join orders\n on 1 = 1",
        "select c_name from customer left join orders on c_acctbal < o_totalprice",
    ],
)
def test_join_without_equality_is_refused_with_its_position(sql: str) -> None:
    with pytest.raises(UnsupportedSql, match="without an equality") as refused:
        _plan(sql)
    assert refused.value.line is not None
    assert refused.value.hint is not None


def test_only_the_disconnected_table_is_refused() -> None:
    sql = "select c_name from customer, nation, orders where o_custkey = c_custkey"
    with pytest.raises(UnsupportedSql, match="without an equality"):
        _plan(sql)


def test_a_view_that_reads_itself_is_refused() -> None:
    catalog = tpch()
    one = ViewDef("a", "", bind_query("select n_name from nation", catalog))
    other = ViewDef("b", "", bind_query("select n_name from a", catalog.with_view(one)))
    again = ViewDef("a", "", bind_query("select n_name from b", catalog.with_view(one).with_view(other)))
    with pytest.raises(CatalogError, match="reads itself: a -> b -> a"):
        plan_views(catalog, [again, other], n.Plan(()))


def test_a_conjunct_that_can_fail_waits_for_its_guard() -> None:
    """The guard reads both sides, so the division must not run below the join although it reads one side only."""
    plan = _plan(
        "select o_orderkey from orders, customer where o_custkey = c_custkey and o_shippriority <> c_nationkey"
        " and 10 / c_acctbal > 2 and o_orderstatus = 'F'"
    )
    filtered = [expr_text(s.predicate) for s in _of(plan, n.SelectionNode) if isinstance(s, n.SelectionNode)]
    assert filtered == ["o_orderstatus = 'F'"]
    (join,) = _of(plan, n.JoinNode)
    assert isinstance(join, n.JoinNode) and join.residual is not None
    assert expr_text(join.residual).startswith("o_shippriority <> c_nationkey and 10 / c_acctbal")


def test_aliases_do_not_keep_equal_views_apart() -> None:
    plan = _plan(
        "select x.o_custkey as c, sum(x.o_totalprice) as s from orders x group by x.o_custkey",
        "select o_custkey, sum(o_totalprice) as total from orders group by 1",
    )
    assert len(_of(plan, n.PreAggregationNode)) == 1
    assert len(_of(plan, n.AggregateNode)) == 1


def test_aggregates_of_different_expressions_share_one_pre_aggregation() -> None:
    plan = _plan(
        "select o_custkey, sum(o_totalprice * 2) as s from orders group by o_custkey",
        "select o_custkey, max(length(o_comment)) as m from orders group by o_custkey",
    )
    (pre,) = _of(plan, n.PreAggregationNode)
    assert isinstance(pre, n.PreAggregationNode)
    assert {c.function for c in pre.calls} == {"sum", "max"}


def test_columns_of_one_arrangement_do_not_widen_another() -> None:
    """Two joins of one table by different keys: each keeps only what it needs."""
    plan = _plan(
        "select c_name, o_totalprice from orders join customer on o_custkey = c_custkey",
        "select l_quantity, o_comment from lineitem join orders on l_orderkey = o_orderkey",
    )
    stored = {tuple(c.name for c in node.schema) for node in _of(plan, n.ReverseJoinNode)}
    assert ("o_orderkey", "o_custkey", "o_totalprice") in stored
    assert ("o_orderkey", "o_comment") in stored


def test_existing_reverse_joins_are_used_again() -> None:
    views, catalog = _views(
        "select o_orderkey, o_totalprice, o_clerk, c_name, c_phone from orders join customer on o_custkey = c_custkey",
        "select o_orderkey, c_name from orders join customer on o_custkey = c_custkey where o_clerk > c_phone",
    )
    first = n.Plan(plan_views(catalog, views[:1], n.Plan(())))
    second = plan_views(catalog, views[1:], first)
    before = set(map(id, n.topological(first)))
    both = n.Plan((*first.views, *second))
    assert all(id(node) in before for node in _of(both, n.ReverseJoinNode))


def test_planning_the_same_view_again_gives_the_same_nodes() -> None:
    views, catalog = _views("select o_custkey, count(*) as n from orders where o_totalprice > 5 group by o_custkey")
    first = plan_views(catalog, views, n.Plan(()))
    assert plan_views(catalog, views, n.Plan(first))[0] is first[0]


def test_a_replaced_view_is_read_in_its_new_version() -> None:
    catalog = tpch()
    old = ViewDef("a", "", bind_query("select n_nationkey, n_name from nation", catalog))
    catalog = catalog.with_view(old)
    reader = ViewDef("b", "", bind_query("select n_name from a", catalog))
    existing = n.Plan(plan_views(catalog, [old, reader], n.Plan(())))
    query = bind_query("select n_nationkey, n_name from nation where n_regionkey = 1", catalog)
    new = ViewDef("a", "", query, version=2)
    a, b = plan_views(catalog.with_view(new), [new, reader], existing)
    assert a.version == 2
    assert a in n.topological(n.Plan((b,)))
    assert existing.views[0] not in n.topological(n.Plan((b,)))


def test_views_are_planned_in_any_order() -> None:
    views, catalog = _views("select n_nationkey, n_name from nation", "select n_name from v0")
    b, a = plan_views(catalog, views[::-1], n.Plan(()))
    assert (a.name, b.name) == ("v0", "v1")
    assert a in n.topological(n.Plan((b,)))


def test_a_view_that_only_the_catalog_knows_is_planned_too() -> None:
    views, catalog = _views("select n_nationkey, n_name from nation", "select n_name from v0")
    (b,) = plan_views(catalog, views[1:], n.Plan(()))
    assert [v.name for v in n.topological(n.Plan((b,))) if isinstance(v, n.ViewNode)] == ["v0", "v1"]


def test_deep_plans_with_shared_parts_stay_cheap() -> None:
    """Every view reads the one before twice: 2^60 paths, but 60 views."""
    sqls = ["select n_nationkey as k, n_regionkey as v from nation"]
    sqls += [f"select a.k, a.v + b.v as v from v{i} a join v{i} b on a.k = b.k" for i in range(60)]
    plan = _plan(*sqls)
    assert len(n.topological(plan)) < 400
    lay_out(*describe(plan))
    assert repr(plan.views[-1]) == "View(v60: k, v)"


def test_json_names_nodes_zones_and_costs() -> None:
    plan = _plan("select o_custkey, count(*) as n from orders group by o_custkey")
    (pre,) = _of(plan, n.PreAggregationNode)
    data = json.loads(explain(plan, "json", {pre: StateSize(1000, 64_000)}))
    assert data["views"][0]["key"] == ["o_custkey"]
    states = {d["kind"]: d["state"] for d in data["nodes"] if d["state"]}
    assert states["pre-aggregation"]["rows"] == 1000
    assert states["view"]["row_bytes"] > 0
    assert [z["number"] for z in data["zones"]] == [1, 2]


def test_measured_sizes_are_shown() -> None:
    plan = _plan("select o_custkey, count(*) as n from orders group by o_custkey")
    (pre,) = _of(plan, n.PreAggregationNode)
    shown = explain(plan, "text", {pre: StateSize(1_234_567, 100_000_000)})
    assert "1.2M rows, 95.4 MB" in shown


def test_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="there is text, json, svg"):
        explain(n.Plan(()), "dot")


PICTURES = [
    ("select n_name from nation",),
    (
        "select n_name, sum(l_extendedprice) as s from customer, orders, lineitem, nation"
        " where c_custkey = o_custkey and l_orderkey = o_orderkey and c_nationkey = n_nationkey group by n_name",
        "select o_custkey, count(*) as n from orders group by o_custkey",
        "select distinct c_nationkey from customer where c_acctbal < 0 and c_name <> '<&>'",
        "select o_clerk as who from orders union all select c_name from customer",
    ),
]


@pytest.mark.parametrize("sqls", PICTURES, ids=["one", "many"])
def test_picture_is_well_formed_and_nothing_overlaps(sqls: tuple[str, ...]) -> None:
    plan = _plan(*sqls)
    ElementTree.fromstring(explain(plan, "svg"))
    picture = lay_out(*describe(plan))
    cards = [card.box for card in picture.cards]
    boxes = [box for _, box in picture.zones]
    for group in (cards, boxes):
        assert not [(a, b) for i, a in enumerate(group) for b in group[:i] if _overlap(a, b)]
    home = {node: box for zone, box in picture.zones for node in zone.nodes}
    for card in picture.cards:
        zone = home[card.described.node]
        assert zone.x < card.box.x and card.box.right < zone.right
        assert zone.y < card.box.y and card.box.bottom < zone.bottom
    assert all(box.right < picture.width and box.bottom < picture.height for box in boxes)


def _overlap(a: Box, b: Box) -> bool:
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom
