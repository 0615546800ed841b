"""Tables of HBase for definitions that were written for tables of Belvedere: a cell per column, in the encoding that
its type has in `Bytes`; and an application that fills them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from typing import Any

import happybase
import yaml

from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.sql import parse_statement
from belvedere.sql.catalog import Catalog, TableDef
from belvedere.types import Column, Kind

FAMILY = "d"
_ENCODINGS = {
    Kind.INT: "int",
    Kind.BIGINT: "long",
    Kind.DOUBLE: "double",
    Kind.BOOLEAN: "boolean",
    Kind.DATE: "int",
    Kind.TIMESTAMP: "micros",
    Kind.BINARY: "raw",
}
_EPOCH = date(1970, 1, 1).toordinal()
_BYTES: dict[str, Callable[[Any], bytes]] = {
    "int": lambda v: struct.pack(">i", v.toordinal() - _EPOCH if isinstance(v, date) else v),
    "long": lambda v: struct.pack(">q", v),
    "double": lambda v: struct.pack(">d", v),
    "text": lambda v: str(v).encode(),
}


def encoding(column: Column) -> str:
    return _ENCODINGS.get(column.type.kind, "text")


def table_of(sql: str) -> TableDef:
    """What a CREATE TABLE defines."""
    statement: Any = parse_statement(sql, Catalog())
    found: TableDef = statement.table
    return found


def manifest_of(table: TableDef, origin: str) -> str:
    columns = []
    for at, column in enumerate(table.columns):
        described = {"name": column.name, "type": str(column.type).lower(), "encoding": encoding(column)}
        if at not in table.key_positions:
            described["cell"] = f"{FAMILY}:{column.name}"
        columns.append(described)
    spec = {"hbase": {"table": origin, "setReplicationScope": True}, "columns": columns, "key": list(table.key)}
    manifest = {"apiVersion": "belvedere.dev/v1alpha1", "kind": "BaseTable", "metadata": {"name": table.name}}
    return yaml.safe_dump(manifest | {"spec": spec})


class Application:
    """Writes rows of such tables with happybase. `name`: of the table in HBase."""

    def __init__(self, hbase: LocalHBase, table: TableDef, name: str) -> None:
        self.definition, self.name = table, name
        self._thrift = hbase.thrift
        with self._connected() as connection:
            connection.create_table(name, {FAMILY: {"max_versions": 1}})

    @contextmanager
    def _connected(self) -> Iterator[happybase.Connection]:
        """For one call: the gateway closes what is idle for a minute."""
        connection = happybase.Connection(*self._thrift, timeout=60_000)
        try:
            yield connection
        finally:
            connection.close()

    def key(self, row: Mapping[str, Any]) -> bytes:
        columns = [self.definition.columns[at] for at in self.definition.key_positions]
        return b"".join(_BYTES[encoding(column)](row[column.name]) for column in columns)

    def put(self, rows: Iterable[Mapping[str, Any]]) -> None:
        by_name = {column.name: column for column in self.definition.columns}
        with self._connected() as connection, connection.table(self.name).batch(batch_size=1000) as batch:
            for row in rows:
                cells = {
                    f"{FAMILY}:{name}".encode(): _BYTES[encoding(by_name[name])](value)
                    for name, value in row.items()
                    if name not in self.definition.key and value is not None
                }
                batch.put(self.key(row), cells)

    def delete(self, keys: Iterable[Mapping[str, Any]]) -> None:
        with self._connected() as connection, connection.table(self.name).batch(batch_size=1000) as batch:
            for key in keys:
                batch.delete(self.key(key))

    def close(self) -> None:
        with self._connected() as connection:
            connection.delete_table(self.name, disable=True)
