"""Keys as bytes that sort as the values do (Spark SQL's order, ascending, NULLs first): how rows are found by order.

Every store that keeps bytes in order (a B-tree, LMDB, HBase) then reads rows by key, by the first columns of a key and
by range at the cost of what it returns. The form of a key is that of its columns, one after the other, so the key of
the first columns is a prefix of the bytes:

* A column that may be NULL begins with 00 (NULL) or 01 (a value follows). A fixed-width NULL is filled up with zeros.
* Numbers are big-endian with their sign bit turned; a decimal is its unscaled number, in 8 bytes up to 18 digits, else
  in 16. Doubles are their bits, turned so that they sort: -0.0 is 0.0, and all NaNs are one, above infinity.
* Text (UTF-8) and binaries are their bytes, with 00 written as 00 FF, closed by 00 00. So no value is a prefix of
  another, and a shorter one sorts before what it begins.

Equal values have equal bytes, so a key's bytes are its identity as well. Whole columns are encoded by Arrow and numpy;
`encode_one` does the same for one key without that overhead.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.errors import DataError
from belvedere.types import Column, Kind, Schema, Type

_SIGN = np.uint64(1 << 63)
_NULL, _VALUE = b"\0", b"\1"
_ZERO, _ESCAPED, _END = b"\0", b"\0\xff", b"\0\0"


def _scalar(value: bytes) -> pa.BinaryScalar:
    """Not by `pa.scalar`, which imports pandas where it is installed: 0.4 s of every start."""
    offsets = np.array([0, len(value)], np.int32)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(offsets), pa.py_buffer(value)])[0]


_NOTHING, _BEFORE, _BEHIND = _scalar(b""), _scalar(_VALUE), _scalar(_END)
_WIDEST = (1 << 31) - 1
_DAY_ZERO = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=80, traps=[Inexact])
_NAN = bytes.fromhex("fff8000000000000")
_Encoder = Callable[[Any], bytes]
_MISFITS = (TypeError, ValueError, ArithmeticError)


def key_codec(schema: Schema, key: Sequence[int]) -> KeyCodec:
    """Keys of the columns at `key`, as databases order and keep them: any column may be NULL, so that what is known
    of NULLs may change."""
    return KeyCodec([Column(schema[i].name, schema[i].type) for i in key])


class KeyCodec:
    """Keys of these columns; `Column.nullable` decides the form, so it is part of a stored key's format."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns: Schema = tuple(columns)
        self._encoders = [_encoder(c) for c in self.columns]

    # ------------------------------------------------------------------ values to bytes

    def encode(self, columns: Sequence[pa.Array], count: int) -> pa.BinaryArray:
        """Keys of `count` rows. Fewer columns than the key has give prefixes."""
        given = self.columns[: len(columns)]
        if all(not c.type.varlen for c in given):
            parts = [_fixed(c, a) for c, a in zip(given, columns, strict=True)]
            return _binary(np.concatenate(parts, axis=1) if parts else np.empty((count, 0), np.uint8))
        joined = [_text(c, a) if c.type.varlen else _binary(_fixed(c, a)) for c, a in zip(given, columns, strict=True)]
        return joined[0] if len(joined) == 1 else pc.binary_join_element_wise(*joined, _NOTHING)

    def encode_one(self, values: Sequence[Any]) -> bytes:
        """The key of one row, or a prefix, of values in the Python form that Arrow has for the column's type."""
        if len(values) > len(self.columns):
            raise DataError(
                f"a key has {len(self.columns)} columns ({', '.join(c.name for c in self.columns)}), "
                f"{len(values)} values were given"
            )
        try:
            return b"".join([encode(value) for encode, value in zip(self._encoders, values, strict=False)])
        except _MISFITS as error:
            raise self._misfit(values) from error

    def _misfit(self, values: Sequence[Any]) -> DataError:
        for column, encode, value in zip(self.columns, self._encoders, values, strict=False):
            try:
                encode(value)
            except _MISFITS:
                return DataError(f"key column {column.name!r} is {column.type}: {value!r} does not fit")
        raise AssertionError("every value fits by itself")

    # ------------------------------------------------------------------ bytes to values

    def decode(self, keys: pa.BinaryArray, width: int | None = None) -> list[pa.Array]:
        """The columns of keys, or the first `width` ones of prefixes that have no more."""
        count = len(keys)
        _, offsets, data = keys.buffers()
        bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + count + 1].astype(np.int64)
        content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
        reader = _Reader(content, bounds[:-1], bounds[1:])
        wanted = self.columns if width is None else self.columns[:width]
        found = [reader.column(column) for column in wanted]
        if (reader.at != bounds[1:]).any():
            raise DataError(f"bytes follow a key of {len(wanted)} columns")
        return found

    def decode_one(self, key: bytes) -> tuple[Any, ...]:
        """The values of a key, or of its first columns."""
        at = np.array([0]), np.array([len(key)])
        reader = _Reader(np.frombuffer(key, np.uint8), *at)
        found: list[Any] = []
        for column in self.columns:
            if reader.at[0] == len(key):
                break
            found.append(reader.column(column)[0].as_py())
        if reader.at[0] != len(key):
            raise DataError(f"bytes follow a key of {len(self.columns)} columns")
        return tuple(found)


def after_prefix(prefix: bytes) -> bytes | None:
    """The least bytes above everything that begins with the prefix: the end of a range that leaves it out. None: there
    is no such bound."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


# ---------------------------------------------------------------------- whole columns


def _fixed(column: Column, array: pa.Array) -> np.ndarray:
    """Bytes of a column of numbers: uint8[n, width]."""
    nulls = _nulls(column, array)
    body = _big_endian(column.type, array)
    if nulls is not None:
        body[nulls] = 0
    if not column.nullable:
        return body
    out = np.empty((len(body), 1 + body.shape[1]), np.uint8)
    out[:, 0] = 1 if nulls is None else ~nulls
    out[:, 1:] = body
    return out


def _nulls(column: Column, array: pa.Array) -> np.ndarray | None:
    if not array.null_count:
        return None
    if not column.nullable:
        raise DataError(f"key column {column.name!r} is never NULL, and a NULL was given")
    return np.asarray(array.is_null())


def _big_endian(type: Type, array: pa.Array) -> np.ndarray:
    """A fresh array; what it holds for NULLs does not matter."""
    if type.kind is Kind.NULL:
        return np.empty((len(array), 0), np.uint8)
    if type.kind is Kind.BOOLEAN:
        return np.array(array.fill_null(False), np.uint8).reshape(-1, 1)
    words = _words(type, array)
    if type.wide:
        return np.concatenate([_bytes(words[:, 1] ^ _SIGN, ">u8"), _bytes(words[:, 0], ">u8")], axis=1)
    if type.kind is Kind.DOUBLE:
        return _bytes(_double(words.view(np.float64)), ">u8")
    if words.dtype.itemsize == 4:
        return _bytes(words ^ np.uint32(1 << 31), ">u4")
    return _bytes(words ^ _SIGN, ">u8")


def _words(type: Type, array: pa.Array) -> np.ndarray:
    """The memory of a column, as unsigned words (wide decimals: low and high)."""
    count, data = len(array), array.buffers()[1]
    dtype = np.uint32 if type.dtype.itemsize == 4 else np.uint64
    if not count or data is None:
        return np.empty((count, 2) if type.wide else count, dtype)
    if type.kind is Kind.DECIMAL:
        words = np.frombuffer(data, np.uint64)[2 * array.offset : 2 * (array.offset + count)].reshape(count, 2)
        return words if type.wide else words[:, 0]
    return np.frombuffer(data, dtype)[array.offset : array.offset + count]


def _double(data: np.ndarray) -> np.ndarray:
    same = np.where(data == 0, 0.0, np.where(np.isnan(data), np.nan, data))
    bits = same.view(np.uint64)
    return np.where(bits >> np.uint64(63) == 1, ~bits, bits | _SIGN)


def _bytes(words: np.ndarray, form: str) -> np.ndarray:
    swapped = np.ascontiguousarray(words).astype(form)
    return swapped.view(np.uint8).reshape(len(words), swapped.dtype.itemsize)


def _binary(table: np.ndarray) -> pa.BinaryArray:
    """Each row of a table of bytes as a value."""
    count, width = table.shape
    if count * width > _WIDEST:
        raise DataError(f"{count} keys of {width} bytes do not fit one batch; encode fewer rows at once")
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * np.int32(width))
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(np.ascontiguousarray(table))], 0)


def _text(column: Column, array: pa.Array) -> pa.BinaryArray:
    nulls = _nulls(column, array)
    data = array.cast(pa.binary())
    content = data.buffers()[2]
    if content is not None and (np.frombuffer(content, np.uint8) == 0).any():
        data = pc.replace_substring(data, pattern=_ZERO, replacement=_ESCAPED)
    if not column.nullable:
        return pc.binary_join_element_wise(data, _BEHIND, _NOTHING)
    marked = pc.binary_join_element_wise(_BEFORE, data, _BEHIND, _NOTHING)
    return marked if nulls is None else marked.fill_null(_NULL)


class _Reader:
    """Takes keys apart, column by column; `at` is how far it came in each."""

    def __init__(self, content: np.ndarray, start: np.ndarray, stop: np.ndarray) -> None:
        self._content, self.at, self._stop = content, start, stop
        self._ends: np.ndarray | None = None

    def column(self, column: Column) -> pa.Array:
        valid: np.ndarray | None = None
        if column.nullable:
            markers = self._take(1, column)[:, 0]
            if (markers > 1).any():
                raise DataError(f"key column {column.name!r} begins with a byte that is neither 00 nor 01")
            valid = markers == 1
        return self._text(column, valid) if column.type.varlen else self._number(column, valid)

    def _take(self, width: int, column: Column) -> np.ndarray:
        if (self.at + width > self._stop).any():
            raise DataError(f"a key ends within column {column.name!r} ({column.type})")
        found = self._content[self.at[:, None] + np.arange(width)]
        self.at = self.at + width
        return found

    def _number(self, column: Column, valid: np.ndarray | None) -> pa.Array:
        type = column.type
        if type.kind is Kind.NULL:
            return pa.nulls(len(self.at))
        width = 16 if type.wide else type.dtype.itemsize
        table = self._take(width, column)
        if type.kind is Kind.BOOLEAN:
            return pa.array(table[:, 0] != 0, mask=None if valid is None else ~valid)
        form = ">u4" if width == 4 else ">u8"
        words = table.view(form).astype(form.replace(">", "<"))
        if type.kind is Kind.DOUBLE:
            words = np.where(words >> np.uint64(63) == 1, words ^ _SIGN, ~words)
        else:
            words[:, 0] ^= words.dtype.type(1 << 31) if width == 4 else _SIGN
        if type.kind is Kind.DECIMAL:
            low = words[:, -1]
            high = words[:, 0] if type.wide else (words[:, 0].view(np.int64) >> 63).view(np.uint64)
            words = np.column_stack([low, high])
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        return pa.Array.from_buffers(type.arrow, len(table), [bitmap, pa.py_buffer(np.ascontiguousarray(words))])

    def _text(self, column: Column, valid: np.ndarray | None) -> pa.Array:
        if self._ends is None:
            # 00 inside a text is followed by FF, so the first pair of zeros from its beginning on is its end
            zero = self._content == 0
            self._ends = np.flatnonzero(zero[:-1] & zero[1:])
        found = np.searchsorted(self._ends, self.at)
        stop = np.append(self._ends, len(self._content))[found]
        if valid is not None:
            stop = np.where(valid, stop, self.at)
        after = stop + (2 if valid is None else np.where(valid, 2, 0))
        if (after > self._stop).any():
            raise DataError(f"a key ends within column {column.name!r} ({column.type})")
        lengths = stop - self.at
        offsets = np.zeros(len(stop) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        data = self._content[np.repeat(self.at - offsets[:-1], lengths) + np.arange(offsets[-1])]
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
        array = pa.Array.from_buffers(pa.binary(), len(stop), buffers)
        if (data == 0).any():
            array = pc.replace_substring(array, pattern=_ESCAPED, replacement=_ZERO)
        self.at = after
        try:
            return array.cast(column.type.arrow)
        except pa.ArrowInvalid as error:
            raise DataError(f"key column {column.name!r} holds bytes that are no text") from error


# ---------------------------------------------------------------------- single values


def _encoder(column: Column) -> _Encoder:
    value = _value_encoder(column.type)
    if not column.nullable:
        return value
    null = _NULL if column.type.varlen else bytes(1 + _width(column.type))
    return lambda v: null if v is None else _VALUE + value(v)


def _width(type: Type) -> int:
    return 16 if type.wide else 0 if type.kind is Kind.NULL else type.dtype.itemsize


def _value_encoder(type: Type) -> _Encoder:
    match type.kind:
        case Kind.STRING:
            return lambda v: _of(str, v).encode().replace(_ZERO, _ESCAPED) + _END
        case Kind.BINARY:
            return lambda v: _of(bytes, v).replace(_ZERO, _ESCAPED) + _END
        case Kind.BOOLEAN:
            return lambda v: _VALUE if _of(bool, v) else _NULL
        case Kind.DOUBLE:
            return _encode_double
        case Kind.NULL:
            return lambda v: bytes(_of(NoneType, v))
    integer, width = _integer(type), _width(type)
    sign = 1 << (8 * width - 1)
    return lambda v: (integer(v) + sign).to_bytes(width, "big")


def _integer(type: Type) -> Callable[[Any], int]:
    """The number that stands for a value: itself, days, microseconds, or unscaled."""
    match type.kind:
        case Kind.DATE:
            return lambda v: int(_of(date, v).toordinal()) - _DAY_ZERO
        case Kind.TIMESTAMP:
            return _microseconds
        case Kind.DECIMAL:
            return lambda v: _unscaled(v, type)
    return lambda v: int(_of(int, v))


def _of(kind: type, value: Any) -> Any:
    """The value, if it is of exactly this kind: a bool is no int, and a datetime no date."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _microseconds(value: Any) -> int:
    moment: datetime = _of(datetime, value)
    return ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def _unscaled(value: Any, type: Type) -> int:
    number = int(_of(Decimal, value).scaleb(type.scale, _EXACT).to_integral_exact(context=_EXACT))
    if abs(number) >= 10**type.precision:
        raise ValueError(f"{value} has more than {type.precision} digits")
    return number


def _encode_double(value: Any) -> bytes:
    number = _of(float, value)
    if number != number:
        return _NAN
    bits = int.from_bytes(struct.pack(">d", number + 0.0), "big")  # -0.0 + 0.0 is 0.0
    return (bits ^ ((1 << 64) - 1) if bits >> 63 else bits | 1 << 63).to_bytes(8, "big")
