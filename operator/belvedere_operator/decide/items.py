"""Tables and views as decisions see them: a resource, read, with what was said of it before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.base_table import BaseTableSpec, BaseTableStatus
from belvedere_operator.api.crds import BY_NAME
from belvedere_operator.api.materialized_view import MaterializedViewSpec, MaterializedViewStatus
from belvedere_operator.api.reading import InvalidSpec, read
from belvedere_operator.gateway import DocumentResult
from belvedere_operator.names import FINALIZER, REPAIR, VERIFY, paused, pool_of, sql_name

TABLE, VIEW = "BaseTable", "MaterializedView"
MOST_OF_REQUEST = 128
IN_DATABASE = {TABLE: ("name", "columns", "key", "ties", "hbase"), VIEW: ("name", "query", "key", "retention", "build")}
"""Fields that mean something to the database; the others are between Kubernetes and the operator."""


@dataclass(frozen=True, slots=True)
class Item:
    """A BaseTable or a MaterializedView."""

    kind: str
    namespace: str
    name: str
    sql_name: str
    uid: str
    generation: int
    created: str
    pool: str
    raw_spec: Mapping[str, Any]
    spec: BaseTableSpec | MaterializedViewSpec | None
    """None: it cannot be read, and `invalid` says why."""
    status: BaseTableStatus | MaterializedViewStatus
    invalid: str = ""
    deleting: str | None = None
    """Since when."""
    finalized: bool = False
    paused: bool = False
    build: str = ""
    """By whom it is built, where that is not as the resource says."""
    verify_request: str = ""
    """In which words somebody asks for a verification; the same ones were answered before."""
    repair_request: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.name

    @property
    def suspended(self) -> bool:
        return isinstance(self.spec, MaterializedViewSpec) and self.spec.suspend

    @property
    def reclaim_policy(self) -> str:
        return self.spec.reclaim_policy if self.spec is not None else "Retain"

    def manifest(self) -> dict[str, Any]:
        """What the database is told: the resource without what only Kubernetes knows, and with its name in SQL."""
        spec = {field: self.raw_spec[field] for field in IN_DATABASE[self.kind] if self.raw_spec.get(field) is not None}
        return {
            "apiVersion": API_VERSION,
            "kind": self.kind,
            "metadata": {"name": self.name},
            "spec": spec | {"name": self.sql_name},
        }

    def document(self) -> dict[str, Any]:
        """The manifest, with what was decided for it. It is not in the digest, which is of what the resource says."""
        found = self.manifest()
        return found | {"spec": found["spec"] | {"build": self.build}} if self.build else found

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.manifest(), sort_keys=True).encode()).hexdigest()[:16]


def item_of(resource: Mapping[str, Any]) -> Item:
    """From a resource as Kubernetes gives it."""
    meta, kind = resource["metadata"], str(resource["kind"])
    declared = BY_NAME[kind]
    spec: Any = None
    invalid = ""
    try:
        spec = read(declared.spec, resource.get("spec"))
    except InvalidSpec as error:
        invalid = str(error)
    try:
        status: Any = read(declared.status, resource.get("status") or {}, "status")
    except InvalidSpec:  # of another version of the operator: it is written anew
        status = declared.status()
    return Item(
        kind=kind,
        namespace=str(meta.get("namespace") or "default"),
        name=str(meta["name"]),
        sql_name=sql_name(resource),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation", 0)),
        created=str(meta.get("creationTimestamp", "")),
        pool=pool_of(resource),
        raw_spec=resource.get("spec") or {},
        spec=spec,
        status=status,
        invalid=invalid,
        deleting=meta.get("deletionTimestamp"),
        finalized=FINALIZER in (meta.get("finalizers") or ()),
        paused=paused(resource),
        verify_request=str((meta.get("annotations") or {}).get(VERIFY, ""))[:MOST_OF_REQUEST],
        repair_request=str((meta.get("annotations") or {}).get(REPAIR, ""))[:MOST_OF_REQUEST],
    )


class Phase(StrEnum):
    """What a pool can do now. Missing -> Starting -> Up <-> (Stalled | Unreachable); Deleting ends it."""

    MISSING = "Missing"
    STARTING = "Starting"
    UP = "Up"
    STALLED = "Stalled"
    UNREACHABLE = "Unreachable"
    DELETING = "Deleting"


@dataclass(frozen=True, slots=True)
class PoolState:
    """The pool that tables and views are in, and why it is in that phase."""

    name: str
    phase: Phase
    reason: str = ""

    @property
    def gone(self) -> bool:
        return self.phase in (Phase.MISSING, Phase.DELETING)

    @property
    def up(self) -> bool:
        return self.phase is Phase.UP


def by_item(items: Sequence[Item], results: Sequence[DocumentResult]) -> dict[tuple[str, str], DocumentResult]:
    """Results by resource. They come in the order of the documents; where one is missing, they are told by name."""
    if len(items) == len(results):
        return {item.key: result for item, result in zip(items, results, strict=True)}
    by_name = {one.name.lower(): one for one in results}
    found = {item.key: by_name.get(item.sql_name.lower()) or by_name.get(item.name.lower()) for item in items}
    return {key: one for key, one in found.items() if one is not None}


def name_holders(items: Iterable[Item]) -> dict[str, Item]:
    """Who has a name in SQL when several resources claim it: the oldest that is not being deleted."""
    holders: dict[str, Item] = {}
    for item in sorted(items, key=lambda one: (one.deleting is not None, one.created, one.kind, one.name)):
        holders.setdefault(item.sql_name.lower(), item)
    return holders
