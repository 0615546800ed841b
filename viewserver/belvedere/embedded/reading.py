"""Reads, the same for the writing process and for those that only read: get, scan, snapshots, subscriptions.

A read at the committed epoch looks at the view's table; a read at an older one takes the rows as they are now and
goes back through the changelog. What differs between the two kinds of processes is behind the abstract methods.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.embedded import order
from belvedere.embedded.leases import Pin
from belvedere.embedded.subscribe import Subscription
from belvedere.engine.delta import Delta
from belvedere.engine.state.hashing import hash_rows
from belvedere.errors import CatalogError, EpochExpired, NotYet
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.store.embedded.changelog import Change
from belvedere.store.embedded.commit import Token
from belvedere.store.embedded.describe import ViewShape
from belvedere.store.embedded.views import Row, ViewTable, find_before, rewind
from belvedere.types import Column

Moment = int | datetime | Token | None
After = Token | int | str | None


class Reading(ABC):
    """Methods of a database that read."""

    # ------------------------------------------------------------------ what differs

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """Tables and views that can be read now."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The newest committed epoch."""

    @property
    @abstractmethod
    def pins(self) -> Any:
        """Where pins are kept."""

    @abstractmethod
    def _views(self) -> dict[str, ViewTable]:
        """Tables of views by name."""

    @abstractmethod
    def _retired(self) -> list[ViewTable]:
        """Versions of views that are gone but pinned."""

    @abstractmethod
    def _shapes(self) -> dict[tuple[str, int], ViewShape]:
        """Shapes of views by name and version, also of versions that are gone."""

    @abstractmethod
    def _history(self, after: int, upto: int) -> Iterator[Change]:
        """Records of the changelog."""

    @abstractmethod
    def _wait_for(self, epoch: int, timeout: float | None) -> bool:
        """Until the epoch is committed."""

    @abstractmethod
    def _base_rows(self, table: TableDef) -> tuple[int, Delta]:
        """The newest committed epoch and the rows of a base table at it."""

    @abstractmethod
    def _base_get(self, table: TableDef, id: np.ndarray) -> Row | None:
        """One row of a base table."""

    @abstractmethod
    def _now_ms(self) -> int: ...

    @abstractmethod
    def _retention_ms(self, shape: ViewShape) -> int: ...

    # ------------------------------------------------------------------ names, epochs

    def _view(self, name: str) -> ViewTable:
        tables = self._views()
        found = tables.get(name)
        if found is None:
            relation = self.catalog.relation(name)
            found = tables.get(relation.name)
            if found is None:
                raise CatalogError(f"{relation.name!r} is a base table; this works for views only")
        return found

    def _relation(self, name: str, at: Moment = None) -> ViewTable | TableDef:
        found = self._views().get(name)
        if isinstance(at, int) and (found is None or at < found.since):
            for old in self._retired():
                if old.shape.name.lower() == name.lower() and old.until is not None and old.since <= at < old.until:
                    return old
        if found is not None:
            return found
        relation = self.catalog.relation(name)
        return relation if isinstance(relation, TableDef) else self._view(relation.name)

    def key_columns(self, relation: str) -> tuple[Column, ...]:
        """The key of a table or view: what `get` takes, and the order of `scan`."""
        found = self._relation(relation)
        if isinstance(found, TableDef):
            return tuple(found.columns[i] for i in found.key_positions)
        return order.key_columns(found.shape)

    def wait(self, token: After, timeout: float | None = None) -> None:
        """Returns when the write is in every view; raises NotYet."""
        if token is None:
            return
        wanted = Token.parse(token).epoch
        if self.epoch < wanted and not self._wait_for(wanted, timeout):
            lag = max(0.0, float(self._now_ms() - self.epoch))
            raise NotYet(
                f"epoch {wanted} is not committed after {timeout} s; the newest is {self.epoch}",
                lag,
            )

    def _moment(self, at: Moment, view: ViewTable) -> int:
        """The epoch that `at` names, if it can still be read."""
        if isinstance(at, datetime):
            aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
            epoch = int(aware.timestamp() * 1000)
        else:
            assert at is not None
            epoch = at.epoch if isinstance(at, Token) else int(at)
        newest = self.epoch
        if epoch > newest and isinstance(at, datetime) and epoch <= self._now_ms():
            return newest
        if epoch > newest:
            raise NotYet(f"epoch {epoch} is not committed yet; the newest is {newest}", float(epoch - newest))
        self._check_retained(view, epoch)
        if isinstance(at, Token) and epoch < newest:
            # the write may have been committed together with later ones: then at the epoch of the last of them
            return next((c.epoch for c in self._history(epoch - 1, newest)), newest)
        return epoch

    def _check_retained(self, view: ViewTable, epoch: int) -> None:
        if epoch < view.since:
            raise EpochExpired(
                f"view {view.shape.name!r} has had these rows only since epoch {view.since}, not at {epoch}"
            )
        if epoch >= self.epoch:
            return
        horizon = self._now_ms() - self._retention_ms(view.shape)
        pinned = any(int(p["epoch"]) <= epoch for p in self.pins.held(self._now_ms()))
        if epoch < horizon and not pinned:
            raise EpochExpired(
                f"epoch {epoch} of view {view.shape.name!r} is older than its retention of "
                f"{self._retention_ms(view.shape) / 1000:g} s; the oldest that can be read is {horizon}"
            )

    def _deltas(self, view: ViewTable, after: int, upto: int) -> Iterator[tuple[int, Delta]]:
        shapes = self._shapes()
        for change in self._history(after, upto):
            for _, delta in change.deltas(shapes, view.shape.name):
                yield change.epoch, delta

    # ------------------------------------------------------------------ reads

    def get(
        self, relation: str, key: Any, *, after: After = None, timeout: float | None = None, at: Moment = None
    ) -> dict[str, Any] | None:
        """The row of that key (a value, a tuple, or a dict), or None.

        `after`: a token; the answer includes its write, or NotYet is raised by `timeout` seconds. `at`: an older state,
        that of the newest epoch at or before a number or moment, or the first one that includes a token's write.
        """
        if after is not None:
            self.wait(after, timeout)
        found = self._relation(relation, at)
        if isinstance(found, TableDef):
            return self._get_base(found, key, at)
        shape = found.shape
        columns = order.key_columns(shape)
        values = order.key_values(columns, key, f"view {shape.name!r}")
        id = hash_rows(order.key_vecs(columns, values, f"key of view {shape.name!r}"), 1)[0]
        if at is None:
            row = found.get(id)[1]
        else:
            row = self._get_at(found, id, self._moment(at, found))
        return None if row is None else named(shape, row)

    def _get_at(self, view: ViewTable, id: np.ndarray, epoch: int) -> Row | None:
        now, row = view.get(id)
        mentioned, before = find_before((d for _, d in self._deltas(view, epoch, now)), id)
        return before if mentioned else row

    def _get_base(self, table: TableDef, key: Any, at: Moment) -> dict[str, Any] | None:
        _refuse_history(table, at)
        columns = [table.columns[i] for i in table.key_positions]
        values = order.key_values(columns, key, f"table {table.name!r}")
        id = hash_rows(order.key_vecs(columns, values, f"key of table {table.name!r}"), 1)[0]
        row = self._base_get(table, id)
        return None if row is None else {c.name: v for c, v in zip(table.columns, row, strict=False)}

    def scan(
        self,
        relation: str,
        *,
        start: Any = None,
        stop: Any = None,
        limit: int | None = None,
        at: Moment = None,
        after: After = None,
        timeout: float | None = None,
    ) -> pa.Table:
        """Rows in key order, from the key `start` to the key `stop` (not included); a prefix of a key will do."""
        if after is not None:
            self.wait(after, timeout)
        found = self._relation(relation, at)
        if isinstance(found, TableDef):
            _refuse_history(found, at)
            shape = ViewShape(found.name, 0, found.columns, len(found.columns), found.key_positions)
            rows = self._base_rows(found)[1]
        else:
            shape = found.shape
            rows = self._rows_at(found, None if at is None else self._moment(at, found))
        picked = order.select(rows, shape, start, stop, limit, f"{shape.name!r}")
        return to_table(shape, picked)

    def _rows_at(self, view: ViewTable, epoch: int | None) -> Delta:
        now, rows = view.rows()
        if epoch is None or epoch >= now:
            return rows
        return rewind(rows, list(self._deltas(view, epoch, now)))

    def snapshot(self, at: Moment = None) -> Snapshot:
        """Several reads at one epoch: `with db.snapshot() as s: s.get(...); s.scan(...)`."""
        if isinstance(at, datetime):
            at = int((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)
        return Snapshot(self, self.epoch if at is None else at.epoch if isinstance(at, Token) else at)

    def subscribe(self, view: str, *, after: After = None, timeout: float | None = None) -> Subscription:
        """Changes of a view, one object per epoch, from after the token (or epoch) on; without one, from now on.

        Goes on for ever, or until nothing happened for `timeout` seconds. A stopped one is resumed with the epoch
        of the last change. Raises EpochExpired when the history does not reach back so far, ViewReplaced when the
        view got other columns.
        """
        table = self._view(view)
        start = self.epoch if after is None else Token.parse(after).epoch
        self._check_retained(table, min(start, self.epoch))
        return Subscription(self, table, start, timeout)

    def quarantine(self, view: str) -> pa.Table:
        """Rows that the view cannot show, with the reason."""
        return self._view(view).quarantined()


class Snapshot:
    """Reads at one epoch, which is pinned until the end."""

    def __init__(self, database: Reading, epoch: int):
        self._database = database
        self.epoch = epoch
        self._pin: Pin | None = database.pins.pin(epoch, "snapshot")

    def get(self, relation: str, key: Any) -> dict[str, Any] | None:
        return self._database.get(relation, key, at=self.epoch)

    def scan(self, relation: str, *, start: Any = None, stop: Any = None, limit: int | None = None) -> pa.Table:
        return self._database.scan(relation, start=start, stop=stop, limit=limit, at=self.epoch)

    def close(self) -> None:
        if self._pin is not None:
            self._database.pins.unpin(self._pin)
            self._pin = None

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def named(shape: ViewShape, row: Row) -> dict[str, Any]:
    """The visible columns of a row."""
    return {c.name: v for c, v in zip(shape.schema[: shape.visible], row, strict=False)}


def to_table(shape: ViewShape, rows: Delta) -> pa.Table:
    """The visible columns of rows as an Arrow table."""
    columns = shape.schema[: shape.visible]
    fields = [pa.field(c.name, c.type.arrow) for c in columns]
    return pa.Table.from_arrays([v.to_arrow() for v in rows.columns[: shape.visible]], schema=pa.schema(fields))


def _refuse_history(table: TableDef, at: Moment) -> None:
    if at is not None:
        raise EpochExpired(
            f"table {table.name!r} is a base table: it is read as it is now; older epochs are kept for views only"
        )
