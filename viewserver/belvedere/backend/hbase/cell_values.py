"""Values of cells as columns: of all rows at once, from where they stand in a block of bytes.

A value that cannot be read is an error value of its row (`Status.UNREADABLE`, or what CAST says of a text): views that
use it have that row in quarantine until a later write mends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase import members
from belvedere.engine.expr import calendar, decimals
from belvedere.engine.expr.casts.cast import CASTS
from belvedere.engine.expr.dates import checked_micros
from belvedere.engine.expr.operand import fail
from belvedere.engine.state.kernels import parts, wal
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.sql.origin import Encoding, StoredColumn
from belvedere.types import BINARY, STRING, Kind, Type, decimal

_MAX_BYTES = 0x7FFFFFFF
_MAX_SCALE, _WIDEST = 38, 18
_MILLI = 1000


def read_columns(
    data: np.ndarray, at: np.ndarray, size: np.ndarray, columns: Sequence[tuple[StoredColumn, Type]]
) -> list[Vec]:
    """What several columns are of the same cells, of `size` bytes at these positions of `data`; NULL where the position
    is negative."""
    stored, type = columns[0]
    if stored.encoding in (Encoding.JSON, Encoding.AVRO):
        return members.read(stored.encoding, stored.schema, _values(data, at, size), columns)
    return [read_column(data, at, size, stored.encoding, type)]


def read_column(data: np.ndarray, at: np.ndarray, size: np.ndarray, encoding: Encoding, type: Type) -> Vec:
    """Cells as values of one column."""
    match encoding:
        case Encoding.TEXT:
            texts = read_texts(data, at, size)
            return texts if type.kind is Kind.STRING else CASTS[Kind.STRING, type.kind](texts, type)
        case Encoding.RAW:
            return Vec(BINARY, *_bytes(data, at, size, BINARY.arrow))
        case Encoding.DECIMAL:
            return _decimals(data, at, size, type)
    width = encoding.width
    assert width is not None
    numbers, status = np.empty(len(at), np.int64), np.empty(len(at), np.uint8)
    wal.read_big_endian(data, at, size, width, numbers, status)
    codes = None if bool((status == Status.VALUE).all()) else status
    match encoding:
        case Encoding.BOOLEAN:
            return Vec(type, numbers != 0, codes)
        case Encoding.DOUBLE:
            return Vec(type, numbers.view(np.float64), codes)
        case Encoding.FLOAT:
            return Vec(type, numbers.astype(np.int32).view(np.float32).astype(np.float64), codes)
        case Encoding.MICROS:
            return checked_micros(type, numbers, codes)
        case Encoding.MILLIS:
            wrapped = np.abs(numbers) > calendar.MAX_MICROS // _MILLI
            return checked_micros(type, np.where(wrapped, 0, numbers) * _MILLI, codes, wrapped)
    if type.kind is Kind.DATE:
        codes = fail(codes, (numbers < calendar.MIN_DAY) | (numbers > calendar.MAX_DAY), Status.OVERFLOW)
    return Vec(type, numbers.astype(type.dtype, copy=False), codes)


def read_texts(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> Vec:
    """UTF-8."""
    values, status = _bytes(data, at, size, pa.binary())
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


def _bytes(data: np.ndarray, at: np.ndarray, size: np.ndarray, type: pa.DataType) -> tuple[pa.Array, np.ndarray | None]:
    """Copies of them, and their codes."""
    absent = at < 0
    total = int(size[~absent].sum()) if absent.any() else int(size.sum())
    if total > _MAX_BYTES:
        raise OverflowError(f"{len(at)} cells of together {total} bytes do not fit one batch")
    offsets, out = np.empty(len(at) + 1, np.int32), np.empty(max(total, 1), np.uint8)
    wal.copy_texts(data, at, size, offsets, out)
    status = np.where(absent, np.uint8(Status.NULL), np.uint8(Status.VALUE)) if absent.any() else None
    return pa.Array.from_buffers(type, len(at), [None, pa.py_buffer(offsets), pa.py_buffer(out)], 0), status


def _values(data: np.ndarray, at: np.ndarray, size: np.ndarray) -> list[bytes | None]:
    block = data.data
    return [
        None if start < 0 else bytes(block[start : start + count])
        for start, count in zip(at.tolist(), size.tolist(), strict=True)
    ]


def _decimals(data: np.ndarray, at: np.ndarray, size: np.ndarray, type: Type) -> Vec:
    """Rounded to the scale of the type, as CAST does; mostly all have that scale."""
    count = len(at)
    scales, words, status = np.empty(count, np.int64), np.empty((count, 2), np.int64), np.empty(count, np.uint8)
    parts.read_decimals(data, at, size, scales, words, status)
    fine = status == Status.VALUE
    out = nulls(type, count)
    codes = status.copy()
    for scale in np.unique(scales[fine]).tolist():
        rows = np.flatnonzero(fine & (scales == scale))
        part = _of_scale(words[rows], scale, type)
        out.data[rows] = part.data
        codes[rows] = Status.VALUE if part.status is None else part.status
    return Vec(type, out.data, None if bool((codes == Status.VALUE).all()) else codes)


def _of_scale(words: np.ndarray, scale: int, type: Type) -> Vec:
    low, high = words[:, 0], words[:, 1]
    if 0 <= scale <= _WIDEST and bool((high == low >> 63).all()) and bool((np.abs(low) < 10**_WIDEST).all()):
        return decimals.rescale(Vec(decimal(_WIDEST, scale), np.ascontiguousarray(low)), type)
    numbers = [(h << 64) + (n % (1 << 64)) for n, h in words.tolist()]
    most = 10**_MAX_SCALE
    if 0 <= scale <= _MAX_SCALE and all(-most < number < most for number in numbers):
        return decimals.rescale(Vec(decimal(_MAX_SCALE, scale), np.ascontiguousarray(words)), type)
    texts = [_plain(number, scale) for number in numbers]
    return CASTS[Kind.STRING, Kind.DECIMAL](Vec(STRING, pa.array(texts, STRING.arrow)), type)


def _plain(number: int, scale: int) -> str:
    """With an exponent: a scale may be anything."""
    return str(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)))
