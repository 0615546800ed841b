"""Pins of one client: one document in the store for the oldest epoch that it needs, renewed while anything needs one.

A pin counts from before it was written and is believed for less than its lease, so the leader's lease ends later. A pin
that could not be renewed in time is no disaster: reads then look at the horizon, like those without a pin. A holder of
an epoch that is gone is forgotten, so that the others keep theirs.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque

from belvedere import errors
from belvedere.cluster.client.stores import Stores
from belvedere.cluster.coordination.clock import now
from belvedere.model.pin import Pin, PinKey
from belvedere.protocol import pins as protocol
from belvedere.protocol.messages import Epoch
from belvedere.retry import Deadline
from belvedere.waiting import Waiters, Wakeup, start_thread

MARGIN_MS = 5_000
"""Clocks do not run alike."""
RENEWALS = 4
"""How many times within a lease."""
CLOSE_SECONDS = 5.0
"""How long the end waits for a renewal that is under way."""


class Pins:
    """Thread-safe; a thread renews as long as something is held."""

    def __init__(self, stores: Stores, timeout: float, lease_ms: int = protocol.LEASE_MS) -> None:
        self._stores, self._timeout = stores, timeout
        self._next = protocol.PinDocument(f"client-{uuid.uuid4().hex[:12]}", Epoch(0), lease_ms)
        self._lock = threading.Lock()
        self._writing = threading.RLock()
        """Comes before `_lock` where both are taken."""
        self._held: dict[PinKey, int] = {}
        self._abandoned: deque[PinKey] = deque()
        """Pins that are collected: let go when the next one is written."""
        self._written: protocol.PinDocument | None = None
        self._leaving: protocol.PinDocument | None = None
        self._since = 0
        self._closed = False
        self._renewing = False
        self._wake, self._ended = Wakeup(), Waiters()

    def pin(self, epoch: int, deadline: Deadline | None = None) -> Pin:
        """Hold an epoch; `EpochExpired` if it may be gone already."""
        deadline = deadline or Deadline(self._timeout)
        # What protects the epoch now may be about to be replaced by a pin that was chosen without this holder.
        try:
            # within the try: an interrupt may come when the lock is taken and nobody was told
            if not self._writing.acquire(timeout=deadline.left(threading.TIMEOUT_MAX)):
                raise errors.StoreUnavailable(
                    f"pinning epoch {epoch}: gave up after {deadline.seconds:g} s: another pin is still being written"
                )
            pin = self._hold(epoch, deadline)
        finally:
            try:  # noqa: SIM105  `suppress` is Python: an interrupt in it would come before the release
                self._writing.release()
            except RuntimeError:
                pass  # it was not taken
        self._renew_in_background()
        return pin

    def _hold(self, epoch: int, deadline: Deadline) -> Pin:
        """While nobody else writes."""
        pin = Pin(self._abandoned.append)
        with self._lock:
            self._held[pin.key] = epoch
        try:
            if not self.protects(epoch):
                horizon = self._write(deadline).get(pin.key)
                if horizon is not None:
                    protocol.check_read(Epoch(epoch), [protocol.horizon_document(horizon)])
        except BaseException:
            self.unpin(pin)
            raise
        return pin

    def move(self, pin: Pin, epoch: int) -> None:
        """The holder went on to a later epoch; the store hears of it with the next renewal."""
        with self._lock:
            if pin.key in self._held:
                self._held[pin.key] = epoch

    def unpin(self, pin: Pin) -> None:
        """The pin itself goes with the next renewal, or when its lease ends."""
        with self._lock:
            self._held.pop(pin.key, None)
        self._wake.set()

    def protects(self, epoch: int) -> bool:
        """Whether what the epoch sees is surely kept now."""
        with self._lock:
            return self._protected(epoch)

    def _protected(self, epoch: int) -> bool:
        """With the lock."""
        pin = self._written
        return pin is not None and pin.epoch <= epoch and pin.outlives(self._since, _now(), MARGIN_MS)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._held.clear()
        self._wake.set()
        if self._ended.wait_for(lambda: not self._renewing, CLOSE_SECONDS):  # otherwise the lease ends by itself
            self._release()

    def _write(self, deadline: Deadline) -> dict[PinKey, Epoch]:
        """Write a pin on the oldest epoch that is held, while nobody else writes. What it was not renewed in time for
        may be too late (`protocol.pins`, 3): such holders are forgotten. Returns them, each with the horizon."""
        late: dict[PinKey, Epoch] = {}
        while True:
            with self._lock:
                self._let_go()
                oldest = min(self._held.values(), default=None)
                before = self._written
                if oldest is None:
                    return late
                pin = self._next = self._next.renewed(Epoch(oldest))
            store, began = self._stores(deadline), _now()
            store.put_document(pin.document, b"")
            if not self.protects(pin.epoch):
                # not renewed in time, so it is a new pin; else the horizon may be above one that was spared
                horizon = protocol.horizon_of(store.list_documents(protocol.HORIZONS))
                if pin.epoch < horizon:
                    late |= self._forget_below(horizon)
                    store.remove_documents([pin.document])
                    continue
            with self._lock:
                self._written, self._since = pin, began
            if before is not None:
                store.remove_documents([before.document])
            return late

    def _forget_below(self, horizon: Epoch) -> dict[PinKey, Epoch]:
        """Holders whose epochs may be gone. Their reads find that out: they look at the horizon, too."""
        with self._lock:
            late = [key for key, epoch in self._held.items() if epoch < horizon and not self._protected(epoch)]
            for key in late:
                del self._held[key]
        return dict.fromkeys(late, horizon)

    def _let_go(self) -> None:
        """Of what was abandoned; with the lock."""
        while self._abandoned:
            self._held.pop(self._abandoned.popleft(), None)

    def _release(self) -> None:
        with self._writing:
            with self._lock:
                if self._held or (self._written is None and self._leaving is None):
                    return
                # remembered until it is removed: an interrupt may come first, and `close` is called again
                self._leaving = self._written or self._leaving
                self._written, pin = None, self._leaving
            with contextlib.suppress(errors.BelvedereError):  # its lease ends by itself
                if pin is not None:
                    self._stores(Deadline(self._timeout)).remove_documents([pin.document])
            self._leaving = None

    def _renew_in_background(self) -> None:
        if not self._renewing and not self._closed:
            # whoever comes first renews; the others end at once
            start_thread(self._renew, "belvedere-pins", lambda error: None)

    def _renew(self) -> None:
        with self._lock:
            if self._renewing or self._closed:
                return
            self._renewing = True
        try:
            self._renew_while_held()
        except BaseException:
            self._renewing = False
            raise
        finally:
            self._ended.notify()
        if not self._closed:
            self._release()

    def _renew_while_held(self) -> None:
        pause = self._next.lease / RENEWALS / 1000
        while True:
            self._wait(pause)
            with self._lock:
                self._let_go()
                if self._closed or not self._held:
                    self._renewing = False
                    return
            try:
                with self._writing:
                    self._write(Deadline(self._timeout))
            except errors.BelvedereError:
                # whatever it is: readers find out by themselves whether they are too late
                continue

    def _wait(self, seconds: float) -> None:
        """So long, or until there is nothing to renew."""
        end = time.monotonic() + seconds
        while self._held and not self._closed and (left := end - time.monotonic()) > 0:
            self._wake.wait(left)


def _now() -> int:
    return int(now() * 1000)
