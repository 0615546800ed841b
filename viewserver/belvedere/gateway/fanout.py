"""One subscription of a view for all its subscribers.

A thread per subscribed view takes changes from the database, writes each as an event once, and hands it to the event
loop, which keeps the last of them in a ring of bounded bytes. A subscriber is a place in the ring, so a thousand of
them cost a thousand numbers. Whoever falls out of the ring has read too slowly; whoever comes from before it catches
up with a subscription of its own and then joins.

        db.subscribe ──thread──▶ [ event event event ] ring ──▶ places of subscribers
                                  ▲ floor: everything after this epoch is in the ring
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from belvedere import errors
from belvedere.gateway import problems, values
from belvedere.gateway.databases import GatewayDatabase
from belvedere.gateway.rounds import Rounds
from belvedere.model.view_change import ViewChange

PROGRESS_SECONDS = 15.0
"""How often a quiet view says how far it is."""
STILL_THERE = b": nothing was committed\n\n"
PART_ROWS = 1_000
MOST_AT_ONCE = 64 << 10
"""Bytes that are given to a connection at a time: what it holds for a reader that does not read."""
RESUMABLE = (
    errors.Unavailable,
    errors.Closed,
    errors.NotYet,
    errors.DiskError,
    errors.SlowReader,
    errors.Draining,
)


@dataclass(frozen=True, slots=True)
class Event:
    """One change, as it is sent."""

    number: int
    epoch: int
    data: bytes


def event(name: str, data: Any, id: int | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if id is None else f"event: {name}\nid: {id}\n"
    return b"".join((head.encode(), b"data: ", values.dumps(data), b"\n\n"))


def change_events(change: ViewChange) -> bytes:
    """A change in parts; only the last has an id, so who loses the connection between them gets all of it again."""
    if not len(change):
        return event("epoch", {"epoch": change.epoch}, change.epoch)
    added, removed = values.rows(change.added), values.rows(change.removed)
    rows = [*((True, row) for row in added), *((False, row) for row in removed)]
    parts = [rows[start : start + PART_ROWS] for start in range(0, len(rows), PART_ROWS)]
    out = []
    for number, part in enumerate(parts, 1):
        last = number == len(parts)
        told = {
            "epoch": change.epoch,
            "added": [row for new, row in part if new],
            "removed": [row for new, row in part if not new],
            "last": last,
        }
        out.append(event("change", told, change.epoch if last else None))
    return b"".join(out)


def end_event(error: BaseException, request: str, resumable: bool) -> bytes:
    return event("end", {**problems.document(error, request), "resumable": resumable})


class Fanout:
    """One view. All methods but `_run` are called in the event loop."""

    def __init__(self, database: GatewayDatabase, view: str, most_bytes: int) -> None:
        self.view = view
        self._database, self._most = database, most_bytes
        self._loop = asyncio.get_running_loop()
        self._ring: deque[Event] = deque()
        self._bytes = 0
        self._numbers = itertools.count()
        self.next_number = 0
        self.floor = self.position = -1
        """Everything after `floor`, up to `position`, is in the ring."""
        self.error: BaseException | None = None
        self._rounds = Rounds(self._loop)
        self._ready = asyncio.Event()
        self._stopping = threading.Event()
        self._upstream: Any = None
        self.subscribers = 0
        self._joined: tuple[int, int, bytes] = (0, 0, b"")
        self._beats = 0
        threading.Thread(target=self._run, name=f"changes of {view}", daemon=True).start()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._upstream = upstream = self._database.db.subscribe(self.view, progress=PROGRESS_SECONDS)
            last = upstream.epoch
            self._tell(lambda: self._begin(upstream.epoch))
            for change in upstream:
                if self._stopping.is_set():
                    break
                if len(change) or change.epoch > last:
                    data, last = change_events(change), change.epoch
                    self._tell(lambda epoch=last, data=data: self._append(epoch, data))  # type: ignore[misc]
                else:
                    self._tell(self._beat)
            upstream.close()
            self._tell(lambda: self._end(errors.Closed("the subscription ended")))
        except Exception as error:
            failure = error
            self._tell(lambda: self._end(failure))

    def _tell(self, function: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function)

    # ------------------------------------------------------------------ the ring

    def _begin(self, epoch: int) -> None:
        self.floor = self.position = epoch
        self._ready.set()

    def _append(self, epoch: int, data: bytes) -> None:
        number = next(self._numbers)
        self.next_number = number + 1
        self._ring.append(Event(number, epoch, data))
        self._bytes += len(data)
        self.position = epoch
        while self._bytes > self._most and len(self._ring) > 1:
            gone = self._ring.popleft()
            self._bytes -= len(gone.data)
            self.floor = gone.epoch
        self._rounds.begin()

    def _beat(self) -> None:
        """Nothing was committed, so there is nothing to tell; who listens must still see that the stream is alive, and
        who may not listen any more be found out."""
        self._beats += 1
        self._rounds.begin()

    def _end(self, error: BaseException) -> None:
        self.error = error
        self._ready.set()
        self._rounds.begin()

    def stop(self, error: BaseException | None = None) -> None:
        self._stopping.set()
        if self._upstream is not None:
            self._upstream.close()  # the thread notices when it hears of something, or says how far it is
        self._end(error or errors.Closed("nobody subscribes"))

    # ------------------------------------------------------------------ subscribers

    async def ready(self) -> None:
        """Until it is known where the ring begins."""
        await self._ready.wait()
        if self.error is not None:
            raise self.error

    def place_after(self, epoch: int) -> int | None:
        """Where the events after this epoch begin; None if some of them are not in the ring."""
        if epoch < self.floor:
            return None
        return next((e.number for e in self._ring if e.epoch > epoch), self.next_number)

    async def follow(self, place: int, reached: int) -> AsyncIterator[bytes]:
        """Events from a place on that are later than an epoch, as many at a time as there are. Ends by raising why."""
        beats = self._beats
        while True:
            while reached >= 0 and place < self.next_number:
                # who was told of an epoch before our thread heard of it is not told again
                first = self._ring[0].number
                if place < first and self.floor <= reached:
                    place = first
                if place < first or self._ring[place - first].epoch > reached:
                    reached = -1
                else:
                    place += 1
            if place < self.next_number:
                data, place = self._from(place)
                yield data
            elif self.error is not None:
                raise self.error
            elif beats != self._beats:
                beats = self._beats
                yield STILL_THERE
            else:
                await self._rounds.wait()

    def _from(self, place: int) -> tuple[bytes, int]:
        start, stop, data = self._joined
        if start == place and stop > place:
            return data, stop  # others were just given the same
        first = self._ring[0].number
        if place < first:
            raise errors.SlowReader(
                f"the changes after epoch {self.floor} are kept; those before it were not read in time"
            )
        parts: list[bytes] = []
        size = 0
        for one in itertools.islice(self._ring, place - first, None):
            if parts and size + len(one.data) > MOST_AT_ONCE:
                break
            parts.append(one.data)
            size += len(one.data)
        self._joined = place, place + len(parts), b"".join(parts)
        return self._joined[2], self._joined[1]


class Fanouts:
    """All views that somebody subscribes to. In the event loop."""

    def __init__(self, database: GatewayDatabase, most_bytes: int) -> None:
        self._database, self._most = database, most_bytes
        self._by_view: dict[str, Fanout] = {}
        self.draining: errors.Draining | None = None

    def __len__(self) -> int:
        return len(self._by_view)

    def join(self, view: str) -> Fanout:
        """The fan-out of a view, begun if it is the first; `leave` follows."""
        if self.draining is not None:
            raise self.draining
        found = self._by_view.get(view)
        if found is None or found.error is not None:
            found = self._by_view[view] = Fanout(self._database, view, self._most)
        found.subscribers += 1
        return found

    def leave(self, fanout: Fanout) -> None:
        fanout.subscribers -= 1
        if not fanout.subscribers:
            if self._by_view.get(fanout.view) is fanout:
                del self._by_view[fanout.view]
            fanout.stop()

    def drain(self) -> None:
        """Everybody is told to go elsewhere."""
        self.draining = errors.Draining("the gateway stops; connect again, and go on with Last-Event-ID")
        for fanout in list(self._by_view.values()):
            fanout.stop(self.draining)

    def close(self) -> None:
        for fanout in list(self._by_view.values()):
            fanout._stopping.set()
            if fanout._upstream is not None:
                fanout._upstream.close()


def closing(missed: Any) -> Iterator[ViewChange]:
    """Changes of a subscription that was made with `progress=0`: one after the other, and when there is none more, an
    empty one that says how far it is. In a thread; it is closed at the end."""
    try:
        yield from missed
    finally:
        missed.close()
