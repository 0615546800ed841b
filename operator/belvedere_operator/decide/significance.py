"""Whether a new status is worth writing.

Every write wakes everybody who watches the resource, and views commit fifty times a second. So figures are written when
they have changed by a tenth, at most once a minute; everything else at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belvedere_operator.times import age_s

FIGURES = ("rows", "bytes", "size", "lag", "epoch", "figuresTime")
EVERY_S = 60.0
SHARE = 0.1


def worth_writing(before: Mapping[str, Any], after: Mapping[str, Any], now: float) -> bool:
    if _without_figures(before) != _without_figures(after):
        return True
    if any((name in before) != (name in after) for name in FIGURES):
        return True
    if not any(_moved(before.get(name), after.get(name)) for name in ("rows", "bytes", "lag")):
        return False
    return age_s(before.get("figuresTime"), now) >= EVERY_S


def _without_figures(status: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in status.items() if name not in FIGURES}
    if "scaling" in found:  # its text has figures; the number is what counts
        found["scaling"] = {name: value for name, value in found["scaling"].items() if name != "explanation"}
    return found


def _moved(before: object, after: object) -> bool:
    if isinstance(before, int) and isinstance(after, int):
        return abs(after - before) > SHARE * max(1, before)
    return before != after
