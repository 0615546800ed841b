"""Selection: rows whose predicate is TRUE. A predicate that fails leaves membership open: the row passes with a row
error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.expr.evaluate import evaluate
from belvedere.engine.operators.base import collect
from belvedere.engine.vec import Status
from belvedere.plan import nodes
from belvedere.spill import Budget


class SelectionOperator:
    def __init__(self, node: nodes.SelectionNode, budget: Budget):
        self._node, self._budget = node, budget

    def apply(self, rows: DeltaBuffer) -> DeltaBuffer:
        return collect(self._node.schema, self._budget, map(self._select, rows))

    def current(self, rows: Iterator[Delta]) -> Iterator[Delta]:
        return map(self._select, rows)

    def end_epoch(self) -> None:
        pass

    def _select(self, delta: Delta) -> Delta:
        verdict = evaluate(self._node.predicate, delta.columns, len(delta))
        status = verdict.status
        if status is None:
            return delta.filter(verdict.data)
        failed = status > Status.VALUE
        keep = (verdict.data & (status == Status.VALUE)) | failed
        out = delta.filter(keep)
        if failed.any():
            codes = np.where(failed, status, Status.VALUE).astype(np.uint8)[keep]
            out.error = codes if out.error is None else np.maximum(codes, out.error)
        return out
