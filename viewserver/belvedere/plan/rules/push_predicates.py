"""Predicate pushdown: rows that a view will never show are dropped before anything stores them.

Conjuncts move through projections, below distincts, into every branch of a union, below aggregates (if they read group
columns only) and into the sides of joins:

    INNER, CROSS   any conjunct to its side; what reads both sides becomes the join's condition
    LEFT           WHERE on the left side -> left; ON of the right side alone -> right (RIGHT: mirrored)
    FULL           nothing moves
    SEMI           WHERE -> left; ON of one side alone -> that side
    ANTI           WHERE -> left; ON of the right side alone -> right

A conjunct that can fail only moves together with all that were written before it: it must not run on rows they exclude.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from belvedere.plan.canonical import compose
from belvedere.plan.exprs import conjoin, conjuncts, disjoin, disjuncts, sides
from belvedere.plan.rewriting import filtered
from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Expr, columns, remap, substitute
from belvedere.sql.registry import fallible


def push_predicates(query: q.Query, catalog: Catalog) -> q.Query:
    """Move every conjunct as far down as it can go."""
    return _push(query, [])


def _push(query: q.Query, parts: list[Expr]) -> q.Query:
    """`query` filtered by `parts`, which are in the order written."""
    if isinstance(query, q.Filter):
        return _push(query.input, conjuncts(query.predicate) + parts)
    if isinstance(query, q.Project):
        below = compose(tuple(parts), query.exprs)
        if below is None:
            return filtered(replace(query, input=_push(query.input, [])), parts)
        return replace(query, input=_push(query.input, list(below)))
    if isinstance(query, q.Aggregate):
        width = len(query.group)
        moved, kept = _split(parts, lambda p: bool(columns(p)) and all(c < width for c in columns(p)))
        inner = _push(query.input, [substitute(p, query.group) for p in moved])
        return filtered(replace(query, input=inner), kept)
    if isinstance(query, q.Distinct):
        return q.Distinct(_push(query.input, parts))
    if isinstance(query, q.UnionAll):
        return replace(query, inputs=tuple(_push(branch, parts) for branch in query.inputs))
    if isinstance(query, q.Join):
        return _push_join(query, parts)
    return filtered(query, parts)


def _split(parts: list[Expr], may_move: Callable[[Expr], bool]) -> tuple[list[Expr], list[Expr]]:
    """What moves and what stays, each in order."""
    moved: list[Expr] = []
    kept: list[Expr] = []
    for part in parts:
        (moved if may_move(part) and not (kept and fallible(part)) else kept).append(part)
    return moved, kept


def _push_join(join: q.Join, parts: list[Expr]) -> q.Join | q.Filter:
    split = len(join.left.schema)
    on = conjuncts(join.condition)
    left: list[Expr] = []
    right: list[Expr] = []
    if join.kind in (q.JoinKind.INNER, q.JoinKind.CROSS):
        return _push_inner(join, on + parts, split)
    if join.kind in (q.JoinKind.LEFT, q.JoinKind.SEMI, q.JoinKind.ANTI):
        left, parts = _split(parts, lambda p: sides(p, split) == (True, False))
        right, on = _split(on, lambda p: sides(p, split) == (False, True))
        if join.kind is q.JoinKind.SEMI:
            more, on = _split(on, lambda p: sides(p, split) == (True, False))
            left += more
    elif join.kind is q.JoinKind.RIGHT:
        right, parts = _split(parts, lambda p: sides(p, split) == (False, True))
        left, on = _split(on, lambda p: sides(p, split) == (True, False))
    moved = replace(
        join,
        left=_push(join.left, left),
        right=_push(join.right, [remap(p, lambda c: c - split) for p in right]),
        condition=conjoin(on),
    )
    outer = filtered(moved, parts)
    assert isinstance(outer, (q.Join, q.Filter))
    return outer


def _push_inner(join: q.Join, parts: list[Expr], split: int) -> q.Join:
    left: list[Expr] = []
    right: list[Expr] = []
    on: list[Expr] = []
    for part in parts:
        reads = sides(part, split)
        target = left if reads == (True, False) else right if reads == (False, True) else on
        others = [p for other in (left, right, on) if other is not target for p in other]
        (on if others and fallible(part) else target).append(part)
    for part in on:
        left += _implied(part, (True, False), split)
        right += _implied(part, (False, True), split)
    return replace(
        join,
        left=_push(join.left, left),
        right=_push(join.right, [remap(p, lambda c: c - split) for p in right]),
        condition=conjoin(on),
        kind=q.JoinKind.INNER if on else join.kind,
    )


def _implied(part: Expr, side: tuple[bool, bool], split: int) -> list[Expr]:
    """What an OR over both sides says about one of them alone: `(l = 1 and r = 2) or (l = 3 and r = 4)` implies
    `l = 1 or l = 3`. The OR itself stays; this only keeps rows out of the state that can never match."""
    branches = disjuncts(part)
    if len(branches) == 1 or fallible(part):
        return []
    found: list[Expr] = []
    for branch in branches:
        mine = conjoin(p for p in conjuncts(branch) if sides(p, split) == side)
        if mine is None:
            return []
        found.append(mine)
    return [disjoin(found)]
