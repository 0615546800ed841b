"""Cells through HBase's Thrift gateway, with happybase: for clusters whose region servers cannot be reached.

What the gateway cannot do shapes this module. A batch has one timestamp for all of its rows, and none of its reads of
many rows gives more than one version: versions are asked for cell by cell, and only where more than the newest counts
(`Columns.deep`). A family is always named: without it the gateway asks the master first, at ten times the price.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import happybase
import numpy as np
import pyarrow as pa
from Hbase_thrift import BatchMutation, Mutation, TScan
from Hbase_thrift import IOError as GatewayError
from thriftpy2.thrift import TException

from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.keyvalues import PUT, KeyValues, concat, same
from belvedere.errors import StoreUnavailable
from belvedere.retry import Backoff, Deadline, Retry

T = TypeVar("T")
_BATCH_ROWS = 1000
"""Larger ones are not faster, smaller ones are slower: 20 times at one row."""
_BATCH_BYTES = 8 << 20
_IDLE = 8
_LINES = 400
_FINAL = ("NoSuchColumnFamilyException", "TableNotFoundException", "AccessDeniedException")
_Found = list[tuple[bytes, bytes, int, bytes]]
"""Row, qualifier, timestamp, value."""


class ThriftCells:
    """Thread-safe. `timeout`: seconds that a call may take with its repetitions."""

    def __init__(self, host: str, port: int, timeout: float = 60.0, shared: GatewayPool | None = None) -> None:
        self._timeout = timeout
        self._pool = GatewayPool(host, port) if shared is None else shared

    def put(self, table: str, cells: KeyValues) -> None:
        stamps = np.unique(cells.timestamp).tolist()
        for stamp in stamps:
            some = cells if len(stamps) == 1 else cells.take(np.flatnonzero(cells.timestamp == stamp))
            self._put(table, some, stamp)

    def _put(self, table: str, cells: KeyValues, stamp: int) -> None:
        batch: dict[bytes, list[Any]] = {}
        size = 0
        columns = zip(
            *(part.to_pylist() for part in (cells.row, cells.family, cells.qualifier, cells.value)), strict=True
        )
        for row, family, qualifier, value in columns:
            if row not in batch and (len(batch) == _BATCH_ROWS or size >= _BATCH_BYTES):
                self._mutate(table, batch, stamp)
                batch, size = {}, 0
            batch.setdefault(row, []).append(Mutation(column=family + b":" + qualifier, value=value))
            size += len(value)
        if batch:
            self._mutate(table, batch, stamp)

    def delete(
        self, table: str, rows: pa.BinaryArray, family: str, qualifiers: Sequence[bytes] | None, upto: Sequence[int]
    ) -> None:
        name = family.encode()
        columns = [name] * len(rows) if qualifiers is None else [name + b":" + one for one in qualifiers]
        by_stamp: dict[int, dict[bytes, list[Any]]] = {}
        for row, column, stamp in zip(rows.to_pylist(), columns, upto, strict=True):
            batch = by_stamp.setdefault(int(stamp), {})
            batch.setdefault(row, []).append(Mutation(isDelete=True, column=column))
        for stamp, batch in by_stamp.items():
            every = list(batch.items())
            for at in range(0, len(every), _BATCH_ROWS):
                self._mutate(table, dict(every[at : at + _BATCH_ROWS]), stamp)

    def _mutate(self, table: str, batch: dict[bytes, list[Any]], stamp: int) -> None:
        rows = [BatchMutation(row, mutations) for row, mutations in batch.items()]
        self._try(table, lambda client: client.mutateRowsTs(table.encode(), rows, stamp, {}))

    def put_if_absent(self, table: str, row: bytes, family: str, qualifier: bytes, value: bytes) -> None:
        column = family.encode() + b":" + qualifier
        put = Mutation(column=column, value=value)
        self._try(table, lambda client: client.checkAndPut(table.encode(), row, column, b"", put, {}))

    def get(self, table: str, rows: pa.BinaryArray, columns: Columns) -> KeyValues:
        named, wanted = _named(columns), rows.to_pylist()
        if columns.first is not None or columns.start is not None:  # only scans have filters
            return concat([part for row in wanted for part in self.scan(table, row, row + b"\0", columns)])
        parts = []
        for at in range(0, len(wanted), _BATCH_ROWS):
            batch = wanted[at : at + _BATCH_ROWS]

            def ask(client: Any, batch: list[bytes] = batch) -> Any:
                if columns.below is None:
                    return client.getRowsWithColumns(table.encode(), batch, named, {})
                return client.getRowsWithColumnsTs(table.encode(), batch, named, columns.below, {})

            found = {result.row: result for result in self._try(table, ask)}
            there = [found[row] for row in batch if row in found]
            parts.append(self._cells(table, there, columns))
        return concat([part for part in parts if len(part)])

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
        if limit == 0 or (stop is not None and start >= stop):
            return
        retry = self._retry(table)
        begin, end = start, stop  # what is left
        while True:
            retry.begin()
            try:
                for results in self._scan_rows(table, begin, end, columns, limit, reverse, keys_only):
                    cells = self._cells(table, results, columns)
                    retry.progressed()
                    begin, end = (begin, results[-1].row) if reverse else (results[-1].row + b"\0", end)
                    limit = None if limit is None else limit - len(results)
                    yield cells
                return
            except _Again as problem:
                retry.failed(problem)

    def _scan_rows(
        self,
        table: str,
        start: bytes,
        stop: bytes | None,
        columns: Columns,
        limit: int | None,
        reverse: bool,
        keys_only: bool,
    ) -> Iterator[list[Any]]:
        with self._client(table) as client:
            scanner = client.scannerOpenWithScan(table.encode(), _scan(start, stop, columns, reverse, keys_only), {})
            while limit is None or limit > 0:
                results = client.scannerGetList(scanner, _BATCH_ROWS if limit is None else min(limit, _BATCH_ROWS))
                if not results:
                    break
                limit = None if limit is None else limit - len(results)
                yield results
            client.scannerClose(scanner)

    def _cells(self, table: str, results: Sequence[Any], columns: Columns) -> KeyValues:
        found: _Found = []
        for result in results:
            named = sorted((name.partition(b":")[2], cell) for name, cell in result.columns.items())
            for qualifier, newest in named[: columns.first]:
                if columns.versions == 1 or newest.timestamp < columns.deep:
                    found.append((result.row, qualifier, newest.timestamp, newest.value))
                else:
                    found += self._versions(table, result.row, qualifier, columns)
        return _key_values(found, columns.family.encode())

    def _versions(self, table: str, row: bytes, qualifier: bytes, columns: Columns) -> _Found:
        name = columns.family.encode() + b":" + qualifier

        def ask(client: Any) -> Any:
            if columns.below is None:
                return client.getVer(table.encode(), row, name, columns.versions, {})
            return client.getVerTs(table.encode(), row, name, columns.below, columns.versions, {})

        return [(row, qualifier, cell.timestamp, cell.value) for cell in self._try(table, ask)]

    def within(self, timeout: float) -> ThriftCells:
        return ThriftCells("", 0, timeout, self._pool)

    def close(self) -> None:
        self._pool.close()

    def _try(self, table: str, ask: Callable[[Any], T]) -> T:
        def attempt() -> T:
            with self._client(table) as client:
                return ask(client)

        return self._retry(table).run(attempt)

    def _retry(self, table: str) -> Retry:
        deadline = Deadline(self._timeout, renewable=True)
        return Retry(f"hbase table {table!r}", on=(_Again,), deadline=deadline, backoff=Backoff(0.02, 1.0))

    @contextmanager
    def _client(self, table: str) -> Iterator[Any]:
        """Of a connection that nobody else uses meanwhile. What the gateway answers with leaves it as it was."""
        connection = None
        try:
            connection = self._pool.take(self._timeout)
            yield connection.client
        except GatewayError as problem:
            self._pool.give_back(connection)
            raise _fault(table, problem) from problem
        except (TException, OSError) as problem:
            if connection is not None:
                connection.close()
            raise _Again(f"hbase: the Thrift gateway at {self._pool}: {problem}") from problem
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        self._pool.give_back(connection)


class GatewayPool:
    """Connections to a Thrift gateway that wait for the next call, by how long they wait for an answer. Thread-safe."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._lock = threading.Lock()
        self._idle: dict[int, list[happybase.Connection]] = {}
        self._closed = False

    def __str__(self) -> str:
        return f"{self._address[0]}:{self._address[1]}"

    def take(self, timeout: float) -> happybase.Connection:
        milliseconds = int(timeout * 1000)
        with self._lock:
            idle = self._idle.get(milliseconds)
            if idle:
                return idle.pop()
        return happybase.Connection(*self._address, timeout=milliseconds)

    def give_back(self, connection: happybase.Connection) -> None:
        with self._lock:
            idle = self._idle.setdefault(connection.timeout, [])
            if not self._closed and len(idle) < _IDLE:
                idle.append(connection)
                return
        connection.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle = [connection for connections in self._idle.values() for connection in connections]
            self._idle.clear()
        for connection in idle:
            connection.close()


class _Again(StoreUnavailable):
    """The gateway, or what stands behind it, may answer later."""


def _fault(table: str, problem: GatewayError) -> StoreUnavailable:
    text = (problem.message or b"").decode(errors="replace") if isinstance(problem.message, bytes) else problem.message
    first = str(text).split("\n\tat ")[0][:_LINES]
    name = next((name for name in _FINAL if name in str(text)), "")
    if name:
        return Refused(f"hbase table {table!r}: {first}", name)
    return _Again(f"hbase table {table!r}: {first}")


def _named(columns: Columns) -> list[bytes]:
    """As Thrift names columns."""
    family = columns.family.encode()
    return [family + b":" + qualifier for qualifier in columns.qualifiers] or [family]


def _scan(start: bytes, stop: bytes | None, columns: Columns, reverse: bool, keys_only: bool) -> Any:
    filters = [b"KeyOnlyFilter()"] if keys_only else []
    if columns.first is not None:
        filters.append(b"ColumnPaginationFilter(%d, 0)" % columns.first)
    if columns.start is not None:
        filters.insert(0, b"ColumnRangeFilter('%s', true, '', false)" % columns.start.replace(b"'", b"''"))
    first, last = start, stop
    if reverse:
        # It would begin at `stop`, which is not wanted, and end behind `start`, which is. The rows are said by filters;
        # the bounds, a little wider, spare HBase the rest of the table.
        first, last = stop or b"", _below(start)
        if stop is not None:
            filters.append(b"RowFilter(<, 'binary:%s')" % stop.replace(b"'", b"''"))
        if start:
            filters.append(b"RowFilter(>=, 'binary:%s')" % start.replace(b"'", b"''"))
    scan = TScan(columns=_named(columns), caching=_BATCH_ROWS, reversed=reverse)
    if first:
        scan.startRow = first
    if last is not None:
        scan.stopRow = last
    if columns.below is not None:
        scan.timestamp = columns.below
    if filters:
        scan.filterString = b" AND ".join(filters)
    return scan


def _below(row: bytes) -> bytes | None:
    """A row below this one, as near as may be; None: there is none."""
    if not row:
        return None
    if row[-1] == 0:
        return row[:-1] or None
    return row[:-1] + bytes([row[-1] - 1]) + b"\xff" * 8


def _key_values(found: _Found, family: bytes) -> KeyValues:
    rows, qualifiers, stamps, values = zip(*found, strict=True) if found else ((), (), (), ())
    return KeyValues(
        pa.array(rows, pa.binary()),
        same(family, len(rows)),
        pa.array(qualifiers, pa.binary()),
        np.array(stamps, np.int64),
        np.full(len(rows), PUT, np.uint8),
        pa.array(values, pa.binary()),
    )
