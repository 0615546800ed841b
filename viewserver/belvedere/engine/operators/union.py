"""Union: the rows of all inputs, kept apart by their branch number."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.operators.base import collect
from belvedere.engine.state.hashing import combine, constant_id
from belvedere.plan import nodes
from belvedere.spill import Budget


class UnionOperator:
    def __init__(self, node: nodes.UnionNode, budget: Budget):
        self._node, self._budget = node, budget

    def apply(self, *inputs: DeltaBuffer) -> DeltaBuffer:
        return collect(self._node.schema, self._budget, self.current(*map(iter, inputs)))

    def current(self, *inputs: Iterator[Delta]) -> Iterator[Delta]:
        for branch, rows in enumerate(inputs):
            tag = constant_id(branch)
            for delta in rows:
                ids = combine(np.broadcast_to(tag, delta.id.shape), delta.id)
                yield Delta(delta.columns, delta.weight, ids, delta.error)

    def end_epoch(self) -> None:
        pass
