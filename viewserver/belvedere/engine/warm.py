"""Compile every kernel once, on tiny inputs, so that the first real epoch does not wait for the compiler.

Kernels are cached on disk, so this costs seconds on a machine's first start and milliseconds afterwards. The compiler
works on one thread at a time, so a second process compiles the aggregates meanwhile and leaves them in the cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from belvedere.engine.kernels import Touched, add_at, order_by_slot

BESIDE = "from belvedere.engine.state.accumulators import warm; warm()"


def warm_alone() -> None:
    """The same without the second process, which costs more than it saves where everything is in the cache."""
    from belvedere.engine.expr.warm import warm as warm_expressions
    from belvedere.engine.state.accumulators import warm as warm_accumulators
    from belvedere.engine.state.warm import warm as warm_state

    warm_state()
    warm_expressions()
    _warm_operators()
    warm_accumulators()


def warm(progress: Callable[[str], None] = lambda text: None) -> float:
    """Compile (or load from the cache) everything; `progress` hears what is being done. Returns the seconds taken."""
    from belvedere.engine.expr.warm import warm as warm_expressions
    from belvedere.engine.state.accumulators import warm as warm_accumulators
    from belvedere.engine.state.warm import warm as warm_state

    begin = time.monotonic()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    # It only saves time: if it fails, the last step compiles what is missing.
    beside = subprocess.Popen([sys.executable, "-c", BESIDE], env=environment, stderr=subprocess.DEVNULL)
    try:
        progress("compiling kernels: hashing and tables")
        warm_state()
        progress("compiling kernels: expressions")
        warm_expressions()
        _warm_operators()
        progress("compiling kernels: aggregates")
    finally:
        beside.wait()
    warm_accumulators()
    return time.monotonic() - begin


def _warm_operators() -> None:
    slots = np.zeros(1, np.int32)
    for counts in (np.zeros(1, np.int64), np.zeros(1, np.int32)):
        add_at(counts, slots, np.ones(1, np.int8))
    Touched().add(slots, 1)
    order_by_slot(slots, np.zeros(2, np.int32), np.empty(1, np.int32))
