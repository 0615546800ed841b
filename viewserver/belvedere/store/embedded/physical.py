"""Columns of the engine as Arrow arrays without conversion, for files that only we read.

Numbers, dates and timestamps keep the engine's own memory (a decimal of up to 18 digits stays one int64, a wide one
16 opaque bytes), so writing a batch copies nothing and reading it back is a view of the file's bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.vec import Status, Vec, empty
from belvedere.types import Kind, Type

_INT8, _UINT64 = pa.int8(), pa.uint64()
_PHYSICAL = {
    Kind.BOOLEAN: pa.uint8(),
    Kind.INT: pa.int32(),
    Kind.BIGINT: pa.int64(),
    Kind.DOUBLE: pa.float64(),
    Kind.DECIMAL: pa.int64(),
    Kind.STRING: pa.string(),
    Kind.BINARY: pa.binary(),
    Kind.DATE: pa.int32(),
    Kind.TIMESTAMP: pa.int64(),
    Kind.NULL: pa.uint8(),
}


def physical_type(type: Type) -> pa.DataType:
    """How a column of this type is stored."""
    return pa.binary(16) if type.wide else _PHYSICAL[type.kind]


def to_physical(vec: Vec) -> pa.Array:
    """The column's own memory as an Arrow array; what is not a value becomes NULL."""
    bitmap = None
    count = len(vec)
    if vec.status is not None:
        valid = vec.status == Status.VALUE
        if not valid.all():
            bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    nulls = 0 if bitmap is None else -1
    if isinstance(vec.data, np.ndarray):
        data = np.ascontiguousarray(vec.data)
        return pa.Array.from_buffers(physical_type(vec.type), count, [bitmap, pa.py_buffer(data)], nulls)
    if bitmap is None:
        return vec.data
    array = vec.data if vec.data.offset == 0 else pa.concat_arrays([vec.data])
    return pa.Array.from_buffers(array.type, count, [bitmap, *array.buffers()[1:]], nulls)


def from_physical(array: pa.Array, type: Type) -> Vec:
    """The reverse; the data is a view of the array's memory."""
    count = len(array)
    if count == 0:
        return empty(type)
    status = None
    if array.null_count:
        status = np.asarray(array.is_valid()).astype(np.uint8)
    buffers = array.buffers()
    if type.varlen:
        return Vec(type, pa.Array.from_buffers(array.type, count, [None, *buffers[1:]], 0, array.offset), status)
    if type.wide:
        words = np.frombuffer(buffers[1], np.int64)[2 * array.offset : 2 * (array.offset + count)]
        return Vec(type, words.reshape(count, 2), status)
    return Vec(type, np.frombuffer(buffers[1], type.dtype)[array.offset : array.offset + count], status)


def flat(data: np.ndarray, type: pa.DataType) -> pa.Array:
    """A numpy array without NULLs as an Arrow array, without a copy."""
    data = np.ascontiguousarray(data)
    return pa.Array.from_buffers(type, len(data), [None, pa.py_buffer(data)], 0)


def unflat(array: pa.Array, dtype: np.dtype | type) -> np.ndarray:
    """The reverse of `flat`."""
    if len(array) == 0:
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def serialize(arrays: Sequence[pa.Array], names: Sequence[str]) -> memoryview:
    """Arrays of one length as an Arrow IPC message; its schema is known to whoever reads it."""
    batch = pa.RecordBatch.from_arrays(list(arrays), names=list(names))
    return memoryview(batch.serialize())


def deserialize(buffer: memoryview, fields: Sequence[tuple[str, pa.DataType]]) -> list[pa.Array]:
    """The reverse of `serialize`, without copying."""
    return list(pa.ipc.read_record_batch(pa.py_buffer(buffer), pa.schema(list(fields))).columns)
