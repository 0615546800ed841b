"""A process that only reads: the snapshot in force, then the output changelog as it grows. It runs no engine.

Every read first takes in what the writer has added. Base tables, where somebody asks for one, are followed through
the input log in the same way. If the writer collects files that this process has not read yet, it starts again from
the newest snapshot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from belvedere.embedded import status
from belvedere.embedded.builds import RefusedView, StaleRows
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.pins import ForeignLeases
from belvedere.embedded.reading import together
from belvedere.embedded.runtime import merge_changes
from belvedere.embedded.statements import Statements
from belvedere.embedded.storage import changelog, log, records
from belvedere.embedded.storage.changelog import Change, Position
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.ordered import base_range
from belvedere.embedded.storage.records import SegmentRecord
from belvedere.embedded.storage.snapshot import StoredSnapshot
from belvedere.embedded.storage.tail import ChangelogTail, Gone, LogTail, newest_epoch
from belvedere.embedded.storage.views import Row, ViewTable
from belvedere.engine.delta import Changes, Delta
from belvedere.engine.state.cell_table import new_table
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.vec import Vec
from belvedere.errors import Closed, Damaged, EpochExpired, ReadOnly, StorageError
from belvedere.model import change_codec as codec
from belvedere.model import ddl
from belvedere.model.closing import Closing
from belvedere.model.describe import ViewShape, schema_of, table_of
from belvedere.model.ranges import KeyRange
from belvedere.model.statements import NO_PREFIXES, Result
from belvedere.plan.nodes import Plan, ViewNode
from belvedere.plan.planner import plan_views
from belvedere.retry import Backoff, Deadline, poll
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef

T = TypeVar("T")
_ATTEMPTS = 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_COUNTED_BYTES = 256 << 20
"""Up to this size of snapshot and log, `status` loads base tables to count their rows."""


class _Committed:
    """The epoch of the tables of one load: those of an earlier one stay at theirs."""

    epoch = 0


class Reader(Statements, Closing):
    """A database open for reading only; same methods, but for those that write."""

    def __init__(self, files: Files, options: DatabaseOptions):
        self._files, self.options = files, options
        self._guard = threading.RLock()
        self._leases = ForeignLeases(files, self._now_ms)
        self._closed = False
        self._torn = True
        with self._guard:
            self._again(lambda: None)

    # ------------------------------------------------------------------ following

    def _again(self, action: Callable[[], T]) -> T:
        """Do it; while the writer replaces what is being read, from the start again. So it is after an interrupt, which
        may have left the state between two epochs."""
        for attempt in range(_ATTEMPTS):
            try:
                if attempt or self._torn:
                    self._load()
                self._torn = True
                result = action()
                self._torn = False
                return result
            except (Gone, FileNotFoundError):
                time.sleep(_LONGEST_PAUSE)
            except Damaged:
                # a snapshot that was replaced while it was read looks damaged; one that is stays so
                if attempt >= 3:
                    raise
                time.sleep(_LONGEST_PAUSE)
        raise StorageError("the writer replaces snapshots faster than they can be read; try again")

    def _load(self) -> None:
        snapshot = StoredSnapshot.current(self._files)
        self._tables: dict[str, ViewTable] = {}
        self._gone: list[ViewTable] = []
        self._known: dict[tuple[str, int], ViewShape] = {}
        self._out: dict[str, RefusedView] = {}
        self._bases: dict[str, DeltaTable] | None = None
        self._at = at = _Committed()
        self._loaded = 0 if snapshot is None else snapshot.manifest["epoch"]
        self._bound: Catalog | None = None
        self._catalog_json: dict[str, Any] = {"tables": [], "views": []}
        first = min(changelog.list_segments(self._files), default=0)
        position = Position(first, records.HEAD_SIZE, 0)
        if snapshot is not None:
            manifest = snapshot.manifest
            position = Position(*manifest["changelog"])
            at.epoch = manifest["epoch"]
            self._catalog_json = manifest["catalog"]
            self._out = {value["name"]: RefusedView(value, *why) for value, *why in manifest.get("refused", ())}
            self._known = {(s["name"], s["version"]): ViewShape.of(s) for s in manifest["shapes"]}
            for view in manifest["views"]:
                table = ViewTable(ViewShape.of(view), lambda: at.epoch, view["since"])
                table.load(snapshot.arrays(view["file"]))
                self._tables[view["name"]] = table
            for view in manifest.get("stale", ()):
                stale = StaleRows.load(view, snapshot)
                self._out[view["name"]] = replace(self._out[view["name"]], stale=stale)
        elif first:
            raise Gone("the snapshot")
        self._tail = ChangelogTail(self._files, position)
        if self._files.size(f"{changelog.DIRECTORY}/{position.segment:020d}.out") is not None:
            self._take()

    def _take(self) -> None:
        for parts in self._tail.take():
            self._apply(parts)

    def _take_if_any(self) -> None:
        if self._tail.epoch or changelog.list_segments(self._files):
            self._take()

    def _refresh(self) -> None:
        with self._guard:
            if self._closed:
                raise Closed("the database is closed")
            self._again(self._take_if_any)

    def _apply(self, parts: list[Change]) -> None:
        """One epoch; readers of this process see it at once."""
        epoch, at = parts[-1].epoch, self._at
        if any(change.meta.get("reread", 0) > self._loaded for change in parts):
            raise Gone("what was read before it was repaired")
        rows: dict[str, list[Delta]] = {}
        fresh: dict[str, ViewTable] = {}
        for change in parts:
            for start in change.meta.get("starts", ()):
                shape = ViewShape.of(start)
                self._known[shape.name, shape.version] = shape
                self._out.pop(shape.name, None)
                old = self._tables.get(shape.name)
                if start["since"] == epoch or old is None:
                    self._retire(old, epoch)
                    fresh[shape.name] = ViewTable(shape, lambda: at.epoch, start["since"])
                else:
                    old.restart(shape)
        for change in parts:
            for name, delta in change.deltas(self._known):
                rows.setdefault(name, []).append(delta)
        tables = {**self._tables, **fresh}
        quarantine: dict[str, list[Any]] = {}
        for change in parts:
            for name, part in change.quarantines(self._known):
                quarantine.setdefault(name, []).append(part)
        touched = []
        for name in {*rows, *quarantine}:
            tables[name].begin(epoch, rows.get(name, []), quarantine.get(name, []))
            touched.append(tables[name])
        for change in parts:
            dropped = dict[str, StaleRows]()
            for name in change.meta.get("drops", ()):
                if (table := tables.pop(name, None)) is not None:
                    self._retire(table, epoch)
                    dropped[name] = StaleRows.of(table, at.epoch)
                self._out.pop(name, None)
            for name, (reason, since) in change.meta.get("fails", {}).items():
                self._out[name] = RefusedView({"name": name}, reason, since, dropped.get(name))
            if "catalog" in change.meta:
                self._catalog_json, self._bound = change.meta["catalog"], None
        self._tables = tables
        at.epoch = epoch
        for table in touched:
            table.finish()

    def _retire(self, table: ViewTable | None, epoch: int) -> None:
        pins = [int(str(p["epoch"])) for p in self._leases.held(0)]
        if table is not None and pins:
            table.until = epoch
            self._gone.append(table)
        self._gone = [t for t in self._gone if t.until is not None and pins and min(pins) < t.until]

    # ------------------------------------------------------------------ see Reading

    @property
    def catalog(self) -> Catalog:
        self._refresh()
        with self._guard:
            if self._bound is None:
                self._bound, _ = ddl.catalog_of(self._catalog_json)
            return self._bound

    @property
    def epoch(self) -> int:
        with self._guard:
            self._refresh()
            return self._at.epoch

    @property
    def _epoch(self) -> int:
        return self._at.epoch

    @property
    def pins(self) -> ForeignLeases:
        return self._leases

    def _refused(self) -> Mapping[str, RefusedView]:
        with self._guard:
            self._refresh()
            return dict(self._out)

    def _views(self) -> dict[str, ViewTable]:
        with self._guard:
            self._refresh()
            return self._tables

    def _retired(self) -> list[ViewTable]:
        return self._gone

    def _shapes(self) -> dict[tuple[str, int], ViewShape]:
        return self._known

    def _history(self, after: int, upto: int) -> Iterator[Change]:
        segments = changelog.list_segments(self._files)
        if not segments or segments[0] > after:
            raise EpochExpired(
                f"epoch {after} is older than the history, which begins at {min(segments, default=upto)}"
            )
        for at, segment in enumerate(segments):
            if at + 1 < len(segments) and segments[at + 1] <= after:
                continue
            path = f"{changelog.DIRECTORY}/{segment:020d}.out"
            try:
                yield from changelog.read_segment(self._files, path, records.HEAD_SIZE, None, after, upto)
            except FileNotFoundError as error:
                raise EpochExpired(f"epoch {after} is older than the history, which was just collected") from error

    def _wait_for(self, epoch: int, timeout: float | None) -> bool:
        # the writer is another process: nothing to wait on but its files
        return poll(lambda: self.epoch >= epoch, Deadline(timeout), Backoff(_FIRST_PAUSE, _LONGEST_PAUSE))

    def _now_ms(self) -> int:
        return self.options.clock() // 1000

    def _retention_ms(self, shape: ViewShape) -> int:
        return self.options.retention_ms if shape.retention_ms is None else shape.retention_ms

    # ------------------------------------------------------------------ base tables

    def _follow_bases(self) -> dict[str, DeltaTable]:
        """Base tables at the epoch of the views; the caller holds the guard."""
        if self._bases is None:
            snapshot = StoredSnapshot.current(self._files)
            if snapshot is not None and snapshot.manifest["epoch"] > self._epoch:
                raise Gone("the snapshot that the views came from")
            bases: dict[str, DeltaTable] = {}
            sequence = 0
            if snapshot is not None:
                sequence = snapshot.manifest["sequence"]
                for value in snapshot.manifest["catalog"]["tables"]:
                    table = table_of(value)
                    bases[table.name] = new_table(table)
                    bases[table.name].load(snapshot.table(snapshot.manifest["tables"][table.name]))
            self._log_tail = LogTail(self._files, sequence)
            self._bases = bases
        for record in self._log_tail.take(self._epoch):
            self._apply_record(self._bases, record)
        return self._bases

    def _apply_record(self, bases: dict[str, DeltaTable], record: SegmentRecord) -> None:
        entries = record.meta["entries"]
        buffers = iter(record.buffers([e["b"] for e in entries if "b" in e]))
        parts: dict[str, list[Changes]] = {}
        for entry in entries:
            if entry["k"] != "ddl":
                table = bases[entry["t"]]
                parts.setdefault(entry["t"], []).append(codec.decode(table.table, entry, next(buffers)))
            elif entry["op"] == "create_table":
                bases[entry["table"]["name"]] = new_table(table_of(entry["table"]))
            elif entry["op"] == "add_columns":
                bases[entry["table"]].add_columns(schema_of(entry["columns"]))
            elif entry["op"] == "drop_table":
                del bases[entry["name"]]
        for name, changes in parts.items():
            bases[name].apply(merge_changes(changes), (), record.epoch * 1000)

    def _with_bases(self, action: Callable[[dict[str, DeltaTable]], T]) -> T:
        with self._guard:
            self._refresh()
            return self._again(lambda: action(self._follow_bases()))

    def base_tables(self) -> dict[str, DeltaTable]:
        """Base tables as snapshot and log have them, at the epoch of the views."""
        return self._with_bases(lambda bases: bases)

    def view_table(self, name: str) -> ViewTable | None:
        """A view as snapshot and changelog have it."""
        return self._views().get(name)

    def _base_range(self, table: TableDef, wanted: KeyRange, columns: Sequence[int]) -> tuple[int, tuple[Vec, ...]]:
        return self._with_bases(lambda bases: (self._epoch, base_range(bases[table.name], wanted, columns)))

    def _base_get(self, table: TableDef, id: np.ndarray) -> Row | None:
        return self._with_bases(lambda bases: bases[table.name].get(id))

    def _consistent(
        self, names: set[str], prefixes: Mapping[str, Sequence[Any]] = NO_PREFIXES
    ) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
        def collect(bases: Mapping[str, DeltaTable]) -> tuple[int, dict[str, pa.Table], dict[str, int]]:
            return self._epoch, *together(names, prefixes, bases, self._tables)

        with self._guard:
            self._refresh()
            if names <= self._tables.keys():
                return collect({})  # base tables are loaded only where they are asked for
            return self._with_bases(collect)

    # ------------------------------------------------------------------ statements

    def _plan(self) -> tuple[Plan, Any]:
        nodes: list[ViewNode] = []
        catalog = self.catalog
        for view in catalog.views.values():
            nodes += plan_views(catalog, [view], Plan(tuple(nodes)))
        return Plan(tuple(nodes)), None

    def _write_statement(self, statement: st.Statement, wait: bool) -> Result:
        raise ReadOnly("the database is open for reading only; open it without read_only to change something")

    def status(self) -> dict[str, Any]:
        """What a reading process can tell; rows of tables only where they are quickly counted."""
        with self._guard:
            self._refresh()
            return self._again(self._status)

    def _status(self) -> dict[str, Any]:
        tables = self._table_status()
        # the log is looked at before the changelog: what is committed meanwhile must not look like lag
        written = newest_epoch(self._files)
        self._take_if_any()
        now, epoch = self._now_ms(), self._epoch
        snapshot = StoredSnapshot.current(self._files)
        return {
            "epoch": epoch,
            "written_epoch": max(written, epoch),
            "age_ms": max(0, now - epoch),
            "lag_ms": 0 if written <= epoch else max(0, now - epoch),
            "read_only": True,
            "tables": tables,
            "views": status.views(self._tables),
            "log": self._files_of(log.DIRECTORY, ".log"),
            "snapshot": {} if snapshot is None else {"epoch": snapshot.manifest["epoch"], "bytes": snapshot.size},
            "history": {
                "floor": min(changelog.list_segments(self._files), default=epoch),
                "bytes": self._files_of(changelog.DIRECTORY, ".out")["bytes"],
            },
            "pins": self._leases.held(now),
        }

    def _files_of(self, directory: str, ending: str) -> dict[str, int]:
        sizes = [self._files.size(f"{directory}/{n}") for n in self._files.list(directory) if n.endswith(ending)]
        return {"bytes": sum(s for s in sizes if s is not None), "segments": len(sizes)}

    def _table_status(self) -> dict[str, dict[str, int]]:
        """Counting rows means to load them, which this process has no other need for."""
        if self._bases is None:
            snapshot = StoredSnapshot.current(self._files)
            held = 0 if snapshot is None else snapshot.size
            if held + self._files_of(log.DIRECTORY, ".log")["bytes"] > _COUNTED_BYTES:
                return {t["name"]: {} for t in self._catalog_json["tables"]}
        return {
            name: {"rows": len(table), "tombstones": table.tombstones, "bytes": table.nbytes()}
            for name, table in self._follow_bases().items()
        }

    def close(self) -> None:
        """Let go of leases."""
        with self._guard:
            self._closed = True
            self._leases.close()
