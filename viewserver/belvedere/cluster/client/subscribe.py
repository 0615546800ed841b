"""Subscriptions over a cluster: what each committed epoch did to a view, exactly.

The store tells which rows an epoch wrote; reading them before and after gives what disappeared and what appeared (rows
that were written and are the same are no change). Epochs whose commit was not published are one change with the next
one that was. When the view is replaced by one with the same columns and key, the change is the difference of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.client.epochs import Known
from belvedere.cluster.client.reading import decode
from belvedere.cluster.transport import calls
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.model.pin import Pin
from belvedere.model.shapes import arrow_schema
from belvedere.model.view_change import ViewChange
from belvedere.retry import Deadline

if TYPE_CHECKING:
    from belvedere.cluster.client.database import ClusterDatabase

LEAST_SECONDS = 1.0
"""A leader that is asked has so long for its answer."""
READ_ROWS = 1 << 14
"""Rows that are read at once."""


class ClusterSubscription:
    """An iterator over changes. It pins what it has not seen yet, until it is closed; it closes itself when there is
    nothing more to come: nothing happened for `timeout`, the history is gone, the view is another one."""

    def __init__(
        self,
        database: ClusterDatabase,
        name: str,
        after: Known | int,
        timeout: float | None,
        progress: float | None = None,
    ) -> None:
        """`progress`: seconds after which a change without rows says that nothing happened up to its epoch."""
        self._database, self._timeout, self._progress = database, timeout, progress
        self.epoch = after if isinstance(after, int) else after.epoch
        self._ready: Iterator[tuple[ReadableView, ViewChange]] = iter(())
        self._pin: Pin | None = database.pins.pin(self.epoch)
        try:
            known = database.epochs.as_published(after, database.deadline()) if isinstance(after, int) else after
            self._view = database.served_view(name, known)
            database.require_kept(self.epoch)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> ClusterSubscription:
        return self

    def __next__(self) -> ViewChange:
        if self._pin is not None:
            self._database.pins.move(self._pin, self.epoch)
        progress, start = Deadline(self._progress), self.epoch
        while self._pin is not None:
            try:
                found = next(self._ready, None)
            except (errors.EpochExpired, errors.ViewReplaced, errors.ViewFailed):
                self.close()  # there is no way on, and the pin would keep history for nobody
                raise
            if found is not None:
                view, change = found
                # No interrupt comes between these two: what was not returned is found again by the next call.
                self._view, self.epoch = view, change.epoch
                return change
            if self._progress is not None and progress.over and self.epoch > start:
                return self._nothing()
            known = self._next_epoch(progress)
            if known is None:
                if self._progress is not None and progress.over:
                    return self._nothing()
                self.close()
                break
            self._ready = self._changes(known.committed)
        raise StopIteration

    def _next_epoch(self, progress: Deadline) -> Known | None:
        if self._progress == 0.0:  # to be told at once: look, and do not wait
            newest = self._database.epochs.newest(self._database.deadline(), 0.0)
            return newest if newest.epoch > self.epoch else None
        return self._database.epochs.wait(lambda known: known.epoch > self.epoch, self._wait(progress))

    def _wait(self, progress: Deadline) -> Deadline:
        """How long the next epoch is waited for."""
        if self._progress is None:
            return Deadline(self._timeout)
        told = max(progress.left(self._progress), LEAST_SECONDS)
        return Deadline(told if self._timeout is None else min(told, self._timeout))

    def _nothing(self) -> ViewChange:
        """Nothing happened up to here."""
        shape = self._view.shape
        schema = arrow_schema(shape.schema[: shape.visible])
        return ViewChange(self.epoch, schema.empty_table(), np.zeros(0, np.int8))

    def __enter__(self) -> ClusterSubscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the history."""
        if self._pin is not None:
            self._database.pins.unpin(self._pin)
            self._pin = None

    # ------------------------------------------------------------------ changes

    def until(self, epoch: int) -> list[ViewChange]:
        """What happened up to a committed epoch, published or not, as one change if there was any; the subscription
        goes on from there."""
        known = self._database.epochs.exactly(epoch, self._database.deadline())
        view = self._followed(known.committed)
        change = self._change(view, epoch)
        self._database.require_kept(self.epoch)
        self._view, self.epoch = view, epoch
        return [] if change is None else [change]

    def _changes(self, newest: calls.CommittedRow) -> Iterator[tuple[ReadableView, ViewChange]]:
        """One for each epoch up to the newest that changed the view, and the version of the view then."""
        for epoch in self._published(newest.epoch, self._database.deadline()):
            deadline = self._database.deadline()  # of each epoch: whoever takes the changes takes their time
            committed = (
                newest if epoch == newest.epoch else calls.read_committed(self._database.stores(deadline), epoch)
            )
            if committed is None or committed.epoch <= self.epoch:
                continue
            view = self._followed(committed)
            change = self._change(view, committed.epoch)
            self._database.require_kept(self.epoch)
            if change is not None:
                yield view, change
                if self.epoch != committed.epoch:
                    return  # an interrupt: nobody got it
            self._view, self.epoch = view, committed.epoch
            if self._pin is not None:
                self._database.pins.move(self._pin, self.epoch)

    def _published(self, newest: int, deadline: Deadline) -> list[int]:
        changed = self._database.stores(deadline).changed(calls.COMMITTED_TABLE, self.epoch, newest)
        found = [epoch for epoch, _ in changed]
        # the newest may be known from the leader before it is in the store, or may never be published
        return found if found and found[-1] == newest else [*found, newest]

    def _change(self, view: ReadableView, epoch: int) -> ViewChange | None:
        """From where this subscription stands to the view at the epoch."""
        deadline = self._database.deadline()
        if view == self._view:
            parts = list(self._written(view, epoch))
        else:
            old = self._database.rows.rows(self._view, self.epoch, deadline)
            parts = _difference(old, self._database.rows.rows(view, epoch, deadline))
        parts = [part for part in parts if len(part)]
        return _made(view, epoch, concat_deltas(parts)) if parts else None

    def _followed(self, committed: calls.CommittedRow) -> ReadableView:
        """The version of the view that is served at the epoch."""
        name, shape = self._view.name, self._view.shape
        found = self._database.epochs.names(committed, self._database.deadline()).get(name)
        failed = self._database.epochs.failed(committed, self._database.deadline()).get(name)
        if failed is not None:
            raise failed.error()
        if not isinstance(found, ReadableView):
            raise errors.ViewReplaced(f"view {name!r} was dropped at epoch {committed.epoch}")
        if found.shape.same_rows != shape.same_rows:
            raise errors.ViewReplaced(
                f"view {name!r} got other columns or another key at epoch {committed.epoch}; read it and "
                "subscribe again"
            )
        return found

    def _written(self, view: ReadableView, epoch: int) -> Iterator[Delta]:
        deadline, table = self._database.deadline(), view.rows_table
        listed = [ids for _, ids in self._database.stores(deadline).changed(table, self.epoch, epoch)]
        if not listed:
            return
        ids = np.unique(np.concatenate(listed), axis=0)
        for start in range(0, len(ids), READ_ROWS):
            part = ids[start : start + READ_ROWS]
            before = self._database.rows.values(table, part, self.epoch, deadline)
            after = self._database.rows.values(table, part, epoch, deadline)
            differs = _differing(before, after)
            part, before, after = part[differs], before.filter(pa.array(differs)), after.filter(pa.array(differs))
            old, new = decode(view, part, before), decode(view, part, after)
            deadline.progressed()
            yield _weighted(old, -1)
            yield new


def _differing(before: pa.BinaryArray, after: pa.BinaryArray) -> np.ndarray:
    pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
    return np.fromiter((old != new for old, new in pairs), np.bool_, len(before))


def _weighted(rows: Delta, weight: int) -> Delta:
    return Delta(rows.columns, np.full(len(rows), weight, np.int8), rows.id)


def _difference(old: Delta, new: Delta) -> list[Delta]:
    """What turns one set of rows into the other."""

    def contents(rows: Delta) -> list[tuple[bytes, tuple[object, ...]]]:
        columns = [column.to_arrow().to_pylist() for column in rows.columns]
        values = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
        return [(rows.id[i].tobytes(), _comparable(values[i])) for i in range(len(rows))]

    before, after = contents(old), contents(new)
    common = set(before) & set(after)
    gone = np.fromiter((row not in common for row in before), np.bool_, len(before))
    fresh = np.fromiter((row not in common for row in after), np.bool_, len(after))
    return [_weighted(old.filter(gone), -1), new.filter(fresh)]


def _comparable(row: tuple[object, ...]) -> tuple[object, ...]:
    """NaN equals NaN here."""
    return tuple("NaN" if value != value else (type(value), value) for value in row)


def _made(view: ReadableView, epoch: int, delta: Delta) -> ViewChange:
    visible = view.shape.schema[: view.shape.visible]
    arrays = [v.to_arrow() for v in delta.columns[: view.shape.visible]]
    schema = pa.schema([pa.field(c.name, c.type.arrow) for c in visible])
    return ViewChange(epoch, pa.Table.from_arrays(arrays, schema=schema), delta.weight)
