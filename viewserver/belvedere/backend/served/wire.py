"""What calls of the store and their answers consist of.

A message is a head (JSON, its length before it, padded to 8 bytes) and parts: raw bytes, or Arrow record batches
of ids and values. Rows are never touched one by one: ids are the memory of their array, values the buffers of theirs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.backend.row_shapes import pack_shape, unpack_shape
from belvedere.backend.seam import TableWrite

_LENGTH = struct.Struct("<I")
_ALIGN = 8
PAIRS = pa.schema([pa.field("id", pa.binary(16), nullable=False), pa.field("value", pa.binary())])


@dataclass(frozen=True)
class Message:
    head: dict[str, Any]
    parts: list[pa.Buffer]


def pack(head: dict[str, Any], parts: Sequence[Any] = ()) -> pa.Buffer:
    """Parts are anything with a buffer."""
    buffers = [pa.py_buffer(part) for part in parts]
    text = json.dumps({**head, "parts": [part.size for part in buffers]}).encode()
    text += b" " * (-(len(text) + _LENGTH.size) % _ALIGN)
    if not buffers:
        return pa.py_buffer(_LENGTH.pack(len(text)) + text)
    sink = pa.BufferOutputStream()
    sink.write(_LENGTH.pack(len(text)) + text)
    for part in buffers:
        sink.write(part)
        sink.write(bytes(-part.size % _ALIGN))
    return sink.getvalue()


def unpack(buffer: pa.Buffer) -> Message:
    """The parts are slices of the buffer."""
    (length,) = _LENGTH.unpack(buffer.slice(0, _LENGTH.size).to_pybytes())
    at = _LENGTH.size + length
    head = json.loads(buffer.slice(_LENGTH.size, length).to_pybytes())
    parts = []
    for size in head.pop("parts"):
        parts.append(buffer.slice(at, size))
        at += size + -size % _ALIGN
    return Message(head, parts)


def pack_ids(ids: np.ndarray) -> memoryview:
    return np.ascontiguousarray(ids).reshape(-1).view(np.uint8).data


def unpack_ids(buffer: pa.Buffer) -> np.ndarray:
    return np.frombuffer(buffer, np.uint64).reshape(-1, 2)


def pack_mask(mask: np.ndarray) -> bytes:
    """A mask of buckets."""
    return np.packbits(mask).tobytes()


def unpack_mask(buffer: pa.Buffer) -> np.ndarray:
    return np.unpackbits(np.frombuffer(buffer, np.uint8)).view(np.bool_)


def pack_pairs(ids: np.ndarray, values: pa.BinaryArray) -> pa.Buffer:
    return pa.record_batch([_names(ids), values], schema=PAIRS).serialize()


def unpack_pairs(buffer: pa.Buffer) -> tuple[np.ndarray, pa.BinaryArray]:
    batch = pa.ipc.read_record_batch(buffer, PAIRS)
    return _ids(batch.column(0)), batch.column(1)


KEYED = pa.schema([*PAIRS, pa.field("key", pa.binary(), nullable=False)])
HIDING = pa.schema([*KEYED, pa.field("hidden", pa.bool_(), nullable=False)])
_FORMS = (PAIRS, KEYED, HIDING)


def form_of(write: TableWrite) -> int:
    """How many columns its rows have beside ids and values."""
    return 0 if write.keys is None else 1 if write.hidden is None or not write.hidden.any() else 2


def pack_rows(write: TableWrite) -> pa.Buffer:
    """Ids and values, and what else its rows have."""
    form = form_of(write)
    columns = [_names(write.ids), write.values, write.keys, pa.array(write.hidden) if form == 2 else None][: 2 + form]
    return pa.record_batch(columns, schema=_FORMS[form]).serialize()


def unpack_rows(buffer: pa.Buffer, form: int) -> tuple[np.ndarray, pa.BinaryArray, pa.BinaryArray | None, Any]:
    """Ids, values, keys, and which are hidden."""
    batch = pa.ipc.read_record_batch(buffer, _FORMS[form])
    hidden = batch.column(3).to_numpy(zero_copy_only=False) if form == 2 else None
    return _ids(batch.column(0)), batch.column(1), batch.column(2) if form else None, hidden


def pack_write(write: TableWrite) -> tuple[list[Any], pa.Buffer]:
    """What stands in the head of a message, and its rows. Previous images stay here: the store has them."""
    shape = None if write.shape is None else pack_shape(write.shape)
    return [write.table, write.logged, form_of(write), shape], pack_rows(write)


def unpack_write(head: Sequence[Any], rows: pa.Buffer) -> TableWrite:
    table, logged, form, shape = head
    ids, values, keys, hidden = unpack_rows(rows, form)
    return TableWrite(table, ids, values, logged, keys, hidden, None if shape is None else unpack_shape(shape))


def _names(ids: np.ndarray) -> pa.Array:
    return pa.Array.from_buffers(PAIRS.field("id").type, len(ids), [None, pa.py_buffer(np.ascontiguousarray(ids))])


def _ids(names: pa.Array) -> np.ndarray:
    words = np.frombuffer(names.buffers()[1], np.uint64) if len(names) else np.empty(0, np.uint64)
    return words.reshape(-1, 2)


VALUES = pa.schema([pa.field("value", pa.binary())])


def pack_values(values: pa.BinaryArray) -> pa.Buffer:
    return pa.record_batch([values], schema=VALUES).serialize()


def unpack_values(buffer: pa.Buffer) -> pa.BinaryArray:
    return pa.ipc.read_record_batch(buffer, VALUES).column(0)
