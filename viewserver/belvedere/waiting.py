"""Waiting that an interrupt may end at any moment, and threads that no interrupt can tear.

Python raises KeyboardInterrupt, and exceptions that other threads set, between two bytecodes of a user's thread: also
inside `threading.Condition`, `Event` and `Thread.start`, which are written in Python. There it leaves a lock taken
that nobody gives back, and whoever wants to wake the waiter hangs. What is here needs no such lock: one thread waits
on a lock of its own, and what others see of it changes in single C calls. A waiter that disappears leaves at most an
object that the next wake-up removes.

A plain lock is safe in `with`: the interpreter looks for interrupts after calls, at the start of functions and where
loops go back, and none of these lies between the end of the block and the release.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BEGIN_SECONDS = 0.1
"""After so long without a sign of life, a thread is started a second time. The later one of the two does nothing."""


class Latch:
    """Opened once, by one thread; waited for by one other."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def open(self) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Until it is open; false if that took too long. To be called until it was true, not again."""
        return self._lock.acquire(timeout=_bounded(timeout))


class Wakeup:
    """Wakes the one thread that waits for it; calls before it waits count as one."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        try:
            self._lock.release()
        except RuntimeError:
            return  # it is set already

    def wait(self, timeout: float | None = None) -> None:
        self._lock.acquire(timeout=_bounded(timeout))


class Waiters:
    """Threads that wait for conditions, each for its own; `notify` lets all of them look again."""

    def __init__(self) -> None:
        self._latches: dict[Latch, None] = {}

    def wait_for(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Until the condition holds; false if that took too long."""
        end = None if timeout is None else time.monotonic() + timeout
        while not condition():
            latch = Latch()
            self._latches[latch] = None
            try:
                # what made it true may have happened just before we were in the list
                if condition():
                    return True
                if not latch.wait(None if end is None else max(0.0, end - time.monotonic())):
                    return condition()
            finally:
                self._latches.pop(latch, None)
        return True

    @property
    def waiting(self) -> bool:
        return bool(self._latches)

    def notify(self) -> None:
        """The state changed; called after the change."""
        for latch in list(self._latches):
            if self._latches.pop(latch, self) is None:
                latch.open()


def start_thread(
    run: Callable[[], None], name: str, failed: Callable[[BaseException], None], *, daemon: bool = True
) -> None:
    """Start a thread from a user's thread: it runs when this returns, and may run if an exception came first. `failed`
    gets why the system made no second thread. `daemon`: the interpreter does not wait for it when it ends."""

    begun, claim = Latch(), threading.Lock()

    def begin() -> None:
        if not claim.acquire(blocking=False):
            return
        begun.open()
        # `Thread.start` waits on a Condition for the new thread: here no interrupt can come
        try:
            threading.Thread(target=run, name=name, daemon=daemon).start()
        except BaseException as error:
            failed(error)

    while True:
        _thread.start_new_thread(begin, ())
        # Until it runs, a new thread goes by the number of the one that starts it. An exception that was set for that
        # one can so meet the new one, before its first line, and end it.
        if begun.wait(BEGIN_SECONDS):
            return


def uninterrupted(call: Callable[[], T]) -> T:
    """What a call gives that no interrupt may tear: it runs in a thread of its own, to its end. An interrupt ends the
    wait for it."""
    done, results, errors = Latch(), list[T](), list[BaseException]()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        done.open()

    def failed(error: BaseException) -> None:
        errors.append(error)
        done.open()

    # no daemon: the interpreter takes such a thread away in the middle of whatever it does
    start_thread(run, "belvedere-call", failed, daemon=False)
    done.wait()
    if errors:
        raise errors[0]
    return results[0]


def _bounded(timeout: float | None) -> float:
    return -1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)
