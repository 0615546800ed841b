"""A store with tables whose regions split and merge, its INPUT, and leaders that plan, commit, collect and forget.

Each write has a number of its own, so the history of a row is known without any source. Copies of what was pushed come
again at any time, also long after their source was forgotten; the listing is older than the index that is read after
it; a leader may crash before its plan is in the record or before the store was told to forget. After each plan the
changes applied to a row must be the first ones of its history; at the end everything is applied, INPUT is empty, and
positions have nothing but live sources.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from belvedere.protocol import exactly_once as eo
from belvedere.protocol.driving import SourceFact
from belvedere.protocol.exactly_once import START, Chunk, ChunkId, Seq, SourceEntry, SourceId, WriterId
from belvedere.protocol.lineage import LineageContradiction
from belvedere.protocol.sources import SourceBook

ROWS = 8


class Wrong(AssertionError):
    """A change was lost, came twice or too early; or something is kept for ever."""


@dataclass(eq=False)
class Region:
    name: SourceId
    low: int
    high: int
    parents: frozenset[SourceId]
    seq: int
    foreign: bool = False
    ended: bool = False
    log: list[SourceEntry] = field(default_factory=list)  # an entry's rows: (row, number of the write)
    pushed: int = 0

    def fact(self) -> SourceFact:
        last = None if not self.ended else self.log[-1].seq if self.log else START
        return SourceFact(self.name, self.parents, last, "node")


class World:
    def __init__(self, seed: int, kind: Callable[[], SourceBook] = SourceBook) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.regions: dict[SourceId, Region] = {}
        self.listed: set[SourceId] = set()
        self.input: dict[ChunkId, tuple[Chunk, tuple[SourceEntry, ...]]] = {}
        self.history: dict[int, list[int]] = {}
        self.applied: dict[int, list[int]] = {}
        self.numbers = 0
        self.planned: dict[SourceId, Seq] = {}
        self.open: list[dict[SourceId, Seq]] = []
        self.committed: dict[SourceId, Seq] = {}
        self.sources = kind()
        self.listing: list[SourceFact] | None = None
        self.forgotten = 0
        self.copies_of_forgotten = 0
        old = frozenset({SourceId("split long ago")})
        self.create(0, ROWS // 2, old)
        self.create(ROWS // 2, ROWS, old)
        self.create(0, ROWS, frozenset(), foreign=True)

    def run(self, steps: int) -> None:
        actions = [
            (self.write, 8), (self.split, 0.7), (self.merge, 0.7), (self.push, 8), (self.repeat, 2), (self.list, 4),
            (self.plan, 6), (self.commit, 4), (self.collect, 3), (self.forget, 3), (self.change_leader, 0.3),
        ]  # fmt: skip
        calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
        self.drain()

    # --- the tables

    def create(self, low: int, high: int, parents: frozenset[SourceId], foreign: bool = False) -> None:
        name = SourceId(f"{'f' if foreign else 'r'}-{self.random.getrandbits(32):08x}")
        self.regions[name] = Region(name, low, high, parents, self.random.randint(-1, 40), foreign)
        if not foreign:
            self.listed.add(name)

    def live(self) -> list[Region]:
        return sorted((r for r in self.regions.values() if not r.ended and not r.foreign), key=lambda r: r.low)

    def write(self) -> None:
        region = self.random.choice([r for r in self.regions.values() if not r.ended])
        region.seq += self.random.choice([1, 1, 4])
        rows = []
        for _ in range(self.random.choice([0, 1, 2])):
            row = self.random.randrange(region.low, region.high)
            self.numbers += 1
            rows.append((row, self.numbers))
            if not region.foreign:
                self.history.setdefault(row, []).append(self.numbers)
        region.log.append(SourceEntry(Seq(region.seq), tuple(rows)))

    def split(self) -> None:
        region = self.random.choice(self.live())
        if region.high - region.low > 1:
            middle = self.random.randrange(region.low + 1, region.high)
            region.ended = True
            self.create(region.low, middle, frozenset({region.name}))
            self.create(middle, region.high, frozenset({region.name}))

    def merge(self) -> None:
        live = self.live()
        first = self.random.randrange(len(live))
        run = live[first : first + 2]
        if len(run) == 2:
            for region in run:
                region.ended = True
            self.create(run[0].low, run[1].high, frozenset(region.name for region in run))

    # --- INPUT

    def push(self, region: Region | None = None) -> None:
        region = region or self.random.choice(list(self.regions.values()))
        stop = min(len(region.log), region.pushed + self.random.choice([1, 2, 5]))
        if stop > region.pushed:
            self.put(region, max(0, region.pushed - self.random.choice([0, 0, 2])), stop)
            region.pushed = stop

    def repeat(self) -> None:
        """A copy of something that was acknowledged, from a pusher that is far behind."""
        region = self.random.choice(list(self.regions.values()))
        if region.pushed:
            start = self.random.randrange(region.pushed)
            self.put(region, start, self.random.randint(start + 1, region.pushed))
            self.copies_of_forgotten += region.name not in self.listed and not region.foreign

    def put(self, region: Region, start: int, stop: int) -> None:
        if start < stop:
            entries = tuple(region.log[start:stop])
            self.numbers += 1
            id = ChunkId(WriterId("w"), self.numbers)
            rows = sum(len(entry.rows) for entry in entries)
            self.input[id] = (Chunk(id, region.name, entries[0].seq, entries[-1].seq, rows, at=self.numbers), entries)

    # --- the leader

    def list(self) -> None:
        if self.listing is None:
            self.listing = [self.regions[name].fact() for name in sorted(self.listed)]

    def plan(self) -> None:
        """The index is read later than the listing; then the plan gets into the record, or the leader crashes."""
        if self.listing is None or len(self.open) >= 2:
            return
        listing, self.listing = self.listing, None
        index = [chunk for chunk, _ in self.input.values()]
        self.hear(self.sources.observe(index, listing))
        bounds = self.sources.bounds()
        for source in list(bounds):
            if self.random.random() < 0.3:
                entries = [e for e in self.regions[source].log if self.sources.planned.get(source, START) < e.seq]
                lower = self.random.choice(entries).seq
                bounds[source] = min(bounds[source], lower)
        pieces = self.sources.choose(bounds)
        after = self.sources.positions_after(bounds)
        if self.random.random() < 0.1:
            self.change_leader()
            return
        self.apply(pieces)
        self.planned = after
        self.open.append(after)
        self.hear(self.sources.plan(after))

    def apply(self, pieces: tuple[eo.InputPiece, ...]) -> None:
        """Each source in order, the sources of a plan in any order."""
        sources = sorted({piece.source for piece in pieces})
        self.random.shuffle(sources)
        for piece in sorted(pieces, key=lambda piece: sources.index(piece.source)):
            for entry in piece.take(self.input[piece.chunk][1]):
                assert isinstance(entry.rows, tuple)
                for row, number in entry.rows:
                    self.applied.setdefault(row, []).append(number)
        for row, numbers in self.applied.items():
            if numbers != self.history.get(row, [])[: len(numbers)]:
                raise Wrong(f"row {row}: changes {numbers}, its history is {self.history.get(row, [])}")

    def commit(self) -> None:
        if self.open:
            self.committed = self.open.pop(0)

    def collect(self) -> None:
        index = [chunk for chunk, _ in self.input.values()]
        for id in (*eo.collectable(self.committed, index), *self.sources.strays()):
            self.input.pop(id, None)

    def forget(self) -> None:
        for source in self.sources.forgettable(self.committed):
            if self.random.random() < 0.7:
                self.listed.discard(source)
                self.forgotten += 1

    def change_leader(self) -> None:
        self.sources = self.kind()
        self.sources.restore(self.planned)
        self.listing = None

    def hear(self, contradictions: list[LineageContradiction]) -> None:
        if contradictions:
            raise Wrong(f"contradictions: {contradictions}")

    def drain(self) -> None:
        for _ in range(20 * len(self.regions) + 50):
            for region in self.regions.values():
                self.push(region)
            self.list()
            self.plan()
            self.commit()
            self.collect()
            self.forget()
            if self.history == self.applied and not self.input and self.listed == {r.name for r in self.live()}:
                break
        missing = {row: len(numbers) - len(self.applied.get(row, [])) for row, numbers in self.history.items()}
        if any(missing.values()):
            raise Wrong(f"changes that never came: {missing}, held up: {self.sources.held_up()}")
        if self.input:
            raise Wrong(f"{len(self.input)} chunks stay in INPUT for ever")
        living = {region.name for region in self.live()}
        for _ in range(30):  # leaders crash in between
            if self.planned.keys() <= living:
                break
            self.list()
            self.plan()
            self.commit()
        else:
            raise Wrong(f"{len(self.planned)} positions are kept for {len(self.live())} sources")
