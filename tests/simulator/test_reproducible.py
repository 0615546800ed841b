"""A history is its seed: run again, in another process, with other hashes, it is the same to the last line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

from tests.simulator import runner
from tests.simulator.trace import Trace

SEEDS = range(6)


def _digest() -> str:
    digest = hashlib.sha256()
    for seed in SEEDS:
        trace = Trace(enabled=True)
        runner.run(seed, trace=trace)
        digest.update("\n".join(trace.tail(len(trace.lines))).encode())
    return digest.hexdigest()


def test_the_same_seed_is_the_same_history() -> None:
    assert _digest() == _digest()


def test_the_same_seed_is_the_same_history_in_another_process() -> None:
    program = "from tests.simulator.test_reproducible import _digest; print(_digest())"
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == _digest()
