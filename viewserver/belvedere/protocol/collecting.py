"""Rounds of collection, as the leader makes them: which pins there are, a higher horizon, which pins there are now.

    RESTING ──due──▶ LISTING ──pins──▶ RAISING ──durable──▶ LISTING AGAIN ──pins──▶ Collect, tidy up, RESTING
                        └──────────── no answer for COLLECT_PATIENCE retries: another round ◀┘

Why that order is safe is said in `pins`. What comes for a round that was given up is too old, since its pins were
listed before the horizon was raised: it is dropped. What else of the documents nobody needs is listed with the pins
(`tidying`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from belvedere.protocol.asking import RETRY_MS, Answer, Asking, Then
from belvedere.protocol.driving import (
    Collect,
    CoordinatorInstruction,
    DocumentsListed,
    ListDocuments,
    RemoveDocuments,
    WriteDocument,
)
from belvedere.protocol.messages import NEVER, Epoch
from belvedere.protocol.pins import HORIZONS, PINS, Collection
from belvedere.protocol.tidying import CATALOGS, PLANS

COLLECT_PATIENCE = 25
"""A round that gets no answer for so many retries is begun again."""


Unneeded: TypeAlias = Callable[[Iterable[str], Epoch], tuple[str, ...]]
"""(documents that are there, horizon) -> those that may go."""


class Rounds:
    def __init__(self, collection: Collection, asking: Asking, every_ms: int, unneeded: Unneeded) -> None:
        self._collection, self._asking, self._every = collection, asking, every_ms
        self._unneeded = unneeded
        self._now = 0
        self._committed = NEVER
        self._due = 0
        self._round = 0

    def advance(self, committed: Epoch, now: int) -> list[CoordinatorInstruction]:
        """Begin a round if one is due."""
        self._now, self._committed = now, committed
        if now < self._due:
            return []
        self._due = now + max(self._every, COLLECT_PATIENCE * RETRY_MS)
        self._round += 1
        return self._asking.ask(_listing, self._of_round(self._raise_horizon))

    def _of_round(self, then: Callable[[Answer], list[CoordinatorInstruction]]) -> Then:
        round = self._round
        return lambda event: then(event) if round == self._round else []

    def _raise_horizon(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        pins, horizons = _split(event.names)
        self._collection.take_over(self._committed, horizons, self._now)
        document = self._collection.choose(pins, self._now)
        if document is None:
            return self._horizon_raised()
        raised = self._of_round(lambda _: self._horizon_raised())
        return self._asking.ask(lambda request: WriteDocument(request, document, b""), raised)

    def _horizon_raised(self) -> list[CoordinatorInstruction]:
        self._collection.raised()
        return self._asking.ask(_listing_all, self._of_round(self._pins_listed))

    def _pins_listed(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        found = self._collection.collect(*_split(event.names), self._now)
        self._due = self._now + self._every
        instructions: list[CoordinatorInstruction] = [Collect(found.horizon, found.tombstones)]
        documents = (*found.documents, *self._unneeded(event.names, found.horizon))
        if documents:
            instructions.append(RemoveDocuments(documents))
        return instructions


def _listing(request: int) -> CoordinatorInstruction:
    return ListDocuments(request, (PINS, HORIZONS))


def _listing_all(request: int) -> CoordinatorInstruction:
    return ListDocuments(request, (PINS, HORIZONS, PLANS, CATALOGS))


def _split(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Pins and horizons."""
    names = list(names)
    return [n for n in names if n.startswith(PINS)], [n for n in names if n.startswith(HORIZONS)]
