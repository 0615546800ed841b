"""What happened, for people: virtual time, who, what. Kept only when asked for, since most histories have nothing to
tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from belvedere.protocol.messages import EpochPlan, Generation, PoolState

Line = tuple[int, str, str]

_LONG = 160


class Trace:
    """`record(now, who, what)`; `what` may be an event, an instruction or a text."""

    def __init__(self, enabled: bool = False, echo: Callable[[str], None] | None = None) -> None:
        self.enabled = enabled
        self.lines: list[Line] = []
        self._echo = echo

    def record(self, now: int, who: str, *what: Any) -> None:
        if not self.enabled:
            return
        line = (now, who, " ".join(part if isinstance(part, str) else describe(part) for part in what))
        self.lines.append(line)
        if self._echo is not None:
            self._echo(show(line))

    def tail(self, count: int) -> list[str]:
        return [show(line) for line in self.lines[-count:]]


def show(line: Line) -> str:
    now, who, what = line
    return f"{now / 1_000_000:10.6f}  {who:<16} {what}"


def describe(value: Any) -> str:
    """A dataclass with its fields, without what is empty, and not at any length."""
    if isinstance(value, EpochPlan):
        pieces = ", ".join(f"{piece.source}({piece.after}, {piece.last}]" for piece in value.pieces)
        slices = "".join(f" circuit {part.circuit} to {part.stop}" for part in value.slices)
        return f"plan {value.epoch} [{pieces}] catalog {value.catalog}{slices}"
    if isinstance(value, Generation):
        return f"generation {value.number} of {value.leader} [{' '.join((*value.servers, *value.distributors))}]"
    if isinstance(value, PoolState):
        opened = [pointer.epoch for pointer in value.open]
        told = f"generation {value.generation} committed {value.committed} open {opened}"
        return f"[{value.leader} term {value.term} {told}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        told = ", ".join(f"{name}={describe(field)}" for name, field in fields if field not in ((), "", None))
        return f"{type(value).__name__}({told})"
    if isinstance(value, Mapping):
        text = "{" + ", ".join(f"{k}: {describe(v)}" for k, v in value.items()) + "}"
    elif isinstance(value, (tuple, list)):
        text = "[" + ", ".join(describe(item) for item in value) + "]"
    elif isinstance(value, (bytes, memoryview)):
        text = f"<{len(value)} bytes>"
    else:
        text = str(value)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
