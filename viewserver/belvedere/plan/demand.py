"""Column pruning: which columns each part of the queries must provide, seen over all views that are planned together.

What has state (joins, aggregates and the arrangements below them) is one thing for all its consumers, so it provides
the union of what they want. What has none (filters, projections, the reading of a table) is cut to what each consumer
wants, so a change in a column that a view does not use never reaches that view.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from belvedere.plan.canonical import strip
from belvedere.plan.conditions import Condition, take_apart
from belvedere.sql import query as q
from belvedere.sql.expr import Expr, columns, substitute


@dataclass(slots=True)
class DemandedArrangement:
    """Rows of `base` under `key` (expressions over it): what joins want of them, and what aggregates want."""

    base: q.Query
    key: tuple[Expr, ...]
    rows: dict[Expr, None] = field(default_factory=dict)
    values: dict[Expr, None] = field(default_factory=dict)
    calls: dict[q.AggregateCall, None] = field(default_factory=dict)

    def exprs(self, joined: bool) -> tuple[Expr, ...]:
        """What the rows must provide for joins, or for aggregates. Aggregates read the joins' rows when nothing is
        missing there: then both share one index of groups."""
        if joined or (self.rows and self.values.keys() <= self.rows.keys()):
            return tuple(self.rows)
        return tuple(self.values)


class Demand:
    """Wanted columns of every part of the given queries, which are canonical (see `canonical`)."""

    def __init__(self, tops: Sequence[q.Query]):
        self._wanted: dict[int, set[int]] = {}
        self._variants: dict[int, dict[frozenset[int], None]] = {}
        self._arrangements: dict[tuple[int, tuple[Expr, ...]], DemandedArrangement] = {}
        self._by_base: dict[int, list[DemandedArrangement]] = {}
        self._conditions: dict[int, Condition] = {}
        for top in tops:
            base, exprs = strip(top)
            self._want(base, columns_of(exprs))
        for query in reversed(list(_bottom_up(tops))):
            for arrangement in self._by_base.get(id(query), ()):
                for joined, used in ((True, arrangement.rows), (False, arrangement.values)):
                    if used:
                        self._want(query, columns_of(arrangement.exprs(joined)))
            self._visit(query)

    def columns(self, query: q.Query) -> frozenset[int]:
        """Columns that a join, aggregate or union must provide."""
        return frozenset(self._wanted.get(id(query), ()))

    def condition(self, join: q.Join) -> Condition:
        known = self._conditions.get(id(join))
        if known is None:
            known = self._conditions[id(join)] = take_apart(join)
        return known

    def arrangement(self, query: q.Query, key: Iterable[Expr]) -> tuple[DemandedArrangement, tuple[Expr, ...]]:
        """The arrangement that serves `query` under `key`, and the query's columns over the arrangement's base."""
        base, exprs = strip(query)
        over_base = tuple(dict.fromkeys(substitute(k, exprs) for k in key))
        place = (id(base), over_base)
        found = self._arrangements.get(place)
        if found is None:
            found = self._arrangements[place] = DemandedArrangement(base, over_base)
            self._by_base.setdefault(id(base), []).append(found)
        return found, exprs

    def _want(self, query: q.Query, wanted: frozenset[int]) -> None:
        if isinstance(query, (q.Filter, q.Project, q.Scan)):
            self._variants.setdefault(id(query), {})[wanted] = None
        else:
            self._wanted.setdefault(id(query), set()).update(wanted)

    def _visit(self, query: q.Query) -> None:
        """Pass on to the inputs what is wanted of `query`; all its consumers have been visited."""
        variants = self._variants.get(id(query), {})
        wanted = self.columns(query)
        if isinstance(query, q.Filter):
            for variant in variants:
                self._want(query.input, variant | columns(query.predicate))
        elif isinstance(query, q.Project):
            for variant in variants:
                self._want(query.input, columns_of(query.exprs[i] for i in sorted(variant)))
        elif id(query) not in self._wanted:
            return  # only met on a path that projections have cut off
        elif isinstance(query, q.Join):
            self._join(query, wanted)
        elif isinstance(query, q.Aggregate):
            arrangement, exprs = self.arrangement(query.input, query.group)
            arrangement.values.update(dict.fromkeys(arrangement.key))
            for call in calls_over_base(query, exprs, wanted):
                arrangement.calls[call] = None
                arrangement.values.update((e, None) for e in (call.arg, call.filter) if e is not None)
            if not arrangement.values:
                self._want(arrangement.base, frozenset())  # count(*) of everything: rows without columns
        elif isinstance(query, q.Distinct):
            base, exprs = strip(query.input)
            self._want(base, columns_of(exprs))
        elif isinstance(query, q.UnionAll):
            for branch in query.inputs:
                base, exprs = strip(branch)
                self._want(base, columns_of(exprs[i] for i in sorted(wanted)))

    def _join(self, join: q.Join, wanted: frozenset[int]) -> None:
        condition = self.condition(join)
        split = len(join.left.schema)
        read = wanted | (columns(condition.residual) if condition.residual is not None else set())
        for side, key, offset in ((join.left, condition.left, 0), (join.right, condition.right, split)):
            arrangement, exprs = self.arrangement(side, key)
            arrangement.rows.update(dict.fromkeys(arrangement.key))
            mine = sorted(c - offset for c in read if 0 <= c - offset < len(side.schema))
            arrangement.rows.update((exprs[c], None) for c in mine)


def calls_over_base(aggregate: q.Aggregate, exprs: tuple[Expr, ...], wanted: Iterable[int]) -> list[q.AggregateCall]:
    """The wanted calls with their arguments as expressions over the arrangement's base."""
    found = []
    for position in sorted(wanted):
        if position >= len(aggregate.group):
            call = aggregate.calls[position - len(aggregate.group)]
            arg = None if call.arg is None else substitute(call.arg, exprs)
            filter_ = None if call.filter is None else substitute(call.filter, exprs)
            found.append(q.AggregateCall(call.function, arg, call.type, call.distinct, filter_))
    return found


def columns_of(exprs: Iterable[Expr]) -> frozenset[int]:
    """Columns that any of the expressions reads."""
    return frozenset(c for e in exprs for c in columns(e))


def _bottom_up(tops: Sequence[q.Query]) -> Iterator[q.Query]:
    """Every canonical query once, inputs first."""
    seen: set[int] = set()
    for top in tops:
        stack: list[tuple[q.Query, bool]] = [(top, False)]
        while stack:
            query, ready = stack.pop()
            if ready:
                yield query
            elif id(query) not in seen:
                seen.add(id(query))
                stack.append((query, True))
                stack.extend((below, False) for below in reversed(q.inputs(query)))
