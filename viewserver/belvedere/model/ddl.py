"""Definitions as JSON, and DDL as operations of the log: small JSON objects which, applied in order, give the catalog.

create_table {table}   add_columns {table, columns}   drop_table {name}
create_views {views, replace}   a view, or with `replace` a view and everything that depends on it, begins to be built
activate {views}                their build is complete: they are visible from this epoch on, older versions are gone
abandon {views}                 their build failed: as if they had not been created
fail_views {views, first, epoch}   they could not be computed from record `first` on: they are out of service before it
drop_view {name}
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from belvedere.errors import BelvedereError, CatalogError
from belvedere.model.describe import table_json, table_of
from belvedere.sql import bind_query
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.origin import StoredColumn
from belvedere.types import Column, Schema

Operation = dict[str, Any]


def view_json(view: ViewDef) -> dict[str, Any]:
    return {
        "name": view.name,
        "sql": view.sql,
        "key": None if view.key is None else list(view.key),
        "retention_ms": view.retention_ms,
        "version": view.version,
        "bound": dict(view.reads),
    }


def bind_view(value: dict[str, Any], catalog: Catalog) -> ViewDef:
    """The definition that `view_json` wrote, bound to the catalog as it is now: over as many columns of each relation
    as there were (`bound`), since `SELECT *` must not grow with ADD COLUMN."""
    known = Catalog(
        {n: replace(t, columns=t.columns[: value["bound"].get(n)]) for n, t in catalog.tables.items()}, catalog.views
    )
    key = None if value["key"] is None else tuple(value["key"])
    query = bind_query(value["sql"], known)
    return ViewDef(value["name"], value["sql"], query, key, value["retention_ms"], value["version"])


def catalog_json(catalog: Catalog) -> dict[str, Any]:
    """Everything, in order of creation."""
    return {
        "tables": [table_json(t) for t in catalog.tables.values()],
        "views": [view_json(v) for v in in_order(catalog)],
    }


def catalog_of(value: dict[str, Any]) -> tuple[Catalog, list[tuple[dict[str, Any], str]]]:
    """The reverse of `catalog_json`; and the views that this version of the program cannot read, with the reason, as
    well as those over them."""
    catalog = Catalog({t["name"]: table_of(t) for t in value["tables"]})
    refused = []
    for view in value["views"]:
        try:
            catalog = catalog.with_view(bind_view(view, catalog))
        except BelvedereError as error:
            refused.append((view, str(error)))
    return catalog, refused


def in_order(catalog: Catalog) -> list[ViewDef]:
    """Views, each after those that it reads; otherwise as they were created."""
    done: dict[str, ViewDef] = {}

    def visit(view: ViewDef) -> None:
        if view.name in done:
            return
        for name in sorted(view.reads):
            if name in catalog.tables:
                continue
            below = catalog.find(name)
            if isinstance(below, ViewDef):
                visit(below)
        done[view.name] = view

    for view in catalog.views.values():
        visit(view)
    return list(done.values())


def dependants(catalog: Catalog, name: str) -> list[ViewDef]:
    """Views that read the relation, directly or not, each after those that it reads."""
    found = {name.lower()}
    out = []
    for view in in_order(catalog):
        if view.name.lower() not in found and any(r.lower() in found for r in view.reads):
            found.add(view.name.lower())
            out.append(view)
    return out


def refuse_if_needed(catalog: Catalog, kind: str, name: str) -> None:
    """Dropping is refused while others read it."""
    needed = [v.name for v in catalog.views.values() if name.lower() in {r.lower() for r in v.reads}]
    if needed:
        raise CatalogError(f"{kind} {name!r} is read by {', '.join(sorted(needed))}; drop these first")


def cone(catalog: Catalog, view: ViewDef) -> tuple[list[ViewDef], Catalog]:
    """The new version of a view and of everything that depends on it, bound to each other, and the catalog with
    them."""
    old = catalog.find(view.name)
    assert isinstance(old, ViewDef)
    below = {r.lower() for r in view.reads}
    above = dependants(catalog, view.name)
    circle = [v.name for v in [old, *above] if v.name.lower() in below]
    if circle:
        raise CatalogError(f"view {view.name!r} cannot read {circle[0]!r}, which reads {view.name!r} itself: a cycle")
    fresh = [replace(view, name=old.name, version=old.version + 1)]
    after = catalog.with_view(fresh[0])
    again, after = anew(after, above)
    return fresh + again, after


def anew(catalog: Catalog, views: Iterable[ViewDef]) -> tuple[list[ViewDef], Catalog]:
    """The next version of each view with the same query, bound to the newest of what it reads (so they come in that
    order), and the catalog with them."""
    fresh = []
    for view in views:
        fresh.append(bind_view({**view_json(view), "version": view.version + 1}, catalog))
        catalog = catalog.with_view(fresh[-1])
    return fresh, catalog


def with_columns(table: TableDef, columns: Schema, stored: tuple[StoredColumn, ...] = ()) -> TableDef:
    """`stored`: where they are, of a table of another system."""
    origin = table.origin and replace(table.origin, columns=table.origin.columns + stored)
    return replace(table, columns=table.columns + columns, origin=origin)


def extends(table: TableDef, before: TableDef) -> bool:
    """Whether rows made for the table as it was `before` fit: it has the same key, and at most more columns."""
    return table.key == before.key and table.columns[: len(before.columns)] == before.columns


def added_columns(existing: TableDef, wanted: TableDef) -> Schema:
    """What ADD COLUMN must add to make the table as wanted; refused where something else differs. Columns of a table
    have names, not places: the order in which they are listed does not matter."""
    start = f"table {existing.name!r} exists"
    key = [k.lower() for k in wanted.key]
    if [k.lower() for k in existing.key] != key:
        raise CatalogError(
            f"{start} with key ({', '.join(existing.key)}), not ({', '.join(wanted.key)}); a key cannot be changed: "
            "create another table"
        )
    if existing.ties is not wanted.ties:
        raise CatalogError(
            f"{start} with ties by {existing.ties.value}, not by {wanted.ties.value}; that cannot be changed, since "
            "rows are merged already: create another table"
        )
    if not _same_place(existing, wanted):
        raise CatalogError(
            f"{start} with another place in HBase, or with other cells and encodings of its columns; they cannot be "
            "changed: create another table"
        )
    known = {c.name.lower(): c for c in existing.columns}
    listed = {c.name.lower() for c in wanted.columns}
    for column in existing.columns:
        if column.name.lower() not in listed:
            raise CatalogError(f"{start} with a column {column.name!r} that is not listed; columns cannot be dropped")
    added = []
    for column in wanted.columns:
        before = known.get(column.name.lower())
        if before is None and not column.nullable:
            raise CatalogError(
                f"{start} without the column {column.name!r}; a new column must be nullable: there may be rows"
            )
        if before is None:
            added.append(column)
        elif (before.type, before.nullable) != (column.type, column.nullable):
            raise CatalogError(
                f"{start} with {_text(before)}, not {_text(column)}; a column cannot be changed: add another one"
            )
    return tuple(added)


def added_places(existing: TableDef, wanted: TableDef, added: Schema) -> tuple[StoredColumn, ...]:
    """Where added columns of a table of another system are."""
    return tuple(_places(wanted)[column.name.lower()] for column in added) if wanted.origin is not None else ()


def _places(table: TableDef) -> dict[str, StoredColumn]:
    assert table.origin is not None
    return {column.name.lower(): place for column, place in zip(table.columns, table.origin.columns, strict=True)}


def _same_place(existing: TableDef, wanted: TableDef) -> bool:
    """Whether what is there is where it was; there may be more."""
    one, other = existing.origin, wanted.origin
    if one is None or other is None:
        return one is other
    there = _places(wanted)
    equal = all(there.get(name, place) == place for name, place in _places(existing).items())
    return equal and replace(one, columns=()) == replace(other, columns=())


def _text(column: Column) -> str:
    return f"{column.name} {column.type}" + ("" if column.nullable else " not null")
