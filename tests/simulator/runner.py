"""Runs histories: one after the other, or on several processes, and tells what came out of each."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import shlex
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.simulator import bugs
from tests.simulator.history import History, Result
from tests.simulator.oracle import Wrong
from tests.simulator.store import Different
from tests.simulator.trace import Trace


@dataclass(frozen=True)
class Outcome:
    """`wrong`: what broke, empty if nothing did; `judged`: the judge says so, and it is not merely that something
    raised (a member of the cluster, the engine, or a simulator that is out of date)."""

    seed: int
    wrong: str
    judged: bool = False
    epochs: int = 0
    cpu: float = 0.0


def run(seed: int, bug: str | None = None, trace: Trace | None = None, theme: str | None = None) -> Outcome:
    """One history. Whatever a machine or the engine raises is as wrong as what the judge finds."""
    begin = time.process_time()
    wrong, judged = "", False
    result: Result | None = None
    with bugs.switched_on(bug), _garbage_kept():
        try:
            result = History(seed, trace, theme=theme).run()
        except (Wrong, Different) as error:
            wrong, judged = str(error), True
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    return Outcome(seed, wrong, judged, 0 if result is None else result.epochs, time.process_time() - begin)


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """A history makes a few megabytes of garbage and is over; looking for cycles in it all the time costs a sixth."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def run_many(
    first: int, seeds: int, bug: str | None = None, jobs: int = 1, progress: Callable[[Outcome], None] | None = None
) -> Iterator[Outcome]:
    """Those that went wrong, as they are found."""
    with _outcomes(range(first, first + seeds), bug, jobs) as outcomes:
        for outcome in outcomes:
            if progress is not None:
                progress(outcome)
            if outcome.wrong:
                yield outcome


@contextlib.contextmanager
def _outcomes(seeds: range, bug: str | None, jobs: int) -> Iterator[Iterator[Outcome]]:
    if jobs <= 1:
        yield (run(seed, bug) for seed in seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield pool.imap_unordered(_Job(bug), seeds, chunksize=8)


@dataclass(frozen=True)
class _Job:
    bug: str | None

    def __call__(self, seed: int) -> Outcome:
        return run(seed, self.bug)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def replay_command(seed: int, bug: str | None) -> str:
    """From the root of a checkout, on a machine that has nothing else of it."""
    return f"make simulate SEEDS=1 FIRST={seed} TRACE=1" + (f" BUG={shlex.quote(bug)}" if bug else "")
