"""Stores of pools on the HBase of the run: one namespace for all tests, in which each test has rows of its own.

Making the tables of a pool takes HBase a second or two, so tests share them: between the store and the cells is a layer
that begins every row with a name. The tables of views are the pool's own, and are shared likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.client import connect_hbase
from belvedere.backend.hbase.keyvalues import KeyValues, part_of
from belvedere.backend.hbase.layout import after
from belvedere.backend.hbase.local.cluster import LocalHBase
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.store import HBaseStore
from belvedere.backend.hbase.thrift_cells import ThriftCells
from tests.backend.hbase.server import unique

NAMESPACE = "belvedere_tests"


@dataclass(frozen=True)
class RowsOfOne:
    """Cells of rows that begin with a name of ours."""

    cells: Cells
    name: bytes

    def _own(self, rows: pa.BinaryArray) -> pa.BinaryArray:
        return pc.binary_join_element_wise(pa.scalar(self.name, pa.binary()), rows, b"") if len(rows) else rows

    def _bare(self, found: KeyValues) -> KeyValues:
        return replace(found, row=part_of(found.row, len(self.name)))

    def put(self, table: str, cells: KeyValues) -> None:
        self.cells.put(table, replace(cells, row=self._own(cells.row)))

    def delete(
        self, table: str, rows: pa.BinaryArray, family: str, qualifiers: Sequence[bytes] | None, upto: Sequence[int]
    ) -> None:
        self.cells.delete(table, self._own(rows), family, qualifiers, upto)

    def put_if_absent(self, table: str, row: bytes, family: str, qualifier: bytes, value: bytes) -> None:
        self.cells.put_if_absent(table, self.name + row, family, qualifier, value)

    def get(self, table: str, rows: pa.BinaryArray, columns: Columns) -> KeyValues:
        return self._bare(self.cells.get(table, self._own(rows), columns))

    def scan(self, table: str, start: bytes, stop: bytes | None, columns: Columns, **more: Any) -> Iterator[KeyValues]:
        end = after(self.name) if stop is None else self.name + stop
        for piece in self.cells.scan(table, self.name + start, end, columns, **more):
            yield self._bare(piece)

    def within(self, timeout: float) -> Cells:
        return RowsOfOne(self.cells.within(timeout), self.name)

    def close(self) -> None:
        self.cells.close()


def make_store(kind: str, hbase: LocalHBase, stack: ExitStack) -> HBaseStore:
    """With rows that no other test has."""
    client = connect_hbase(hbase.zookeeper)
    stack.callback(client.close)
    cells: Cells = RpcCells(client.regions, client.pool) if kind == "hbase-rpc" else ThriftCells(*hbase.thrift)
    stack.callback(cells.close)
    store = HBaseStore(RowsOfOne(cells, unique("").encode() + b"/"), PoolAdmin(client.master, NAMESPACE, "tests"))
    store.prepare()
    return store
