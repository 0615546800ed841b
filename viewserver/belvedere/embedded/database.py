"""The embedded database: one directory, one writing process, any number of reading ones.

`belvedere.open` gives a `Database`. Its writes go through group commit into the input log and return when durable;
the engine's thread (`belvedere.embedded.runtime`) turns them into views, epoch by epoch; reads are in
`belvedere.embedded.reading`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from belvedere.embedded import status
from belvedere.embedded.builds import RefusedView
from belvedere.embedded.instance import Instance
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.pins import PinLeases
from belvedere.embedded.reading import After, Moment, together
from belvedere.embedded.repairing import Repairing
from belvedere.embedded.repairs import Damage, Repairs
from belvedere.embedded.storage.changelog import Change
from belvedere.embedded.storage.commit import GroupEntry
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.ordered import base_range
from belvedere.embedded.storage.views import Row, ViewTable
from belvedere.engine.trial import try_out
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError, DiskError
from belvedere.model import catalog_change, ddl, rows
from belvedere.model import change_codec as codec
from belvedere.model.catalog_change import CatalogChange
from belvedere.model.closing import Closing
from belvedere.model.describe import ViewShape
from belvedere.model.ranges import KeyRange
from belvedere.model.repair import RepairReport
from belvedere.model.statements import NO_PREFIXES, Result
from belvedere.model.token import Token
from belvedere.model.writing import ReadRows, Writing, refuse_view
from belvedere.plan.nodes import Plan
from belvedere.plan.planner import plan_views
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef

T = TypeVar("T")
Decide = Callable[[Catalog, st.Statement], CatalogChange | None]


class Database(Repairing, Writing[Token], Closing):
    """A database open for reading and writing. All methods may be called from any thread."""

    def __init__(self, path: str | os.PathLike[str] | None, options: DatabaseOptions, files: Files | None = None):
        self._instance = instance = Instance(self, path, options, files)
        self.path = None if instance.in_memory or path is None else Path(path)
        self.options = options
        self._ddl = threading.RLock()
        self._last_ddl: GroupEntry | None = None
        self._closed = False
        try:
            instance.open()
            self._runtime, self._committer = instance.runtime, instance.committer
            self._leases, self._rows = instance.leases, instance.rows
        except BaseException:
            instance.give_up()
            raise

    # ------------------------------------------------------------------ reading: see Reading

    @property
    def catalog(self) -> Catalog:
        return self._runtime.catalog

    @property
    def epoch(self) -> int:
        return self._runtime.committed

    @property
    def pins(self) -> PinLeases:
        return self._leases

    def _refused(self) -> Mapping[str, RefusedView]:
        return dict(self._runtime.builds.refused)

    def _views(self) -> dict[str, ViewTable]:
        if self._closed:
            raise self._runtime.closed()
        return self._runtime.tables

    def _retired(self) -> list[ViewTable]:
        return self._runtime.retired

    def _shapes(self) -> dict[tuple[str, int], ViewShape]:
        return self._runtime.shapes

    def _history(self, after: int, upto: int) -> Iterator[Change]:
        return self._runtime.changelog.read(after, upto)

    def _wait_for(self, epoch: int, timeout: float | None) -> bool:
        return self._runtime.wait_for(epoch, timeout)

    def _now_ms(self) -> int:
        return self._instance.clock.now() // 1000

    def _retention_ms(self, shape: ViewShape) -> int:
        return self.options.retention_ms if shape.retention_ms is None else shape.retention_ms

    def _base_range(self, table: TableDef, wanted: KeyRange, columns: Sequence[int]) -> tuple[int, tuple[Vec, ...]]:
        return self._runtime.call(
            lambda: (self.epoch, base_range(self._runtime.engine.tables[table.name], wanted, columns))
        )

    def _base_get(self, table: TableDef, id: np.ndarray) -> Row | None:
        return self._runtime.call(lambda: self._runtime.engine.tables[table.name].get(id))

    def _consistent(
        self, names: set[str], prefixes: Mapping[str, Sequence[Any]] = NO_PREFIXES
    ) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
        def collect() -> tuple[int, dict[str, pa.Table], dict[str, int]]:
            return self.epoch, *together(names, prefixes, self._runtime.engine.tables, self._runtime.tables)

        return self._runtime.call(collect)

    def _plan(self) -> tuple[Plan, Any]:
        return self._runtime.call(lambda: (self._runtime.engine.plan, self._runtime.engine.sizes()))

    def status(self) -> dict[str, Any]:
        """Numbers about everything: rows, bytes, lag, backlog, log, snapshots, history, pins, builds, problems."""
        instance = self._instance
        found = self._runtime.call(
            lambda: status.collect(self._runtime, self._committer, instance.log, instance.snapshots, self._leases)
        )
        return {**found, "recovery": instance.recovered}

    # ------------------------------------------------------------------ writing

    def _reader(self, table: str) -> rows.GivenRows:
        found = self._rows.get(table)
        if found is None:
            relation = self.catalog.relation(table)
            found = self._rows.get(relation.name)
            if found is None:
                raise refuse_view(relation.name)
        return found

    def written(self, name: str) -> Token | None:
        """The token of a write by the name of its request; None if there was none within the last hour."""
        found = self._committer.requests.find(name)
        return None if found is None else Token(found.epoch)

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
    ) -> Token:
        reader = self._reader(table)
        changes = read(reader)
        if changes is None:
            if self._closed or self._runtime.failure is not None:
                raise self._runtime.closed()
            return Token(self._committer.epoch)
        written, count = reader.table, len(changes)
        if ts is not None:
            changes.ts = rows.timestamps(ts, count)
        meta, buffer = codec.encode(written, changes, own_clock=ts is None)
        if borrowed:
            # the caller may change its arrays when we return, and the engine reads them later: it gets the log's copy
            changes = codec.decode(written, meta, buffer)

        def check() -> None:
            now = self._rows.get(written.name)
            if now is None:
                raise CatalogError(f"table {written.name!r} was dropped; nothing was written")
            if now is not reader and not ddl.extends(now.table, written):
                raise CatalogError(f"table {written.name!r} became another one; nothing was written, repeat the call")

        clocks = 0 if ts is not None else count if ordered and changes.delete is not None else 1
        entry = GroupEntry(meta, buffer, written.name, changes, count, clocks, request=request, on_join=check)
        return self._committer.submit(entry, timeout=timeout)

    # ------------------------------------------------------------------ DDL

    def _submit_ddl(self, operation: ddl.Operation, on_join: Any = None, on_fail: Any = None) -> Token:
        entry = GroupEntry({"k": "ddl", **operation}, alone=True, on_join=on_join, on_fail=on_fail)
        self._last_ddl = entry
        return self._committer.submit(entry, unbounded=True)

    def _settle_ddl(self) -> None:
        """Until the catalog shows the last statement, though an interrupt took its caller away."""
        last = self._last_ddl
        if last is not None and not last.claim():
            token = self._committer.settle(last)
            if token is not None:
                self._applied(token)
        self._last_ddl = None

    def _write_statement(self, statement: st.Statement, wait: bool) -> Result:
        return self._write_rows(statement) or self._change_catalog(statement, wait)

    def _change_catalog(self, statement: st.Statement, wait: bool, decide: Decide = catalog_change.apply) -> Token:
        """Carry out DDL. What it changes is decided when the catalog shows all that came before."""
        with self._ddl:
            self._settle_ddl()
            # one build at a time; whoever follows sees what the one before made
            self._wait_unless_full(lambda: self._runtime.builds.pending is None, "another view is being built, which")
            if (refused := self._refused_view(statement)) is not None:
                return self._applied(self._submit_ddl({"op": "drop_view", "name": refused}))
            change = decide(self.catalog, statement)
            match change:
                case None:
                    return Token(self.epoch)
                case catalog_change.ViewsCreated():
                    return self._create_views(change, wait)
                case catalog_change.ViewDropped():
                    return self._applied(self._submit_ddl(catalog_change.operation(change)))
            return self._applied(self._change_table(change))

    def _wait_unless_full(self, condition: Callable[[], bool], what: str) -> None:
        self._runtime.wait_until(lambda: condition() or self._runtime.waiting_for_room is not None)
        if not condition():
            raise DiskError(f"{what} waits for room on the disk: {self._runtime.waiting_for_room}")

    def _applied(self, token: Token) -> Token:
        self._wait_unless_full(lambda: self.epoch >= token.epoch, "the statement is durable and")
        return token

    def _refused_view(self, statement: st.Statement) -> str | None:
        """The view that it drops, if this program cannot read it: the catalog does not have it then."""
        if not (isinstance(statement, st.Drop) and statement.kind == "view") or self.catalog.find(statement.name):
            return None
        wanted = statement.name.lower()
        return next((name for name in self._runtime.builds.refused if name.lower() == wanted), None)

    def _change_table(
        self, change: catalog_change.TableCreated | catalog_change.ColumnsAdded | catalog_change.TableDropped
    ) -> Token:
        """From the place of the change in the log on, rows are read as the table is then."""
        name, before = change.table.name, self._rows.get(change.table.name)
        after = None if isinstance(change, catalog_change.TableDropped) else rows.GivenRows(change.table)

        def read_by(reader: rows.GivenRows | None) -> None:
            if reader is None:
                self._rows.pop(name, None)
            else:
                self._rows[name] = reader

        return self._submit_ddl(catalog_change.operation(change), lambda: read_by(after), lambda: read_by(before))

    def _create_views(self, change: catalog_change.ViewsCreated, wait: bool) -> Token:
        views = change.views
        plan = self._runtime.call(lambda: self._runtime.engine.plan)
        try_out(
            plan_views(change.catalog, views, plan)
        )  # what cannot be planned or computed is refused before it is in the log
        failures = self._runtime.builds.failures
        failures.pop(views[0].name, None)
        token = self._submit_ddl(catalog_change.operation(change))
        if not wait:
            return self._applied(token)
        version = views[0].version

        def built() -> bool:
            now = self._runtime.catalog.views.get(views[0].name)
            return (now is not None and now.version == version) or views[0].name in failures

        self._wait_unless_full(built, f"view {views[0].name!r} is created and")
        if views[0].name in failures:
            raise failures[views[0].name]
        return Token(self.epoch)

    def apply_manifest(self, text: str, *, wait: bool = True) -> list[Token]:
        """Carry out the documents of a YAML manifest, in order.

        What exists as described is left alone. A table gets its new columns, a view its new query; a table that would
        have to change otherwise is refused.
        """
        from belvedere.sql.manifest_target import EMBEDDED, applicable

        described = applicable(text, lambda: self.catalog, EMBEDDED)
        return [self._change_catalog(content, wait, catalog_change.reconcile) for content in described]

    # ------------------------------------------------------------------ repair: see Repairing

    def _between_epochs(self, action: Callable[[Repairs], T]) -> T:
        return self._runtime.call(lambda: action(self._runtime.repairs))

    def _carry_out_repair(self, damage: Damage) -> RepairReport:
        with self._ddl:
            self._settle_ddl()
            operation = damage.operation()
            token = self._applied(self._submit_ddl(operation))
            result = self._runtime.repairs.results.pop(operation["id"])
            if isinstance(result, Exception):
                raise result
            snapshots = self._instance.snapshots
            if snapshots is None:
                return result
            # for reading processes: what they have read is left behind
            self._runtime.call(lambda: snapshots.take(wait=True, anew=True))
            if snapshots.epoch < token.epoch:
                return replace(result, problem=f"reading processes do not know it yet: {snapshots.problem}")
            self._applied(self._submit_ddl({"op": "reread", "epoch": token.epoch}))
            return result

    # ------------------------------------------------------------------ the end

    def checkpoint(self) -> None:
        """Take a snapshot now; returns when it is in force."""
        snapshots = self._instance.snapshots
        if snapshots is not None:
            self._runtime.call(lambda: snapshots.take(wait=True))

    def close(self) -> None:
        """Finish what was written, take a snapshot, let go of the files. Closing again only waits for that.

        An interrupt ends the wait; the database goes on closing.
        """
        self._closed = True
        self._instance.close()


__all__ = ["After", "DataError", "Database", "Moment"]
