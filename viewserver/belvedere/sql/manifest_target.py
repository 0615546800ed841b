"""Manifests and the database that they are applied to: a document that it cannot honour is refused and changes nothing.

A database is one pool. A cluster's has a name; the embedded database counts as `default`, the pool of views that name
none. History of a pool is kept for one time, by one horizon: a view may ask for less, which it gets and more; what it
asks for beyond that is for whoever runs the pool to decide, since the state of every view would be kept as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from belvedere.errors import SqlError
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.sql.manifest import Manifest, parse_manifests
from belvedere.sql.statements import CreateTable, CreateView
from belvedere.sql.view_pool import ViewPool


@dataclass(frozen=True, slots=True)
class Target:
    """`retention_ms`: how long a cluster keeps history. None: the embedded database, where each view has its own.
    `follows`: whether the base tables are those of HBase, which the pool follows, or its own."""

    pool: str = "default"
    retention_ms: int | None = None
    follows: bool = False

    @property
    def embedded(self) -> bool:
        return self.retention_ms is None

    def cannot_have(self, table: TableDef) -> tuple[str, str] | None:
        """Why a base table cannot be here, and what would work."""
        if table.origin is not None and not self.follows:
            here = "an embedded database" if self.embedded else f"pool {self.pool!r}"
            return (
                f"table {table.name!r} is the table {table.origin.table!r} of HBase, and {here} keeps its base tables"
                " itself",
                "leave spec.hbase out, or apply it to a pool whose backend is an hbase:// one",
            )
        if table.origin is None and self.follows:
            return (
                f"table {table.name!r} does not say where in HBase it is, and pool {self.pool!r} follows tables of"
                " HBase",
                "say it in a BaseTable manifest: spec.hbase.table, and of each column its cell and encoding",
            )
        return None

    def too_short_for(self, view: ViewDef) -> tuple[str, str] | None:
        """Why a view that asks for more history than a cluster keeps cannot have it, and what would work."""
        wanted, kept = view.retention_ms, self.retention_ms
        if kept is None or wanted is None or wanted <= kept:
            return None
        return (
            f"view {view.name!r} asks for a retention of {wanted / 1000:g} s, pool {self.pool!r} keeps history for"
            f" {kept / 1000:g} s, of all its views alike",
            f"ask for that or less, or start the coordinators of the pool with --retention {wanted / 1000:g}",
        )


EMBEDDED = Target()


def applicable(
    text: str, catalog_provider: Callable[[], Catalog], target: Target
) -> Iterator[CreateTable | CreateView]:
    """The statements that the documents stand for, one by one, as `parse_manifests`."""
    for manifest in parse_manifests(text, catalog_provider):
        content = manifest.content
        if isinstance(content, ViewPool):
            raise _no_processes(manifest, target)
        _refuse_other_pool(manifest, target)
        if isinstance(content, CreateView) and (why := target.too_short_for(content.view)):
            raise manifest.spec.child("retention").fail(*why)
        if isinstance(content, CreateView) and content.build == "spark" and target.embedded:
            raise manifest.spec.child("build").fail(
                f"view {manifest.name!r} is to be built by Spark, and an embedded database builds with its own engine",
                "leave it out, or use auto; Spark builds views of a pool",
            )
        if isinstance(content, CreateTable) and (why := target.cannot_have(content.table)):
            raise manifest.spec.fail(*why)
        yield content


def _no_processes(manifest: Manifest, target: Target) -> SqlError:
    if target.embedded:
        why = "an embedded database is one process and starts no others"
        hint = "leave the document out; the options of belvedere.open() set this database up"
    else:
        why = "a running pool starts no processes and changes none of their settings"
        hint = "leave the document out; start and set processes up with belvedere viewserver, distributor, coordinator"
    return manifest.spec.fail(f"ViewPool {manifest.resource!r} cannot be applied here: {why}", hint)


def _refuse_other_pool(manifest: Manifest, target: Target) -> None:
    pool = manifest.spec.optional("pool")
    if pool is None or pool.value == target.pool:
        return
    kind = "table" if isinstance(manifest.content, CreateTable) else "view"
    if target.embedded:
        here = f"an embedded database is the pool {target.pool!r}"
        hint = f"leave it out, or connect to pool {pool.value!r} of a cluster: --url belvedere://HOST:PORT"
    else:
        here, hint = f"this is pool {target.pool!r}", f"leave it out, or connect to pool {pool.value!r}"
    raise pool.fail(f"{kind} {manifest.name!r} belongs to pool {pool.value!r}, {here}", hint)
