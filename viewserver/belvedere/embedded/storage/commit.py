"""Group commit: callers that write at the same time share one record, one sync and one epoch.

Callers hand their entry over in one step and wait; a thread of the database's own (`run`) does everything else. While
it syncs, the next group gathers by itself. The order of the queue is the order of the log, so timestamps and the
catalog are looked at when an entry leaves the queue. An interrupt in a caller's thread can only end its wait: the
entry is then withdrawn, if nobody has taken it yet, or written as a whole.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from belvedere.embedded.storage.log import InputLog
from belvedere.engine.delta import Changes
from belvedere.errors import BelvedereError, Closed, NotYet
from belvedere.model import change_codec as codec
from belvedere.model.physical import Buffer
from belvedere.model.requests import Requests, parted
from belvedere.model.token import Token
from belvedere.waiting import Latch, Waiters


@dataclass(slots=True, eq=False)
class GroupEntry:
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
    request: str = ""
    """A name under which it may be repeated (`belvedere.model.requests`)."""
    on_join: Callable[[], object] | None = None
    """Called when the entry is taken, in the order of the log; may refuse it."""
    on_fail: Callable[[], object] | None = None
    """Called if the record could not be written."""
    _claim: Any = field(default_factory=threading.Lock)
    _done: Latch = field(default_factory=Latch)
    _finished: bool = False
    _epoch: int = 0
    _error: BaseException | None = None

    def claim(self) -> bool:
        """True for the first who asks: the writing thread, which then writes it, or its caller, who withdraws it."""
        return bool(self._claim.acquire(blocking=False))

    def result(self) -> Token:
        """Waits until it is durable, or failed."""
        self._done.wait()
        if self._error is not None:
            raise self._error
        return Token(self._epoch)

    def finish(self, epoch: int, error: BaseException | None = None) -> None:
        """Called once, by the writing thread."""
        self.on_join = self.on_fail = None  # they know the database, which must not live as long as its threads
        self._epoch, self._error, self._finished = epoch, error, True
        self._done.open()

    @property
    def nbytes(self) -> int:
        return 0 if self.buffer is None else self.buffer.nbytes


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that became durable together, as the engine gets them."""

    epoch: int
    sequence: int
    entries: tuple[GroupEntry, ...]
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
    """The only writer of the input log. `deliver` gets every durable group, in order."""

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
        inbox: SimpleQueue[Any] | None = None,
        requests: Requests | None = None,
    ):
        self._log, self._clock, self._deliver, self._stop = log, clock, deliver, stop
        self._backlog_rows, self._backlog_bytes = backlog_rows, backlog_bytes
        self._inbox: SimpleQueue[Any] = SimpleQueue() if inbox is None else inbox
        """Entries; anything else asks the thread to end."""
        self.requests = Requests(lambda: clock.now() // 1000) if requests is None else requests
        self._queue: deque[GroupEntry] = deque()
        """Taken from the inbox, not yet written; of the writing thread."""
        self._room, self._finished = Waiters(), Waiters()
        self._closed: str | None = None
        self._ended = False
        # each pair is written by one thread only: what was taken into the log, and what the engine is done with
        self._taken = (0, 0)
        self._processed = (0, 0)
        self.epoch = epoch
        self.sequence = sequence
        self.groups = 0
        """How many records were written since the start."""

    @property
    def clock(self) -> MicroClock:
        return self._clock

    @property
    def rows(self) -> int:
        """Rows in the log, or on their way into it, that are not yet in the views."""
        return self._taken[0] - self._processed[0]

    @property
    def bytes(self) -> int:
        return self._taken[1] - self._processed[1]

    # ------------------------------------------------------------------ callers

    def submit(self, entry: GroupEntry, *, timeout: float | None = None, unbounded: bool = False) -> Token:
        """Returns when the entry is durable. `unbounded`: does not wait for the backlog (DDL, the engine itself)."""
        if not unbounded:
            self._wait_for_room(timeout)
        if self._closed is not None:
            raise Closed(self._closed)
        try:
            self._inbox.put(entry)
            if self._ended and entry.claim():
                # it came after the thread had looked into its inbox for the last time
                raise self._refusal()
            return entry.result()
        except BaseException:
            entry.claim()  # an interrupt: nothing is written, unless the entry is taken already
            raise

    def settle(self, entry: GroupEntry) -> Token | None:
        """What became of an entry that was taken, for others than its caller; None if it failed."""
        self._finished.wait_for(lambda: entry._finished)
        return Token(entry._epoch) if entry._error is None else None

    def _wait_for_room(self, timeout: float | None) -> None:
        def room() -> bool:
            return self._closed is not None or (self.rows < self._backlog_rows and self.bytes < self._backlog_bytes)

        if not self._room.wait_for(room, timeout):
            raise NotYet(f"the backlog of {self.rows} rows did not shrink in {timeout} s; nothing was written", 0.0)

    def _refusal(self) -> Closed:
        return Closed(self._closed or "the database is closed")

    def processed(self, rows: int, nbytes: int) -> None:
        """The engine is done with that much."""
        self._processed = (self._processed[0] + rows, self._processed[1] + nbytes)
        self._room.notify()

    def close(self, reason: str) -> None:
        """Refuse everything from now on; waits for nobody. What was handed over before is written."""
        if self._closed is None:
            self._closed = reason
        self._room.notify()
        self._inbox.put(None)

    # ------------------------------------------------------------------ the writing thread

    def run(self) -> None:
        """Write groups until somebody asks to end and nothing is left."""
        try:
            while self._gather():
                entries = self._take()
                if entries:
                    self._write_group(entries)
                if len(entries) > 1 or not self._inbox.empty():
                    # Lets those who were just answered hand over their next entry before the next group is closed: with
                    # 8 threads that write, a third fewer syncs.
                    time.sleep(0)
        except BaseException as failure:  # a defect: everybody learns of it
            self.close(f"the input log stopped: {failure!r}")
            self._stop(str(self._refusal()))
            raise
        finally:
            self._closed = str(self._refusal())
            # in this order: an entry that is handed over later is withdrawn by its caller
            self._ended = True
            self._room.notify()
            self._gather()
            for entry in self._queue:
                if entry.claim():
                    entry.finish(0, self._refusal())
            self._finished.notify()

    def _gather(self) -> bool:
        """Move what was handed over into the queue; false if there is nothing and nothing will come."""
        try:
            while True:
                # only an empty queue is waited for: what has come meanwhile joins the group
                entry = self._inbox.get(block=not self._queue and self._closed is None)
                if isinstance(entry, GroupEntry):
                    self._queue.append(entry)
                else:
                    self._closed = str(self._refusal())
        except Empty:
            return bool(self._queue)

    def _take(self) -> list[GroupEntry]:
        """The next group: entries up to a DDL operation, or that alone. Each is checked and stamped in its turn."""
        taken: list[GroupEntry] = []
        names: set[str] = set()
        while self._queue and not (taken and (taken[0].alone or self._queue[0].alone)):
            name, _ = parted(self._queue[0].request)
            if name in names:
                break  # the same write again: it is known when this group is durable
            entry = self._queue.popleft()
            if not entry.claim():
                continue
            try:
                if name:
                    known = self.requests.find(entry.request)
                    if known is not None:
                        entry.finish(known.epoch)
                        self._finished.notify()
                        continue
                    entry.meta["req"] = entry.request
                if entry.on_join is not None:
                    entry.on_join()
            except BelvedereError as refusal:
                entry.finish(0, refusal)
                self._finished.notify()
                continue
            self._stamp(entry)
            taken.append(entry)
            names.update([name] if name else ())
        return taken

    def _stamp(self, entry: GroupEntry) -> None:
        if entry.clocks == 0:
            return
        first = self._clock.take(entry.clocks)
        step = 1 if entry.clocks > 1 else 0
        entry.meta["ts"], entry.meta["step"] = first, step
        if entry.changes is not None:
            entry.changes.ts = codec.timestamps(first, step, entry.rows)

    def _write_group(self, entries: Sequence[GroupEntry]) -> None:
        epoch, sequence = max(self._clock.now() // 1000, self.epoch + 1), self.sequence + 1
        group = Group(epoch, sequence, tuple(entries), sum(e.rows for e in entries), sum(e.nbytes for e in entries))
        before = self._taken
        self._taken = (before[0] + group.rows, before[1] + group.nbytes)
        error: BaseException | None = None
        try:
            if self._log is not None:
                self._log.append(epoch, *encode_group(entries, self._clock.last))
        except BelvedereError as failure:
            error = failure
        except BaseException as failure:  # memory: what is on disk is unknown
            error = Closed(f"the input log stopped: {failure!r}")
            error.__cause__ = failure
        if error is None:
            self.epoch, self.sequence = epoch, sequence
            self.groups += 1
            for entry in entries:
                if entry.request:
                    self.requests.remember(entry.request, epoch)
        else:
            self._taken = before
            self._room.notify()
            for entry in reversed(entries):
                if entry.on_fail is not None:
                    entry.on_fail()
            if isinstance(error, Closed):
                self.close(str(error))
                self._stop(str(error))
        # callers first: they and the engine's thread compete for the interpreter
        for entry in entries:
            entry.finish(epoch, error)
        self._finished.notify()
        if error is None:
            self._deliver(group)


def encode_group(entries: Sequence[GroupEntry], clock: int) -> tuple[bytes, list[Buffer]]:
    """Description and buffers of a record."""
    meta = {"entries": [e.meta for e in entries], "clock": clock}
    return json.dumps(meta, separators=(",", ":")).encode(), [e.buffer for e in entries if e.buffer is not None]
