"""Sharing: equal nodes are one node, and state that already holds enough is used instead of new state.

`covers(wide, narrow)` answers whether `wide` holds the same rows under the same ids as `narrow`, with at least its
columns. Only nodes without state are compared by structure; below them stand nodes that were shared already, so those
are compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from belvedere.plan import nodes as n
from belvedere.plan.exprs import name_columns
from belvedere.sql.expr import ColumnRef, Expr, columns, remap, substitute


class Shared:
    """Every node of the plan, one object each."""

    def __init__(self, known: Iterable[n.Node] = (), leaves: Iterable[n.ViewNode] = ()):
        self._nodes: dict[n.Node, n.Node] = {}
        # Each node by what its input is made of, so that whoever looks for one need not look at all of them.
        self._reverse: dict[_Part, tuple[n.ReverseJoinNode, ...]] = {}
        self._grouped: dict[_Part, tuple[n.PreAggregationNode, ...]] = {}
        self._parts: dict[int, frozenset[_Part]] = {}
        # Known before anything is interned, so nothing looks below them: what they are made of is not shared.
        self._nodes.update((leaf, leaf) for leaf in leaves)
        for node in known:
            self.intern(node)

    def copy(self) -> Shared:
        made = Shared()
        made._nodes, made._parts = self._nodes.copy(), self._parts.copy()
        made._reverse, made._grouped = self._reverse.copy(), self._grouped.copy()
        return made

    def intern(self, node: n.Node) -> n.Node:
        """The one node that equals this one; its inputs are interned already or become so."""
        found = self._nodes.get(node)
        if found is not None:
            return found
        self._nodes[node] = node
        for below in n.inputs(node):
            self.intern(below)
        if isinstance(node, n.ReverseJoinNode):
            for part in self._parts_of(node.input):
                self._reverse[part] = (*self._reverse.get(part, ()), node)
        elif isinstance(node, n.PreAggregationNode):
            for part in self._parts_of(node.input):
                self._grouped[part] = (*self._grouped.get(part, ()), node)
        return node

    def reverse_join(self, source: n.Node, on: tuple[int, ...]) -> tuple[n.ReverseJoinNode, dict[int, int]]:
        """The rows of `source` under `on`: known ones with at least these columns, or new ones. And where the columns
        are."""
        for known in min((self._reverse.get(part, ()) for part in self._parts_of(source)), key=len):
            where = covers(known.input, source)
            if where is not None and tuple(where[c] for c in on) == known.on:
                return known, where
        made = self.intern(n.ReverseJoinNode(self.intern(source), on))
        assert isinstance(made, n.ReverseJoinNode)
        return made, {i: i for i in range(len(source.schema))}

    def grouped(
        self, source: n.Node, group: tuple[int, ...], calls: Iterable[n.AggregateTerm]
    ) -> n.PreAggregationNode | None:
        """A known pre-aggregation of the same rows and groups that has all the calls."""
        wanted = list(calls)
        for known in min((self._grouped.get(part, ()) for part in self._parts_of(source)), key=len):
            where = covers(known.input, source)
            if where is None or tuple(where[c] for c in group) != known.group:
                continue
            if all(moved(call, where) in known.calls for call in wanted):
                return known
        return None

    def places(self, known: n.PreAggregationNode, source: n.Node, calls: Iterable[n.AggregateTerm]) -> list[int]:
        """Positions among the calls of `known` of calls over `source`, which it covers."""
        where = covers(known.input, source)
        assert where is not None
        return [known.calls.index(moved(call, where)) for call in calls]

    def _parts_of(self, node: n.Node) -> frozenset[_Part]:
        found = self._parts.get(id(node))
        if found is None:
            found = parts_of(node)
            if self._nodes.get(node) is node:  # others may be collected, and their id() be used again
                self._parts[id(node)] = found
        return found


_Rows: TypeAlias = tuple[Any, ...]
_Part: TypeAlias = tuple[_Rows, Expr | None]


def parts_of(node: n.Node) -> frozenset[_Part]:
    """Which rows a node has, and each of its columns, written over what they come from: a node that covers another has
    all parts of it, so that only nodes with a part in common have to be compared."""
    rows, origins = _origins(node)
    return frozenset([(rows, None), *((rows, origin) for origin in origins)])


def _origins(node: n.Node) -> tuple[_Rows, tuple[Expr, ...]]:
    """The rows, and where each column comes from."""
    if isinstance(node, n.DeltaNode):
        columns = zip(node.columns, node.schema, strict=True)
        return ("table", node.table), tuple(ColumnRef(at, column.type, "") for at, column in columns)
    if isinstance(node, n.SelectionNode):
        rows, origins = _origins(node.input)
        return (*rows, substitute(node.predicate, origins)), origins
    if isinstance(node, n.ProjectionNode):
        rows, origins = _origins(node.input)
        return rows, tuple(substitute(expr, origins) for expr in node.exprs)
    return ("node", node), tuple(ColumnRef(i, c.type, "") for i, c in enumerate(node.schema))


def moved(call: n.AggregateTerm, where: dict[int, int]) -> n.AggregateTerm:
    """The call over an input whose columns stand elsewhere."""
    return n.AggregateTerm(
        call.function,
        None if call.arg is None else where[call.arg],
        call.type,
        call.distinct,
        None if call.filter is None else where[call.filter],
    )


def covers(wide: n.Node, narrow: n.Node) -> dict[int, int] | None:
    """Position in `wide` of each column of `narrow`, if `wide` has the same rows, ids and these columns; else None."""
    if wide is narrow or wide == narrow:
        return {i: i for i in range(len(narrow.schema))}
    if isinstance(wide, n.DeltaNode) and isinstance(narrow, n.DeltaNode):
        if wide.table != narrow.table or not set(narrow.columns) <= set(wide.columns):
            return None
        return {i: wide.columns.index(c) for i, c in enumerate(narrow.columns)}
    if isinstance(wide, n.SelectionNode) and isinstance(narrow, n.SelectionNode):
        where = covers(wide.input, narrow.input)
        if where is None or _moved(narrow.predicate, where, wide.input) != wide.predicate:
            return None
        return where
    if isinstance(wide, n.ProjectionNode) or isinstance(narrow, n.ProjectionNode):
        wide_base, wide_exprs = _unprojected(wide)
        narrow_base, narrow_exprs = _unprojected(narrow)
        where = covers(wide_base, narrow_base)
        if where is None:
            return None
        found: dict[int, int] = {}
        for i, expr in enumerate(narrow_exprs):
            there = _moved(expr, where, wide_base)
            if there not in wide_exprs:
                return None
            found[i] = wide_exprs.index(there)
        return found
    return None


def _unprojected(node: n.Node) -> tuple[n.Node, tuple[Expr, ...]]:
    if isinstance(node, n.ProjectionNode):
        return node.input, node.exprs
    return node, tuple(ColumnRef(i, c.type, c.name) for i, c in enumerate(node.schema))


def _moved(expr: Expr, where: dict[int, int], over: n.Node) -> Expr | None:
    if not columns(expr) <= where.keys():
        return None
    return name_columns(remap(expr, where), over.schema)
