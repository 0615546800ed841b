"""Verification of what lies behind the views of a pool, at an epoch that is held meanwhile."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

from belvedere.cluster.catalog.names import ReadableView
from belvedere.cluster.client.pool import repeat
from belvedere.cluster.transport import calls
from belvedere.errors import Unavailable
from belvedere.model import verify, verify_tables
from belvedere.model.verify import Report
from belvedere.plan.table_names import delta_table
from belvedere.sql.catalog import TableDef

if TYPE_CHECKING:
    from belvedere.backend.seam import Store
    from belvedere.cluster.client.database import ClusterDatabase

ENGINE = "belvedere"
_PAUSE_S = 0.5
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
            yield _verify_followed(database, table)
            continue
        yield verify_tables.report_of(
            table, known.epoch, (), subject=verify.TABLE, engine=ENGINE, seconds=0.0, problem=OWNED
        )


def _verify_followed(database: ClusterDatabase, table: str) -> Report:
    """A table of another system, by those who follow it. A row counts as wrong if it was seen so twice, all of the log
    that was there at the first time having been taken before the second."""
    started, call = time.monotonic(), calls.encode(calls.LookCall(uuid.uuid4().hex, table))
    ask = functools.partial(database.pool.ask_leader, calls.LOOK, call)
    while True:
        seen = calls.decode(repeat(f"comparing {table!r}", database.deadline(), ask), calls.LookSeen)
        if seen.done:
            break
        time.sleep(_PAUSE_S)
    counts = dict(zip(verify.KINDS, (seen.missing, seen.extra, seen.different), strict=True))
    missing, extra, different = (tuple({"table": delta_table(table), "id": id} for id in ids) for ids in seen.examples)
    wrong = sum(counts.values())
    problem = f"{seen.undecided:,} rows were written all the time, so that nothing can be said of them"
    return Report(
        table, database.epoch, not wrong and not seen.undecided, seen.rows, missing=missing, extra=extra,
        different=tuple({"found": row, "expected": row} for row in different), differences=wrong, counts=counts,
        problem=problem if seen.undecided else None, engine=ENGINE, subject=verify.TABLE,
        seconds=time.monotonic() - started,
    )  # fmt: skip


def engine_of(database: ClusterDatabase) -> int:
    """The engine version of the pool."""

    def ask(timeout: float) -> int:
        generation = database.pool.refresh(timeout).generation
        if generation is None:
            raise Unavailable("the pool has no generation yet")
        return generation.engine

    return repeat("asking for the engine of the pool", database.deadline(), ask)
