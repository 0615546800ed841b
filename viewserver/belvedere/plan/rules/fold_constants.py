"""Constant folding and boolean simplification.

Errors are lazy: only what cannot fail is computed here, so `1 / 0` in a branch that is never taken stays what it is.
Runs once and first: constant columns that stand for "always equal" in a join (NOT IN) must survive as columns.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from belvedere.plan.exprs import FALSE, TRUE, conjoin, conjuncts, disjoin, disjuncts
from belvedere.plan.rewriting import bottom_up, map_exprs
from belvedere.sql.catalog import Catalog
from belvedere.sql.expr import Call, Expr, Literal, Value, columns, transform
from belvedere.sql.query import Filter, Join, Query
from belvedere.sql.registry import fallible
from belvedere.types import BOOLEAN, Kind, Type

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
}  # fmt: skip
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_EXACT_IN_DOUBLE = 1 << 53


def fold_constants(query: Query, catalog: Catalog) -> Query:
    """Fold every expression; drop conditions that are always TRUE."""

    def visit(part: Query) -> Query:
        part = map_exprs(part, lambda e: transform(e, _fold))
        if isinstance(part, Filter) and not conjuncts(part.predicate):
            return part.input
        if isinstance(part, Join) and part.condition == TRUE:
            return Join(part.left, part.right, part.kind, None, part.schema, part.position)
        return part

    return bottom_up(query, visit)


def _fold(expr: Expr) -> Expr:
    """One step; the arguments are folded already."""
    if not isinstance(expr, Call):
        return expr
    folder = _FOLDERS.get(expr.name)
    if folder is not None:
        return folder(expr)
    if expr.name in _COMPARE:
        return _comparison(expr)
    return expr


def _and(call: Call) -> Expr:
    parts = [p for p in conjuncts(call) if p != TRUE]
    if FALSE in parts:  # FALSE AND an error is FALSE; equalities stay, since a join needs one even if it has no rows
        return conjoin([*(p for p in parts if _equates_columns(p)), FALSE]) or FALSE
    return conjoin(parts) or TRUE


def _equates_columns(part: Expr) -> bool:
    return isinstance(part, Call) and part.name == "eq" and all(columns(a) for a in part.args) and not fallible(part)


def _or(call: Call) -> Expr:
    parts = [p for p in disjuncts(call) if p != FALSE]
    return TRUE if TRUE in parts else disjoin(parts)


def _not(call: Call) -> Expr:
    (arg,) = call.args
    if isinstance(arg, Literal):
        return Literal(None if arg.value is None else not arg.value, BOOLEAN)
    if isinstance(arg, Call) and arg.name == "not":
        return arg.args[0]
    if isinstance(arg, Call) and arg.name in ("is_null", "is_not_null"):
        return Call("is_not_null" if arg.name == "is_null" else "is_null", arg.args, BOOLEAN)
    return call


def _is_null(call: Call) -> Expr:
    (arg,) = call.args
    if isinstance(arg, Literal):
        return Literal((arg.value is None) == (call.name == "is_null"), BOOLEAN)
    return call


def _is_true(call: Call) -> Expr:
    (arg,) = call.args
    return Literal(arg.value is True, BOOLEAN) if isinstance(arg, Literal) else call


def _case(call: Call) -> Expr:
    """Branches that are never taken go; what follows one that always is goes too."""
    args, kept = list(call.args), list[Expr]()
    default: Expr = args.pop() if len(args) % 2 else Literal(None, call.type)
    for when, then in zip(args[::2], args[1::2], strict=True):
        if isinstance(when, Literal):
            if when.value is True:
                default = then
                break
            continue
        kept += [when, then]
    if not kept:
        return default if default.type == call.type else call
    return Call("case", (*kept, default), call.type)


def _coalesce(call: Call) -> Expr:
    kept: list[Expr] = []
    for arg in call.args:
        if isinstance(arg, Literal):
            if arg.value is None:
                continue
            kept.append(arg)
            break
        kept.append(arg)
    if not kept:
        return Literal(None, call.type)
    if len(kept) == 1 and kept[0].type == call.type:
        return kept[0]
    return Call("coalesce", tuple(kept), call.type)


def _comparison(call: Call) -> Expr:
    a, b = call.args
    if not (isinstance(a, Literal) and isinstance(b, Literal)):
        return call
    if a.value is None or b.value is None:
        return Literal(None, BOOLEAN)
    if a.type != b.type or any(isinstance(v, float) and math.isnan(v) for v in (a.value, b.value)):
        return call
    left, right = _comparable(a.value), _comparable(b.value)
    return Literal(_COMPARE[call.name](left, right), BOOLEAN)


def _comparable(value: Value) -> Value:
    return value.encode() if isinstance(value, str) else value  # strings compare by their UTF-8 bytes


def _cast(call: Call) -> Expr:
    (arg,) = call.args
    if arg.type == call.type:
        return arg
    if isinstance(arg, Literal):
        value = None if arg.value is None else _converted(arg.value, call.type)
        if value is not None or arg.value is None:
            return Literal(value, call.type)
    return call


def _converted(value: Value, target: Type) -> Value:
    """The value in the target type, or None where that could fail or is better left to the evaluator."""
    if isinstance(value, int) and not isinstance(value, bool):
        if target.kind is Kind.BIGINT:
            return value if -(1 << 63) <= value < 1 << 63 else None
        if target.kind is Kind.INT:
            return value if -(1 << 31) <= value < 1 << 31 else None
        if target.kind is Kind.DOUBLE and abs(value) <= _EXACT_IN_DOUBLE:
            return float(value)
        if target.kind is Kind.DECIMAL and abs(value) < 10 ** (target.precision - target.scale):
            return Decimal(value)
    if isinstance(value, Decimal) and target.kind is Kind.DECIMAL:
        _, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        fits = len(digits) + exponent <= target.precision - target.scale and -exponent <= target.scale
        return value if fits else None
    if isinstance(value, str) and target.kind is Kind.DATE and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            return None  # not a day of the calendar: an error when, and only when, it is evaluated
    return None


def _date_add(call: Call) -> Expr:
    day, amount = call.args
    if not (isinstance(day, Literal) and isinstance(amount, Literal)):
        return call
    if not (isinstance(day.value, date) and isinstance(amount.value, int)):
        return call
    sign = -1 if call.name == "date_sub" else 1
    try:
        return Literal(day.value + timedelta(days=sign * amount.value), call.type)
    except OverflowError:
        return call


def _add_months(call: Call) -> Expr:
    day, amount = call.args
    if not (isinstance(day, Literal) and isinstance(amount, Literal)):
        return call
    if not (isinstance(day.value, date) and isinstance(amount.value, int)):
        return call
    months = day.value.year * 12 + day.value.month - 1 + amount.value
    year, month = divmod(months, 12)
    if not 1 <= year < 9999:
        return call
    first = date(year, month + 1, 1)
    following = date(year + (month == 11), (month + 1) % 12 + 1, 1)
    return Literal(first.replace(day=min(day.value.day, (following - first).days)), call.type)


_FOLDERS: dict[str, Callable[[Call], Expr]] = {
    "and": _and,
    "or": _or,
    "not": _not,
    "is_null": _is_null,
    "is_not_null": _is_null,
    "is_true": _is_true,
    "case": _case,
    "coalesce": _coalesce,
    "cast": _cast,
    "date_add": _date_add,
    "date_sub": _date_add,
    "add_months": _add_months,
}
