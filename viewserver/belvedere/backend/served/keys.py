"""Keys of versioned tables: where a version of an id is, as bytes that sort the way tables are read.

    table (uint32) | id[0] rotated right by 14 bits (uint64) | id[1] (uint64) | 2**64 - 1 - epoch (uint64)    28 bytes

All big-endian. The rotation brings the bucket, `id[0] % 16384`, to the front: a range of buckets is a range of keys,
and within a bucket ids keep the order of `(id[0], id[1])`. The epoch is inverted: of an id the newest version comes
first, and the first key at or behind the key of epoch e is the newest version up to e.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY = 28
PREFIX = 20
"""Bytes of a key without the epoch: one id of one table."""
_TABLE = 4
_BUCKET_BITS = 14
REST = 64 - _BUCKET_BITS
"""Bits of the rotated word behind the bucket."""
_WORD = struct.Struct(">Q")
_NUMBER = struct.Struct(">I")
_LAST = 2**64 - 1
_HIDDEN_HEAD = 1 + _NUMBER.size

ROW, GONE, HIDDEN = b"\1", b"\0", b"\2"
"""First byte of a stored value, of a tombstone that carries the key of its row (others are no bytes at all), and of a
value that is no row to those who read in order: the length of the key (uint32), the key and the value follow."""
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
    return _NUMBER.pack(table) + _WORD.pack(bucket << REST) if bucket >> _BUCKET_BITS == 0 else _NUMBER.pack(table + 1)


def rotated(ids: np.ndarray) -> np.ndarray:
    low = ids[:, 0]
    return (low >> np.uint64(_BUCKET_BITS)) | (low << np.uint64(REST))


def sort_order(ids: np.ndarray) -> np.ndarray:
    """Positions that bring ids into the order of keys, but for ids that share a first word."""
    return np.argsort(rotated(ids))


def unrotated(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Ids of which the first word was rotated."""
    ids = np.empty((len(high), 2), np.uint64)
    ids[:, 0] = (high << np.uint64(_BUCKET_BITS)) | (high >> np.uint64(REST))
    ids[:, 1] = low
    return ids


def pack_keys(table: int, high: np.ndarray, low: np.ndarray, epochs: np.ndarray | int) -> bytes:
    """Keys one behind the other, of ids whose first word is rotated."""
    count = len(high)
    words = np.empty((count, 3), ">u8")
    words[:, 0] = high
    words[:, 1] = low
    words[:, 2] = np.uint64(_LAST) - np.asarray(epochs).astype(np.uint64)
    keys = np.empty((count, KEY), np.uint8)
    keys[:, :_TABLE] = np.frombuffer(_NUMBER.pack(table), np.uint8)
    keys[:, _TABLE:] = words.view(np.uint8).reshape(count, KEY - _TABLE)
    return keys.tobytes()


def unpack_keys(packed: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """High and low words and epochs (int64) of keys that lie one behind the other."""
    found = np.frombuffer(packed, np.uint8).reshape(-1, KEY)
    words = np.ascontiguousarray(found[:, _TABLE:]).view(">u8").astype(np.uint64)
    return words[:, 0], words[:, 1], (np.uint64(_LAST) - words[:, 2]).astype(np.int64)


def is_visible(cell: bytes) -> bool:
    """Whether this is stored for a row that is seen in order."""
    return cell[:1] == ROW


def value_of(cell: bytes | None) -> bytes | None:
    """What a stored cell holds; None if it is a tombstone, or nothing at all."""
    if not cell or cell[:1] == GONE:
        return None
    return cell[1:] if cell[:1] == ROW else cell[_HIDDEN_HEAD + _NUMBER.unpack_from(cell, 1)[0] :]


def key_of(cell: bytes) -> bytes:
    """The key of a row that is not seen; none, if it was written without."""
    return cell[1:] if cell[:1] == GONE else cell[_HIDDEN_HEAD : _HIDDEN_HEAD + _NUMBER.unpack_from(cell, 1)[0]]


def kinds(cells: list[bytes]) -> np.ndarray:
    """First byte of each (uint8); of tombstones without keys that of those with."""
    return np.fromiter((cell[0] if cell else GONE[0] for cell in cells), np.uint8, len(cells))


def cells(values: pa.BinaryArray, keys: pa.BinaryArray | None = None, hidden: np.ndarray | None = None) -> list[bytes]:
    """Values as they are stored, in order. `keys`: of rows that are read by them."""
    found = pc.binary_join_element_wise(ROW, values, b"")
    if values.null_count:
        gone = TOMBSTONE if keys is None else pc.binary_join_element_wise(GONE, keys, b"")
        found = pc.coalesce(found, gone)
    stored: list[bytes] = found.to_numpy(zero_copy_only=False).tolist()
    if keys is not None and hidden is not None:
        for at in np.flatnonzero(hidden).tolist():
            if is_visible(stored[at]):
                key = keys[at].as_py()
                stored[at] = HIDDEN + _NUMBER.pack(len(key)) + key + stored[at][1:]
    return stored
