"""Rebuilding bound queries: what every rewrite rule needs and none should repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from belvedere.plan.exprs import conjoin
from belvedere.sql import query as q
from belvedere.sql.expr import Expr


def with_inputs(query: q.Query, inputs: Sequence[q.Query]) -> q.Query:
    """The same query over other inputs; the very same object if they are the same objects."""
    if all(a is b for a, b in zip(q.inputs(query), inputs, strict=True)):
        return query
    if isinstance(query, q.Scan):
        return query
    if isinstance(query, q.Join):
        return replace(query, left=inputs[0], right=inputs[1])
    if isinstance(query, q.UnionAll):
        return replace(query, inputs=tuple(inputs))
    return replace(query, input=inputs[0])


def bottom_up(query: q.Query, fn: Callable[[q.Query], q.Query]) -> q.Query:
    """Rebuild from the leaves, passing every (rebuilt) query through `fn`."""
    return fn(with_inputs(query, [bottom_up(i, fn) for i in q.inputs(query)]))


def map_exprs(query: q.Query, fn: Callable[[Expr], Expr]) -> q.Query:
    """The query with every scalar expression of its own (not of its inputs) passed through `fn`."""
    if isinstance(query, q.Filter):
        return filtered(query.input, [fn(query.predicate)])
    if isinstance(query, q.Project):
        return replace(query, exprs=tuple(map(fn, query.exprs)))
    if isinstance(query, q.Join):
        return query if query.condition is None else replace(query, condition=conjoin([fn(query.condition)]))
    if isinstance(query, q.Aggregate):
        calls = tuple(
            replace(c, arg=None if c.arg is None else fn(c.arg), filter=None if c.filter is None else fn(c.filter))
            for c in query.calls
        )
        return replace(query, group=tuple(map(fn, query.group)), calls=calls)
    return query


def filtered(query: q.Query, parts: Sequence[Expr]) -> q.Query:
    """The rows for which all parts are TRUE; the query itself for no parts."""
    predicate = conjoin(parts)
    return query if predicate is None else q.Filter(query, predicate)
