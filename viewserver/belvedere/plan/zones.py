"""Zones: maximal connected parts of the plan whose rows are spread by one key.

Inside a zone a row never leaves its server; between zones rows are redistributed. A zone begins at a base table (its
primary key), and wherever an operator needs another key than the one its rows already lie under: index,
pre-aggregation, reverse-join, distinct. Both sides of a join lie in the join's zone. Zones form no cycle (each waits
for the markers of its inputs): where merging two would close one, they stay apart although their keys are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from belvedere.plan import nodes as n
from belvedere.sql.expr import ColumnRef
from belvedere.sql.query import JoinKind

Placement = frozenset[tuple[int, ...]]
"""Column lists by which the rows of a node are spread (several if they are always equal, none if unknown)."""


@dataclass(frozen=True, slots=True)
class Zone:
    """`number` counts from 1, inputs before consumers. `key`: names of the columns that spread the rows, empty if all
    lie on one server. `inputs`: numbers of the zones it receives rows from."""

    number: int
    key: tuple[str, ...]
    nodes: tuple[n.Node, ...]
    inputs: tuple[int, ...]


def zones(plan: n.Plan) -> tuple[Zone, ...]:
    """The zones of a plan; every node is in exactly one."""
    return _Zones(n.topological(plan)).result()


class _Zones:
    def __init__(self, order: list[n.Node]):
        self._order = order
        self._parent: list[int] = []
        self._zone: dict[n.Node, int] = {}
        self._key: dict[int, tuple[str, ...]] = {}
        self._placed: dict[n.Node, Placement] = {}
        # Ways of rows between zones: to another key, and to where they are read under the key they lie under.
        self._moves: set[tuple[int, int]] = set()
        self._reads: set[tuple[int, int]] = set()
        self._tables: dict[str, int] = {}
        self._arranged: dict[tuple[n.Node, tuple[int, ...]], int] = {}
        for node in order:
            self._place(node)

    def result(self) -> tuple[Zone, ...]:
        members: dict[int, list[n.Node]] = {}
        for node in self._order:
            members.setdefault(self._root(self._zone[node]), []).append(node)
        edges = self._zone_edges()
        ranked: list[int] = []
        waiting = list(members)
        while waiting:  # a zone gets its number once all its inputs have theirs
            ready = next(z for z in waiting if all(a in ranked for a, b in edges if b == z))
            ranked.append(ready)
            waiting.remove(ready)
        number = {zone: i + 1 for i, zone in enumerate(ranked)}
        return tuple(
            Zone(number[z], self._key[z], tuple(members[z]), tuple(sorted(number[a] for a, b in edges if b == z)))
            for z in ranked
        )

    def _place(self, node: n.Node) -> None:
        below = n.inputs(node)
        if isinstance(node, n.DeltaNode):
            self._delta(node)
        elif isinstance(node, (n.SelectionNode, n.ProjectionNode, n.AggregateNode, n.ViewNode)):
            self._stay(node, _passed(node, self._placed[below[0]]))
        elif isinstance(node, n.JoinNode):
            self._join(node)
        elif isinstance(node, n.UnionNode):
            homes = {self._root(self._zone[b]) for b in below}
            if len(homes) == 1:
                self._stay(node, frozenset.intersection(*(self._placed[b] for b in below)))
            else:
                self._start(node, node.key)
        else:
            self._rekey(node, below[0])

    def _delta(self, node: n.DeltaNode) -> None:
        """All readers of one base table read one DELTA, so they are in one zone."""
        home = self._tables.get(node.table)
        if home is None:
            self._start(node, node.key, tuple(f"{node.table}.{node.schema[c].name}" for c in node.key))
            self._tables[node.table] = self._zone[node]
        else:
            self._zone[node] = home
            self._placed[node] = frozenset([node.key])

    def _rekey(self, node: n.Node, below: n.Node) -> None:
        """Index, pre-aggregation, reverse-join, distinct: a new zone, unless the rows lie under that key already or
        another operator over the same rows has begun it. Where a reverse-join belongs is settled by its join."""
        wanted = _wanted(node)
        arranged = self._arranged.get((below, wanted))
        if arranged is not None:
            self._zone[node] = arranged
            self._note_edges(node)
        elif wanted in self._placed[below] and not isinstance(node, n.ReverseJoinNode):
            self._stay(node, self._placed[below])
        else:
            self._start(node, wanted)
        self._arranged[(below, wanted)] = self._zone[node]
        self._placed[node] = frozenset(
            [node.key if isinstance(node, (n.PreAggregationNode, n.DistinctNode)) else wanted]
        )

    def _join(self, node: n.JoinNode) -> None:
        left, right = self._zone[node.left], self._zone[node.right]
        self._merge(left, right)
        for side in (node.left, node.right):
            if side.on in self._placed[side.input]:
                self._merge(self._zone[side.input], self._zone[side])
        later = _path(self._zone_edges(), self._root(left), self._root(right))
        self._zone[node] = right if later else left
        offset = len(node.left.schema)
        placed: set[tuple[int, ...]] = set()
        if node.kind not in (JoinKind.RIGHT, JoinKind.FULL):
            placed.add(node.left.on)
        if node.kind in (JoinKind.RIGHT, JoinKind.INNER):
            placed.add(tuple(c + offset for c in node.right.on))
        self._placed[node] = frozenset(placed)
        self._note_edges(node)

    def _start(self, node: n.Node, key: tuple[int, ...], names: tuple[str, ...] | None = None) -> None:
        zone = len(self._parent)
        self._parent.append(zone)
        over = node.input.schema if isinstance(node, n.PreAggregationNode) else node.schema
        self._key[zone] = tuple(over[c].name for c in key) if names is None else names
        self._zone[node] = zone
        self._placed[node] = frozenset([key])
        self._note_edges(node)

    def _stay(self, node: n.Node, placed: Placement) -> None:
        self._zone[node] = self._zone[n.inputs(node)[0]]
        self._placed[node] = placed
        self._note_edges(node)

    def _note_edges(self, node: n.Node) -> None:
        for below in n.inputs(node):
            settled = isinstance(node, n.ReverseJoinNode) and node.on in self._placed[below]
            edges = self._reads if settled or isinstance(node, n.JoinNode) else self._moves
            edges.add((self._zone[below], self._zone[node]))

    def _root(self, zone: int) -> int:
        while self._parent[zone] != zone:
            zone = self._parent[zone]
        return zone

    def _merge(self, a: int, b: int) -> None:
        """Make one zone of two, unless rows are redistributed between them or come back by way of a third."""
        first, second = sorted((self._root(a), self._root(b)))
        direct = {(first, second), (second, first)}
        others = self._zone_edges() - direct
        if first == second or direct & self._rooted(self._moves):
            return
        if not _path(others, first, second) and not _path(others, second, first):
            self._parent[second] = first

    def _zone_edges(self) -> set[tuple[int, int]]:
        return self._rooted(self._moves) | self._rooted(self._reads)

    def _rooted(self, edges: set[tuple[int, int]]) -> set[tuple[int, int]]:
        found = {(self._root(a), self._root(b)) for a, b in edges}
        return {(a, b) for a, b in found if a != b}


def _path(edges: Iterable[tuple[int, int]], start: int, goal: int) -> bool:
    following: dict[int, list[int]] = {}
    for a, b in edges:
        following.setdefault(a, []).append(b)
    seen, stack = {start}, [start]
    while stack:
        for zone in following.get(stack.pop(), ()):
            if zone == goal:
                return True
            if zone not in seen:
                seen.add(zone)
                stack.append(zone)
    return False


def _wanted(node: n.Node) -> tuple[int, ...]:
    """Columns of the input by which the operator needs its rows spread."""
    if isinstance(node, n.ReverseJoinNode):
        return node.on
    if isinstance(node, n.PreAggregationNode):
        return node.group
    return node.key


def _passed(node: n.SelectionNode | n.ProjectionNode | n.AggregateNode | n.ViewNode, placed: Placement) -> Placement:
    """Where the columns of a placement stand in the output of an operator that moves no rows."""
    if not isinstance(node, n.ProjectionNode):
        return placed  # an aggregate's group columns come first, as in its pre-aggregation
    places = {e.index: i for i, e in reversed(list(enumerate(node.exprs))) if isinstance(e, ColumnRef)}
    return frozenset(tuple(places[c] for c in one) for one in placed if all(c in places for c in one))
