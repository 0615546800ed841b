"""Key ranges of base tables, for those who administer a cluster: what there is, and how it is split, merged and moved.

Each call is made once: a change whose answer was lost may have happened, so look before you repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from belvedere.backend.seam import BaseTables, OpenRange
from belvedere.cluster.catalog.names import ServedTable
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.errors import CatalogError, DataError
from belvedere.model import order
from belvedere.model.base_keys import decode_key, encode_keys
from belvedere.protocol.exactly_once import SourceId
from belvedere.sql.catalog import TableDef


@dataclass(frozen=True)
class TableRange:
    """`start` and `stop`: key values (the first ones of a key will do), None where there is no bound; text that begins
    with 0x where a bound is no key."""

    source: str
    start: list[Any] | str | None
    stop: list[Any] | str | None
    node: str


class Ranges:
    """The key ranges of one base table."""

    def __init__(self, database: ClusterDatabase, table: str) -> None:
        deadline = database.deadline()
        committed = database.epochs.newest(deadline).committed
        found = database.epochs.named(table, committed, deadline)
        if not isinstance(found, ServedTable):
            raise CatalogError(f"{found.name!r} is a view; base tables have key ranges")
        base = database.stores.connection(deadline).base
        if base is None:
            raise CatalogError("this backend does not administer key ranges")
        self._client: BaseTables = base
        self.table: TableDef = found.stored
        self._types = [self.table.columns[at].type for at in self.table.key_positions]

    def listed(self) -> list[TableRange]:
        """In the order of keys."""
        found = self._client.ranges(self.table.name)
        return [TableRange(r.source, self._shown(r.start or None), self._shown(r.stop), r.node) for r in found]

    def split(self, key: Sequence[Any] = (), source: str | None = None) -> tuple[str, str]:
        """Two ranges of one: at the key, in the range that has it; or in the middle of a range's rows (of which one,
        `source` says where there are several)."""
        found = self._client.ranges(self.table.name)
        if not key:
            return self._client.split(self._one(found, source))
        columns = [self.table.columns[at] for at in self.table.key_positions][: len(key)]
        if len(key) > len(columns):
            raise DataError(f"the key of table {self.table.name!r} has {len(columns)} columns, found {len(key)} values")
        encoded = encode_keys(order.key_vecs(columns, key, f"key of table {self.table.name!r}"), self.table.name)[0]
        within = [r for r in found if r.start <= encoded and (r.stop is None or encoded < r.stop)]
        return self._client.split(within[0].source, encoded)

    def merge(self, a: str, b: str) -> str:
        """One range of two neighbours."""
        found = self._client.ranges(self.table.name)
        return self._client.merge(self._one(found, a), self._one(found, b))

    def move(self, source: str, node: str) -> None:
        """Another node pushes it."""
        self._client.move(self._one(self._client.ranges(self.table.name), source), node)

    def _one(self, found: Sequence[OpenRange], source: str | None) -> SourceId:
        known = [range.source for range in found]
        if source is None and len(known) == 1:
            return known[0]
        if source is None or source not in known:
            what = "name one of its ranges" if source is None else f"it has no open range {source!r}"
            raise CatalogError(f"table {self.table.name!r}: {what}; there are {', '.join(known)}")
        return SourceId(source)

    def _shown(self, key: bytes | None) -> list[Any] | str | None:
        if key is None:
            return None
        try:
            return decode_key(key, self._types)
        except (DataError, ValueError):
            return "0x" + key.hex()
