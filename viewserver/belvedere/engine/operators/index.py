"""Index: the same rows under another identity, the hash of the chosen key columns."""

from __future__ import annotations

from collections.abc import Iterator

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.operators.base import collect
from belvedere.engine.state.hashing import hash_rows
from belvedere.plan import nodes
from belvedere.spill import Budget


class IndexOperator:
    def __init__(self, node: nodes.IndexNode, budget: Budget):
        self._node, self._budget = node, budget

    def apply(self, rows: DeltaBuffer) -> DeltaBuffer:
        return collect(self._node.schema, self._budget, map(self._rekey, rows))

    def current(self, rows: Iterator[Delta]) -> Iterator[Delta]:
        return map(self._rekey, rows)

    def end_epoch(self) -> None:
        pass

    def _rekey(self, delta: Delta) -> Delta:
        ids = hash_rows([delta.columns[i] for i in self._node.key], len(delta))
        return Delta(delta.columns, delta.weight, ids, delta.error)
