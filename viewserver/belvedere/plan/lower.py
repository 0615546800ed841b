"""From queries (what a view is) to plan nodes (how it is maintained).

Queries name columns by position among what they select; nodes carry fewer (pruned) or more (hidden keys). `LoweredRows`
holds a node together with the places of the query's columns in it, so nothing is projected just to restore an
order. Projections appear where something must be computed, or where columns would otherwise be stored for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from belvedere.errors import UnsupportedSql
from belvedere.plan import build
from belvedere.plan import nodes as n
from belvedere.plan.canonical import strip
from belvedere.plan.demand import Demand, DemandedArrangement, calls_over_base, columns_of
from belvedere.plan.sharing import Shared
from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.expr import ColumnRef, Expr, columns, remap, substitute, transform
from belvedere.sql.text import expr_text
from belvedere.types import Column


@dataclass(frozen=True, slots=True)
class LoweredRows:
    """A node, and where the wanted columns of a query stand in it."""

    node: n.Node
    where: dict[int, int]


@dataclass(frozen=True, slots=True)
class Placed:
    """A node that provides expressions over some query, and where."""

    node: n.Node
    where: dict[Expr, int]


class Lowering:
    """One planning: queries that share a `Demand` become nodes that share state."""

    def __init__(self, catalog: Catalog, demand: Demand, shared: Shared, view: Callable[[str], n.ViewNode]):
        self._catalog, self._demand, self._shared, self._view = catalog, demand, shared, view
        self._done: dict[tuple[int, frozenset[int]], LoweredRows] = {}
        self._pre_aggregations: dict[
            tuple[int, tuple[Expr, ...]], tuple[n.PreAggregationNode, dict[q.AggregateCall, int]]
        ] = {}

    def sink(self, definition: ViewDef, query: q.Query) -> n.ViewNode:
        """The View node of a definition whose canonical query is `query`."""
        base, exprs = strip(query)
        rows = self._rows(base, columns_of(exprs))
        names = [c.name for c in definition.columns]
        node, key = build.projection(rows.node, [remap(e, rows.where) for e in exprs], names)
        ids = build.id_columns(node)
        key = ids if ids is not None and set(ids) == set(key) else key
        if definition.key is not None:
            lowered = [name.lower() for name in names]
            chosen = tuple(lowered.index(k.lower()) for k in definition.key)
            key = chosen + tuple(k for k in key if k not in chosen)
        if ids != key:
            node = n.IndexNode(node, key)
        made = self._shared.intern(n.ViewNode(definition.name, definition.version, node, len(names), key))
        assert isinstance(made, n.ViewNode)
        return made

    def _rows(self, query: q.Query, wanted: frozenset[int]) -> LoweredRows:
        """A node with at least the wanted columns of the query."""
        if not isinstance(query, (q.Scan, q.Filter, q.Project)):
            wanted = self._demand.columns(query)  # one node for all consumers
        place = (id(query), wanted)
        found = self._done.get(place)
        if found is None:
            made = self._lower(query, wanted)
            found = self._done[place] = LoweredRows(self._shared.intern(made.node), made.where)
        return found

    def _lower(self, query: q.Query, wanted: frozenset[int]) -> LoweredRows:
        if isinstance(query, q.Scan):
            return self._scan(query, wanted)
        if isinstance(query, q.Filter):
            below = self._rows(query.input, wanted | columns(query.predicate))
            return LoweredRows(build.selection(below.node, remap(query.predicate, below.where)), below.where)
        if isinstance(query, q.Project):
            exprs = [query.exprs[i] for i in sorted(wanted)]
            placed = self._project(query.input, exprs)
            return LoweredRows(placed.node, {i: placed.where[query.exprs[i]] for i in wanted})
        if isinstance(query, q.Join):
            return self._join(query)
        if isinstance(query, q.Aggregate):
            return self._aggregate(query, wanted)
        if isinstance(query, q.Distinct):
            return self._distinct(query)
        return self._union(query, sorted(wanted))

    def _scan(self, scan: q.Scan, wanted: frozenset[int]) -> LoweredRows:
        relation = self._catalog.relation(scan.name)
        if isinstance(relation, ViewDef):
            return LoweredRows(self._view(relation.name), {i: i for i in range(len(scan.schema))})
        names = [c.name for c in relation.columns]
        place = {i: names.index(scan.schema[i].name) for i in wanted}
        kept = tuple(sorted({*place.values(), *relation.key_positions}))
        schema = tuple(_stored(relation, c) for c in kept)
        key = tuple(kept.index(k) for k in relation.key_positions)
        return LoweredRows(n.DeltaNode(relation.name, kept, schema, key), {i: kept.index(c) for i, c in place.items()})

    def _project(self, base: q.Query, exprs: Iterable[Expr], narrow: bool = False) -> Placed:
        """A node that provides the expressions over `base`; with `narrow`, nothing else but its key."""
        exprs = tuple(dict.fromkeys(exprs))
        rows = self._rows(base, columns_of(exprs))
        here = [remap(e, rows.where) for e in exprs]
        if all(isinstance(e, ColumnRef) for e in here):
            used = {e.index for e in here if isinstance(e, ColumnRef)} | set(rows.node.key)
            if not narrow or len(used) == len(rows.node.schema):
                return Placed(
                    rows.node, {e: h.index for e, h in zip(exprs, here, strict=True) if isinstance(h, ColumnRef)}
                )
        node, _ = build.projection(rows.node, here)
        return Placed(self._shared.intern(node), build.positions(exprs))

    def _arranged(self, arrangement: DemandedArrangement, joined: bool) -> Placed:
        return self._project(arrangement.base, arrangement.exprs(joined), narrow=True)

    def _reverse_join(self, side: q.Query, key: tuple[Expr, ...]) -> tuple[n.ReverseJoinNode, dict[int, int]]:
        """The rows of one side of a join, and where the columns of the side stand in them."""
        arrangement, exprs = self._demand.arrangement(side, key)
        placed = self._arranged(arrangement, joined=True)
        # Equalities may repeat a key on one side (a = c and a = d), so `on` follows the join, not the arrangement.
        on = tuple(placed.where[substitute(k, exprs)] for k in key)
        reverse, moved = self._shared.reverse_join(placed.node, on)
        return reverse, {i: moved[placed.where[e]] for i, e in enumerate(exprs) if e in placed.where}

    def _join(self, join: q.Join) -> LoweredRows:
        condition = self._demand.condition(join)
        if not condition.left:
            raise _refusal(join)
        left, left_where = self._reverse_join(join.left, condition.left)
        right, right_where = self._reverse_join(join.right, condition.right)
        if join.kind is q.JoinKind.FULL and build.nullable_key(left) and build.nullable_key(right):
            left, moved = self._shared.reverse_join(self._shared.intern(build.marked(left.input)), left.on)
            left_where = {i: moved[p] for i, p in left_where.items()}
        split, offset = len(join.left.schema), len(left.schema)
        where = {**left_where, **{i + split: p + offset for i, p in right_where.items()}}
        residual = None if condition.residual is None else remap(condition.residual, where)
        kind = q.JoinKind.INNER if join.kind is q.JoinKind.CROSS else join.kind
        node = build.join(left, right, kind, residual)
        return LoweredRows(node, left_where if kind in (q.JoinKind.SEMI, q.JoinKind.ANTI) else where)

    def _aggregate(self, query: q.Aggregate, wanted: frozenset[int]) -> LoweredRows:
        arrangement, exprs = self._demand.arrangement(query.input, query.group)
        pre, places = self._pre_aggregation(arrangement)
        group = {k: i for i, k in enumerate(arrangement.key)}
        calls = calls_over_base(query, exprs, wanted)
        chosen = tuple(dict.fromkeys(places[c] for c in calls))
        width = len(group)
        schema = (*pre.schema[:width], *(pre.schema[width + c] for c in chosen))
        where = {i: group[substitute(g, exprs)] for i, g in enumerate(query.group)}
        call_columns = [i for i in sorted(wanted) if i >= len(query.group)]
        where.update({i: width + chosen.index(places[c]) for i, c in zip(call_columns, calls, strict=True)})
        return LoweredRows(n.AggregateNode(pre, chosen, schema), where)

    def _pre_aggregation(
        self, arrangement: DemandedArrangement
    ) -> tuple[n.PreAggregationNode, dict[q.AggregateCall, int]]:
        """One pre-aggregation for all aggregates over the arrangement, and the place of each call in it."""
        place = (id(arrangement.base), arrangement.key)
        if place in self._pre_aggregations:
            return self._pre_aggregations[place]
        placed = self._arranged(arrangement, joined=False)
        group = tuple(placed.where[k] for k in arrangement.key)
        calls = {c: _call(c, placed.where) for c in arrangement.calls}
        known = self._shared.grouped(placed.node, group, calls.values())
        if known is not None:
            moved = self._shared.places(known, placed.node, calls.values())
            result = known, dict(zip(calls, moved, strict=True))
        else:
            unique = tuple(dict.fromkeys(calls.values()))
            source = placed.node.schema
            schema = (*(source[c] for c in group), *(Column(call_text(c, placed.node), c.type) for c in unique))
            made = self._shared.intern(n.PreAggregationNode(placed.node, group, unique, schema))
            assert isinstance(made, n.PreAggregationNode)
            result = made, {spec: unique.index(c) for spec, c in calls.items()}
        self._pre_aggregations[place] = result
        return result

    def _distinct(self, query: q.Distinct) -> LoweredRows:
        base, exprs = strip(query.input)
        rows = self._rows(base, columns_of(exprs))
        here = [remap(e, rows.where) for e in exprs]
        if set(rows.node.key) <= {e.index for e in here if isinstance(e, ColumnRef)}:
            placed = self._project(base, exprs)  # the key is among the columns: no row can repeat
            return LoweredRows(placed.node, {i: placed.where[e] for i, e in enumerate(exprs)})
        unique = tuple(dict.fromkeys(here))
        node, _ = build.projection(rows.node, unique, keep_key=False)
        return LoweredRows(n.DistinctNode(self._shared.intern(node)), {i: unique.index(e) for i, e in enumerate(here)})

    def _union(self, query: q.UnionAll, wanted: list[int]) -> LoweredRows:
        branches, outputs = [], []
        for branch in query.inputs:
            base, exprs = strip(branch)
            chosen = [exprs[i] for i in wanted]
            rows = self._rows(base, columns_of(chosen))
            branches.append(rows.node)
            outputs.append([remap(e, rows.where) for e in chosen])
        return LoweredRows(build.union(branches, outputs), {column: i for i, column in enumerate(wanted)})


def _stored(table: TableDef, position: int) -> Column:
    column = table.columns[position]
    return Column(column.name, column.type, column.nullable and column.name not in table.key)


def _call(call: q.AggregateCall, where: dict[Expr, int]) -> n.AggregateTerm:
    return n.AggregateTerm(
        call.function,
        None if call.arg is None else where[call.arg],
        call.type,
        call.distinct,
        None if call.filter is None else where[call.filter],
    )


def call_text(call: n.AggregateTerm, source: n.Node) -> str:
    """An aggregate as a person would write it."""
    arg = "*" if call.arg is None else source.schema[call.arg].name
    shown = f"{call.function}({'distinct ' if call.distinct else ''}{arg})"
    return shown if call.filter is None else f"{shown} filter (where {source.schema[call.filter].name})"


def _written(expr: Expr, labels: list[str]) -> str:
    """An expression with the names of its columns, which plans forget."""
    return expr_text(transform(expr, lambda e: replace(e, name=labels[e.index]) if isinstance(e, ColumnRef) else e))


def _labels(query: q.Query) -> list[str]:
    """What each column is in terms of tables and views."""
    match query:
        case q.Scan():
            return [f"{query.name}.{c.name}" for c in query.schema]
        case q.Join():
            return [*_labels(query.left), *_labels(query.right)][: len(query.schema)]
        case q.UnionAll():
            return _labels(query.inputs[0])
    below = _labels(query.input)
    if isinstance(query, q.Project):
        return [_written(e, below) for e in query.exprs]
    if isinstance(query, q.Aggregate):
        args = ["*" if c.arg is None else _written(c.arg, below) for c in query.calls]
        calls = [f"{c.function}({arg})" for c, arg in zip(query.calls, args, strict=True)]
        return [*(_written(e, below) for e in query.group), *calls]
    return below


def _refusal(join: q.Join) -> UnsupportedSql:
    line, column = join.position or (None, None)
    labels = [*_labels(join.left), *_labels(join.right)]
    shown = "none is written" if join.condition is None else f"found only: {_written(join.condition, labels)}"
    return UnsupportedSql(
        f"{join.kind.value} join without an equality between its two sides ({shown})",
        line=line,
        column=column,
        hint="add a condition of the form left.column = right.column to ON or WHERE",
    )
