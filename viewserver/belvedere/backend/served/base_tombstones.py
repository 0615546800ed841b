"""Tombstones of base rows, by the time when they came: they are removed when nothing that they hide can come any more.

    base_graves   when it came (microseconds), table number, digest of the encoded key -> the encoded key

A tombstone is noted in the transaction that writes it. A row that lives again, or has died again since, leaves its note
behind, which is then of no consequence: `bury` looks at the row. Rows that died before there were notes get theirs when
they are written next; a walk over all tables at the start would cost more than they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import xxhash

from belvedere.backend.served.environment import Db, Txn
from belvedere.backend.served.keys import table_bytes
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.sql.catalog import TableDef

_WORD = 8
_TABLE = 4


def note(txn: Txn, db: dict[str, Db], table: int, keys: Sequence[bytes], came: np.ndarray) -> None:
    """The rows with these (encoded) keys are tombstones, which came at these times."""
    number = table_bytes(table)
    graves = zip(keys, came.tolist(), strict=True)
    found = [(_time(when) + number + xxhash.xxh3_128_digest(key), key) for key, when in graves]
    txn.cursor(db["base_graves"]).putmulti(found)


def due(txn: Txn, db: dict[str, Db], before: int) -> bool:
    """Whether any came before this time."""
    cursor = txn.cursor(db["base_graves"])
    return bool(cursor.first() and cursor.key() < _time(before))


def bury(
    txn: Txn, db: dict[str, Db], before: int, limit: int, definition: Callable[[Txn, int], TableDef | None]
) -> None:
    """Remove some of those that came before this time, and their notes."""
    by_table: dict[bytes, list[bytes]] = {}
    cursor = txn.cursor(db["base_graves"])
    more = cursor.first()
    while more and limit and cursor.key() < _time(before):
        by_table.setdefault(bytes(cursor.key()[_WORD : _WORD + _TABLE]), []).append(bytes(cursor.value()))
        more = cursor.delete() and bool(cursor.key())
        limit -= 1
    for number, keys in by_table.items():
        table = definition(txn, int.from_bytes(number, "big"))
        if table is not None:  # else it was dropped, and its rows go with it
            _remove(txn, db["base_rows"], table, [number + key for key in keys], before)


def _remove(txn: Txn, rows: Db, table: TableDef, keys: Sequence[bytes], before: int) -> None:
    found = [(key, row) for key in keys if (row := txn.get(key, db=rows)) is not None]
    if not found:
        return
    packed = DeltaTable(table).unpack(pa.array([row for _, row in found], pa.binary()))
    for at in np.flatnonzero(packed.dead & (packed.came < before)).tolist():
        txn.delete(found[at][0], db=rows)


def _time(microseconds: int) -> bytes:
    return max(microseconds, 0).to_bytes(_WORD, "big")
