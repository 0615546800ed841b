"""Versioned tables in LMDB: what one transaction reads and writes of them.

    tables    name -> number (uint32), versions in it (int64), newest epoch written (uint64)
    versions  the key of `keys.py` -> b"" for a tombstone, else a 1 and the value
    changed   table, epoch, digest of the ids -> the ids of one logged write
    notes     epoch, table, digest -> ids of which versions are superfluous once the horizon has reached this epoch
    graves    epoch, table, digest -> ids that have a tombstone of this epoch

A write looks at the versions behind the one it puts, since they are on the page it has in its hands, and removes those
that the horizon has made superfluous: keys that change often never grow. What it leaves behind is in a note or a grave,
so `collector.py` need not walk tables. No note is made of an id that has only this one version. That an id has newer
versions already can only be if the table has seen a newer epoch; all ids of such a write are noted.

Records of ids are named by a digest of their content: a write that is repeated writes the same records again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from belvedere.errors import DataError
from belvedere.store.seam import TableWrite
from belvedere.store.served import keys
from belvedere.store.served.environment import MAX_NAME, Db, Txn

ID = 16
"""Bytes of an id in a record of ids."""
_RECORD_IDS = 8192
"""Ids in one record: values of LMDB that span many pages need as many pages in a row."""
_WRITE_ROWS = 1 << 16
"""Rows that one transaction, and one message, holds at most: the pages that it changes are in memory until its end."""
_WRITE_BYTES = 64 << 20
_PIECE_ROWS = 8192
_PIECE_BYTES = 4 << 20
_FIRST_PIECE = 128
_TABLE = struct.Struct("<IqQ")
_WORD = struct.Struct(">Q")


@dataclass(frozen=True)
class Table:
    number: int
    count: int
    newest: int

    @staticmethod
    def find(txn: Txn, db: dict[str, Db], name: str) -> Table | None:
        found = txn.get(table_name(name), db=db["tables"])
        return None if found is None else Table(*_TABLE.unpack(found))

    @staticmethod
    def open(txn: Txn, db: dict[str, Db], name: str) -> Table:
        """The table, made now if it is not there. Numbers are never used again."""
        table = Table.find(txn, db, name)
        if table is None:
            table = Table(next_number(txn, db), 0, 0)
            table.save(txn, db, name)
        return table

    def save(self, txn: Txn, db: dict[str, Db], name: str) -> None:
        txn.put(table_name(name), _TABLE.pack(self.number, self.count, self.newest), db=db["tables"])


def next_number(txn: Txn, db: dict[str, Db]) -> int:
    """A number for a table, versioned or base. None is given twice."""
    found = txn.get(b"tables", db=db["meta"])
    number: int = 1 if found is None else _WORD.unpack(found)[0] + 1
    txn.put(b"tables", _WORD.pack(number), db=db["meta"])
    return number


def table_name(name: str) -> bytes:
    """LMDB has no empty keys, hence the prefix."""
    encoded = b"t" + name.encode()
    if len(encoded) > MAX_NAME:
        raise DataError(f"table name {name[:40]!r}… has {len(encoded) - 1} bytes, the store takes {MAX_NAME - 1}")
    return encoded


# --- reading


def read(txn: Txn, versions: Db, table: int, ids: np.ndarray, below: int) -> pa.BinaryArray:
    """In the order of keys, with one cursor: neighbours are on one page."""
    count = len(ids)
    found: list[bytes | None] = [None] * count
    if below <= 0:
        return pa.array(found, pa.binary())
    order = keys.sort_order(ids)
    wanted = keys.keys_of(table, ids[order], below - 1)
    cursor = txn.cursor(versions)
    seek, key, value = cursor.set_range, cursor.key, cursor.value
    starts = range(0, count * keys.KEY, keys.KEY)
    for at, start in zip(order.tolist(), starts, strict=True):
        if seek(wanted[start : start + keys.KEY]) and key()[: keys.PREFIX] == wanted[start : start + keys.PREFIX]:
            stored = value()
            if stored:
                found[at] = stored[1:]
    return pa.array(found, pa.binary())


@dataclass
class Scan:
    """A scan that goes on where its last piece ended, so that each piece can have a transaction of its own."""

    key: bytes
    stop: bytes
    below: int
    rows: int = _FIRST_PIECE

    def piece(self, txn: Txn, versions: Db) -> tuple[np.ndarray, pa.BinaryArray] | None:
        """The next rows (perhaps none); None at the end."""
        cursor = txn.cursor(versions)
        if not cursor.set_range(self.key):
            return None
        items: list[tuple[bytes, bytes]] = list(islice(cursor.iternext(), self.rows))
        ended = len(items) < self.rows
        if items[-1][0] >= self.stop:
            ended = True
            items = [item for item in items if item[0] < self.stop]
        if not items:
            return None
        found = np.frombuffer(b"".join([key for key, _ in items]), np.uint8).reshape(-1, keys.KEY)
        chosen, complete = _newest(found, self.below)
        values = [items[at][1] for at in chosen.tolist()]
        rows = np.fromiter(map(bool, values), np.bool_, len(values))
        self._advance(items, complete, ended)
        return keys.ids_of(found[chosen[rows]]), pa.array([value[1:] for value in values if value], pa.binary())

    def _advance(self, items: list[tuple[bytes, bytes]], complete: bool, ended: bool) -> None:
        """Behind the last id if its version was found, else to where that version is."""
        last = items[-1][0][: keys.PREFIX]
        if ended:
            self.key = self.stop
        elif complete:
            self.key = (int.from_bytes(last, "big") + 1).to_bytes(keys.PREFIX, "big")
        else:
            self.key = last + keys.inverted(self.below - 1)
        mean = 1 + sum(len(value) for _, value in items) // len(items)
        self.rows = max(1, min(_PIECE_ROWS, 2 * self.rows, _PIECE_BYTES // mean))


def _newest(found: np.ndarray, below: int) -> tuple[np.ndarray, bool]:
    """Positions of the newest version `< below` of each id, and whether the last id has one among these keys."""
    prefixes = np.ascontiguousarray(found[:, : keys.PREFIX])
    epochs = np.ascontiguousarray(found[:, keys.PREFIX :]).view(">u8").astype(np.uint64)[:, 0]
    visible = epochs >= np.uint64(2**64 - below) if below > 0 else np.zeros(len(found), np.bool_)
    at = np.flatnonzero(visible)
    if not len(at):
        return at, False
    first = np.ones(len(at), np.bool_)
    first[1:] = (prefixes[at[1:]] != prefixes[at[:-1]]).any(axis=1)
    return at[first], bool((prefixes[at[-1]] == prefixes[-1]).all())


def changed(txn: Txn, db: Db, table: int, after: int, upto: int) -> tuple[int, np.ndarray] | None:
    """The first epoch in `(after, upto]` that has logged writes, and their ids."""
    prefix = keys.table_bytes(table)
    cursor = txn.cursor(db)
    if not cursor.set_range(prefix + keys.ascending(after + 1)):
        return None
    first = cursor.key()
    epoch = _WORD.unpack_from(first, len(prefix))[0] if first.startswith(prefix) else upto + 1
    if epoch > upto:
        return None
    content = []
    while cursor.key().startswith(first[:12]):
        content.append(cursor.value())
        cursor.next()
    found = np.frombuffer(b"".join(content), np.uint64).reshape(-1, 2)
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    fresh = np.ones(len(found), np.bool_)
    fresh[1:] = (found[1:] != found[:-1]).any(axis=1)
    return epoch, found[fresh]


# --- writing


def write(txn: Txn, db: dict[str, Db], epoch: int, write: TableWrite, horizon: int) -> None:
    """Put the versions of one table, trim what the horizon made superfluous, and note what will be."""
    if not len(write.ids):
        return
    table = Table.open(txn, db, write.table)
    order = keys.sort_order(write.ids)
    ids = write.ids[order]
    packed = keys.keys_of(table.number, ids, epoch)
    wanted = [packed[at : at + keys.KEY] for at in range(0, len(packed), keys.KEY)]
    content = keys.cells(write.values)
    values = [content[at] for at in order.tolist()]
    before = txn.stat(db["versions"])["entries"]
    cursor = txn.cursor(db["versions"])
    if epoch < table.newest or epoch <= horizon:
        cursor.putmulti(zip(wanted, values, strict=True))
        noted = list(range(len(wanted)))
    else:
        noted = _put(cursor, wanted, values, keys.inverted(horizon))
    graves = [at for at, value in enumerate(values) if not value] if write.values.null_count else []
    count = table.count + txn.stat(db["versions"])["entries"] - before
    Table(table.number, count, max(table.newest, epoch)).save(txn, db, write.table)
    by_epoch = keys.ascending(epoch) + keys.table_bytes(table.number)
    put_ids(txn, db["notes"], by_epoch, ids[noted])
    put_ids(txn, db["graves"], by_epoch, ids[graves])
    if write.logged:
        put_ids(txn, db["changed"], keys.table_bytes(table.number) + keys.ascending(epoch), ids)


def _put(cursor: Any, wanted: Sequence[bytes], values: Sequence[bytes], bound: bytes) -> list[int]:
    """Put newest versions; returns the positions of those that have older ones behind them."""
    put, following, key = cursor.put, cursor.next, cursor.key
    noted: list[int] = []
    for at, (name, value) in enumerate(zip(wanted, values, strict=True)):
        put(name, value)
        if following() and key()[: keys.PREFIX] == name[: keys.PREFIX]:
            noted.append(at)
            trim(cursor, name[: keys.PREFIX], bound)
    return noted


def trim(cursor: Any, prefix: bytes, bound: bytes) -> None:
    """From the cursor on, keep of an id what is newer than the horizon, the newest of the rest, and no more."""
    while cursor.key()[keys.PREFIX :] < bound:
        if not cursor.next() or not cursor.key().startswith(prefix):
            return
    if cursor.next():
        remove(cursor, prefix)


def remove(cursor: Any, prefix: bytes) -> None:
    """Remove keys with this prefix from the cursor on."""
    while cursor.key().startswith(prefix):
        cursor.delete()


def put_ids(txn: Txn, db: Db, prefix: bytes, ids: np.ndarray) -> None:
    for at in range(0, len(ids), _RECORD_IDS):
        content = np.ascontiguousarray(ids[at : at + _RECORD_IDS]).tobytes()
        txn.put(prefix + xxhash.xxh3_64_digest(content), content, db=db)


def get_ids(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint64).reshape(-1, 2)


def _pieces(write: TableWrite, rows: int) -> Iterator[TableWrite]:
    """A write in pieces of at most so many rows."""
    for at in range(0, len(write.ids), rows):
        yield TableWrite(write.table, write.ids[at : at + rows], write.values.slice(at, rows), write.logged)


def groups(writes: Sequence[TableWrite]) -> Iterator[list[TableWrite]]:
    """Writes in groups that fit into a transaction and a message."""
    group: list[TableWrite] = []
    room = _WRITE_ROWS
    for write in writes:
        rows = max(1, min(_WRITE_ROWS, _WRITE_BYTES * len(write.ids) // (write.values.nbytes + 1)))
        for piece in _pieces(write, rows):
            if len(piece.ids) > room and group:
                yield group
                group, room = [], _WRITE_ROWS
            group.append(piece)
            room -= len(piece.ids)
    if group:
        yield group
