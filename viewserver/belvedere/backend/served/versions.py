"""Versioned tables in LMDB: what one transaction reads and writes of them.

    tables    name -> number (uint32)
    sizes     number -> versions in the tree (int64), newest epoch in the tree (int64)
    shapes    number -> what the rows of a view are made of (JSON)
    runs      number of the run -> a write as it came, until all of it is in the tree (see `memtable.py`)
    versions  the key of `keys.py` -> the value or a tombstone as `keys.cells` makes them: the tree
    by_key    see `by_key.py`
    changed   table, epoch, digest of the ids -> the ids of one logged write
    notes     epoch, table, digest -> ids of which versions are superfluous once the horizon has reached this epoch
    graves    epoch, table, digest -> ids that have a tombstone, of this epoch or an older one

Whoever puts a version into the tree removes what the horizon has made superfluous behind it: keys that change often
never grow, however far behind collections are. It seeks the newest version that the horizon has reached, and does not
walk there: a key may have very many above it. What is left is in a note or a grave, so `compaction.py` need not walk
tables. No note is made of an id that has only this one version. That an id has newer versions in the tree can only be
if the tree has seen a newer epoch; all such rows are noted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any

import numpy as np
import xxhash

from belvedere.backend.row_shapes import pack_shape, unpack_shape
from belvedere.backend.seam import RowShape, other_shape
from belvedere.backend.served import keys
from belvedere.backend.served.environment import MAX_NAME, Db, Txn
from belvedere.backend.served.memtable import MemtableRows
from belvedere.errors import DataError

_RECORD_IDS = 8192
"""Ids in one record: values of LMDB that span many pages need as many pages in a row."""
_PIECE_ROWS = 8192
_PIECE_BYTES = 4 << 20
_FIRST_PIECE = 128
_SIZE = struct.Struct("<qq")
_NUMBER = 4
_WORD = struct.Struct(">Q")

Dbs = dict[str, Db]


# --- tables


def find_table(txn: Txn, db: Dbs, name: str) -> int | None:
    found = txn.get(table_name(name), db=db["tables"])
    return None if found is None else int.from_bytes(found, "big")


def open_table(txn: Txn, db: Dbs, name: str) -> int:
    """The number of the table, which is made now if it is not there."""
    number = find_table(txn, db, name)
    if number is None:
        number = next_number(txn, db)
        txn.put(table_name(name), number.to_bytes(_NUMBER, "big"), db=db["tables"])
        save_size(txn, db, number, Size(0, 0))
    return number


def drop_table(txn: Txn, db: Dbs, name: str) -> int | None:
    """The name is free at once; what is in the tree goes later, step by step."""
    number = find_table(txn, db, name)
    if number is not None:
        txn.put(keys.table_bytes(number), b"", db=db["dropped"])
        txn.delete(keys.table_bytes(number), db=db["sizes"])
        txn.delete(keys.table_bytes(number), db=db["shapes"])
        txn.delete(table_name(name), db=db["tables"])
    return number


def next_number(txn: Txn, db: Dbs) -> int:
    """A number for a table, versioned or base. None is given twice."""
    return count_up(txn, db, b"tables")


def count_up(txn: Txn, db: Dbs, name: bytes) -> int:
    found = txn.get(name, db=db["meta"])
    number: int = 1 if found is None else _WORD.unpack(found)[0] + 1
    txn.put(name, _WORD.pack(number), db=db["meta"])
    return number


def table_name(name: str) -> bytes:
    """LMDB has no empty keys, hence the prefix."""
    encoded = b"t" + name.encode()
    if len(encoded) > MAX_NAME:
        raise DataError(f"table name {name[:40]!r}… has {len(encoded) - 1} bytes, the store takes {MAX_NAME - 1}")
    return encoded


@dataclass(frozen=True)
class Size:
    count: int
    newest: int


def find_size(txn: Txn, db: Dbs, table: int) -> Size | None:
    """None if the table was dropped."""
    found = txn.get(keys.table_bytes(table), db=db["sizes"])
    return None if found is None else Size(*_SIZE.unpack(found))


def save_size(txn: Txn, db: Dbs, table: int, size: Size) -> None:
    txn.put(keys.table_bytes(table), _SIZE.pack(size.count, size.newest), db=db["sizes"])


def find_shape(txn: Txn, db: Dbs, table: int) -> RowShape | None:
    found = txn.get(keys.table_bytes(table), db=db["shapes"])
    return None if found is None else unpack_shape(found.decode())


def keep_shape(txn: Txn, db: Dbs, table: int, name: str, shape: RowShape) -> None:
    """With the first write that says it; another one is refused."""
    text, number = pack_shape(shape).encode(), keys.table_bytes(table)
    known = txn.get(number, db=db["shapes"])
    if known is None:
        txn.put(number, text, db=db["shapes"])
    elif known != text:
        raise other_shape(name, unpack_shape(known.decode()), shape)


def raise_newest(txn: Txn, db: Dbs, table: int, epoch: int) -> None:
    size = find_size(txn, db, table)
    if size is not None and size.newest < epoch:
        save_size(txn, db, table, Size(size.count, epoch))


def any_cell(txn: Txn, db: Dbs, table: int) -> bytes | None:
    """What the tree has for one version of a table."""
    cursor = txn.cursor(db["versions"])
    there = cursor.set_range(keys.table_bytes(table)) and cursor.key().startswith(keys.table_bytes(table))
    return cursor.value() if there else None


def entries(txn: Txn, db: Dbs) -> int:
    found: int = txn.stat(db["versions"])["entries"]
    return found


# --- reading the tree


def read(txn: Txn, db: Dbs, table: int, ids: np.ndarray, below: int, after: np.ndarray | None) -> list[bytes | None]:
    """Of each id the newest version `< below` as it is stored; None where there is none, or none after `after`.

    In the order of keys, with one cursor: neighbours are on one page."""
    count = len(ids)
    found: list[bytes | None] = [None] * count
    order = keys.sort_order(ids)
    high = keys.rotated(ids[order])
    wanted = keys.pack_keys(table, high, ids[order, 1], below - 1)
    cursor = txn.cursor(db["versions"])
    seek, key, value = cursor.set_range, cursor.key, cursor.value
    starts = range(0, count * keys.KEY, keys.KEY)
    for at, start in zip(order.tolist(), starts, strict=True):
        if (
            seek(wanted[start : start + keys.KEY])
            and key()[: keys.PREFIX] == wanted[start : start + keys.PREFIX]
            and (after is None or key()[keys.PREFIX :] < keys.inverted(int(after[at])))
        ):
            found[at] = value()
    return found


def epochs(txn: Txn, db: Dbs, table: int, ids: np.ndarray, below: int) -> np.ndarray:
    """Of each id the epoch of the newest version `< below`; 0 where there is none."""
    found = np.zeros(len(ids), np.int64)
    order = keys.sort_order(ids)
    wanted = keys.pack_keys(table, keys.rotated(ids[order]), ids[order, 1], below - 1)
    cursor = txn.cursor(db["versions"])
    for at, start in zip(order.tolist(), range(0, len(ids) * keys.KEY, keys.KEY), strict=True):
        if cursor.set_range(wanted[start : start + keys.KEY]):
            key = bytes(cursor.key())
            if key[: keys.PREFIX] == wanted[start : start + keys.PREFIX]:
                found[at] = keys.unpack_keys(key)[2][0]
    return found


@dataclass
class VersionScan:
    """A scan of the tree that goes on where its last piece ended: each piece can have a transaction of its own."""

    key: bytes
    stop: bytes
    below: int
    rows: int = _FIRST_PIECE
    looked_at: int = 0
    """Versions, those that are too new among them."""

    def piece(self, txn: Txn, versions: Db) -> tuple[MemtableRows, bytes]:
        """Of the next ids the newest versions `< below`, tombstones included, and the first key that is not among
        them: `stop` at the end."""
        cursor = txn.cursor(versions)
        items: list[tuple[bytes, bytes]] = []
        stop = self.stop
        if cursor.set_range(self.key):
            # Not beyond the end: what a server has of a slice are runs of a bucket or two, and its neighbours read on.
            items = list(islice(takewhile(lambda item: item[0] < stop, cursor.iternext()), self.rows))
        ended = len(items) < self.rows
        self.looked_at += len(items)
        high, low, epochs = keys.unpack_keys(b"".join([key for key, _ in items]))
        at, complete = _newest(high, low, epochs, self.below)
        self._advance(items, complete, ended)
        return MemtableRows(high[at], low[at], epochs[at], [items[i][1] for i in at.tolist()]), self.key

    def _advance(self, items: list[tuple[bytes, bytes]], complete: bool, ended: bool) -> None:
        """Behind the last id if its version was found, else to where that version is."""
        if ended:
            self.key = self.stop
            return
        last = items[-1][0][: keys.PREFIX]
        if complete:
            self.key = (int.from_bytes(last, "big") + 1).to_bytes(keys.PREFIX, "big")
        else:
            self.key = last + keys.inverted(self.below - 1)
        mean = 1 + sum(len(value) for _, value in items) // len(items)
        self.rows = max(1, min(_PIECE_ROWS, 2 * self.rows, _PIECE_BYTES // mean))


def _newest(high: np.ndarray, low: np.ndarray, epochs: np.ndarray, below: int) -> tuple[np.ndarray, bool]:
    """Positions of the newest version `< below` of each id, and whether the last id has one among these keys."""
    at = np.flatnonzero(epochs < below)
    if not len(at):
        return at, False
    first = np.ones(len(at), np.bool_)
    first[1:] = (high[at[1:]] != high[at[:-1]]) | (low[at[1:]] != low[at[:-1]])
    return at[first], bool(high[at[-1]] == high[-1] and low[at[-1]] == low[-1])


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
    found = get_ids(b"".join(content))
    found = found[np.lexsort((found[:, 1], found[:, 0]))]
    fresh = np.ones(len(found), np.bool_)
    fresh[1:] = (found[1:] != found[:-1]).any(axis=1)
    return epoch, found[fresh]


# --- writing the tree


def put_rows(txn: Txn, db: Dbs, table: int, rows: MemtableRows, horizon: int, newest: int) -> list[bytes]:
    """Put versions (in the order of keys), trim what the horizon made superfluous, and note what will be. `newest`: the
    newest epoch that the tree had before these rows, and others that come with them, were put. Returns the keys of its
    notes and graves."""
    size = find_size(txn, db, table)
    if size is None or not len(rows):
        return []
    packed = keys.pack_keys(table, rows.high, rows.low, rows.epochs)
    wanted = [packed[at : at + keys.KEY] for at in range(0, len(packed), keys.KEY)]
    before = entries(txn, db)
    noted = (rows.epochs < newest) | (rows.epochs <= horizon)
    noted[:-1] |= (rows.high[1:] == rows.high[:-1]) & (rows.low[1:] == rows.low[:-1])
    noted[-1] = True  # its older versions may come with the next rows
    noted[_put(txn.cursor(db["versions"]), wanted, rows.cells, keys.inverted(horizon))] = True
    kinds = keys.kinds(rows.cells)
    noted |= kinds == keys.HIDDEN[0]  # it may be the last that its place in the order was kept for
    buried = kinds == keys.GONE[0]
    save_size(txn, db, table, Size(size.count + entries(txn, db) - before, size.newest))
    ids = rows.ids()
    made: list[bytes] = []
    for name, mask in (("notes", noted), ("graves", buried)):
        if mask.any():
            prefix = keys.ascending(int(rows.epochs[mask].max())) + keys.table_bytes(table)
            made += put_ids(txn, db[name], prefix, ids[mask])
    return made


def _put(cursor: Any, wanted: Sequence[bytes], cells: Sequence[bytes], bound: bytes) -> list[int]:
    """Returns the positions of those that have older versions behind them."""
    put, following, key, seek = cursor.put, cursor.next, cursor.key, cursor.set_range
    noted: list[int] = []
    for at, (name, cell) in enumerate(zip(wanted, cells, strict=True)):
        put(name, cell)
        if following():
            behind, prefix = key(), name[: keys.PREFIX]
            if behind[: keys.PREFIX] == prefix:
                noted.append(at)
                reached = behind[keys.PREFIX :] >= bound or (seek(prefix + bound) and key().startswith(prefix))
                if reached and following():
                    remove(cursor, prefix)
    return noted


def remove(cursor: Any, prefix: bytes) -> None:
    """Remove keys with this prefix from the cursor on."""
    while cursor.key().startswith(prefix):
        cursor.delete()


def put_ids(txn: Txn, db: Db, prefix: bytes, ids: np.ndarray) -> list[bytes]:
    """Records of ids are named by a digest of their content: a write that is repeated writes the same records again.
    Returns their keys."""
    made = []
    for at in range(0, len(ids), _RECORD_IDS):
        content = np.ascontiguousarray(ids[at : at + _RECORD_IDS]).tobytes()
        made.append(prefix + xxhash.xxh3_64_digest(content))
        txn.put(made[-1], content, db=db)
    return made


def get_ids(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint64).reshape(-1, 2)
