"""Comparisons. NaN equals itself and is greater than every other double, -0.0 equals 0.0, strings compare bytewise."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr.operand import Array, Const, Function, Operand, arrow, ints_of, merge, spread, values, words
from belvedere.engine.vec import Status, Vec
from belvedere.types import BOOLEAN, Kind, Type

_SWAPPED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_NUMPY: dict[str, Any] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_ARROW: dict[str, Any] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}


def bools(array: pa.Array) -> Array:
    """An Arrow boolean array without NULLs as a numpy one."""
    result: Array = array.to_numpy(zero_copy_only=False)
    return result


def raw(name: str, a: Operand, b: Operand, count: int) -> Array:
    """The comparison of values, whatever the status; at least one side may be a constant, or both."""
    if isinstance(a, Const):
        if not isinstance(b, Const):
            return raw(_SWAPPED[name], b, a, count)
        a = spread(a, count)
    kind = a.type.kind
    if a.type.varlen:
        return bools(_ARROW[name](a.data, arrow(b)))
    result: Array
    if kind is Kind.DOUBLE:
        result = _doubles(name, a.data, values(b))
    elif kind is Kind.DECIMAL and (a.type != b.type or a.type.wide):
        result = _decimals(name, a, b)
    else:
        result = _NUMPY[name](a.data, values(b))
    return result


def _doubles(name: str, a: Array, b: Any) -> Any:
    if isinstance(b, float) and not math.isnan(b):
        if name == "gt":
            return np.logical_not(np.less_equal(a, b))
        if name == "ge":
            return np.logical_not(np.less(a, b))
        return _NUMPY[name](a, b)
    if name in ("eq", "ne"):
        equal = (a == b) | ((a != a) & (b != b))
        return equal if name == "eq" else ~equal
    if name == "lt":
        return ~(a >= b) & (a == a)
    if name == "ge":
        return (a >= b) | (a != a)
    if name == "gt":
        return ~(b >= a) & (np.asarray(b) == b)
    return (b >= a) | (np.asarray(b) != b)


def _decimals(name: str, a: Vec, b: Operand) -> Any:
    if a.type.scale != b.type.scale:
        # The binder gives both sides one type; other callers get exactness rather than speed.
        x = np.array(ints_of(words(a)), object) * 10 ** max(0, b.type.scale - a.type.scale)
        y = np.array(ints_of(words(b)), object) * 10 ** max(0, a.type.scale - b.type.scale)
        compare: Callable[[Any, Any], Any] = getattr(operator, name)
        return np.asarray(compare(x, y), np.bool_)
    if not a.type.wide and not b.type.wide:
        return _NUMPY[name](a.data, values(b))
    x, y = words(a), words(b)
    same = x[:, 1] == y[:, 1]
    if name in ("eq", "ne"):
        equal = same & (x[:, 0] == y[:, 0])
        return equal if name == "eq" else ~equal
    low = _NUMPY[name](x.view(np.uint64)[:, 0], y.view(np.uint64)[:, 0])
    strict = "lt" if name in ("lt", "le") else "gt"
    return _NUMPY[strict](x[:, 1], y[:, 1]) | (same & low)


def _comparison(name: str) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        a, b = args
        if isinstance(b, Const) and isinstance(a, Vec) and b.status == Status.VALUE:
            return Vec(BOOLEAN, raw(name, a, b, count), a.status)
        return Vec(BOOLEAN, raw(name, a, b, count), merge(args, count))

    return function


def null_safe_eq(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """`<=>`: NULL equals NULL, and the result is never NULL."""
    data = raw("eq", args[0], args[1], count)
    merged = merge(args, count)
    if merged is None:
        return Vec(BOOLEAN, data)
    a, b = (np.asarray(1 if o.status is None else o.status) for o in args)
    data = np.where((a == Status.NULL) | (b == Status.NULL), a == b, data)
    return Vec(BOOLEAN, data, np.where(merged > Status.VALUE, merged, np.uint8(1)))


FUNCTIONS: dict[str, Function] = {name: _comparison(name) for name in _NUMPY} | {"null_safe_eq": null_safe_eq}
