"""Writes that have a name, so that they can be repeated: the names, and what is remembered of each.

A request is NAME or NAME:DIGEST. The name decides whether it has happened. With a digest, which tells what was to be
written, a name that is used for something else is noticed and refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from belvedere.errors import RequestReused

KEPT_MS = 3_600_000
"""How long a write is remembered by its name."""


def parted(request: str) -> tuple[str, str]:
    """Name and digest."""
    name, _, digest = request.partition(":")
    return name, digest


def check_same(name: str, digest: str, known: str) -> None:
    """Raises RequestReused, if the write that is known by the name was another one."""
    if digest and known and digest != known:
        raise RequestReused(f"another write was made by the name {name[:64]!r}; nothing was written")


@dataclass(frozen=True, slots=True)
class KnownRequest:
    epoch: int
    digest: str


class Requests:
    """Of the embedded database: as old as the log, and then in snapshots. One thread changes it, any may look."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now = now_ms
        self._known: dict[str, KnownRequest] = {}

    def find(self, request: str) -> KnownRequest | None:
        """What is known by the name; raises RequestReused."""
        name, digest = parted(request)
        found = self._known.get(name)
        if found is not None:
            check_same(name, digest, found.digest)
        return found

    def remember(self, request: str, epoch: int) -> None:
        """It is durable. Epochs are times, and in their order the oldest come first."""
        name, digest = parted(request)
        self._known[name] = KnownRequest(epoch, digest)
        old = self._now() - KEPT_MS
        for other in list(self._oldest(4)):
            if self._known[other].epoch < old:
                del self._known[other]

    def _oldest(self, count: int) -> list[str]:
        return [name for name, _ in zip(self._known, range(count), strict=False)]

    def to_json(self, upto: int) -> list[Any]:
        """Those whose writes are in a snapshot of that epoch."""
        known = list(self._known.items())
        return [[name, one.epoch, one.digest] for name, one in known if one.epoch <= upto]

    def load(self, values: list[Any]) -> None:
        self._known.update((name, KnownRequest(epoch, digest)) for name, epoch, digest in values)
