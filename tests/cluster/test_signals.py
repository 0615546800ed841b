"""Processes end in time, also those whose main thread hears nothing."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

DEAF = """
import ctypes, os, signal, sys
from belvedere.cluster.process.signals import bound_the_end

for one in (signal.SIGTERM, signal.SIGINT):
    signal.signal(one, lambda *_: None)
bound_the_end(float(sys.argv[1]), lambda second: os._exit(8 if second else 7))
print("ready", flush=True)
libc = ctypes.CDLL(None)
for _ in range(60):
    libc.sleep(60)  # outside of Python: no handler runs until it returns
"""


@contextlib.contextmanager
def started(seconds: float) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", DEAF, str(seconds)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def test_the_end_comes_in_time_although_the_main_thread_is_busy_elsewhere() -> None:
    with started(0.5) as process:
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 7
        assert time.monotonic() - begin >= 0.5


def test_a_second_signal_ends_at_once() -> None:
    with started(600.0) as process:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)  # another one: two SIGTERM at once may come as one
        assert process.wait(20.0) == 8
