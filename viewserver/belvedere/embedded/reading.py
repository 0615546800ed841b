"""Reads, the same for the writing process and for those that only read: get, scan, snapshots, subscriptions.

A read at the committed epoch looks at the view's table, by key or in key order; a read at an older one takes the rows
as they are now and goes back through the changelog. Either costs what it returns, an older epoch also what changed
since. What differs between the two kinds of processes is behind the abstract methods.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from belvedere.embedded.storage.changelog import Change
from belvedere.embedded.storage.ordered import base_range
from belvedere.embedded.storage.views import Before, Row, ViewTable, find_before
from belvedere.embedded.subscribe import Subscription
from belvedere.engine.delta import Delta, concat_deltas, empty_delta
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, EpochExpired, NotYet, ViewFailed
from belvedere.model import order
from belvedere.model.describe import ViewShape
from belvedere.model.key_reads import KeyReads, SnapshotReads, Wanted
from belvedere.model.keys import key_codec
from belvedere.model.ranges import KeyRange
from belvedere.model.shapes import arrow_schema, named, to_table
from belvedere.model.token import Token
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.embedded.builds import RefusedView

_SCAN_ROWS = 1 << 17
Moment = int | datetime | Token | None
After = Token | int | str | None


class Reading(KeyReads):
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
    def known_epoch(self) -> int:
        """The newest that a read may have been at."""
        return self.epoch

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
    def _base_range(self, table: TableDef, wanted: KeyRange, columns: Sequence[int]) -> tuple[int, tuple[Vec, ...]]:
        """The newest committed epoch, and columns of the rows of a base table in a range at it."""

    @abstractmethod
    def _base_get(self, table: TableDef, id: np.ndarray) -> Row | None:
        """One row of a base table."""

    @abstractmethod
    def _now_ms(self) -> int: ...

    @abstractmethod
    def _retention_ms(self, shape: ViewShape) -> int: ...

    # ------------------------------------------------------------------ names, epochs

    @abstractmethod
    def _refused(self) -> Mapping[str, RefusedView]:
        """Views that were in service and are not any more, by name."""

    def _failed(self, name: str) -> RefusedView | None:
        """The view of that name, if it cannot be computed any more."""
        views = (view for known, view in self._refused().items() if known.lower() == name.lower())
        return next((view for view in views if view.failed), None)

    def _refuse_failed(self, name: str) -> None:
        view = self._failed(name)
        if view is not None:
            raise view.error()

    def _stale(self, name: str, after: After) -> ViewTable | None:
        """The rows that a view had before it failed; nothing if it did not. Raises if whoever asks has written or read
        what came later."""
        view = self._failed(name)
        if view is None or view.stale is None:
            return None
        if after is not None and Token.parse(after).epoch > view.stale.epoch:
            last = view.stale.epoch
            later = f"{view.problem}; its rows are those of epoch {last}, and the answer is to include later ones"
            raise ViewFailed(later, view.failed)
        return view.stale.table

    def _view(self, name: str) -> ViewTable:
        tables = self._views()
        found = tables.get(name)
        if found is None:
            self._refuse_failed(name)
            relation = self.catalog.relation(name)
            found = tables.get(relation.name)
            if found is None:
                raise CatalogError(f"{relation.name!r} is a base table; this works for views only")
        return found

    def _relation(
        self, name: str, at: Moment = None, after: After = None, allow_stale: bool = False
    ) -> ViewTable | TableDef:
        if allow_stale and at is None and (stale := self._stale(name, after)) is not None:
            return stale
        found = self._views().get(name)
        if isinstance(at, int) and (found is None or at < found.since):
            for old in self._retired():
                if old.shape.name.lower() == name.lower() and old.until is not None and old.since <= at < old.until:
                    return old
        if found is not None:
            return found
        self._refuse_failed(name)
        relation = self.catalog.relation(name)
        return relation if isinstance(relation, TableDef) else self._view(relation.name)

    def key_columns(self, relation: str) -> tuple[Column, ...]:
        """The key of a table or view: what `get` takes, and the order of `scan`."""
        found = self._relation(relation, allow_stale=True)
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

    def _named(self, at: Moment) -> int:
        """The committed epoch that `at` names; of a time until now, the newest at or before it; of a token, the first
        with its write."""
        newest = self.epoch
        if isinstance(at, datetime):
            aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
            epoch = int(aware.timestamp() * 1000)
            if newest < epoch <= self._now_ms():
                return newest
        else:
            epoch = newest if at is None else at.epoch if isinstance(at, Token) else int(at)
        if epoch > newest:
            raise NotYet(f"epoch {epoch} is not committed yet; the newest is {newest}", float(epoch - newest))
        if isinstance(at, Token) and epoch < newest:
            # the write may have been committed together with later ones: then at the epoch of the last of them
            return next((c.epoch for c in self._history(epoch - 1, newest)), newest)
        return epoch

    def _moment(self, at: Moment, view: ViewTable) -> int:
        """The epoch that `at` names, if it can still be read."""
        epoch = self._named(at)
        self._check_retained(view, epoch)
        return epoch

    def check_history(self, epoch: int) -> None:
        """Raises EpochExpired if what came after the epoch is not kept any more."""
        if epoch < (newest := self.epoch):
            next(iter(self._history(epoch, newest)), None)

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
        self,
        relation: str,
        key: Any,
        *,
        after: After = None,
        timeout: float | None = None,
        at: Moment = None,
        allow_stale: bool = False,
    ) -> dict[str, Any] | None:
        """The row of that key (a value, a tuple, or a dict), or None.

        `after`: a token; the answer includes its write, or NotYet is raised by `timeout` seconds. `at`: an older state,
        that of the newest epoch at or before a number or moment, or the first one that includes a token's write.
        `allow_stale`: of a view that has failed, the row that it had before, if that includes what `after` asks for.
        """
        if after is not None:
            self.wait(after, timeout)
        found = self._relation(relation, at, after, allow_stale)
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

    def get_many(
        self,
        relation: str,
        keys: Sequence[Any],
        *,
        after: After = None,
        timeout: float | None = None,
        at: Moment = None,
    ) -> list[dict[str, Any] | None]:
        """The rows of several keys, of a view all at one epoch; see `get`."""
        if after is not None:
            self.wait(after, timeout)
        if isinstance(self._relation(relation, at), TableDef):
            return [self.get(relation, key, at=at) for key in keys]
        with self.snapshot(at) as snapshot:
            return [snapshot.get(relation, key) for key in keys]

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

    def _range(
        self,
        relation: str,
        wanted: Wanted,
        columns: Sequence[str] | None,
        at: Moment,
        after: After,
        timeout: float | None,
        allow_stale: bool = False,
        keyed: bool = False,
    ) -> tuple[int, pa.Table]:
        if after is not None:
            self.wait(after, timeout)
        found = self._relation(relation, at, after, allow_stale)
        if isinstance(found, TableDef):
            _refuse_history(found, at)
            owner = f"table {found.name!r}"
            which = order.positions(found.columns, columns, owner)
            every = [*which, *found.key_positions] if keyed else which
            range = wanted(key_codec(found.columns, found.key_positions), owner)
            epoch, rows = self._base_range(found, range, every)
            return epoch, _table(rows, arrow_schema(found.columns), every, columns is not None or keyed)
        owner = f"view {found.shape.name!r}"
        which = order.positions(found.shape.schema[: found.shape.visible], columns, owner)
        every = [*which, *found.shape.key] if keyed else which
        range = wanted(found.codec, owner)
        if at is None:
            epoch, read = found.range(range, every)
            assert read is not None
        else:
            epoch = self._moment(at, found)
            read = self._range_at(found, range, every, epoch)
        schema = arrow_schema(found.shape.schema) if keyed else found.arrow
        return epoch, _table(read, schema, every, columns is not None or keyed)

    def _range_at(self, view: ViewTable, wanted: KeyRange, columns: Sequence[int], epoch: int) -> tuple[Vec, ...]:
        upto, layers = epoch, list[Before]()
        while True:
            now, rows = view.range(wanted, columns, (upto, layers))
            if rows is not None:
                return rows
            # what was committed meanwhile is a layer of its own, so each round has less to do than the one before
            later = list(self._deltas(view, upto, now))
            if later:
                layers.append(view.before(later))
            upto = now

    def snapshot(self, at: Moment = None) -> Snapshot:
        """Several reads at one epoch: `with db.snapshot() as s: s.get(...); s.scan(...)`."""
        snapshot = Snapshot(self, self._named(at))
        try:
            self.check_history(snapshot.epoch)
        except BaseException:
            snapshot.close()
            raise
        return snapshot

    def subscribe(
        self, view: str, *, after: After = None, timeout: float | None = None, progress: float | None = None
    ) -> Subscription:
        """Changes of a view, one object per epoch, from after the token (or epoch) on; without one, from now on.

        Goes on for ever, or until nothing happened for `timeout` seconds. A stopped one is resumed with the epoch
        of the last change. Raises EpochExpired when the history does not reach back so far, ViewReplaced when the
        view got other columns. `progress`: seconds after which a change without rows says that nothing happened up to
        its epoch.
        """
        table = self._view(view)
        start = self.epoch if after is None else Token.parse(after).epoch
        self._check_retained(table, min(start, self.epoch))
        return Subscription(self, table, start, timeout, progress)

    def quarantine(self, view: str) -> pa.Table:
        """Rows that the view cannot show, with the reason."""
        return self._view(view).quarantined()


class Snapshot(SnapshotReads):
    def __init__(self, database: Reading, epoch: int):
        super().__init__(database, epoch, database.pins.pin(epoch, "snapshot"), database.pins.unpin)
        self.epoch = epoch


def _table(rows: Sequence[Vec], schema: pa.Schema, which: Sequence[int], chosen: bool) -> pa.Table:
    """Columns as an Arrow table, of the schema as a whole or of the chosen part."""
    if chosen:
        schema = pa.schema([schema.field(i) for i in which])
    return pa.Table.from_arrays([v.to_arrow() for v in rows], schema=schema)


def _refuse_history(table: TableDef, at: Moment) -> None:
    if at is not None:
        raise EpochExpired(
            f"table {table.name!r} is a base table: it is read as it is now; older epochs are kept for views only"
        )


def together(
    names: set[str],
    prefixes: Mapping[str, Sequence[Any]],
    bases: Mapping[str, DeltaTable],
    views: Mapping[str, ViewTable],
) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """Rows of base tables and views, of those with a prefix only what begins so, and how many rows of each view are in
    quarantine. The caller sees to it that no epoch comes between."""
    out, failed = {}, {}
    for name in sorted(names):
        if name in views:
            failed[name] = len(views[name].quarantine)
            out[name] = _view_part(views[name], prefixes.get(name))
        else:
            out[name] = _base_part(bases[name], prefixes.get(name))
    return out, failed


def _view_part(view: ViewTable, prefix: Sequence[Any] | None) -> pa.Table:
    if prefix is None:  # all rows, in no order: one would have to be built
        return to_table(view.shape, view.rows()[1])
    every = range(view.shape.visible)
    _, rows = view.range(order.prefix_range(view.codec, prefix, None, False, f"view {view.shape.name!r}"), every)
    assert rows is not None
    return _table(rows, view.arrow, every, False)


def _base_part(held: DeltaTable, prefix: Sequence[Any] | None) -> pa.Table:
    table = held.table
    every = range(len(table.columns))
    if prefix is None:
        rows = _all_rows(held)
    else:
        codec = key_codec(table.columns, table.key_positions)
        rows = base_range(held, order.prefix_range(codec, prefix, None, False, f"table {table.name!r}"), every)
    return _table(rows, arrow_schema(table.columns), every, False)


def _all_rows(table: DeltaTable) -> tuple[Vec, ...]:
    columns = table.table.columns
    parts: list[Delta] = []
    start: int | None = 0
    while start is not None:
        delta, start = table.scan(start, _SCAN_ROWS, range(len(columns)))
        if len(delta):
            parts.append(delta)
    return (concat_deltas(parts) if parts else empty_delta(columns)).columns
