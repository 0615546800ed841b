"""What a coordinator asks the store for: every request is asked again, after a pause, until it is answered.

    ask ──▶ WAITING ──answer──▶ what comes then
               ▲ │
               │ └──the store failed──▶ PAUSING ──after RETRY_MS──┐
               └──────────────────────────────────────────────────┘

Why it is safe: requests are numbered and numbers are never used again, so the answer to a request that was forgotten
(it belonged to a term that is over) is nobody's. A request may be carried out twice, or late: a document that is
written has a name that only this content ever has (or, for `pins.COMMITS`, an older content that is as good but for
being older), and everything else only reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from belvedere.protocol.driving import (
    CatalogsAmended,
    CoordinatorInstruction,
    DocumentRead,
    DocumentsListed,
    DocumentWritten,
    InputRead,
    Note,
)

RETRY_MS = 200

Answer: TypeAlias = DocumentWritten | DocumentRead | DocumentsListed | InputRead | CatalogsAmended
Make: TypeAlias = Callable[[int], CoordinatorInstruction]
"""The request with this number."""
Then: TypeAlias = Callable[[Answer], list[CoordinatorInstruction]]


class Asking:
    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[int, tuple[Make, Then]] = {}
        self._again: list[tuple[int, Make, Then]] = []

    def ask(self, make: Make, then: Then) -> list[CoordinatorInstruction]:
        self._number += 1
        self._waiting[self._number] = (make, then)
        return [make(self._number)]

    def answered(self, event: Answer) -> list[CoordinatorInstruction]:
        waiting = self._waiting.pop(event.request, None)
        return [] if waiting is None else waiting[1](event)

    def failed(self, request: int, reason: str, now: int) -> list[CoordinatorInstruction]:
        waiting = self._waiting.pop(request, None)
        if waiting is None:
            return []
        self._again.append((now + RETRY_MS, *waiting))
        return [Note("store does not answer", {"reason": reason})]

    def retry(self, now: int) -> list[CoordinatorInstruction]:
        """Those whose pause is over."""
        due = [(make, then) for at, make, then in self._again if at <= now]
        self._again = [one for one in self._again if one[0] > now]
        return [instruction for make, then in due for instruction in self.ask(make, then)]

    def forget(self) -> None:
        """Nobody wants any of the answers any more."""
        self._waiting, self._again = {}, []
