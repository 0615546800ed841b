"""What exists: definitions of base tables and views. Immutable values; the database that owns them swaps whole
catalogs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from belvedere.errors import UnknownRelation
from belvedere.sql.origin import Origin
from belvedere.sql.query import Query, relations
from belvedere.types import Column, Schema


class Ties(enum.StrEnum):
    """Which of two puts of one cell with one timestamp wins. (A delete beats a put in either case.)"""

    LINEAGE = "lineage"
    """The later one of the row's log."""
    VALUE = "value"
    """The greater value, whatever came first: for rows that several masters write."""


class Deletes(enum.StrEnum):
    """What a delete takes away, and with that how long a row lives."""

    ROWS = "rows"
    """Whole rows. A row lives from its first put, even one of the key alone, until it is deleted."""
    CELLS = "cells"
    """Cells, as in HBase: of one column or of several, up to a timestamp or of exactly one. A row lives while one of
    its columns has a cell; there is no cell that is NULL."""


@dataclass(frozen=True, slots=True)
class TableDef:
    """A base table: typed columns and a primary key (never NULL, in key order)."""

    name: str
    columns: Schema
    key: tuple[str, ...]
    ties: Ties = Ties.LINEAGE
    deletes: Deletes = Deletes.ROWS
    origin: Origin | None = None
    """Where the rows come from, if another system owns them."""

    @property
    def rules(self) -> tuple[tuple[str, ...], Ties, Deletes]:
        """What never changes while rows are kept."""
        return self.key, self.ties, self.deletes

    @property
    def key_positions(self) -> tuple[int, ...]:
        names = [c.name for c in self.columns]
        return tuple(names.index(k) for k in self.key)


@dataclass(frozen=True, slots=True)
class ViewDef:
    """A materialized view: its text, its bound query, and the options of its manifest.

    `key`: the columns chosen by the user, or None for the natural key. `retention_ms`: how long history is kept, None
    for the database's default. `version` grows with every CREATE OR REPLACE (of it or of something below it). `reads`:
    `relations` of the query, asked for again and again.
    """

    name: str
    sql: str
    query: Query
    key: tuple[str, ...] | None = None
    retention_ms: int | None = None
    version: int = 1
    reads: Mapping[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", relations(self.query))

    @property
    def columns(self) -> Schema:
        return self.query.schema


@dataclass(frozen=True, slots=True)
class Catalog:
    """All tables and views by name. Names are compared case-insensitively and kept as written."""

    tables: Mapping[str, TableDef] = field(default_factory=dict)
    views: Mapping[str, ViewDef] = field(default_factory=dict)

    def find(self, name: str) -> TableDef | ViewDef | None:
        """The relation of that name, or None."""
        exact = self.tables.get(name) or self.views.get(name)
        if exact is not None:
            return exact
        wanted = name.lower()
        for group in (self.tables, self.views):
            for known, definition in group.items():
                if known.lower() == wanted:
                    return definition
        return None

    def relation(self, name: str) -> TableDef | ViewDef:
        """The relation of that name, or an error that lists what there is."""
        found = self.find(name)
        if found is None:
            raise unknown_relation(name, [*self.tables, *self.views])
        return found

    def with_table(self, table: TableDef) -> Catalog:
        return Catalog({**self.tables, table.name: table}, self.views)

    def with_view(self, view: ViewDef) -> Catalog:
        return Catalog(self.tables, {**self.views, view.name: view})

    def only(self, wanted: Callable[[str], bool]) -> Catalog:
        """Without the relations that are not wanted. What is left may read them."""
        return Catalog(
            {k: v for k, v in self.tables.items() if wanted(k)}, {k: v for k, v in self.views.items() if wanted(k)}
        )

    def without(self, name: str) -> Catalog:
        return Catalog(
            {k: v for k, v in self.tables.items() if k != name}, {k: v for k, v in self.views.items() if k != name}
        )


def unknown_relation(name: str, known: Iterable[str]) -> UnknownRelation:
    listed = tuple(sorted(known))
    return UnknownRelation(f"no table or view {name!r}; there is {', '.join(listed) or 'nothing yet'}", name, listed)


__all__ = ["Catalog", "Column", "Deletes", "TableDef", "Ties", "ViewDef", "unknown_relation"]
