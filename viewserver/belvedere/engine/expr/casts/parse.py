"""The rare spellings, one string at a time, with the rules of Spark's ANSI mode.

Each function returns the physical value or a `Status`. Strings come without the white space and control characters
around them, which every cast ignores.
"""

from __future__ import annotations

import functools
import re
import zoneinfo
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext

from belvedere.engine.expr import calendar
from belvedere.engine.vec import Status

BLANKS = "".join(map(chr, [*range(33), 127]))
"""What is trimmed: ASCII white space and control characters."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_HEX = re.compile(r"[+-]?0[xX]([0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_SPECIAL = {
    "inf": float("inf"),
    "+inf": float("inf"),
    "infinity": float("inf"),
    "+infinity": float("inf"),
    "-inf": float("-inf"),
    "-infinity": float("-inf"),
    "nan": float("nan"),
}
_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?(.*))?)?)?)?)?",
    re.DOTALL,
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})(?::?([0-9]{2}))?)?")
_LOOSE_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2}))?")

_SHORT_ZONES = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
"""Java's ZoneId.SHORT_IDS."""


def integer(text: str, bits: int) -> int | Status:
    if not _INTEGER.fullmatch(text):
        return Status.CAST
    value = int(text)
    return value if -(1 << bits - 1) <= value < 1 << bits - 1 else Status.CAST


def double(text: str) -> float | Status:
    """Java's Double.parseDouble plus names of NaN and infinity in any case."""
    special = _SPECIAL.get(text.lower())
    if special is not None:
        return special
    body = text[:-1] if text[-1:] in ("d", "D", "f", "F") else text
    if _NUMBER.fullmatch(body):
        return float(body)
    if _HEX.fullmatch(body):
        try:
            return float.fromhex(body)
        except OverflowError:
            return float("-inf") if body.startswith("-") else float("inf")
    return Status.CAST


def decimal(text: str, precision: int, scale: int) -> int | Status:
    if not _NUMBER.fullmatch(text):
        return Status.CAST
    number = Decimal(text)
    if number and number.adjusted() >= 38:
        return Status.OVERFLOW
    if number and number.adjusted() < -scale - 1:
        return 0
    with localcontext(prec=max(100, len(text) + 50)):
        unscaled = int(number.scaleb(scale).to_integral_value(rounding=ROUND_HALF_UP))
    return unscaled if abs(unscaled) < 10**precision else Status.OVERFLOW


def date(text: str) -> int | Status:
    """yyyy[-m[m][-d[d]]], anything after a space or T ignored."""
    found = _DATE.fullmatch(text)
    if found is None:
        return Status.CAST
    sign, year, month, day = found.groups()
    return _day(-int(year) if sign == "-" else int(year), month, day)


def _day(year: int, month: str | None, day: str | None) -> int | Status:
    m, d = int(month or 1), int(day or 1)
    if not (1 <= year <= 9999 and 1 <= m <= 12 and 1 <= d <= calendar.month_length.py_func(year, m)):
        return Status.CAST
    return int(calendar.day_number.py_func(year, m, d))


def timestamp(text: str) -> int | Status:
    """yyyy[-m[m][-d[d][( |T)h[h][:m[m][:s[s][.f*][zone]]]]]]. A time without a date would depend on today: refused."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return Status.CAST
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    days = _day(int(year), month, day)
    if isinstance(days, Status):
        return days
    h, m, s = int(hour or 0), int(minute or 0), int(second or 0)
    if h > 23 or m > 59 or s > 59:
        return Status.CAST
    micros = ((days * 24 + h) * 60 + m) * 60_000_000 + s * 1_000_000 + int(((fraction or "") + "000000")[:6])
    if zone:
        info = zone_of(zone.strip(" "))
        if info is None:
            return Status.CAST
        micros -= _offset_micros(info, micros)
    return micros if calendar.MIN_MICROS <= micros <= calendar.MAX_MICROS else Status.CAST


def _offset_micros(info: tzinfo, micros: int) -> int:
    # In a gap Java moves forward by the offset before the transition, which is what fold=0 gives.
    local = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    offset = local.replace(tzinfo=info).utcoffset()
    return 0 if offset is None else offset // timedelta(microseconds=1)


@functools.lru_cache(maxsize=1024)
def zone_of(name: str) -> tzinfo | None:
    """A time zone as Spark spells it: Z, UTC, [UTC|GMT|UT]+h[h][:mm[:ss]], or a region."""
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    name = _SHORT_ZONES.get(name, name)
    found = _OFFSET.fullmatch(name) or _LOOSE_OFFSET.fullmatch(name)
    if found:
        sign, hours, minutes, seconds = found.groups()
        total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
        if total > 18 * 3600 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
            return None
        return timezone(timedelta(seconds=-total if sign == "-" else total))
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return None
