"""INPUT as the leader sees it: its index, the sources behind it, and what of it waits to be committed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from belvedere.backend.seam import InputSize, Sources, Store
from belvedere.protocol.driving import SourceFact
from belvedere.protocol.exactly_once import DURABLE_END, START, Chunk, Seq, SourceId
from belvedere.protocol.exactly_once import positions as durable

INPUT_CHUNKS = 4000
"""Chunks of each source that a plan looks at: about as many as two epochs take while pushes are small."""
SOURCES_SECONDS = 1.0
"""How long a listing of sources is good for, as long as INPUT has none that is not in it."""


@dataclass(frozen=True)
class WaitingInput:
    """Changes that are durable and not committed. `oldest`: when the first of them came (milliseconds), 0 if none."""

    rows: int
    bytes: int
    oldest: int


class Listing:
    """INPUT's index after a listing of sources. The listing may be older than the index by any time: it is asked for
    anew once in a while, and when INPUT has a source that is not in it.

    Of the index the first chunks of each source: behind them there may be millions, if nobody has planned for a while.
    What was shown stays so: a source never ends before where it ended the last time, whatever copies have come since
    and push its later chunks out (`Store.chunks`): the machine relies on what it has seen."""

    def __init__(
        self,
        store: Store,
        sources: Sources,
        limit: int = INPUT_CHUNKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sources` may be another store's."""
        self._store, self._sources, self._limit, self._clock = store, sources, limit, clock
        self._facts: list[SourceFact] = []
        self._listed = -SOURCES_SECONDS
        self._chunks: Sequence[Chunk] = ()
        self._size: InputSize | None = None
        """What INPUT has, if that is more than these chunks."""
        self._reached: dict[SourceId, Seq] = {}
        self._ends: dict[SourceId, Seq] = {}
        """Of sources that ended where what is durable ends: the greatest seq that INPUT had then."""
        self._came = clock()

    @property
    def quiet(self) -> float:
        """Seconds since INPUT had something."""
        return self._clock() - self._came

    def waiting(self, positions: Mapping[SourceId, Seq]) -> WaitingInput:
        """What of INPUT lies behind these positions, as it was when it was last read."""
        index, size = self._chunks, self._size
        chunks = [chunk for chunk in index if chunk.last > positions.get(chunk.source, START)]
        rows, content = sum(chunk.rows for chunk in chunks), sum(chunk.size for chunk in chunks)
        if size is None:
            return WaitingInput(rows, content, min((chunk.at for chunk in chunks), default=0))
        done = sum(chunk.rows for chunk in index) - rows, sum(chunk.size for chunk in index) - content
        oldest = min((chunk.at for chunk in chunks), default=max(chunk.at for chunk in index))
        return WaitingInput(max(rows, size.rows - done[0]), max(content, size.bytes - done[1]), oldest)

    def read(self) -> tuple[Sequence[Chunk], Sequence[SourceFact]]:
        if self._clock() - self._listed > SOURCES_SECONDS:
            self._list()
        chunks = self._index()
        known = {fact.id for fact in self._facts}
        if any(chunk.source not in known for chunk in chunks):
            self._list()
            chunks = self._index()
        self._chunks = chunks
        if chunks:
            self._came = self._clock()
        return chunks, self._facts

    def _index(self) -> Sequence[Chunk]:
        limit = self._limit
        while True:
            chunks = self._store.chunks(limit)
            ends = durable(chunks)
            cut = [source for source, count in Counter(chunk.source for chunk in chunks).items() if count == limit]
            if all(ends[source] >= self._reached.get(source, START) for source in cut):
                break
            limit *= 2
        self._reached |= {source: max(end, self._reached.get(source, START)) for source, end in ends.items()}
        self._size = self._store.input_size() if cut else None
        return chunks

    def _list(self) -> None:
        listed = self._sources.sources()
        ended = [source.id for source in listed if source.last == DURABLE_END]
        if any(id not in self._ends for id in ended):
            # All of INPUT, once for each source that ends: of its first chunks alone no end can be told.
            found = durable(self._store.chunks())
            self._ends |= {id: found.get(id, START) for id in ended if id not in self._ends}
        self._ends = {id: self._ends[id] for id in ended}
        self._facts = [
            SourceFact(s.id, s.parents, self._ends.get(s.id, s.last), s.node, s.id in self._ends) for s in listed
        ]
        self._listed = self._clock()
