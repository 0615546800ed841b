"""Order of comma and cross joins, so that every join has an equality.

`FROM a, b, c WHERE a.x = c.x AND c.y = b.y` cannot be joined as written (a and b share nothing). Joins which all have
an equality stay as the user wrote them. Otherwise relations are added to the first one by connectivity: first those
whose key the equality covers (each row finds one match, filters apply early), then those that refer to a
key already there, then any; within that in the order written.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from belvedere.plan.conditions import equality
from belvedere.plan.exprs import conjoin, conjuncts
from belvedere.plan.rewriting import with_inputs
from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.sql.expr import Call, ColumnRef, Expr, columns, remap
from belvedere.sql.registry import fallible

_INNER = (q.JoinKind.INNER, q.JoinKind.CROSS)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One relation of a cluster of inner joins; its columns start at `start` among those of the whole cluster."""

    query: q.Query
    start: int
    position: tuple[int, int] | None

    def owns(self, column: int) -> bool:
        return self.start <= column < self.start + len(self.query.schema)


def reorder_joins(query: q.Query, catalog: Catalog) -> q.Query:
    """Give every cluster of inner joins an order in which each join has an equality, if there is one."""
    return _visit(query, catalog, inside=False)


def _visit(part: q.Query, catalog: Catalog, inside: bool) -> q.Query:
    """`inside`: part of a cluster, whose topmost join decides."""
    cluster = isinstance(part, q.Join) and part.kind in _INNER
    part = with_inputs(part, [_visit(below, catalog, cluster) for below in q.inputs(part)])
    if cluster and not inside and not _connected(part):
        return _reordered(part, catalog)
    return part


def _connected(part: q.Query) -> bool:
    """Whether every inner join of the cluster has an equality of its own."""
    if not (isinstance(part, q.Join) and part.kind in _INNER):
        return True
    split = len(part.left.schema)
    own = any(equality(p, split) is not None for p in conjuncts(part.condition))
    return own and _connected(part.left) and _connected(part.right)


def _flatten(
    part: q.Query, start: int, position: tuple[int, int] | None, leaves: list[_Leaf], parts: list[Expr]
) -> None:
    """Leaves in the order written, and all conjuncts over the columns of the whole cluster, inner ones first."""
    if isinstance(part, q.Join) and part.kind in _INNER:
        _flatten(part.left, start, position or part.position, leaves, parts)
        _flatten(part.right, start + len(part.left.schema), part.position, leaves, parts)
        parts.extend(remap(p, lambda c: c + start) for p in conjuncts(part.condition))
    else:
        leaves.append(_Leaf(part, start, position))


def _reordered(top: q.Query, catalog: Catalog) -> q.Query:
    leaves: list[_Leaf] = []
    parts: list[Expr] = []
    _flatten(top, 0, None, leaves, parts)
    joined, waiting = leaves[0].query, leaves[1:]
    there = [leaves[0]]
    order = [leaves[0].start + i for i in range(len(leaves[0].query.schema))]
    while waiting:
        leaf = min(waiting, key=lambda candidate: _rank(candidate, there, parts, catalog))
        waiting.remove(leaf)
        there.append(leaf)
        order += [leaf.start + i for i in range(len(leaf.query.schema))]
        place = {column: i for i, column in enumerate(order)}
        now, parts = _ready(parts, place.keys())
        joined = q.Join(
            joined,
            leaf.query,
            q.JoinKind.INNER if now else q.JoinKind.CROSS,
            conjoin(remap(p, place) for p in now),
            (*joined.schema, *leaf.query.schema),
            leaf.position,
        )
    place = {column: i for i, column in enumerate(order)}
    exprs = tuple(ColumnRef(place[i], c.type, c.name) for i, c in enumerate(top.schema))
    return q.Project(joined, exprs, top.schema)


def _ready(parts: list[Expr], available: Collection[int]) -> tuple[list[Expr], list[Expr]]:
    """Conjuncts that the columns allow, and those that wait. One that can fail also waits for all written before it."""
    now: list[Expr] = []
    later: list[Expr] = []
    for part in parts:
        ready = all(c in available for c in columns(part)) and not (later and fallible(part))
        (now if ready else later).append(part)
    return now, later


def _rank(leaf: _Leaf, there: list[_Leaf], parts: list[Expr], catalog: Catalog) -> int:
    """How well the leaf joins what is there: 0 by its own key, 1 by a key of the other side, 2 otherwise, 3 not at
    all."""
    pairs = [pair for part in parts if (pair := _between(part, leaf, there)) is not None]
    if not pairs:
        return 3
    mine = {one.index - leaf.start for one, _ in pairs if isinstance(one, ColumnRef)}
    if _covers_key(leaf, mine, catalog):
        return 0
    theirs = {other.index for _, other in pairs if isinstance(other, ColumnRef)}
    return 1 if any(_covers_key(known, {c - known.start for c in theirs}, catalog) for known in there) else 2


def _between(part: Expr, leaf: _Leaf, there: list[_Leaf]) -> tuple[Expr, Expr] | None:
    """The leaf's side and the other side of an equality between the leaf and what is there."""
    if not (isinstance(part, Call) and part.name == "eq"):
        return None
    first, second = part.args
    for one, other in ((first, second), (second, first)):
        read, against = columns(one), columns(other)
        reaches = all(any(known.owns(c) for known in there) for c in against)
        if read and against and reaches and all(map(leaf.owns, read)):
            return one, other
    return None


def _covers_key(leaf: _Leaf, known: set[int], catalog: Catalog) -> bool:
    key = _key(leaf.query, catalog)
    return key is not None and key <= known


def _key(query: q.Query, catalog: Catalog) -> frozenset[int] | None:
    """Columns known to identify a row, where that is easy to see."""
    if isinstance(query, q.Scan):
        relation = catalog.find(query.name)
        if not isinstance(relation, TableDef):
            return None
        names = [c.name for c in query.schema]
        return frozenset(names.index(k) for k in relation.key)
    if isinstance(query, q.Filter):
        return _key(query.input, catalog)
    if isinstance(query, q.Join) and query.kind in (q.JoinKind.SEMI, q.JoinKind.ANTI):
        return _key(query.left, catalog)
    if isinstance(query, q.Aggregate):
        return frozenset(range(len(query.group)))
    if isinstance(query, q.Project):
        below = _key(query.input, catalog)
        places = {e.index: i for i, e in enumerate(query.exprs) if isinstance(e, ColumnRef)}
        return frozenset(places[c] for c in below) if below is not None and below <= places.keys() else None
    return None
