"""What subscribers get."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.model.token import Token


@dataclass(frozen=True, slots=True)
class ViewChange:
    """What one epoch did to a view: rows (its visible columns) with weights, +1 it appeared, -1 it disappeared."""

    epoch: int
    table: pa.Table
    weights: np.ndarray

    @property
    def token(self) -> Token:
        """Subscribing after it goes on with the next change."""
        return Token(self.epoch)

    @property
    def added(self) -> pa.Table:
        return self.table.filter(pa.array(self.weights > 0))

    @property
    def removed(self) -> pa.Table:
        return self.table.filter(pa.array(self.weights < 0))

    def __len__(self) -> int:
        return len(self.weights)
