"""What of INPUT and documents nobody needs any more, gathered and removed a few times in a second.

Every epoch leaves some, and the leader says it again as long as it finds them in the store. Each call is a commit of
its own there, which others would wait for.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from belvedere.backend.seam import Store
from belvedere.protocol.exactly_once import ChunkId

PAUSE_SECONDS = 0.25


class InputGc:
    """Best effort: what fails is said again."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._chunks: dict[ChunkId, None] = {}
        self._documents: dict[str, None] = {}
        self._at = 0.0

    def add(self, chunks: tuple[ChunkId, ...] = (), documents: tuple[str, ...] = ()) -> None:
        self._chunks.update(dict.fromkeys(chunks))
        self._documents.update(dict.fromkeys(documents))

    @property
    def due(self) -> bool:
        return bool(self._chunks or self._documents) and self._clock() >= self._at

    def take(self) -> tuple[list[ChunkId], list[str]]:
        """What `remove` is to be called with, in another thread."""
        self._at = self._clock() + PAUSE_SECONDS
        found = list(self._chunks), list(self._documents)
        self._chunks.clear()
        self._documents.clear()
        return found

    def remove(self, chunks: list[ChunkId], documents: list[str]) -> None:
        if chunks:
            self._store.remove_chunks(chunks)
        if documents:
            self._store.remove_documents(documents)
