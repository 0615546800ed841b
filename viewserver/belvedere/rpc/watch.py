"""Cutting connections on which a delivery takes longer than it may, since gRPC does not give it up in every case.

Neither deadline nor cancellation ends a call while the socket of its channel is full, because the other side is frozen.
So deliveries that must end are watched, and have channels that nobody else uses.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable

from belvedere.rpc import sockets
from belvedere.rpc.addresses import host_and_port

SLOWEST_BYTES_PER_SECOND = 1 << 20
"""What a delivery is given a second for, beside its deadline."""
_INTERVAL = 1.0


class Watch:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: dict[object, tuple[str, float]] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="watch deliveries", daemon=True).start()

    def begin(self, delivery: object, address: str, seconds: float) -> None:
        with self._lock:
            self._due[delivery] = (address, time.monotonic() + seconds)

    def end(self, delivery: object) -> None:
        with self._lock:
            self._due.pop(delivery, None)

    def hurry(self, delivery: object) -> None:
        """It was cancelled, so it should end now."""
        with self._lock:
            if delivery in self._due:
                self._due[delivery] = (self._due[delivery][0], time.monotonic())

    def close(self) -> None:
        """Cut everything that is still under way."""
        self._closed.set()
        self._cut(math.inf)

    def _run(self) -> None:
        while not self._closed.wait(_INTERVAL):
            self._cut(time.monotonic() - _INTERVAL)

    def _cut(self, before: float) -> None:
        with self._lock:
            late = {address for address, due in self._due.values() if due < before}
        if late:
            cut(late)


def cut(addresses: Iterable[str]) -> None:
    """End the connections that this process made to these addresses; calls on them fail."""
    sockets.cut_made(host_and_port(address) for address in addresses)
