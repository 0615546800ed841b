"""Keys of versioned tables: where a version of an id is, as bytes that sort the way tables are read.

    table (uint32) | id[0] rotated right by 14 bits (uint64) | id[1] (uint64) | 2**64 - 1 - epoch (uint64)    28 bytes

All big-endian. The rotation brings the bucket, `id[0] % 16384`, to the front: a range of buckets is a range of keys,
and within a bucket ids keep the order of `(id[0], id[1])`. The epoch is inverted: of an id the newest version comes
first, and the first key at or behind the key of epoch e is the newest version up to e.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pyarrow as pa

KEY = 28
PREFIX = 20
"""Bytes of a key without the epoch: one id of one table."""
_TABLE = 4
_BUCKET_BITS = 14
_REST = 64 - _BUCKET_BITS
_WORD = struct.Struct(">Q")
_NUMBER = struct.Struct(">I")
_LAST = 2**64 - 1

ROW = b"\1"
"""First byte of a stored value; a tombstone is stored as no bytes at all."""
TOMBSTONE = b""


def inverted(epoch: int) -> bytes:
    """Sorts newer epochs first."""
    return _WORD.pack(_LAST - min(max(epoch, 0), _LAST))


def ascending(epoch: int) -> bytes:
    return _WORD.pack(min(max(epoch, 0), _LAST))


def table_bytes(number: int) -> bytes:
    return _NUMBER.pack(number)


def bucket_key(table: int, bucket: int) -> bytes:
    """Before every key of this bucket and behind every key of the one before."""
    return _NUMBER.pack(table) + _WORD.pack(bucket << _REST) if bucket >> _BUCKET_BITS == 0 else _NUMBER.pack(table + 1)


def rotated(ids: np.ndarray) -> np.ndarray:
    low = ids[:, 0]
    return (low >> np.uint64(_BUCKET_BITS)) | (low << np.uint64(_REST))


def sort_order(ids: np.ndarray) -> np.ndarray:
    """Positions that bring ids into the order of keys, but for ids that share a first word."""
    return np.argsort(rotated(ids))


def keys_of(table: int, ids: np.ndarray, epoch: int) -> bytes:
    """The keys of these ids at this epoch, one behind the other."""
    count = len(ids)
    words = np.empty((count, 3), ">u8")
    words[:, 0] = rotated(ids)
    words[:, 1] = ids[:, 1]
    words[:, 2] = _LAST - min(epoch, _LAST)
    keys = np.empty((count, KEY), np.uint8)
    keys[:, :_TABLE] = np.frombuffer(_NUMBER.pack(table), np.uint8)
    keys[:, _TABLE:] = words.view(np.uint8).reshape(count, KEY - _TABLE)
    return keys.tobytes()


def ids_of(prefixes: np.ndarray) -> np.ndarray:
    """The ids in keys or prefixes of keys (uint8[n, 20 or more])."""
    words = np.ascontiguousarray(prefixes[:, _TABLE:PREFIX]).view(">u8").astype(np.uint64)
    first = words[:, 0]
    ids = np.empty((len(words), 2), np.uint64)
    ids[:, 0] = (first << np.uint64(_BUCKET_BITS)) | (first >> np.uint64(_REST))
    ids[:, 1] = words[:, 1]
    return ids


def cells(values: pa.BinaryArray) -> list[bytes]:
    """Values as they are stored, in order."""
    count = len(values)
    if not count:
        return []
    _, starts, content = values.buffers()
    offsets = np.frombuffer(starts, np.int32)[values.offset : values.offset + count + 1]
    first, end = int(offsets[0]), int(offsets[-1])
    data = content.slice(first, end - first).to_pybytes() if end > first else b""
    bounds = (offsets - first).tolist()
    found = [ROW + data[start:stop] for start, stop in pairwise(bounds)]
    if values.null_count:
        for at in np.flatnonzero(np.asarray(values.is_null())).tolist():
            found[at] = TOMBSTONE
    return found
