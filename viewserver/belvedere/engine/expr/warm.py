"""Run every compiled loop of the evaluator once, on one row, so that the first real batch does not wait for it."""

from __future__ import annotations

from decimal import Decimal

from belvedere.engine.expr.evaluate import evaluate
from belvedere.engine.expr.literal import vec_of
from belvedere.sql.expr import Call, ColumnRef, Literal, Value
from belvedere.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, STRING, TIMESTAMP, Type, decimal


def warm() -> None:
    """Compile, or load from the cache."""
    small, wide = decimal(12, 2), decimal(38, 10)
    values: dict[Type, Value] = {
        small: Decimal("12.50"),
        wide: Decimal("3.25"),
        DOUBLE: 2.5,
        STRING: "2024-02-29",
        BIGINT: 7,
    }
    types = list(values)
    columns = [vec_of([value], type) for type, value in values.items()]

    def column(type: Type) -> ColumnRef:
        return ColumnRef(types.index(type), type)

    calls = [
        Call(name, (column(type), column(type)), result)
        for type, result in ((small, decimal(26, 4)), (wide, wide))
        for name in ("add", "sub", "mul", "div", "mod")
    ]
    calls += [Call(name, (column(wide), column(wide)), BOOLEAN) for name in ("lt", "eq")]
    calls += [Call(name, (column(DOUBLE),), DOUBLE) for name in ("exp", "ln")]
    calls += [Call("power", (column(DOUBLE), column(DOUBLE)), DOUBLE)]
    calls += [Call("substring", (column(STRING), Literal(1, INT), Literal(4, INT)), STRING)]
    calls += [Call("cast", (column(STRING),), type) for type in (DATE, TIMESTAMP, small, wide, DOUBLE, BIGINT)]
    calls += [Call("cast", (column(small),), type) for type in (wide, decimal(10, 1), BIGINT, DOUBLE, STRING)]
    calls += [Call("cast", (column(wide),), type) for type in (small, BIGINT, DOUBLE, STRING)]
    calls += [Call("cast", (column(type),), wide) for type in (BIGINT, DOUBLE)]
    day = Call("cast", (column(STRING),), DATE)
    calls += [Call(name, (day,), INT) for name in ("year", "month", "day")]
    calls += [Call("add_months", (day, Literal(1, INT)), DATE)]
    for call in calls:
        evaluate(call, columns, 1)
