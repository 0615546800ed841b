"""What the store does when nobody asks: takes recent rows to the tree, and removes what nobody can see any more.

    ┌─▶ WAITING ──enough recent rows, or a collection is due──▶ MERGING ──a collection is due──▶ COLLECTING ─┐
    └────────────────────────────────────────────────────────────────────────────────────────────────────────┘

A collection may take an hour (somebody held an old epoch for as long). Between its steps recent rows are merged as soon
as there are enough of them, so that writers wait for a merge at most; after a merge some steps come first, so that it
goes on even if there are always enough.

Each works through rows in the order of keys, in steps of bounded size, each a transaction of its own between those of
writers. Collections wait a while for each other (`pause`): rows of many epochs then share pages, and an id that was
written often is looked at once.

Writers who are faster than merges are slowed down before there is no room at all: once a merge lags behind, a write
waits until twice as many rows have been merged as it brings. So the next merge has less to do than this one, and nobody
meets the limit at which writers stand still until a whole merge is over.

* A note of epoch e <= h: of each of its ids, versions older than the newest one <= h go.
* A grave of epoch e <= min(h, t): the same, and that newest one goes as well if it is a tombstone <= t.
* Entries of `changed` up to h go. Tables that were dropped are emptied.

Why nothing is missed: a version v can go when a newer version n <= h exists. If v was in the tree when n was put, n was
noted (it had v behind it), or both were put together and noted for it; if v came later, the tree had seen a newer epoch
by then and v was noted. The note of either, looked at once the horizon has reached it, removes v.

Why a tombstone that goes shields nothing any more: the bounds are read before recent rows are merged. Writes up to
`tombstones` that were accepted came before that, so they are in the tree, behind the tombstone, and go with it; later
ones are ignored (`VersionedTables.write`), after a restart too, since the bounds are durable with the first tombstone
that goes. Runs of merged rows are removed before anything is collected, so none of them comes again. If they were read
again from their runs in the middle of a merge (`Environment.on_reopen`), they would outlive it as recent rows: then
no run is removed, nothing is collected, and the turn is repeated. Rows that are merged between steps of a collection
were put under its bounds or greater ones, so no tombstone that goes could hide them.

Why it may be interrupted anywhere: records of ids are removed when all they asked for has been done. A merge between
steps may write a record again whose ids have been done already; such a record stays, and is done again.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.served import by_key, keys, versions
from belvedere.backend.served.environment import Db, Environment, Operation, T, Txn
from belvedere.backend.served.memtable import MemtableRows, RecentVersions
from belvedere.engine.residency import distinct_ids
from belvedere.errors import BelvedereError, Closed, StoreUnavailable

log = logging.getLogger(__name__)

MERGE_ROWS = 1_000_000
MERGE_BYTES = 256 << 20
_MERGE_SECONDS = 60.0
"""Rows do not stay recent for longer: of an id that changes all the time many versions would hang together."""
_LAGS = 1.5
"""At so many times the size at which a merge begins, it lags behind."""
_PACE, _PACE_SECONDS = 2, 1.0
"""Rows that are merged for each that is written then; how long a write waits for it at most."""
_FULL = 3
"""At so many times the size at which a merge begins, writers wait for its end."""
_STEP_ROWS = 2048
"""About ten milliseconds: so long a writer may have to wait for a step."""
_STEPS_PER_MERGE = 8
"""Steps of a collection, at least, between two merges."""
_STEP_KEYS = 16_384
_PASS_IDS = 1 << 20
"""Ids that a collection has in memory at a time."""
_BOUNDS = struct.Struct("<QQ")
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 30.0
"""A writer does not wait longer for room: whoever called it has given up by then, or soon will, and calls again."""
_BY_TABLE = ("versions", "by_key", "changed")
"""Databases whose keys begin with the number of a table."""


@dataclass(frozen=True)
class CollectionBounds:
    horizon: int
    tombstones: int

    def with_(self, other: CollectionBounds) -> CollectionBounds:
        return CollectionBounds(max(self.horizon, other.horizon), max(self.tombstones, other.tombstones))


class Compactor:
    """One per store; a thread of its own does the work. `pause`: seconds between two collections, at least."""

    def __init__(self, environment: Environment, recent: RecentVersions, pause: float, merge_rows: int) -> None:
        self._environment, self._db = environment, environment.db
        self._recent = recent
        self._pause, self._merge_rows = pause, merge_rows
        self._wake = threading.Condition()
        self._stopping = False
        self._wanted = True
        self._last = self._merged = time.monotonic()
        self._steps = 0
        """Of the collection, since the last merge."""
        self._trouble, self._failures = "", 0
        self._put_rows = self._owed = 0
        """Rows that were merged so far; and those that have to be before the last of the writers that wait goes on."""
        self._noted: set[bytes] = set()
        """Records of ids that were written since the collection read those that it works on."""
        self.collected = 0
        self.held_up_seconds = 0.0
        """So long writers have waited, all together."""
        with environment.reading() as txn:
            found = txn.get(b"bounds", db=self._db["meta"])
        self.bounds = CollectionBounds(*_BOUNDS.unpack(found)) if found is not None else CollectionBounds(0, 0)
        self._thread = threading.Thread(target=self._work, name="store-collector", daemon=True)
        self._thread.start()

    def collect(self, horizon: int, tombstones: int) -> None:
        """Bounds only grow. They are durable with the first thing that is removed because of them."""
        with self._wake:
            self.bounds = self.bounds.with_(CollectionBounds(horizon, min(tombstones, horizon)))
            self._wanted = True
            self._wake.notify_all()

    def wake(self) -> None:
        """A table was dropped."""
        with self._wake:
            self._wanted = True
            self._wake.notify_all()

    def added(self) -> None:
        """There are more recent rows."""
        if self._enough():
            with self._wake:
                self._wake.notify_all()

    def make_room(self, rows: int) -> None:
        """Before so many rows are written: wait until a merge that lags behind has caught up somewhat; raises
        `StoreUnavailable` if it cannot, or not soon."""
        if not self._enough(_LAGS):
            return
        begun = time.monotonic()
        try:
            self._await_room(rows, begun)
        finally:
            with self._wake:
                self.held_up_seconds += time.monotonic() - begun

    def _await_room(self, rows: int, begun: float) -> None:
        with self._wake:
            self._wake.notify_all()  # once: writers that wait would wake each other for ever
            # What others wait for comes first: all writers together are as fast as the merge allows.
            goal = self._owed = max(self._owed, self._put_rows) + _PACE * rows
            failures = self._failures
            while not self._stopping:
                waited, failed = time.monotonic() - begun, self._failures != failures
                if not self._enough(_FULL):
                    if not self._enough(_LAGS) or self._put_rows >= goal or waited >= _PACE_SECONDS or failed:
                        return
                elif failed:
                    raise StoreUnavailable(self._trouble)
                elif waited >= _PATIENCE_SECONDS:
                    raise StoreUnavailable(
                        f"the store in {self._environment.path} has {self._recent.rows} rows in memory that have to go "
                        f"to their tables first, and {_PATIENCE_SECONDS:g} s were not enough; its disk is slow, or it "
                        "has too much to do: write again later, or less at a time"
                    )
                self._wake.wait(_RETRY_SECONDS)

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    # --- the thread

    def _enough(self, times: float = 1) -> bool:
        return self._recent.rows >= times * self._merge_rows or self._recent.size >= times * MERGE_BYTES

    def _due(self) -> float | None:
        """Seconds until there is something to do; None: nobody knows."""
        if self._enough() or self._stopping or self._recent.interrupted:
            return 0.0
        times = [self._last + self._pause] if self._wanted else []
        times += [self._merged + _MERGE_SECONDS] if self._recent.rows else []
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _work(self) -> None:
        while True:
            with self._wake:
                while (due := self._due()) != 0.0:
                    self._wake.wait(_MERGE_SECONDS if due is None else due)
                if self._stopping:
                    return
                collecting = self._wanted and self._last + self._pause <= time.monotonic()
                self._wanted = self._wanted and not collecting
                bounds = self.bounds
            try:
                self._turn(bounds, collecting)
            except Closed:
                return
            except Exception as error:
                self._failed(error, collecting)

    def _failed(self, error: Exception, collecting: bool) -> None:
        """No room, or a failing disk: it is tried again, and writers are told once there is no room in memory."""
        if not isinstance(error, BelvedereError):
            log.exception("the store's collector")  # a defect; writers must not wait for it for ever
        with self._wake:
            self._trouble = str(error)
            self._failures += 1
            self._wanted = self._wanted or collecting
            self._wake.notify_all()
            self._wake.wait(_RETRY_SECONDS)

    def _turn(self, bounds: CollectionBounds, collecting: bool) -> None:
        self._noted.clear()
        self._make_room()
        if collecting and not self._stopping:
            self._collect(bounds)
            self._last = time.monotonic()

    def _make_room(self) -> None:
        self._merge()
        self._merged, self._steps = time.monotonic(), 0
        with self._wake:
            self._owed = self._put_rows
            self._wake.notify_all()

    def _ripe(self) -> bool:
        """Whether recent rows have to be merged."""
        old = self._merged + _MERGE_SECONDS <= time.monotonic()
        return self._enough() or self._recent.interrupted or (old and self._recent.rows > 0)

    def _run(self, operation: Operation[T]) -> T:
        """A step; those that follow the order to stop are not begun."""
        if self._stopping:
            raise Closed("the store is being closed")
        return self._environment.run(operation, later=True)

    # --- merging

    def _merge(self) -> None:
        """All that was recent when it began is in the tree when it ends."""
        interrupted = self._recent.interrupted
        self._merge_generation()
        if interrupted:
            self._merge_generation()

    def _merge_generation(self) -> None:
        horizon = self.bounds.horizon  # also that of a collection that has not begun yet: nobody reads below it
        loads = self._recent.loads
        # In the place of a writer: no write is between its commit and its rows in memory.
        self._environment.run(lambda txn: None, then=lambda _: self._recent.switch())
        tables, last = self._recent.merging(horizon)
        if not last:
            return
        for table, row_keys, ids in self._recent.merging_keys():
            for at in range(0, len(ids), _STEP_ROWS):
                self._run(partial(self._put_keys, table, row_keys.slice(at, _STEP_ROWS), ids[at : at + _STEP_ROWS]))
        for table, rows in tables.items():
            with self._environment.reading() as txn:
                size = versions.find_size(txn, self._db, table)
            before = 0 if size is None else size.newest
            for at in range(0, len(rows), _STEP_ROWS):
                step = rows.slice(at, at + _STEP_ROWS)
                self._run(partial(self._put, table, step, horizon, before))
                with self._wake:
                    self._put_rows += len(step)
                    self._wake.notify_all()
        newest = {table: int(rows.epochs.max()) for table, rows in tables.items() if len(rows)}
        if not self._run(lambda txn: self._finish(txn, newest, last, loads)):
            raise StoreUnavailable(
                f"the store in {self._environment.path} was opened again while rows were being merged; it is done again"
            )
        self._recent.merged(last)

    def _put(self, table: int, rows: MemtableRows, horizon: int, newest: int, txn: Txn) -> None:
        self._keep_bounds(txn)  # what the horizon made superfluous goes with it
        self._noted.update(versions.put_rows(txn, self._db, table, rows, horizon, newest))

    def _put_keys(self, table: int, row_keys: pa.BinaryArray, ids: np.ndarray, txn: Txn) -> None:
        if versions.find_size(txn, self._db, table) is not None:
            by_key.put(txn, self._db["by_key"], table, row_keys, ids)

    def _finish(self, txn: Txn, newest: dict[int, int], last: int, loads: int) -> bool:
        """All rows are in the tree: from now on reads rely on what it says of its newest epochs. False: they were read
        again from their runs meanwhile, and are recent rows as any others."""
        if self._recent.loads != loads:  # as a result, not as an error: others in this transaction would fail with it
            return False
        self._keep_bounds(txn)
        for table, epoch in newest.items():
            versions.raise_newest(txn, self._db, table, epoch)
        cursor = txn.cursor(self._db["runs"])
        more = cursor.first()
        while more and cursor.key() <= last.to_bytes(8, "big"):
            more = cursor.delete() and bool(cursor.key())
        return True

    # --- collecting

    def _collect(self, bounds: CollectionBounds) -> None:
        for name, upto, tombstones in (
            ("notes", bounds.horizon, 0),
            ("graves", min(bounds.horizon, bounds.tombstones), bounds.tombstones),
        ):
            while found := self._records(name, upto):
                self._do_records(name, found, CollectionBounds(bounds.horizon, tombstones))
        while self._some_old_changes(bounds.horizon):
            self._step(lambda txn: self._remove_changes(txn, bounds.horizon))
        while self._some_dropped():
            self._step(lambda txn: _empty_dropped(txn, self._db))
        self.collected = max(self.collected, bounds.horizon)

    def _step(self, operation: Operation[None]) -> None:
        """A step of a collection; if writers need room by now, they get it first."""
        if self._steps >= _STEPS_PER_MERGE and self._ripe():
            self._make_room()
        self._steps += 1
        self._run(operation)

    def _records(self, name: str, upto: int) -> dict[bytes, np.ndarray]:
        """Some of the records of ids that are due."""
        self._noted.clear()
        found: dict[bytes, np.ndarray] = {}
        count = 0
        with self._environment.reading() as txn:
            for key, value in txn.cursor(self._db[name]):
                if key[:8] > keys.ascending(upto) or count >= _PASS_IDS:
                    break
                found[key] = versions.get_ids(value)
                count += len(found[key])
        return found

    def _do_records(self, name: str, records: dict[bytes, np.ndarray], bounds: CollectionBounds) -> None:
        by_table: dict[int, list[np.ndarray]] = {}
        for key, ids in records.items():
            by_table.setdefault(int.from_bytes(key[8:12], "big"), []).append(ids)
        for table, parts in by_table.items():
            for ids in _slices(distinct_ids(np.concatenate(parts))):
                self._step(partial(self._collect_ids, table, ids, bounds))

        def done(txn: Txn) -> None:
            for key in records.keys() - self._noted:
                txn.delete(key, db=self._db[name])

        self._step(done)

    def _collect_ids(self, table: int, ids: np.ndarray, bounds: CollectionBounds, txn: Txn) -> None:
        size = versions.find_size(txn, self._db, table)
        if size is None:
            return
        self._keep_bounds(txn)
        before = versions.entries(txn, self._db)
        packed = keys.pack_keys(table, keys.rotated(ids), ids[:, 1], bounds.horizon)
        tombstones = keys.inverted(bounds.tombstones) if bounds.tombstones else None
        cursor = txn.cursor(self._db["versions"])
        for at in range(0, len(packed), keys.KEY):
            gone = _collect_id(cursor, packed[at : at + keys.KEY], tombstones)
            if gone is not None:
                by_key.remove(txn, self._db["by_key"], table, gone)
        removed = before - versions.entries(txn, self._db)
        if removed:
            versions.save_size(txn, self._db, table, versions.Size(size.count - removed, size.newest))

    def _keep_bounds(self, txn: Txn) -> None:
        """Durable with whatever is removed because of them: reads below them stay refused after a restart, and writes
        ignored."""
        txn.put(b"bounds", _BOUNDS.pack(self.bounds.horizon, self.bounds.tombstones), db=self._db["meta"])

    def _some_old_changes(self, horizon: int) -> bool:
        with self._environment.reading() as txn:
            return _old_changes(txn, self._db["changed"], horizon) is not None

    def _remove_changes(self, txn: Txn, horizon: int) -> None:
        table = _old_changes(txn, self._db["changed"], horizon)
        if table is not None:
            self._keep_bounds(txn)
            _remove_range(txn, self._db["changed"], table, table + keys.ascending(horizon + 1), _STEP_KEYS)

    def _some_dropped(self) -> bool:
        with self._environment.reading() as txn:
            return bool(txn.stat(self._db["dropped"])["entries"])


def _slices(ids: np.ndarray) -> Iterator[np.ndarray]:
    """Ids in the order of keys, in pieces for a step."""
    ids = ids[keys.sort_order(ids)]
    for at in range(0, len(ids), _STEP_ROWS):
        yield ids[at : at + _STEP_ROWS]


def _collect_id(cursor: Any, key: bytes, tombstones: bytes | None) -> bytes | None:
    """Of one id remove what lies behind its newest version up to the horizon; that one too if it is an old grave.
    Returns the key of a row of which nothing is left that is seen in order, if it has one."""
    prefix = key[: keys.PREFIX]
    if not cursor.set_range(key) or not cursor.key().startswith(prefix):
        return None
    last, epoch = cursor.value(), cursor.key()[keys.PREFIX :]
    hidden = last[:1] == keys.HIDDEN
    if tombstones is None or hidden or keys.is_visible(last) or epoch < tombstones:
        if cursor.next():
            versions.remove(cursor, prefix)
        if not hidden:
            return None
        newest = bool(cursor.set_range(prefix)) and cursor.key()[keys.PREFIX :] == epoch
        return keys.key_of(last) if newest else None
    versions.remove(cursor, prefix)
    alone = not (cursor.set_range(prefix) and cursor.key().startswith(prefix))  # else there are newer versions
    return keys.key_of(last) if last and alone else None


def _old_changes(txn: Txn, changed: Db, horizon: int) -> bytes | None:
    """The number of a table that has entries of `changed` up to the horizon."""
    cursor = txn.cursor(changed)
    found = cursor.first()
    while found:
        name = cursor.key()
        if name[4:12] <= keys.ascending(horizon):
            return bytes(name[:4])
        found = cursor.set_range((int.from_bytes(name[:4], "big") + 1).to_bytes(4, "big"))
    return None


def _remove_range(txn: Txn, db: Db, first: bytes, stop: bytes, limit: int) -> int:
    cursor = txn.cursor(db)
    removed = 0
    if cursor.set_range(first):
        while removed < limit and cursor.key() and cursor.key() < stop:
            cursor.delete()
            removed += 1
    return removed


def _empty_dropped(txn: Txn, db: dict[str, Db]) -> None:
    """Remove some of what a dropped table has left; when nothing is left, forget that it was there."""
    cursor = txn.cursor(db["dropped"])
    if not cursor.first():
        return
    name = bytes(cursor.key())
    stop = (int.from_bytes(name, "big") + 1).to_bytes(4, "big")
    removed = sum(_remove_range(txn, db[kind], name, stop, _STEP_KEYS) for kind in _BY_TABLE)
    if not removed:
        txn.delete(name, db=db["dropped"])
