"""Current rows of base tables: merged cell by cell, last writer wins, exactly as DELTA does it (DELTA does it).

A `put` is durable in the logs of its ranges; its rows follow, many calls at a time and in the order of keys, so that
pages of the tree are not written for each of them. Whoever reads rows waits until the changes of the table are merged.

    put ──▶ in the log ──▶ PENDING ──enough of them, or somebody reads──▶ merged: `base_merged` says up to which seq

Why it is safe: pending changes are those of the logs behind `base_merged`; logs are trimmed no farther, and are read
again after a restart. Changes that are merged again change nothing: all that follow them are merged again as well, in
the same order.

    base_rows   table number, encoded key -> the row as `DeltaTable.export` packs it (tombstones included)

Tombstones stay for `TOMBSTONE_RETENTION_US`: changes that come late do not bring a row back (`base_tombstones.py`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.served import base_tombstones
from belvedere.backend.served.environment import Environment, Txn
from belvedere.backend.served.keys import table_bytes
from belvedere.engine.delta import Changes
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.errors import BelvedereError, Closed, StoreUnavailable
from belvedere.model.chunks import WrittenRow, together
from belvedere.sql.catalog import TableDef

log = logging.getLogger(__name__)

FLUSH_ROWS = 100_000
FLUSH_BYTES = 64 << 20
"""Changes are merged when there are so many of them, and about so many at a time: one array of text holds 2 GiB."""
_FULL = 4
"""At so many times `FLUSH_ROWS` or `FLUSH_BYTES` writers wait."""
_FLUSH_SECONDS = 30.0
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0
"""A writer does not wait longer for room: whoever called it has given up by then, or soon will, and calls again."""
_STEP_KEYS = 2048
"""About ten milliseconds: so long a writer may have to wait for a step."""
_SCAN_ROWS = 4096
_SCAN_BYTES = 4 << 20
_DAY_US = 86_400_000_000
TOMBSTONE_RETENTION_US = 10 * _DAY_US
_WALK_KEYS = 100_000
_SAMPLE_KEYS = 100_000
_NOTHING = np.empty(0, np.int64)
_WORD = 8


@dataclass(frozen=True, eq=False)
class Pending:
    """What one call (or its part in one range) changes."""

    seq: int
    table: int
    written: WrittenRow
    keys: Sequence[bytes]

    @cached_property
    def size(self) -> int:
        """Bytes, about."""
        return sum(vec.nbytes() for vec in self.written.changes.columns) + sum(map(len, self.keys))


class BaseRows:
    """The rows of all base tables, and a thread that merges. `definition` gives a table by number, None if it is gone.
    `trim` is told, in a transaction, up to which seq the logs are merged."""

    def __init__(
        self,
        environment: Environment,
        clock: Callable[[], int],
        definition: Callable[[Txn, int], TableDef | None],
        trim: Callable[[Txn, int], None],
    ) -> None:
        self._environment, self._db = environment, environment.db
        self._clock, self._definition, self._trim = clock, definition, trim
        self._merging = threading.Lock()
        self._news = threading.Condition()
        self._pending: list[Pending] = []
        self._rows = self._size = 0
        self._trouble, self._failures = "", 0
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="store-base-rows", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def load(self, pending: Sequence[Pending]) -> None:
        """The changes that the logs have behind `base_merged`: at the start, and when the outcome of a commit is not
        known. Called while nobody writes."""
        with self._news:
            self._pending = list(pending)
            self._rows, self._size = sum(len(one.keys) for one in pending), sum(one.size for one in pending)

    def merged(self, txn: Txn) -> int:
        """Changes up to this seq are in the tree."""
        return int.from_bytes(txn.get(b"base_merged", db=self._db["meta"], default=b""), "big")

    def add(self, pending: Pending) -> None:
        """In the order of seqs."""
        with self._news:
            self._pending.append(pending)
            self._rows += len(pending.keys)
            self._size += pending.size
            if self._enough():
                self._news.notify_all()

    def _enough(self, times: int = 1) -> bool:
        return self._rows >= times * FLUSH_ROWS or self._size >= times * FLUSH_BYTES

    def make_room(self) -> None:
        """Wait until merging has caught up; raises `StoreUnavailable` if it cannot, or not soon."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        with self._news:
            while self._enough(_FULL) and not self._stopping:
                failures = self._failures
                self._news.notify_all()
                self._news.wait(_RETRY_SECONDS)
                if self._failures != failures:
                    raise StoreUnavailable(self._trouble)
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"the store in {self._environment.path} has {self._rows} changes of base rows in memory that "
                        f"have to be merged first, and {_PATIENCE_SECONDS:g} s were not enough; its disk is slow, or "
                        "it has too much to do: write again later, or less at a time"
                    )

    def close(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._enough() or self._stopping, _FLUSH_SECONDS)
                if self._stopping:
                    return
            try:
                self.flush()
                self.bury()
            except Closed:
                return
            except Exception as error:
                # No room, or a failing disk: it is tried again; writers are told once there is no room in memory.
                if not isinstance(error, BelvedereError):
                    log.exception("rows of base tables")  # a defect; writers must not wait for it for ever
                with self._news:
                    self._trouble = str(error)
                    self._failures += 1
                    self._news.notify_all()
                    self._news.wait(_RETRY_SECONDS)

    # --- merging

    def flush(self) -> None:
        """Merge everything that was put before."""
        with self._news:
            last = self._pending[-1].seq if self._pending else 0
        with self._merging:
            while self._flush_some(last):
                pass

    def _flush_some(self, last: int) -> bool:
        """Merge some of what there is up to this seq, oldest first; false if there was nothing."""
        with self._news:
            source, pending = self._pending, _first(self._pending)
        if not pending or pending[0].seq > last:
            return False
        by_table: dict[int, list[Pending]] = {}
        for one in pending:
            by_table.setdefault(one.table, []).append(one)
        for table, parts in by_table.items():
            for step in self._steps(table, parts):
                self._environment.run(step, later=True)
        self._environment.run(partial(self._done, pending[-1].seq), later=True)
        with self._news:
            if source is self._pending:  # else they were loaded again meanwhile, and are merged again
                del self._pending[: len(pending)]
                self._rows -= sum(len(one.keys) for one in pending)
                self._size -= sum(one.size for one in pending)
            self._news.notify_all()
        return True

    def _steps(self, table: int, parts: Sequence[Pending]) -> Iterator[Callable[[Txn], None]]:
        with self._environment.reading() as txn:
            definition = self._definition(txn, table)
        if definition is None:
            return
        changes = together([part.written for part in parts]).resolve(definition)
        encoded = [key for part in parts for key in part.keys]
        # Stable, so changes of a key keep their order; and by Arrow, which does not hold up all other threads for it.
        order = pc.sort_indices(pa.array(encoded, pa.binary())).to_numpy().astype(np.int64)
        encoded = [encoded[i] for i in order.tolist()]
        at = 0
        while at < len(order):
            stop = min(at + _STEP_KEYS, len(order))
            while stop < len(order) and encoded[stop] == encoded[stop - 1]:
                stop += 1
            yield partial(self._merge, table, definition, _take(changes, order[at:stop]), encoded[at:stop])
            at = stop

    def _merge(self, table: int, definition: TableDef, changes: Changes, encoded: list[bytes], txn: Txn) -> None:
        """Read the rows, let DELTA merge the changes, write them back. Keys are in order, equal ones are neighbours."""
        if self._definition(txn, table) is None:
            return  # dropped meanwhile
        prefix, rows = table_bytes(table), self._db["base_rows"]
        for first, stop, known in _portions(encoded, lambda key: txn.get(prefix + key, db=rows)):
            part = _take(changes, np.arange(first[0], stop))
            values, dead, came = self._merged(definition, part, np.array(first, np.int64) - first[0], known)
            pairs = zip(first, values.to_pylist(), strict=True)
            txn.cursor(rows).putmulti([(prefix + encoded[at], row) for at, row in pairs])
            if len(dead):
                base_tombstones.note(txn, self._db, table, [encoded[first[at]] for at in dead.tolist()], came)

    def _merged(
        self, definition: TableDef, changes: Changes, first: np.ndarray, known: list[bytes]
    ) -> tuple[pa.BinaryArray, np.ndarray, np.ndarray]:
        """Rows as they are after these changes; which of them are tombstones, and when these came. `first`: where the
        changes of each row begin."""
        now = self._clock()
        delta = DeltaTable(definition)
        if known:
            delta.import_(pa.array(known, pa.binary()), now - TOMBSTONE_RETENTION_US)
        delta.apply(changes, (), now)
        keys = [changes.columns[i].take(first) for i in definition.key_positions]
        values = delta.export(hash_rows(keys, len(first)))[1]
        if not delta.tombstones:
            return values, _NOTHING, _NOTHING
        packed = delta.unpack(values)
        return values, np.flatnonzero(packed.dead), packed.came[packed.dead]

    def _done(self, seq: int, txn: Txn) -> None:
        txn.put(b"base_merged", seq.to_bytes(_WORD, "big"), db=self._db["meta"])
        self._trim(txn, seq)

    def bury(self) -> None:
        """Remove tombstones that are old enough, a step at a time, unless something is to be merged."""
        while not (self._stopping or self._enough()):
            with self._merging:  # not between two steps of a merge, which may have to be repeated from its beginning
                before = self._clock() - TOMBSTONE_RETENTION_US
                with self._environment.reading() as txn:
                    if not base_tombstones.due(txn, self._db, before):
                        return
                self._environment.run(partial(self._bury, before), later=True)

    def _bury(self, before: int, txn: Txn) -> None:
        base_tombstones.bury(txn, self._db, before, _STEP_KEYS, self._definition)

    # --- reading

    def get(self, table: int, definition: TableDef, encoded: Sequence[bytes]) -> pa.RecordBatch:
        """The rows with these keys that are there."""
        self._flush_for(table)
        prefix = table_bytes(table)
        with self._environment.reading() as txn:
            found = [txn.get(prefix + key, db=self._db["base_rows"]) for key in encoded]
        return _live(definition, [row for row in found if row is not None])

    def scan(self, table: int, definition: TableDef, start: bytes, stop: bytes | None) -> Iterator[pa.RecordBatch]:
        """Rows in the order of keys. Each piece is of one moment."""
        self._flush_for(table)
        at, end = self._bounds(table, start, stop)
        while at:
            with self._environment.reading() as txn:
                found, at = _piece(txn.cursor(self._db["base_rows"]), at, end)
            batch = _live(definition, found)
            if batch.num_rows:
                yield batch

    def middle(self, table: int, start: bytes, stop: bytes | None) -> bytes | None:
        """About the key in the middle of those that are merged; None if there is none. It walks over all of them, a
        piece at a time, and keeps some."""
        at, end = self._bounds(table, start, stop)
        found: list[bytes] = []
        count, every = 0, 1
        while at:
            with self._environment.reading() as txn:
                keys, at = _keys(txn.cursor(self._db["base_rows"]), at, end)
            found += keys[-count % every :: every]
            count += len(keys)
            while len(found) > _SAMPLE_KEYS:
                found, every = found[::2], 2 * every
        return found[len(found) // 2][len(table_bytes(table)) :] if found else None

    def _flush_for(self, table: int) -> None:
        with self._news:
            wanted = any(one.table == table for one in self._pending)
        if wanted:
            self.flush()

    @staticmethod
    def _bounds(table: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
        prefix = table_bytes(table)
        return prefix + start, prefix + stop if stop is not None else table_bytes(table + 1)


def _first(pending: Sequence[Pending]) -> list[Pending]:
    """Some of them, at least one; those of one seq are not parted, since `base_merged` is a seq."""
    size = rows = 0
    for count, one in enumerate(pending):
        if (size >= FLUSH_BYTES or rows >= FLUSH_ROWS) and one.seq != pending[count - 1].seq:
            return list(pending[:count])
        size += one.size
        rows += len(one.keys)
    return list(pending)


def _portions(
    encoded: Sequence[bytes], find: Callable[[bytes], bytes | None]
) -> Iterator[tuple[list[int], int, list[bytes]]]:
    """Changes in portions: where those of each row begin, where all end, and the rows that are there already, which may
    be far bigger than their changes."""
    first: list[int] = []
    known: list[bytes] = []
    size = 0
    for at, key in enumerate(encoded):
        if at and key == encoded[at - 1]:
            continue
        if size >= FLUSH_BYTES:
            yield first, at, known
            first, known, size = [], [], 0
        first.append(at)
        found = find(key)
        if found is not None:
            known.append(found)
            size += len(found)
    if first:
        yield first, len(encoded), known


def _take(changes: Changes, index: np.ndarray) -> Changes:
    return WrittenRow((), changes).take(index).changes


def _piece(cursor: Any, start: bytes, end: bytes) -> tuple[list[bytes], bytes]:
    """Some rows from `start` on, and where to go on; nothing if that was all."""
    found: list[bytes] = []
    size = 0
    more = cursor.set_range(start)
    while more and cursor.key() < end:
        if len(found) == _SCAN_ROWS or size > _SCAN_BYTES:
            return found, cursor.key()
        found.append(cursor.value())
        size += len(found[-1])
        more = cursor.next()
    return found, b""


def _keys(cursor: Any, start: bytes, end: bytes) -> tuple[list[bytes], bytes]:
    """Some keys from `start` on, and where to go on; nothing if that was all."""
    if not cursor.set_range(start):
        return [], b""
    found: list[bytes] = list(islice(cursor.iternext(keys=True, values=False), _WALK_KEYS))
    if len(found) < _WALK_KEYS or found[-1] >= end:
        return [key for key in found if key < end], b""
    return found[:-1], found[-1]


def _live(table: TableDef, packed: list[bytes]) -> pa.RecordBatch:
    """Rows as users see them, without tombstones."""
    fields = [pa.field(column.name, column.type.arrow) for column in table.columns]
    if not packed:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in fields], schema=pa.schema(fields))
    found = DeltaTable(table).unpack(pa.array(packed, pa.binary()))
    live = np.flatnonzero(~found.dead)
    return pa.RecordBatch.from_arrays([vec.take(live).to_arrow() for vec in found.columns], schema=pa.schema(fields))
