"""Durations as people write them: `1h`, `30 m`, `7d`, and SQL's INTERVAL '1' HOUR. Always milliseconds inside."""

from __future__ import annotations

import re
from decimal import Decimal

_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*")
_INTERVAL = re.compile(r"(\s*\b\d+\s+(millisecond|second|minute|hour|day|week)s?)+\s*", re.IGNORECASE)
EXAMPLE = "write it like 500ms, 30s, 10m, 1h or 7d"


def parse_duration(text: str) -> int | None:
    """Milliseconds of `1h30m` and the like; None if it is no duration."""
    position, total = 0, Decimal(0)
    while position < len(text):
        found = _PART.match(text, position)
        if found is None or found[2].lower() not in _UNITS:
            return None
        total += Decimal(found[1]) * _UNITS[found[2].lower()]
        position = found.end()
    return int(total) if text.strip() and total == int(total) else None


def parse_interval(text: str) -> int | None:
    """Milliseconds of what stands after INTERVAL: whole numbers and units in full, `1 hour 30 minutes`."""
    return parse_duration(text) if _INTERVAL.fullmatch(text) else None
