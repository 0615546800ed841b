"""Write-ahead log entries as region servers replicate them, decoded into columns: no Python object per cell or entry.

A request is a protobuf message with the keys of its entries (region, table, sequence id, number of cells) and a block
with their cells. Entries of all regions of one table are decoded together, sorted by region, so that the run of each
region is a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from belvedere.backend.hbase.cell_values import read_columns
from belvedere.backend.hbase.row_keys import KeyPart, RowKeyReader
from belvedere.engine.delta import Changes
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import wal as k
from belvedere.errors import DataError
from belvedere.model.change_codec import WrittenRow
from belvedere.model.chunks import build
from belvedere.sql.catalog import TableDef
from belvedere.sql.origin import StoredColumn
from belvedere.types import Type


@dataclass(frozen=True, eq=False)
class EntryRun:
    """Entries of one region, in their order. `ends`: rows up to the end of each. `written`: when the last of them was
    written (milliseconds, the region server's clock). `unreadable`: row keys that the table's mapping cannot read, of
    all runs of the request in the first one of the table."""

    region: str
    table: str
    seqs: np.ndarray
    ends: np.ndarray
    rows: WrittenRow
    written: int
    unreadable: Sequence[bytes] = ()

    def payload(self) -> bytes:
        """As a chunk for INPUT."""
        return build(self.table, self.seqs.tolist(), np.diff(self.ends, prepend=0).tolist(), self.rows)

    def after(self, seq: int) -> EntryRun:
        """Without the entries up to `seq`."""
        first = int(np.searchsorted(self.seqs, seq, "right"))
        if not first:
            return self
        start = int(self.ends[first - 1])
        return EntryRun(
            self.region, self.table, self.seqs[first:], self.ends[first:] - start,
            self.rows.slice(start, len(self.rows.changes)), self.written, self.unreadable,
        )  # fmt: skip


def key_reader(table: TableDef) -> RowKeyReader:
    assert table.origin is not None
    columns, stored = table.columns, table.origin.columns
    parts = [KeyPart(columns[i].name, columns[i].type, stored[i]) for i in table.key_positions]
    return RowKeyReader(table.origin, parts)


class CellDecoder:
    """Cells of one base table as changes of its columns; cells of columns that it does not map are left out.
    `unreadable` hears of row keys that cannot be read; what it raises ends the decoding."""

    def __init__(self, table: TableDef, unreadable: Callable[[RowKeyReader, list[bytes]], None] | None = None) -> None:
        assert table.origin is not None
        self.table, self._unreadable = table, unreadable
        self.keys = key_reader(table)
        keys, stored = table.key_positions, table.origin.columns
        self._names_of_key = [(table.columns[i].name, table.columns[i].type) for i in keys]
        # Several columns may be members of one cell.
        self._cells: dict[tuple[str, str], list[tuple[str, StoredColumn, Type]]] = {}
        for place, column in zip(stored, table.columns, strict=True):
            if place.family:
                mine = self._cells.setdefault((place.family, place.qualifier), [])
                mine.append((column.name, place, column.type))
        texts = [text.encode() for cell in self._cells for text in cell]
        self._names = np.frombuffer(b"".join(texts) or b"\0", np.uint8).copy()
        self._starts = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        families = {name: i for i, name in enumerate(dict.fromkeys(family for family, _ in self._cells))}
        self._families = np.array([families[family] for family, _ in self._cells], np.int64)

    def decode(
        self, data: np.ndarray, begins: np.ndarray, ends: np.ndarray, counts: np.ndarray
    ) -> tuple[WrittenRow, np.ndarray, list[bytes]]:
        """Entries that lie at these places of a block: their changes, how many there are up to the end of each entry,
        and row keys that cannot be read, whose changes are left out."""
        total = int(counts.sum())
        cells, used = np.empty((total, k.FIELDS), np.int64), np.empty(len(counts), np.int64)
        bad = k.read_cells(data, begins, ends, counts, self._names, self._starts, cells, used)
        if bad >= 0:
            raise DataError(
                f"table {self.table.name!r}: the parts of a cell at byte {bad} of a block do not fit into it"
            )
        columns = len(self._cells)
        ts, first, stops = np.empty(total, np.int64), np.empty(total, np.int64), np.empty(len(counts), np.int64)
        kind = np.empty(total, np.uint8)
        cell_of, present = np.full((columns, total), -1, np.int64), np.zeros((columns, total), np.uint8)
        seen = np.full(columns, -1, np.int64)
        count = k.group_cells(data, cells, used, self._families, seen, stops, ts, kind, first, cell_of, present)
        if count < 0:
            found = int(cells[-1 - count, k.TYPE])
            raise DataError(f"table {self.table.name!r}: a cell of type {found}, which this version does not know")
        rows, unreadable = self._rows(data, cells, ts[:count], kind[:count], first[:count], cell_of, present)
        if unreadable is None:
            return rows, stops, []
        index = np.flatnonzero(~unreadable)
        kept = np.concatenate([[0], np.cumsum(~unreadable)])
        at, size = (
            cells[first[:count][unreadable], k.ROW].tolist(),
            cells[first[:count][unreadable], k.ROW_SIZE].tolist(),
        )
        bad_keys = list(dict.fromkeys(data[a : a + n].tobytes() for a, n in zip(at, size, strict=True)))
        if self._unreadable is not None:
            self._unreadable(self.keys, bad_keys)
        return rows.take(index), kept[stops], bad_keys

    def _rows(
        self,
        data: np.ndarray,
        cells: np.ndarray,
        ts: np.ndarray,
        kind: np.ndarray,
        first: np.ndarray,
        cell_of: np.ndarray,
        present: np.ndarray,
    ) -> tuple[WrittenRow, np.ndarray | None]:
        """The changes, and a mask of those whose row key cannot be read, if there are any."""
        count = len(ts)
        columns, sound = self.keys.read(data, cells[first, k.ROW], cells[first, k.ROW_SIZE])
        names = list(self._names_of_key)
        masks: list[np.ndarray | None] = [None] * len(columns)
        for i, mine in enumerate(self._cells.values()):
            mask = present[i, :count].view(np.bool_)
            if not mask.any():
                continue
            of = cell_of[i, :count]
            at, size = cells[of, k.VALUE], cells[of, k.VALUE_SIZE]
            if not mask.all() or (of < 0).any():
                at = np.where(of < 0, -1, at)
            columns += read_columns(data, at, size, [(stored, type) for _, stored, type in mine])
            names += [(name, type) for name, _, type in mine]
            masks += [None if mask.all() else mask] * len(mine)
        changes = Changes(tuple(columns), tuple(masks), None, ts, kind if kind.any() else None)
        return WrittenRow(tuple(names), changes), None if sound.all() else ~sound


def read_request(
    message: bytes | memoryview, block: bytes | memoryview, decoder: Callable[[str], CellDecoder | None]
) -> list[EntryRun]:
    """The entries of a request, a run for each region. `decoder`: of a table by its name in HBase; entries of tables
    that have none are left out."""
    entries = _entries(message)
    if not len(entries):
        return []
    data = plain(np.frombuffer(block, np.uint8)) if len(block) else np.zeros(1, np.uint8)
    keys = plain(np.frombuffer(message, np.uint8))
    counts, begins, ends = (
        np.ascontiguousarray(entries[:, k.CELLS]),
        *(np.empty(len(entries), np.int64) for _ in "be"),
    )
    if (counts < 0).any():
        raise DataError("a log entry has a negative number of cells")
    stop = k.measure_entries(data, 0, len(block), counts, begins, ends)
    if stop != len(block):
        raise DataError(
            f"the cells of {len(entries)} log entries do not fit their block of {len(block)} bytes: they end at byte"
            f" {stop if stop >= 0 else -1 - stop}"
        )
    number, firsts = np.empty(len(entries), np.int64), np.empty(len(entries), np.int64)
    regions = k.number_regions(keys, entries, number, firsts)
    of_table: dict[str, list[int]] = {}
    for region in range(regions):
        of_table.setdefault(_text(keys, entries[firsts[region]], k.TABLE), []).append(region)
    order = np.argsort(number, kind="stable")
    bounds = np.searchsorted(number[order], np.arange(regions + 1))
    runs = []
    for table, members in of_table.items():
        reader = decoder(table)
        if reader is None:
            continue
        mine = [order[bounds[region] : bounds[region + 1]] for region in members]
        index = mine[0] if len(mine) == 1 else np.concatenate(mine)
        rows, stops, unreadable = reader.decode(data, begins[index], ends[index], counts[index])
        at = 0
        for region, part in zip(members, mine, strict=True):
            start, stop = int(stops[at - 1]) if at else 0, int(stops[at + len(part) - 1])
            name = _text(keys, entries[firsts[region]], k.REGION)
            own = entries[part]
            ends, slice = stops[at : at + len(part)] - start, rows.slice(start, stop)
            written = int(own[-1, k.WRITTEN])
            runs.append(EntryRun(name, reader.table.name, own[:, k.SEQ], ends, slice, written, unreadable))
            at, unreadable = at + len(part), []
    return runs


def _entries(message: bytes | memoryview) -> np.ndarray:
    keys = plain(np.frombuffer(message, np.uint8)) if len(message) else np.zeros(1, np.uint8)
    room = max(16, len(message) // 128)  # an entry with the names of its region and its table is seldom smaller
    while True:
        out = np.empty((room, k.ENTRY_FIELDS), np.int64)
        count = k.read_entries(keys, 0, len(message), out)
        if count == -1:
            raise DataError(f"a replication request of {len(message)} bytes whose list of log entries cannot be read")
        if count >= 0:
            break
        room *= 4
    entries = out[:count]
    if entries[:, k.INLINE].any():
        raise DataError("log entries that hold their cells in the message: only cells in blocks are understood")
    return entries


def _text(data: np.ndarray, entry: np.ndarray, field: int) -> str:
    at, size = entry[field : field + 2].tolist()
    return bytes(data[at : at + size]).decode()
