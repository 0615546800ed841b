"""`ClusterDatabase`: a pool of a cluster with the methods of the embedded database.

Writes go to the store and return when they are durable; the pool turns them into views. Reads are at a committed epoch:
by default the newest, which is looked at again when it is known for longer than a moment; a connection never goes back
in epochs. Whatever does not answer is asked again until the call's `timeout` is over, so the death of a leader, a view
server or the store is a delay.
"""

from __future__ import annotations

import functools
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from belvedere.cluster.catalog.names import FailedVersion, Readable, ReadableView, ServedTable, failed_builds, views_of
from belvedere.cluster.client import stale_rows
from belvedere.cluster.client.epochs import MAX_AGE, CommittedEpochs, Known
from belvedere.cluster.client.pins import Pins
from belvedere.cluster.client.pool import Pool, PoolCaller, pauses, repeat
from belvedere.cluster.client.quarantine import quarantined, unreadable
from belvedere.cluster.client.reading import PoolReader
from belvedere.cluster.client.stores import Open, Stores
from belvedere.cluster.client.subscribe import ClusterSubscription
from belvedere.cluster.client.token import ClusterToken
from belvedere.cluster.transport import calls
from belvedere.engine.delta import Changes, Delta
from belvedere.errors import (
    BelowHorizon,
    CatalogError,
    Closed,
    DataError,
    EpochExpired,
    NotYet,
    RequestReused,
    Unavailable,
    ViewFailed,
)
from belvedere.model import order
from belvedere.model import rows as given
from belvedere.model import token as embedded_token
from belvedere.model.closing import Closing
from belvedere.model.key_reads import KeyReads, SnapshotReads, Wanted
from belvedere.model.keys import key_codec
from belvedere.model.pin import Pin
from belvedere.model.reloads import Reloading, ReloadReport
from belvedere.model.repair import RepairReport
from belvedere.model.row_ids import row_id
from belvedere.model.shapes import named, to_table
from belvedere.model.statements import NO_PREFIXES, Executing, Result
from belvedere.model.stored_rows import unread_cells
from belvedere.model.writing import ReadRows, Writing, refuse_view
from belvedere.plan.nodes import Plan
from belvedere.plan.table_names import quarantine_table
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.ring import BUCKETS
from belvedere.protocol.row_marks import RowMark
from belvedere.retry import Deadline, Retry
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import Column

if TYPE_CHECKING:
    from belvedere.model.verify import Report

T = TypeVar("T")
Moment = int | datetime | embedded_token.Token | Known | None
After = embedded_token.Token | int | str | None

TIMEOUT = 30.0
_MOST_MARKS = 64
_FOREIGN_CELLS = 11
"""A token that names more rows is waited for, and becomes an epoch."""
DDL_SECONDS = 35.0
"""How long one try of a change of the catalog may take: a leader gives up after 30 s."""
DDL_TRIES = 3
"""For so many there is time at least: a leader that vanished without a word does not answer the first, and a repetition
at one that is slow finds what the first has done."""


class ClusterDatabase(KeyReads, Executing, Writing[ClusterToken], Reloading, Closing):
    """A connection to a pool. All methods may be called from any thread."""

    def __init__(
        self,
        seeds: list[str],
        caller: PoolCaller,
        open_store: Open,
        *,
        timeout: float = TIMEOUT,
        max_age: float = MAX_AGE,
        on_close: Callable[[], None] = lambda: None,
        store: str = "",
    ) -> None:
        self.timeout = timeout
        self.pool = Pool(seeds, caller)
        self.stores = Stores(self.pool, open_store, store)
        self.epochs = CommittedEpochs(self.pool, self.stores, max_age)
        self.pins = Pins(self.stores, timeout)
        self.rows = PoolReader(self.pool, self.stores)
        self._readers: dict[TableDef, given.GivenRows] = {}
        self._on_close = on_close
        self._closed = self._let_go = False
        self.pool.topology(self.deadline())

    def deadline(self, timeout: float | None = None) -> Deadline:
        """The time that a call has."""
        if self._closed:
            raise Closed("the connection is closed")
        return Deadline(self.timeout, renewable=True) if timeout is None else Deadline(timeout)

    # ------------------------------------------------------------------ epochs and names

    @property
    def known_epoch(self) -> int:
        """The newest that a read may have been at."""
        return self.epochs.known.epoch

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        return self.epochs.newest(self.deadline()).epoch

    @property
    def catalog(self) -> Catalog:
        """Tables and views that can be read now."""
        deadline = self.deadline()
        return self.epochs.catalog(self.epochs.newest(deadline).committed, deadline)

    def _token(self, value: Any) -> ClusterToken:
        return ClusterToken.parse(value)

    def wait(self, token: After, timeout: float | None = None) -> None:
        """Returns when the write is in every view; raises NotYet."""
        if token is not None:
            self._including(ClusterToken.parse(token), self.deadline(timeout))

    def wait_for(self, table: str, key: Any, timestamp: int, *, timeout: float | None = None) -> ClusterToken:
        """For writes that came to a table of HBase by another way: returns when every view has what was written to the
        row of that key at that timestamp, or raises NotYet. The token is for reads elsewhere.

        `timestamp`: as the cell has it; region servers count milliseconds. It is enough that some cell of the row has
        reached it: where clients set timestamps themselves, ask for those that grow with each write to the row."""
        deadline = self.deadline(timeout)

        def read(known: Known, deadline: Deadline) -> ServedTable:
            found = self._served(table, known, deadline)
            if not isinstance(found, ServedTable):
                raise refuse_view(found.name)
            return found

        served = self._read(None, None, timeout, read)
        if served.stored.origin is None:
            raise CatalogError(
                f"table {table!r} is no table of hbase: put, delete and write return tokens, wait for these"
            )
        columns = order.key_columns(served.shape)
        owner = f"table {served.name!r}"
        ids = row_id(order.key_vecs(columns, order.key_values(columns, key, owner), f"key of {owner}"))
        mark = RowMark(served.stored.name, (int(ids[0, 0]), int(ids[0, 1])))
        token = ClusterToken.of({mark.source: Seq(int(timestamp))})
        return ClusterToken(self._including(token, deadline).epoch)

    def _newest_with(self, token: ClusterToken, deadline: Deadline) -> Known:
        """As new as a read without a token would be: a token of long ago must not keep a session in the past."""
        try:
            known = self.epochs.newest(deadline)
            if self.epochs.includes(known.committed, token, deadline):
                return known
        except Unavailable:
            pass  # that the write is committed may be known all the same
        return self._including(token, deadline)

    def _including(self, token: ClusterToken, deadline: Deadline) -> Known:
        """An epoch that includes the write."""
        found = self.epochs.wait(lambda known: self.epochs.includes(known.committed, token, deadline), deadline)
        if found is None:
            newest = self.epochs.known
            lag = max(0.0, time.time() * 1000 - newest.epoch)
            why = "".join(f"; {reason}" for reason in (newest.stalled, self.epochs.trouble) if reason)
            raise NotYet(
                f"the write of token {token} is not committed after {deadline.seconds:g} s; the newest epoch is "
                f"{newest.epoch}{why}",
                lag,
            )
        return found

    def _served(self, name: str, known: Known, deadline: Deadline) -> Readable:
        """The table or view of that name at the epoch."""
        return self.epochs.named(name, known.committed, deadline)

    def served_view(self, name: str, known: Known) -> ReadableView:
        found = self._served(name, known, self.deadline())
        if not isinstance(found, ReadableView):
            raise CatalogError(f"{found.name!r} is a base table; this works for views only")
        return found

    def key_columns(self, relation: str) -> tuple[Column, ...]:
        """The key of a table or view: what `get` takes, and the order of `scan`."""

        def read(served: Readable, epoch: int, deadline: Deadline, stale: int | None) -> tuple[Column, ...]:
            return order.key_columns(served.shape)

        return self._read_relation(relation, None, None, None, True, read)

    # ------------------------------------------------------------------ reads

    def _read(self, at: Moment, after: After, timeout: float | None, body: Callable[[Known, Deadline], T]) -> T:
        """Read something at one epoch, and make sure that all of it was there to be read."""
        deadline = self.deadline(timeout)
        if after is None:
            known = self.epochs.newest(deadline)
        else:
            known = self._newest_with(ClusterToken.parse(after), deadline)
        if at is not None:
            known = self.epochs.at(at, deadline)
        pin: Pin | None = None
        try:
            while True:
                try:
                    found = body(known, deadline)
                except (CatalogError, ViewFailed) as error:
                    if at is not None and isinstance(error, ViewFailed):
                        raise
                    newest = self.epochs.newest(deadline, 0.0)  # the name may have come a moment ago
                    if at is not None:
                        self._explain_absence(error, known, newest, body, deadline)
                    # not by the epoch: where an answer takes longer than an epoch, there always is a newer one
                    if newest.same_names(known) or deadline.over:
                        raise
                    known = newest
                    continue
                except BelowHorizon:
                    kept = False
                else:
                    kept = self.is_kept(known, deadline)
                if kept:
                    return found
                if at is not None or pin is not None or deadline.over:
                    raise EpochExpired(
                        f"epoch {known.epoch} is older than what is kept, and was collected while it was read"
                    )
                known, pin = self._pinned(deadline)  # it took longer than the retention, and would so again
        finally:
            if pin is not None:
                self.pins.unpin(pin)

    def _pinned(self, deadline: Deadline) -> tuple[Known, Pin]:
        """The newest epoch and a pin on it."""
        known, retry = self.epochs.newest(deadline), Retry(deadline=deadline, backoff=pauses())
        while True:
            try:
                return known, self.pins.pin(known.epoch, deadline)
            except EpochExpired as error:
                retry.failed(error)  # what the store tells may lag behind what is kept
            known = self.epochs.newest(deadline, 0.0)

    def _explain_absence(
        self, error: Exception, known: Known, newest: Known, body: Callable[[Known, Deadline], T], deadline: Deadline
    ) -> None:
        """A name that is there now and was not then is too old, not unknown."""
        try:
            body(newest, deadline)
        except CatalogError:
            raise error from None
        raise EpochExpired(f"at epoch {known.epoch}: {error}; it is there now, at epoch {newest.epoch}") from None

    def is_kept(self, known: Known, deadline: Deadline) -> bool:
        """Whether nothing that the epoch sees had been collected until now."""
        return (
            self.epochs.fresh(known, deadline)
            or self.pins.protects(known.epoch)
            or self.epochs.horizon(deadline) <= known.epoch
        )

    def require_kept(self, epoch: int) -> None:
        """What was just read at this epoch, which is pinned, was all there."""
        deadline = self.deadline()
        if not self.pins.protects(epoch) and self.epochs.horizon(deadline) > epoch:
            raise EpochExpired(f"epoch {epoch} is older than what is kept: its pin could not be renewed in time")

    def _read_relation(
        self,
        relation: str,
        at: Moment,
        after: After,
        timeout: float | None,
        allow_stale: bool,
        body: Callable[[Readable, int, Deadline, int | None], T],
    ) -> T:
        """Read something of one relation: `body` gets it, the epoch to read at, the time, and for
        stale rows their epoch."""

        def read(known: Known, deadline: Deadline) -> T:
            return body(self._served(relation, known, deadline), known.epoch, deadline, None)

        try:
            return self._read(at, after, timeout, read)
        except ViewFailed as error:
            if not allow_stale or at is not None:
                raise
            deadline = self.deadline(timeout)
            return stale_rows.read(self.epochs, relation, after, deadline, error, body)

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

        def read(served: Readable, epoch: int, deadline: Deadline, stale: int | None) -> dict[str, Any] | None:
            shape = served.shape
            kind = "view" if isinstance(served, ReadableView) else "table"
            columns = order.key_columns(shape)
            values = order.key_values(columns, key, f"{kind} {shape.name!r}")
            ids = row_id(order.key_vecs(columns, values, f"key of {kind} {shape.name!r}"))
            found = self.rows.get(served, ids, epoch, deadline, ask_owner=stale is None)
            return named(shape, _row(found)) if len(found) else None

        return self._read_relation(relation, at, after, timeout, allow_stale, read)

    def get_many(
        self,
        relation: str,
        keys: Sequence[Any],
        *,
        after: After = None,
        timeout: float | None = None,
        at: Moment = None,
    ) -> list[dict[str, Any] | None]:
        """The rows of several keys, all at one epoch; see `get`. Costs a call per owner of them, not one per key."""

        def read(known: Known, deadline: Deadline) -> list[dict[str, Any] | None]:
            served = self._served(relation, known, deadline)
            shape = served.shape
            owner = f"{'view' if isinstance(served, ReadableView) else 'table'} {shape.name!r}"
            columns = order.key_columns(shape)
            ids = np.concatenate(
                [
                    row_id(order.key_vecs(columns, order.key_values(columns, key, owner), f"key of {owner}"))
                    for key in keys
                ]
            )
            found = self.rows.get(served, np.unique(ids, axis=0), known.epoch, deadline)
            by_id = {found.id[i].tobytes(): i for i in range(len(found))}
            rows = list(zip(*(column.to_arrow().to_pylist() for column in found.columns), strict=True))
            at_ids = (by_id.get(ids[i].tobytes()) for i in range(len(keys)))
            return [None if i is None else named(shape, rows[i]) for i in at_ids]

        return self._read(at, after, timeout, read) if keys else []

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
        def read(served: Readable, epoch: int, deadline: Deadline, stale: int | None) -> tuple[int, pa.Table]:
            shape = served.shape
            owner = f"{'view' if isinstance(served, ReadableView) else 'table'} {shape.name!r}"
            which = order.positions(shape.schema[: shape.visible], columns, owner)
            codec = key_codec(shape.schema, shape.key)
            rows = self.rows.range(served, codec, wanted(codec, owner), epoch, deadline)
            shown = to_table(shape, rows).select(which)
            for i in shape.key if keyed else ():
                shown = shown.append_column(shape.schema[i].name, rows.columns[i].to_arrow())
            return epoch if stale is None else stale, shown

        return self._read_relation(relation, at, after, timeout, allow_stale, read)

    def snapshot(self, at: Moment = None, *, timeout: float | None = None) -> ClusterSnapshot:
        """Several reads at one epoch: `with db.snapshot() as s: s.get(...); s.scan(...)`."""
        deadline = self.deadline(timeout)
        if at is None:
            return ClusterSnapshot(self, *self._pinned(deadline))
        known = self.epochs.at(at, deadline)
        return ClusterSnapshot(self, known, self.pins.pin(known.epoch, deadline))

    def subscribe(
        self, view: str, *, after: After = None, timeout: float | None = None, progress: float | None = None
    ) -> ClusterSubscription:
        """Changes of a view, one object per epoch, from after the token (or epoch) on; without one, from now on.

        Goes on for ever, or until nothing happened for `timeout` seconds. A stopped one is resumed with the epoch
        of the last change. Raises EpochExpired when the history does not reach back so far, ViewReplaced when the
        view got other columns. `progress`: seconds (1 at least) after which a change without rows says that nothing
        happened up to its epoch.
        """
        deadline = self.deadline()
        start: Known | int
        if after is None:
            start = self.epochs.newest(deadline, 0.0)
        else:
            token = ClusterToken.parse(after)
            known = self._including(token, deadline)
            if token.positions:
                start = self.epochs.first_with(token, deadline)
            else:
                start = known if known.epoch == token.epoch else token.epoch
        return ClusterSubscription(self, view, start, timeout, progress)

    def quarantine(self, relation: str) -> pa.Table:
        """Rows that a view cannot show, with the reason; of a base table in HBase, the cells and row keys that cannot
        be read."""

        def read(known: Known, deadline: Deadline) -> pa.Table:
            served = self._served(relation, known, deadline)
            if isinstance(served, ServedTable) and served.definition.origin is not None:
                return unreadable(self.stores(deadline), served, known.epoch)
            return quarantined(self.stores(deadline), self.served_view(relation, known), known.epoch)

        return self._read(None, None, None, read)

    def repair(
        self,
        view: str,
        *,
        keys: Sequence[Any] | None = None,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        everything: bool = False,
        dry_run: bool = False,
    ) -> RepairReport:
        """Put right rows in the place of those of a view, of the state behind it and of all that reads it which are not
        what the base rows make. Live: reads and writes go on, other views are not held up.

        `keys`, `prefix`, or `start` and `stop`: of the view's own rows only these; its state is always looked at as a
        whole. `dry_run`: only tell which rows are wrong. `everything`: compare nothing, make the view anew, aside.
        """
        from belvedere.cluster.client.repairing import PoolRepair

        repair = PoolRepair(self, view, keys, prefix, start, stop, dry_run)
        return repair.rebuild() if everything else repair.run()

    def _reload(self, id: str, table: str, start: str, stop: str) -> ReloadReport:
        request = calls.encode(calls.ReloadCall(id, table, start, stop))
        ask = functools.partial(self.pool.ask_leader, calls.RELOAD, request)
        return calls.decode(repeat(f"reading {table!r} again", self.deadline(), ask), ReloadReport)

    def status(self) -> dict[str, Any]:
        """What the leader tells of the pool, and what there is to read."""
        deadline = self.deadline()
        data = repeat("asking for the status", deadline, lambda t: self.pool.ask_leader(calls.STATUS, b"", t))
        told: dict[str, Any] = json.loads(data)
        known = self.epochs.newest(deadline)
        usage = self.stores(deadline).usage()
        tables: dict[str, Any] = {}
        views: dict[str, Any] = {}
        for name, served in self.epochs.names(known.committed, deadline).items():
            if isinstance(served, ServedTable):
                tables[name] = {"versions": usage.get(served.rows_table, 0)}
            else:
                failed = usage.get(quarantine_table(served.shape), 0)
                versions = usage.get(served.rows_table, 0)
                views[name] = {"version": served.shape.version, "versions": versions, "quarantine_versions": failed}
        document = self.epochs.document(known.committed, deadline)
        for name, one in self.epochs.failed(known.committed, deadline).items():
            views[name] = {"version": one.view.shape.version, "state": "Failed", **_failure(one)}
        for name, one in failed_builds(document).items():
            views.setdefault(name, {"version": one.view.shape.version, "state": "Failed", **_failure(one)})
            if views[name].get("state") != "Failed":  # the version before is still there
                views[name]["failed_build"] = f"version {one.view.shape.version}: {one.failure.reason}"
        built = {int(number): buckets for number, buckets in told.pop("built", {}).items()}
        aside = {int(number): how for number, how in told.pop("aside", {}).items()}
        builds = [
            {"views": list(names), "done": built[number], "total": BUCKETS, **_aside(number, aside)}
            for number, names in views_of(document, built).items()
        ]
        return {**told, "tables": tables, "views": views, "builds": builds}

    def verify(self, view: str | None = None, *, state: bool = False, base: bool = False) -> Report:
        """Recompute a view (or all) from base rows with DuckDB and compare, at one epoch.

        `state`: compare what is stored of its view group, its state included, with what a fresh shard makes of the base
        rows, byte by byte. `base`: compare the base rows of a table, or of those that a view reads, with where they
        come from.
        """
        if not state and not base:
            return super().verify(view)
        from belvedere.cluster.client import verifying
        from belvedere.model import verify as verification

        if state and base:
            raise CatalogError("verify compares the state behind views or base rows, one at a time")
        reports = list(verifying.verify_state(self, view) if state else verifying.verify_base(self, view))
        return reports[0] if len(reports) == 1 else verification.together(reports, self.epoch)

    # ------------------------------------------------------------------ writes

    def written(self, name: str) -> ClusterToken | None:
        """The token of a write by the name of its `request`; None if there was none within the last hour."""
        found = self.stores(self.deadline()).written(name)
        return None if found is None else ClusterToken.of(found)

    def _write(
        self,
        table: str,
        read: ReadRows,
        ts: Any,
        timeout: float | None,
        *,
        ordered: bool,
        borrowed: bool,
        request: str = "",
    ) -> ClusterToken:
        deadline = self.deadline(timeout)
        known = self.epochs.newest(deadline)
        try:
            served, changes = self._changes(table, known, read, deadline)
        except (CatalogError, DataError):
            newest = self.epochs.newest(deadline, 0.0)  # the table or a column may have come a moment ago
            if newest.committed.catalog_document == known.committed.catalog_document:
                raise
            served, changes = self._changes(table, newest, read, deadline)
        if changes is None:
            return ClusterToken(known.epoch)
        if ts is not None:
            in_hbase = served.stored.origin is not None
            changes.ts = given.timestamps(_milliseconds(ts) if in_hbase else ts, len(changes))
        return self._send(served, changes, ts is None, request or uuid.uuid4().hex, deadline)

    def _send(
        self, table: ServedTable, changes: Changes, own_clock: bool, request: str, deadline: Deadline
    ) -> ClusterToken:
        retry = Retry(deadline=deadline, backoff=pauses())
        while True:
            store = self.stores(deadline)
            try:
                token = ClusterToken.of(store.write_base(table.stored, changes, own_clock, request))
                return token if len(token.positions) <= _MOST_MARKS else self._settled(token, deadline)
            except RequestReused:
                raise
            except (CatalogError, DataError) as error:
                if table.stored.origin is not None:
                    raise
                # The leader tells the store of a table when the catalog is taken; readers may know it before that.
                held = store.base_table(table.stored.name)
                lags = held is None or len(held.columns) < len(table.stored.columns)
                if not lags or not self._still_there(table, deadline):
                    raise
                retry.failed(error)

    def _settled(self, token: ClusterToken, deadline: Deadline) -> ClusterToken:
        """Where a token would name very many rows: an epoch that has them all."""
        if RowMark.parse(token.positions[0][0]) is None:
            return token
        return ClusterToken(self._including(token, deadline).epoch)

    def _still_there(self, table: ServedTable, deadline: Deadline) -> bool:
        names = self.epochs.names(self.epochs.newest(deadline, 0.0).committed, deadline)
        return any(
            isinstance(found, ServedTable) and found.stored.name == table.stored.name for found in names.values()
        )

    def _changes(
        self, name: str, known: Known, read: ReadRows, deadline: Deadline
    ) -> tuple[ServedTable, Changes | None]:
        found = self._served(name, known, deadline)
        if isinstance(found, ReadableView):
            raise refuse_view(found.name)
        reader = self._readers.get(found.definition)
        if reader is None:
            reader = self._readers[found.definition] = given.GivenRows(found.definition)
        return found, read(reader)

    # ------------------------------------------------------------------ statements

    def execute(self, sql: str, *, wait: bool = True) -> Result:
        """Carry out one statement. DDL and writes give a token, queries an Arrow table, EXPLAIN and SHOW CREATE text.

        `wait`: CREATE MATERIALIZED VIEW returns when the view is built; writes go on meanwhile. It does not wait for
        Spark.
        """
        from belvedere.sql import parse_statement
        from belvedere.sql.parser import statements

        found = statements(sql)
        if len(found) == 1 and found[0].tokens[0].text.upper() in ("CREATE", "ALTER", "DROP"):
            return self._change_catalog(sql, False, wait)  # bound by the leader, which has the newest catalog
        try:
            statement = parse_statement(sql, self.catalog)
        except CatalogError:
            self.epochs.newest(self.deadline(), 0.0)
            statement = parse_statement(sql, self.catalog)
        return self._carry_out(statement, wait)

    def _write_statement(self, statement: st.Statement, wait: bool) -> Result:
        token = self._write_rows(statement)
        if token is None:
            raise AssertionError(f"a statement that nobody carries out: {statement}")
        return token

    def apply_manifest(self, text: str, *, wait: bool = True) -> list[embedded_token.Token]:
        """Carry out the documents of a YAML manifest, all at once: views that are applied together share state.

        What exists as described is left alone. A table gets its new columns, a view its new query; a table that would
        have to change otherwise is refused, and then nothing of the manifest happens.
        """
        from belvedere.sql.yaml_document import documents

        count = len(documents(text))
        return [self._change_catalog(text, True, wait)] * count if count else []

    def rebuild(self, view: str, *, wait: bool = True) -> ClusterToken:
        """Make a view anew from the base rows, with all that share its state or read it: new versions, aside, which
        take the place of those that are there in one epoch."""
        return self._change_catalog(view, False, wait, rebuild=True)

    def _change_catalog(self, text: str, manifest: bool, wait: bool, rebuild: bool = False) -> ClusterToken:
        request = calls.encode(calls.DdlCall(uuid.uuid4().hex, text, manifest, rebuild))
        tries, deadline = 0, self.deadline()

        def ask(timeout: float) -> bytes:
            nonlocal tries
            tries += 1
            share = deadline.left(DDL_TRIES * DDL_SECONDS) / DDL_TRIES
            return self.pool.ask_leader(calls.DDL, request, max(timeout, share))

        try:
            taken = calls.decode(repeat("changing the catalog", deadline, ask), calls.Taken)
        except Unavailable as error:
            raise type(error)(
                f"{error}; the change may have happened all the same: look before you repeat it"
            ) from error
        self._progress("the change of the catalog is durable", lambda known: known.epoch >= taken.epoch)
        if not wait:
            return ClusterToken(taken.epoch)
        # the answer to a try that was repeated does not tell what the first one began to build
        wanted, certain = set(taken.view_groups) - set(taken.aside), tries == 1 or bool(taken.aside)
        complete = self._progress(
            "the views are created",
            lambda known: not (set(known.committed.building) & wanted if certain else known.committed.building),
        )
        unbuilt = failed_builds(self.epochs.document(complete.committed, self.deadline()))
        for name, one in unbuilt.items():
            if one.view.view_group in wanted:
                raise ViewFailed(
                    f"view {name!r} could not be built: {one.failure.reason}; what was there before goes on",
                    one.failure.epoch,
                )
        return ClusterToken(complete.epoch)  # not the one in which the change was taken: views cannot be read in it yet

    def _progress(self, what: str, done: Callable[[Known], bool]) -> Known:
        """Wait as long as it takes, but not for a pool that does not commit anything."""
        last = -1
        while True:
            found = self.epochs.wait(done, self.deadline())
            if found is not None:
                return found
            newest = self.epochs.newest(self.deadline(), 1.0)
            if newest.epoch == last:
                why = newest.stalled or f"no epoch was committed for {self.timeout:g} s"
                raise Unavailable(f"{what}, and the pool does not get on: {why}")
            last = newest.epoch

    # ------------------------------------------------------------------ what statements need

    def _row_counts(self) -> Mapping[str, int]:
        def count(known: Known, deadline: Deadline) -> dict[str, int]:
            names = self.epochs.names(known.committed, deadline)
            return {
                name: sum(len(piece) for piece in self.rows.pieces(served, known.epoch, deadline))
                for name, served in names.items()
                if isinstance(served, ReadableView)
            }

        return self._read(None, None, None, count)

    def _consistent(
        self, names: set[str], prefixes: Mapping[str, Sequence[Any]] = NO_PREFIXES
    ) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
        def read(known: Known, deadline: Deadline) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
            tables, failed = {}, {}
            for name in sorted(names):
                served = self._served(name, known, deadline)
                tables[name] = to_table(served.shape, self.rows.rows(served, known.epoch, deadline))
                if isinstance(served, ReadableView):
                    failed[name] = quarantined(self.stores(deadline), served, known.epoch).num_rows
                elif served.definition.origin is not None:
                    found = unreadable(self.stores(deadline), served, known.epoch)
                    failed[name] = found.num_rows - found["row_key"].null_count
                    failed[unread_cells(name)] = found["row_key"].null_count
            return known.epoch, tables, failed

        return self._read(None, None, None, read)

    def _foreign_cells(self, view: str) -> list[str]:
        def read(known: Known, deadline: Deadline) -> list[str]:
            table = self.served_view(view, known).rows_table
            return self.stores(deadline).foreign_cells(table, _FOREIGN_CELLS)

        return self._read(None, None, None, read)

    def _plan(self) -> tuple[Plan, Any]:
        deadline = self.deadline()
        return self.epochs.plan(self.epochs.newest(deadline).committed, deadline), None

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Give up pins and connections. Closing again does nothing, but for what an interrupt left."""
        if self._let_go:
            return
        self._closed = True
        self.pins.close()
        self.stores.close()
        self._on_close()
        self._let_go = True


class ClusterSnapshot(SnapshotReads):
    def __init__(self, database: ClusterDatabase, known: Known, pin: Pin) -> None:
        """`pin`: one on the epoch; it is given up with the snapshot."""
        self._database = database
        self._known = Known(known.committed, None)  # what it sees is kept by the pin, not because it is new
        super().__init__(database, self._known, pin, database.pins.unpin)

    @property
    def epoch(self) -> int:
        return self._known.epoch

    @property
    def positions(self) -> Mapping[SourceId, Seq]:
        """How far each source is in this epoch."""
        return self._known.committed.positions

    @property
    def catalog(self) -> Catalog:
        """Tables and views that can be read in this epoch."""
        return self._database.epochs.catalog(self._known.committed, self._database.deadline())


def _milliseconds(ts: Any) -> Any:
    """Moments as HBase's timestamps; numbers are those already."""
    if isinstance(ts, datetime):
        return int(given.timestamps(ts, 1)[0]) // 1000
    return ts if isinstance(ts, (int, np.integer)) else [_milliseconds(one) for one in ts]


def _failure(one: FailedVersion) -> dict[str, Any]:
    return {"since": one.failure.epoch, "reason": one.failure.reason}


def _row(rows: Delta) -> tuple[Any, ...]:
    return tuple(column.to_arrow()[0].as_py() for column in rows.columns)


__all__ = ["After", "ClusterDatabase", "Moment", "ClusterSnapshot"]


def _aside(number: int, aside: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """What is to be said of a build whose state somebody else computes."""
    told = aside.get(number)
    if told is None:
        return {}
    found: dict[str, Any] = {"view_group": number, "by": "spark", "since": told["since"]}
    if not told["since"]:
        return found | {"state": "waits for what it reads to be loaded or built"}
    if "total" not in told:
        return found | {"state": "waits for Spark: run `belvedere-spark build`, or leave one running with --follow"}
    return (
        found
        | {key: told[key] for key in ("done", "total", "rows", "rows_per_s", "remaining_s")}
        | {"state": "Spark computes it"}
    )
