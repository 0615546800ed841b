"""Threads of a process: one that owns the machine, and workers that do for it what takes time.

    transport, ZooKeeper, workers ──post──▶ Loop ──instructions──▶ Worker ──post──▶ Loop

Whatever happens is a call that is posted to the loop; the machine is touched by nobody else, so it needs no lock.
A worker does its calls one after the other, in order; what a call raises ends the loop, since nobody expected it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Call = Callable[[], None]
T = TypeVar("T")


class Loop:
    """Calls that are posted from any thread, carried out by the thread that is in `run`."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Call] = queue.SimpleQueue()
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self.busy_seconds = 0.0

    def post(self, call: Call) -> None:
        """Never blocks, never raises; after the end of the loop nothing is called any more."""
        self._calls.put(call)

    def stop(self) -> None:
        """The loop returns after the call that runs."""
        self._stopped.set()
        self._calls.put(lambda: None)

    def fail(self, error: BaseException) -> None:
        """The loop raises this."""
        if self._failure is None:
            self._failure = error
        self.stop()

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def run(self, tick: Call, every: float) -> None:
        """Until `stop`; `tick` is called about so often, whatever else there is to do."""
        due = time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            if now >= due:
                tick()
                due = now + every
                self.busy_seconds += time.monotonic() - now
            try:
                call = self._calls.get(timeout=max(due - time.monotonic(), 0.0))
            except queue.Empty:
                continue
            begin = time.monotonic()
            call()
            self.busy_seconds += time.monotonic() - begin
        if self._failure is not None:
            raise self._failure


class Worker:
    """A thread that does calls in the order in which they came."""

    def __init__(self, name: str, failed: Callable[[BaseException], None]) -> None:
        self.busy_seconds = 0.0
        self._failed = failed
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, call: Call) -> None:
        self._calls.put(call)

    def waiting(self) -> int:
        return self._calls.qsize()

    def close(self) -> None:
        """What has not begun is not done. Does not wait for the call that runs."""
        self._closed.set()
        self._calls.put(None)

    def join(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            if self._closed.is_set():
                return
            begin = time.monotonic()
            try:
                call()
            except Exception as error:
                self._failed(error)
            self.busy_seconds += time.monotonic() - begin


class Busy:
    """The share of time in which workers had something to do, since it was asked last."""

    def __init__(self, *workers: Worker) -> None:
        self._workers = workers
        self._seconds, self._at = 0.0, time.monotonic()

    def share(self) -> float:
        now, seconds = time.monotonic(), sum(worker.busy_seconds for worker in self._workers)
        passed = now - self._at
        share = (seconds - self._seconds) / passed if passed > 0 else 0.0
        self._seconds, self._at = seconds, now
        return min(1.0, max(0.0, share))
