"""Resources for tests, as Kubernetes gives them."""

from __future__ import annotations

from typing import Any

from belvedere_operator.decide.items import Item, item_of
from belvedere_operator.gateway import PoolFigures, TableFigures, ViewFigures
from belvedere_operator.names import FINALIZER

NOW = 1_800_000_000.0
COLUMNS = [{"name": "id", "type": "bigint"}, {"name": "total", "type": "decimal(12,2)"}]


def resource(kind: str, name: str, spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": f"uid-{name}",
        "generation": 1,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [FINALIZER],
    } | meta
    status = metadata.pop("status", {})
    found = {"apiVersion": "belvedere.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    return found | ({"status": status} if status else {})


def table(name: str, *, spec: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    return resource("BaseTable", name, {"columns": COLUMNS, "key": ["id"]} | (spec or {}), **meta)


def view(
    name: str, query: str = "SELECT id FROM orders", *, spec: dict[str, Any] | None = None, **meta: Any
) -> dict[str, Any]:
    return resource("MaterializedView", name, {"query": query} | (spec or {}), **meta)


def applied(found: dict[str, Any]) -> Item:
    """As it is once the pool has it."""
    return item_of(found | {"status": {**found.get("status", {}), "applied": item_of(found).digest()}})


def figures(
    *views: str, tables: tuple[str, ...] = ("orders",), reads: dict[str, tuple[str, ...]] | None = None, **told: Any
) -> PoolFigures:
    """A pool that has these tables and views; a view reads `orders` unless it is said otherwise."""
    known = reads or {}
    below = {name: tuple(sorted(v for v in views if name in known.get(v, ("orders",)))) for name in views}
    return PoolFigures(
        epoch=7,
        lag_ms=told.pop("lag_ms", 20.0),
        backlog_rows=0,
        problems=(),
        tables={name: TableFigures(10, 100) for name in tables},
        views={
            name: ViewFigures(
                version=1,
                rows=3,
                bytes=2048,
                quarantined=0,
                complete=True,
                reads=known.get(name, ("orders",)),
                dependants=below[name],
            )
            for name in views
        }
        | told.pop("more", {}),
        **told,
    )
