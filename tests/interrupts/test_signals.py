"""The same with real signals: handlers raise where the interpreter lets them, and threads raise in others."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import belvedere
from tests.interrupts.injecting import Injected
from tests.interrupts.storm import PATIENCE, Storm

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
LONGEST = 0.004


class Timed:
    """Interrupts the calling thread a random, short time after a call began, if it is not over by then."""

    def __init__(self, seed: int, strike: Callable[[int], None]):
        self._random, self._strike = random.Random(seed), strike
        self._thread = threading.get_ident()
        self.armed = False
        self._wanted: list[float] = []
        self._begin, self._over = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._begin.acquire()
            delay = self._wanted.pop()
            if delay < 0:
                return
            threading.Event().wait(delay)
            if self.armed:
                self._strike(self._thread)
            self._over.release()

    def __call__(self, name: str, call: Callable[[], Any]) -> Any:
        self._wanted.append(self._random.random() ** 2 * LONGEST)
        try:
            self.armed = True
            self._begin.release()
            out = call()
            self.armed = False
            return out
        finally:
            self._settle()

    def _settle(self) -> None:
        """Whatever still comes comes here."""
        while True:
            try:
                self.armed = False
                self._over.acquire()
                for _ in range(100):
                    pass  # loops go back: what is pending is raised
                return
            except Injected:
                self._over.release()

    def end(self) -> None:
        self._wanted.append(-1.0)
        self._begin.release()


def by_signal(thread: int) -> None:
    signal.pthread_kill(thread, signal.SIGUSR1)


def by_thread(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(Injected))


@pytest.fixture
def handler() -> Iterator[None]:
    def strike(number: int, frame: Any) -> None:
        raise Injected("a signal")

    before = signal.signal(signal.SIGUSR1, strike)
    yield
    signal.signal(signal.SIGUSR1, before)


def storm(path: Path, seed: int, strike: Callable[[int], None], steps: int) -> int:
    interrupt = Timed(seed, strike)
    made = Storm(path, seed, interrupt)
    for _ in range(steps):
        made.step()
    made.end()
    interrupt.end()
    return sum(made.interrupted.values())


@pytest.mark.long  # beside other tests of one process it has hung, and ended the process: not understood yet
@pytest.mark.parametrize("strike", [by_signal, by_thread])
def test_an_interrupt_at_any_time_leaves_a_database_that_works(tmp_path: Path, handler: None, strike: Any) -> None:
    assert storm(tmp_path, 1, strike, 100) > 10


@pytest.mark.long
@pytest.mark.parametrize("strike", [by_signal, by_thread])
@pytest.mark.parametrize("seed", range(100, 105))
def test_thousands_of_interrupts_at_random_times(tmp_path: Path, handler: None, strike: Any, seed: int) -> None:
    assert storm(tmp_path, seed, strike, 1000) > 200


SCRIPT = """
import sys, belvedere
db = belvedere.open(sys.argv[1])
db.execute("CREATE TABLE t (id BIGINT, v BIGINT, PRIMARY KEY (id))")
n = interrupts = 0
while interrupts < 20:
    try:
        print("writing", flush=True)
        while True:
            db.put("t", [{"id": n, "v": 1}], timeout=10)
            n += 1
    except KeyboardInterrupt:
        interrupts += 1
db.close()
print(n, flush=True)
"""


def test_ctrl_c_during_put_does_not_wedge_the_database(tmp_path: Path) -> None:
    path = str(tmp_path / "db")
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, path], stdout=subprocess.PIPE, text=True, env={**os.environ}
    )
    assert process.stdout is not None
    for _ in range(20):
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGINT)
    acknowledged = int(process.stdout.readline())
    assert process.wait(PATIENCE) == 0
    process.stdout.close()
    with belvedere.open(path) as db:
        found = db.scan("t").num_rows
    # the one that was interrupted may be there: it is the next one that is written again
    assert found in (acknowledged, acknowledged + 1)
