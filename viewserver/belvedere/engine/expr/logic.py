"""Three-valued logic over values, NULLs and errors.

`false AND anything` is false and `true OR anything` is true, also where the other side is an error; otherwise an error
wins over NULL. The order of the arguments does not matter, so the planner may reorder conjuncts freely.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.expr.operand import Array, Const, Function, Operand, merge, spread
from belvedere.engine.vec import Status, Vec
from belvedere.types import BOOLEAN, Type


def _connective(decisive: bool) -> Function:
    """AND (decided by false) or OR (decided by true)."""

    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        for arg in args:
            if isinstance(arg, Const) and arg.status == Status.VALUE and bool(arg.value) is decisive:
                return arg
        columns = [a for a in args if not (isinstance(a, Const) and a.status == Status.VALUE)]
        if not columns:
            return args[0]
        vecs = [spread(a, count) for a in columns]
        status = merge(vecs, count)
        if status is None:
            data = vecs[0].data
            for vec in vecs[1:]:
                data = data | vec.data if decisive else data & vec.data
            return Vec(BOOLEAN, data)
        decided = np.zeros(count, np.bool_)
        for vec in vecs:
            hit = vec.data if decisive else ~vec.data
            decided |= hit if vec.status is None else hit & (vec.status == Status.VALUE)
        status = np.where(decided, np.uint8(Status.VALUE), status)
        return Vec(BOOLEAN, decided if decisive else ~decided, status)

    return function


def not_(type: Type, args: Sequence[Operand], count: int) -> Operand:
    vec = spread(args[0], count)
    return Vec(BOOLEAN, ~vec.data, vec.status)


def _null_test(want_null: bool) -> Function:
    def function(type: Type, args: Sequence[Operand], count: int) -> Operand:
        status = args[0].status
        if status is None:
            return Const(BOOLEAN, not want_null)
        if not isinstance(status, np.ndarray):
            status = np.full(count, status, np.uint8)
        data = (status == Status.NULL) if want_null else (status != Status.NULL)
        return Vec(BOOLEAN, data, _keep_errors(status))

    return function


def is_true(type: Type, args: Sequence[Operand], count: int) -> Operand:
    """NULL counts as false (FILTER); errors stay."""
    vec = spread(args[0], count)
    if vec.status is None:
        return vec
    return Vec(BOOLEAN, vec.data & (vec.status == Status.VALUE), _keep_errors(vec.status))


def _keep_errors(status: Array) -> Array | None:
    return np.maximum(status, np.uint8(Status.VALUE)) if status.max() > Status.VALUE else None


FUNCTIONS: dict[str, Function] = {
    "and": _connective(False),
    "or": _connective(True),
    "not": not_,
    "is_null": _null_test(True),
    "is_not_null": _null_test(False),
    "is_true": is_true,
}
