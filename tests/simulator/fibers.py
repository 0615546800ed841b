"""Calls that wait in the middle, in virtual time: what the engine loads while it computes may take seconds, and much
happens meanwhile.

The engine is plain code that cannot give up control, so a call that may wait runs on a thread of its own. Never more
than one thread runs: whoever starts or resumes a fiber stands still until it waits or ends. So histories stay
reproducible.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Abandoned(BaseException):
    """Whoever waits is gone: the thread ends."""


class Fiber:
    """`start`, then `resume` each time that it waits, until it is `done`; or `abandon`."""

    def __init__(self, call: Callable[[Fiber], None]) -> None:
        self.done = False
        self._call = call
        self._error: BaseException | None = None
        self._abandoned = False
        self._runs, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._switch()

    def resume(self) -> None:
        self._runs.release()
        self._switch()

    def wait(self) -> None:
        """By the call itself: until it is resumed."""
        if self._abandoned:
            raise Abandoned
        self._rests.release()
        self._runs.acquire()
        if self._abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """Nobody will resume it. By the call itself: it comes to its end, and waits for nothing any more."""
        if not self.done:
            self._abandoned = True
            if threading.current_thread() is not self._thread:
                self.resume()

    def _switch(self) -> None:
        self._rests.acquire()
        if self.done:
            self._thread.join()
            if self._error is not None:
                error, self._error = self._error, None
                raise error

    def _run(self) -> None:
        try:
            self._call(self)
        except Abandoned:
            pass
        except BaseException as error:
            self._error = error
        self.done = True
        self._rests.release()
