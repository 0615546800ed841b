"""Aggregate and Distinct: what one query needs of a PRE-AGGREGATION, as a delta without the pairs that did not
change."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.operators.base import collect, differs
from belvedere.engine.operators.pre_aggregation import Paired
from belvedere.engine.vec import Vec, concat
from belvedere.plan import nodes
from belvedere.spill import Budget


class AggregateOperator:
    def __init__(self, node: nodes.AggregateNode | nodes.DistinctNode, budget: Budget):
        self._schema, self._budget = node.schema, budget
        self._calls = node.calls if isinstance(node, nodes.AggregateNode) else ()

    def apply(self, groups: Paired | None) -> DeltaBuffer:
        deltas = iter(()) if groups is None else iter((self._delta(groups),))
        return collect(self._schema, self._budget, deltas)

    def current(self, groups: Iterator[Paired]) -> Iterator[Delta]:
        return map(self._delta, groups)

    def end_epoch(self) -> None:
        pass

    def _delta(self, p: Paired) -> Delta:
        changed = p.had != p.has
        both = p.had & p.has
        if both.any():
            different = np.zeros(len(both), np.bool_)
            for call in self._calls:
                different |= differs(p.old[call], p.new[call])
            if p.old_error is not None or p.new_error is not None:
                old = 1 if p.old_error is None else p.old_error
                new = 1 if p.new_error is None else p.new_error
                different |= old != new
            changed |= both & different
        gone, come = np.flatnonzero(p.had & changed), np.flatnonzero(p.has & changed)
        rows = np.concatenate((gone, come))
        columns: list[Vec] = [c.take(rows) for c in p.group]
        columns += [concat([p.old[i].take(gone), p.new[i].take(come)]) for i in self._calls]
        error = None
        if p.old_error is not None or p.new_error is not None:
            error = np.ones(len(rows), np.uint8)
            if p.old_error is not None:
                error[: len(gone)] = p.old_error[gone]
            if p.new_error is not None:
                error[len(gone) :] = p.new_error[come]
        weight = np.ones(len(rows), np.int8)
        weight[: len(gone)] = -1
        paired = np.zeros(len(rows), np.bool_)
        paired[: len(gone)] = p.has[gone]
        return Delta(tuple(columns), weight, p.ids[rows], error, paired)
