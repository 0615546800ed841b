"""Verification of what lies behind the views of a pool, at an epoch that is held meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.client.pool import repeat
from belvedere.errors import CatalogError, Unavailable
from belvedere.model import verify, verify_tables
from belvedere.model.verify import Report
from belvedere.sql.catalog import TableDef

if TYPE_CHECKING:
    from belvedere.backend.seam import Store
    from belvedere.cluster.client.database import ClusterDatabase

ENGINE = "belvedere"
OWNED = "belvedere owns the table: a base row lies once, as DELTA, and there is nothing to compare it with"


def verify_state(database: ClusterDatabase, view: str | None) -> Iterator[Report]:
    """Of one view, or of all; views of one view group share their state and have one report."""
    from belvedere.cluster.roles.verifying import StateLook  # it computes: only who verifies state needs the engine

    known, pin = database._pinned(database.deadline())
    try:
        deadline = database.deadline()
        document = database.epochs.document(known.committed, deadline)
        groups: dict[int, list[str]] = {}
        for name, served in database.epochs.names(known.committed, deadline).items():
            if isinstance(served, ReadableView):
                groups.setdefault(served.view_group, []).append(name)
        if view is not None:
            served = database.served_view(view, known)
            groups = {served.view_group: groups[served.view_group]}
        for number, names in sorted(groups.items()):
            started = time.monotonic()
            store = cast("Store", database.stores(database.deadline()))  # what of a store is needed to read it
            checks = list(StateLook(store, document, engine_of(database), known.epoch, number).checks())
            database.require_kept(known.epoch)
            seconds = time.monotonic() - started
            yield verify_tables.report_of(
                ", ".join(sorted(names)), known.epoch, checks, subject=verify.STATE, engine=ENGINE, seconds=seconds
            )
    finally:
        database.pins.unpin(pin)


def verify_base(database: ClusterDatabase, name: str | None) -> Iterator[Report]:
    """Of one table, of those that a view reads, or of all."""
    deadline = database.deadline()
    known = database.epochs.newest(deadline)
    catalog = database.epochs.catalog(known.committed, deadline)
    names = sorted(catalog.tables)
    if name is not None:
        found = catalog.relation(name)
        names = [found.name] if isinstance(found, TableDef) else sorted(verify.below(catalog, [found]) & set(names))
    for table in names:
        if catalog.tables[table].origin is not None:
            raise CatalogError(
                f"table {table!r} of hbase is not compared without being corrected: belvedere reload does both"
            )
        yield verify_tables.report_of(
            table, known.epoch, (), subject=verify.TABLE, engine=ENGINE, seconds=0.0, problem=OWNED
        )


def engine_of(database: ClusterDatabase) -> int:
    """The engine version of the pool."""

    def ask(timeout: float) -> int:
        generation = database.pool.refresh(timeout).generation
        if generation is None:
            raise Unavailable("the pool has no generation yet")
        return generation.engine

    return repeat("asking for the engine of the pool", database.deadline(), ask)
