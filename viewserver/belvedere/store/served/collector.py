"""Removes versions that nobody can see any more, in steps of bounded size, each a transaction of its own.

    collect(h, t) ──▶ bounds are durable ──▶ steps ──▶ all notes up to h and graves up to min(h, t) are done: collected

* A note of epoch e <= h: of each of its ids, versions older than the newest one <= h go.
* A grave of epoch e <= min(h, t): the same, and that newest one goes as well if it is a tombstone <= t.
* Entries of `changed` up to h go.
* Tables that were dropped are emptied.

Why nothing is missed: a version v can go when a newer version n <= h exists. If v was there when n was written, n was
noted (it had v behind it); if v was written later, the table had seen a newer epoch by then and v was noted. The note
of either, looked at once the horizon has reached it, removes v. Why it may be interrupted at any point: a step removes
records of ids only together with what they asked for.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass
from typing import Any

from belvedere.errors import BelvedereError
from belvedere.store.served import keys
from belvedere.store.served.environment import Db, Environment, Txn
from belvedere.store.served.versions import Table, get_ids, put_ids, remove

_STEP_IDS = 4096
_STEP_KEYS = 16_384
_BOUNDS = struct.Struct("<QQ")
_RETRY_SECONDS = 1.0
_BY_TABLE = ("versions", "changed", "base_rows")
"""Databases whose keys begin with the number of a table."""


@dataclass(frozen=True)
class Bounds:
    horizon: int
    tombstones: int

    def with_(self, other: Bounds) -> Bounds:
        return Bounds(max(self.horizon, other.horizon), max(self.tombstones, other.tombstones))


class Collector:
    """One per store; a thread of its own does the steps."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._wake = threading.Condition()
        self._stopping = False
        self._wanted = True
        self._collected = 0
        with environment.reading() as txn:
            self.bounds = _bounds(txn, environment.db["meta"])
        self._thread = threading.Thread(target=self._work, name="store-collector", daemon=True)
        self._thread.start()

    @property
    def collected(self) -> int:
        return self._collected

    def collect(self, horizon: int, tombstones: int) -> None:
        """Bounds only grow. Returns when they are durable; the steps follow."""
        wanted = Bounds(horizon, min(tombstones, horizon))

        def save(txn: Txn) -> Bounds:
            bounds = _bounds(txn, self._environment.db["meta"]).with_(wanted)
            txn.put(b"bounds", _BOUNDS.pack(bounds.horizon, bounds.tombstones), db=self._environment.db["meta"])
            return bounds

        saved = self._environment.run(save)
        with self._wake:
            self.bounds = self.bounds.with_(saved)
            self._wanted = True
            self._wake.notify_all()

    def wake(self) -> None:
        """There is something to remove (a dropped table)."""
        with self._wake:
            self._wanted = True
            self._wake.notify_all()

    def close(self) -> None:
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._wanted and not self._stopping:
                    self._wake.wait()
                if self._stopping:
                    return
                self._wanted = False
                bounds = self.bounds
            try:
                self._all(bounds)
            except BelvedereError:
                # No room, or a failing disk: writers are told; here it is enough to try again later.
                with self._wake:
                    self._wanted = True
                    self._wake.wait(_RETRY_SECONDS)

    def _all(self, bounds: Bounds) -> None:
        while self._pending(bounds):
            if self._stopping:
                return
            self._environment.run(lambda txn: self.step(txn, bounds))
        self._collected = max(self._collected, bounds.horizon)

    def _pending(self, bounds: Bounds) -> bool:
        """Looked up without a write transaction: a collector that has nothing to do costs no fsync."""
        db = self._environment.db
        with self._environment.reading() as txn:
            return (
                txn.stat(db["dropped"])["entries"] > 0
                or _first(txn, db["notes"], bounds.horizon) is not None
                or _first(txn, db["graves"], min(bounds.horizon, bounds.tombstones)) is not None
                or self._old_changes(txn, bounds.horizon) is not None
            )

    def step(self, txn: Txn, bounds: Bounds) -> None:
        db = self._environment.db
        sizes = _Sizes(txn, db)
        left = _STEP_IDS
        for name, upto in (("notes", bounds.horizon), ("graves", min(bounds.horizon, bounds.tombstones))):
            tombstones = bounds.tombstones if name == "graves" else 0
            while left > 0 and (found := _first(txn, db[name], upto)) is not None:
                left -= self._record(txn, db[name], found, Bounds(bounds.horizon, tombstones), sizes, left)
        sizes.save()
        if left > 0 and (table := self._old_changes(txn, bounds.horizon)) is not None:
            left -= _remove_range(txn, db["changed"], table, table + keys.ascending(bounds.horizon + 1), left)
        if left > 0:
            _empty_dropped(txn, db)

    def _record(self, txn: Txn, records: Db, name: bytes, bounds: Bounds, sizes: _Sizes, limit: int) -> int:
        """Do what one record of ids asks for, or as much of it as the step has room for."""
        ids = get_ids(txn.get(name, db=records))
        table = int.from_bytes(name[8:12], "big")
        txn.delete(name, db=records)
        put_ids(txn, records, name[:12], ids[limit:])
        ids = ids[:limit]
        cursor = txn.cursor(self._environment.db["versions"])
        packed = keys.keys_of(table, ids, bounds.horizon)
        before = sizes.entries()
        oldest_kept = keys.inverted(bounds.tombstones)
        for at in range(0, len(packed), keys.KEY):
            _collect_id(cursor, packed[at : at + keys.KEY], oldest_kept if bounds.tombstones else None)
        sizes.add(table, sizes.entries() - before)
        return len(ids)

    def _old_changes(self, txn: Txn, horizon: int) -> bytes | None:
        """The number of a table that has entries of `changed` up to the horizon."""
        cursor = txn.cursor(self._environment.db["changed"])
        found = cursor.first()
        while found:
            name = cursor.key()
            if name[4:12] <= keys.ascending(horizon):
                return bytes(name[:4])
            found = cursor.set_range((int.from_bytes(name[:4], "big") + 1).to_bytes(4, "big"))
        return None


def _bounds(txn: Txn, meta: Db) -> Bounds:
    found = txn.get(b"bounds", db=meta)
    return Bounds(*_BOUNDS.unpack(found)) if found is not None else Bounds(0, 0)


def _collect_id(cursor: Any, key: bytes, graves: bytes | None) -> None:
    """Of one id remove what lies behind its newest version up to the horizon; that one too if it is an old grave."""
    prefix = key[: keys.PREFIX]
    if not cursor.set_range(key) or not cursor.key().startswith(prefix):
        return
    if (graves is not None and cursor.key()[keys.PREFIX :] >= graves and not cursor.value()) or cursor.next():
        remove(cursor, prefix)


def _first(txn: Txn, records: Db, upto: int) -> bytes | None:
    """The first record of ids of an epoch `<= upto`."""
    cursor = txn.cursor(records)
    if not cursor.first() or cursor.key()[:8] > keys.ascending(upto):
        return None
    return bytes(cursor.key())


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


class _Sizes:
    """How many versions a step removed, by table number, for the counts that `usage` shows."""

    def __init__(self, txn: Txn, db: dict[str, Db]) -> None:
        self._txn, self._db = txn, db
        self._removed: dict[int, int] = {}

    def entries(self) -> int:
        found: int = self._txn.stat(self._db["versions"])["entries"]
        return found

    def add(self, table: int, change: int) -> None:
        self._removed[table] = self._removed.get(table, 0) + change

    def save(self) -> None:
        changed = {table: change for table, change in self._removed.items() if change}
        if not changed:
            return
        for name, _ in list(self._txn.cursor(self._db["tables"])):
            table = Table.find(self._txn, self._db, name[1:].decode())
            if table is not None and table.number in changed:
                found = Table(table.number, table.count + changed[table.number], table.newest)
                found.save(self._txn, self._db, name[1:].decode())


__all__ = ["Bounds", "Collector"]
