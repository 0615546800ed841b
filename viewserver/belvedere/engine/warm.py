"""Compile every kernel once, on tiny inputs, so that the first real epoch does not wait for the compiler.

Kernels are cached on disk, so this costs seconds on a machine's first start and milliseconds afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from belvedere.engine.kernels import Touched, add_at

STEPS = ("hashing and tables", "aggregates", "expressions", "operators")


def warm(progress: Callable[[str], None] = lambda text: None) -> float:
    """Compile (or load from the cache) everything; `progress` hears what is being done. Returns the seconds taken."""
    from belvedere.engine.expr.warm import warm as warm_expressions
    from belvedere.engine.state.accumulators import warm as warm_accumulators
    from belvedere.engine.state.warm import warm as warm_state

    begin = time.monotonic()
    work = (warm_state, warm_accumulators, warm_expressions, _warm_operators)
    for name, step in zip(STEPS, work, strict=True):
        progress(f"compiling kernels: {name}")
        step()
    return time.monotonic() - begin


def _warm_operators() -> None:
    slots = np.zeros(1, np.int32)
    for counts in (np.zeros(1, np.int64), np.zeros(1, np.int32)):
        add_at(counts, slots, np.ones(1, np.int8))
    Touched().add(slots, 1)
