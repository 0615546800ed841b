"""View: the sink. Rows that carry an error leave the stream into quarantine, with the column and the reason; what
passes is what readers of the view, and the views over it, see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.vec import Status
from belvedere.plan import nodes
from belvedere.spill import Budget


@dataclass(slots=True)
class Quarantined:
    """Rows that entered (+1) or left (-1) quarantine; `column` is the position of the failing one (-1: the row itself,
    a condition that failed), `code` its Status."""

    delta: Delta
    column: np.ndarray
    code: np.ndarray


@dataclass(slots=True)
class ViewDelta:
    """What an epoch did to a view. `chunks` can be iterated again and again until it is closed."""

    chunks: DeltaBuffer
    quarantine: list[Quarantined] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return self.chunks.rows


class ViewOperator:
    def __init__(self, node: nodes.ViewNode, budget: Budget):
        self._node, self._budget = node, budget

    def apply(self, rows: DeltaBuffer) -> ViewDelta:
        out = ViewDelta(DeltaBuffer(self._node.schema, self._budget))
        for delta in rows:
            clean, bad = _split(delta)
            out.chunks.append(clean)
            if bad is not None:
                out.quarantine.append(bad)
        return out

    def current(self, rows: Iterator[Delta]) -> Iterator[Delta]:
        for delta in rows:
            yield _split(delta)[0]

    def end_epoch(self) -> None:
        pass


def _split(delta: Delta) -> tuple[Delta, Quarantined | None]:
    column = np.full(len(delta), -2, np.int32)
    code = np.ones(len(delta), np.uint8)
    found = False
    for i, vec in enumerate(delta.columns):
        errors = vec.errors
        if errors is not None and vec.status is not None:
            fresh = errors & (column == -2)
            column[fresh] = i
            code[fresh] = vec.status[fresh]
            found = True
    if delta.error is not None:
        failed = delta.error > Status.VALUE
        if failed.any():
            column[failed] = -1
            code[failed] = delta.error[failed]
            found = True
    if not found:
        return Delta(delta.columns, delta.weight, delta.id, paired=delta.paired), None
    bad = column != -2
    clean = delta.filter(~bad)
    clean.error = None
    return clean, Quarantined(delta.filter(bad), column[bad], code[bad])
