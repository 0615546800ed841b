"""The catalog of a pool as a document: canonical JSON that is written once and never changed.

Every change of the catalog is another document with the next version. Tables and views carry the versions between which
they exist (`since`, `until`), because a view group must mean the same for ever: it was bound to the relations of the
version at which it was made, and is bound to them again in every process and after every later change. So what was
dropped stays in the document, marked, until no view group refers to it any more.

Nothing in the store is named twice: a table that is created again gets another physical name, a view another group.

A view that failed (`ViewFailure`) is there until it is dropped or replaced, but nobody computes it any more. Format 2
has such views, and is written only if there are any.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from belvedere.errors import Damaged, FormatError
from belvedere.model.describe import table_json, table_of
from belvedere.sql.catalog import TableDef

FORMAT = 2
EPOCHS, SPARK, AUTO = "epochs", "spark", "auto"
"""How a view group is built: AUTO is what was asked for, until the leader has chosen."""


@dataclass(frozen=True)
class TableDocument:
    """A base table. `physical`: its name in the store, in INPUT and in plans."""

    definition: TableDef
    physical: str
    since: int
    until: int | None = None

    def exists_at(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


@dataclass(frozen=True)
class ViewFailure:
    """Since which epoch a view is not computed any more, and why. `version`: of the first catalog that says so.
    `served`: whether it could be read before; if not, it failed while it was being built."""

    epoch: int
    reason: str
    version: int
    served: bool


@dataclass(frozen=True)
class ViewDocument:
    """A view as `belvedere.model.ddl.view_json` wrote it (its version is the number of its view group).

    `shape` and `below`: what readers need of it, so that they need not plan it: columns and key (`ViewShape`), and the
    older view groups that it reads. They follow from the rest. None in documents of earlier versions."""

    value: dict[str, Any]
    until: int | None = None
    failure: ViewFailure | None = None
    shape: dict[str, Any] | None = None
    below: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return str(self.value["name"])


@dataclass(frozen=True)
class ViewGroupDocument:
    """Views that were applied together, each after those that it reads. `made`: the version that brought them;
    `engine`: the pool's at that time, 0 in documents of versions that did not tell. `build`: how it is built; `why`
    that was chosen."""

    number: int
    made: int
    views: tuple[ViewDocument, ...]
    engine: int = 0
    build: str = EPOCHS
    why: str = ""

    @property
    def live(self) -> tuple[ViewDocument, ...]:
        """Those that are computed."""
        return tuple(view for view in self.views if view.until is None and view.failure is None)

    @property
    def failed(self) -> tuple[ViewDocument, ...]:
        """Those that are not computed any more, and not dropped either."""
        return tuple(view for view in self.views if view.until is None and view.failure is not None)


@dataclass(frozen=True)
class Document:
    version: int = 0
    view_group: int = 0
    """The greatest number that a view group ever had."""
    names: frozenset[str] = field(default_factory=frozenset)
    """Every physical name that a table ever had, in lower case."""
    tables: tuple[TableDocument, ...] = ()
    view_groups: tuple[ViewGroupDocument, ...] = ()
    tickets: tuple[str, ...] = ()
    """Of the latest changes, newest last: a request that is repeated finds that it has happened."""


def dump(document: Document) -> bytes:
    """Equal documents are equal bytes."""
    failed = any(view.failure for view_group in document.view_groups for view in view_group.views)
    value = {
        "format": FORMAT if failed else 1,
        "version": document.version,
        "circuit": document.view_group,
        "names": sorted(document.names),
        "tables": [
            {**table_json(t.definition), "physical": t.physical, "since": t.since, "until": t.until}
            for t in document.tables
        ],
        "circuits": [_view_group_json(view_group) for view_group in document.view_groups],
        "tickets": list(document.tickets),
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def _view_group_json(view_group: ViewGroupDocument) -> dict[str, Any]:
    engine: dict[str, Any] = {"engine": view_group.engine} if view_group.engine else {}
    if (view_group.build, view_group.why) != (EPOCHS, ""):
        engine |= {"build": view_group.build, "why": view_group.why}
    return {
        "number": view_group.number,
        "made": view_group.made,
        "views": [_view_json(view) for view in view_group.views],
        **engine,
    }


def _view_json(view: ViewDocument) -> dict[str, Any]:
    failure = {} if view.failure is None else {"failure": dataclasses.asdict(view.failure)}
    known = {} if view.shape is None else {"shape": view.shape, "below": list(view.below)}
    return {**view.value, "until": view.until, **failure, **known}


@functools.lru_cache(maxsize=256)
def load(data: bytes) -> Document:
    """What `dump` wrote."""
    try:
        value = json.loads(data)
        found = value["format"]
    except (ValueError, TypeError, KeyError) as error:
        raise Damaged(f"catalog: {len(data)} bytes that are no catalog: {error}") from None
    if found not in (1, FORMAT):
        raise FormatError(f"catalog: written in format {found}; this program reads formats 1 to {FORMAT}")
    return Document(
        value["version"],
        value["circuit"],
        frozenset(value["names"]),
        tuple(TableDocument(table_of(t), t["physical"], t["since"], t["until"]) for t in value["tables"]),
        tuple(_view_group(c) for c in value["circuits"]),
        tuple(value["tickets"]),
    )


def _view_group(value: dict[str, Any]) -> ViewGroupDocument:
    views = []
    for entry in value["views"]:
        until, failure = entry.pop("until"), entry.pop("failure", None)
        shape, below = entry.pop("shape", None), entry.pop("below", ())
        failed = None if failure is None else ViewFailure(**failure)
        views.append(ViewDocument(entry, until, failed, shape, tuple(below)))
    engine, build, why = value.get("engine", 0), value.get("build", EPOCHS), value.get("why", "")
    return ViewGroupDocument(value["number"], value["made"], tuple(views), engine, build, why)


def digest(*parts: str) -> str:
    """A short name for texts that differs if any of them does."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode()
        state.update(len(encoded).to_bytes(8, "little") + encoded)
    return state.hexdigest()
