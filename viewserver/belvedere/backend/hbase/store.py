"""A pool's store in a namespace of an unmodified HBase: documents, INPUT, state and views, put together."""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend import seam
from belvedere.backend.hbase.admin import PoolAdmin
from belvedere.backend.hbase.bounds import Bounds, KnownTable, StoredBounds, StoredTables
from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.change_log import ChangeLog, Ended
from belvedere.backend.hbase.descriptors import TableName
from belvedere.backend.hbase.documents import CellDocuments
from belvedere.backend.hbase.faults import Refused
from belvedere.backend.hbase.input import HBaseInput
from belvedere.backend.hbase.keyvalues import same
from belvedere.backend.hbase.layout import (
    BUCKETS,
    INPUT,
    KEYS,
    LIVENESS,
    META,
    SLOT_BUCKETS,
    STATE,
    VERSIONS,
    pool_tables,
    state_ranges,
    view_descriptor,
    view_table_name,
)
from belvedere.backend.hbase.packing import Content
from belvedere.backend.hbase.versioned import Places, VersionedRows, WriteBatch
from belvedere.backend.seam import (
    InputSize,
    RowShape,
    SourceInfo,
    Sources,
    TableWrite,
    check_horizon,
    check_write,
    fitting,
    other_shape,
    read_all,
    without_keys,
    write_groups,
)
from belvedere.errors import CatalogError
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId

HISTORY_S = 3600
_PROBE_IDS, _READ_IDS = 256, 20_000
"""What one answer asks HBase for: a few first, to see how long they are, then the rest."""
_ONLY_ROW = b"\0"
_SAMPLE = 2000
"""Rows of a table that are counted before the rest is taken to be like them."""


class HBaseStore:
    """A `Store`. Thread-safe. Reads that would have to see past `versions` newer versions of a row are refused, but for
    those of views within their history. `sources`: what its pool follows. `history_s`: so long previous images of views
    stay. `compact`: has HBase rewrite a table without what was removed.
    `closing`: called when it is closed."""

    versions = VERSIONS - 1

    def __init__(
        self,
        cells: Cells,
        admin: PoolAdmin,
        *,
        history_s: int = HISTORY_S,
        sources: Sources | None = None,
        compact: Callable[[str], None] = lambda table: None,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._closing = closing
        self._admin, self._history_s, self._sources, self._compact = admin, history_s, sources, compact
        meta = self._name(META)
        self._tables = StoredTables(CellDocuments(cells, meta, b"t/"))
        self._bounds = StoredBounds(cells, meta)
        self._lock = threading.Lock()
        self._made: set[TableName] = set()
        self._use(cells)

    def _use(self, cells: Cells) -> None:
        self._cells = cells
        meta, input = self._name(META), self._name(INPUT)
        self._documents = CellDocuments(cells, meta, b"d/")
        self._own = CellDocuments(cells, meta, b"i/")
        self._log = ChangeLog(cells, meta)
        self._input = HBaseInput(cells, input, partial(self._compact, input))
        self._rows = VersionedRows(cells, Places(self._name(STATE), self._name(KEYS)), self._history_s)

    def within(self, timeout: float, stream: float | None = None) -> HBaseStore:
        """The same for calls that may take so many seconds; of a stream, each part."""
        other = copy.copy(self)  # what is known of tables and bounds is shared
        other._use(self._cells.within(timeout))
        return other

    def _name(self, table: str) -> str:
        return str(TableName(self._admin.namespace, table))

    def open(self) -> None:
        """Find the pool's tables, or make them."""
        try:
            self.identity()
        except (CatalogError, Refused):
            self.prepare()
        else:
            self._admin.create_namespace()  # or find out that it is another pool's

    def prepare(self) -> None:
        """The namespace and its tables. No effect if they are there."""
        self._admin.create_namespace()
        there = set(self._admin.tables(self._admin.namespace))
        made = pool_tables(self._admin.namespace, self._history_s)
        missing = [one for one in made if one[0].name not in there]
        with ThreadPoolExecutor(len(missing) or 1) as threads:  # each takes HBase half a second
            list(threads.map(lambda one: self._admin.create_table(*one), missing))

    def identity(self) -> str:
        return self._own.put_if_absent("identity", f"hbase {secrets.token_hex(16)}".encode()).decode()

    # --- documents, INPUT, sources

    def put_document(self, name: str, data: bytes) -> None:
        self._documents.put(name, data)

    def get_document(self, name: str) -> bytes | None:
        return self._documents.get(name)

    def list_documents(self, prefix: str) -> list[str]:
        return self._documents.list(prefix)

    def remove_documents(self, names: Sequence[str]) -> None:
        self._documents.remove(names)

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        self._input.put(chunks)

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        return self._input.chunks(limit)

    def input_size(self) -> InputSize:
        return self._input.size()

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return self._input.get(ids)

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        self._input.remove(ids)

    def sources(self) -> list[SourceInfo]:
        return [] if self._sources is None else self._sources.sources()

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        if self._sources is not None:
            self._sources.forget_sources(sources)

    # --- writes

    @property
    def previous_images(self) -> bool:
        return True

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        for write in writes:
            check_write(write, True)
            self._check_shape(write)
        if epoch <= self._bounds.read(fresh=False).fence:
            return
        for group in write_groups(writes):
            touched, gone, batch = [], [], WriteBatch()
            for write in group:
                table = self._tables.enter(write.table, write.keys is not None, write.shape, write.logged)
                write = _with_row_keys(table, write)
                if table.shape is None:
                    self._rows.write_state(batch, table, epoch, write)
                else:
                    self._rows.write_view(batch, table, self._place(table), epoch, write)
                if write.logged:
                    touched.append((table.tag, write.ids))
                if write.values.null_count:
                    gone.append((table.tag, _ended(write)))
            self._rows.put(batch)
            self._log.write(epoch, touched, gone)

    def _check_shape(self, write: TableWrite) -> None:
        known = self._tables.get(write.table) if write.shape is not None else None
        if known is not None and known.shape is not None and write.shape is not None and known.shape != write.shape:
            raise other_shape(write.table, known.shape, write.shape)

    def _place(self, table: KnownTable) -> str:
        """The table of a view, made when it is first needed."""
        name = view_table_name(self._admin.namespace, table.name)
        with self._lock:
            if name not in self._made:
                if self._admin.descriptor(name) is None:
                    self._admin.create_table(view_descriptor(name, self._history_s))
                self._made.add(name)
        return str(name)

    # --- reads

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return read_all(self, table, ids, below)

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        known = self._tables.get(table)
        if known is None:
            self._check_horizon(table, below, fresh=True)
            return pa.nulls(len(ids), pa.binary())
        first = self._read(known, ids[:_PROBE_IDS], below)
        rest = ids[len(first) : _READ_IDS]
        if not len(rest) or first.nbytes * len(ids) > seam.READ_BYTES * len(first):
            return first.slice(0, fitting(_sizes(first)))
        whole = pa.concat_arrays([first, self._read(known, rest, below)])
        return whole.slice(0, fitting(_sizes(whole)))

    def _read(self, known: KnownTable, ids: np.ndarray, below: int) -> pa.BinaryArray:
        if known.shape is not None:
            values = self._rows.read_view(known, self._place(known), ids, below)
        else:
            kinds, bodies = self._rows.read_state(known, ids, below)
            values = bodies.take(pa.array(np.arange(len(kinds)), mask=kinds <= Content.GONE))
        # A row that was found is that row, whatever was collected meanwhile; one that was not may have been collected.
        self._check_horizon(known.name, below, fresh=bool(values.null_count))
        return values

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        known, found = self._tables.get(table), np.zeros(len(ids), np.int64)
        for at in range(0, len(ids) if known is not None else 0, _READ_IDS):
            assert known is not None
            place = self._place(known) if known.shape is not None else ""
            found[at : at + _READ_IDS] = self._rows.written_at(known, place, ids[at : at + _READ_IDS], below)
        self._check_horizon(table, below, fresh=True)
        return found

    def _check_horizon(self, table: str, below: int, *, fresh: bool) -> None:
        check_horizon(table, below, self._bounds.read(fresh=fresh).horizon)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        self._check_horizon(table, below, fresh=False)
        known = self._tables.get(table)
        if known is not None:
            pieces = (
                self._scan_view(known, first, stop, below, only)
                if known.shape is not None
                else ((ids, bodies) for ids, _, bodies in self._rows.scan_state(known, first, stop, below, only))
            )
            for ids, values in pieces:
                self._check_horizon(table, below, fresh=False)
                yield ids, values
        self._check_horizon(table, below, fresh=True)

    def _scan_view(
        self, known: KnownTable, first: int, stop: int, below: int, only: np.ndarray | None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        place = self._place(known)
        for ids, keys in self._rows.scan_view_keys(known, first, stop, only):
            _, values = self._rows.view_rows(known, place, keys, None, below)
            there = np.flatnonzero(np.asarray(pc.is_valid(values)))
            if len(there):
                yield ids[there], values.take(pa.array(there))

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        self._check_horizon(table, below, fresh=False)
        known = self._tables.get(table)
        if known is not None:
            if not known.keyed:
                raise without_keys(table)
            left = wanted.limit
            for ids, values in self._ranged(known, wanted, below) if left != 0 else ():
                self._check_horizon(table, below, fresh=False)
                taken = len(ids) if left is None else min(left, len(ids))
                yield ids[:taken], values.slice(0, taken)
                left = None if left is None else left - taken
                if left == 0:
                    break
        self._check_horizon(table, below, fresh=True)

    def _ranged(self, known: KnownTable, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        if known.shape is not None:
            yield from self._rows.scan_view(known, self._place(known), wanted, below)
            return
        for ids in self._rows.scan_keys(known, wanted):
            kinds, bodies = self._rows.read_state(known, ids, below)
            seen = np.flatnonzero(kinds == Content.ROW)
            if len(seen):
                yield ids[seen], bodies.take(pa.array(seen))

    def foreign_cells(self, table: str, most: int) -> list[str]:
        known = self._tables.get(table)
        if known is None or known.shape is None:
            return []
        return list(islice(self._rows.foreign_cells(known, self._place(known)), most))

    def shape(self, table: str) -> RowShape | None:
        known = self._tables.get(table)
        return None if known is None else known.shape

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        known = self._tables.get(table)
        return iter(()) if known is None else self._log.changed(known.tag, after, upto)

    # --- collection

    def collect(self, horizon: int, tombstones: int) -> None:
        """HBase itself drops versions beyond the fourth; here go tombstones with what they hide, and the log."""
        before = self._bounds.read()
        self._bounds.raise_to(Bounds(horizon, min(horizon, tombstones)))
        now = self._bounds.read()
        tables = {table.tag: table for table in self._tables.all()}
        for tag, ended in self._log.gone(before.swept, now.fence):
            table = tables.get(tag)
            if table is None:
                continue  # dropped
            if table.shape is None:
                self._rows.remove_state(table, ended, now.horizon, now.fence)
            else:
                self._rows.remove_view(table, self._place(table), ended, now.horizon, now.fence)
        self._log.forget(list(tables), before.collected, now.horizon, before.swept, now.fence)
        self._bounds.raise_to(Bounds(0, 0, now.horizon, now.fence))

    def collected(self) -> int:
        return self._bounds.read().collected

    def drop_tables(self, tables: Sequence[str]) -> None:
        """Out of the list first: whoever writes a table of this name from then on writes another one."""
        known = [table for name in tables if (table := self._tables.get(name)) is not None]
        for table in known:
            name = view_table_name(self._admin.namespace, table.name)
            if table.shape is not None:
                self._admin.drop_table(name)
                with self._lock:
                    self._made.discard(name)
        self._tables.remove([table.name for table in known])
        for table in known:
            self._rows.drop_state(table)
            self._log.drop(table.tag)

    def tables(self) -> list[str]:
        return [table.name for table in self._tables.all()]

    def usage(self) -> Mapping[str, int]:
        """Rows, of big tables a multiple of what is in some slots: ids are spread evenly."""
        return {table.name: self._count(table) for table in self._tables.all()}

    def _count(self, table: KnownTable) -> int:
        rows = 0
        columns = Columns(table.family, (LIVENESS,))
        for slot, (start, stop) in enumerate(state_ranges(table.tag, 0, BUCKETS), 1):
            scan = self._cells.scan(self._name(STATE), start, stop, columns, keys_only=True)
            rows += sum(len(piece) for piece in scan)
            if rows >= _SAMPLE:
                return rows * (BUCKETS // SLOT_BUCKETS) // slot
        return rows

    def close(self) -> None:
        self._cells.close()
        self._closing()


def _sizes(values: pa.BinaryArray) -> list[int]:
    sizes: list[int] = np.asarray(pc.binary_length(values).fill_null(0)).tolist()
    return sizes


def _with_row_keys(table: KnownTable, write: TableWrite) -> TableWrite:
    """A view without a key has one row, and HBase has none whose key is empty."""
    if table.shape is None or table.shape.key or write.keys is None:
        return write
    return replace(write, keys=same(_ONLY_ROW, len(write.keys)))


def _ended(write: TableWrite) -> Ended:
    at = np.flatnonzero(~np.asarray(pc.is_valid(write.values)))
    return Ended(write.ids[at], None if write.keys is None else write.keys.take(pa.array(at)))
