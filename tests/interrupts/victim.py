"""A process whose main thread is interrupted at random times, by signals or by another thread: run by `test_signals`.

It is a process of its own because an interrupt that comes a moment late must not meet the one that runs the tests, and
because `threading.Condition` and `Semaphore`, of which everything there is full, do not survive interrupts: one behind
the acquisition of their lock leaves it taken. What tells this process when an interrupt is over is in
`belvedere.waiting`.

    python -m tests.interrupts.victim DIRECTORY {signal,thread} SEED STEPS SECONDS

prints how many calls were interrupted. After so many seconds it prints what all threads do, and ends.
"""

from __future__ import annotations

import ctypes
import faulthandler
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from belvedere.waiting import Waiters
from tests.interrupts.injecting import Injected
from tests.interrupts.storm import Storm

LONGEST = 0.004


class Timed:
    """Interrupts the main thread a random, short time after a call began, once, if the call is not over by then."""

    def __init__(self, seed: int, by_signal: bool):
        self._random, self._by_signal = random.Random(seed), by_signal
        self._thread = threading.get_ident()
        self._wanted: SimpleQueue[tuple[int, float]] = SimpleQueue()
        self._call = self._armed = self._over = 0
        self._sent = self._arrived = 0
        self._changed = Waiters()
        signal.signal(signal.SIGUSR1, self._arrive)
        threading.Thread(target=self._run, daemon=True).start()

    def _arrive(self, number: int, frame: Any) -> None:
        self._arrived += 1
        raise Injected("a signal")

    def _run(self) -> None:
        while True:
            call, delay = self._wanted.get()
            threading.Event().wait(delay)
            if self._armed == call:
                self._strike()
            self._over = call
            self._changed.notify()

    def _strike(self) -> None:
        if self._by_signal:
            self._sent += 1
            signal.pthread_kill(self._thread, signal.SIGUSR1)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(Injected))

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        self._call += 1
        self._armed = self._call
        self._wanted.put((self._call, self._random.random() ** 2 * LONGEST))
        try:
            return call()
        finally:
            self._settle()

    def _settle(self) -> None:
        """Returns when no interrupt can come any more. One that still comes is raised here, and there is only one."""
        self._armed = 0
        self._changed.wait_for(lambda: self._over == self._call)
        while self._sent != self._arrived:
            # a signal that comes just before the wait begins does not end it
            self._changed.wait_for(lambda: self._sent == self._arrived, 0.01)


def main() -> None:
    path, kind, seed, steps, seconds = sys.argv[1:]
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    faulthandler.enable()
    made = Storm(Path(path), int(seed), Timed(int(seed), kind == "signal"))
    for _ in range(int(steps)):
        made.step()
    made.end()
    print(sum(made.interrupted.values()), flush=True)


if __name__ == "__main__":
    main()
