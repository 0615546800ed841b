"""CASE, COALESCE, NULLIF, IN: choices between arguments. Only the chosen argument's status counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.expr import compare
from belvedere.engine.expr.operand import Array, Const, Function, Operand, arrow, meet, spread, values
from belvedere.engine.vec import Status, Vec
from belvedere.types import BOOLEAN, Kind, Type


def choose(type: Type, mask: Array, yes: Operand, no: Operand, count: int) -> Vec:
    """Rows of `yes` where the mask is true, else rows of `no`; data and status alike."""
    data: Any
    if type.varlen:
        data = pc.if_else(pa.array(mask), arrow(yes), arrow(no))
        if not isinstance(data, pa.Array):
            data = pa.repeat(data, count)
    elif type.wide:
        data = np.where(mask[:, None], spread(yes, count).data, spread(no, count).data)
    else:
        data = np.where(mask, values(yes), values(no))
        if data.dtype != type.dtype:
            data = data.astype(type.dtype)
    return Vec(type, data, _choose_status(mask, yes, no))


def _choose_status(mask: Array, yes: Operand, no: Operand) -> Array | None:
    a, b = (o.status if isinstance(o, Vec) else (None if o.status == Status.VALUE else o.status) for o in (yes, no))
    if a is None and b is None:
        return None
    return np.where(mask, np.uint8(1) if a is None else a, np.uint8(1) if b is None else b).astype(np.uint8)


def case(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """when, then, ..., [else]. A NULL condition is not taken; one that fails, where it is reached, is the result."""
    result: Operand = args[-1] if len(args) % 2 else Const(type, None, Status.NULL)
    for i in range(len(args) // 2 * 2 - 2, -1, -2):
        when, then = args[i], args[i + 1]
        if isinstance(when, Const):
            if when.status > Status.VALUE:
                result = Const(type, None, when.status)
            elif when.status == Status.VALUE and when.value:
                result = then
            continue
        mask = when.data
        if when.status is not None:
            mask = mask & (when.status == Status.VALUE)
        result = choose(type, mask, then, result, count)
        errors = when.errors
        if errors is not None and when.status is not None:
            status = np.ones(count, np.uint8) if result.status is None else result.status.copy()
            status[errors] = when.status[errors]
            result.status = status
    return Const(type, result.value, result.status) if isinstance(result, Const) else result


def coalesce(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """The first argument that is not NULL; its error, if it is one."""
    result = args[-1]
    for arg in reversed(args[:-1]):
        if isinstance(arg, Const):
            result = arg if arg.status != Status.NULL else result
        elif arg.status is None:
            result = arg
        else:
            present = arg.status != Status.NULL
            result = arg if present.all() else choose(type, present, arg, result, count)
    return result


def nullif(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """NULL where a = b, else a."""
    a = spread(args[0], count)
    b = spread(args[1], count)
    equal = compare.raw("eq", a, args[1], count)
    status = np.ones(count, np.uint8) if a.status is None else a.status.copy()
    if b.status is not None:
        equal = equal & (b.status == Status.VALUE)
        failed = b.status > Status.VALUE
        status[failed] = meet(status, b.status)[failed]
    status[equal & (status == Status.VALUE)] = Status.NULL
    return Vec(type, a.data, status)


def in_(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """x IN (v1, ..., vn): a match is true whatever the others are, then errors, then NULL, then false."""
    x = spread(args[0], count)
    constants = [a for a in args[1:] if isinstance(a, Const) and a.status == Status.VALUE and a.type == x.type]
    found = _member(x, [c.value for c in constants], count)
    status = np.ones(count, np.uint8)
    for arg in args[1:]:
        if any(arg is c for c in constants):
            continue
        column = spread(arg, count)
        hit = compare.raw("eq", x, arg, count)
        if column.status is not None:
            hit = hit & (column.status == Status.VALUE)
            status = meet(status, column.status)
        found = found | hit
    status[found] = Status.VALUE
    if x.status is not None:
        status = np.where(x.status == Status.VALUE, status, x.status)
    return Vec(BOOLEAN, found, None if status.min() == status.max() == Status.VALUE else status)


def _member(x: Vec, wanted: list[Any], count: int) -> Array:
    if not wanted:
        return np.zeros(count, np.bool_)
    if x.type.varlen:
        return compare.bools(pc.is_in(x.data, value_set=pa.array(wanted, x.type.arrow)))
    if x.type.wide or len(wanted) < 4:
        found = compare.raw("eq", x, Const(x.type, wanted[0]), count)
        for value in wanted[1:]:
            found = found | compare.raw("eq", x, Const(x.type, value), count)
        return found
    found = np.isin(x.data, np.array(wanted, x.type.dtype))
    if x.type.kind is Kind.DOUBLE and any(math.isnan(v) for v in wanted):
        found |= np.isnan(x.data)
    return found


FUNCTIONS: dict[str, Function] = {"case": case, "coalesce": coalesce, "nullif": nullif, "in": in_}
