"""DDL: what a statement makes of a catalog. Every database changes its catalog by this function, and only by it.

    catalog, statement ── apply ──▶ CatalogChange: what is new, what is gone, the catalog with it

It is pure: it knows neither rows nor plans. A database then does what the change asks for in its own way (the embedded
one writes an operation to its log, a pool the next document), and may refuse more than is refused here: a name that its
store cannot hold, a view that cannot be planned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from belvedere.errors import CatalogError
from belvedere.model import ddl
from belvedere.model.describe import schema_json, table_json
from belvedere.sql import statements as st
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.types import Schema


@dataclass(frozen=True, slots=True)
class TableCreated:
    catalog: Catalog
    table: TableDef


@dataclass(frozen=True, slots=True)
class ColumnsAdded:
    """`table`: with its new columns."""

    catalog: Catalog
    table: TableDef
    columns: Schema


@dataclass(frozen=True, slots=True)
class ViewsCreated:
    """A view that is new or replaced, and new versions of all views that depend on it, each after those that it reads.
    `catalog` has them, though they have yet to be built."""

    catalog: Catalog
    views: tuple[ViewDef, ...]


@dataclass(frozen=True, slots=True)
class TableDropped:
    catalog: Catalog
    table: TableDef


@dataclass(frozen=True, slots=True)
class ViewDropped:
    catalog: Catalog
    view: ViewDef


TableChange: TypeAlias = TableCreated | ColumnsAdded | TableDropped
CatalogChange: TypeAlias = TableChange | ViewsCreated | ViewDropped


def apply(catalog: Catalog, statement: st.Statement, failed: Collection[str] = ()) -> CatalogChange | None:
    """What the statement, which was bound to this catalog, changes. None: what it asks for is there already. `failed`:
    views that cannot be computed any more; who replaces one gets another version, also with the same query."""
    match statement:
        case st.CreateTable():
            return _create_table(catalog, statement)
        case st.AddColumns():
            return _add_columns(catalog, statement)
        case st.CreateView():
            return _create_view(catalog, statement, failed)
        case st.Drop():
            return _drop(catalog, statement)
    raise CatalogError(f"a {type(statement).__name__.upper()} does not change the catalog")


def reconcile(catalog: Catalog, described: st.Statement, failed: Collection[str] = ()) -> CatalogChange | None:
    """What makes the relation as a manifest describes it: unlike CREATE TABLE, it adds columns to a table that is
    there."""
    if isinstance(described, st.CreateTable):
        existing = catalog.find(described.table.name)
        if isinstance(existing, TableDef):
            added = ddl.added_columns(existing, described.table)
            places = ddl.added_places(existing, described.table, added)
            return apply(catalog, st.AddColumns(existing.name, added, places)) if added else None
    return apply(catalog, described, failed)


def operation(change: CatalogChange) -> ddl.Operation:
    """The change as an operation of the log."""
    match change:
        case TableCreated(table=table):
            return {"op": "create_table", "table": table_json(table)}
        case ColumnsAdded(table=table, columns=columns):
            return {"op": "add_columns", "table": table.name, "columns": schema_json(columns)}
        case ViewsCreated(views=views):
            return {"op": "create_views", "views": [ddl.view_json(view) for view in views]}
        case TableDropped(table=table):
            return {"op": "drop_table", "name": table.name}
        case ViewDropped(view=view):
            return {"op": "drop_view", "name": view.name}


def _create_table(catalog: Catalog, statement: st.CreateTable) -> CatalogChange | None:
    existing = catalog.find(statement.table.name)
    if existing is None:
        return TableCreated(catalog.with_table(statement.table), statement.table)
    if statement.if_not_exists and isinstance(existing, TableDef):
        return None
    raise CatalogError(f"{existing.name!r} exists already")


def _add_columns(catalog: Catalog, statement: st.AddColumns) -> CatalogChange:
    """Views keep the columns that they were bound to."""
    table = catalog.relation(statement.table)
    if not isinstance(table, TableDef):
        raise CatalogError(f"{table.name!r} is a view; replace it with CREATE OR REPLACE MATERIALIZED VIEW")
    if table.origin is not None and not statement.stored:
        raise CatalogError(
            f"table {table.name!r} is in HBase: which cell a new column is can only be said in a manifest; add the "
            "column there, and apply it"
        )
    known = {c.name.lower() for c in table.columns}
    for column in statement.columns:
        if column.name.lower() in known:
            raise CatalogError(f"table {table.name!r} has a column {column.name!r} already")
        known.add(column.name.lower())
    wider = ddl.with_columns(table, statement.columns, statement.stored)
    return ColumnsAdded(catalog.with_table(wider), wider, statement.columns)


def _create_view(catalog: Catalog, statement: st.CreateView, failed: Collection[str]) -> CatalogChange | None:
    view, existing = statement.view, catalog.find(statement.view.name)
    if isinstance(existing, TableDef):
        raise CatalogError(f"{existing.name!r} exists already: it is a table")
    if existing is None:
        return ViewsCreated(catalog.with_view(view), (view,))
    if statement.if_not_exists:
        return None
    if not statement.or_replace:
        raise CatalogError(f"view {existing.name!r} exists already; CREATE OR REPLACE changes it")
    same = ddl.view_json(existing) == {**ddl.view_json(view), "name": existing.name, "version": existing.version}
    if same and existing.name not in failed:
        return None
    views, after = ddl.cone(catalog, view)
    return ViewsCreated(after, tuple(views))


def _drop(catalog: Catalog, statement: st.Drop) -> CatalogChange | None:
    if statement.if_exists and catalog.find(statement.name) is None:
        return None
    found = catalog.relation(statement.name)
    if isinstance(found, TableDef) != (statement.kind == "table"):
        other = "a view" if statement.kind == "table" else "a table"
        raise CatalogError(f"{statement.name!r} is {other}, not a {statement.kind}")
    ddl.refuse_if_needed(catalog, statement.kind, found.name)
    after = catalog.without(found.name)
    return TableDropped(after, found) if isinstance(found, TableDef) else ViewDropped(after, found)
