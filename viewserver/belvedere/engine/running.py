"""An epoch that a shard is in the middle of: what came, what was computed so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belvedere.engine.arrangement import Arrangement
from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.parts import Part
from belvedere.engine.state.delta_table import BaseChange
from belvedere.plan import nodes


@dataclass(slots=True)
class Running:
    """An epoch between `begin` and `finish`."""

    epoch: int
    slices: Mapping[int, tuple[int, int] | tuple[int, int, int]]
    outputs: dict[int, list[Any]]
    """Of each view group the output of every step, by its number."""
    part: Part | None = None
    dormant: frozenset[int] = frozenset()
    stage: int = 0
    base: dict[str, BaseChange] = field(default_factory=dict)
    emitted: dict[tuple[str, tuple[int, ...]], Delta] = field(default_factory=dict)
    hashes: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)
    kept: dict[tuple[int, int], DeltaBuffer] = field(default_factory=dict)
    """Rows on an edge (view group, edge) that stay here."""
    arrived: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """Rows on an edge that others sent for the stage at hand."""

    def emit(self, step: nodes.DeltaNode) -> Delta:
        """What changed in the columns of a base table; computed once for all view groups."""
        key = (step.table, step.columns)
        if key not in self.emitted:
            self.emitted[key] = self.base[step.table].emit(step.columns)[0]
        return self.emitted[key]

    def hashes_of(self, view_group: int, at: int, groups: Arrangement, rows: DeltaBuffer) -> list[np.ndarray]:
        """Key ids of the rows that these groups take in; asked for by the groups, and by those that are joined to
        them."""
        key = (view_group, at)
        if key not in self.hashes:
            self.hashes[key] = groups.hashes(rows)
        return self.hashes[key]
