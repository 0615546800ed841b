"""Group commit: callers that write at the same time share one record, one sync and one epoch.

Leader and followers: whoever finds nobody writing takes everything that is queued, writes it, and wakes the others;
a single writer never waits for another thread. While the leader syncs, the next group gathers by itself. The order
of the queue is the order of the log, so timestamps and the catalog are looked at under the queue's lock, when an
entry joins.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from belvedere.engine.delta import Changes
from belvedere.errors import BelvedereError, Closed, NotYet
from belvedere.store.embedded import changes as codec
from belvedere.store.embedded.files import Buffer
from belvedere.store.embedded.log import InputLog


@dataclass(frozen=True, order=True, slots=True)
class Token:
    """Proof of a write: reads `after` it include it. As text: `str(token)`; back: `Token.parse`."""

    epoch: int

    def __str__(self) -> str:
        return f"e{self.epoch}"

    @staticmethod
    def parse(value: Token | int | str) -> Token:
        """From a token, its text or an epoch."""
        if isinstance(value, Token):
            return value
        text = str(value).removeprefix("e")
        if isinstance(value, bool) or not text.isdecimal():
            raise ValueError(f"{value!r} is no token: give what put, delete or write returned, or an epoch number")
        return Token(int(text))

    def joined_with(self, other: Token) -> Token:
        """One token that includes both: epochs of one history, so the later one."""
        return max(self, other)


@dataclass(slots=True, eq=False)
class Entry:
    """One call's part of a record: changes of one table, or a DDL operation. `meta` and `buffer` are what the log
    holds."""

    meta: dict[str, Any]
    buffer: memoryview | None = None
    table: str | None = None
    changes: Changes | None = None
    rows: int = 0
    clocks: int = 0
    """Timestamps wanted of the database's clock: 0 none, 1 one for all rows, more: one per row."""
    alone: bool = False
    """Wants a record, and so an epoch, of its own (DDL)."""
    on_join: Callable[[], None] | None = None
    """Called under the queue's lock; may refuse the entry."""
    on_fail: Callable[[], None] | None = None
    """Called under the queue's lock if the record could not be written."""
    _gate: Any = field(default_factory=threading.Lock)
    _lead: bool = False
    _orphan: bool = False
    _epoch: int = 0
    _error: BaseException | None = None

    @property
    def nbytes(self) -> int:
        return 0 if self.buffer is None else self.buffer.nbytes


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that became durable together, as the engine gets them."""

    epoch: int
    sequence: int
    entries: tuple[Entry, ...]
    rows: int
    nbytes: int


class MicroClock:
    """Microseconds that strictly grow, from a clock that may stand still or go back."""

    def __init__(self, now: Callable[[], int]):
        self._now = now
        self.last = 0

    def now(self) -> int:
        return self._now()

    def take(self, count: int = 1) -> int:
        """The first of `count` consecutive timestamps that nobody has got before. The caller holds a lock."""
        first = max(self._now(), self.last + 1)
        self.last = first + count - 1
        return first


class Committer:
    """The only writer of the input log. `deliver` gets every durable group, in order, from one thread at a time."""

    def __init__(
        self,
        log: InputLog | None,
        clock: MicroClock,
        deliver: Callable[[Group], None],
        stop: Callable[[str], None],
        *,
        backlog_rows: int,
        backlog_bytes: int,
        epoch: int = 0,
        sequence: int = 0,
    ):
        self._log, self._clock, self._deliver, self._stop = log, clock, deliver, stop
        self._backlog_rows, self._backlog_bytes = backlog_rows, backlog_bytes
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._queue: list[Entry] = []
        self._leading = False
        self._closed: str | None = None
        self.rows = 0
        self.bytes = 0
        self.epoch = epoch
        self.sequence = sequence
        self.groups = 0
        """How many records were written since the start."""

    @property
    def clock(self) -> MicroClock:
        return self._clock

    def submit(self, entry: Entry, *, timeout: float | None = None, unbounded: bool = False) -> Token:
        """Returns when the entry is durable. `unbounded`: does not wait for the backlog (DDL, the engine itself)."""
        entry._gate.acquire()
        with self._lock:
            if not unbounded:
                self._wait_for_room(timeout)
            self._check()
            if entry.on_join is not None:
                entry.on_join()
            self._stamp(entry)
            self._queue.append(entry)
            self.rows += entry.rows
            self.bytes += entry.nbytes
            follow = self._leading
            self._leading = True
        if follow:
            self._follow(entry)
        if not follow or entry._lead:
            self._write_group()
        if entry._error is not None:
            raise entry._error
        return Token(entry._epoch)

    def _follow(self, entry: Entry) -> None:
        try:
            entry._gate.acquire()
        except BaseException:
            # an interrupt: the entry stays queued, and somebody else has to lead in its place
            with self._lock:
                entry._orphan = True
                lead = entry._lead
            if lead:
                self._write_group()
            raise

    def _check(self) -> None:
        if self._closed is not None:
            raise Closed(self._closed)

    def _wait_for_room(self, timeout: float | None) -> None:
        def room() -> bool:
            return self._closed is not None or (self.rows < self._backlog_rows and self.bytes < self._backlog_bytes)

        if not self._room.wait_for(room, timeout):
            raise NotYet(f"the backlog of {self.rows} rows did not shrink in {timeout} s; nothing was written", 0.0)

    def _stamp(self, entry: Entry) -> None:
        if entry.clocks == 0:
            return
        first = self._clock.take(entry.clocks)
        step = 1 if entry.clocks > 1 else 0
        entry.meta["ts"], entry.meta["step"] = first, step
        if entry.changes is not None:
            entry.changes.ts = codec.timestamps(first, step, entry.rows)

    def _write_group(self) -> None:
        with self._lock:
            size = (
                1 if self._queue[0].alone else next((i for i, e in enumerate(self._queue) if e.alone), len(self._queue))
            )
            entries, self._queue = self._queue[:size], self._queue[size:]
            epoch = max(self._clock.now() // 1000, self.epoch + 1)
            sequence = self.sequence + 1
        error: BaseException | None = None
        try:
            if self._log is not None:
                self._log.append(epoch, *encode_group(entries, self._clock.last))
        except BelvedereError as failure:
            error = failure
        except BaseException as failure:  # memory, an interrupt: what is on disk is unknown
            error = Closed(f"the input log stopped: {failure!r}")
            error.__cause__ = failure
        if isinstance(error, Closed):
            self.close(str(error))
        group = Group(epoch, sequence, tuple(entries), sum(e.rows for e in entries), sum(e.nbytes for e in entries))
        with self._lock:
            if error is None:
                self.epoch, self.sequence = epoch, sequence
                self.groups += 1
                for entry in entries:
                    entry._epoch = epoch
                self._deliver(group)
            else:
                # what joined meanwhile may build on what failed (a table just created): it fails as well
                entries += self._queue
                self._queue = []
                self._fail(entries, error)
            heir = next((e for e in self._queue if not e._orphan), None)
            if heir is not None:
                heir._lead = True
                heir._gate.release()
            elif not self._queue:
                self._leading = False
                self._idle.notify_all()
            abandoned = heir is None and bool(self._queue)
        for entry in entries:
            entry._gate.release()
        if isinstance(error, Closed):
            self._stop(str(error))
        if abandoned:
            self._write_group()

    def _fail(self, entries: Sequence[Entry], error: BaseException) -> None:
        for entry in reversed(entries):
            entry._error = error
            if entry.on_fail is not None:
                entry.on_fail()
            self.rows -= entry.rows
            self.bytes -= entry.nbytes
        self._room.notify_all()

    def processed(self, rows: int, nbytes: int) -> None:
        """The engine is done with that much."""
        with self._lock:
            self.rows -= rows
            self.bytes -= nbytes
            self._room.notify_all()

    def close(self, reason: str) -> None:
        """Refuse everything from now on; waits for nobody."""
        with self._lock:
            if self._closed is None:
                self._closed = reason
            self._room.notify_all()

    def drain(self) -> None:
        """Returns when nobody is writing."""
        with self._lock:
            self._idle.wait_for(lambda: not self._leading)


def encode_group(entries: Sequence[Entry], clock: int) -> tuple[bytes, list[Buffer]]:
    """Description and buffers of a record."""
    meta = {"entries": [e.meta for e in entries], "clock": clock}
    return json.dumps(meta, separators=(",", ":")).encode(), [e.buffer for e in entries if e.buffer is not None]
