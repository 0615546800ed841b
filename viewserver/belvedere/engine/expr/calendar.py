"""The proleptic Gregorian calendar in compiled loops: days since 1970 to fields and back, for years 1 to 9999."""

from __future__ import annotations

from belvedere.engine.state.jit import kernel, part

MIN_DAY, MAX_DAY = -719162, 2932896
"""0001-01-01 and 9999-12-31."""
DAY_MICROS = 86_400_000_000
MIN_MICROS, MAX_MICROS = MIN_DAY * DAY_MICROS, (MAX_DAY + 1) * DAY_MICROS - 1

YEAR, QUARTER, MONTH, DAY, DAY_OF_WEEK, DAY_OF_YEAR, WEEK_OF_YEAR = range(7)
TO_YEAR, TO_QUARTER, TO_MONTH, TO_WEEK, TO_LAST_DAY = range(5)


@part
def civil(day):  # type: ignore[no-untyped-def]  # compiled
    """(year, month, day of month); http://howardhinnant.github.io/date_algorithms.html"""
    z = day + 719468
    era = z // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    return yoe + era * 400 + (1 if month <= 2 else 0), month, doy - (153 * mp + 2) // 5 + 1


@part
def day_number(year, month, day):  # type: ignore[no-untyped-def]  # compiled
    """Days since 1970-01-01."""
    y = year - 1 if month <= 2 else year
    era = y // 400
    yoe = y - era * 400
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


@part
def month_length(year, month):  # type: ignore[no-untyped-def]  # compiled
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@part
def iso_week(day):  # type: ignore[no-untyped-def]  # compiled
    thursday = day - (day + 3) % 7 + 3
    return (thursday - day_number(civil(thursday)[0], 1, 1)) // 7 + 1


@kernel("i8[:] i8 i4[:]")
def field_rows(days, field, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(days)):
        n = days[i] + 0
        if field == DAY_OF_WEEK:
            out[i] = (n + 4) % 7 + 1
            continue
        if field == WEEK_OF_YEAR:
            out[i] = iso_week(n)
            continue
        year, month, day = civil(n)
        if field == YEAR:
            out[i] = year
        elif field == QUARTER:
            out[i] = (month - 1) // 3 + 1
        elif field == MONTH:
            out[i] = month
        elif field == DAY:
            out[i] = day
        else:
            out[i] = n - day_number(year, 1, 1) + 1


@kernel("i8[:] i8 i8[:]")
def truncate_rows(days, unit, out):  # type: ignore[no-untyped-def]  # compiled
    for i in range(len(days)):
        n = days[i] + 0
        if unit == TO_WEEK:
            out[i] = n - (n + 3) % 7
            continue
        year, month, _ = civil(n)
        if unit == TO_YEAR:
            out[i] = day_number(year, 1, 1)
        elif unit == TO_QUARTER:
            out[i] = day_number(year, (month - 1) // 3 * 3 + 1, 1)
        elif unit == TO_MONTH:
            out[i] = day_number(year, month, 1)
        else:
            out[i] = day_number(year, month, month_length(year, month))


@kernel("i8[:] i8[:] i8[:] b1[:]")
def add_months_rows(days, months, out, bad):  # type: ignore[no-untyped-def]  # compiled
    """The same day of the month or its last one; `bad` where the year leaves 1..9999. One month stands for all rows."""
    step = 1 if len(months) == len(days) else 0
    for i in range(len(days)):
        year, month, day = civil(days[i] + 0)
        total = year * 12 + month - 1 + months[i * step]
        year = total // 12
        month = total - year * 12 + 1
        if year < 1 or year > 9999:
            bad[i] = True
            out[i] = 0
        else:
            out[i] = day_number(year, month, min(day, month_length(year, month)))
