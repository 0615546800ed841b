"""Epochs that are kept for somebody: snapshots with a name, and the epochs of cursors.

A snapshot's name has its epoch, so another gateway of the pool can renew it: it then keeps the epoch itself, and this
one's pin ends by its time.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable

from belvedere.errors import NoSuchResource, TooManyRequests
from belvedere.gateway.databases import GatewayDatabase
from belvedere.model.pin import Pin

MOST = 10_000
_NAME = re.compile(r"e([0-9]{1,18})-[0-9a-f]{16}\Z", re.ASCII)


class Snapshots:
    """Thread-safe. `expire` is called now and then."""

    def __init__(self, database: GatewayDatabase, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._database, self._monotonic = database, monotonic
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Pin, float]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, epoch: int, seconds: float) -> str:
        """Under a new name."""
        name = f"e{epoch}-{secrets.token_hex(8)}"
        self._hold(name, epoch, seconds)
        return name

    def keep(self, epoch: int, seconds: float) -> None:
        """For cursors: one pin for all of an epoch."""
        self._hold(f"cursors of {epoch}", epoch, seconds)

    def _hold(self, name: str, epoch: int, seconds: float) -> None:
        until = self._monotonic() + seconds
        with self._lock:
            held = self._held.get(name)
            if held is not None:
                self._held[name] = held[0], max(until, held[1])
                return
            if len(self._held) >= MOST:
                raise TooManyRequests(f"{MOST} snapshots and cursors are held already; let go of some", 5.0)
        pin = self._database.pin(epoch)  # may ask the store: without the lock
        with self._lock:
            other = self._held.setdefault(name, (pin, until))
        if other[0] is not pin:
            self._database.unpin(pin)

    def renew(self, name: str, seconds: float) -> int:
        """Its epoch."""
        match = _NAME.match(name)
        if match is None:
            raise NoSuchResource(f"there is no snapshot {name[:60]!r}", "snapshot")
        epoch = int(match[1])
        self._hold(name, epoch, seconds)
        with self._lock:
            held = self._held.get(name)
            if held is None:  # somebody let go of it just now
                raise NoSuchResource(f"there is no snapshot {name[:60]!r} any more", "snapshot")
            self._held[name] = held[0], self._monotonic() + seconds
        return epoch

    def drop(self, name: str) -> None:
        with self._lock:
            held = self._held.pop(name, None)
        if held is not None:
            self._database.unpin(held[0])

    def expire(self) -> None:
        """Let go of what nobody renewed."""
        now = self._monotonic()
        with self._lock:
            over = [name for name, (_, until) in self._held.items() if until < now]
        for name in over:
            self.drop(name)

    def close(self) -> None:
        for name in list(self._held):
            self.drop(name)
