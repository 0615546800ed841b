"""An end in time, whatever a process is doing when it is asked for one.

Python carries out signal handlers in the main thread, between two of its instructions: a main thread that waits for an
answer of a frozen store hears of SIGTERM when the call gives up. The operating system's part of the handler writes a
byte at once, though, and a thread reads it:

    first signal ──▶ wait ──as long as allowed, or a second signal──▶ expired
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable


def bound_the_end(seconds: float, expired: Callable[[bool], None]) -> None:
    """From the main thread: `expired` is called, in another one, so long after the first signal that Python handles, or
    at once with the second; it hears whether there was a second. The handlers themselves are left as they are."""
    told, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def wait() -> None:
        os.read(told, 1)
        second, _, _ = select.select([told], [], [], seconds)
        expired(bool(second))

    threading.Thread(target=wait, name="bound the end", daemon=True).start()
