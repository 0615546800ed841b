"""From plan nodes to running operators: which tasks there are, what feeds what, and in which order they run.

A task is a plan node, or the `Arranged` groups that several state nodes share. Tasks of one level do not depend on each
other and run on threads when there is enough to do (kernels release the GIL).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

import numpy as np

from belvedere.engine.arrangement import Arrangement, Grouping
from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.operators.aggregate import AggregateOperator
from belvedere.engine.operators.delta import DeltaOperator
from belvedere.engine.operators.index import IndexOperator
from belvedere.engine.operators.join import JoinOperator
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.projection import ProjectionOperator
from belvedere.engine.operators.reverse_join import ReverseJoinOperator, Sided
from belvedere.engine.operators.selection import SelectionOperator
from belvedere.engine.operators.union import UnionOperator
from belvedere.engine.operators.view import ViewDelta, ViewOperator
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.plan import nodes
from belvedere.spill import Budget
from belvedere.sql.expr import Expr
from belvedere.sql.query import JoinKind
from belvedere.sql.registry import fallible


@dataclass(frozen=True)
class Arranged:
    """The groups of an input under one key."""

    input: nodes.Node
    on: tuple[int, ...]


@dataclass(frozen=True)
class Grouped:
    """The group values behind a DISTINCT (for an Aggregate they are the PreAggregation node below it)."""

    node: nodes.DistinctNode


Task = nodes.Node | Arranged | Grouped


def feeds(task: Task) -> tuple[Task, ...]:
    """The tasks whose outputs this one takes, in the order of `Operator.apply`'s arguments."""
    if isinstance(task, Arranged):
        return (task.input,)
    if isinstance(task, nodes.PreAggregationNode):
        return (Arranged(task.input, task.group),)
    if isinstance(task, nodes.ReverseJoinNode):
        return (Arranged(task.input, task.on),)
    if isinstance(task, nodes.DistinctNode):
        return (Grouped(task),)
    if isinstance(task, Grouped):
        return (Arranged(task.node.input, task.node.key),)
    return nodes.inputs(task)


def ordered(views: Iterable[nodes.ViewNode]) -> list[Task]:
    """Every task once, after those that feed it."""
    return list(Layout(views).depth)


class Layout:
    """The tasks of views, each after those that feed it, and by depth. Views that are added cost no more than what is
    new about them."""

    def __init__(self, views: Iterable[nodes.ViewNode] = ()) -> None:
        self.views: list[nodes.ViewNode] = []
        self.depth: dict[Task, int] = {}
        self.levels: list[list[Task]] = []
        self.add(views)

    def add(self, views: Iterable[nodes.ViewNode]) -> list[Task]:
        """Returns the tasks that came with them."""
        known = len(self.depth)
        for view in views:
            self._visit(view)
            self.views.append(view)
        return list(islice(self.depth, known, None))

    def _visit(self, task: Task) -> None:
        if task in self.depth:
            return
        below = feeds(task)
        for one in below:
            self._visit(one)
        own = max((self.depth[one] + 1 for one in below), default=0)
        self.depth[task] = own
        while len(self.levels) <= own:
            self.levels.append([])
        self.levels[own].append(task)


def make(task: Task, name: str, running: Mapping[Any, Any], tables: Mapping[str, DeltaTable], budget: Budget) -> Any:
    """The operator of a task; those that feed it are running already. `name` is the task's digest."""
    match task:
        case Arranged():
            return Arrangement(task.input.schema, task.on)
        case Grouped():
            return PreAggregationOperator(task.node, running[feeds(task)[0]], name)
        case nodes.DeltaNode():
            return DeltaOperator(task, tables[task.table], budget)
        case nodes.SelectionNode():
            return SelectionOperator(task, budget)
        case nodes.ProjectionNode():
            return ProjectionOperator(task, budget)
        case nodes.IndexNode():
            return IndexOperator(task, budget)
        case nodes.PreAggregationNode():
            return PreAggregationOperator(task, running[feeds(task)[0]], name)
        case nodes.AggregateNode() | nodes.DistinctNode():
            return AggregateOperator(task, budget)
        case nodes.ReverseJoinNode():
            return ReverseJoinOperator(task, running[feeds(task)[0]], name)
        case nodes.JoinNode():
            half = task.kind in (JoinKind.SEMI, JoinKind.ANTI)
            return JoinOperator(
                task, running[task.left], running[task.right], budget, half and may_fail(task.right), name
            )
        case nodes.UnionNode():
            return UnionOperator(task, budget)
        case nodes.ViewNode():
            return ViewOperator(task, budget)


def apply_task(task: Task, operator: Any, inputs: list[Any], budget: Budget) -> Any:
    """Run a task on what its feeds gave; None if that is nothing."""
    if all(is_empty(i) for i in inputs):
        return None
    if isinstance(task, nodes.JoinNode):
        left, right = inputs
        inputs = [
            _unchanged(task.left, budget) if left is None else left,
            _unchanged(task.right, budget) if right is None else right,
        ]
    elif isinstance(task, nodes.UnionNode):
        inputs = [DeltaBuffer(task.schema, budget) if i is None else i for i in inputs]
    return operator.apply(*(i.chunks if isinstance(i, ViewDelta) else i for i in inputs))


def _unchanged(task: nodes.ReverseJoinNode, budget: Budget) -> Sided:
    """The output of a reverse-join in which nothing changed."""
    return Sided(Grouping(DeltaBuffer(task.schema, budget), []), [], np.empty(0, np.int32))


def is_empty(output: Any) -> bool:
    """Whether an output has nothing that could change anything."""
    if output is None:
        return True
    if isinstance(output, (DeltaBuffer, ViewDelta)):
        return output.rows == 0
    return isinstance(output, Sided) and not output.slots


def may_fail(node: nodes.Node) -> bool:
    """Whether a row below can carry a row error: a condition that is able to fail."""
    if isinstance(node, nodes.ViewNode):
        return False  # what leaves a view is clean
    condition: Expr | None = None
    if isinstance(node, nodes.SelectionNode):
        condition = node.predicate
    elif isinstance(node, nodes.JoinNode):
        condition = node.residual
        if any(columns_may_fail(side.input) for side in (node.left, node.right)):
            return True
    if condition is not None and fallible(condition):
        return True
    if condition is not None and any(columns_may_fail(n) for n in nodes.inputs(node)):
        return True
    return any(may_fail(n) for n in nodes.inputs(node))


def columns_may_fail(node: nodes.Node) -> bool:
    """Whether columns below are computed by something that can fail (an aggregate's sum can overflow)."""
    if isinstance(node, nodes.ViewNode):
        return False
    if isinstance(node, nodes.PreAggregationNode):
        return True
    if isinstance(node, nodes.ProjectionNode) and any(map(fallible, node.exprs)):
        return True
    return any(columns_may_fail(n) for n in nodes.inputs(node))


def digest(task: Task, memo: dict[Task, str]) -> str:
    """A name for a task that depends on its whole structure, the same in every process."""
    known = memo.get(task)
    if known is None:
        parts = [nodes.kind_of(type(task))]
        for field in fields(task):
            value = getattr(task, field.name)
            parts.append(f"{field.name}={_text(value, memo)}")
        known = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        memo[task] = known
    return known


_NODE_TYPES = (*nodes.Node.__args__, Arranged, Grouped)


def _text(value: object, memo: dict[Task, str]) -> str:
    if isinstance(value, _NODE_TYPES):
        return digest(value, memo)
    if isinstance(value, tuple):
        return "(" + ",".join(_text(v, memo) for v in value) + ")"
    return repr(value)


def weight(operator: Any) -> float:
    """Bytes of an operator's state, roughly: its memory, as far as keys that are held use it."""
    if isinstance(operator, Arrangement):
        return operator.nbytes() * len(operator.index) / max(1, operator.index.limit)
    if isinstance(operator, ReverseJoinOperator):
        size = operator.size().bytes + sum(rider.values.nbytes for rider in operator.riders)
        return size * len(operator.index) / max(1, operator.index.limit)
    if isinstance(operator, PreAggregationOperator):
        groups = operator.arrangement.index
        # Not `size`, which goes through all groups to count their rows.
        size = operator.accumulators.nbytes() + operator._last.nbytes()
        return size * len(groups) / max(1, groups.limit)
    return 0.0
