"""Cells over HBase's RPC: rows go to the regions that have them, in one request per server, all servers at a time.

A batch that fails for some regions is repeated for those only. Requests are put together from bytes: a message object
per row would cost more than everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase import messages
from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.connection import CLIENT, Server, varint
from belvedere.backend.hbase.faults import Refused, RegionMoved, RemoteFault, ScannerLost, remote_fault
from belvedere.backend.hbase.keyvalues import (
    DELETE_COLUMN,
    DELETE_FAMILY,
    KeyValues,
    concat,
    decode,
    encode,
    same,
)
from belvedere.backend.hbase.pool import ConnectionPool
from belvedere.backend.hbase.regions import Region, Regions
from belvedere.errors import StoreUnavailable
from belvedere.retry import Backoff, Deadline, Retry

_PUT, _DELETE = 2, 3
_BATCH_ROWS = 10_000
_BATCH_BYTES = 8 << 20
"""What one request carries at most: a region server holds it in memory as a whole."""
_SCAN_BYTES = 4 << 20
_SCAN_ROWS = 50_000
_RAW = "_raw_"
_EQUAL = 2
_NOTHING = messages.Comparator(
    name="org.apache.hadoop.hbase.filter.BinaryComparator",
    serialized_comparator=messages.BinaryComparator(comparable={}).SerializeToString(),
)
"""A condition with an empty value holds where there is no cell."""
_COLUMN_RANGE = "org.apache.hadoop.hbase.filter.ColumnRangeFilter"
_KEYS_ONLY = messages.Filter(name="org.apache.hadoop.hbase.filter.KeyOnlyFilter", serialized_filter=b"\x08\0")


class RpcCells:
    """Thread-safe. `timeout`: seconds that a call may take with its repetitions."""

    def __init__(self, regions: Regions, pool: ConnectionPool, timeout: float = 60.0) -> None:
        self._regions, self._pool, self._timeout = regions, pool, timeout

    def put(self, table: str, cells: KeyValues) -> None:
        if len(cells):
            self._mutate(table, cells, _PUT)

    def delete(
        self, table: str, rows: pa.BinaryArray, family: str, qualifiers: Sequence[bytes] | None, upto: Sequence[int]
    ) -> None:
        if not len(rows):
            return
        kind = DELETE_FAMILY if qualifiers is None else DELETE_COLUMN
        count = len(rows)
        stamps, kinds = np.asarray(upto, np.int64), np.full(count, kind, np.uint8)
        names, none = same(family.encode(), count), same(b"", count)
        columns = none if qualifiers is None else pa.array(qualifiers, pa.binary())
        cells = KeyValues(rows, names, columns, stamps, kinds, none)
        self._mutate(table, cells, _DELETE)

    def _mutate(self, table: str, cells: KeyValues, kind: int) -> None:
        rows, firsts = _runs(cells.row)
        counts = np.diff(np.append(firsts, len(cells)))
        sizes = np.diff(np.append(np.asarray(_offsets(cells.value))[firsts], _offsets(cells.value)[-1]))
        for first, stop in _batches(sizes + 64 * counts):
            part, sizes_of = rows[first:stop], counts[first:stop]

            def request(at: np.ndarray, sizes_of: np.ndarray = sizes_of) -> bytes:
                return b"".join(_mutation(index, size, kind) for index, size in enumerate(sizes_of[at].tolist()))

            def block(at: np.ndarray, first: int = first, sizes_of: np.ndarray = sizes_of) -> pa.Buffer | bytes:
                begin = firsts[first + at]
                return encode(cells.take(_ranges(begin, sizes_of[at])))

            self._multi(table, part, request, block, None)

    def put_if_absent(self, table: str, row: bytes, family: str, qualifier: bytes, value: bytes) -> None:
        name = family.encode()
        put = messages.Mutation(row=row, mutate_type=_PUT)
        put.column_value.add(family=name).qualifier_value.add(qualifier=qualifier, value=value)
        absent = messages.Condition(row=row, family=name, qualifier=qualifier, compare_type=_EQUAL, comparator=_NOTHING)

        def attempt() -> None:
            try:
                region = self._regions.with_row(table, row)
                if region.server is None:
                    raise RegionMoved(f"hbase region {region.encoded} of table {table!r} is open nowhere")
                request = messages.MutateRequest(region=region.specifier(), mutation=put, condition=absent)
                with self._pool.connection(region.server, CLIENT, self._timeout) as connection:
                    connection.call("Mutate", request, messages.MutateResponse)
            except Refused:
                raise
            except StoreUnavailable as problem:
                self._regions.forget(table)
                raise _Again(str(problem)) from problem

        self._retry(table).run(attempt)

    def get(self, table: str, rows: pa.BinaryArray, columns: Columns) -> KeyValues:
        wanted = rows.to_pylist()
        tail = _get_tail(columns)
        found: list[tuple[np.ndarray, KeyValues]] = []

        for first in range(0, len(wanted), _BATCH_ROWS):
            part = wanted[first : first + _BATCH_ROWS]

            def request(at: np.ndarray, part: list[bytes] = part) -> bytes:
                return b"".join(_get_action(index, part[row], tail) for index, row in enumerate(at.tolist()))

            def answered(at: np.ndarray, results: Any, cells: KeyValues, first: int = first) -> None:
                counts = np.fromiter((one.result.associated_cell_count for one in results), np.int64, len(results))
                order = np.fromiter((one.index for one in results), np.int64, len(results))
                found.append((first + np.repeat(at[order], counts), cells))

            self._multi(table, part, request, None, answered)
        if len(found) == 1 and (np.diff(found[0][0]) >= 0).all():
            return found[0][1]
        if not found:
            return concat([])
        position = np.concatenate([at for at, _ in found])
        return concat([cells for _, cells in found]).take(np.argsort(position, kind="stable"))

    def _multi(
        self,
        table: str,
        rows: Sequence[bytes],
        request: Callable[[np.ndarray], bytes],
        block: Callable[[np.ndarray], pa.Buffer | bytes] | None,
        answered: Callable[[np.ndarray, Any, KeyValues], None] | None,
    ) -> None:
        """Send `request` for the rows at some positions (and the cells of `block`) to the regions that have them, until
        all regions have answered."""
        todo = np.arange(len(rows))

        def attempt() -> None:
            nonlocal todo
            remaining, error = self._attempt(table, rows, todo, request, block, answered)
            todo = remaining
            if error is not None:
                raise error

        self._retry(table).run(attempt)

    def _retry(self, table: str) -> Retry:
        deadline, backoff = Deadline(self._timeout, renewable=True), Backoff(0.02, 1.0)
        return Retry(f"hbase table {table!r}", on=(_Again,), deadline=deadline, backoff=backoff)

    def _attempt(
        self,
        table: str,
        rows: Sequence[bytes],
        todo: np.ndarray,
        request: Callable[[np.ndarray], bytes],
        block: Callable[[np.ndarray], pa.Buffer | bytes] | None,
        answered: Callable[[np.ndarray, Any, KeyValues], None] | None,
    ) -> tuple[np.ndarray, _Again | None]:
        """One try of what is to be done; returns what is still to be done after it, and why."""
        failed: list[np.ndarray] = []
        problem: Exception | None = None
        with ExitStack() as stack:
            calls = []
            for server, groups in self._by_server(table, rows, todo).items():
                everything = np.concatenate([at for _, at in groups])
                try:
                    connection = stack.enter_context(self._pool.connection(server, CLIENT, self._timeout))
                    body = b"".join(_region_action(region, request(at)) for region, at in groups)
                    cells = b"" if block is None else memoryview(block(everything))
                    calls.append((connection, connection.send("Multi", body, cells), groups, everything, server))
                except StoreUnavailable as error:
                    failed.append(everything)
                    problem = self._lost(table, server, error)
            for connection, call, groups, everything, server in calls:
                try:
                    answer, cells = connection.receive(call, messages.MultiResponse)
                except StoreUnavailable as error:
                    failed.append(everything)
                    problem = self._lost(table, server, error)
                    continue
                wrong = self._take(table, answer, decode(cells), groups, answered)
                failed += [at for at, _ in wrong]
                problem = wrong[-1][1] if wrong else problem
        if problem is None:
            return np.empty(0, np.int64), None
        if isinstance(problem, Refused):
            raise problem
        self._regions.forget(table)
        return np.sort(np.concatenate(failed)), _Again(str(problem))

    def _by_server(
        self, table: str, rows: Sequence[bytes], todo: np.ndarray
    ) -> dict[Server, list[tuple[Region, np.ndarray]]]:
        wanted = rows if len(todo) == len(rows) else [rows[at] for at in todo.tolist()]
        try:
            grouped = self._regions.grouped(table, wanted)
            found: dict[Server, list[tuple[Region, np.ndarray]]] = {}
            for region, at in grouped:
                if region.server is None:
                    raise RegionMoved(f"hbase region {region.encoded} of table {table!r} is open nowhere")
                found.setdefault(region.server, []).append((region, todo[at]))
            return found
        except StoreUnavailable as problem:
            self._regions.forget(table)
            raise _Again(str(problem)) from problem

    def _lost(self, table: str, server: Server, error: StoreUnavailable) -> Exception:
        """A whole call failed: the connection is of no use if that was not an answer."""
        if not isinstance(error, RemoteFault):
            self._pool.forget(server)
        return error

    def _take(
        self,
        table: str,
        answer: Any,
        cells: KeyValues,
        groups: list[tuple[Region, np.ndarray]],
        answered: Callable[[np.ndarray, Any, KeyValues], None] | None,
    ) -> list[tuple[np.ndarray, RemoteFault]]:
        """Give on what regions answered; returns the rows that failed, with the reasons."""
        failed: list[tuple[np.ndarray, RemoteFault]] = []
        begin = 0
        for (region, at), result in zip(groups, answer.region_results, strict=True):
            if result.HasField("exception"):
                failed.append((at, _fault(region, result.exception)))
                continue
            good = [one for one in result.results if not one.HasField("exception")]
            if len(good) < len(result.results):
                bad = [one for one in result.results if one.HasField("exception")]
                failed.append((at[[one.index for one in bad]], _fault(region, bad[0].exception)))
            if answered is not None:
                count = sum(one.result.associated_cell_count for one in good)
                answered(at, good, cells.take(np.arange(begin, begin + count)) if len(groups) > 1 else cells)
                begin += count
        return failed

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
        raw: bool = False,
    ) -> Iterator[KeyValues]:
        """`raw`: everything that is stored, with deleted cells and the markers that delete them."""
        place = _Place((stop or b"") if reverse else start, not reverse, limit)
        if limit == 0 or (stop is not None and start >= stop):
            return
        retry = self._retry(table)
        while not place.done:
            retry.begin()
            try:
                for cells in self._scan_region(table, start, stop, columns, place, reverse, keys_only, raw):
                    retry.progressed()
                    yield cells
            except Refused:
                raise
            except StoreUnavailable as problem:
                if not isinstance(problem, ScannerLost):
                    self._regions.forget(table)
                retry.failed(_Again(str(problem)))

    def _scan_region(
        self,
        table: str,
        start: bytes,
        stop: bytes | None,
        columns: Columns,
        place: _Place,
        reverse: bool,
        keys_only: bool,
        raw: bool,
    ) -> Iterator[KeyValues]:
        """The next region, from where the scan stands."""
        regions = self._regions
        if reverse and not place.included and not place.seen:
            region = regions.before_row(table, place.row)
        else:
            region = regions.with_row(table, place.row)
        if region.server is None:
            raise RegionMoved(f"hbase region {region.encoded} of table {table!r} is open nowhere")
        first, last = (place.row, start) if reverse else (place.row, stop or b"")
        scan = messages.Scan(
            start_row=first,
            stop_row=last,
            include_start_row=place.included,
            include_stop_row=reverse,
            reversed=reverse,
            max_versions=columns.versions,
            caching=_SCAN_ROWS,
            max_result_size=_SCAN_BYTES,
            cache_blocks=False,
        )
        _select(scan, columns)
        if keys_only:
            scan.filter.CopyFrom(_KEYS_ONLY)
        if raw:
            scan.attribute.add(name=_RAW, value=b"\xff")
        with self._pool.connection(region.server, CLIENT, self._timeout) as connection:
            request = messages.ScanRequest(region=region.specifier(), scan=scan, number_of_rows=place.rows())
            more, scanner = True, 0
            while more:
                answer, block = connection.call("Scan", request, messages.ScanResponse)
                scanner = answer.scanner_id or scanner
                cells = decode(block)
                if len(cells):
                    place.passed(cells.row[len(cells) - 1].as_py(), len(answer.cells_per_result))
                more = answer.more_results_in_region and answer.more_results and not place.is_full
                request = messages.ScanRequest(scanner_id=scanner, number_of_rows=place.rows())
                if len(cells):
                    yield cells
            if scanner and answer.more_results_in_region:
                closing = messages.ScanRequest(scanner_id=scanner, close_scanner=True, number_of_rows=0)
                connection.call("Scan", closing, messages.ScanResponse)
        place.leave(region, start, stop, reverse)

    def within(self, timeout: float) -> RpcCells:
        return RpcCells(self._regions, self._pool, timeout)

    def close(self) -> None:
        """The connections belong to the pool."""


class _Again(StoreUnavailable):
    """Some regions have moved, or a server is gone; what was not done is tried again."""


class _Place:
    """Where a scan stands: rows that it has passed do not come again, whatever breaks."""

    def __init__(self, row: bytes, included: bool, limit: int | None) -> None:
        self.row, self.included, self.left = row, included, limit
        self.seen = self.done = False

    def rows(self) -> int:
        return _SCAN_ROWS if self.left is None else min(_SCAN_ROWS, self.left)

    @property
    def is_full(self) -> bool:
        return self.left == 0

    def passed(self, row: bytes, rows: int) -> None:
        self.row, self.included, self.seen = row, False, True
        if self.left is not None:
            self.left -= rows

    def leave(self, region: Region, start: bytes, stop: bytes | None, reverse: bool) -> None:
        """The region has nothing more."""
        self.seen = False
        if reverse:
            self.row, self.included = region.start, False
            self.done = self.is_full or region.start <= start
        else:
            self.row, self.included = region.stop, True
            self.done = self.is_full or not region.stop or (stop is not None and region.stop >= stop)


def _fault(region: Region, exception: Any) -> RemoteFault:
    where = f"region {region.encoded} of table {region.table!r}"
    fault = remote_fault(where, exception.name, exception.value.decode(errors="replace"), False)
    return _refused(fault) if fault.name in _FINAL else fault


_FINAL = ("NoSuchColumnFamilyException", "DoNotRetryIOException", "TableNotFoundException", "AccessDeniedException")


def _refused(fault: RemoteFault) -> Refused:
    return Refused(str(fault), fault.name)


def _select(message: Any, columns: Columns) -> None:
    message.column.add(family=columns.family.encode(), qualifier=columns.qualifiers)
    if columns.below is not None:
        message.time_range.CopyFrom(messages.TimeRange(first=0, stop=columns.below))
    if columns.first is not None:
        message.store_limit = columns.first
    if columns.start is not None:
        filtered = messages.ColumnRange(first=columns.start, first_inclusive=True)
        message.filter.CopyFrom(messages.Filter(name=_COLUMN_RANGE, serialized_filter=filtered.SerializeToString()))


def _get_tail(columns: Columns) -> bytes:
    """A `Get` without its row, which every row of a batch shares."""
    get = messages.Get(max_versions=columns.versions)
    _select(get, columns)
    tail: bytes = get.SerializeToString()
    return tail


def _get_action(index: int, row: bytes, tail: bytes) -> bytes:
    """RegionAction.action (3) of Action.index (1) and Action.get (3) of Get.row (1) and the rest."""
    get = b"\n" + varint(len(row)) + row + tail
    action = b"\x08" + varint(index) + b"\x1a" + varint(len(get)) + get
    return b"\x1a" + varint(len(action)) + action


def _mutation(index: int, cells: int, kind: int) -> bytes:
    """RegionAction.action (3) of Action.index (1) and Action.mutation (2) of its kind (2) and number of cells (8): all
    else is in the cells."""
    mutation = b"\x10" + varint(kind) + b"\x40" + varint(cells)
    action = b"\x08" + varint(index) + b"\x12" + varint(len(mutation)) + mutation
    return b"\x1a" + varint(len(action)) + action


def _region_action(region: Region, actions: bytes) -> bytes:
    """MultiRequest.region_action (1) of the region (1) and its actions."""
    named: bytes = region.specifier().SerializeToString()
    body = b"\n" + varint(len(named)) + named + actions
    return b"\n" + varint(len(body)) + body


def _runs(rows: pa.BinaryArray) -> tuple[list[bytes], np.ndarray]:
    """Rows, each once, and where its cells begin: cells of one row stand together."""
    if len(rows) < 2:
        return rows.to_pylist(), np.zeros(len(rows), np.int64)
    fresh = np.asarray(pc.not_equal(rows.slice(1), rows.slice(0, len(rows) - 1)))
    firsts = np.flatnonzero(np.concatenate([[True], fresh]))
    return rows.take(pa.array(firsts)).to_pylist(), firsts


def _offsets(column: pa.BinaryArray) -> np.ndarray:
    every = np.frombuffer(column.buffers()[1], np.int32)
    return every[column.offset : column.offset + len(column) + 1].astype(np.int64)


def _batches(sizes: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of rows that fit into a request."""
    first = 0
    while first < len(sizes):
        total = np.cumsum(sizes[first : first + _BATCH_ROWS])
        stop = first + max(1, int(np.searchsorted(total, _BATCH_BYTES, side="right")))
        yield first, stop
        first = stop


def _ranges(begin: np.ndarray, count: np.ndarray) -> np.ndarray:
    """All positions of the ranges, one after the other."""
    if (count == 1).all():
        return begin
    stop = np.cumsum(count)
    return np.repeat(begin - (stop - count), count) + np.arange(stop[-1] if len(stop) else 0)
