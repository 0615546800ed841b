"""What the gateway needs of a database, and how the two kinds differ: one in this process, and a pool elsewhere.

Both have the same methods (`belvedere.open`, `belvedere.connect`), so this is short. The one in this process is given
opened: the gateway itself imports neither engine nor embedded database.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from belvedere import errors
from belvedere.cluster.catalog.names import Readable, ServedTable
from belvedere.gateway.estimates import Estimates, Stored
from belvedere.model.pin import Pin
from belvedere.plan.table_names import quarantine_table
from belvedere.sql.catalog import TableDef, ViewDef
from belvedere.sql.manifest_target import EMBEDDED, Target


class GatewayDatabase(ABC):
    """One database behind the API."""

    kind: str

    def __init__(self, db: Any, *, read_only: bool = False) -> None:
        """`db`: `belvedere.embedded.database.Database`, its reader, or `belvedere.cluster.client.database`'s."""
        self.db, self.read_only = db, read_only

    def relation(self, name: str) -> TableDef | ViewDef:
        """The definition; raises UnknownRelation."""
        found: TableDef | ViewDef | None = self.db.catalog.find(name)
        if found is None:
            self.refresh()  # it may have come a moment ago
            try:
                found = self.db.catalog.relation(name)
            except errors.UnknownRelation as error:
                raise self.why_unknown(name, error) from error
        assert found is not None
        return found

    def why_unknown(self, sql: str, error: errors.BelvedereError) -> errors.BelvedereError:
        """What to tell who uses a name that is unknown: it may be a view that has failed."""
        return error

    def token(self, text: str, where: str = "Belvedere-After") -> Any:
        """One token of several, separated by blanks. `where`: they stood, for errors."""
        try:
            parts = [self.db._token(part) for part in text.split()]
        except (ValueError, errors.DataError) as error:
            raise errors.BadRequest(f"{where}: {str(error)[:200]}") from None
        if not parts:
            raise errors.BadRequest(f"{where} is empty: give a token, or leave it out")
        joined = parts[0]
        for part in parts[1:]:
            joined = joined.joined_with(part)
        return joined

    @abstractmethod
    def newest(self) -> int:
        """The newest epoch that is known, without asking anybody. Not older than answers given so far."""

    def moment(self, at: Any) -> Any:
        """`at` as the database takes it, so that a number is that epoch and no earlier one."""
        return at

    @abstractmethod
    def pin(self, epoch: int) -> Pin:
        """Keep the epoch readable; raises EpochExpired."""

    def unpin(self, pin: Pin) -> None:
        self.db.pins.unpin(pin)

    def can_answer_now(self, relation: str, after: str | None) -> bool:
        """Whether `get` of a row answers from memory, at once."""
        return False

    @abstractmethod
    def reads_at_epochs(self, relation: str) -> bool:
        """Whether older epochs of it can be read."""

    @abstractmethod
    def trouble(self) -> list[str]:
        """Why it does not serve; nothing: it does. May take seconds."""

    @abstractmethod
    def status(self) -> Mapping[str, Any]:
        """As `db.status()`, in the fields that both kinds have."""

    def counted(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same with rows and bytes of tables and views, about."""
        return told

    @abstractmethod
    def refresh(self) -> None:
        """Make sure that names which came a moment ago are known."""

    @abstractmethod
    def target(self) -> Target:
        """What manifests are applied to."""

    @abstractmethod
    def row_counts(self) -> Mapping[str, int | None]:
        """Rows of base tables, as far as known: for forecasts."""

    def close(self) -> None:
        self.db.close()


class EmbeddedDatabase(GatewayDatabase):
    """A database in this process."""

    kind = "embedded"

    def newest(self) -> int:
        return int(self.db.epoch)

    def pin(self, epoch: int) -> Pin:
        found: Pin = self.db.pins.pin(epoch, "gateway")
        try:
            self.db.check_history(epoch)
        except errors.EpochExpired:
            self.db.pins.unpin(found)
            raise
        return found

    def can_answer_now(self, relation: str, after: str | None) -> bool:
        # a reader of another process's files may have to follow them; base tables are asked for in the engine's thread
        return not self.read_only and after is None and relation in self.db.catalog.views

    def reads_at_epochs(self, relation: str) -> bool:
        return isinstance(self.relation(relation), ViewDef)

    def trouble(self) -> list[str]:
        try:
            _ = self.db.epoch
            self.db.catalog  # noqa: B018  raises if it is closed
        except errors.BelvedereError as error:
            return [str(error)]
        stopped = getattr(getattr(self.db, "_runtime", None), "failure", None)
        return [stopped] if stopped else []

    def status(self) -> Mapping[str, Any]:
        found: dict[str, Any] = self.db.status()
        return found

    def refresh(self) -> None:
        """They are known at once."""

    def why_unknown(self, sql: str, error: errors.BelvedereError) -> errors.BelvedereError:
        for word in dict.fromkeys([sql, *re.findall(r"\w+", sql)]):
            view = self.db._failed(word)
            if view is not None:
                why: errors.ViewFailed = view.error()
                return why
        return error

    def target(self) -> Target:
        return EMBEDDED

    def row_counts(self) -> Mapping[str, int | None]:
        return {name: table.get("rows") for name, table in self.db.status()["tables"].items()}


class PoolDatabase(GatewayDatabase):
    """A pool, over its own protocol."""

    kind = "pool"

    def __init__(self, db: Any, *, read_only: bool = False) -> None:
        super().__init__(db, read_only=read_only)
        self._estimates = Estimates()

    def newest(self) -> int:
        return int(self.db.epochs.known.epoch)

    def moment(self, at: Any) -> Any:
        return self.db.epochs.exactly(at, self.db.deadline()) if type(at) is int else at

    def pin(self, epoch: int) -> Pin:
        found: Pin = self.db.pins.pin(epoch, self.db.deadline(5.0))
        return found

    def relation(self, name: str) -> TableDef | ViewDef:
        """A table is known without its catalog, which takes a parser."""
        deadline = self.db.deadline()
        with contextlib.suppress(errors.BelvedereError):
            found = self.db.epochs.named(name, self.db.epochs.newest(deadline).committed, deadline)
            if isinstance(found, ServedTable):
                return found.definition
        return super().relation(name)

    def reads_at_epochs(self, relation: str) -> bool:
        return True

    def trouble(self) -> list[str]:
        try:
            self.db.epochs.newest(self.db.deadline(2.0), 1.0)
        except errors.BelvedereError as error:
            return [str(error)]
        return []

    def status(self) -> Mapping[str, Any]:
        found: dict[str, Any] = self.db.status()
        stalled = found.get("stalled")
        return {**found, "problems": [stalled] if stalled else []}

    def counted(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        deadline = self.db.deadline()
        known = self.db.epochs.newest(deadline)
        tables, views = dict(told["tables"]), dict(told["views"])
        places: dict[str, Readable] = {}
        stored: dict[str, Stored] = {}
        for name, one in self.db.epochs.names(known.committed, deadline).items():
            figures = tables.get(name) if isinstance(one, ServedTable) else views.get(name)
            if figures is not None and "versions" in figures:
                places[name] = one
                if isinstance(one, ServedTable):
                    stored[one.rows_table] = Stored(figures["versions"], one.stored)
                else:
                    stored[one.rows_table] = Stored(figures["versions"])
                    stored[quarantine_table(one.shape)] = Stored(figures["quarantine_versions"])
        found = self._estimates.of(self.db.stores(deadline), stored, known.epoch)
        for name, one in places.items():
            rows = found.get(one.rows_table)
            sizes = {} if rows is None else {"rows": rows.rows, "bytes": rows.bytes}
            if isinstance(one, ServedTable):
                tables[name] = tables[name] | sizes
                continue
            failed = found.get(quarantine_table(one.shape))
            if failed is not None:
                sizes |= {"quarantined": failed.rows, "complete": failed.rows == 0}
            views[name] = views[name] | sizes
        return {**told, "tables": tables, "views": views}

    def refresh(self) -> None:
        self.db.epochs.newest(self.db.deadline(), 0.0)

    def target(self) -> Target:
        deadline = self.db.deadline()
        return Target(str(self.db.status()["pool"]), self.db.pool.topology(deadline).retention_ms)

    def row_counts(self) -> Mapping[str, int | None]:
        return {name: table.get("rows") for name, table in self.counted(self.status())["tables"].items()}


def write_name(principal: str, table: str, key: str) -> str:
    """The name of a write for the database: keys of different callers and tables do not meet."""
    digest = hashlib.blake2b(f"{principal}\0{table.lower()}\0{key}".encode(), digest_size=20)
    return f"http-{digest.hexdigest()}"


def close_quietly(database: GatewayDatabase) -> None:
    with contextlib.suppress(errors.BelvedereError):
        database.close()
