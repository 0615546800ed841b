"""Dates over the whole calendar against Python's datetime."""

from __future__ import annotations

import calendar
import random
from datetime import UTC, date, datetime, timedelta

import numpy as np
import pytest

from belvedere.engine.expr import evaluate
from belvedere.engine.expr.calendar import MAX_DAY, MIN_DAY
from belvedere.engine.vec import Status, Vec
from belvedere.sql.expr import Call, ColumnRef, Literal
from belvedere.types import BIGINT, DATE, INT, STRING, TIMESTAMP
from tests.engine.expr.model import one, run

FIELDS = {
    "year": lambda d: d.year,
    "quarter": lambda d: (d.month - 1) // 3 + 1,
    "month": lambda d: d.month,
    "day": lambda d: d.day,
    "dayofweek": lambda d: d.isoweekday() % 7 + 1,
    "dayofyear": lambda d: d.timetuple().tm_yday,
    "weekofyear": lambda d: d.isocalendar()[1],
}


def test_every_day_of_the_calendar() -> None:
    days = Vec(DATE, np.arange(MIN_DAY, MAX_DAY + 1, 7, dtype=np.int32))
    python = [date.fromordinal(n + 719163) for n in days.data.tolist()]
    for name, model in FIELDS.items():
        got = evaluate(Call(name, (ColumnRef(0, DATE),), INT), [days], len(days))
        assert got.data.tolist() == [model(d) for d in python], name
    text = evaluate(Call("cast", (ColumnRef(0, DATE),), STRING), [days], len(days))
    assert text.data.to_pylist() == [d.isoformat() for d in python]
    back = evaluate(Call("cast", (ColumnRef(0, STRING),), DATE), [text], len(days))
    assert back.status is None and np.array_equal(back.data, days.data)


DATES = [date(1, 1, 1), date(1900, 2, 28), date(2000, 2, 29), date(2024, 12, 30), date(9999, 12, 31), None]
UNITS = {
    "year": lambda d: d.replace(month=1, day=1),
    "quarter": lambda d: d.replace(month=(d.month - 1) // 3 * 3 + 1, day=1),
    "month": lambda d: d.replace(day=1),
    "week": lambda d: d - timedelta(days=d.weekday()),
}


@pytest.mark.parametrize("unit", UNITS)
def test_truncation(unit: str) -> None:
    want = [None if d is None else UNITS[unit](d) for d in DATES]
    assert run("trunc", DATE, (DATE, DATES), Literal(unit, STRING)) == want
    stamps = [None if d is None else datetime(d.year, d.month, d.day, 13, 1, 2, 3, UTC) for d in DATES]
    midnight = [None if d is None else datetime(d.year, d.month, d.day, tzinfo=UTC) for d in want]
    assert run("date_trunc", TIMESTAMP, Literal(unit.upper(), STRING), (TIMESTAMP, stamps)) == midnight


def add_months(d: date, months: int) -> date | Status:
    year, month = divmod(d.year * 12 + d.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        return Status.OVERFLOW
    return date(year, month + 1, min(d.day, calendar.monthrange(year, month + 1)[1]))


def add_days(d: date, days: int) -> date | Status:
    try:
        return d + timedelta(days=days)
    except OverflowError:
        return Status.OVERFLOW


def test_arithmetic() -> None:
    rng = random.Random(1)
    days = [date.fromordinal(rng.randint(1, date.max.toordinal())) for _ in range(500)]
    shifts = [rng.choice([0, 1, -1, 12, 100000, -100000, 2**31 - 1, -(2**31)]) for _ in days]
    pairs = list(zip(days, shifts, strict=True))
    assert run("add_months", DATE, (DATE, days), (INT, shifts)) == [add_months(d, n) for d, n in pairs]
    assert run("date_add", DATE, (DATE, days), (INT, shifts)) == [add_days(d, n) for d, n in pairs]
    assert run("date_sub", DATE, (DATE, days), (INT, shifts)) == [add_days(d, -n) for d, n in pairs]
    others = days[::-1]
    want = [(a - b).days for a, b in zip(days, others, strict=True)]
    assert run("datediff", INT, (DATE, days), (DATE, others)) == want
    last = [d.replace(day=calendar.monthrange(d.year, d.month)[1]) for d in days]
    assert run("last_day", DATE, (DATE, days)) == last


def test_timestamps() -> None:
    at = datetime(2024, 1, 31, 23, 59, 59, 999999, UTC)
    assert one("ts_add_micros", TIMESTAMP, (TIMESTAMP, at), (BIGINT, 1)) == datetime(2024, 2, 1, tzinfo=UTC)
    assert one("ts_add_micros", TIMESTAMP, (TIMESTAMP, at), (BIGINT, 2**63 - 1)) is Status.OVERFLOW
    assert one("ts_add_micros", TIMESTAMP, (TIMESTAMP, at), (BIGINT, None)) is None
    assert one("ts_add_months", TIMESTAMP, (TIMESTAMP, at), (INT, 1)) == at.replace(month=2, day=29)
    assert one("ts_add_months", TIMESTAMP, (TIMESTAMP, at), (INT, 12 * 8000)) is Status.OVERFLOW
    early = datetime(1, 1, 1, 1, 2, 3, 4, UTC)
    for name, want in (("hour", 1), ("minute", 2), ("second", 3)):
        assert one(name, INT, (TIMESTAMP, early)) == want


def test_rows_without_a_value_may_hold_anything() -> None:
    vec = Vec(DATE, np.array([0, 2**31 - 1, -(2**31)], np.int32), np.array([1, 0, 2], np.uint8))
    for name in FIELDS:
        got = evaluate(Call(name, (ColumnRef(0, DATE),), INT), [vec], 3)
        assert got.status is not None and got.status.tolist() == [1, 0, 2]
    assert evaluate(Call("cast", (ColumnRef(0, DATE),), STRING), [vec], 3).data[0].as_py() == "1970-01-01"


@pytest.mark.parametrize(
    ("zone", "hour"), [("PST", 20), ("EST", 17), ("Zulu", 12), ("+02:00", 10), ("Europe/Berlin", 11), ("utc", None)]
)
def test_zones_in_text(zone: str, hour: int | None) -> None:
    want = Status.CAST if hour is None else datetime(2024, 2, 29, hour, 13, 14, tzinfo=UTC)
    assert one("cast", TIMESTAMP, (STRING, f"2024-02-29 12:13:14 {zone}")) == want
