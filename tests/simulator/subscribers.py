"""Subscribers: they follow a view change by change, and must at each epoch have exactly the rows that it has.

The subscription is the real client's, on the simulated store. Its pins are renewed while it lives, as the real client
renews them; now and then one is renewed too late, and history is gone. Now and then it is closed and resumed from the
epoch that it stood at, where names are found by what was published.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from belvedere.backend.memory import MemoryStore
from belvedere.cluster.catalog.names import FailedVersion, Readable, ReadableView, failed_at, names_at
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.epochs import CommittedEpochs, Known
from belvedere.cluster.client.reading import decode
from belvedere.cluster.client.subscribe import ClusterSubscription
from belvedere.cluster.transport import calls
from belvedere.engine.delta import Delta, concat_deltas, empty_delta
from belvedere.errors import EpochExpired, NotYet, ViewFailed, ViewReplaced
from belvedere.protocol import pins
from belvedere.protocol.messages import Epoch
from belvedere.protocol.ring import BUCKETS
from belvedere.retry import Deadline
from tests.simulator.oracle import Oracle, Rows, Truth, Wrong, difference
from tests.simulator.process import Surroundings
from tests.simulator.scheduler import MS

LEASE = 800
"""Of pins, milliseconds."""

Newest = Callable[[], calls.CommittedRow | None]


@dataclass
class _Pins:
    """One pin, on the epoch that the subscription stands at."""

    around: Surroundings
    holder: str
    pin_: pins.PinDocument | None = None
    written: int = 0

    def pin(self, epoch: int) -> int:
        self._write(pins.PinDocument(self.holder, Epoch(epoch), LEASE))
        pins.check_read(Epoch(epoch), self._memory.list_documents(pins.HORIZONS))
        return 1

    def renew(self) -> None:
        """In time, it is held without a look at the horizon; else it is a new pin."""
        before = self.pin_
        if before is None:
            return
        in_time = before.outlives(self.written, self.around.scheduler.clock())
        self._write(before.renewed())
        if not in_time:
            self.around.trace.effect(self.around.scheduler.now, self.holder, "pin renewed too late")
            try:
                pins.check_read(before.epoch, self._memory.list_documents(pins.HORIZONS))
            except EpochExpired:
                self.unpin(1)
                return
        self.around.trace.effects["pin renewed"] += 1
        self._memory.remove_documents([before.document])

    def move(self, number: int, epoch: int) -> None:
        if self.pin_ is not None:
            before, self.pin_ = self.pin_, self.pin_.renewed(Epoch(epoch))
            self._write(self.pin_)
            self._memory.remove_documents([before.document])

    def unpin(self, number: int) -> None:
        if self.pin_ is not None:
            self._memory.remove_documents([self.pin_.document])
            self.pin_ = None

    def abandon(self, number: int) -> None:
        """What a subscription has at its end is let go already."""

    def protects(self, epoch: int) -> bool:
        pin, now = self.pin_, self.around.scheduler.clock()
        return pin is not None and pin.epoch <= epoch and pin.outlives(self.written, now)

    @property
    def _memory(self) -> MemoryStore:
        return self.around.store.memory

    def _write(self, pin: pins.PinDocument) -> None:
        self.pin_, self.written = pin, self.around.scheduler.clock()
        self._memory.put_document(pin.document, b"")


class _Database:
    """What a subscription needs of a client."""

    def __init__(self, around: Surroundings, holder: str) -> None:
        self.around = around
        self.pins = _Pins(around, holder)
        self.epochs, self.rows = self, _Stored(self.memory)
        self._stores = self.stores

    @property
    def memory(self) -> MemoryStore:
        return self.around.store.memory

    def deadline(self) -> Deadline:
        return Deadline(0.0)

    def stores(self, deadline: Deadline) -> MemoryStore:
        return self.memory

    def as_published(self, epoch: int, deadline: Deadline) -> Known:
        return CommittedEpochs.as_published(cast(CommittedEpochs, self), epoch, deadline)

    def names(self, committed: calls.CommittedRow, deadline: Deadline) -> dict[str, Readable]:
        return names_of(self.memory, committed)

    def failed(self, committed: calls.CommittedRow, deadline: Deadline) -> Mapping[str, FailedVersion]:
        document = self.memory.get_document(committed.catalog_document) if committed.catalog else None
        return failed_at(document, frozenset(committed.building)) if document else {}

    def served_view(self, name: str, known: Known) -> ReadableView:
        found = self.names(known.committed, self.deadline()).get(name)
        if not isinstance(found, ReadableView):
            raise ViewReplaced(f"view {name!r} is not there at epoch {known.epoch}")
        return found

    def require_kept(self, epoch: int) -> None:
        horizon = pins.horizon_of(self.memory.list_documents(pins.HORIZONS))
        if not self.pins.protects(epoch) and horizon > epoch:
            raise EpochExpired(f"epoch {epoch} is older than what is kept")


@dataclass(frozen=True)
class _Stored:
    """Rows, of which only the store is asked."""

    memory: MemoryStore

    def values(self, table: str, ids: np.ndarray, epoch: int, deadline: Deadline) -> pa.BinaryArray:
        return self.memory.read(table, ids, epoch + 1)

    def rows(self, view: ReadableView, epoch: int, deadline: Deadline) -> Delta:
        found = self.memory.scan(view.rows_table, 0, BUCKETS, epoch + 1)
        parts = [decode(view, ids, values) for ids, values in found]
        return concat_deltas(parts) if parts else empty_delta(view.shape.schema)


def names_of(memory: MemoryStore, committed: calls.CommittedRow) -> dict[str, Readable]:
    """What names mean at an epoch, as clients find it out. A catalog that is gone is one that nobody may read by."""
    document = memory.get_document(committed.catalog_document) if committed.catalog else b""
    if document is None:
        raise EpochExpired(f"epoch {committed.epoch}: catalog {committed.catalog_document} is gone")
    return dict(names_at(document, frozenset(committed.building))) if document else {}


class Subscriber:
    def __init__(self, around: Surroundings, rng: random.Random, oracle: Oracle, newest: Newest, number: int) -> None:
        self.changes = 0
        self._around, self._random, self._oracle, self._newest = around, rng, oracle, newest
        self._name = f"subscriber-{number}"
        self._subscription: ClusterSubscription | None = None
        self._database = _Database(around, self._name)
        self._count = 0
        self._view = ""
        self._rows: Rows = Counter()

    def schedule(self, start: int, stop: int, looks: int) -> None:
        for _ in range(looks):
            self._around.scheduler.at(self._random.randint(start, stop), self.look)
        self._renew(stop)

    def _renew(self, stop: int) -> None:
        """Often enough, but for a client that is stopped for a while."""
        if self._around.scheduler.now < stop:
            pause = self._random.choice((LEASE // 4,) * 12 + (3 * LEASE,))
            self._around.scheduler.after(pause * MS, lambda: self._renew(stop))
        self._database.pins.renew()

    def look(self) -> None:
        """Follow what has happened since the last time; or begin, or resume."""
        try:
            if self._subscription is None:
                self._begin()
            elif self._random.random() < 0.2:
                self._resume()
            else:
                self._follow()
        except (EpochExpired, ViewReplaced, NotYet):
            self._end()
        except ViewFailed as error:
            if self._view in self._truth(error.epoch).served:
                raise Wrong(f"{self._name} was told that view {self._view} failed, it is served: {error}") from error
            self._around.trace.effect(self._around.scheduler.now, self._name, "subscription ended with its view")
            self._end()

    def _begin(self) -> None:
        known = self._newest()
        truth = None if known is None else self._oracle.at(known.epoch)
        if known is None or truth is None or not truth.served:
            return
        self._view = self._random.choice(sorted(truth.served))
        self._subscribe(Known(known, None))
        self._rows = Counter(truth.views[self._view])

    def _resume(self) -> None:
        assert self._subscription is not None
        epoch = self._subscription.epoch
        self._subscription.close()
        self._subscribe(int(epoch))
        self._around.trace.effect(self._around.scheduler.now, self._name, "subscription resumed")
        truth = self._truth(epoch)
        if self._subscription._view.shape != truth.served[self._view].shape:
            raise Wrong(f"{self._name} resumed view {self._view} at epoch {epoch}, and follows another version of it")

    def _subscribe(self, after: Known | int) -> None:
        self._count += 1
        self._database = _Database(self._around, f"{self._name}-{self._count}")
        self._subscription = None
        self._subscription = ClusterSubscription(cast(ClusterDatabase, self._database), self._view, after, None)

    def _follow(self) -> None:
        assert self._subscription is not None
        known = self._newest()
        if known is None or known.epoch <= self._subscription.epoch:
            return
        for view, change in self._subscription._changes(known):
            # as `next` does: a change counts as taken when it was returned
            self._subscription._view, self._subscription.epoch = view, change.epoch
            self.changes += 1
            columns = [column.to_pylist() for column in change.table.columns]
            for row, weight in zip(zip(*columns, strict=True), change.weights.tolist(), strict=True):
                self._rows[row] += weight
            self._check(self._truth(change.epoch))
        self._check(self._truth(Epoch(self._subscription.epoch)))

    def _check(self, truth: Truth) -> None:
        found = Counter({row: count for row, count in self._rows.items() if count})
        if found != truth.views[self._view]:
            raise Wrong(
                f"{self._name} followed view {self._view} to epoch {truth.epoch}\n"
                f"{difference(truth.views[self._view], found)}"
            )

    def _truth(self, epoch: Any) -> Truth:
        truth = self._oracle.at(epoch)
        if truth is None:
            raise Wrong(f"{self._name} was told that epoch {epoch} is committed, and it is not")
        return truth

    def _end(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._database.pins.unpin(1)
        self._subscription = None
