"""What happened, for people: virtual time, who, what. Kept only when asked for, since most histories have nothing to
tell. For tests: how often what histories are there for did happen, always."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from belvedere.protocol.messages import EpochPlan, Generation, PoolState

Line = tuple[int, str, str]

_LONG = 160
RECORD = "record"
"""Who: the record has changed."""


class Trace:
    """`record(now, who, what)`; `what` may be an event, an instruction or a text."""

    def __init__(self, enabled: bool = False, echo: Callable[[str], None] | None = None) -> None:
        self.enabled = enabled
        self.lines: list[Line] = []
        self.effects: Counter[str] = Counter()
        self._calm: int | None = None
        self._echo = echo

    def record(self, now: int, who: str, *what: Any) -> None:
        if not self.enabled:
            return
        line = (now, who, " ".join(part if isinstance(part, str) else describe(part) for part in what))
        self.lines.append(line)
        if self._echo is not None:
            self._echo(show(line))

    def effect(self, now: int, who: str, what: str) -> None:
        """Something that histories are there for has happened."""
        self.effects[what] += 1
        self.record(now, who, what)

    def calm(self, now: int) -> None:
        """All faults have ended."""
        self.record(now, "nemesis", "everything works from now on")
        self._calm = len(self.lines)

    def excerpt(self, count: int) -> list[str]:
        """About so many lines. A cluster that does not come to rest was brought to that while there were faults, and
        nothing that it does a minute later tells how: then the end of the faults is shown as well, and what became of
        the record since."""
        lines, calm = self.lines, self._calm
        if calm is None or len(lines) <= count:
            return self.tail(count)
        since = [i for i in range(calm, len(lines)) if lines[i][1] == RECORD]
        chosen = {*range(calm - count // 2, calm + count // 8), *since[-count // 8 :]}
        chosen |= set(range(len(lines) - count // 4, len(lines)))
        found, before = [], -1
        for i in sorted(i for i in chosen if 0 <= i < len(lines)):
            if i > before + 1:
                found.append(f"… {i - before - 1} lines")
            found.append(show(lines[i]))
            before = i
        return found

    def tail(self, count: int) -> list[str]:
        return [show(line) for line in self.lines[-count:]]


def show(line: Line) -> str:
    now, who, what = line
    return f"{now / 1_000_000:10.6f}  {who:<16} {what}"


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (tuple, str)) and not value)


def describe(value: Any) -> str:
    """A dataclass with its fields, without what is empty, and not at any length."""
    if isinstance(value, EpochPlan):
        pieces = ", ".join(f"{piece.source}({piece.after}, {piece.last}]" for piece in value.pieces)
        slices = "".join(f" view group {part.view_group} to {part.stop}" for part in value.slices)
        return f"plan {value.epoch} [{pieces}] catalog {value.catalog}{slices}"
    if isinstance(value, Generation):
        return f"generation {value.number} of {value.leader} [{' '.join((*value.servers, *value.distributors))}]"
    if isinstance(value, PoolState):
        opened = [pointer.epoch for pointer in value.open]
        told = f"generation {value.generation} committed {value.committed} open {opened}"
        return f"[{value.leader} term {value.term} {told}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        told = ", ".join(f"{name}={describe(field)}" for name, field in fields if not _is_empty(field))
        return f"{type(value).__name__}({told})"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{k}: {describe(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, (tuple, list)):
        text = "[" + ", ".join(describe(item) for item in value) + "]"
    elif isinstance(value, (set, frozenset)):
        text = "{" + ", ".join(sorted(describe(item) for item in value)) + "}"
    elif isinstance(value, (bytes, memoryview)):
        text = f"<{len(value)} bytes>"
    else:
        text = str(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
