"""Cells in batches: what the store needs of HBase, whichever way they travel.

    RpcCells       our own client of HBase's RPC, to the region servers
    ThriftCells    happybase, through the Thrift gateway: for clusters whose region servers cannot be reached

Both pass the same tests (`tests/backend/hbase/test_cells.py`). Rows of one batch are independent of each other: HBase
knows no transaction over rows, but what a batch puts into one row is put at once. A batch has one kind and one row and
timestamp for each cell, so there is never a put and a delete of one row in it: HBase would let the delete win.

Calls are repeated when regions move, and until their deadline; each of them has the same effect however often it
is done. Reads never see a part of a row that was put at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from belvedere.backend.hbase.keyvalues import KeyValues


@dataclass(frozen=True)
class Columns:
    """Which cells of a row: a family, and of it the qualifiers that are named (all, if none is). `versions`: how many
    of each, newest first. `below`: only older ones than this timestamp. `first`: at most so many columns of a row.
    `deep`: more than the newest is needed only of cells whose newest is not older than this timestamp. `start`: only
    columns from this qualifier on."""

    family: str
    qualifiers: tuple[bytes, ...] = ()
    versions: int = 1
    below: int | None = None
    first: int | None = None
    deep: int = 0
    start: bytes | None = None


class Cells(Protocol):
    """Tables by their full names. Cells come by row as asked for, then by qualifier, then newest first."""

    def put(self, table: str, cells: KeyValues) -> None:
        """All kinds of cells are PUT; those of one row stand together. Durable when it returns."""

    def delete(
        self, table: str, rows: pa.BinaryArray, family: str, qualifiers: Sequence[bytes] | None, upto: Sequence[int]
    ) -> None:
        """Of each row the family, or the column that is given for it, at timestamps up to the one given for it. What
        is given for one row stands together."""

    def put_if_absent(self, table: str, row: bytes, family: str, qualifier: bytes, value: bytes) -> None:
        """At HBase's own time. Whoever wants to know whether it was there reads it afterwards."""

    def get(self, table: str, rows: pa.BinaryArray, columns: Columns) -> KeyValues:
        """Rows that have no such cell are left out."""

    def scan(
        self,
        table: str,
        start: bytes,
        stop: bytes | None,
        columns: Columns,
        *,
        limit: int | None = None,
        reverse: bool = False,
        keys_only: bool = False,
    ) -> Iterator[KeyValues]:
        """Rows from `start` to `stop` (None: to the end), in pieces of whole rows; `reverse`: from the end. `limit`: of
        rows. `keys_only`: values may be empty."""

    def within(self, timeout: float) -> Cells:
        """The same for calls that may take so many seconds."""

    def close(self) -> None: ...
