"""The maintenance plan: a DAG of small operators, each of which maps deltas to deltas.

Nodes are frozen and compare by structure, so equal subplans of different views are one subplan once interned. Every
node has a `schema`, and a `key`: positions of output columns whose values identify a row (a relation never holds two
rows with one key, so views stay bags by carrying hidden key columns, and every row has an identity: a 128-bit id).

How ids are made (the engine must follow it):

    Delta               hash of the primary key columns
    Selection, Projection   the input's id
    Index               hash of the columns `key` of its output
    PreAggregation, Aggregate, Distinct   hash of the group (all) columns
    Join                identity PAIR: combine(left id, right id), NIL for a missing side; LEFT / RIGHT: that side's id
    Union               combine(branch number, id)

State nodes: Delta (one table DELTA for each base table, shared by every Delta node over it), PreAggregation,
ReverseJoin (the rows of one input under one key: shared by all joins that read that input under that key) and View. A
PreAggregation and a ReverseJoin over the same input and key share one group index (`arrangement`).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, dataclass_transform

from belvedere.sql.expr import Expr
from belvedere.sql.query import JoinKind
from belvedere.types import Schema, Type

_T = TypeVar("_T")


def kind_of(cls: type) -> str:
    """The name of a kind of node in files, digests and texts, where "Node" says nothing."""
    return cls.__name__.removesuffix("Node")


@dataclass_transform(frozen_default=True)
def _node(cls: type[_T]) -> type[_T]:
    """A frozen dataclass that computes its hash once and prints itself without what is below: else every lookup or
    message would walk the whole DAG, shared parts once per path."""
    made: Any = dataclass(frozen=True, repr=False)(cls)
    structural = made.__hash__

    def cached(self: Any) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = structural(self)
            self.__dict__["_hash"] = known
        return known

    def state(self: Any) -> dict[str, Any]:
        # Hashes of strings differ between processes, so a pickled node must not carry its own.
        return {k: v for k, v in self.__dict__.items() if k != "_hash"}

    def brief(self: Any) -> str:
        name = getattr(self, "name", None) or getattr(self, "table", None)
        return f"{kind_of(cls)}({f'{name}: ' if name else ''}{', '.join(c.name for c in self.schema)})"

    made.__repr__ = brief
    made.__hash__ = cached
    made.__getstate__ = state
    return made  # type: ignore[no-any-return]  # the decorated class itself


@_node
class DeltaNode:
    """Changes of a base table, reduced to the columns at `columns` (positions in the table; always with its key).

    Pairs (-1 old, +1 new) which do not differ in these columns are not emitted."""

    table: str
    columns: tuple[int, ...]
    schema: Schema
    key: tuple[int, ...]


@_node
class SelectionNode:
    """Rows for which the predicate is TRUE. A row whose predicate fails passes with a row error."""

    input: Node
    predicate: Expr

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def key(self) -> tuple[int, ...]:
        return self.input.key


@_node
class ProjectionNode:
    """One expression per output column; the key columns of the input are always among the outputs, as plain references.
    Only below a Distinct may they be missing: then `key` is empty and rows are told apart by their ids alone."""

    input: Node
    exprs: tuple[Expr, ...]
    schema: Schema
    key: tuple[int, ...]


@_node
class IndexNode:
    """Re-key: the same rows under another identity. Redistributes, so a new zone begins."""

    input: Node
    key: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class AggregateTerm:
    """One aggregate: count, sum, min, max, avg. Columns are positions in the input; `arg` None only for count(*)."""

    function: str
    arg: int | None
    type: Type
    distinct: bool = False
    filter: int | None = None


@_node
class PreAggregationNode:
    """State of every aggregate over one key of one input. Output: group columns, then one column per call.

    `group` empty: a global aggregate, whose single row always exists (id = hash of no columns)."""

    input: Node
    group: tuple[int, ...]
    calls: tuple[AggregateTerm, ...]
    schema: Schema

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(range(len(self.group)))


@_node
class AggregateNode:
    """The calls of a shared PreAggregation that one query needs: group columns, then `calls` (positions among its
    calls). Pairs which do not differ in these are not passed on."""

    input: PreAggregationNode
    calls: tuple[int, ...]
    schema: Schema

    @property
    def key(self) -> tuple[int, ...]:
        return self.input.key


@_node
class ReverseJoinNode:
    """The rows of one input under a join key. `on`: positions of the key columns. Output: the input's delta,
    unchanged."""

    input: Node
    on: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def key(self) -> tuple[int, ...]:
        return self.input.key


class Identity(enum.Enum):
    """What identifies a row of a join: both rows, or one side where the other matches at most once."""

    PAIR = "pair"
    LEFT = "left"
    RIGHT = "right"


@_node
class JoinNode:
    """Rows of two reverse-joins whose keys are equal (NULL never is) and whose `residual` (over left then right
    columns) is TRUE. LEFT, RIGHT, FULL pad with NULLs; SEMI and ANTI output left columns only. Key types of both sides
    are equal."""

    left: ReverseJoinNode
    right: ReverseJoinNode
    kind: JoinKind
    residual: Expr | None
    identity: Identity
    schema: Schema
    key: tuple[int, ...]


@_node
class DistinctNode:
    """Rows without repetition: every column is the key."""

    input: Node

    @property
    def schema(self) -> Schema:
        return self.input.schema

    @property
    def key(self) -> tuple[int, ...]:
        return tuple(range(len(self.input.schema)))


@_node
class UnionNode:
    """Rows of all inputs; the last column of every input is its branch number, part of the key (a Projection below
    makes it)."""

    inputs: tuple[Node, ...]
    schema: Schema
    key: tuple[int, ...]


@_node
class ViewNode:
    """The sink: rows of `name`. `visible` columns come first in the schema, in SELECT order, hidden key columns after
    them. The input's id is already the hash of the key columns in order `key` (else an Index stands below). Rows with
    an error go to quarantine; what passes is what readers see, and what views over this view consume: a View is also an
    input."""

    name: str
    version: int
    input: Node
    visible: int
    key: tuple[int, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


Node = (
    DeltaNode
    | SelectionNode
    | ProjectionNode
    | IndexNode
    | PreAggregationNode
    | AggregateNode
    | ReverseJoinNode
    | JoinNode
    | DistinctNode
    | UnionNode
    | ViewNode
)


@dataclass(frozen=True)
class Plan:
    """All views of a pool, over shared nodes."""

    views: tuple[ViewNode, ...]


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes directly below."""
    if isinstance(node, DeltaNode):
        return ()
    if isinstance(node, JoinNode):
        return (node.left, node.right)
    if isinstance(node, UnionNode):
        return node.inputs
    return (node.input,)


def topological(plan: Plan) -> list[Node]:
    """Every distinct node once, inputs before their consumers, in a deterministic order."""
    done: dict[Node, None] = {}
    visit(plan.views, done)
    return list(done)


def visit(views: Iterable[ViewNode], done: dict[Node, None]) -> None:
    """Add every distinct node of these views that is not `done` yet, inputs before their consumers."""
    for view in views:
        stack: list[tuple[Node, bool]] = [(view, False)]
        while stack:  # not recursive: views over views make deep plans
            node, ready = stack.pop()
            if ready:
                done[node] = None
            elif node not in done:
                stack.append((node, True))
                stack.extend((below, False) for below in reversed(inputs(node)) if below not in done)
