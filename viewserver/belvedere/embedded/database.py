"""The embedded database: one directory, one writing process, any number of reading ones.

`belvedere.open` gives a `Database`. Its writes go through group commit into the input log and return when durable;
the engine's thread (`belvedere.embedded.runtime`) turns them into views, epoch by epoch; reads are in
`belvedere.embedded.reading`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.embedded import status
from belvedere.embedded.instance import Instance
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.pins import Leases
from belvedere.embedded.reading import After, Moment, together
from belvedere.embedded.statements import Statements
from belvedere.embedded.storage.changelog import Change
from belvedere.embedded.storage.commit import GroupEntry
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.ordered import base_range
from belvedere.embedded.storage.views import Row, ViewTable
from belvedere.engine.delta import Changes
from belvedere.engine.trial import try_out
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError, DiskError, ViewFailed
from belvedere.model import change_codec as codec
from belvedere.model import ddl, rows
from belvedere.model.describe import ViewShape, schema_json, table_json
from belvedere.model.ranges import KeyRange
from belvedere.model.rows import is_frame
from belvedere.model.statements import NO_PREFIXES, Result
from belvedere.model.token import Token
from belvedere.plan.nodes import Plan
from belvedere.plan.planner import plan_views
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef, ViewDef


class Database(Statements):
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
    def pins(self) -> Leases:
        return self._leases

    def _failed(self) -> Mapping[str, ViewFailed]:
        refused = list(self._runtime.builds.refused.items())
        return {name: ViewFailed(view.problem, view.failed) for name, view in refused if view.failed}

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

    def _base_range(self, table: TableDef, wanted: KeyRange, columns: Sequence[int]) -> tuple[Vec, ...]:
        return self._runtime.call(lambda: base_range(self._runtime.engine.tables[table.name], wanted, columns))

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

    def put(self, table: str, rows: Any, *, ts: Any = None, timeout: float | None = None) -> Token:
        """Insert or update rows (dicts, Arrow, pandas, polars). Missing columns are unchanged, None is NULL.

        Atomic; returns when durable. `ts`: cell timestamps (microseconds or datetime, for all rows or one per row).
        """
        reader = self._reader(table)
        return self._write(reader, reader.puts(rows), ts, False, timeout, is_frame(rows))

    def delete(self, table: str, keys: Any, *, ts: Any = None, timeout: float | None = None) -> Token:
        """Delete rows by key: values, tuples or dicts, or a table with the key columns."""
        reader = self._reader(table)
        return self._write(reader, reader.deletes(keys), ts, False, timeout, is_frame(keys))

    def write(self, table: str, rows: Any, *, deletes: Any, ts: Any = None, timeout: float | None = None) -> Token:
        """Puts and deletes in one atomic, ordered batch: `deletes` has a boolean per row."""
        reader = self._reader(table)
        return self._write(reader, reader.mixed(rows, deletes), ts, True, timeout, True)

    def _reader(self, table: str) -> rows.GivenRows:
        found = self._rows.get(table)
        if found is None:
            relation = self.catalog.relation(table)
            found = self._rows.get(relation.name)
            if found is None:
                raise CatalogError(f"{relation.name!r} is a view; rows are written to base tables")
        return found

    def _write(
        self,
        reader: rows.GivenRows,
        changes: Changes | None,
        ts: Any,
        ordered: bool,
        timeout: float | None,
        borrowed: bool,
    ) -> Token:
        if changes is None:
            if self._closed or self._runtime.failure is not None:
                raise self._runtime.closed()
            return Token(self._committer.epoch)
        table = reader.table
        count = len(changes)
        if ts is not None:
            changes.ts = rows.timestamps(ts, count)
        meta, buffer = codec.encode(table, changes, own_clock=ts is None)
        if borrowed:
            # the caller may change its arrays when we return, and the engine reads them later: it gets the log's copy
            changes = codec.decode(table, meta, buffer)

        def check() -> None:
            now = self._rows.get(table.name)
            if now is None:
                raise CatalogError(f"table {table.name!r} was dropped; nothing was written")
            if now is not reader and not ddl.extends(now.table, table):
                raise CatalogError(f"table {table.name!r} became another one; nothing was written, repeat the call")

        clocks = 0 if ts is not None else count if ordered and changes.delete is not None else 1
        entry = GroupEntry(meta, buffer, table.name, changes, count, clocks, on_join=check)
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
        match statement:
            case st.Insert():
                return self.put(statement.table, [dict(zip(statement.columns, r, strict=True)) for r in statement.rows])
            case st.Delete():
                return self.delete(statement.table, list(statement.keys))
        with self._ddl:
            self._settle_ddl()
            # one build at a time; whoever follows sees what the one before made
            self._wait_unless_full(lambda: self._runtime.builds.pending is None, "another view is being built, which")
            match statement:
                case st.CreateTable():
                    return self._create_table(statement)
                case st.AddColumns():
                    return self._add_columns(statement)
                case st.Drop():
                    return self._drop(statement)
                case st.CreateView():
                    return self._create_view(statement, wait)
        raise AssertionError(f"a statement that nobody carries out: {statement}")

    def _wait_unless_full(self, condition: Callable[[], bool], what: str) -> None:
        self._runtime.wait_until(lambda: condition() or self._runtime.waiting_for_room is not None)
        if not condition():
            raise DiskError(f"{what} waits for room on the disk: {self._runtime.waiting_for_room}")

    def _applied(self, token: Token) -> Token:
        self._wait_unless_full(lambda: self.epoch >= token.epoch, "the statement is durable and")
        return token

    def _create_table(self, statement: st.CreateTable) -> Token:
        table = statement.table
        existing = self.catalog.find(table.name)
        if existing is not None:
            if statement.if_not_exists and isinstance(existing, TableDef):
                return Token(self.epoch)
            raise CatalogError(f"{existing.name!r} exists already")
        operation = {"op": "create_table", "table": table_json(table)}
        return self._applied(
            self._submit_ddl(
                operation,
                on_join=lambda: self._rows.__setitem__(table.name, rows.GivenRows(table)),
                on_fail=lambda: self._rows.pop(table.name, None),
            )
        )

    def _add_columns(self, statement: st.AddColumns) -> Token:
        table = self.catalog.relation(statement.table)
        if not isinstance(table, TableDef):
            raise CatalogError(f"{table.name!r} is a view; replace it with CREATE OR REPLACE MATERIALIZED VIEW")
        known = {c.name.lower() for c in table.columns}
        for column in statement.columns:
            if column.name.lower() in known:
                raise CatalogError(f"table {table.name!r} has a column {column.name!r} already")
            known.add(column.name.lower())
        columns = schema_json(statement.columns)
        wider = rows.GivenRows(ddl.with_columns(table, columns))
        before = self._rows[table.name]
        return self._applied(
            self._submit_ddl(
                {"op": "add_columns", "table": table.name, "columns": columns},
                on_join=lambda: self._rows.__setitem__(table.name, wider),
                on_fail=lambda: self._rows.__setitem__(table.name, before),
            )
        )

    def _drop(self, statement: st.Drop) -> Token:
        found = self.catalog.find(statement.name)
        if found is None or isinstance(found, TableDef) != (statement.kind == "table"):
            refused = self._runtime.builds.refused
            if found is None and statement.kind == "view" and statement.name in refused:
                return self._applied(self._submit_ddl({"op": "drop_view", "name": statement.name}))
            if found is None and statement.if_exists:
                return Token(self.epoch)
            if found is None:
                self.catalog.relation(statement.name)
            other = "a view" if statement.kind == "table" else "a table"
            raise CatalogError(f"{statement.name!r} is {other}, not a {statement.kind}")
        ddl.refuse_if_needed(self.catalog, statement.kind, found.name)
        if isinstance(found, ViewDef):
            return self._applied(self._submit_ddl({"op": "drop_view", "name": found.name}))
        before = self._rows[found.name]
        return self._applied(
            self._submit_ddl(
                {"op": "drop_table", "name": found.name},
                on_join=lambda: self._rows.pop(found.name, None),
                on_fail=lambda: self._rows.__setitem__(found.name, before),
            )
        )

    def _create_view(self, statement: st.CreateView, wait: bool) -> Token:
        view, catalog = statement.view, self.catalog
        existing = catalog.find(view.name)
        if isinstance(existing, TableDef):
            raise CatalogError(f"{existing.name!r} exists already: it is a table")
        if existing is not None:
            if statement.if_not_exists:
                return Token(self.epoch)
            if not statement.or_replace:
                raise CatalogError(f"view {existing.name!r} exists already; CREATE OR REPLACE changes it")
            if ddl.view_json(existing) == {**ddl.view_json(view), "name": existing.name, "version": existing.version}:
                return Token(self.epoch)
            views, after = ddl.cone(catalog, view)
        else:
            views, after = [view], catalog.with_view(view)
        plan = self._runtime.call(lambda: self._runtime.engine.plan)
        try_out(plan_views(after, views, plan))  # what cannot be planned or computed is refused before it is in the log
        failures = self._runtime.builds.failures
        failures.pop(views[0].name, None)
        token = self._submit_ddl({"op": "create_views", "views": [ddl.view_json(v) for v in views]})
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

        tokens = []
        for described in applicable(text, lambda: self.catalog, EMBEDDED):
            statement: st.Statement | None = described
            if isinstance(described, st.CreateTable):
                existing = self.catalog.find(described.table.name)
                if isinstance(existing, TableDef):
                    added = ddl.added_columns(existing, described.table)
                    statement = st.AddColumns(existing.name, added) if added else None
            token = Token(self.epoch) if statement is None else self._write_statement(statement, wait)
            assert isinstance(token, Token)
            tokens.append(token)
        return tokens

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

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


__all__ = ["After", "DataError", "Database", "Moment"]
