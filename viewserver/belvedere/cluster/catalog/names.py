"""What can be read at an epoch, from the catalog's document alone: names, columns and keys, and where the rows are.

Members plan the views of a catalog (`belvedere.cluster.catalog.plan`). Readers do not: the leader wrote the shapes of
views into the document, so a client needs neither planner nor engine nor parser.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from belvedere.cluster.catalog.document import Document, ViewDocument, ViewFailure, load
from belvedere.errors import ViewFailed
from belvedere.model.describe import ViewShape
from belvedere.plan.table_names import delta_table, view_table
from belvedere.sql.catalog import TableDef


@dataclass(frozen=True)
class ServedTable:
    """A base table: as users know it, and (`stored`) under its name in the store, in INPUT and in plans."""

    definition: TableDef
    stored: TableDef

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def shape(self) -> ViewShape:
        table = self.definition
        return ViewShape(table.name, 0, table.columns, len(table.columns), table.key_positions)

    @property
    def rows_table(self) -> str:
        """The table of the store with the rows."""
        return delta_table(self.stored.name)


@dataclass(frozen=True)
class ReadableView:
    """One version of a view."""

    shape: ViewShape
    view_group: int

    @property
    def name(self) -> str:
        return self.shape.name

    @property
    def rows_table(self) -> str:
        return view_table(self.shape)


Readable: TypeAlias = ServedTable | ReadableView


@dataclass(frozen=True)
class FailedVersion:
    """A version of a view that is not computed any more."""

    view: ReadableView
    failure: ViewFailure

    def error(self) -> ViewFailed:
        """For who wants to read it."""
        return ViewFailed(
            f"view {self.view.name!r} cannot be read since epoch {self.failure.epoch}: {self.failure.reason}; create it"
            " again with CREATE OR REPLACE, or drop it",
            self.failure.epoch,
        )


def tables_of(content: Document) -> dict[str, ServedTable]:
    """Base tables that are not dropped, by their names for users."""
    return {
        t.definition.name: ServedTable(t.definition, replace(t.definition, name=t.physical))
        for t in content.tables
        if t.until is None
    }


def names_at(document: bytes, building: Collection[int]) -> Mapping[str, Readable]:
    """Tables and views that can be read while the view groups `building` are under construction: of each view the
    newest version that is complete, unless a later one failed."""
    return _names_at(document, tuple(sorted(building)))[0]


def failed_at(document: bytes, building: Collection[int]) -> Mapping[str, FailedVersion]:
    """Views that cannot be read, since they failed and no later version is complete."""
    return _names_at(document, tuple(sorted(building)))[1]


def failed_versions(document: bytes) -> list[FailedVersion]:
    """All that have failed and are not dropped, whether anybody could read them or not."""
    return _failed(_with_shapes(document))


def failed_builds(document: bytes) -> Mapping[str, FailedVersion]:
    """The newest version of each view, where that one failed before it was complete."""
    content = _with_shapes(document)
    versions = {view.name: group.number for group in content.view_groups for view in group.live}
    found = {one.view.name: one for one in _failed(content) if not one.failure.served}
    return {name: one for name, one in found.items() if one.view.view_group > versions.get(name, 0)}


def views_of(document: bytes, view_groups: Collection[int]) -> Mapping[int, tuple[str, ...]]:
    """Names of the views of each of these view groups, as far as the catalog knows them."""
    return {
        group.number: tuple(view.name for view in group.live)
        for group in load(document).view_groups
        if group.number in view_groups
    }


@functools.lru_cache(maxsize=256)
def _names_at(document: bytes, building: tuple[int, ...]) -> tuple[Mapping[str, Readable], Mapping[str, FailedVersion]]:
    content = _with_shapes(document)
    views: dict[str, ReadableView] = {}
    ready: set[int] = set()
    for group in content.view_groups:
        if not group.live or group.number in building:
            continue
        if all(number in ready for view in group.live for number in view.below):
            ready.add(group.number)
            views.update((view.name, _readable(view, group.number)) for view in group.live)
    failed = {}
    for one in _failed(content):
        name = one.view.name
        if one.failure.served and (name not in views or views[name].view_group < one.view.view_group):
            failed[name] = one
    return {**tables_of(content), **{name: view for name, view in views.items() if name not in failed}}, failed


def _failed(content: Document) -> list[FailedVersion]:
    return [
        FailedVersion(_readable(view, group.number), view.failure)
        for group in content.view_groups
        for view in group.failed
        if view.failure is not None
    ]


def _readable(view: ViewDocument, view_group: int) -> ReadableView:
    assert view.shape is not None
    return ReadableView(ViewShape.of(view.shape), view_group)


def _with_shapes(document: bytes) -> Document:
    content = load(document)
    if all(view.shape is not None for group in content.view_groups for view in group.views):
        return content
    from belvedere.cluster.catalog import plan  # an earlier version wrote it

    return plan.with_shapes(content)
