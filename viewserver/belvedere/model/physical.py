"""Columns of the engine as frames of raw memory, for files that only we read.

Everything keeps the engine's own form (a decimal of up to 18 digits stays one int64, a string column its offsets and
bytes), so writing a frame copies nothing and reading it back is a view of the file's bytes. A frame, each piece padded
to 8 bytes:

    rows (uint64), columns (uint64), a byte per column: 1 if it has NULLs
    per column: bitmap of values if it has NULLs; data, or for strings int32 offsets from 0 and the bytes they are of
    plain arrays, which whoever reads the frame knows of
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from belvedere.engine.vec import Status, Vec, empty
from belvedere.errors import Damaged
from belvedere.types import Type

Buffer = bytes | bytearray | memoryview
PAGE = 4096
PAGED_BYTES = 1 << 17
"""From this size on it pays to lay a write out in whole pages."""

_HEADER = struct.Struct("<QQ")
_ALIGN = 8
_ZEROS = bytes(_ALIGN)


class PhysicalFrame(NamedTuple):
    """Pieces of memory, some of them still the columns' own, and their total size."""

    pieces: list[Buffer]
    nbytes: int


def frame(columns: Sequence[Vec], plain: Sequence[np.ndarray] = ()) -> PhysicalFrame:
    """Columns and plain arrays of one length; what is not a value becomes NULL."""
    count = len(columns[0]) if columns else len(plain[0])
    flags = bytearray(len(columns))
    arrays: list[np.ndarray] = []
    for at, vec in enumerate(columns):
        if vec.status is not None:
            valid = vec.status == Status.VALUE
            if not valid.all():
                flags[at] = 1
                arrays.append(np.packbits(valid, bitorder="little"))
        if isinstance(vec.data, np.ndarray):
            arrays.append(vec.data)
        elif count:
            arrays += _text(vec.data)
    pieces: list[Buffer] = []
    header = _HEADER.pack(count, len(columns)) + flags
    size = _add(pieces, header, len(header))
    for array in (*arrays, *plain):
        if array.nbytes:
            size += _add(pieces, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, array.nbytes)
    return PhysicalFrame(pieces, size)


def _add(pieces: list[Buffer], piece: Buffer, size: int) -> int:
    pieces.append(piece)
    pad = -size % _ALIGN
    if pad:
        pieces.append(_ZEROS[:pad])
    return size + pad


def _text(array: pa.Array) -> list[np.ndarray]:
    """Offsets from 0, and the bytes, of strings which may be a part of a longer array."""
    _, starts, content = array.buffers()
    offsets = np.frombuffer(starts, np.int32)[array.offset : array.offset + len(array) + 1]
    first, end = int(offsets[0]), int(offsets[-1])
    if end == first:
        return [np.zeros_like(offsets)]
    return [offsets - offsets[0] if first else offsets, np.frombuffer(content, np.uint8)[first:end]]


def pack(frame: PhysicalFrame) -> memoryview:
    """A copy in one piece. A big one takes whole pages, as a write past the page cache needs it."""
    big = frame.nbytes >= PAGED_BYTES
    size = frame.nbytes + -frame.nbytes % PAGE if big else frame.nbytes
    out = np.empty(size + PAGE if big else size, np.uint8)
    if big:
        start = -out.ctypes.data % PAGE
        out = out[start : start + size]
        out[frame.nbytes :] = 0
    at = 0
    for piece in frame.pieces:
        end = at + len(piece)
        out[at:end] = np.frombuffer(piece, np.uint8)
        at = end
    return out.data


def unframe(buffer: Buffer, types: Sequence[Type], plain: Sequence[type] = ()) -> tuple[list[Vec], list[np.ndarray]]:
    """The columns and plain arrays of a frame, as views of the buffer."""
    content = np.frombuffer(buffer, np.uint8)
    count, found = _HEADER.unpack_from(buffer)
    if found != len(types):
        raise Damaged(f"a frame of {found} columns where {len(types)} were expected")
    at = _HEADER.size

    def take(size: int) -> np.ndarray:
        nonlocal at
        out = content[at : at + size]
        at += size + -size % _ALIGN
        return out

    flags = take(found).tolist()
    columns: list[Vec] = []
    for type, flag in zip(types, flags, strict=True):
        status = np.unpackbits(take((count + 7) // 8), count=count, bitorder="little") if flag else None
        if count == 0:
            columns.append(empty(type))
        elif type.varlen:
            offsets = take(4 * (count + 1)).view(np.int32)
            parts = [None, pa.py_buffer(offsets), pa.py_buffer(take(int(offsets[-1])))]
            columns.append(Vec(type, pa.Array.from_buffers(type.arrow, count, parts, 0), status))
        else:
            dtype, wide = type.dtype, type.wide
            data = take(count * dtype.itemsize * (1 + wide)).view(dtype)
            columns.append(Vec(type, data.reshape(count, 2) if wide else data, status))
    return columns, [take(count * np.dtype(p).itemsize).view(p) for p in plain]
