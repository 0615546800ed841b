"""Base tables whose regions push their logs, as HBase does.

A region has a log of entries, many rows each, whose seqs grow with gaps. Whoever has it open pushes it: one request
in flight, to a random distributor each time; a request without an answer is cut anew and sent again, while the first
may still be on its way, or be repeated by the network long after. When a region moves, the next node starts from a
position that was acknowledged some time ago, and the former node goes on for a while. A region that splits or merges
ends with a last seq; its daughters are listed, begin logs of their own and are pushed at once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import SourceInfo
from belvedere.protocol.exactly_once import START, Seq, SourceEntry, SourceId
from tests.simulator.changes import Change
from tests.simulator.scheduler import MS, Scheduler
from tests.simulator.trace import Trace

Answer = Callable[[bool], None]
Push = Callable[[SourceId, tuple[SourceEntry, ...], Answer], None]
"""Send a request to some distributor; `answer(acknowledged)` may be called once, never, or much later."""


@dataclass(eq=False)
class Region:
    """Keys `[low, high)` of a table."""

    id: SourceId
    table: str
    low: int
    high: int
    parents: tuple[Region, ...]
    node: str
    seq: int
    log: list[SourceEntry] = field(default_factory=list)
    ended: bool = False
    acknowledged: int = 0
    """So many entries of the log were acknowledged to somebody."""

    @property
    def last(self) -> Seq:
        return self.log[-1].seq if self.log else START


@dataclass(eq=False)
class _Pusher:
    """A node that pushes a region. Forgotten once it has nothing to push and the region went elsewhere, or ended."""

    region: Region
    next: int
    request: int = 0
    busy: bool = False
    retired: bool = False
    tried: int = 0
    """Where the last request that was not acknowledged ended."""


@dataclass
class Habits:
    """How sources behave."""

    patience: int = 300 * MS
    """How long a pusher waits for an answer."""
    repeats: float = 0.0
    """Share of requests that come once more, later."""
    batch: int = 4
    """Entries of a request, at most."""


class Sources:
    def __init__(
        self,
        scheduler: Scheduler,
        rng: random.Random,
        memory: MemoryStore,
        habits: Habits,
        push: Push,
        trace: Trace | None = None,
    ) -> None:
        self._effects = (trace or Trace()).effects
        self.habits = habits
        self.regions: dict[SourceId, Region] = {}
        self._scheduler = scheduler
        self._random = rng
        self._memory = memory
        self._push = push
        self._pushers: list[_Pusher] = []
        self._nodes = 0
        self._count = 0

    # --- tables

    def create(self, table: str, low: int, high: int) -> None:
        """A region that is listed at once."""
        region = self._make(table, low, high, ())
        self._list(region)

    def write(self, table: str, changes: Sequence[Change]) -> list[tuple[SourceId, Seq]]:
        """What a user wrote in one call: one entry in the log of each region that has a part of it."""
        written = []
        for region in self.open(table):
            rows = tuple(change for change in changes if region.low <= change.key < region.high)
            if rows:
                region.seq += self._random.choice((1, 1, 2, 9))
                region.log.append(SourceEntry(Seq(region.seq), rows))
                written.append((region.id, Seq(region.seq)))
                self._wake(region)
        return written

    def open(self, table: str | None = None) -> list[Region]:
        return [r for r in self.regions.values() if not r.ended and table in (None, r.table)]

    def unfinished(self) -> list[Region]:
        """Regions of which something was never acknowledged."""
        return [region for region in self.regions.values() if region.acknowledged < len(region.log)]

    # --- what happens to regions

    def move(self, region: Region) -> None:
        former = [pusher for pusher in self._pushers if pusher.region is region and not pusher.retired]
        self._nodes += 1
        region.node = f"node-{self._nodes}"
        start = max(0, region.acknowledged - self._random.choice((0, 0, 1, 3)))
        self._start(region, start)
        for pusher in former:
            self._scheduler.after(self._random.randint(0, 1_000) * MS, lambda p=pusher: self._retire(p))  # type: ignore[misc]
        if not region.ended:
            self._list(region)

    def split(self, region: Region) -> None:
        if region.high - region.low < 2 or region.ended:
            return
        middle = self._random.randint(region.low + 1, region.high - 1)
        region.ended = True
        first = self._make(region.table, region.low, middle, (region,))
        second = self._make(region.table, middle, region.high, (region,))
        for each in (region, first, second):
            self._list(each)

    def merge(self, left: Region, right: Region) -> None:
        if left.ended or right.ended or left.high != right.low or left.table != right.table:
            return
        left.ended = right.ended = True
        for each in (left, right, self._make(left.table, left.low, right.high, (left, right))):
            self._list(each)

    def neighbours(self) -> list[tuple[Region, Region]]:
        regions = self.open()
        return [(a, b) for a in regions for b in regions if a.table == b.table and a.high == b.low]

    def _make(self, table: str, low: int, high: int, parents: tuple[Region, ...]) -> Region:
        self._count += 1
        self._nodes += 1
        id, node = SourceId(f"{table}/{self._count}"), f"node-{self._nodes}"
        region = Region(id, table, low, high, parents, node, self._random.randint(-1, 5))
        self.regions[region.id] = region
        self._start(region, 0)
        return region

    def _list(self, region: Region) -> None:
        parents = frozenset(parent.id for parent in region.parents)
        last = region.last if region.ended else None
        self._memory.list_source(SourceInfo(region.id, region.table, parents, last, region.node))

    # --- pushing

    def _start(self, region: Region, start: int) -> None:
        pusher = _Pusher(region, start)
        self._pushers.append(pusher)
        self._scheduler.after(0, lambda: self._proceed(pusher))

    def _retire(self, pusher: _Pusher) -> None:
        pusher.retired = True
        if pusher in self._pushers:
            self._pushers.remove(pusher)

    def _wake(self, region: Region) -> None:
        for pusher in self._pushers:
            if pusher.region is region and not pusher.busy:
                self._scheduler.after(self._random.randint(0, 5 * MS), lambda p=pusher: self._proceed(p))  # type: ignore[misc]

    def _proceed(self, pusher: _Pusher) -> None:
        region = pusher.region
        if pusher.busy or pusher.retired or pusher.next >= len(region.log):
            return
        pusher.busy = True
        pusher.request += 1
        request = pusher.request
        stop = min(len(region.log), pusher.next + self._random.randint(1, self.habits.batch))
        entries = tuple(region.log[pusher.next : stop])
        self._count_effects(pusher, stop)

        def answered(acknowledged: bool) -> None:
            if acknowledged:
                region.acknowledged = max(region.acknowledged, stop)
            if pusher.request != request or not pusher.busy:
                return
            pusher.busy = False
            if acknowledged:
                pusher.next = stop
                self._proceed(pusher)
            else:
                self._scheduler.after(self._random.randint(1, 50) * MS, lambda: self._proceed(pusher))

        def give_up() -> None:
            if pusher.request == request and pusher.busy:
                pusher.busy = False
                self._proceed(pusher)

        self._push(region.id, entries, answered)
        if self._random.random() < self.habits.repeats:
            later = self._random.choice((1, 20, 300, 2_000)) * MS
            self._effects["push repeated late"] += 1
            self._scheduler.after(later, lambda: self._push(region.id, entries, answered))
        self._scheduler.after(self.habits.patience, give_up)

    def _count_effects(self, pusher: _Pusher, stop: int) -> None:
        """Whether the request, which ends at `stop`, is one that a filter must see through."""
        newer = any(p.region is pusher.region and p is not pusher for p in self._pushers[self._pushers.index(pusher) :])
        self._effects["push by a former node"] += newer
        if pusher.tried > pusher.next:
            self._effects["push cut differently" if pusher.tried != stop else "push sent again"] += 1
        pusher.tried = stop
