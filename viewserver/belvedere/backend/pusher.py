"""Pushes logs to distributors the way HBase's serial replication does, so that the rest of the system sees one kind of
source.

    idle ──an entry behind the acknowledged position──▶ SENDING to a random distributor ──answered──▶ idle, farther on
                                                          └──failed──▶ PAUSED ──▶ SENDING, cut anew, perhaps elsewhere

What a pusher promises (`protocol.exactly_once` rests on it): a request is a run of its source's log without omissions,
and begins right behind what was acknowledged. Each node is one thread, so a node has one request of a source in flight;
when a source moves, the request of its former node may still be on its way while the next one begins, from a position
that everyone in this process shares.

Positions become durable later than they are acknowledged, together with the trimming of the log, many at once: after a
restart some entries are pushed again, which nobody minds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from belvedere.errors import BelvedereError, Closed
from belvedere.model import chunks
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.retry import Backoff

log = logging.getLogger(__name__)

Push = Callable[[str, SourceId, str, bytes], None]
"""(address of a distributor, source, table, chunk of entries). Returns when they are acknowledged; raises otherwise."""


class PushedSource(Protocol):
    @property
    def id(self) -> SourceId: ...
    @property
    def table(self) -> str: ...
    @property
    def last(self) -> Seq | None: ...


class PushedLog(Protocol):
    """Where the entries are: base tables in memory or in the served store."""

    def assigned(self, node: str) -> Sequence[PushedSource]: ...
    def acknowledged(self, source: SourceId) -> Seq: ...
    def read_log(self, source: SourceId, after: Seq, size: int, count: int) -> list[tuple[Seq, bytes]]: ...
    def acknowledge(self, positions: Mapping[SourceId, Seq]) -> None: ...
    def news(self) -> int: ...
    def wait_for_news(self, seen: int, timeout: float) -> None: ...
    def wake(self) -> None: ...


@dataclass(frozen=True)
class Habits:
    request_bytes: int = 1 << 20
    request_entries: int = 4096
    shortest_pause: float = 0.05
    longest_pause: float = 2.0
    trim_seconds: float = 0.5
    """How long acknowledged positions may wait until they are durable."""


class Positions:
    """How far each source was acknowledged, as far as this process knows; shared by all nodes."""

    def __init__(self, log: PushedLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._acknowledged: dict[SourceId, Seq] = {}
        self._durable: dict[SourceId, Seq] = {}

    def get(self, source: SourceId) -> Seq:
        with self._lock:
            found = self._acknowledged.get(source)
        if found is not None:
            return found
        durable = self._log.acknowledged(source)
        with self._lock:
            self._durable.setdefault(source, durable)
            return self._acknowledged.setdefault(source, durable)

    def raise_to(self, source: SourceId, seq: Seq) -> None:
        with self._lock:
            self._acknowledged[source] = max(self._acknowledged.get(source, seq), seq)

    def save(self) -> None:
        """Make them durable, and trim the logs."""
        with self._lock:
            fresh = {s: seq for s, seq in self._acknowledged.items() if seq > self._durable.get(s, Seq(-1))}
        if fresh:
            self._log.acknowledge(fresh)
            with self._lock:
                self._durable.update(fresh)


class _Pause:
    """Of a source that could not be pushed."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.until = 0.0

    def failed(self, rng: random.Random) -> None:
        self.until = time.monotonic() + self._backoff.next() * rng.uniform(0.5, 1.0)


class Node:
    """One thread that pushes the sources that are open at this node."""

    def __init__(
        self,
        name: str,
        log: PushedLog,
        positions: Positions,
        push: Push,
        distributors: Callable[[], Sequence[str]],
        rng: random.Random,
        habits: Habits,
    ) -> None:
        self.name = name
        self.troubles: dict[SourceId, str] = {}
        self.pushed = 0
        self._log, self._positions, self._push, self._distributors = log, positions, push, distributors
        self._random, self._habits = rng, habits
        self._pauses: dict[SourceId, _Pause] = {}
        self._stopping = False
        self._saved = time.monotonic()
        self._thread = threading.Thread(target=self._work, name=f"pusher-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _work(self) -> None:
        while not self._stopping:
            seen = self._log.news()
            try:
                busy = self._round()
            except Closed:
                return
            except BelvedereError as error:
                # The store itself: writers learn of it, here it is enough to come back.
                log.warning("node %s: %s", self.name, error)
                busy = False
            if not busy and not self._stopping:
                self._log.wait_for_news(seen, self._patience())

    def _round(self) -> bool:
        """One request of each source that has something to push; whether there was any."""
        sources = self._log.assigned(self.name)
        busy = False
        for source in sources:
            if not self._stopping:
                busy |= self._request(source)
        for gone in self._pauses.keys() - {source.id for source in sources}:
            self._recovered(gone)
        if time.monotonic() - self._saved >= self._habits.trim_seconds:
            self._positions.save()
            self._saved = time.monotonic()
        return busy

    def _recovered(self, source: SourceId) -> None:
        self._pauses.pop(source, None)
        self.troubles.pop(source, None)

    def _request(self, source: PushedSource) -> bool:
        """Push what comes next of a source; false if there is nothing, or it has to wait."""
        after = self._positions.get(source.id)
        pause = self._pauses.get(source.id)
        if (source.last is not None and after >= source.last) or (pause and time.monotonic() < pause.until):
            return False
        entries = self._log.read_log(source.id, after, self._habits.request_bytes, self._habits.request_entries)
        if not entries:
            return False
        try:
            self._send(source, chunks.join([content for _, content in entries]))
        except BelvedereError as error:
            self._fail(source, str(error))
            return False
        except Exception as error:
            # A defect: the source must not stand still for ever because of it, and somebody should hear of it.
            log.exception("source %s", source.id)
            self._fail(source, f"{type(error).__name__}: {error}")
            return False
        self._positions.raise_to(source.id, entries[-1][0])
        self._recovered(source.id)
        self.pushed += len(entries)
        return True

    def _send(self, source: PushedSource, payload: bytes) -> None:
        known = self._distributors()
        if not known:
            raise BelvedereError("no distributor is known")
        self._push(self._random.choice(sorted(known)), source.id, source.table, payload)

    def _fail(self, source: PushedSource, reason: str) -> None:
        habits = self._habits
        pause = self._pauses.setdefault(source.id, _Pause(Backoff(habits.shortest_pause, habits.longest_pause)))
        pause.failed(self._random)
        if self.troubles.get(source.id) != reason:
            log.warning("source %s is not pushed: %s", source.id, reason)
        self.troubles[source.id] = reason

    def _patience(self) -> float:
        """Seconds until something is due even if nobody writes."""
        due = [pause.until - time.monotonic() for pause in self._pauses.values()]
        return max(0.001, min([*due, self._habits.trim_seconds]))


class Pushers:
    """All nodes of a store. `distributors` says whom to push to, and may change from call to call."""

    def __init__(
        self,
        log: PushedLog,
        nodes: Sequence[str],
        push: Push,
        distributors: Callable[[], Sequence[str]],
        *,
        seed: int = 0,
        habits: Habits | None = None,
    ) -> None:
        self._log = log
        self.positions = Positions(log)
        self.nodes = {
            name: Node(
                name, log, self.positions, push, distributors, random.Random(f"{seed}/{name}"), habits or Habits()
            )
            for name in nodes
        }

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def troubles(self) -> dict[SourceId, str]:
        """Sources that cannot be pushed now, and why."""
        return {source: reason for node in self.nodes.values() for source, reason in list(node.troubles.items())}

    def stop(self) -> None:
        """No more requests follow those that are in flight."""
        for node in self.nodes.values():
            node.stop()
        self._log.wake()

    def close(self, timeout: float = 10.0) -> None:
        """Stop after the requests that are in flight, but wait no longer than this, and make positions durable."""
        self.stop()
        deadline = time.monotonic() + timeout
        for node in self.nodes.values():
            node.join(max(0.0, deadline - time.monotonic()))
        self.positions.save()
