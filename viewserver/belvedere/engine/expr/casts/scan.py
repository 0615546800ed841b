"""Compiled parsers of the usual spellings of numbers, dates and timestamps. What they do not recognise is flagged for
the Python parsers, which know every spelling and decide what is an error."""

from __future__ import annotations

from belvedere.engine.expr.calendar import day_number, month_length
from belvedere.engine.state.jit import kernel, part


@part
def _digits(data, begin, end):  # type: ignore[no-untyped-def]  # compiled
    """The number in bytes begin..end, or -1 if one is not a digit; at most 18 of them."""
    value = 0
    for j in range(begin, end):
        d = data[j] - 48
        if d < 0 or d > 9:
            return -1
        value = value * 10 + d
    return value


@kernel("i4[:] u1[:] i8[:] b1[:]")
def integer_rows(offsets, data, out, hard):  # type: ignore[no-untyped-def]  # compiled
    """[sign] 1..18 digits."""
    for i in range(len(out)):
        b, e = offsets[i], offsets[i + 1]
        negative = False
        if b < e and (data[b] == 45 or data[b] == 43):
            negative = data[b] == 45
            b += 1
        value = _digits(data, b, e) if 0 < e - b <= 18 else -1
        hard[i] = value < 0
        out[i] = -value if negative else value


@kernel("i4[:] u1[:] i8 i8[:] b1[:]")
def decimal_rows(offsets, data, scale, out, hard):  # type: ignore[no-untyped-def]  # compiled
    """[sign] digits [. digits] with at most `scale` digits after the point and at most 18 in all, once scaled."""
    for i in range(len(out)):
        b, e = offsets[i], offsets[i + 1]
        negative = False
        if b < e and (data[b] == 45 or data[b] == 43):
            negative = data[b] == 45
            b += 1
        value, digits, after = 0, 0, -1
        good = True
        for j in range(b, e):
            c = data[j]
            if c == 46 and after < 0:
                after = 0
            elif 48 <= c <= 57 and digits < 18:
                value = value * 10 + (c - 48)
                digits += 1
                if after >= 0:
                    after += 1
            else:
                good = False
                break
        missing = scale - max(after, 0)
        if not good or digits == 0 or missing < 0 or digits + missing > 18:
            hard[i] = True
            out[i] = 0
            continue
        for _ in range(missing):
            value *= 10
        hard[i] = False
        out[i] = -value if negative else value


@part
def _day(data, b):  # type: ignore[no-untyped-def]  # compiled
    """(is a date, day number) of yyyy-mm-dd at b."""
    if data[b + 4] != 45 or data[b + 7] != 45:
        return False, 0
    year, month, day = _digits(data, b, b + 4), _digits(data, b + 5, b + 7), _digits(data, b + 8, b + 10)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > month_length(year, month):
        return False, 0
    return True, day_number(year, month, day)


@kernel("i4[:] u1[:] i8[:] b1[:]")
def date_rows(offsets, data, out, hard):  # type: ignore[no-untyped-def]  # compiled
    """yyyy-mm-dd."""
    for i in range(len(out)):
        good, day = False, 0
        if offsets[i + 1] - offsets[i] == 10:
            good, day = _day(data, offsets[i])
        hard[i] = not good
        out[i] = day


@kernel("i4[:] u1[:] i8[:] b1[:]")
def timestamp_rows(offsets, data, out, hard):  # type: ignore[no-untyped-def]  # compiled
    """yyyy-mm-dd hh:mm:ss[.f{1,6}], with a space or T between, optionally Z at the end."""
    for i in range(len(out)):
        b, e = offsets[i], offsets[i + 1]
        hard[i] = True
        out[i] = 0
        if e - b > 19 and data[e - 1] == 90:
            e -= 1
        size = e - b
        if size < 19 or size == 20 or size > 26:
            continue
        good, day = _day(data, b)
        if not good or (data[b + 10] != 32 and data[b + 10] != 84) or data[b + 13] != 58 or data[b + 16] != 58:
            continue
        hour, minute, second = (
            _digits(data, b + 11, b + 13),
            _digits(data, b + 14, b + 16),
            _digits(data, b + 17, b + 19),
        )
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            continue
        micros = 0
        if size > 20:
            if data[b + 19] != 46:
                continue
            micros = _digits(data, b + 20, e)
            if micros < 0:
                continue
            for _ in range(26 - size):
                micros *= 10
        hard[i] = False
        out[i] = ((day * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros
