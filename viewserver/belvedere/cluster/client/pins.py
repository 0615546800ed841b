"""Pins of one client: one document in the store for the oldest epoch that it needs, renewed while anything needs one.

A pin counts from before it was written and is believed for less than its lease, so the leader's lease ends later. A pin
that could not be renewed in time is no disaster: reads then look at the horizon, like those without a pin. A holder of
an epoch that is gone is forgotten, so that the others keep theirs.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import uuid
from collections import deque

from belvedere import errors
from belvedere.cluster.client.pool import Deadline
from belvedere.cluster.client.stores import Stores
from belvedere.cluster.clock import now
from belvedere.protocol import pins as protocol
from belvedere.protocol.messages import Epoch

MARGIN_MS = 5_000
"""Clocks do not run alike."""
RENEWALS = 4
"""How many times within a lease."""
CLOSE_SECONDS = 5.0
"""How long the end waits for a renewal that is under way."""


class Pins:
    """`number`s name what is held. Thread-safe; a thread renews as long as something is held."""

    def __init__(self, stores: Stores, timeout: float, lease_ms: int = protocol.LEASE_MS) -> None:
        self._stores, self._timeout = stores, timeout
        self._next = protocol.Pin(f"client-{uuid.uuid4().hex[:12]}", Epoch(0), lease_ms)
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        """Comes before `_lock` where both are taken."""
        self._changed = threading.Condition(self._lock)
        self._numbers = itertools.count(1)
        self._held: dict[int, int] = {}
        self._abandoned: deque[int] = deque()
        self._written: protocol.Pin | None = None
        self._since = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def pin(self, epoch: int, deadline: Deadline | None = None) -> int:
        """Hold an epoch; `EpochExpired` if it may be gone already."""
        deadline = deadline or Deadline(self._timeout)
        # What protects the epoch now may be about to be replaced by a pin that was chosen without this holder.
        if not self._writing.acquire(timeout=deadline.left(threading.TIMEOUT_MAX)):
            raise errors.StoreUnavailable(
                f"pinning epoch {epoch}: gave up after {deadline.seconds:g} s: another pin is still being written"
            )
        try:
            number = self._hold(epoch, deadline)
        finally:
            self._writing.release()
        self._renew_in_background()
        return number

    def _hold(self, epoch: int, deadline: Deadline) -> int:
        """While nobody else writes."""
        with self._lock:
            number = next(self._numbers)
            self._held[number] = epoch
        try:
            if not self.protects(epoch):
                horizon = self._write(deadline).get(number)
                if horizon is not None:
                    protocol.check_read(Epoch(epoch), [protocol.horizon_document(horizon)])
        except BaseException:
            self.unpin(number)
            raise
        return number

    def move(self, number: int, epoch: int) -> None:
        """The holder went on to a later epoch; the store hears of it with the next renewal."""
        with self._lock:
            if number in self._held:
                self._held[number] = epoch

    def unpin(self, number: int) -> None:
        """The pin itself goes with the next renewal, or when its lease ends."""
        with self._lock:
            self._held.pop(number, None)
            self._changed.notify_all()

    def abandon(self, number: int) -> None:
        """`unpin` for finalizers. The collector runs them anywhere, also where this thread holds the lock, so it is not
        taken; the pin is let go when the next one is written."""
        self._abandoned.append(number)

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
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_SECONDS)
        if thread is None or not thread.is_alive():  # otherwise the lease ends by itself
            self._release()

    def _write(self, deadline: Deadline) -> dict[int, Epoch]:
        """Write a pin on the oldest epoch that is held, while nobody else writes. What it was not renewed in time for
        may be too late (`protocol.pins`, 3): such holders are forgotten. Returns them, each with the horizon."""
        late: dict[int, Epoch] = {}
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

    def _forget_below(self, horizon: Epoch) -> dict[int, Epoch]:
        """Holders whose epochs may be gone. Their reads find that out: they look at the horizon, too."""
        with self._lock:
            late = [n for n, epoch in self._held.items() if epoch < horizon and not self._protected(epoch)]
            for number in late:
                del self._held[number]
        return dict.fromkeys(late, horizon)

    def _let_go(self) -> None:
        """Of what was abandoned; with the lock."""
        while self._abandoned:
            self._held.pop(self._abandoned.popleft(), None)

    def _release(self) -> None:
        with self._writing:
            with self._lock:
                if self._held or self._written is None:
                    return
                pin, self._written = self._written, None
            with contextlib.suppress(errors.BelvedereError):  # its lease ends by itself
                self._stores(Deadline(self._timeout)).remove_documents([pin.document])

    def _renew_in_background(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._renew, name="belvedere-pins", daemon=True)
                self._thread.start()

    def _renew(self) -> None:
        pause = self._next.lease / RENEWALS / 1000
        while True:
            with self._lock:
                self._changed.wait_for(lambda: not self._held or self._closed, pause)
                self._let_go()
                if self._closed or not self._held:
                    self._thread = None
                    break
            try:
                with self._writing:
                    self._write(Deadline(self._timeout))
            except errors.BelvedereError:
                # whatever it is: readers find out by themselves whether they are too late
                continue
        if not self._closed:
            self._release()


def _now() -> int:
    return int(now() * 1000)
