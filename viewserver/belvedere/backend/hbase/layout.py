"""How a pool lies in its namespace: tables, families, row keys. Everything that two versions of this program must agree
on is here, and in `packing.py`.

    _meta    d   documents; what tables there are; the bounds of collection
             l   the log of changes and of tombstones
    _state   c   slot (1) tag (8) bucket's low byte (1) id (16): state; of views: the key of an id
             v   the same of tables that are read at older epochs: DELTA, quarantine, what is committed
    _keys    c   tag (8) key: ids of keyed tables that are no views (DELTA)
    _input   i   "i" source: one row per source, the index of INPUT
             p   "p" writer number: payloads
    NAME.N   c   key: real columns and `_`, of version N of the view NAME
             h   key: a column per epoch, with the row before it

A tag is a random number for each table, given when it is first written: the name of a dropped table is free at once.
The slot is the bucket's high byte: `_state` is split at slots when it is made, has so many regions whatever views there
are, and still keeps the rows of a table and a bucket together, in the order of buckets and ids.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase.descriptors import Family, TableDescriptor, TableName
from belvedere.errors import DataError

META, STATE, KEYS, INPUT = "_meta", "_state", "_keys", "_input"
DOCUMENT_FAMILY, LOG_FAMILY = "d", "l"
CURRENT, HISTORY, PAST = "c", "h", "v"
INDEX_FAMILY, PAYLOAD_FAMILY = "i", "p"
LIVENESS = b"_"
BUCKETS = 16_384
SLOT_BUCKETS = 256
VERSIONS = 4
"""At most two epochs are uncommitted, and a read may be one epoch late: one version below it, and three above."""
_ALL_VERSIONS = 2**31 - 1
TAG_BYTES, ID_BYTES = 8, 16
MAX_KEY = 32_000
"""HBase's limit for a row is 32,767."""
_PURGE_DELAY = {"hbase.hstore.time.to.purge.deletes": "86400000"}
"""Delete markers stay for a day: a late write below one of them is not seen. A bound on late writers, not a fence."""
_STATE_REGIONS = 16
_SAFE = re.compile(r"[A-Za-z0-9_-]")
_VIEW = re.compile(r"view (.*) (\d+)", re.DOTALL)


def pool_tables(namespace: str, history_seconds: int) -> list[tuple[TableDescriptor, list[bytes]]]:
    """Tables that every pool has, with the keys at which they are split."""
    current = _family(CURRENT, VERSIONS=str(VERSIONS))
    ttl = {"TTL": str(history_seconds), "MIN_VERSIONS": str(VERSIONS), "KEEP_DELETED_CELLS": "FALSE"}
    past = _family(PAST, VERSIONS=str(_ALL_VERSIONS), **ttl)
    one = {"VERSIONS": "1"}
    splits = [bytes([slot]) for slot in range(0, BUCKETS // SLOT_BUCKETS, BUCKETS // SLOT_BUCKETS // _STATE_REGIONS)]
    made: Mapping[str, tuple[tuple[Family, ...], list[bytes]]] = {
        META: ((_family(DOCUMENT_FAMILY, **one), Family(LOG_FAMILY, one)), []),
        STATE: ((current, past), splits[1:]),
        KEYS: ((_family(CURRENT, **one),), []),
        INPUT: ((Family(INDEX_FAMILY, one), Family(PAYLOAD_FAMILY, one)), []),
    }
    return [(TableDescriptor(TableName(namespace, name), families), at) for name, (families, at) in made.items()]


def view_descriptor(name: TableName, history_seconds: int) -> TableDescriptor:
    history = _family(HISTORY, VERSIONS="1", TTL=str(history_seconds))
    return TableDescriptor(name, (_family(CURRENT, VERSIONS=str(VERSIONS)), history))


def _family(name: str, **attributes: str) -> Family:
    return Family(name, attributes, _PURGE_DELAY)


def view_table_name(namespace: str, table: str) -> TableName:
    """`view spend 3` is `spend.3`; what HBase does not allow in a name is written as a dot and two digits."""
    named = _VIEW.fullmatch(table)
    name, version = (named[1], named[2]) if named is not None else (table, "0")
    safe = "".join(
        letter if _SAFE.fullmatch(letter) else "".join(f".{byte:02x}" for byte in letter.encode()) for letter in name
    )
    return TableName(namespace, f"{'_' if safe[:1] in ('', '-', '.') else ''}{safe}.{version}")


def state_rows(tag: bytes, ids: np.ndarray) -> pa.BinaryArray:
    """Where the rows of these ids are in `_state`."""
    out = np.empty((len(ids), 2 + TAG_BYTES + ID_BYTES), np.uint8)
    bucket = ids[:, 0] % np.uint64(BUCKETS)
    out[:, 0] = bucket // SLOT_BUCKETS
    out[:, 1 : 1 + TAG_BYTES] = np.frombuffer(tag, np.uint8)
    out[:, 1 + TAG_BYTES] = bucket % SLOT_BUCKETS
    out[:, 2 + TAG_BYTES :] = np.ascontiguousarray(ids).astype(">u8").view(np.uint8).reshape(-1, ID_BYTES)
    return fixed_binary(out)


def state_ids(rows: pa.BinaryArray) -> np.ndarray:
    """Of rows of `_state`."""
    data = np.frombuffer(rows.buffers()[2], np.uint8) if len(rows) else np.empty(0, np.uint8)
    width = 2 + TAG_BYTES + ID_BYTES
    begin = np.frombuffer(rows.buffers()[1], np.int32)[rows.offset] if len(rows) else 0
    table = data[begin : begin + len(rows) * width].reshape(-1, width)
    return np.ascontiguousarray(table[:, 2 + TAG_BYTES :]).view(">u8").astype(np.uint64)


def state_ranges(tag: bytes, first: int, stop: int) -> list[tuple[bytes, bytes]]:
    """The ranges of `_state` with the buckets of a table, in their order."""
    found = []
    while first < stop:
        slot, low = divmod(first, SLOT_BUCKETS)
        end = min(stop, (slot + 1) * SLOT_BUCKETS)
        high = end - slot * SLOT_BUCKETS
        begin = bytes([slot]) + tag
        found.append((begin + bytes([low]), after(begin) if high == SLOT_BUCKETS else begin + bytes([high])))
        first = end
    return found


def key_rows(tag: bytes, keys: pa.BinaryArray) -> pa.BinaryArray:
    """Where these keys are in `_keys`."""
    return pc.binary_join_element_wise(pa.scalar(tag, pa.binary()), keys, b"")


def after(prefix: bytes) -> bytes:
    """The first row behind all that begin with this; it does not consist of ff alone."""
    number = int.from_bytes(prefix, "big") + 1
    return number.to_bytes(len(prefix), "big")


def check_keys(table: str, keys: pa.BinaryArray) -> None:
    longest = max((len(key) for key in keys.to_pylist()), default=0) if keys.nbytes > MAX_KEY else 0
    if longest > MAX_KEY:
        raise DataError(f"table {table!r}: a key of {longest} bytes; hbase has room for {MAX_KEY}")


def fixed_binary(table: np.ndarray) -> pa.BinaryArray:
    """Rows of bytes as binary values."""
    count, width = table.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(table)])


def word(number: int) -> bytes:
    """Numbers that sort as bytes."""
    return number.to_bytes(8, "big")
