"""DDL in the engine's thread, and views that are being built beside the ones in service.

A build goes on in pieces between epochs. When its scan is done, an `activate` operation is written to the log: its
epoch is the one at which the views appear, also when the log is replayed. A crash before that leaves a view that
was created and not activated: recovery goes on with its build where the newest snapshot has it, or starts it again.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from belvedere.embedded.storage.plans import plan_json, plan_of
from belvedere.embedded.storage.snapshot import StoredSnapshot
from belvedere.embedded.storage.views import ViewTable, difference
from belvedere.engine.build import Build
from belvedere.engine.delta import Delta
from belvedere.engine.engine import ViewsFailed
from belvedere.engine.operators.base import State
from belvedere.errors import BelvedereError, CatalogError, Closed, Defect, DiskError, ViewFailed
from belvedere.model import ddl
from belvedere.model.describe import ViewShape, schema_of, table_of
from belvedere.model.shapes import shape_of
from belvedere.plan.nodes import ViewNode
from belvedere.plan.planner import plan_views
from belvedere.sql.catalog import ViewDef

if TYPE_CHECKING:
    from belvedere.embedded.runtime import Runtime

PIECE_SECONDS = 0.02
"""How long a build may hold up the epochs of views in service at a time."""


@dataclass(slots=True)
class Building:
    """A build under way."""

    operation: dict[str, Any]
    definitions: list[ViewDef]
    nodes: tuple[ViewNode, ...]
    build: Build
    tables: dict[ViewNode, ViewTable] = field(default_factory=dict)
    announced: bool = False
    since: float = field(default_factory=time.monotonic)
    """When this process began with it, and how many rows it had then."""
    taken_over: int = 0

    def progress(self) -> dict[str, Any]:
        """For `status`: rows of base tables that are scanned, and the time that the others will take."""
        done, total = self.build.progress
        seconds, scanned = time.monotonic() - self.since, done - self.taken_over
        return {
            "views": [d.name for d in self.definitions],
            "done": done,
            "total": total,
            "share": done / total if total else 1.0,
            "taken_over": self.taken_over,
            "remaining_s": round(seconds / scanned * (total - done), 1) if scanned > 0 else None,
        }


@dataclass(slots=True)
class Unbuilt:
    """Views whose build could not even begin."""

    operation: dict[str, Any]
    error: Exception
    announced: bool = False


@dataclass(frozen=True, slots=True)
class StaleRows:
    """What a view had before it failed, and at which epoch: for `allow_stale`, until it is dropped or replaced."""

    table: ViewTable
    epoch: int

    @staticmethod
    def of(table: ViewTable, epoch: int) -> StaleRows:
        table.freeze(epoch)
        return StaleRows(table, epoch)

    @staticmethod
    def load(value: dict[str, Any], snapshot: StoredSnapshot) -> StaleRows:
        epoch: int = value["epoch"]
        rows = ViewTable(ViewShape.of(value), lambda: epoch, value["since"])
        rows.load(snapshot.arrays(value["file"]))
        return StaleRows(rows, epoch)


@dataclass(frozen=True, slots=True)
class RefusedView:
    """A view that was in service and is not any more: what `ddl.view_json` wrote of it, and why it is refused."""

    value: dict[str, Any]
    reason: str
    failed: int = 0
    """The epoch since which it cannot be computed; 0 if it cannot be read."""
    stale: StaleRows | None = None

    def error(self) -> ViewFailed:
        return ViewFailed(self.problem, self.failed)

    @property
    def problem(self) -> str:
        if self.failed:
            return (
                f"view {self.value['name']!r} cannot be read since epoch {self.failed}: {self.reason}; create it again"
                " with CREATE OR REPLACE, or drop it"
            )
        return (
            f"view {self.value['name']!r} is out of service: this version refuses its query ({self.reason}); create it "
            f"again with a query that this version reads, or drop it. The query is: {self.value['sql']}"
        )


def no_room(error: BaseException | None) -> bool:
    """Whether a failure passes when somebody makes room on the disk."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


_EXPECTED = (BelvedereError, ArithmeticError, ValueError, MemoryError)


def _abandonment(operation: dict[str, Any], error: Exception) -> dict[str, Any]:
    """The operation that ends a build: of an error that views may meet, or of a defect."""
    names = [view["name"] for view in operation["views"]]
    if isinstance(error, ViewsFailed) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    reason = f"{type(error).__name__}: {error}"
    return {"op": "abandon", "views": names, "reason": reason, "defect": not isinstance(error, _EXPECTED)}


def _labelled(shape: ViewShape, deltas: Iterator[Delta]) -> Iterator[tuple[ViewShape, Delta]]:
    return ((shape, delta) for delta in deltas)


class Builds:
    """Applies DDL; at most one build is under way."""

    def __init__(self, runtime: Runtime):
        self._runtime = runtime
        self.current: Building | None = None
        self.nodes: dict[str, ViewNode] = {}
        """Plan nodes of the views in service, by name."""
        self.announce: Callable[[dict[str, Any]], object] | None = None
        """Writes an operation to the log; None while the log is replayed."""
        self.failures: dict[str, BelvedereError] = {}
        """Why the last build of a view failed."""
        self.refused: dict[str, RefusedView] = {}
        """Views that this program cannot read, though the one before could; by name."""
        self._unbuilt: Unbuilt | None = None

    @property
    def busy(self) -> bool:
        under_way = self.current or self._unbuilt
        return under_way is not None and not under_way.announced and self.announce is not None

    @property
    def pending(self) -> dict[str, Any] | None:
        """The operation whose build is under way, or failed and is not yet said to."""
        under_way = self.current or self._unbuilt
        return None if under_way is None else under_way.operation

    def hidden(self, node: ViewNode) -> ViewTable | None:
        """The table of a view that is being built."""
        return None if self.current is None else self.current.tables.get(node)

    def rows_of(self, node: ViewNode) -> Iterator[Delta]:
        """All rows of a view in service."""
        return self._runtime.tables[node.name].chunks()

    # ------------------------------------------------------------------ operations

    def apply(self, epoch: int, operation: dict[str, Any]) -> None:
        """One operation of the log, at its epoch."""
        extra = getattr(self, f"_{operation['op']}")(epoch, operation)
        if extra is None:
            return
        runtime = self._runtime
        if epoch > runtime.changelog.epoch:
            if operation["op"] != "create_views":  # a build that begins changes no definition, and all of them are long
                extra = {**extra, "catalog": ddl.catalog_json(runtime.catalog)}
            runtime.record(epoch, iter(()), extra=extra)
        runtime.publish(epoch)

    def _create_table(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        table = table_of(operation["table"])
        self._runtime.engine.add_table(table)
        self._runtime.catalog = self._runtime.catalog.with_table(table)
        return {}

    def _add_columns(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        catalog, columns = self._runtime.catalog, schema_of(operation["columns"])
        self._runtime.engine.add_columns(operation["table"], columns)
        self._runtime.catalog = catalog.with_table(ddl.with_columns(catalog.tables[operation["table"]], columns))
        return {}

    def _drop_table(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        self._runtime.engine.drop_table(operation["name"])
        self._runtime.catalog = self._runtime.catalog.without(operation["name"])
        return {}

    def _drop_view(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        name = operation["name"]
        if self.refused.pop(name, None) is not None:
            return {"drops": [name]}
        self._runtime.engine.drop([self.nodes.pop(name)])
        self._runtime.catalog = self._runtime.catalog.without(name)
        self._runtime.retire([self._runtime.tables[name]], epoch)
        self._runtime.tables = {k: v for k, v in self._runtime.tables.items() if k != name}
        return {"drops": [name]}

    def _create_views(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        """Begin to build. What fails here would fail again at every start, so it ends the build and nothing else."""
        try:
            self._begin(epoch, operation)
        except OSError:
            raise
        except Exception as error:
            self._give_up()
            self._unbuilt = Unbuilt(operation, error)
        return {}

    def _begin(self, epoch: int, operation: dict[str, Any]) -> None:
        definitions = self._bound(operation)
        catalog = self._runtime.catalog
        for definition in definitions:
            catalog = catalog.with_view(definition)
        nodes = plan_views(catalog, definitions, self._runtime.engine.plan)
        build = self._runtime.engine.build(nodes, self.rows_of)
        self.current = Building(operation, definitions, nodes, build)
        for node, definition in zip(nodes, definitions, strict=True):
            table = ViewTable(shape_of(node, definition), lambda: self._runtime.committed, epoch)
            self.current.tables[node] = table
        # what running operators hold is taken over before the next epoch: from then on their changes are forwarded
        self._advance_once(self.current)

    def _bound(self, operation: dict[str, Any]) -> list[ViewDef]:
        catalog, definitions = self._runtime.catalog, []
        for value in operation["views"]:
            definitions.append(ddl.bind_view(value, catalog))
            catalog = catalog.with_view(definitions[-1])
        return definitions

    def _fail_views(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        """They are out of service since the record that it names (`FailedViews`)."""
        return {}

    def cannot_build(self, unbuilt: Unbuilt) -> None:
        self._unbuilt = unbuilt

    def dump(self, write: Callable[[ViewTable], dict[str, Any]]) -> dict[str, Any] | None:
        """The build under way, for a snapshot. `write` writes a table and says where."""
        current = self.current
        if current is None:
            return None
        return {
            "plan": plan_json(current.nodes),
            "signature": self._runtime.engine.signature(current.nodes),
            "views": [write(current.tables[node]) for node in current.nodes],
            **current.build.dump(),
        }

    def resume(
        self,
        epoch: int,
        operation: dict[str, Any],
        dump: Mapping[str, Any] | None,
        snapshot: StoredSnapshot,
        state: Mapping[str, State],
    ) -> None:
        """Go on with a build that a snapshot found under way, where it was; if that was another plan or engine, from
        the start."""
        if dump is None or not self._load(operation, dump, snapshot, state):
            self.begin_again(epoch, operation)

    def _load(
        self,
        operation: dict[str, Any],
        dump: Mapping[str, Any],
        snapshot: StoredSnapshot,
        state: Mapping[str, State],
    ) -> bool:
        engine = self._runtime.engine
        try:
            nodes, definitions = plan_of(dump["plan"]), self._bound(operation)
        except (BelvedereError, KeyError):
            return False
        if dump["signature"] != engine.signature(nodes) or [n.name for n in nodes] != [d.name for d in definitions]:
            return False
        shapes = [shape_of(node, definition) for node, definition in zip(nodes, definitions, strict=True)]
        if shapes != [ViewShape.of(view) for view in dump["views"]]:
            return False
        build = engine.load_build(nodes, self.rows_of, state, dump)
        if build is None:
            return False
        self.current = Building(operation, definitions, nodes, build, taken_over=build.progress[0])
        for node, shape, view in zip(nodes, shapes, dump["views"], strict=True):
            table = ViewTable(shape, lambda: self._runtime.committed, view["since"])
            table.load(snapshot.arrays(view["file"]))
            self.current.tables[node] = table
        return True

    def begin_again(self, epoch: int, operation: dict[str, Any], announced: bool = False) -> None:
        """Start a build again whose operators are gone. `announced`: the log says already how it ends."""
        self._create_views(epoch, operation)
        under_way = self.current or self._unbuilt
        assert under_way is not None
        under_way.announced = announced

    def _repair(self, epoch: int, operation: dict[str, Any]) -> None:
        self._runtime.repairs.apply(epoch, operation)

    def _reread(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        """Reading processes load the snapshot of that epoch, or a newer one."""
        return {"reread": operation["epoch"]}

    def _abandon(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any]:
        self._give_up()
        kind = Defect if operation.get("defect") else CatalogError
        for view in operation["views"]:
            self.failures[view] = kind(f"view {view!r} could not be built: {operation['reason']}")
        return {}

    def _give_up(self) -> None:
        if self.current is not None:
            self._runtime.engine.abandon(self.current.build)
        self.current = self._unbuilt = None

    def _refuse(self, unbuilt: Unbuilt) -> dict[str, Any]:
        """Views that were complete when this was logged, and cannot be read now: what they replaced is gone as well."""
        self._unbuilt = None
        gone = [view["name"] for view in unbuilt.operation["views"] if view["name"] in self.nodes]
        for value in unbuilt.operation["views"]:
            self.refused[value["name"]] = RefusedView(value, str(unbuilt.error))
        # those above were replaced together with those below: nothing else reads what goes
        runtime = self._runtime
        runtime.engine.drop([self.nodes.pop(name) for name in gone])
        for name in gone:
            runtime.catalog = runtime.catalog.without(name)
        runtime.tables = {name: table for name, table in runtime.tables.items() if name not in gone}
        return {"drops": gone}

    def _activate(self, epoch: int, operation: dict[str, Any]) -> dict[str, Any] | None:
        current = self.current
        if current is None:
            assert self._unbuilt is not None
            return self._refuse(self._unbuilt)
        while not current.build.done:
            self._piece(current)
        runtime = self._runtime
        starts, replaced, ended = [], [], []
        catalog = runtime.catalog
        rows: list[Iterator[tuple[ViewShape, Delta]]] = []
        for node, definition in zip(current.nodes, current.definitions, strict=True):
            table = current.tables[node]
            old = runtime.tables.get(definition.name)
            if old is not None:
                replaced.append(self.nodes[definition.name])
            if old is not None and old.shape.same_rows == table.shape.same_rows:
                table.since = old.since
                rows.append(_labelled(table.shape, difference(node.schema, old, table)))
            else:
                ended += [old] if old is not None else []
                table.since = epoch
                rows.append(_labelled(table.shape, table.chunks()))
            starts.append({**table.shape.to_json(), "since": table.since})
            catalog = catalog.with_view(definition)
        if epoch > runtime.changelog.epoch:
            runtime.record(
                epoch,
                (part for parts in rows for part in parts),
                [(t.shape, part) for t in current.tables.values() for part in t.quarantine_parts()],
                extra={"starts": starts, "catalog": ddl.catalog_json(catalog)},
            )
        runtime.retire(ended, epoch)
        runtime.engine.activate(current.build)
        runtime.engine.drop(replaced)
        fresh = dict(runtime.tables)
        for node in current.nodes:
            table = current.tables[node]
            fresh[node.name] = table
            self.nodes[node.name] = node
            runtime.shapes[table.shape.name, table.shape.version] = table.shape
            self.failures.pop(node.name, None)
            self.refused.pop(node.name, None)
        self.current = None
        # readers take the whole dict: all views of a cone change at once; a name is known only when its rows are there
        runtime.tables = fresh
        runtime.catalog = catalog
        runtime.publish(epoch)
        return None

    # ------------------------------------------------------------------ the build

    def advance(self) -> None:
        """One piece; when nothing is left, or it fails, say so in the log."""
        if self._unbuilt is not None:
            self._announce(self._unbuilt, _abandonment(self._unbuilt.operation, self._unbuilt.error))
            return
        current = self.current
        assert current is not None
        try:
            self._piece(current)
        except OSError:
            raise
        except Exception as error:  # only operators of the new views were at work
            self._announce(current, _abandonment(current.operation, error))
            return
        if current.build.done:
            self._announce(current, {"op": "activate", "views": [d.name for d in current.definitions]})

    def _announce(self, current: Building | Unbuilt, operation: dict[str, Any]) -> None:
        assert self.announce is not None
        try:
            self.announce(operation)
        except DiskError as error:
            if not no_room(error.__cause__):
                raise
            # the build stays as it is until there is room
            self._runtime.pause(f"the log cannot be written: {error}")
        except Closed:
            # the database is being closed (or stops anyway): the next start builds again
            current.announced = True
        else:
            self._runtime.waiting_for_room = None
            current.announced = True

    def _piece(self, current: Building) -> None:
        started = time.monotonic()
        while self._advance_once(current) and time.monotonic() - started < PIECE_SECONDS:
            pass

    def _advance_once(self, current: Building) -> bool:
        deltas = current.build.advance(self._runtime.options.build_rows)
        if deltas is None:
            return False
        for node, delta in deltas.items():
            current.tables[node].apply_now(delta.chunks, delta.quarantine)
            delta.chunks.close()
        return True

    @property
    def progress(self) -> list[dict[str, Any]]:
        """The builds under way."""
        return [] if self.current is None else [self.current.progress()]
