"""The engine on some of the buckets: what a view server computes of an epoch, stage by stage.

    configure, own -> begin -> receive* -> run(0) -> receive* -> run(1) ... -> finish -> begin of the next epoch
                         \\________________________ undo (any time) _____________________/

Rows lie where the bucket of a hash says (`bucket_of`): base rows by primary key, groups by their key, rows of a view by
their id. A stage runs the operators whose rows are there; rows that the next operators want elsewhere leave as
`Outgoing`. State is a cache of the store: keys are loaded when an epoch needs them and what it changed is returned by
`finish`. It is safe to give up at any moment, since nothing but the store is needed to go on: `undo` forgets every key
that an epoch touched which is not committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.residency import StateStore
from belvedere.plan import nodes
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema

BUCKETS = 1 << 14
"""The bucket of an id is `id[0] & (BUCKETS - 1)`."""

DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Circuit:
    """Views that were applied together. `leaves`: views of older circuits that they read."""

    number: int
    views: tuple[nodes.View, ...]
    leaves: tuple[nodes.View, ...] = ()


@dataclass(frozen=True)
class ShardCatalog:
    """What is in service or under construction."""

    tables: tuple[TableDef, ...]
    circuits: tuple[Circuit, ...]


@dataclass(frozen=True)
class Outgoing:
    """Rows for the server at position `target`, which needs them before it runs `stage`."""

    target: int
    stage: int
    payload: bytes
    rows: int


@dataclass(frozen=True)
class TableChange:
    """What an epoch changed in one table of the store: ids (each once, ascending) and values, null where the row is
    gone. `logged`: readers will ask which rows an epoch changed (views, quarantine)."""

    table: str
    ids: np.ndarray
    values: pa.BinaryArray
    logged: bool


class StageError(Exception):
    """An operator failed. `views`: names of the views it serves."""

    def __init__(self, views: tuple[str, ...], reason: str):
        super().__init__(f"view {', '.join(views)}: {reason}" if views else reason)
        self.views, self.reason = views, reason


def view_table(view: nodes.View) -> str:
    """The store's table of a view's rows."""
    return f"view {view.name} {view.version}"


def quarantine_table(view: nodes.View) -> str:
    """The store's table of the rows that a view cannot show because they failed."""
    return f"quarantine {view.name} {view.version}"


def delta_table(name: str) -> str:
    """The store's table of the rows of a base table."""
    return f"delta {name}"


def decode_view_rows(schema: nodes.View | Schema, ids: np.ndarray, values: pa.BinaryArray) -> Delta:
    """Rows of a view (weight +1) as the store keeps them; every value is a row, none is null."""
    raise NotImplementedError


def route_changes(table: TableDef, changes: Changes, owner: np.ndarray) -> list[tuple[int, bytes, int]]:
    """Changes of a base table by the position of the server that owns them: (target, payload, rows)."""
    raise NotImplementedError


class Shard:
    """The operators of all circuits on the buckets of one server."""

    def __init__(
        self,
        store: StateStore,
        *,
        memory_limit: int = 1 << 30,
        spill_directory: Path | None = None,
        tombstone_retention_ms: int = 10 * DAY_MS,
    ):
        self._store = store

    def configure(self, catalog: ShardCatalog) -> None:
        """Between epochs: circuits and tables are those of the catalog from now on."""

    @property
    def stages(self) -> int:
        """Number of stages of an epoch."""
        return 1

    def own(self, owner: np.ndarray, me: int) -> None:
        """Between epochs: `owner` (uint16[BUCKETS]) tells the position of the owner of each bucket."""

    def begin(self, epoch: int, slices: Mapping[int, tuple[int, int]]) -> None:
        """Start an epoch. `slices`: for circuits under construction, which buckets of their leaves they take now."""

    def receive(self, stage: int, order: tuple[int, int], payload: bytes) -> None:
        """Rows for a stage that has not run; in any order."""

    def run(self, stage: int) -> list[Outgoing]:
        """Compute a stage (all from 0 on, one after the other)."""
        raise NotImplementedError

    def finish(self) -> list[TableChange]:
        """End the epoch: everything that it changed."""
        raise NotImplementedError

    def persisted(self, epoch: int) -> None:
        """The changes of this epoch (and of all before) are in the store."""

    def committed(self, epoch: int) -> None:
        """Epochs up to this one will never be undone."""

    def undo(self, committed: int) -> None:
        """Give up the running epoch, and forget every key that epochs after `committed` touched."""

    def evict(self, share: float = 1.0) -> int:
        """Between epochs: forget that share of the keys whose writes are in the store; returns how many went."""
        raise NotImplementedError

    def figures(self) -> dict[str, float]:
        """What it holds and how often it had to ask the store."""
        raise NotImplementedError
