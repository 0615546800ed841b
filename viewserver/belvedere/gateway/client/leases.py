"""Snapshots that this client holds at the gateway: renewed by one thread while somebody needs them.

The name of a snapshot has its epoch, so any gateway of a pool renews it: the end of the one that made it is no loss. A
snapshot whose renewal comes too late is noticed by its reads (`EpochExpired`).
"""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.parse
from collections import deque

from belvedere import errors
from belvedere.gateway.client.caller import JSON, Caller, Request
from belvedere.gateway.client.forms import dumps
from belvedere.model.pin import Pin, PinKey
from belvedere.retry import Deadline
from belvedere.waiting import Wakeup, start_thread

LEASE_SECONDS = 60
RENEWALS = 4
"""How many times within a lease."""
RENEW_SECONDS = 10.0
LET_GO_SECONDS = 2.0
"""How long the end of a snapshot may take: its lease ends by itself."""


class Leases:
    """Thread-safe; a thread renews as long as something is held."""

    def __init__(self, caller: Caller, lease: float = LEASE_SECONDS) -> None:
        self._caller, self._lease = caller, lease
        self._lock = threading.Lock()
        self._held: dict[PinKey, str] = {}
        self._abandoned: deque[PinKey] = deque()
        """Pins that were collected without being closed."""
        self._renewing = self._closed = False
        self._wake = Wakeup()

    @property
    def seconds(self) -> float:
        return self._lease

    def hold(self, name: str) -> Pin:
        """Renew this snapshot from now on."""
        pin = Pin(self._abandoned.append)
        with self._lock:
            self._held[pin.key] = name
        if not self._renewing:
            # whoever comes first renews; the others end at once
            start_thread(self._renew, "belvedere-leases", lambda error: None)
        return pin

    def let_go(self, pin: Pin) -> None:
        with self._lock:
            name = self._held.pop(pin.key, None)
        self._wake.set()
        if name is not None:
            self._drop(name)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            left = list(self._held.values())
            self._held.clear()
        self._wake.set()
        for name in left:
            self._drop(name)

    def _drop(self, name: str) -> None:
        request = Request("DELETE", _path(name), "giving up a snapshot")
        with contextlib.suppress(errors.BelvedereError):  # the lease ends by itself
            self._caller.call(request, Deadline(LET_GO_SECONDS))

    def _renew(self) -> None:
        with self._lock:
            if self._renewing or self._closed:
                return
            self._renewing = True
        try:
            while self._due():
                for name in self._names():
                    body = dumps({"seconds": self._lease}).encode()
                    request = Request(
                        "PUT", _path(name), "renewing a snapshot", headers={"Content-Type": JSON}, body=body
                    )
                    with contextlib.suppress(errors.BelvedereError):  # reads find out whether it is too late
                        self._caller.call(request, Deadline(min(RENEW_SECONDS, self._lease / RENEWALS)))
        finally:
            self._renewing = False

    def _due(self) -> bool:
        """Wait until it is time to renew; false if there is nothing to renew any more."""
        end = time.monotonic() + self._lease / RENEWALS
        while self._names() and (left := end - time.monotonic()) > 0:
            self._wake.wait(left)
        with self._lock:
            if self._held and not self._closed:
                return True
            self._renewing = False  # with the lock: whoever holds the next one begins anew
            return False

    def _names(self) -> list[str]:
        with self._lock:
            gone = [self._held.pop(self._abandoned.popleft(), None) for _ in range(len(self._abandoned))]
            found = [] if self._closed else list(self._held.values())
        for name in filter(None, gone):
            self._drop(name)
        return found


def _path(name: str) -> str:
    return f"/v1/snapshots/{urllib.parse.quote(name, safe='')}"
