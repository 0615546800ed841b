"""Subscriptions: the changes of one view, epoch by epoch, from the changelog."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.errors import ViewFailed, ViewReplaced
from belvedere.model.describe import ViewShape
from belvedere.model.pin import Pin
from belvedere.model.shapes import arrow_schema
from belvedere.model.view_change import ViewChange
from belvedere.retry import Deadline

if TYPE_CHECKING:
    from belvedere.embedded.reading import Reading

_EVER = 1e9


class Subscription:
    """An iterator over changes. It pins what it has not seen yet, until it is closed.

    `progress`: seconds after which a change without rows says that nothing happened up to its epoch."""

    def __init__(
        self, database: Reading, view: ViewTable, after: int, timeout: float | None, progress: float | None = None
    ):
        self._database, self._shape, self._timeout, self._progress = database, view.shape, timeout, progress
        self.epoch = after
        self._pin: Pin | None = database.pins.pin(min(after, database.epoch), "subscription")
        self._ready: Iterator[ViewChange] = iter(())

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> ViewChange:
        if self._pin is not None:
            self._database.pins.move(self._pin, self.epoch)
        progress, start = Deadline(self._progress), self.epoch
        while self._pin is not None:
            found = next(self._ready, None)
            if found is not None:
                # No interrupt comes between these two: what was not returned is found again by the next call.
                self.epoch = found.epoch
                return found
            if self._progress is not None and progress.over and self.epoch > start:
                return self._nothing()
            if self._database.epoch <= self.epoch:
                # without progress to tell, an epoch that changes other views begins the wait anew
                wait = self._timeout if self._progress is None else progress.left(min(self._timeout or _EVER, _EVER))
                if not self._database._wait_for(self.epoch + 1, wait):
                    if self._progress is not None and progress.over:
                        return self._nothing()
                    self.close()
                    break
            upto = self._database.epoch
            self._ready = self._changes(self.epoch, upto)
        raise StopIteration

    def until(self, epoch: int) -> list[ViewChange]:
        """What happened up to a committed epoch; the subscription goes on from there."""
        found = []
        for change in self._changes(self.epoch, epoch):
            self.epoch = change.epoch
            found.append(change)
        return found

    def _changes(self, after: int, upto: int) -> Iterator[ViewChange]:
        parts: list[Delta] = []
        shapes = self._database._shapes()
        for change in self._database._history(after, upto):
            for start in change.meta.get("starts", ()):
                if start["name"] == self._shape.name:
                    self._follow(ViewShape.of(start), change.epoch)
            if self._shape.name in change.meta.get("fails", ()):
                reason, epoch = change.meta["fails"][self._shape.name]
                raise ViewFailed(f"view {self._shape.name!r} cannot be read since epoch {epoch}: {reason}", epoch)
            if self._shape.name in change.meta.get("drops", ()):
                raise ViewReplaced(f"view {self._shape.name!r} was dropped at epoch {change.epoch}")
            parts += [d for _, d in change.deltas(shapes, self._shape.name)]
            if change.last:
                if parts:
                    yield self._made(change.epoch, concat_deltas(parts))
                    if self.epoch != change.epoch:
                        return  # an interrupt: nobody got it
                parts = []
                self.epoch = change.epoch
        self.epoch = upto
        if self._pin is not None:
            self._database.pins.move(self._pin, upto)

    def _follow(self, shape: ViewShape, epoch: int) -> None:
        if shape.version != self._shape.version and shape.same_rows != self._shape.same_rows:
            raise ViewReplaced(
                f"view {shape.name!r} got other columns or another key at epoch {epoch}; read it and subscribe again"
            )
        self._shape = shape

    def _made(self, epoch: int, delta: Delta) -> ViewChange:
        visible = self._shape.schema[: self._shape.visible]
        arrays = [v.to_arrow() for v in delta.columns[: self._shape.visible]]
        schema = pa.schema([pa.field(c.name, c.type.arrow) for c in visible])
        return ViewChange(epoch, pa.Table.from_arrays(arrays, schema=schema), delta.weight)

    def _nothing(self) -> ViewChange:
        """Nothing happened up to here."""
        schema = arrow_schema(self._shape.schema[: self._shape.visible])
        return ViewChange(self.epoch, schema.empty_table(), np.zeros(0, np.int8))

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the history."""
        if self._pin is not None:
            self._database.pins.unpin(self._pin)
            self._pin = None
