"""Projection: one expression per output column. Rows keep their identity."""

from __future__ import annotations

from collections.abc import Iterator

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.expr.evaluate import compile_exprs
from belvedere.engine.operators.base import collect
from belvedere.plan import nodes
from belvedere.spill import Budget


class ProjectionOperator:
    def __init__(self, node: nodes.ProjectionNode, budget: Budget):
        self._node, self._budget = node, budget
        self._program = compile_exprs(node.exprs)

    def apply(self, rows: DeltaBuffer) -> DeltaBuffer:
        return collect(self._node.schema, self._budget, map(self._project, rows))

    def current(self, rows: Iterator[Delta]) -> Iterator[Delta]:
        return map(self._project, rows)

    def end_epoch(self) -> None:
        pass

    def _project(self, delta: Delta) -> Delta:
        columns = self._program.run(delta.columns, len(delta))
        return Delta(columns, delta.weight, delta.id, delta.error, delta.paired)
