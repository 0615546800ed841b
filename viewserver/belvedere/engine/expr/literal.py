"""Between Python values and columns: literals of a query, rows of tests, values shown to users."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.expr.operand import Const, ints_of, words_of
from belvedere.engine.vec import Status, Vec
from belvedere.sql.expr import Value
from belvedere.types import Kind, Type

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def physical(value: Value, type: Type) -> Any:
    """The physical form (see `Const`) of a Python value that fits the type."""
    kind = type.kind
    if kind is Kind.DECIMAL:
        number = value if isinstance(value, Decimal) else Decimal(str(value))
        with localcontext(prec=100):
            unscaled = number.scaleb(type.scale)
            if unscaled != unscaled.to_integral_value() or abs(unscaled) >= Decimal(10) ** type.precision:
                raise ValueError(f"value {number} does not fit {type}")
            return int(unscaled)
    if kind is Kind.DATE and isinstance(value, date):
        return value.toordinal() - _EPOCH_DAY
    if kind is Kind.TIMESTAMP and isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    if kind is Kind.DOUBLE and isinstance(value, (int, float, Decimal)):
        return float(value)
    return value


def logical(value: Any, type: Type) -> Value:
    """The Python value of a physical one."""
    kind = type.kind
    if kind is Kind.DECIMAL:
        # Built from digits: arithmetic would round to the context's 28 digits.
        return Decimal((int(value < 0), tuple(map(int, str(abs(value)))), -type.scale))
    if kind is Kind.DATE:
        return date.fromordinal(int(value) + _EPOCH_DAY)
    if kind is Kind.TIMESTAMP:
        return _EPOCH + timedelta(microseconds=int(value))
    if kind is Kind.BOOLEAN:
        return bool(value)
    if kind is Kind.DOUBLE:
        return float(value)
    if kind in (Kind.INT, Kind.BIGINT):
        return int(value)
    return value  # type: ignore[no-any-return]  # str or bytes


def const_of(value: Value, type: Type) -> Const:
    """A literal as a constant operand."""
    if value is None or type.kind is Kind.NULL:
        return Const(type, None, Status.NULL)
    return Const(type, physical(value, type))


def vec_of(values: Sequence[Value], type: Type) -> Vec:
    """A column of Python values; None is NULL."""
    count = len(values)
    status = None
    if type.kind is Kind.NULL:
        return Vec(type, np.zeros(count, np.bool_), np.zeros(count, np.uint8))
    if any(v is None for v in values):
        status = np.array([v is not None for v in values], np.uint8)
    if type.varlen:
        blank: Value = "" if type.kind is Kind.STRING else b""
        return Vec(type, pa.array([blank if v is None else v for v in values], type.arrow), status)
    numbers = [0 if v is None else physical(v, type) for v in values]
    if type.wide:
        return Vec(type, words_of(numbers), status)
    return Vec(type, np.array(numbers, type.dtype), status)


def python_value(vec: Vec, i: int) -> Value:
    """The Python value of row i; None for NULL. An error raises ValueError: look at `vec.status` before."""
    if vec.status is not None and vec.status[i] != Status.VALUE:
        if vec.status[i] == Status.NULL:
            return None
        raise ValueError(Status(int(vec.status[i])).text)
    if isinstance(vec.data, pa.Array):
        return vec.data[i].as_py()  # type: ignore[no-any-return]  # Arrow is untyped
    if vec.type.wide:
        return logical(ints_of(vec.data[i : i + 1])[0], vec.type)
    return logical(vec.data[i].item(), vec.type)


def to_pylist(vec: Vec) -> list[Any]:
    """Python values of all rows: None for NULL, the `Status` itself for an error."""
    if isinstance(vec.data, pa.Array):
        result: list[Any] = vec.data.to_pylist()
    elif vec.type.kind is Kind.NULL:
        return [None] * len(vec)
    else:
        raw = ints_of(vec.data) if vec.type.kind is Kind.DECIMAL else vec.data.tolist()
        if vec.status is None:
            return [logical(v, vec.type) for v in raw]
        result = [logical(v, vec.type) if s == 1 else None for v, s in zip(raw, vec.status.tolist(), strict=True)]
    if vec.status is not None:
        for i in np.flatnonzero(vec.status != Status.VALUE).tolist():
            result[i] = None if vec.status[i] == Status.NULL else Status(int(vec.status[i]))
    return result
