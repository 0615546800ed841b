"""A thread that calls listeners: one call at a time, in the order in which the calls were posted.

Whoever finds something out (a connection's own threads, a thread that holds locks) only posts; so a listener can
call back into whatever told it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Notifier:
    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Never blocks. After `close` nothing is called any more."""
        self._calls.put(call)

    def settle(self, timeout: float) -> bool:
        """Wait until everything that was posted before has been called."""
        reached = threading.Event()
        self._calls.put(reached.set)
        return reached.wait(timeout) or self._closed.is_set()

    def close(self) -> None:
        """What has not begun is not called. Waits for the call that runs, unless it is that call that closes."""
        self._closed.set()
        self._calls.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None and not self._closed.is_set():
            try:
                call()
            except Exception:
                log.exception("a listener failed")
