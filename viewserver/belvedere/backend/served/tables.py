"""The versioned tables of the served store: recent rows and the tree behind them, as one."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend import seam
from belvedere.backend.seam import (
    RowShape,
    TableWrite,
    check_horizon,
    check_write,
    fitting,
    without_keys,
    write_groups,
)
from belvedere.backend.served import by_key, keys, memtable, versions
from belvedere.backend.served.compaction import Compactor
from belvedere.backend.served.environment import Environment, Txn
from belvedere.backend.served.memtable import NONE, MemtableRows, RecentVersions
from belvedere.errors import DataError
from belvedere.model.ranges import KeyRange

_BUCKETS = 16_384
_EPOCHS = 2**63 - 1
_READ_IDS = 1 << 16
_FIRST_IDS = 512
"""So many are read before anything is known of their sizes."""
_PIECE_ROWS = 8192
_PIECE_BYTES = 4 << 20
_SAMPLE_KEYS = 100_000


class VersionedTables:
    """See `belvedere.backend.seam.Store` for what each call means."""

    def __init__(self, environment: Environment, collect_pause: float, merge_rows: int) -> None:
        self._environment, self._db = environment, environment.db
        self._recent = RecentVersions()
        self._counting, self.scanned_rows = threading.Lock(), 0
        self._load()
        environment.on_reopen(self._load)
        self._collector = Compactor(environment, self._recent, collect_pause, merge_rows)

    def _load(self) -> None:
        """Recent rows from their runs; called while nobody writes."""
        with self._environment.reading() as txn:
            self._recent.load(self._runs(txn))

    def _runs(self, txn: Txn) -> Iterator[memtable.Stored]:
        for key, content in txn.cursor(self._db["runs"]):
            run = memtable.unpack_run(int.from_bytes(key, "big"), content)
            if versions.find_size(txn, self._db, run.table) is not None:
                yield run

    # --- reading

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        ids, below = ids[:_READ_IDS], min(below, _EPOCHS)
        number = self._number(table) if below > 0 and len(ids) else None
        if number is None:
            self._check_horizon(table, below)
            return pa.nulls(len(ids), pa.binary())
        found = self._read_fitting(number, ids, below)
        self._check_horizon(table, below)
        return _values(found)

    def _read_fitting(self, number: int, ids: np.ndarray, below: int) -> list[bytes | None]:
        """Values of the first ids, at least one, as they are stored: what an answer holds."""
        found: list[bytes | None] = []
        size, step = 0, _FIRST_IDS
        while len(found) < len(ids) and size < seam.READ_BYTES:
            cells = self._read(number, ids[len(found) : len(found) + step], below)
            count = fitting([len(cell or b"") for cell in cells])
            found += cells[:count]
            size += sum(len(cell or b"") for cell in cells[:count])
            step = max(1, min(2 * step, seam.READ_BYTES * len(found) // max(size, 1)))
        return found

    def _read(self, number: int, ids: np.ndarray, below: int) -> list[bytes | None]:
        """Values as they are stored; None or empty where there is none."""
        cells, epochs = self._recent.read(number, ids, below)
        with self._environment.reading() as txn:
            size = versions.find_size(txn, self._db, number)
            if size is not None and size.count:
                unknown = np.flatnonzero(epochs == NONE)
                self._fill(cells, unknown, versions.read(txn, self._db, number, ids[unknown], below, None))
                # Late writes: the tree may have newer versions than recent rows.
                older = np.flatnonzero((epochs != NONE) & (epochs < size.newest))
                if len(older):
                    found = versions.read(txn, self._db, number, ids[older], below, epochs[older])
                    self._fill(cells, older, found)
        return cells

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        """Epochs of the newest versions `< below`; 0 where there is none."""
        below = min(below, _EPOCHS)
        number = self._number(table) if below > 0 and len(ids) else None
        found = np.zeros(len(ids), np.int64)
        if number is not None:
            _, recent = self._recent.read(number, ids, below)
            # Recent rows first, as everywhere: what leaves them meanwhile is in the tree when the tree is read.
            with self._environment.reading() as txn:
                found = np.maximum(versions.epochs(txn, self._db, number, ids, below), recent)
        self._check_horizon(table, below)
        return found

    @staticmethod
    def _fill(cells: list[bytes | None], positions: np.ndarray, found: list[bytes | None]) -> None:
        for at, cell in zip(positions.tolist(), found, strict=True):
            if cell is not None:
                cells[at] = cell

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        below = min(below, _EPOCHS)
        number = self._number(table)
        stop = min(stop, _BUCKETS)
        if number is None or first >= stop or below <= 0:
            self._check_horizon(table, below)
            return
        # Recent rows first: what leaves them meanwhile is in the tree when the tree is read.
        held = self._recent.visible(number, first, stop, below, only)
        self._scanned(len(held))
        self._check_horizon(table, below)
        if only is None:
            for rows in self._scan(table, number, first, stop, below, held):
                yield from _pieces(rows)
            return
        found: list[MemtableRows] = []
        count = size = 0
        for begin, end in _runs(only, first, stop):
            for rows in self._scan(table, number, begin, end, below, held):
                found.append(rows)
                count, size = count + len(rows), size + sum(map(len, rows.cells))
                if count >= _PIECE_ROWS or size >= _PIECE_BYTES:
                    yield from _pieces(memtable.joined(found))
                    found, count, size = [], 0, 0
        yield from _pieces(memtable.joined(found))

    def _scan(
        self, table: str, number: int, first: int, stop: int, below: int, held: MemtableRows
    ) -> Iterator[MemtableRows]:
        """Rows of neighbouring buckets; `held`: recent ones."""
        tree = versions.VersionScan(keys.bucket_key(number, first), keys.bucket_key(number, stop), below)
        taken = int(np.searchsorted(held.high, _high(first)))
        last = len(held) if stop == _BUCKETS else int(np.searchsorted(held.high, _high(stop)))
        while True:
            before = tree.looked_at
            with self._environment.reading() as txn:
                rows, going_on = tree.piece(txn, self._db["versions"])
            self._scanned(tree.looked_at - before)
            self._check_horizon(table, below)
            upto = last if going_on == tree.stop else _before(held, going_on, taken)
            yield memtable.newest([held.slice(taken, upto), rows])
            taken = upto
            if going_on == tree.stop:
                return

    def _scanned(self, rows: int) -> None:
        with self._counting:
            self.scanned_rows += rows

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        below = min(below, _EPOCHS)
        number = self._number(table)
        if number is None or below <= 0:
            self._check_horizon(table, below)
            return
        left = _EPOCHS if wanted.limit is None else wanted.limit
        low, high, count = wanted.low, wanted.high, min(left, _FIRST_IDS)
        while left:
            entries, bound = self._in_order(number, low, high, count, wanted.reverse)
            ids = np.frombuffer(b"".join([id for _, id in entries]), np.uint64).reshape(-1, 2)
            if not len(ids) and self._without_keys(number):
                raise without_keys(table)
            while left and len(ids):
                cells = self._read_fitting(number, ids, below)
                self._check_horizon(table, below)
                live = [at for at, cell in enumerate(cells) if cell and keys.is_visible(cell)][:left]
                if live:
                    yield ids[live], _values([cells[at] for at in live])
                ids, left = ids[len(cells) :], left - len(live)
            if bound is None:
                break
            low, high = (low, bound) if wanted.reverse else (bound + b"\0", high)
            count = min(2 * count, _PIECE_ROWS)
        self._check_horizon(table, below)

    def _in_order(
        self, number: int, low: bytes, high: bytes | None, count: int, reverse: bool
    ) -> tuple[list[by_key.Entry], bytes | None]:
        """About `count` keys of a range with their ids, whether they have a row or not, in order; and the last of these
        keys, None if there are no more."""
        # Recent rows first: what leaves them meanwhile is in the tree when the tree is read.
        parts = self._recent.ordered(number, low, high, count, reverse)
        with self._environment.reading() as txn:
            parts.append(by_key.piece(txn, self._db["by_key"], number, low, high, count, reverse))
        found = dict(entry for entries, _ in parts for entry in entries)
        ends = [entries[-1][0] for entries, complete in parts if not complete]
        bound = None if not ends else max(ends) if reverse else min(ends)
        known = found if bound is None else [key for key in found if (key >= bound if reverse else key <= bound)]
        return [(key, found[key]) for key in sorted(known, reverse=reverse)], bound

    def middle(self, table: str, low: bytes, high: bytes | None) -> bytes | None:
        """About the key in the middle of those between two bounds; None if there is none. It walks over all of them, a
        piece at a time, and keeps some."""
        number = self._number(table)
        found: list[bytes] = []
        count, every, bound = 0, 1, None if number is None else low
        while number is not None and bound is not None:
            entries, bound = self._in_order(number, low, high, _PIECE_ROWS, False)
            found += [key for key, _ in entries[-count % every :: every]]
            count += len(entries)
            low = b"" if bound is None else bound + b"\0"
            while len(found) > _SAMPLE_KEYS:
                found, every = found[::2], 2 * every
        return found[len(found) // 2] if found else None

    def _without_keys(self, number: int) -> bool:
        """Whether there are rows, and none of them has a key."""
        if self._in_order(number, b"", None, 1, False)[0]:
            return False
        with self._environment.reading() as txn:
            cell = versions.any_cell(txn, self._db, number)
        # Where rows have keys, nothing but hidden ones and tombstones, with their keys, is in no order.
        return bool(self._recent.versions().get(number)) or (cell is not None and (not cell or keys.is_visible(cell)))

    def _check_horizon(self, table: str, below: int) -> None:
        check_horizon(table, below, self._collector.bounds.horizon)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        while True:
            with self._environment.reading() as txn:
                number = versions.find_table(txn, self._db, table)
                found = number and versions.changed(txn, self._db["changed"], number, after, upto)
            if not found:
                return
            yield found
            after = found[0]

    def shape(self, table: str) -> RowShape | None:
        with self._environment.reading() as txn:
            number = versions.find_table(txn, self._db, table)
            return None if number is None else versions.find_shape(txn, self._db, number)

    def names(self) -> list[str]:
        with self._environment.reading() as txn:
            return [name[1:].decode() for name in txn.cursor(self._db["tables"]).iternext(values=False)]

    def usage(self) -> Mapping[str, int]:
        held = self._recent.versions()
        found: dict[str, int] = {}
        with self._environment.reading() as txn:
            for name, value in txn.cursor(self._db["tables"]):
                number = int.from_bytes(value, "big")
                size = versions.find_size(txn, self._db, number)
                found[name[1:].decode()] = held.get(number, 0) + (0 if size is None else size.count)
        return found

    def _number(self, table: str) -> int | None:
        with self._environment.reading() as txn:
            return versions.find_table(txn, self._db, table)

    # --- writing

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        if not 0 <= epoch < _EPOCHS:
            raise DataError(f"epoch {epoch} is no version: they are whole numbers from 0 to {_EPOCHS - 1}")
        for write in writes:
            check_write(write)
        for group in write_groups(writes):
            self._write(epoch, group)

    def _write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        rows = sum(len(write.ids) for write in writes)
        self._collector.make_room(rows)
        cells = [keys.cells(write.values, write.keys, write.hidden) for write in writes]

        def put(txn: Txn) -> list[tuple[int, int]]:
            # Asked here, in the order of commits: what was put under older bounds is merged before they are acted upon.
            if epoch <= self._collector.bounds.tombstones:
                return []
            return [self._put(txn, epoch, write) for write in writes]

        def keep(runs: list[tuple[int, int]]) -> None:
            for (run, number), write, stored in zip(runs, writes, cells, strict=False):  # none, if it came too late
                self._recent.put(memtable.Stored(run, number, epoch, write.ids, stored, write.keys))

        self._environment.run(put, rows, keep)
        self._collector.added()

    def _put(self, txn: Txn, epoch: int, write: TableWrite) -> tuple[int, int]:
        """The numbers of the run and of the table."""
        number = versions.open_table(txn, self._db, write.table)
        if write.shape is not None:
            versions.keep_shape(txn, self._db, number, write.table, write.shape)
        run = versions.count_up(txn, self._db, b"run")
        txn.put(run.to_bytes(8, "big"), memtable.pack_run(number, epoch, write), db=self._db["runs"])
        if write.logged:
            prefix = keys.table_bytes(number) + keys.ascending(epoch)
            versions.put_ids(txn, self._db["changed"], prefix, write.ids)
        return run, number

    def collect(self, horizon: int, tombstones: int) -> None:
        self._collector.collect(horizon, tombstones)

    def collected(self) -> int:
        return self._collector.collected

    def drop(self, tables: Sequence[str]) -> None:
        def drop(txn: Txn) -> list[int]:
            found = [versions.drop_table(txn, self._db, name) for name in tables]
            return [number for number in found if number is not None]

        if tables:
            self._environment.run(drop, then=self._recent.drop)
            self._collector.wake()

    def unmerged_rows(self) -> int:
        return sum(self._recent.versions().values())

    @property
    def held_up_seconds(self) -> float:
        return self._collector.held_up_seconds

    def close(self) -> None:
        self._collector.close()


def _before(held: MemtableRows, key: bytes, start: int) -> int:
    """How many of these rows, from `start` on, come before the id of a key."""
    high, low = (np.uint64(int.from_bytes(key[at : at + 8], "big")) for at in (4, 12))
    at = start + int(np.searchsorted(held.high[start:], high))
    while at < len(held) and held.high[at] == high and held.low[at] < low:
        at += 1
    return at


def _high(bucket: int) -> np.uint64:
    """The least rotated word of a bucket."""
    return np.uint64(bucket << keys.REST)


def _runs(only: np.ndarray, first: int, stop: int) -> Iterator[tuple[int, int]]:
    """Neighbouring buckets of a mask, within a range."""
    edges = np.flatnonzero(np.diff(only[first:stop].astype(np.int8), prepend=0, append=0)) + first
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _values(cells: Sequence[bytes | None]) -> pa.BinaryArray:
    """What is stored, as values; null where there is no row."""
    return pa.array([keys.value_of(cell) for cell in cells], pa.binary())


def _pieces(rows: MemtableRows) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
    """Rows without tombstones, as a scan gives them, in pieces of a moderate size."""
    values = [keys.value_of(cell) for cell in rows.cells]
    live = [at for at, value in enumerate(values) if value is not None]
    ids = rows.ids()
    begun, size = 0, 0
    for number, at in enumerate(live, 1):
        size += len(rows.cells[at])
        if size > _PIECE_BYTES or number - begun == _PIECE_ROWS or number == len(live):
            part = live[begun:number]
            yield ids[part], pa.array([values[i] for i in part], pa.binary())
            begun, size = number, 0
