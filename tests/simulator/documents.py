"""Catalog documents of histories. They recur, and planning takes longer than a history may: all of it is remembered."""

from __future__ import annotations

import functools
import json

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.document import load
from belvedere.errors import BelvedereError
from tests.simulator.schema import TIES, View
from tests.simulator.versions import REBUILDING

_COLUMNS = {"orders": "id customer amount kind", "customers": "id region name"}
_STRINGS = ("kind", "name")


@functools.cache
def first(views: tuple[View, ...], engine: int) -> bytes:
    """Version 1: both tables and some views, one view group."""
    resources = []
    for table, names in _COLUMNS.items():
        columns = [{"name": n, "type": "string" if n in _STRINGS else "bigint"} for n in names.split()]
        resources.append(_resource("BaseTable", table, {"columns": columns, "key": ["id"], "ties": TIES[table]}))
    resources += [_resource("MaterializedView", view.name, {"query": view.query}) for view in views]
    document = catalogs.apply_manifest(catalogs.empty(), "\n---\n".join(resources), engine=engine)
    assert document is not None
    return document


def _resource(kind: str, name: str, spec: object) -> str:
    return json.dumps({"apiVersion": "belvedere.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})


@functools.cache
def execute(document: bytes, sql: str, building: frozenset[int], engine: int) -> bytes | None:
    """The next document, None if the statement cannot be carried out on this one (or changes nothing)."""
    try:
        return catalogs.execute(document, sql, building, engine=engine)
    except BelvedereError:
        return None


@functools.cache
def retire(document: bytes, building: frozenset[int]) -> bytes | None:
    complete = [
        view_group.number for view_group in catalogs.compile(document).view_groups if view_group.number not in building
    ]
    return catalogs.retire(document, complete)


@functools.cache
def rebuild(document: bytes, engine: int) -> bytes | None:
    return catalogs.rebuild(document, engine, REBUILDING)


@functools.cache
def columns(document: bytes) -> dict[str, tuple[str, ...]]:
    """Of the tables that there are, those that are no keys."""
    tables = [table.definition for table in load(document).tables if table.until is None] if document else []
    return {t.name: tuple(c.name for c in t.columns if c.name not in t.key) for t in tables}


@functools.cache
def served(document: bytes, building: frozenset[int]) -> tuple[catalogs.ServedView, ...]:
    """The views that can be read."""
    names = catalogs.names_at(document, building)
    return tuple(found for found in names.values() if isinstance(found, catalogs.ServedView))
