"""Compile every kernel before the first row, once per version and CPU, in as many processes as there are cores.

Kernels declare the types of their arguments, so what has to be compiled is known without running anything. The compiler
works on one thread at a time; processes share their work through the cache on disk. A process that finds everything
there loads only what its views use, when they first use it: loading all takes a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from belvedere.engine.state import kernel_cache
from belvedere.engine.state.jit import Kernel

_log = logging.getLogger(__name__)
MOST_PROCESSES = 8
WORKER = "from belvedere.engine.warm import work; work()"


def kernels() -> Iterator[tuple[Kernel, tuple[Any, ...]]]:
    """Every kernel with every combination of types that it declares; those that take longest first."""
    for module in kernel_cache.MODULES:
        yield from _of_module(module)


def _of_module(module: str) -> Iterator[tuple[Kernel, tuple[Any, ...]]]:
    name = f"belvedere.engine.{module}"
    for value in vars(importlib.import_module(name)).values():
        if isinstance(value, Kernel) and value.py_func.__module__ == name:
            yield from ((value, declared) for declared in value.declared)


def compile_kernels(say: Callable[[str], None] = _log.warning) -> None:
    """Compile what is not on disk yet. `say` hears a line when there is something to do, since that takes a while."""
    places = kernel_cache.places()
    if places.complete():
        return
    with _alone():
        if places.complete():  # by the process that was waited for
            return
        if _all_kept():  # what these sources share with others was there already
            kernel_cache.mark_complete()
            return
        processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
        how = f"{processes} process{'es' if processes > 1 else ''}"
        where = (
            places.own if places.lasting else "memory: no cache directory can be written, the next start does it again"
        )
        say(f"compiling kernels, once per version, with {how} (up to a minute), into {where}")
        _compile_beside(processes)
        for kernel, declared in kernels():  # what the other processes left, if one failed
            if not kernel.kept(declared):
                kernel.load(declared)
        if _all_kept():
            kernel_cache.mark_complete()


def _all_kept() -> bool:
    missing = [kernel for kernel, declared in kernels() if not kernel.kept(declared)]
    return not missing


def warm() -> None:
    """Compile what is missing, and load everything: for processes whose first batch must not wait for either."""
    compile_kernels()
    for kernel, declared in kernels():
        kernel.load(declared)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One process at a time compiles into a directory; the others wait, and find everything done."""
    with open(kernel_cache.places().own / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile_beside(processes: int) -> None:
    """Deal the modules out to other processes. They only save time: what they leave is compiled here."""
    waiting = deque(kernel_cache.MODULES)
    threads = [threading.Thread(target=_deal, args=(waiting,), daemon=True) for _ in range(processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _deal(waiting: deque[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "NUMBA_CACHE_DIR": str(kernel_cache.places().base),
    }
    with (
        contextlib.suppress(OSError, IndexError),
        subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        ) as worker,
    ):
        assert worker.stdin is not None and worker.stdout is not None
        while True:
            module = waiting.popleft()
            worker.stdin.write(f"{module}\n")
            if not worker.stdout.readline():
                return  # it died


def work() -> None:
    """A process beside: compiles the modules whose names it is given, until its parent has no more, or is gone."""
    for line in sys.stdin:
        for kernel, declared in _of_module(line.strip()):
            kernel.compile(declared)
        sys.stdout.write(line)
        sys.stdout.flush()
