"""Bound queries in one canonical form, so that equal parts of different views become one object.

Names are dropped (aliases must not make equal parts differ; see `exprs.name_columns` for how they come back) and equal
subtrees are interned bottom-up by the identity of what is below them, which stays linear however deep queries are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from belvedere.plan.exprs import size
from belvedere.sql import query as q
from belvedere.sql.expr import ColumnRef, Expr, substitute, transform
from belvedere.types import Column, Schema

GROWTH_LIMIT = 400
"""Projections are merged unless the merged expressions have more parts than this, and more than both before."""


class Interner:
    """Canonical queries; keeps them alive, so `id()` of a canonical query names it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, q.Query] = {}

    def intern(self, query: q.Query) -> q.Query:
        """The one object for everything that equals `query` up to names."""
        made: q.Query
        parts: tuple[Hashable, ...]
        if isinstance(query, q.Scan):
            made, parts = query, (query.name.lower(), query.schema)
        elif isinstance(query, q.Filter):
            made = q.Filter(self.intern(query.input), nameless(query.predicate))
            parts = (id(made.input), made.predicate)
        elif isinstance(query, q.Project):
            exprs = tuple(map(nameless, query.exprs))
            made = q.Project(self.intern(query.input), exprs, _nameless(query.schema))
            parts = (id(made.input), exprs)
        elif isinstance(query, q.Join):
            made = replace(
                query,
                left=self.intern(query.left),
                right=self.intern(query.right),
                condition=None if query.condition is None else nameless(query.condition),
                schema=_nameless(query.schema),
            )
            parts = (id(made.left), id(made.right), made.kind, made.condition)
        elif isinstance(query, q.Aggregate):
            calls = tuple(
                replace(
                    c,
                    arg=None if c.arg is None else nameless(c.arg),
                    filter=None if c.filter is None else nameless(c.filter),
                )
                for c in query.calls
            )
            group = tuple(map(nameless, query.group))
            made = q.Aggregate(self.intern(query.input), group, calls, _nameless(query.schema))
            parts = (id(made.input), group, calls)
        elif isinstance(query, q.Distinct):
            made = q.Distinct(self.intern(query.input))
            parts = (id(made.input),)
        else:
            made = q.UnionAll(tuple(self.intern(i) for i in query.inputs), _nameless(query.schema))
            parts = tuple(id(i) for i in made.inputs)
        return self._known.setdefault((type(made), *parts), made)


def nameless(expr: Expr) -> Expr:
    """The expression with plain positions."""
    return transform(expr, lambda e: replace(e, name="") if isinstance(e, ColumnRef) and e.name else e)


def _nameless(schema: Schema) -> Schema:
    return tuple(Column("", c.type) for c in schema)


def strip(query: q.Query) -> tuple[q.Query, tuple[Expr, ...]]:
    """What lies below the projections on top of a query, and the query's columns as expressions over it.

    State is keyed by what lies below: two aggregates over one table share it even if each computes its own
    arguments."""
    exprs: tuple[Expr, ...] = tuple(ColumnRef(i, c.type) for i, c in enumerate(query.schema))
    while isinstance(query, q.Project):
        merged = compose(exprs, query.exprs)
        if merged is None:
            break
        query, exprs = query.input, merged
    return query, exprs


def compose(upper: tuple[Expr, ...], lower: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """`upper` over the input of `lower`, or None if that would repeat too much of `lower`."""
    merged = tuple(substitute(e, lower) for e in upper)
    total = sum(map(size, merged))
    if total > GROWTH_LIMIT and total > sum(map(size, upper)) + sum(map(size, lower)):
        return None
    return merged
