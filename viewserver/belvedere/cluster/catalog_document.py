"""The catalog of a pool as a document: canonical JSON that is written once and never changed.

Every change of the catalog is another document with the next version. Tables and views carry the versions between which
they exist (`since`, `until`), because a circuit must mean the same for ever: it was bound to the relations of the
version at which it was made, and is bound to them again in every process and after every later change. So what was
dropped stays in the document, marked, until no circuit refers to it any more.

Nothing in the store is named twice: a table that is created again gets another physical name, a view another circuit.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from belvedere.errors import Damaged, FormatError
from belvedere.sql.catalog import TableDef
from belvedere.store.embedded.describe import table_json, table_of

FORMAT = 1


@dataclass(frozen=True)
class Table:
    """A base table. `physical`: its name in the store, in INPUT and in plans."""

    definition: TableDef
    physical: str
    since: int
    until: int | None = None

    def exists_at(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


@dataclass(frozen=True)
class View:
    """A view as `belvedere.embedded.ddl.view_json` wrote it (its version is the number of its circuit)."""

    value: dict[str, Any]
    until: int | None = None

    @property
    def name(self) -> str:
        return str(self.value["name"])


@dataclass(frozen=True)
class Circuit:
    """Views that were applied together, each after those that it reads. `made`: the version that brought them."""

    number: int
    made: int
    views: tuple[View, ...]

    @property
    def live(self) -> tuple[View, ...]:
        return tuple(view for view in self.views if view.until is None)


@dataclass(frozen=True)
class Document:
    version: int = 0
    circuit: int = 0
    """The greatest number that a circuit ever had."""
    names: frozenset[str] = field(default_factory=frozenset)
    """Every physical name that a table ever had, in lower case."""
    tables: tuple[Table, ...] = ()
    circuits: tuple[Circuit, ...] = ()
    tickets: tuple[str, ...] = ()
    """Of the latest changes, newest last: a request that is repeated finds that it has happened."""


def dump(document: Document) -> bytes:
    """Equal documents are equal bytes."""
    value = {
        "format": FORMAT,
        "version": document.version,
        "circuit": document.circuit,
        "names": sorted(document.names),
        "tables": [
            {**table_json(t.definition), "physical": t.physical, "since": t.since, "until": t.until}
            for t in document.tables
        ],
        "circuits": [
            {"number": c.number, "made": c.made, "views": [{**v.value, "until": v.until} for v in c.views]}
            for c in document.circuits
        ],
        "tickets": list(document.tickets),
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


@functools.lru_cache(maxsize=256)
def load(data: bytes) -> Document:
    """What `dump` wrote."""
    try:
        value = json.loads(data)
        found = value["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"catalog: {len(data)} bytes that are no catalog: {error}") from None
    if found != FORMAT:
        raise FormatError(f"catalog: written in format {found}; this program reads format {FORMAT}")
    return Document(
        value["version"],
        value["circuit"],
        frozenset(value["names"]),
        tuple(Table(table_of(t), t["physical"], t["since"], t["until"]) for t in value["tables"]),
        tuple(_circuit(c) for c in value["circuits"]),
        tuple(value["tickets"]),
    )


def _circuit(value: dict[str, Any]) -> Circuit:
    views = []
    for entry in value["views"]:
        until = entry.pop("until")
        views.append(View(entry, until))
    return Circuit(value["number"], value["made"], tuple(views))


def digest(*parts: str) -> str:
    """A short name for texts that differs if any of them does."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        state.update(len(encoded).to_bytes(8, "little") + encoded)
    return state.hexdigest()
