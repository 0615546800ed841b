"""Intervals: only as something added to a date or a timestamp, so they never become values of their own."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from belvedere.errors import SqlError
from belvedere.sql.coercion import cast
from belvedere.sql.expr import Call, Expr, Literal
from belvedere.sql.functions import MAX_INT
from belvedere.sql.parser import SqlText
from belvedere.types import BIGINT, DATE, INT, TIMESTAMP, Kind

_MONTHS = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_DAYS = {"WEEK": 7, "DAY": 1}
_MICROS = {"HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000, "MILLISECOND": 1_000, "MICROSECOND": 1}
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Shift:
    """A constant interval: whole months, whole days, or microseconds; only one of them is set."""

    months: int = 0
    days: int = 0
    micros: int = 0


def parse(source: SqlText, node: exp.Expr) -> Shift:
    """INTERVAL '2' DAY and its kin."""
    unit = node.args.get("unit")
    value = node.this
    sign = 1
    if isinstance(value, exp.Neg):
        sign, value = -1, value.this
    if not isinstance(value, exp.Literal):
        raise source.unsupported("an interval must be a constant", node, "for days of a column: date_add(d, n)")
    if not isinstance(unit, exp.Var):
        raise source.unsupported("this form of interval is not supported", node, "interval '2' day, interval '1' month")
    name = unit.name.upper().removesuffix("S")
    try:
        amount = Decimal(value.name.strip())
        if not amount.is_finite():
            raise InvalidOperation
    except InvalidOperation:
        raise source.error(f"{value.name!r} is not a number of {name.lower()}s", value, "interval '2' day") from None
    if abs(amount.adjusted()) > 18:  # before anything is computed: 1e999999999 has a billion digits
        raise _out_of_range(source, value, name)
    amount *= sign
    shift = _shift(source, node, value, amount, name)
    if abs(shift.months) > MAX_INT or abs(shift.days) > MAX_INT or abs(shift.micros) >= 2**63:
        raise _out_of_range(source, value, name)
    return shift


def _out_of_range(source: SqlText, value: exp.Expr, name: str) -> SqlError:
    return source.error(f"an interval of {value.name} {name.lower()}s is out of range", value)


def _shift(source: SqlText, node: exp.Expr, value: exp.Expr, amount: Decimal, name: str) -> Shift:
    if name in _MICROS:
        return Shift(micros=int(amount * _MICROS[name]))
    if amount != int(amount):
        raise source.error(f"an interval of {name.lower()}s must be whole", value)
    if name in _MONTHS:
        return Shift(months=int(amount) * _MONTHS[name])
    if name in _DAYS:
        return Shift(days=int(amount) * _DAYS[name])
    raise source.unsupported(
        f"interval unit {name.lower()} is not supported", node, "year, month, week, day, hour, minute, second"
    )


def add(source: SqlText, node: exp.Expr, base: Expr, shift: Shift, sign: int) -> Expr:
    """date or timestamp + sign * interval."""
    kind = base.type.kind
    if kind is Kind.STRING or kind is Kind.NULL:
        base, kind = cast(base, TIMESTAMP), Kind.TIMESTAMP
    if kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise source.error(f"an interval cannot be added to {base.type}", node, "it needs a date or a timestamp")
    if kind is Kind.DATE:
        if shift.months:
            return Call("add_months", (base, Literal(sign * shift.months, INT)), DATE)
        if not shift.micros:
            return Call("date_add", (base, Literal(sign * shift.days, INT)), DATE)
        base = cast(base, TIMESTAMP)
    if shift.months:
        return Call("ts_add_months", (base, Literal(sign * shift.months, INT)), TIMESTAMP)
    # days * microseconds may pass 64 bits; what lies so far away is out of the calendar either way
    micros = max(-(2**63) + 1, min(shift.micros + shift.days * _DAY_MICROS, 2**63 - 1))
    return Call("ts_add_micros", (base, Literal(sign * micros, BIGINT)), TIMESTAMP)
