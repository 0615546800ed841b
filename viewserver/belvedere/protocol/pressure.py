"""Back-pressure: how much of INPUT the next plan takes. The only place where a pool slows down.

Receivers always drain, so what is planned gets through; what must not happen is that too much is planned. After each
epoch the leader looks at what it cost, and before each plan at what there is room for:

    finished epoch ──observe──▶ rows that fit the target duration ─┐
                   ──observe──▶ bytes that fit into memory ────────┴─▶ room ──take(bounds)──▶ lower bounds ──▶ plan

* *Duration.* Longer than the goal: fewer rows next time, in proportion. Shorter, and the epoch was full: more. The goal
  is the target; when changes have been waiting for long it grows with their age, up to `LONGEST_EPOCH` targets, since
  large epochs get more done per second. Nor is it less than twice what an epoch takes whatever its rows (`Line`): many
  servers, or a slow disk, make epochs long, and fewer rows would only make more of them.
* *Memory.* Rows that went between stages, for each row that was planned, are the fan-out. Their bytes must fit into
  `memory` with `OPEN_EPOCHS` epochs at a time, reckoned by rows and by bytes that were planned. A fan-out that rises
  counts at once, one that falls is believed slowly. If anything was spilled there is half the room, until nothing was
  for a while. (Epochs that build views say nothing about changes: they are judged by spilling only.)

Why it cannot come to a standstill: the first chunk (the oldest) is always taken, whatever its size, and a chunk that is
too large for the room is taken alone. So each plan moves on if there is anything to move, and the room decides only how
fast. Why nobody starves: chunks are taken in the order in which they were received, over all sources, and what was left
out is older than all that comes later. Bounds are lowered to ends of chunks, and chunks end between log entries, so
an entry is never split.

Limits and what was learnt are those of one view server: a pool has as many times the room as it has of them, so it
grows and shrinks with the pool, from the first plan on (`spread_over`).

All of it is a function of what was observed: the same epochs give the same room.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from belvedere.protocol.exactly_once import Chunk, ChunkId, InputPiece, Seq, SourceId, choose

OPEN_EPOCHS = 2
FIRST_ROWS = 10_000
LEAST_ROWS = 500
"""However long epochs take: fewer rows would not make them shorter, only less worth while. (Of the whole pool.)"""
LONGEST_EPOCH = 10
"""The longest goal, in targets."""
WAIT_PER_GOAL = 2
"""The goal is the age of what waits, divided by this, if that is more than the target."""
FALL = 0.2
"""How much of a lower fan-out is believed at once."""
RECOVERY = 1.1
"""By how much the room grows back after each epoch that spilled nothing."""
DEFAULT_MEMORY = 256 << 20


@dataclass(frozen=True)
class Finished:
    """What an epoch was and what it cost, over all servers. Times in milliseconds."""

    rows: int
    """Planned."""
    bytes: int
    """Planned (of INPUT)."""
    moved_rows: int
    """That went from member to member."""
    moved_bytes: int = 0
    spilled_bytes: int = 0
    duration: int = 0
    """From the record to the last acknowledgement."""
    waited: int = 0
    """Age of its oldest change when it was planned."""
    building: bool = False
    """It had slices of views under construction."""


class Line:
    """Duration as overhead + rows * cost, fitted to the epochs of late."""

    MEMORY = 0.9
    """What an epoch counts when the next one is seen."""
    LEAST_SPREAD = 0.1
    """Rows must differ by so much of their mean (standard deviation) to tell overhead from cost."""

    def __init__(self) -> None:
        self._count = self._rows = self._time = self._squares = self._products = 0.0

    def add(self, rows: float, duration: int) -> None:
        kept = self.MEMORY
        self._count = kept * self._count + 1
        self._rows = kept * self._rows + rows
        self._time = kept * self._time + duration
        self._squares = kept * self._squares + rows * rows
        self._products = kept * self._products + rows * duration

    @property
    def overhead(self) -> float:
        """What an epoch of no rows would take; 0 as long as nobody can tell."""
        if not self._count:
            return 0.0
        rows, time = self._rows / self._count, self._time / self._count
        spread = self._squares / self._count - rows * rows
        if spread <= (self.LEAST_SPREAD * rows) ** 2:
            return 0.0
        cost = max(0.0, (self._products / self._count - rows * time) / spread)
        return max(0.0, time - cost * rows)


class Pressure:
    def __init__(self, max_rows: int, max_bytes: int, memory: int = DEFAULT_MEMORY, *, target_ms: int = 200) -> None:
        """For each view server. `memory`: bytes that batches of open epochs may take."""
        if min(max_rows, max_bytes, memory, target_ms) < 1:
            raise ValueError(
                f"pressure: found max_rows={max_rows}, max_bytes={max_bytes}, memory={memory}, target_ms={target_ms},"
                " all must be positive"
            )
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._memory, self._target = memory, target_ms
        self._servers = 1
        self._rows = float(min(FIRST_ROWS, max_rows))
        self._bytes_per_row = 0.0
        self._bytes_per_byte = 0.0
        """Bytes that went between members for each row, and for each byte, that was planned."""
        self._spill_factor = 1.0
        self._line = Line()
        self._round = 0
        self._seen: dict[ChunkId, int] = {}
        """In which round each chunk of the index was first there."""
        self._rows_before = 0.0
        self.fan_out = 1.0
        """Rows that went between members for each row planned, for people."""

    def spread_over(self, servers: int) -> None:
        """From now on epochs are the work of so many view servers."""
        self._servers = max(1, servers)

    def observe(self, epoch: Finished) -> None:
        if epoch.spilled_bytes > 0:
            self._spill_factor = max(self._spill_factor / 2, 1 / 1024)
        else:
            self._spill_factor = min(self._spill_factor * RECOVERY, 1.0)
        if epoch.rows > 0 and not epoch.building:
            self._learn_memory(epoch)
            self._learn_duration(epoch)

    def room(self) -> tuple[int, int]:
        """(rows, bytes) for the next plan; at least one of each."""
        memory = self._memory / OPEN_EPOCHS * self._spill_factor
        rows = min(self._rows, memory / max(self._bytes_per_row, 1.0))
        size = min(self._max_bytes, memory / max(self._bytes_per_byte, 1.0))
        return max(1, int(rows * self._servers)), max(1, int(size * self._servers))

    def take(
        self, index: Sequence[Chunk], planned: Mapping[SourceId, Seq], bounds: Mapping[SourceId, Seq]
    ) -> dict[SourceId, Seq]:
        """How far the next plan goes for each source; sources that get nothing are left out."""
        chunks = {chunk.id: chunk for chunk in index}
        pieces: dict[SourceId, list[InputPiece]] = {}
        for piece in choose(planned, bounds, index):
            pieces.setdefault(piece.source, []).append(piece)
        self._round += 1
        self._seen = {id: self._seen.get(id, self._round) for id in chunks}
        ages = {id: (self._seen[id], chunk.at) for id, chunk in chunks.items()}
        return _fill(pieces, chunks, ages, *self.room())

    def _learn_duration(self, epoch: Finished) -> None:
        # Two epochs are open at a time: how long one takes depends on the one before it as well.
        rows = epoch.rows / self._servers
        self._line.add(rows + self._rows_before, epoch.duration)
        self._rows_before = rows
        wanted = max(self._target, epoch.waited / WAIT_PER_GOAL, 2 * self._line.overhead)
        goal = min(wanted, LONGEST_EPOCH * self._target)
        duration = max(1, epoch.duration)
        if duration > goal:
            slower = min(rows, self._rows) * max(goal / duration, 0.25)
            self._rows = max(slower, min(LEAST_ROWS / self._servers, self._max_rows))
        elif rows >= self._rows / 2:
            self._rows = min(self._rows * min(goal / duration, 2.0), self._max_rows)

    def _learn_memory(self, epoch: Finished) -> None:
        self.fan_out = _believe(self.fan_out, epoch.moved_rows / epoch.rows)
        self._bytes_per_row = _believe(self._bytes_per_row, epoch.moved_bytes / epoch.rows)
        if epoch.bytes > 0:
            self._bytes_per_byte = _believe(self._bytes_per_byte, epoch.moved_bytes / epoch.bytes)


def _believe(before: float, found: float) -> float:
    return found if found > before else before + FALL * (found - before)


def _fill(
    pieces: Mapping[SourceId, Sequence[InputPiece]],
    chunks: Mapping[ChunkId, Chunk],
    ages: Mapping[ChunkId, tuple[int, int]],
    rows: int,
    size: int,
) -> dict[SourceId, Seq]:
    """Oldest first over all sources, each source in its order. A source whose next chunk does not fit gets no more.
    `ages`: in which round a chunk was first seen, and only then what the clock of its writer said: one that is wrong
    holds its sources up for as long as what was there already takes, and no longer."""
    heads = [(ages[run[0].chunk], source, 0) for source, run in pieces.items()]
    heapq.heapify(heads)
    found: dict[SourceId, Seq] = {}
    while heads:
        _, source, i = heapq.heappop(heads)
        chunk = chunks[pieces[source][i].chunk]
        rows, size = rows - chunk.rows, size - chunk.size
        if found and min(rows, size) < 0:
            rows, size = rows + chunk.rows, size + chunk.size
            continue
        found[source] = pieces[source][i].last
        if min(rows, size) <= 0:
            break
        if i + 1 < len(pieces[source]):
            heapq.heappush(heads, (ages[pieces[source][i + 1].chunk], source, i + 1))
    return found
