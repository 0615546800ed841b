"""An epoch that a shard is in the middle of: what came, what was computed so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta
from belvedere.engine.state.delta_table import BaseChange


@dataclass(slots=True)
class Running:
    """An epoch between `begin` and `finish`."""

    epoch: int
    slices: Mapping[int, tuple[int, int]]
    outputs: dict[int, list[Any]]
    """Of each circuit the output of every step, by its number."""
    stage: int = 0
    base: dict[str, BaseChange] = field(default_factory=dict)
    emitted: dict[tuple[str, tuple[int, ...]], Delta] = field(default_factory=dict)
    hashes: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)
    kept: dict[tuple[int, int], DeltaBuffer] = field(default_factory=dict)
    """Rows on an edge (circuit, edge) that stay here."""
    arrived: dict[tuple[int, int], list[bytes]] = field(default_factory=dict)
    """Rows on an edge that others sent for the stage at hand."""
