"""What can be read at an epoch, from the catalog's document alone: names, columns and keys, and where the rows are.

Members plan the views of a catalog (`belvedere.cluster.catalog.plan`). Readers do not: the leader wrote the shapes of
views into the document, so a client needs neither planner nor engine nor parser.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from belvedere.cluster.catalog.document import Document, load
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


def tables_of(content: Document) -> dict[str, ServedTable]:
    """Base tables that are not dropped, by their names for users."""
    return {
        t.definition.name: ServedTable(t.definition, replace(t.definition, name=t.physical))
        for t in content.tables
        if t.until is None
    }


def names_at(document: bytes, building: Collection[int]) -> Mapping[str, Readable]:
    """Tables and views that can be read while the view groups `building` are under construction: of each view the
    newest version that is complete."""
    return _names_at(document, tuple(sorted(building)))


@functools.lru_cache(maxsize=256)
def _names_at(document: bytes, building: tuple[int, ...]) -> Mapping[str, Readable]:
    content = load(document)
    if any(view.shape is None for view_group in content.view_groups for view in view_group.live):
        return _planned_names(document, building)  # an earlier version wrote it
    views: dict[str, ReadableView] = {}
    ready: set[int] = set()
    for view_group in content.view_groups:
        if not view_group.live or view_group.number in building:
            continue
        if all(number in ready for view in view_group.live for number in view.below):
            ready.add(view_group.number)
            for view in view_group.live:
                assert view.shape is not None
                views[view.name] = ReadableView(ViewShape.of(view.shape), view_group.number)
    return {**tables_of(content), **views}


def _planned_names(document: bytes, building: tuple[int, ...]) -> Mapping[str, Readable]:
    from belvedere.cluster.catalog import plan

    found = plan.names_at(document, building)
    return {
        name: one if isinstance(one, ServedTable) else ReadableView(one.shape, one.view_group)
        for name, one in found.items()
    }
