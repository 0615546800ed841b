"""DELTA: the changes of a base table as a consolidated delta of the columns that a plan needs.

The table itself (`belvedere.engine.state.delta_table`) merges changes by cell timestamp once per epoch for all Delta
operators over it; this operator only picks its columns and drops pairs that do not differ in them.
"""

from __future__ import annotations

from collections.abc import Iterator

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.operators.base import collect
from belvedere.engine.state.delta_table import BaseChange, DeltaTable
from belvedere.plan import nodes
from belvedere.spill import Budget

SCAN_ROWS = 1 << 16


class DeltaOperator:
    def __init__(self, node: nodes.DeltaNode, table: DeltaTable, budget: Budget):
        self._node, self._table, self._budget = node, table, budget

    def apply(self, change: BaseChange) -> DeltaBuffer:
        delta, _ = change.emit(self._node.columns)
        return collect(self._node.schema, self._budget, iter((delta,)))

    def apply_below(self, change: BaseChange, watermark: int) -> DeltaBuffer:
        """Only the changes of slots that a running build has already scanned."""
        delta, slots = change.emit(self._node.columns)
        return collect(self._node.schema, self._budget, iter((delta.filter(slots < watermark),)))

    def current(self) -> Iterator[Delta]:
        start: int | None = 0
        while start is not None:
            delta, start = self._table.scan(start, SCAN_ROWS, self._node.columns)
            if len(delta):
                yield delta

    def end_epoch(self) -> None:
        pass
