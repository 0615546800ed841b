"""Values of cells and row keys, as columns: of all rows at once, from where they stand in a block of bytes.

A value that cannot be read is an error value of its row (`Status.UNREADABLE`, or what CAST says of a text): views that
use it have that row in quarantine until a later write mends it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.expr.casts.cast import CASTS
from belvedere.engine.state.kernels import wal as k
from belvedere.engine.vec import Status, Vec
from belvedere.sql.origin import Encoding
from belvedere.types import BINARY, STRING, Kind, Type

_MAX_BYTES = 0x7FFFFFFF


def read_column(data: np.ndarray, at: np.ndarray, size: np.ndarray, encoding: Encoding, type: Type) -> Vec:
    """Values of `size` bytes at these positions of `data`; NULL where the position is negative."""
    if encoding in (Encoding.TEXT, Encoding.RAW):
        return _text(data, at, size, encoding, type)
    width = encoding.width
    assert width is not None
    numbers, status = np.empty(len(at), np.int64), np.empty(len(at), np.uint8)
    k.read_big_endian(data, at, size, width, numbers, status)
    codes = None if bool((status == Status.VALUE).all()) else status
    match encoding:
        case Encoding.BOOLEAN:
            return Vec(type, numbers != 0, codes)
        case Encoding.DOUBLE:
            return Vec(type, numbers.view(np.float64), codes)
        case Encoding.FLOAT:
            return Vec(type, numbers.astype(np.int32).view(np.float32).astype(np.float64), codes)
    return Vec(type, numbers.astype(type.dtype, copy=False), codes)


def _text(data: np.ndarray, at: np.ndarray, size: np.ndarray, encoding: Encoding, type: Type) -> Vec:
    absent = at < 0
    total = int(size[~absent].sum()) if absent.any() else int(size.sum())
    if total > _MAX_BYTES:
        raise OverflowError(f"{len(at)} cells of together {total} bytes do not fit one batch")
    offsets, out = np.empty(len(at) + 1, np.int32), np.empty(max(total, 1), np.uint8)
    k.copy_texts(data, at, size, offsets, out)
    status = np.where(absent, np.uint8(Status.NULL), np.uint8(Status.VALUE)) if absent.any() else None
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    if encoding is Encoding.RAW:
        return Vec(BINARY, pa.Array.from_buffers(BINARY.arrow, len(at), buffers, 0), status)
    texts = _utf8(pa.Array.from_buffers(pa.binary(), len(at), buffers, 0), status)
    return texts if type.kind is Kind.STRING else CASTS[Kind.STRING, type.kind](texts, type)


def _utf8(values: pa.BinaryArray, status: np.ndarray | None) -> Vec:
    try:
        return Vec(STRING, values.cast(STRING.arrow), status)
    except pa.ArrowInvalid:  # one of them at least: only now each is looked at
        sound = np.array([_is_utf8(value) for value in values.to_pylist()], np.bool_)
        texts = [value.decode() if fine else "" for value, fine in zip(values.to_pylist(), sound.tolist(), strict=True)]
        known = np.ones(len(values), np.uint8) if status is None else status
        return Vec(STRING, pa.array(texts, STRING.arrow), np.where(sound, known, np.uint8(Status.UNREADABLE)))


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_keys(
    data: np.ndarray, at: np.ndarray, size: np.ndarray, parts: Sequence[tuple[Encoding, Type]]
) -> tuple[list[Vec], np.ndarray]:
    """The columns of row keys, one part behind the other, the last one as long as it is; and a mask of the keys that
    can be read."""
    columns, sound = [], np.ones(len(at), np.bool_)
    rest = size.copy()
    for i, (encoding, type) in enumerate(parts):
        width = rest if i == len(parts) - 1 or encoding.width is None else np.minimum(rest, encoding.width)
        vec = read_column(data, at, width, encoding, type)
        if vec.status is not None:
            sound &= vec.status == Status.VALUE
        columns.append(vec)
        at, rest = at + width, rest - width
    return columns, sound
