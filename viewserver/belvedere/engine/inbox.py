"""Batches that wait for their stage: in memory as far as the budget goes, else in a temporary file."""

from __future__ import annotations

from collections.abc import Iterator

from belvedere.spill import Budget, HeldItem, Spill, as_it_is


class StageInbox:
    """Payloads by stage."""

    def __init__(self, budget: Budget):
        self._spill: Spill[bytes] = Spill(budget, as_it_is, as_it_is)
        self._waiting: dict[int, list[tuple[tuple[int, int], HeldItem[bytes]]]] = {}

    def put(self, stage: int, order: tuple[int, int], payload: bytes) -> None:
        self._waiting.setdefault(stage, []).append((order, self._spill.hold(payload, len(payload))))

    def take(self, stage: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        """The payloads of a stage, which are no longer waiting then, in their order."""
        for order, held in sorted(self._waiting.pop(stage, ()), key=lambda item: item[0]):
            payload = self._spill.fetch(held)
            self._spill.release(held)
            yield order, payload

    def clear(self) -> None:
        """Forget everything."""
        self._waiting = {}
        self._spill.close()
