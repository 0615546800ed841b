"""Pins: leases on an epoch, held by this process in memory and by others in files that expire.

What a pinned epoch can see is kept. A process that dies leaves a lease behind for at most its duration.
"""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections import deque
from collections.abc import Callable

from belvedere.embedded.storage.files import Files
from belvedere.errors import DiskError
from belvedere.model.pin import Pin, PinKey

DIRECTORY = "leases"
DURATION_MS = 60_000


class _Held:
    """Pins of this process: epoch and purpose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[PinKey, tuple[int, str]] = {}
        self._abandoned: deque[PinKey] = deque()
        """Pins that are collected: let go with the next use of pins."""

    def _hold(self, epoch: int, purpose: str) -> Pin:
        """With the lock."""
        pin = Pin(self._abandoned.append)
        self._held[pin.key] = (epoch, purpose)
        return pin

    def _let_go(self) -> None:
        """Of what was abandoned; with the lock."""
        while self._abandoned:
            self._held.pop(self._abandoned.popleft(), None)

    def _own(self) -> list[dict[str, object]]:
        return [{"epoch": e, "purpose": p, "process": os.getpid()} for e, p in self._held.values()]


class PinLeases(_Held):
    """The writer's view of all pins."""

    def __init__(self, files: Files | None):
        super().__init__()
        self._files = files

    def pin(self, epoch: int, purpose: str) -> Pin:
        """Keep what `epoch` sees until `unpin`, or until nobody holds the pin."""
        with self._lock:
            return self._hold(epoch, purpose)

    def move(self, pin: Pin, epoch: int) -> None:
        """The pin is needed from `epoch` on only."""
        with self._lock:
            if pin.key in self._held:
                self._held[pin.key] = (epoch, self._held[pin.key][1])

    def unpin(self, pin: Pin) -> None:
        with self._lock:
            self._held.pop(pin.key, None)

    def held(self, now_ms: int) -> list[dict[str, object]]:
        """All pins, those of other processes included."""
        with self._lock:
            self._let_go()
            own = self._own()
        return own + self._foreign(now_ms)

    def _foreign(self, now_ms: int) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        if self._files is None:
            return found
        for name in self._files.list(DIRECTORY):
            if not name.endswith(".json"):
                continue
            path = f"{DIRECTORY}/{name}"
            try:
                lease = json.loads(bytes(self._files.read(path)))
            except (FileNotFoundError, ValueError):
                # released, or being replaced, at this moment
                continue
            if lease["expires"] < now_ms:
                self._files.remove(path)
            else:
                found.append(lease)
        return found

    def oldest(self, now_ms: int) -> int | None:
        """The oldest epoch that somebody needs."""
        epochs = [int(str(lease["epoch"])) for lease in self.held(now_ms)]
        return min(epochs, default=None)


class ForeignLeases(_Held):
    """Pins of a process that only reads: one file that holds its oldest one, renewed at every use."""

    def __init__(self, files: Files, now_ms: Callable[[], int]):
        super().__init__()
        self._files, self._now = files, now_ms
        self._path = f"{DIRECTORY}/{os.getpid()}-{uuid.uuid4().hex[:12]}.json"
        self._written: tuple[int, int] | None = None
        """Epoch and time of the lease in force."""
        self._begun = False
        """Whether there may be a file, or a half-written one."""

    def pin(self, epoch: int, purpose: str) -> Pin:
        with self._lock:
            pin = self._hold(epoch, purpose)
            self._write()
            return pin

    def move(self, pin: Pin, epoch: int) -> None:
        with self._lock:
            if pin.key in self._held:
                self._held[pin.key] = (epoch, self._held[pin.key][1])
                self._write()

    def unpin(self, pin: Pin) -> None:
        with self._lock:
            self._held.pop(pin.key, None)
            self._remove_unneeded()

    def held(self, now_ms: int) -> list[dict[str, object]]:
        with self._lock:
            self._let_go()
            return self._own()

    def _remove_unneeded(self) -> None:
        self._let_go()
        if not self._held and self._begun:
            self._written = None
            self._files.remove(self._path)
            self._files.remove(f"{self._path}.new")
            self._begun = False

    def _write(self) -> None:
        self._let_go()
        epoch, purpose = min(self._held.values())
        now = self._now()
        written = self._written
        if written is not None and written[0] <= epoch and now - written[1] < DURATION_MS // 4:
            return
        lease = {"epoch": epoch, "purpose": purpose, "process": os.getpid(), "expires": now + DURATION_MS}
        try:
            self._begun = True
            self._files.make_directory(DIRECTORY)
            self._files.remove(f"{self._path}.new")  # an interrupt may have left a part of one
            appender = self._files.append(f"{self._path}.new")
            try:
                appender.write([json.dumps(lease).encode()])
            finally:
                appender.close()
            # not synced: a lease does not outlive a crash of the machine, nor does its holder
            self._files.rename(f"{self._path}.new", self._path)
        except OSError as error:
            raise DiskError(f"a lease on epoch {epoch} could not be written: {error}") from error
        self._written = (epoch, now)

    def close(self) -> None:
        with self._lock:
            self._held.clear()
            self._remove_unneeded()
