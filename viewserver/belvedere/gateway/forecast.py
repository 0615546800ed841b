"""What a view will cost before it is there: its zones, and rows and bytes of the state tables that it adds.

Rows are bounds from above: a group per row, every row of a join once. State that other views have already costs
nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from belvedere.plan import nodes as n
from belvedere.plan.explain import describe, row_bytes


def forecast(views: Sequence[n.ViewNode], existing: n.Plan, rows: Mapping[str, int | None]) -> dict[str, Any]:
    """`rows`: of base tables, as far as known."""
    there = set(n.topological(existing))
    tables = {node.table for node in there if isinstance(node, n.DeltaNode)}
    described, zones = describe(n.Plan(tuple(views)))
    counts: dict[n.Node, int] = {}
    state = []
    for one in described:
        node = one.node
        counts[node] = _rows(node, counts, rows)
        if one.state is None or node in there or (isinstance(node, n.DeltaNode) and node.table in tables):
            continue
        size = counts[node] * row_bytes(node)
        state.append({"table": one.state.table, "of": one.detail, "rows": counts[node], "bytes": size})
    return {
        "zones": [{"key": list(zone.key), "nodes": len(zone.nodes)} for zone in zones],
        "state": state,
        "bytes": sum(one["bytes"] for one in state),
    }


def _rows(node: n.Node, counts: Mapping[n.Node, int], rows: Mapping[str, int | None]) -> int:
    if isinstance(node, n.DeltaNode):
        return rows.get(node.table) or 0
    below = [counts[part] for part in n.inputs(node)]
    if isinstance(node, n.UnionNode | n.ReverseJoinNode):
        return sum(below)
    if isinstance(node, n.PreAggregationNode | n.AggregateNode) and not node.key:
        return 1
    return max(below, default=0)
