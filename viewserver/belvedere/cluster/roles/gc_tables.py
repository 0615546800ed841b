"""Tables in the store that nobody can need any more: of views and base tables that were dropped or replaced.

    garbage by the committed catalog ──noted, with the committed epoch──▶ the horizon has reached it ──▶ dropped

Nobody reads below the horizon, and at or above it the tables are in no catalog. A late writer may bring rows back; then
the table is garbage once more. What a leader has noted is not carried over: its successor notes it again.
"""

from __future__ import annotations

from collections.abc import Collection

from belvedere.backend.seam import Store
from belvedere.cluster.catalog.catalogs import store_tables
from belvedere.cluster.catalog.document import Document, load
from belvedere.protocol.messages import Epoch

PAGES = " pages "
"""Between the name of a state table and what tells its pages apart."""


def garbage(document: bytes, tables: Collection[str]) -> list[str]:
    """Those of the tables that belong to something this catalog knew, and has not any more. What it never knew belongs
    to a newer one."""
    content, kept = load(document), store_tables(document)
    return [name for name in tables if _state_of(name) not in kept and _was_known(name, content)]


def _state_of(name: str) -> str:
    """The state table that these pages belong to; else the name."""
    return name.partition(PAGES)[0] if name.partition(" ")[0].isdecimal() else name


def _was_known(name: str, content: Document) -> bool:
    """Whether it is of a base table, or of a view group, that this catalog or an earlier one had."""
    kind, _, rest = name.partition(" ")
    if kind == "delta":
        return rest.lower() in content.names
    number = rest.rpartition(" ")[2] if kind in ("view", "quarantine") else kind
    return number.isdecimal() and int(number) <= content.view_group


class TableGc:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._noted: dict[str, Epoch] = {}

    def drop(self, document: bytes, committed: Epoch, horizon: Epoch) -> list[str]:
        """Drop what is garbage from the horizon on. `document`: the catalog of the committed epoch."""
        found = garbage(document, self._store.tables())
        self._noted = {name: self._noted.get(name, committed) for name in found}
        due = [name for name, epoch in self._noted.items() if epoch <= horizon]
        if due:
            self._store.drop_tables(due)
        return due
