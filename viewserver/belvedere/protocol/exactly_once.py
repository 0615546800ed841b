"""Exactly once: which pushed entries are written to INPUT, when they are acknowledged, and which copies a plan takes.

A source pushes its log, entry by entry, each with a seq; seqs grow, with gaps, and there is no seek. A request that got
no answer comes again, perhaps cut elsewhere, perhaps to another distributor, while the first one is still on its way.
So the same entry may be written to INPUT several times, and two layers make it count once:

    pusher ──ReceivedEntries──▶ DuplicateFilter (one per distributor) ──Write──▶ INPUT ──positions, choose──▶ plan(e)
                 ◀──Acknowledge / Refuse──      ▲                                  │
                                                └──WrittenChunk────────────────────┘

* The `DuplicateFilter` drops what it *knows* to be durable. It saves work; correctness does not rest on it, since what
  another distributor wrote a moment ago it cannot know.
* `choose` cuts overlapping chunks so that each seq above the last plan is taken from one chunk. This is what counts.

What a pusher promises (HBase's serial peers and our own store do): a request is a run of its source's log without
omissions, and is sent only when everything before it was acknowledged, to this pusher or to an earlier one.

Why it is safe:

1. *Closure.* Acknowledged means durable, and a request follows what was acknowledged: so when an entry is durable, all
   earlier entries of its source are durable too. This holds for late repeats, for zombies on an old connection and
   for distributors that know nothing of each other: each of them only adds a run whose predecessors are durable.
2. So one number per source, the greatest durable seq, says what is durable, and dropping what is not above it leaves a
   run without omissions. Only `WrittenChunk` raises it: a write still on its way may fail, and what stands behind it
   would leave a hole that nobody sees, because seqs have gaps anyway. Later requests of the source wait for it instead.
3. A chunk holds every entry of its source between its first and last seq. Of the chunks that end above position p the
   one that begins lowest therefore leaves out nothing after p: a missing entry would be durable in a chunk that
   begins lower still. `choose` walks on like this; which copy it takes is decided by the chunks alone, and copies of a
   seq are the same entry.
4. Plans are durable and positions only grow, so a chunk that comes late, wholly or partly below the position, adds
   nothing below it. A filter that lost its memory merely writes more copies.
5. A reader that scans the index while others write may see a chunk and miss an earlier one that became durable behind
   its back. Hence two reads: bounds from the first, chunks from a second that starts when the first has ended; all
   that lies below the bounds was durable by then. One read of an atomic snapshot will do as well.

Crashes: before `WrittenChunk` nothing was acknowledged and the pusher sends again; between it and the answer likewise,
and the repeat is dropped here or cut in the plan. Between two plans only the last plan's positions matter.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NewType, TypeAlias

from belvedere import errors

SourceId = NewType("SourceId", str)
Seq = NewType("Seq", int)
RequestId = NewType("RequestId", int)
WriterId = NewType("WriterId", str)
"""A distributor's incarnation. Never used again after a restart, so that a late write cannot take another's name."""

START = Seq(-1)
"""The position of a source of which nothing has come yet."""

DURABLE_END = Seq((1 << 63) - 1)
"""In a listing: the source has ended, and everything of it is durable; its last entry is the last one that is in INPUT,
or in a plan. For systems that do not tell with which seq a log ends."""


@dataclass(frozen=True)
class SourceEntry:
    """What one seq carries: many rows, perhaps none. It is never split."""

    seq: Seq
    rows: Sized


@dataclass(frozen=True, order=True)
class ChunkId:
    writer: WriterId
    number: int


@dataclass(frozen=True)
class Chunk:
    """An index entry of INPUT: the chunk has every entry of the source from `first` to `last`, both included.

    `rows` and `size` (bytes of the payload, filled in by who encodes it) limit how much a plan takes; `at` is when it
    was received (milliseconds), for the lag that people see."""

    id: ChunkId
    source: SourceId
    first: Seq
    last: Seq
    rows: int = 0
    size: int = 0
    at: int = 0


# --- events


@dataclass(frozen=True)
class ReceivedEntries:
    """A request has come in. Ids are given by the receiver, a new one also to a repeat."""

    request: RequestId
    source: SourceId
    entries: Sequence[SourceEntry]


@dataclass(frozen=True)
class WrittenChunk:
    """The chunk and its index entry are durable."""

    chunk: ChunkId


@dataclass(frozen=True)
class WriteFailed:
    """The chunk may be there or not; if it turns up after all, the plan cuts what it repeats."""

    chunk: ChunkId
    reason: str


@dataclass(frozen=True)
class Restored:
    """What is durable, read from the INPUT index and the last plan: after a restart, and whenever it seems useful."""

    index: Sequence[Chunk]
    planned: Mapping[SourceId, Seq]


Event: TypeAlias = ReceivedEntries | WrittenChunk | WriteFailed | Restored


# --- instructions


@dataclass(frozen=True)
class Write:
    """Make the entries durable, then the index entry, then say `WrittenChunk`."""

    chunk: Chunk
    entries: tuple[SourceEntry, ...]


@dataclass(frozen=True)
class Acknowledge:
    request: RequestId


@dataclass(frozen=True)
class Refuse:
    """Answer with an error: the pusher keeps the entries and sends them again."""

    request: RequestId
    reason: str


Instruction: TypeAlias = Write | Acknowledge | Refuse


class Stage(enum.Enum):
    """Where a request is. Those not listed have been answered, and nothing is remembered of them.

        Received ──▶ WAITING ──▶ WRITING ──Written──▶ acknowledged
           │            │           └──WriteFailed──▶ refused
           │            └──all of it became durable──▶ acknowledged
           ├──nothing in it is new──▶ acknowledged
           └──seqs that do not grow──▶ refused

    At most one request of a source is WRITING; it leaves WAITING in order of arrival.
    """

    WAITING = "waiting"
    WRITING = "writing"


@dataclass
class Dropped:
    """Duplicates that the filter dropped so far."""

    entries: int = 0
    rows: int = 0


@dataclass
class _Flow:
    """One source as this distributor sees it."""

    durable: Seq = START
    writing: Write | None = None
    writing_for: RequestId | None = None
    waiting: list[ReceivedEntries] = field(default_factory=list)


class DuplicateFilter:
    """The first layer: one per distributor and incarnation."""

    def __init__(self, writer: WriterId) -> None:
        self.dropped = Dropped()
        self._writer = writer
        self._number = 0
        self._flows: dict[SourceId, _Flow] = {}
        self._writes: dict[ChunkId, SourceId] = {}

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case ReceivedEntries():
                return self._received(event)
            case WrittenChunk(chunk) | WriteFailed(chunk):
                return self._ended(chunk, event)
            case Restored(index, planned):
                return self._restored(index, planned)

    def durable(self, source: SourceId) -> Seq:
        """Everything up to here is durable, as far as this distributor knows."""
        return self._flows.get(source, _Flow()).durable

    def stages(self) -> dict[RequestId, Stage]:
        found = {request.request: Stage.WAITING for flow in self._flows.values() for request in flow.waiting}
        writing = (flow.writing_for for flow in self._flows.values() if flow.writing_for is not None)
        return found | dict.fromkeys(writing, Stage.WRITING)

    def _received(self, event: ReceivedEntries) -> list[Instruction]:
        seqs = [START, *(entry.seq for entry in event.entries)]
        for before, after in pairwise(seqs):
            if after <= before:
                reason = f"source {event.source}: seq {after} after {before} in one request, seqs must grow from 0 on"
                return [Refuse(event.request, reason)]
        if not event.entries:
            return [Acknowledge(event.request)]
        flow = self._flows.setdefault(event.source, _Flow())
        flow.waiting.append(event)
        return self._proceed(flow)

    def _ended(self, chunk: ChunkId, event: WrittenChunk | WriteFailed) -> list[Instruction]:
        source = self._writes.pop(chunk, None)
        if source is None:
            return []  # said before
        flow = self._flows[source]
        assert flow.writing is not None and flow.writing_for is not None
        request, last = flow.writing_for, flow.writing.chunk.last
        flow.writing = flow.writing_for = None
        if isinstance(event, WriteFailed):
            return [Refuse(request, f"source {source}: not written to INPUT: {event.reason}"), *self._proceed(flow)]
        flow.durable = max(flow.durable, last)
        return [Acknowledge(request), *self._proceed(flow)]

    def _restored(self, index: Sequence[Chunk], planned: Mapping[SourceId, Seq]) -> list[Instruction]:
        instructions: list[Instruction] = []
        for known in (positions(index), planned):
            for source, seq in known.items():
                flow = self._flows.setdefault(source, _Flow())
                flow.durable = max(flow.durable, seq)
        for flow in self._flows.values():
            instructions += self._proceed(flow)
        return instructions

    def _proceed(self, flow: _Flow) -> list[Instruction]:
        """Answer waiting requests that are durable by now; write the first of the others if nothing is on its way."""
        instructions: list[Instruction] = []
        waiting, flow.waiting = flow.waiting, []
        for request in waiting:
            if request.entries[-1].seq <= flow.durable:
                self._drop(request.entries)
                instructions.append(Acknowledge(request.request))
            elif flow.writing is None:
                fresh = tuple(entry for entry in request.entries if entry.seq > flow.durable)
                self._drop(request.entries[: len(request.entries) - len(fresh)])
                self._number += 1
                id = ChunkId(self._writer, self._number)
                rows = sum(len(entry.rows) for entry in fresh)
                flow.writing = Write(Chunk(id, request.source, fresh[0].seq, fresh[-1].seq, rows), fresh)
                flow.writing_for = request.request
                self._writes[id] = request.source
                instructions.append(flow.writing)
            else:
                flow.waiting.append(request)
        return instructions

    def _drop(self, entries: Sequence[SourceEntry]) -> None:
        self.dropped.entries += len(entries)
        self.dropped.rows += sum(len(entry.rows) for entry in entries)


# --- plan time


@dataclass(frozen=True)
class InputPiece:
    """What a plan takes from one chunk: the entries with `after < seq <= last`."""

    chunk: ChunkId
    source: SourceId
    after: Seq
    last: Seq

    def take(self, entries: Iterable[SourceEntry]) -> list[SourceEntry]:
        return [entry for entry in entries if self.after < entry.seq <= self.last]


def positions(index: Iterable[Chunk]) -> dict[SourceId, Seq]:
    """How far each source is durable: the greatest seq that a durable chunk ends with."""
    found: dict[SourceId, Seq] = {}
    for chunk in index:
        found[chunk.source] = max(found.get(chunk.source, START), chunk.last)
    return found


def choose(
    planned: Mapping[SourceId, Seq], bounds: Mapping[SourceId, Seq], index: Iterable[Chunk]
) -> tuple[InputPiece, ...]:
    """The pieces that take each source from its planned position to its bound, each seq once, in order per source.

    `bounds` are positions of an earlier read of the index, or lower ones; `index` was read after that read had ended.
    """
    by_source: dict[SourceId, list[Chunk]] = {}
    for chunk in index:
        if planned.get(chunk.source, START) < chunk.last and chunk.source in bounds:
            by_source.setdefault(chunk.source, []).append(chunk)
    pieces: list[InputPiece] = []
    for source in sorted(bounds):
        chunks = sorted(by_source.get(source, ()), key=lambda chunk: (chunk.first, -chunk.last, chunk.id))
        pieces += _cover(source, planned.get(source, START), bounds[source], chunks)
    return tuple(pieces)


def _cover(source: SourceId, after: Seq, bound: Seq, chunks: Sequence[Chunk]) -> Iterable[InputPiece]:
    """Few pieces: of the chunks that leave nothing out after `after`, always the one that reaches farthest."""
    i = 0
    while after < bound:
        best: Chunk | None = None
        while i < len(chunks) and (best is None or best.last <= after or chunks[i].first <= after + 1):
            if best is None or chunks[i].last > best.last:
                best = chunks[i]
            i += 1
        if best is None or best.last <= after:
            raise errors.Damaged(f"INPUT of source {source} ends at seq {after}, a plan needs it up to {bound}")
        last = min(best.last, bound)
        yield InputPiece(best.id, source, after, last)
        after = last


def collectable(committed: Mapping[SourceId, Seq], index: Iterable[Chunk]) -> tuple[ChunkId, ...]:
    """Chunks of which no plan will take anything any more, late repeats of what is committed among them."""
    return tuple(chunk.id for chunk in index if chunk.last <= committed.get(chunk.source, START))
