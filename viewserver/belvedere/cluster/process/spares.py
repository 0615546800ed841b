"""View servers that are started before they are needed: imports and kernels are loaded, only a name is missing.

    supervisor ──starts──▶ a spare loads everything, and waits at its stdin ──name and log──▶ an ordinary view server

Loading takes longer than joining a pool. So whoever keeps a spare scales up, or replaces a view server that died, at
once. A spare is no member: no ring, no leader and no store knows of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable


class Spares:
    """So many spares, as long as somebody calls `replenish` now and then."""

    def __init__(self, count: int, launch: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._count, self._launch = count, launch
        self._waiting: list[subprocess.Popen[bytes]] = []

    @property
    def pids(self) -> list[int]:
        return [spare.pid for spare in self._waiting if spare.poll() is None]

    def replenish(self) -> None:
        for spare in [spare for spare in self._waiting if spare.poll() is not None]:
            self._waiting.remove(spare)
            _end(spare)
        while len(self._waiting) < self._count:
            self._waiting.append(self._launch())

    def take(self, name: str, log: str) -> subprocess.Popen[bytes] | None:
        """A process that begins its work under this name now; None if there is none to spare."""
        told = json.dumps({"name": name, "log": log}).encode() + b"\n"
        while self._waiting:
            spare = self._waiting.pop(0)
            assert spare.stdin is not None
            with contextlib.suppress(OSError):
                if spare.poll() is None:
                    spare.stdin.write(told)
                    spare.stdin.flush()
                    return spare
            _end(spare)
        return None

    def stop(self) -> None:
        for spare in self._waiting:
            _end(spare)
        self._waiting.clear()


def _end(spare: subprocess.Popen[bytes]) -> None:
    spare.kill()  # it has nothing that could be lost
    spare.wait()
    if spare.stdin is not None:
        with contextlib.suppress(OSError):
            spare.stdin.close()


def wait_for_name() -> str:
    """In a spare: its name, once it has one, and from then on its output is where the supervisor wants it. Ends the
    process if nobody needs it any more."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)  # no more than the line: what follows is for `end_with_parent`
        if not part:
            os._exit(0)
        line += part
    told = json.loads(line)
    log = os.open(told["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for output in (1, 2):
        os.dup2(log, output)
    os.close(log)
    return str(told["name"])
