"""Short ways to build calls and run them over Python values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from belvedere.engine.expr import evaluate
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.vec import Vec
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.types import Type


def run(name: str, result: Type, *args: tuple[Type, Sequence[Any]] | Literal) -> list[Any]:
    """Apply a function to columns (type, values) and literals; Python values, None, or `Status` for errors."""
    columns: list[Vec] = []
    bound: list[Any] = []
    for arg in args:
        if isinstance(arg, Literal):
            bound.append(arg)
        else:
            bound.append(ColumnRef(len(columns), arg[0]))
            columns.append(vec_of(list(arg[1]), arg[0]))
    count = len(columns[0]) if columns else 1
    return to_pylist(evaluate(Call(name, tuple(bound), result), columns, count))


def one(name: str, result: Type, *args: tuple[Type, Any]) -> Any:
    """One row, computed three ways that must agree: over columns, folded, and with the last argument a literal."""
    columns = run(name, result, *((t, [v]) for t, v in args))[0]
    folded = run(name, result, *(Literal(v, t) for t, v in args))[0]
    mixed = columns
    if len(args) > 1:
        type, value = args[-1]
        mixed = run(name, result, *((t, [v]) for t, v in args[:-1]), Literal(value, type))[0]
    assert repr(columns) == repr(folded) == repr(mixed), (name, args, columns, folded, mixed)
    return columns
