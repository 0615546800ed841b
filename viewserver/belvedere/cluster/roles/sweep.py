"""Tables in the store that nobody can need any more: of views and base tables that were dropped or replaced.

    garbage by the committed catalog ──noted, with the committed epoch──▶ the horizon has passed it ──▶ dropped

Nobody reads below the horizon, and at or above it the tables are in no catalog. A late writer may bring rows back; then
the table is garbage once more. What a leader has noted is not carried over: its successor notes it again.
"""

from __future__ import annotations

from collections.abc import Collection

from belvedere.cluster.catalog_document import load
from belvedere.cluster.catalogs import compile
from belvedere.engine.shard import delta_table, quarantine_table, view_table
from belvedere.protocol.messages import Epoch
from belvedere.store.seam import Store


def garbage(document: bytes, tables: Collection[str]) -> list[str]:
    """Those of the tables that belong to something this catalog knew, and has not any more."""
    content, compiled = load(document), compile(document)
    kept = {delta_table(table.stored.name) for table in compiled.tables.values()}
    for circuit in compiled.shard.circuits:
        kept |= {name(view) for view in circuit.views for name in (view_table, quarantine_table)}
    dropped = {delta_table(table.physical) for table in content.tables if table.until is not None}
    circuits = {circuit.number for circuit in compiled.shard.circuits}
    return [name for name in tables if name not in kept and _is_garbage(name, dropped, circuits, content.circuit)]


def _is_garbage(name: str, dropped: Collection[str], circuits: Collection[int], newest: int) -> bool:
    """`newest`: the greatest number of a circuit so far; one beyond it belongs to a catalog that is newer."""
    kind, _, rest = name.partition(" ")
    if kind in ("view", "quarantine"):
        version = rest.rpartition(" ")[2]
        return version.isdecimal() and int(version) <= newest
    if kind == "delta":
        return name in dropped
    return kind.isdecimal() and int(kind) <= newest and int(kind) not in circuits


class Sweep:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, Epoch] = {}

    def sweep(self, document: bytes, committed: Epoch, horizon: Epoch) -> list[str]:
        """Drop what was garbage before the horizon. `document`: the catalog of the committed epoch."""
        found = garbage(document, self._store.usage())
        self._noted = {name: self._noted.get(name, committed) for name in found}
        due = [name for name, epoch in self._noted.items() if epoch < horizon]
        if due:
            self._store.drop_tables(due)
        return due
