"""Semi- and anti-joins below inner joins: what IN, EXISTS and their negations drop is dropped before it is joined and
stored.

`(a JOIN b) SEMI JOIN r ON a.x = r.y` is `(a SEMI JOIN r ON a.x = r.y) JOIN b`. It also goes below the kept side of an
outer join. A condition that can fail stays where it was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from belvedere.plan.rewriting import bottom_up
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import columns, remap
from belvedere.sql.query import Join, JoinKind, Query
from belvedere.sql.registry import fallible

_LEFT_KEPT = (JoinKind.INNER, JoinKind.CROSS, JoinKind.LEFT)
_RIGHT_KEPT = (JoinKind.INNER, JoinKind.CROSS, JoinKind.RIGHT)


def push_semi_joins(query: Query, catalog: Catalog) -> Query:
    """Move every semi- and anti-join to the one side of the join below it whose columns it reads."""
    return bottom_up(query, lambda part: _pushed(part) if isinstance(part, Join) else part)


def _pushed(join: Join) -> Query:
    below = join.left
    if join.kind not in (JoinKind.SEMI, JoinKind.ANTI) or not isinstance(below, Join) or join.condition is None:
        return join
    split, width = len(below.left.schema), len(below.schema)
    read = {c for c in columns(join.condition) if c < width}
    if not read or fallible(join.condition):
        return join
    if below.kind in _LEFT_KEPT and all(c < split for c in read):
        return replace(below, left=_pushed(_over(join, below.left, lambda c: c if c < split else c - width + split)))
    if below.kind in _RIGHT_KEPT and all(c >= split for c in read):
        return replace(below, right=_pushed(_over(join, below.right, lambda c: c - split)))
    return join


def _over(join: Join, side: Query, move: Callable[[int], int]) -> Join:
    """The semi- or anti-join with another left input."""
    assert join.condition is not None
    return replace(join, left=side, condition=remap(join.condition, move), schema=side.schema)
