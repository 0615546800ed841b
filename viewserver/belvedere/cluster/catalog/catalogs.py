"""The catalog of a pool: pure functions from one document to the next, and what a document means.

    document (version n) ── execute, apply_manifest, rebuild, retire, fail ──▶ document (version n + 1)

A view and everything that depends on it are replaced in a new view group; both versions exist until the new one is
complete, and readers see the newest complete one (`names_at`), so a whole cone is swapped at one epoch. Then `retire`
drops what was replaced. A view group that is replaced before it was complete is dropped at once: it may be the one that
fails.

A view group whose state the engine of the pool cannot read is replaced in the same way, by `rebuild`.

A view that cannot be computed fails, and with it all that read it (`fail`): its rows stay, but nobody computes it any
more. One that fails while it is being built leaves the version before in service, together with what that one reads: a
cone is swapped as a whole or not at all. A failed view that is created again is another version in another view group.

What a statement means is decided in `belvedere.model.catalog_change`, as in the embedded database. Functions that
change something return None where there is nothing to change. `building` are the view groups that are not complete
yet.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from belvedere.cluster.catalog.document import (
    AUTO,
    EPOCHS,
    SPARK,
    Document,
    TableDocument,
    ViewDocument,
    ViewFailure,
    ViewGroupDocument,
    dump,
    load,
)
from belvedere.cluster.catalog.names import ServedTable
from belvedere.cluster.catalog.plan import (
    Compiled,
    FailedView,
    ServedView,
    compile,
    described,
    failed_at,
    failed_builds,
    names_at,
    plan_view_groups,
    serving,
    store_tables,
)
from belvedere.engine.trial import try_out
from belvedere.errors import CatalogError, UnknownRelation
from belvedere.model import catalog_change, ddl
from belvedere.model.catalog_change import CatalogChange
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.protocol.engines import state_engine
from belvedere.sql import parse_statement
from belvedere.sql import statements as st
from belvedere.sql.catalog import TableDef, ViewDef
from belvedere.sql.manifest_target import Target, applicable
from belvedere.sql.query import relations

__all__ = [
    "Compiled",
    "FailedView",
    "ServedTable",
    "ServedView",
    "apply_manifest",
    "compile",
    "empty",
    "execute",
    "fail",
    "failed_at",
    "failed_builds",
    "has_ticket",
    "names_at",
    "rebuild",
    "retire",
    "serving",
    "store_tables",
    "version",
    "with_ticket",
]

MAX_NAME = 400
"""Bytes (UTF-8) of the name of a table or view. The names of its tables in the store are a little longer, and are keys
there: what the store refuses would stop every epoch, so it is refused before it is in the catalog."""
ANY_POOL = Target("default", sys.maxsize)
"""Where nothing is known of the pool: it keeps history as long as a view asks for."""
TICKETS = 100
"""How many requests are remembered: far more than can be repeated while their client still waits."""


def empty() -> bytes:
    """The catalog of a new pool: version 0, nothing in it."""
    return dump(Document())


def version(document: bytes) -> int:
    return load(document).version


def greatest_group(document: bytes) -> int:
    """The greatest number that a view group ever had."""
    return load(document).view_group


def with_ticket(document: bytes, ticket: str) -> bytes:
    """The same catalog, which remembers that this request led to it."""
    content = load(document)
    return dump(replace(content, tickets=(*content.tickets, ticket)[-TICKETS:]))


def has_ticket(document: bytes, ticket: str) -> bool:
    """Whether this request has happened."""
    return ticket in load(document).tickets


# ---------------------------------------------------------------------- statements


def execute(
    document: bytes, sql: str, building: Collection[int] = (), target: Target = ANY_POOL, engine: int = 0
) -> bytes | None:
    """Carry out one statement of DDL. `engine`: that of the pool; 0 if it does not matter."""
    batch = _Batch(document)
    statement = parse_statement(sql, batch.catalog)
    if isinstance(statement, st.CreateView) and (why := target.too_short_for(statement.view)):
        raise CatalogError("; ".join(why))
    if isinstance(statement, st.CreateTable) and (why := target.cannot_have(statement.table)):
        raise CatalogError("; ".join(why))
    if isinstance(statement, st.Drop) and statement.kind == "view" and batch.catalog.find(statement.name) is None:
        batch.drop_unbuilt(statement.name)
    if not batch.changed:
        batch.add(catalog_change.apply(batch.catalog, statement, batch.failed))
    if isinstance(statement, st.CreateView):
        batch.is_built(statement.build)
        if statement.or_replace:
            batch.is_wanted(statement.view.name)
    return batch.finish(building, engine)


def apply_manifest(
    document: bytes, text: str, building: Collection[int] = (), target: Target = ANY_POOL, engine: int = 0
) -> bytes | None:
    """Carry out all documents of a manifest as one change. Its views become one view group, so they share state."""
    batch = _Batch(document)
    for content in applicable(text, lambda: batch.catalog, target):
        batch.add(catalog_change.reconcile(batch.catalog, content, batch.failed))
        if isinstance(content, st.CreateView):
            batch.is_wanted(content.view.name)
            batch.is_built(content.build)
    return batch.finish(building, engine)


def undecided(document: bytes) -> tuple[int, ...]:
    """View groups of which is not decided yet how they are built."""
    return tuple(one.number for one in load(document).view_groups if one.build == AUTO)


def decided(document: bytes, number: int, build: str, why: str) -> bytes:
    """The same catalog, in which a view group is built so."""
    content = load(document)
    groups = (replace(one, build=build, why=why) if one.number == number else one for one in content.view_groups)
    return dump(replace(content, view_groups=tuple(groups)))


def rebuild(document: bytes, engine: int, rebuilding: Collection[int]) -> bytes | None:
    """New versions of the views of the oldest view group whose state this engine of the pool cannot read, and of all
    views that read them. None if there is none, or if its views could not be built before. `rebuilding`: engines that
    cannot read state of the one before."""
    batch = _Batch(document)
    unbuilt = failed_builds(document).keys()
    for view_group in compile(document).view_groups:
        if state_engine(view_group.engine, engine, rebuilding) == engine:
            continue
        served = {view.definition.name for view in view_group.views} - unbuilt
        newest = {name for name in served if batch.catalog.views[name].version == view_group.number}
        readers = {reader.name for name in newest for reader in ddl.dependants(batch.catalog, name)}
        names = newest | (readers - batch.failed.keys())
        if names:
            fresh, after = ddl.anew(batch.catalog, [v for v in ddl.in_order(batch.catalog) if v.name in names])
            batch.add(catalog_change.ViewsCreated(after, tuple(fresh)))
            return batch.finish((), engine)
    return None


def rebuild_view(document: bytes, name: str, engine: int) -> bytes:
    """New versions of a view, of all views that share its state, and of all that read one of these: the same
    definitions, made anew from the base rows."""
    batch = _Batch(document)
    view = batch.catalog.views.get(_known_name(batch.catalog.views, name))
    if view is None:
        raise UnknownRelation(f"there is no view {name!r}; there are: {', '.join(sorted(batch.catalog.views))}")
    shared = {one.name for one in batch.catalog.views.values() if one.version == view.version} - batch.failed.keys()
    names = shared | {view.name}
    names |= {reader.name for one in names for reader in ddl.dependants(batch.catalog, one)} - batch.failed.keys()
    fresh, after = ddl.anew(batch.catalog, [v for v in ddl.in_order(batch.catalog) if v.name in names])
    batch.add(catalog_change.ViewsCreated(after, tuple(fresh)))
    changed = batch.finish((), engine)
    assert changed is not None
    return changed


def _known_name(names: Iterable[str], wanted: str) -> str:
    return next((name for name in names if name.lower() == wanted.lower()), wanted)


# ---------------------------------------------------------------------- several changes at once


class _Batch:
    """Changes that become one document."""

    def __init__(self, document: bytes):
        self._document = document
        self._content = load(document)
        self._version = self._content.version + 1
        self._tables = list(self._content.tables)
        self._names = set(self._content.names)
        self._fresh: dict[str, ViewDef] = {}
        self._dropped: set[str] = set()
        self._wanted: set[str] = set()
        self._builds: set[str] = set()
        self.changed = False
        self._compiled = compile(document)
        self.failed = {
            one.view.definition.name: one
            for one in self._compiled.failed
            if self._compiled.catalog.views.get(one.view.definition.name) == one.view.definition
        }
        """Views whose newest version has failed."""
        self.catalog = self._compiled.catalog

    def add(self, change: CatalogChange | None) -> None:
        match change:
            case None:
                return
            case catalog_change.TableCreated():
                self._create_table(change.table)
            case catalog_change.ColumnsAdded():
                self._replace_table(change.table, definition=change.table)
            case catalog_change.TableDropped():
                self._refuse_if_replaced_ones_read_it("table", change.table.name)
                self._replace_table(change.table, until=self._version)
            case catalog_change.ViewDropped():
                self._refuse_if_replaced_ones_read_it("view", change.view.name)
                self._dropped.add(change.view.name)
            case catalog_change.ViewsCreated():
                self._create_views(change)
        self.catalog, self.changed = change.catalog, True

    def drop_unbuilt(self, name: str) -> None:
        """A view that failed while it was built, and of which there is nothing but the reason."""
        if name in failed_builds(self._document):
            self._dropped.add(name)
            self.changed = True

    def is_wanted(self, name: str) -> None:
        """The version of the view that is in this catalog now is what users want: later ones that could not be built
        are of no interest any more, nor are those of its readers. Thus the text of the version in service takes back
        one that failed."""
        view = self.catalog.find(name)
        if not isinstance(view, ViewDef) or view.name in self._fresh or view.name in self.failed:
            return
        unbuilt = failed_builds(self._document)
        if view.name in unbuilt:
            number = unbuilt[view.name].view.view_group
            readers = {reader.name for reader in ddl.dependants(self.catalog, view.name)} & unbuilt.keys()
            self._wanted |= {view.name} | {reader for reader in readers if unbuilt[reader].view.view_group == number}
            self.changed = True

    def is_built(self, build: str) -> None:
        """What is asked for of a view. Views that are applied together are built together: by Spark if that is said of
        one of them."""
        self._builds.add(build)

    def _build(self) -> str:
        return next((build for build in (SPARK, AUTO) if build in self._builds), EPOCHS)

    def _create_table(self, table: TableDef) -> None:
        _refuse_long_name("table", table.name)
        physical, repetition = table.name, 1
        while physical.lower() in self._names or self.catalog.find(physical) is not None:
            repetition += 1
            physical = f"{table.name}~{repetition}"
        self._names.add(physical.lower())
        self._tables.append(TableDocument(table, physical, self._version))

    def _replace_table(self, table: TableDef, **changes: Any) -> None:
        """Change what the document says of a table that is there."""
        self._tables = [
            replace(t, **changes) if t.until is None and t.definition.name == table.name else t for t in self._tables
        ]

    def _create_views(self, change: catalog_change.ViewsCreated) -> None:
        name = change.views[0].name
        _refuse_long_name("view", name)
        taken = next((t for t in self._tables if t.until is None and t.physical.lower() == name.lower()), None)
        if taken is not None:
            raise CatalogError(f"{name!r} is the name of table {taken.definition.name!r} in the store; use another")
        self._fresh.update((view.name, view) for view in change.views)
        for view in change.views:
            for read in sorted(relations(view.query).keys() & self.failed.keys() - self._fresh.keys()):
                raise CatalogError(f"view {view.name!r} reads view {read!r}: {self.failed[read].error()}")
        # planned here, since these definitions know where in the user's text they come from
        newest = {v.definition.name: v.node for view_group in self._compiled.view_groups for v in view_group.views}
        leaves = [node for name, node in newest.items() if name not in self._fresh]
        try_out(plan_views(change.catalog, change.views, nodes.Plan(()), leaves))

    def _refuse_if_replaced_ones_read_it(self, kind: str, name: str) -> None:
        """A version that is being replaced is not in the catalog, and reads it all the same."""
        for view_group in self._compiled.view_groups:
            for view in view_group.views:
                if view.definition.name != name and name in ddl.view_json(view.definition)["bound"]:
                    raise CatalogError(
                        f"{kind} {name!r} is still read by view {view.definition.name!r}, which is being replaced; "
                        "drop it when the new version is complete"
                    )

    def finish(self, building: Collection[int], engine: int) -> bytes | None:
        if not self.changed:
            return None
        content = replace(
            self._content, version=self._version, names=frozenset(self._names), tables=tuple(self._tables)
        )
        gone = {(name, view_group.number) for name in self._dropped for view_group in content.view_groups}
        if self._fresh:
            number = content.view_group + 1
            ordered = [view for view in ddl.in_order(self.catalog) if view.name in self._fresh]
            views = tuple(ViewDocument(ddl.view_json(replace(view, version=number))) for view in ordered)
            fresh = ViewGroupDocument(number, self._version, views, engine, self._build())
            content = replace(content, view_group=number, view_groups=(*content.view_groups, fresh))
            gone |= {(name, view_group) for name in self._fresh for view_group in building if view_group < number}
        gone |= {
            (view.name, view_group.number)
            for view_group in content.view_groups
            for view in view_group.failed
            if view.name in self._fresh.keys() | self._wanted and view.failure is not None and not view.failure.served
        }
        return _next(_without_views(content, gone, self._version))


# ---------------------------------------------------------------------- what was replaced


def retire(document: bytes, complete: Collection[int]) -> bytes | None:
    """Drop the versions of views that are replaced: a newer one is complete, and no version that stays reads them.
    None if there are none."""
    content = load(document)
    building = {view_group.number for view_group in content.view_groups} - set(complete)
    ready = serving(document, building)
    newest: dict[str, int] = {}
    for view_group in content.view_groups:
        if view_group.number in ready:
            newest.update((view.name, view_group.number) for view in view_group.live)
        served = [view.name for view in view_group.failed if view.failure is not None and view.failure.served]
        newest.update((name, view_group.number) for name in served)
    gone = {
        (view.name, view_group.number)
        for view_group in content.view_groups
        for view in (*view_group.live, *view_group.failed)
        if view_group.number < newest.get(view.name, 0)
    }
    gone -= _still_read(content, gone)
    return _next(_without_views(content, gone, content.version + 1)) if gone else None


def fail(
    document: bytes, failed: Mapping[tuple[str, int], str], building: Collection[int], epoch: int, version: int
) -> bytes:
    """The catalog of this version in which these views (name, view group), and all that read them, have failed since
    the epoch. `failed`: why. Those that the catalog does not have any more are left out."""
    content = load(document)
    for view_group in content.view_groups:
        for view in view_group.failed:
            if (view.name, view_group.number) in failed and view.failure is not None:
                raise CatalogError(
                    f"view {view.name!r} of view group {view_group.number} failed at epoch {view.failure.epoch} already"
                )
    reasons = _with_readers(content, failed, building)
    view_groups = []
    for view_group in content.view_groups:
        views = []
        for view in view_group.views:
            reason = reasons.get((view.name, view_group.number))
            if view in view_group.live and reason is not None:
                view = replace(view, failure=ViewFailure(epoch, reason, version, view_group.number not in building))
            views.append(view)
        view_groups.append(replace(view_group, views=tuple(views)))
    return _next(replace(content, version=version, view_groups=tuple(view_groups)))


def _with_readers(
    content: Document, failed: Mapping[tuple[str, int], str], building: Collection[int]
) -> dict[tuple[str, int], str]:
    """The views that fail, and why: those, all that read them, directly or not, and where that is a view that is being
    replaced, what it reads of its own view group: else the version before would go on over another input than the one
    that readers see."""
    planned, reasons = plan_view_groups(content), dict(failed)
    replaced: set[str] = set()
    for view_group in content.view_groups:
        number, own = view_group.number, planned[view_group.number]
        live = [view.name for view in view_group.live]
        known = -1
        while known != len(reasons):
            known = len(reasons)
            for name in live:
                inputs = own.older[name] | {(read, number) for read in own.same[name]}
                for read in sorted(inputs & reasons.keys()):
                    reasons.setdefault((name, number), f"it reads view {read[0]!r}, which failed: {reasons[read]}")
                if (name, number) in reasons and number in building and name in replaced:
                    for read_name in sorted(own.same[name] & replaced):
                        why = f"view {name!r}, which reads it, could not be built: {reasons[name, number]}"
                        reasons.setdefault((read_name, number), why)
        replaced |= set(live)
    return reasons


def _still_read(content: Document, gone: Collection[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of the views `gone` that others read, directly or not.

    A view that was replaced while the new version of its input was being built is in a view group of its own: the input
    is swapped first, and until that view group is complete too, readers see a version over the old input."""
    planned = plan_view_groups(content)
    read: set[tuple[str, int]] = set()
    for view_group in reversed(content.view_groups):
        own = planned[view_group.number]
        for view in reversed(view_group.live):  # every view before those that it reads
            if (view.name, view_group.number) not in gone or (view.name, view_group.number) in read:
                read |= own.older[view.name] | {(name, view_group.number) for name in own.same[view.name]}
    return read


def _without_views(content: Document, gone: Collection[tuple[str, int]], following: int) -> Document:
    """Views (name, view group) end with this version."""
    view_groups = []
    for view_group in content.view_groups:
        views = (
            replace(view, until=following) if view.until is None and (view.name, view_group.number) in gone else view
            for view in view_group.views
        )
        view_groups.append(replace(view_group, views=tuple(views)))
    return replace(content, version=following, view_groups=tuple(view_groups))


def _next(content: Document) -> bytes:
    """The document without what nothing refers to; refused if it cannot be planned."""
    planned = plan_view_groups(content)
    needed: set[int] = set()
    tables: set[str] = set()
    for view_group in reversed(content.view_groups):
        if view_group.live or view_group.failed or view_group.number in needed:
            needed.add(view_group.number)
            needed |= {number for read in planned[view_group.number].older.values() for _, number in read}
            tables |= {table for read in planned[view_group.number].tables.values() for table in read}
    return dump(
        replace(
            content,
            tables=tuple(t for t in content.tables if t.until is None or t.physical in tables),
            view_groups=tuple(described(c, planned) for c in content.view_groups if c.number in needed),
        )
    )


def _refuse_long_name(kind: str, name: str) -> None:
    size = len(name.encode())
    if size > MAX_NAME:
        raise CatalogError(f"the name of {kind} {name[:40]!r}… has {size} bytes in UTF-8, a pool takes {MAX_NAME}")
