"""The order of rows that are read by their keys: of each id of such a table, where its key stands.

    by_key    table, key -> id, and the whole key where it is longer than LMDB allows (see `belvedere.model.long_keys`)

An entry is there as long as somebody may see a row of the id: it is put before the first version of it that goes to the
tree, whenever one does, and removed when no version is left but a hidden one, or with the last, a tombstone; both carry
the key. So a read in order finds every id that may have a row at the epoch it asks for, and looks for the version as
any read does; ids without one are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.served import keys
from belvedere.backend.served.environment import Db, Txn
from belvedere.model.keys import after_prefix
from belvedere.model.long_keys import HASH_BYTES, is_hashed, run_of, stored_key

_TABLE = 4
LIMIT = 511 - _TABLE
_CUT = LIMIT - HASH_BYTES
_ID = 16

Entry = tuple[bytes, bytes]
"""A key and its id."""


def put(txn: Txn, by_key: Db, table: int, row_keys: pa.BinaryArray, ids: np.ndarray) -> None:
    """Entries that are there already are left alone, and cost no page. In the order of keys this is fastest."""
    name, content = keys.table_bytes(table), np.ascontiguousarray(ids).tobytes()
    values = [content[at : at + _ID] for at in range(0, len(content), _ID)]
    names = pc.binary_join_element_wise(name, row_keys, b"").to_numpy(zero_copy_only=False).tolist()
    for at in np.flatnonzero(np.asarray(pc.binary_length(row_keys)) >= _CUT).tolist():
        key = row_keys[at].as_py()
        names[at], values[at] = name + stored_key(key, LIMIT), values[at] + key
    txn.cursor(by_key).putmulti(zip(names, values, strict=True), overwrite=False)


def remove(txn: Txn, by_key: Db, table: int, key: bytes) -> None:
    txn.delete(keys.table_bytes(table) + stored_key(key, LIMIT), db=by_key)


def piece(
    txn: Txn, by_key: Db, table: int, low: bytes, high: bytes | None, count: int, reverse: bool
) -> tuple[list[Entry], bool]:
    """The first entries from `low` up to `high` (from the upper end if `reverse`), `count` of them or some more, in
    order; and whether these are all."""
    cursor, name = txn.cursor(by_key), keys.table_bytes(table)
    found: list[Entry] = []
    stored = _down(cursor, name, low, high) if reverse else _up(cursor, name, low, high)
    # Long keys that agree up to the cut stand together without an order: they come all at once.
    for _, run in groupby(stored, lambda entry: _run(entry[0])):
        if len(found) >= count:
            return found, False
        whole = [(value[_ID:] or key, value[:_ID]) for key, value in run]
        whole.sort(reverse=reverse)
        found += [entry for entry in whole if low <= entry[0] and (high is None or entry[0] < high)]
    return found, True


def _run(stored: bytes) -> bytes:
    return run_of(stored) if is_hashed(stored, LIMIT) else stored


def _up(cursor: Any, name: bytes, low: bytes, high: bytes | None) -> Iterator[Entry]:
    if not cursor.set_range(name + low[:_CUT]):
        return
    for key, value in cursor.iternext():
        stored = key[_TABLE:]
        if key[:_TABLE] != name or (high is not None and stored[:_CUT] > high[:_CUT]):
            return
        yield stored, value


def _down(cursor: Any, name: bytes, low: bytes, high: bytes | None) -> Iterator[Entry]:
    if high is not None and len(high) < _CUT:
        above: bytes | None = name + high
    else:  # behind the run of the bound
        above = after_prefix(name if high is None else name + high[:_CUT])
    there = cursor.set_range(above) if above is not None else False
    if not (cursor.prev() if there else cursor.last()):
        return
    for key, value in cursor.iterprev():
        stored = key[_TABLE:]
        if key[:_TABLE] != name or stored[:_CUT] < low[:_CUT]:
            return
        yield stored, value
