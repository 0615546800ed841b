"""What functions take and give: columns (`Vec`) or constants that are never spread over the rows unless they must be.

The rules that every strict function shares live here too: an error argument makes the result that error (the lowest
code if there are several), otherwise a NULL argument makes it NULL, and only rows that are still values can fail in the
function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Status, Vec, nulls
from belvedere.types import Kind, Type

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Const:
    """One value for every row, in physical form: a bool, an int (also days, microseconds, unscaled decimals of any
    width), a float, a str or bytes. `status` as in a column; `value` means nothing unless it is VALUE."""

    type: Type
    value: Any
    status: int = 1


Operand = Vec | Const
Function = Callable[[Type, Sequence[Operand], int], Operand]
"""An implementation: result type, arguments, number of rows (> 0) -> result."""

# Errors before NULL before VALUE: the smaller rank wins when arguments meet.
_RANK = np.array([254, 255, *range(2, 254), 0, 1], np.uint8)
_STATUS = np.empty(256, np.uint8)
_STATUS[_RANK] = np.arange(256, dtype=np.uint8)


def spread(operand: Operand, count: int) -> Vec:
    """The operand as a column of `count` rows."""
    if isinstance(operand, Vec):
        return operand
    type, value = operand.type, operand.value
    if operand.status != Status.VALUE:
        result = nulls(type, count)
        if operand.status != Status.NULL:
            result.status = np.full(count, operand.status, np.uint8)
        return result
    if type.varlen:
        return Vec(type, pa.repeat(pa.scalar(value, type.arrow), count))
    if type.wide:
        return Vec(type, np.repeat(words_of([value]), count, axis=0))
    return Vec(type, np.full(count, value, type.dtype))


def values(operand: Operand) -> Any:
    """The data of a fixed-width operand that is no wide decimal: an array, or a Python scalar."""
    if isinstance(operand, Vec):
        return operand.data
    return operand.value if operand.status == Status.VALUE else _zero(operand.type)


def arrow(operand: Operand) -> Any:
    """The data of a varlen operand: an Arrow array or scalar."""
    if isinstance(operand, Vec):
        return operand.data
    return pa.scalar(operand.value if operand.status == Status.VALUE else _zero(operand.type), operand.type.arrow)


def _zero(type: Type) -> Any:
    if type.varlen:
        return "" if type.kind is Kind.STRING else b""
    return 0.0 if type.kind is Kind.DOUBLE else 0


def status_of(operand: Operand) -> Array | int | None:
    """Status per row, one for all, or None: all are values."""
    if isinstance(operand, Vec):
        return operand.status
    return None if operand.status == Status.VALUE else operand.status


def merge(operands: Sequence[Operand], count: int) -> Array | None:
    """Status of a strict function of these arguments."""
    result: Array | None = None
    for operand in operands:
        status = status_of(operand)
        if status is None:
            continue
        if not isinstance(status, np.ndarray):
            status = np.full(count, status, np.uint8)
        result = status if result is None else meet(result, status)
    return result


def meet(a: Array, b: Array) -> Array:
    """Status where two arguments meet."""
    if a.max() <= 1 and b.max() <= 1:
        return a & b
    return _STATUS[np.minimum(_RANK[a], _RANK[b])]


def fail(status: Array | None, mask: Array, code: int) -> Array | None:
    """The status with `code` at those rows of the mask that still are values."""
    if not mask.any():
        return status
    if status is None:
        status = np.ones(len(mask), np.uint8)
    else:
        mask = mask & (status == Status.VALUE)
        status = status.copy()
    status[mask] = code
    return status


def constant(operand: Operand, what: str) -> Any:
    """The value of an argument that SQL demands to be a literal; None if it is NULL."""
    if not isinstance(operand, Const):
        raise TypeError(f"{what} must be a constant, found a column")
    return operand.value if operand.status == Status.VALUE else None


MASK64 = (1 << 64) - 1


def words_of(numbers: Sequence[int]) -> Array:
    """Unscaled integers as two-word rows (low, high)."""
    out = np.empty((len(numbers), 2), np.uint64)
    for i, number in enumerate(numbers):
        out[i, 0] = number & MASK64
        out[i, 1] = (number >> 64) & MASK64
    return out.view(np.int64)


def ints_of(data: Array) -> list[int]:
    """Unscaled Python integers of a decimal column's data, narrow or wide."""
    if data.ndim == 1:
        return [int(x) for x in data.tolist()]
    high = data[:, 1].tolist()
    low = np.ascontiguousarray(data[:, 0]).view(np.uint64).tolist()
    return [(h << 64) | x for h, x in zip(high, low, strict=True)]


def words(operand: Operand) -> Array:
    """A decimal operand as two-word rows; a constant as a single row."""
    if isinstance(operand, Const):
        return words_of([operand.value if operand.status == Status.VALUE else 0])
    if operand.data.ndim == 2:
        return plain(operand.data)
    out = np.empty((len(operand.data), 2), np.int64)
    out[:, 0] = operand.data
    np.right_shift(operand.data, 63, out=out[:, 1])
    return out


def narrow(data: Array) -> Array:
    """Low words of two-word rows whose values fit."""
    return np.ascontiguousarray(data[:, 0])
