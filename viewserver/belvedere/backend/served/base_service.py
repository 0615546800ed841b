"""Base tables over the wire: the calls, and the client that makes them.

Changes travel as a chunk of one entry (`model.chunks`). Sources, which coordinators ask for, are part of `Store`, and
so are the rows (DELTA); what is here is for those who write them and administer ranges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from belvedere.backend.seam import OpenRange
from belvedere.backend.served import wire
from belvedere.backend.served.client import StoreCaller
from belvedere.backend.served.service import Service
from belvedere.backend.served.wire import Message
from belvedere.engine.delta import Changes
from belvedere.model import chunks
from belvedere.model.describe import schema_json, schema_of, table_json, table_of
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

if TYPE_CHECKING:  # clients need the calls, not what answers them: it loads the engine
    from belvedere.backend.served.base import ServedBaseTables

PREFIX = "base."


class BaseService(Service):
    prefix = PREFIX

    def __init__(self, base: ServedBaseTables) -> None:
        super().__init__()
        self._base = base

    def _do_create_table(self, message: Message) -> pa.Buffer:
        splits = [bytes.fromhex(split) for split in message.head["splits"]]
        self._base.create_table(table_of(message.head["table"]), splits)
        return wire.pack({})

    def _do_add_columns(self, message: Message) -> pa.Buffer:
        self._base.add_columns(message.head["table"], schema_of(message.head["columns"]))
        return wire.pack({})

    def _do_drop_table(self, message: Message) -> pa.Buffer:
        self._base.drop_table(message.head["table"])
        return wire.pack({})

    def _do_tables(self, message: Message) -> pa.Buffer:
        return wire.pack({"tables": [table_json(table) for table in self._base.tables().values()]})

    def _do_put(self, message: Message) -> pa.Buffer:
        content = chunks.given(memoryview(message.parts[0]), message.head["own_clock"])
        found = self._base.put_entry(content, request=message.head.get("request", ""))
        return wire.pack({"written": found})

    def _do_written(self, message: Message) -> pa.Buffer:
        return wire.pack({"written": self._base.written(message.head["name"])})

    def _do_ranges(self, message: Message) -> pa.Buffer:
        found = self._base.open_ranges(message.head["table"])
        ranges = [[r.source, r.start.hex(), None if r.stop is None else r.stop.hex(), r.node] for r in found]
        return wire.pack({"ranges": ranges, "nodes": list(self._base.nodes)})

    def _do_split(self, message: Message) -> pa.Buffer:
        key = message.parts[0].to_pybytes() if message.parts else None
        return wire.pack({"sources": self._base.split(SourceId(message.head["source"]), key)})

    def _do_merge(self, message: Message) -> pa.Buffer:
        a, b = map(SourceId, message.head["sources"])
        return wire.pack({"sources": [self._base.merge(a, b)]})

    def _do_move(self, message: Message) -> pa.Buffer:
        self._base.move(SourceId(message.head["source"]), message.head["node"])
        return wire.pack({})


class BaseClient(StoreCaller):
    """The base tables behind an address. Definitions are the caller's: it knows the catalog."""

    prefix = PREFIX

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None:
        self._call("create_table", {"table": table_json(table), "splits": [bytes(split).hex() for split in splits]})

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        self._call("add_columns", {"table": table, "columns": schema_json(tuple(columns))})

    def drop_table(self, table: str) -> None:
        self._call("drop_table", {"table": table})

    def tables(self) -> dict[str, TableDef]:
        found = [table_of(table) for table in self._call("tables").head["tables"]]
        return {table.name: table for table in found}

    def put(
        self, table: TableDef, changes: Changes, *, own_clock: bool = True, request: str = ""
    ) -> dict[SourceId, Seq]:
        """See `ServedBaseTables.put`."""
        if not len(changes):
            return {}
        payload = chunks.entry(table, Seq(0), changes, own_clock=own_clock)
        found = self._call("put", {"own_clock": own_clock, "request": request}, [payload]).head["written"]
        return {SourceId(source): Seq(seq) for source, seq in found.items()}

    def written(self, name: str) -> dict[SourceId, Seq] | None:
        found = self._call("written", {"name": name}).head["written"]
        return None if found is None else {SourceId(source): Seq(seq) for source, seq in found.items()}

    def ranges(self, table: str) -> list[OpenRange]:
        """In the order of keys."""
        found = self._call("ranges", {"table": table}).head["ranges"]
        return [
            OpenRange(SourceId(source), bytes.fromhex(start), None if stop is None else bytes.fromhex(stop), node)
            for source, start, stop, node in found
        ]

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        lower, upper = self._call("split", {"source": source}, [] if key is None else [key]).head["sources"]
        return SourceId(lower), SourceId(upper)

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        (daughter,) = self._call("merge", {"sources": [a, b]}).head["sources"]
        return SourceId(daughter)

    def move(self, source: SourceId, node: str) -> None:
        self._call("move", {"source": source, "node": node})
