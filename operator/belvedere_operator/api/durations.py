"""Durations as manifests write them (`500ms`, `30s`, `1h30m`, `7 days`): texts that the database understands, too."""

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
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]+)\s*")

PATTERN = rf"(?i)^(\s*[0-9]+(\.[0-9]+)?\s*({'|'.join(sorted(_UNITS, key=len, reverse=True))})\s*)+$"
"""For schemas, where a value is checked by a regular expression (RE2)."""
POSITIVE = "self.matches('[1-9]')"
"""CEL: a duration of more than nothing."""


def milliseconds(text: str) -> int:
    """Of a duration; ValueError with what would work if it is none."""
    position, total = 0, Decimal(0)
    while position < len(text):
        found = _PART.match(text, position)
        if found is None or found[2].lower() not in _UNITS:
            break
        total += Decimal(found[1]) * _UNITS[found[2].lower()]
        position = found.end()
    if not text.strip() or position < len(text) or total != int(total):
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 30s, 10m, 1h or 7d")
    return int(total)


def seconds(text: str) -> float:
    return milliseconds(text) / 1000


def shown(ms: float) -> str:
    """Short, for people and columns; coarse, so that a status does not change with every tick."""
    if ms < 1_000:
        return "<1s"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000)):
        if ms >= 2 * size:
            return f"{int(ms // size)}{unit}"
    return f"{int(ms // 1000)}s"
