"""How things are measured: CPU seconds of the whole process (all threads), alternating contestants, medians of three.

The machines are shared and noisy: only ratios inside one run mean anything, so every scenario returns numbers that were
taken side by side.
"""

from __future__ import annotations

import gc
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Cost:
    """What one run took."""

    cpu: float
    wall: float

    def rate(self, operations: int) -> float:
        """Operations per CPU second."""
        return operations / self.cpu


def measure(run: Callable[[], Any]) -> Cost:
    """Run once, garbage collection kept out of it (it would favour whoever makes fewer objects by chance)."""
    gc.collect()
    gc.disable()
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        return Cost(time.process_time() - cpu, time.perf_counter() - wall)
    finally:
        gc.enable()


def alternate(
    contestants: dict[str, Callable[[], Any]],
    repeats: int = 3,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> dict[str, Cost]:
    """Run the contestants in turn, `repeats` times over after a round that does not count (it loads code and memory);
    the median cost of each. `before` a round and `after` it things are made ready and put away, unmeasured."""
    costs: dict[str, list[Cost]] = {name: [] for name in contestants}
    for number in range(repeats + 1):
        before()
        for name, run in contestants.items():
            cost = measure(run)
            if number:
                costs[name].append(cost)
        after()
    return {
        name: Cost(statistics.median(c.cpu for c in runs), statistics.median(c.wall for c in runs))
        for name, runs in costs.items()
    }


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory for a database, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="belvedere-bench-") as name:
        yield Path(name)


def resident_bytes() -> int:
    """Memory of this process now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


class Stolen:
    """The share of this machine's time that its host gave to others, from the beginning to `share`."""

    def __init__(self) -> None:
        self._begin = self._ticks()

    @staticmethod
    def _ticks() -> list[int]:
        return [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]

    def share(self) -> float:
        passed = [now - then for now, then in zip(self._ticks(), self._begin, strict=True)]
        return passed[7] / max(1, sum(passed))


def machine() -> dict[str, Any]:
    """What the numbers were taken on."""
    return {"cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[0]}


def percentile(values: list[float], q: float) -> float:
    """The value below which the share q of all lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]
