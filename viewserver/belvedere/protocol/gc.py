"""Rounds of collection, as the leader makes them: which pins there are, a higher horizon, which pins there are now.

    RESTING ──due──▶ LISTING ──pins──▶ RAISING ──durable──▶ LISTING AGAIN ──pins──▶ Collect, tidy up, RESTING
                        │   ▲
                        └───┘ the first of a term: when epochs were committed, as the leader before wrote it down

Why that order is safe is said in `pins`. There is one round at a time, however slow the store is: what is asked of it
is asked until it is answered (`store_requests`), so a round that was begun comes to its end, or its leader does. What
else of the documents nobody needs is listed with the pins (`gc_documents`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TypeAlias

from belvedere.protocol.driving import (
    Collect,
    CoordinatorInstruction,
    DocumentRead,
    DocumentsListed,
    ListDocuments,
    ReadDocument,
    RemoveDocuments,
    WriteDocument,
)
from belvedere.protocol.gc_documents import CATALOGS, PLANS, REPAIRS
from belvedere.protocol.messages import NEVER, Epoch
from belvedere.protocol.pins import COMMITS, HORIZONS, PINS, Collection, commits_document, term_of
from belvedere.protocol.store_requests import Answer, Asking

Unneeded: TypeAlias = Callable[[Iterable[str], Epoch], tuple[str, ...]]
"""(documents that are there, horizon) -> those that may go."""


class Rounds:
    def __init__(self, collection: Collection, asking: Asking, every_ms: int, unneeded: Unneeded) -> None:
        self._collection, self._asking, self._every = collection, asking, every_ms
        self._unneeded = unneeded
        self._now = 0
        self._committed, self._term = NEVER, 0
        self._due = 0
        self._running = False
        self._restored = False

    def advance(self, committed: Epoch, term: int, now: int) -> list[CoordinatorInstruction]:
        """Begin a round if one is due."""
        self._now, self._committed, self._term = now, committed, term
        if self._running or now < self._due:
            return []
        self._running = True
        return self._asking.ask(_listing, self._listed)

    def _listed(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        names = event.names
        former = [] if self._restored else [name for name in names if name.startswith(COMMITS)]
        self._restored = True
        if not former:
            return self._raise_horizon(names)

        def read(event: Answer) -> list[CoordinatorInstruction]:
            assert isinstance(event, DocumentRead)
            self._collection.restore(event.data, self._now)
            # Pins that were written meanwhile are found by the second listing.
            return self._raise_horizon(names)

        return self._asking.ask(functools.partial(ReadDocument, name=max(former, key=term_of)), read)

    def _raise_horizon(self, names: Iterable[str]) -> list[CoordinatorInstruction]:
        pins, horizons = _split(names)
        self._collection.take_over(self._committed, horizons, self._now)
        document = self._collection.choose(pins, self._now)
        if document is None:
            return self._horizon_raised()
        return self._asking.ask(lambda request: WriteDocument(request, document, b""), lambda _: self._horizon_raised())

    def _horizon_raised(self) -> list[CoordinatorInstruction]:
        self._collection.raised()
        return self._asking.ask(_listing_all, self._pins_listed)

    def _pins_listed(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        found = self._collection.collect(*_split(event.names), self._now)
        self._running, self._due = False, self._now + self._every
        instructions: list[CoordinatorInstruction] = [Collect(found.horizon, found.tombstones)]
        documents = (*found.documents, *self._unneeded(event.names, found.horizon))
        own = commits_document(self._term)
        if own in event.names:
            documents += tuple(n for n in event.names if n.startswith(COMMITS) and term_of(n) < self._term)
        if documents:
            instructions.append(RemoveDocuments(documents))
        return instructions + self._write_commits(own)

    def _write_commits(self, document: str) -> list[CoordinatorInstruction]:
        """For the leader after this one. It is the round that goes on first that decides: one write at a time."""
        data = self._collection.to_remember(self._now)
        if data is None:
            return []
        self._running = True

        def written(_: Answer) -> list[CoordinatorInstruction]:
            self._running = False
            return []

        return self._asking.ask(lambda request: WriteDocument(request, document, data), written)


def _listing(request: int) -> CoordinatorInstruction:
    return ListDocuments(request, (PINS, HORIZONS, COMMITS))


def _listing_all(request: int) -> CoordinatorInstruction:
    return ListDocuments(request, (PINS, HORIZONS, COMMITS, PLANS, CATALOGS, REPAIRS))


def _split(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Pins and horizons."""
    names = list(names)
    return [n for n in names if n.startswith(PINS)], [n for n in names if n.startswith(HORIZONS)]
