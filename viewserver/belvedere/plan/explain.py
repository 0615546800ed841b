"""EXPLAIN: the plan as text or JSON (the picture is in `svg`), with zones, keys, and what each state table costs.

Costs are measured where the engine knows them (`sizes`), else estimated for one row from the types of its columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from belvedere.plan import nodes as n
from belvedere.plan.zones import Zone, zones
from belvedere.sql.expr import Expr
from belvedere.sql.text import expr_text
from belvedere.types import Kind, Schema, Type


@dataclass(frozen=True)
class StateSize:
    """Rows and bytes that a state table holds, and what its columns would take as plain arrays."""

    rows: int
    bytes: int
    plain: int = 0


Sizes = Mapping[n.Node, StateSize]

INDEX_BYTES = 24
"""Per row of any state table: a 128-bit id and its share of the hash index."""
STRING_BYTES = 20
"""Estimate for a string: its place in the arena and a short text."""


@dataclass(frozen=True, slots=True)
class Described:
    """One node, ready to be shown."""

    number: int
    node: n.Node
    kind: str
    detail: str
    zone: int
    state: State | None
    views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class State:
    """A state table: its kind, bytes of one row (estimated) and, if known, what it holds now."""

    table: str
    row_bytes: int
    size: StateSize | None

    @property
    def cost(self) -> str:
        if self.size is None:
            return f"~{self.row_bytes} B/row"
        return f"{human_rows(self.size.rows)}, {human_bytes(self.size.bytes)}"


def explain(plan: n.Plan, format: str = "text", sizes: Sizes | None = None) -> str:
    """The plan for people ("text"), programs ("json") or as a picture ("svg")."""
    if format == "text":
        return _as_text(plan, sizes)
    if format == "json":
        return json.dumps(_as_data(plan, sizes), indent=2)
    if format == "svg":
        from belvedere.plan.svg import draw  # drawn only when asked for

        return draw(plan, sizes)
    raise ValueError(f"explain knows no format {format!r}; there is text, json, svg")


def describe(plan: n.Plan, sizes: Sizes | None = None) -> tuple[list[Described], tuple[Zone, ...]]:
    """Every node with its number (inputs first), its zone, its state, and the views that it serves."""
    order = n.topological(plan)
    found = zones(plan)
    zone = {node: z.number for z in found for node in z.nodes}
    users: dict[n.Node, set[str]] = {node: set() for node in order}
    for node in reversed(order):
        if isinstance(node, n.ViewNode):
            users[node].add(node.name)
        for below in n.inputs(node):
            users[below] |= users[node]
    described = [
        Described(i + 1, node, *_shown(node), zone[node], _state(node, sizes), tuple(sorted(users[node])))
        for i, node in enumerate(order)
    ]
    return described, found


def _shown(node: n.Node) -> tuple[str, str]:
    """Kind and detail of a node."""
    if isinstance(node, n.DeltaNode):
        return "delta", f"{node.table} ({_names(node.schema, range(len(node.schema)))})"
    if isinstance(node, n.SelectionNode):
        return "selection", expr_text(node.predicate)
    if isinstance(node, n.ProjectionNode):
        return "projection", ", ".join(_output(e, c.name) for e, c in zip(node.exprs, node.schema, strict=True))
    if isinstance(node, n.IndexNode):
        return "index", f"by {_names(node.schema, node.key)}"
    if isinstance(node, n.PreAggregationNode):
        calls = ", ".join(c.name for c in node.schema[len(node.group) :]) or "groups only"
        return "pre-aggregation", f"{calls} {_by(node.schema, node.key)}"
    if isinstance(node, n.AggregateNode):
        calls = ", ".join(c.name for c in node.schema[len(node.key) :]) or "groups only"
        return "aggregate", f"{calls} {_by(node.schema, node.key)}"
    if isinstance(node, n.ReverseJoinNode):
        return "reverse-join", f"by {_names(node.schema, node.on)}"
    if isinstance(node, n.JoinNode):
        pairs = zip(_list(node.left.schema, node.left.on), _list(node.right.schema, node.right.on), strict=True)
        condition = " and ".join(f"{a} = {b}" for a, b in pairs)
        residual = "" if node.residual is None else f", residual {expr_text(node.residual)}"
        return "join", f"{node.kind.value} on {condition}{residual}, identity {node.identity.value}"
    if isinstance(node, n.DistinctNode):
        return "distinct", _names(node.schema, node.key)
    if isinstance(node, n.UnionNode):
        return "union", f"all of {len(node.inputs)} branches"
    hidden = _names(node.schema, range(node.visible, len(node.schema)))
    return "view", f"{node.name} {_keyed(node)}" + (f" hidden ({hidden})" if hidden else "")


def _keyed(view: n.ViewNode) -> str:
    return f"key ({_names(view.schema, view.key)})" if view.key else "one row"


def _by(schema: Schema, key: Sequence[int]) -> str:
    return f"by {_names(schema, key)}" if key else "over all rows"


def _output(expr: Expr, name: str) -> str:
    shown = expr_text(expr)
    return name if shown == name else f"{shown} as {name}"


def _list(schema: Schema, positions: Sequence[int]) -> list[str]:
    return [schema[p].name for p in positions]


def _names(schema: Schema, positions: Sequence[int]) -> str:
    return ", ".join(_list(schema, positions))


def _state(node: n.Node, sizes: Sizes | None) -> State | None:
    tables = {
        n.DeltaNode: "DELTA",
        n.PreAggregationNode: "PRE-AGGREGATION",
        n.ReverseJoinNode: "REVERSE-JOIN",
        n.DistinctNode: "DISTINCT",
        n.ViewNode: "VIEW",
    }
    table = tables.get(type(node))
    if table is None:
        return None
    return State(table, row_bytes(node), None if sizes is None else sizes.get(node))


def row_bytes(node: n.Node) -> int:
    """Estimated bytes of one row of the node's state table."""
    if isinstance(node, n.PreAggregationNode):
        group = sum(column_bytes(node.input.schema[c].type) for c in node.group)
        return INDEX_BYTES + 8 + group + sum(_call_bytes(c) for c in node.calls)
    stored = sum(column_bytes(c.type) for c in node.schema)
    if isinstance(node, n.ReverseJoinNode):
        return INDEX_BYTES + stored + 12  # its group, its place there, the group's entry for it
    return INDEX_BYTES + stored + (8 if isinstance(node, (n.DeltaNode, n.DistinctNode)) else 0)  # a timestamp; a count


def _call_bytes(call: n.AggregateTerm) -> int:
    """Accumulators of one call in one group."""
    if call.distinct:
        return 40 + column_bytes(call.type)
    if call.function == "count":
        return 8
    if call.function in ("min", "max"):
        return 32 + column_bytes(call.type)
    return 72 if call.type.kind is Kind.DOUBLE else 32


def column_bytes(type: Type) -> int:
    """Bytes of one value in a column."""
    if type.varlen:
        return STRING_BYTES
    return 16 if type.wide else int(type.dtype.itemsize)


def human_bytes(count: float) -> str:
    """1536 -> 1.5 KB."""
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1024 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def human_rows(count: int) -> str:
    """1234567 -> 1.2M rows."""
    if count < 10_000:
        return f"{count} row" if count == 1 else f"{count} rows"
    return f"{count / 1e3:.0f}k rows" if count < 1_000_000 else f"{count / 1e6:.1f}M rows"


def _as_text(plan: n.Plan, sizes: Sizes | None) -> str:
    described, found = describe(plan, sizes)
    by_node = {d.node: d for d in described}
    printed: set[n.Node] = set()
    lines: list[str] = []

    def show(node: n.Node, first: str, rest: str) -> None:
        d = by_node[node]
        if isinstance(node, n.ViewNode) and rest and node in plan.views:
            lines.append(f"{first}#{d.number} view {node.name}")  # it has a tree of its own
            return
        if node in printed:
            lines.append(f"{first}#{d.number} {d.kind}, as above")
            return
        printed.add(node)
        lines.append(f"{first}#{d.number} {d.kind} {d.detail}  [zone {d.zone}{_cost(d)}]")
        below = n.inputs(node)
        for i, part in enumerate(below):
            last = i == len(below) - 1
            show(part, rest + ("└─ " if last else "├─ "), rest + ("   " if last else "│  "))

    for view in plan.views:
        show(view, "", "")
        lines.append("")
    lines.append("zones")
    for zone in found:
        source = f"  <- {', '.join(f'zone {i}' for i in zone.inputs)}" if zone.inputs else ""
        numbers = " ".join(f"#{by_node[node].number}" for node in zone.nodes)
        lines.append(f"  zone {zone.number} by {', '.join(zone.key) or 'nothing (one server)'}: {numbers}{source}")
    lines += ["", "state"]
    for state, members, subject, views in state_tables(described):
        used = f"  shared by {', '.join(views)}" if len(views) > 1 else ""
        lines.append(f"  {' '.join(f'#{i}' for i in members)} {state.table} {subject}: {state.cost}{used}")
    return "\n".join(lines) + "\n"


def state_tables(described: Sequence[Described]) -> list[tuple[State, list[int], str, list[str]]]:
    """Every state table once: its cost, the numbers of its nodes, what it holds, and the views that it serves. All
    Delta nodes of a base table are one DELTA, which here counts the columns that any of them needs."""
    found: dict[tuple[str, object], list[Described]] = {}
    for d in described:
        if d.state is not None:
            name = d.node.table if isinstance(d.node, n.DeltaNode) else d.number
            found.setdefault((d.state.table, name), []).append(d)
    tables = []
    for parts in found.values():
        state = parts[0].state
        assert state is not None
        deltas = [d.node for d in parts if isinstance(d.node, n.DeltaNode)]
        if deltas:
            stored = {p: c.type for node in deltas for p, c in zip(node.columns, node.schema, strict=True)}
            size = next((d.state.size for d in parts if d.state is not None and d.state.size is not None), None)
            state = State(state.table, INDEX_BYTES + 8 + sum(map(column_bytes, stored.values())), size)
        views = sorted({v for d in parts for v in d.views})
        tables.append((state, [d.number for d in parts], _subject(parts[0]), views))
    return tables


def _cost(described: Described) -> str:
    if described.state is None:
        return ""
    if isinstance(described.node, n.DeltaNode):
        return ", DELTA"  # its cost is the table's, see the list of state tables
    return f", {described.state.table} {described.state.cost}"


def _subject(described: Described) -> str:
    node = described.node
    if isinstance(node, n.DeltaNode):
        return node.table
    if isinstance(node, n.ViewNode):
        return node.name
    if isinstance(node, n.PreAggregationNode):
        return _by(node.schema, node.key)
    return f"by {_names(node.schema, node.on if isinstance(node, n.ReverseJoinNode) else node.key)}"


def _as_data(plan: n.Plan, sizes: Sizes | None) -> dict[str, Any]:
    described, found = describe(plan, sizes)
    number = {d.node: d.number for d in described}
    return {
        "views": [
            {
                "name": v.name,
                "version": v.version,
                "node": number[v],
                "visible": v.visible,
                "key": _list(v.schema, v.key),
            }
            for v in plan.views
        ],
        "nodes": [
            {
                "id": d.number,
                "kind": d.kind,
                "detail": d.detail,
                "inputs": [number[i] for i in n.inputs(d.node)],
                "columns": [{"name": c.name, "type": str(c.type)} for c in d.node.schema],
                "key": _list(d.node.schema, d.node.key),
                "zone": d.zone,
                "state": None if d.state is None else _state_data(d.state),
                "views": list(d.views),
            }
            for d in described
        ],
        "zones": [
            {"number": z.number, "key": list(z.key), "nodes": [number[i] for i in z.nodes], "inputs": list(z.inputs)}
            for z in found
        ],
    }


def _state_data(state: State) -> dict[str, Any]:
    known = {} if state.size is None else {"rows": state.size.rows, "bytes": state.size.bytes}
    return {"table": state.table, "row_bytes": state.row_bytes, **known}
