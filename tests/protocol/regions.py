"""A naive model of tables whose regions move, split and merge, and of a leader who hears of it late and in disorder.

Each write has a number of its own, so the history of a row is known without any lineage. Daughters count their seqs
from anywhere, as if seqs of different sources could not be compared at all. Within one plan the sources are applied in
random order. After each plan the changes applied to a row must be the first ones of its history.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from belvedere.protocol import lineage
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.protocol.lineage import Generation, Lineage, NodeId, SourcePhase

ROWS = 12


class Wrong(AssertionError):
    """A row was changed too early, twice, never, or by a source that does not count."""


@dataclass(eq=False)
class Region:
    name: SourceId
    low: int
    high: int
    table: int
    parents: tuple[Region, ...]
    seq: int
    node: NodeId
    generation: int = 0
    ended: bool = False
    log: list[tuple[Seq, int, int]] = field(default_factory=list)  # seq, row, number of the write
    applied: int = 0
    arrived: int = 0

    @property
    def last(self) -> Seq:
        return self.log[-1][0] if self.log else START


class World:
    def __init__(self, seed: int, kind: type[Lineage] = Lineage) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.lineage = kind()
        self.regions: dict[SourceId, Region] = {}
        self.nodes = [NodeId(f"node-{i}") for i in range(3)]
        self.lost: list[NodeId] = []
        self.news: list[lineage.Event] = []
        self.history: dict[tuple[int, int], list[tuple[SourceId, int]]] = {}
        self.applied: dict[tuple[int, int], list[int]] = {}
        self.started: list[SourceId] = []
        self.numbers = 0
        for table in (0, 1):  # the second one is never listed
            self.create(0, ROWS, table, ())
        for _ in range(self.random.randint(0, 40)):
            self.random.choice([self.write, self.write, self.split, self.merge])()
        self.listed = self.list()
        self.counted: dict[SourceId, bool] = {}
        self.news.append(lineage.Listed(self.listed))

    # --- the tables

    def create(self, low: int, high: int, table: int, parents: tuple[Region, ...]) -> Region:
        name = SourceId(f"t{table}-{self.random.getrandbits(40):010x}")
        region = Region(name, low, high, table, parents, self.random.randint(-1, 50), self.random.choice(self.nodes))
        self.regions[name] = region
        if self.random.random() < 0.5:
            self.news.append(lineage.Born(name, frozenset(parent.name for parent in parents)))
        self.news.append(lineage.Opened(name, region.node, Generation(0)))
        return region

    def live(self) -> list[Region]:
        return sorted((r for r in self.regions.values() if not r.ended), key=lambda r: (r.table, r.low))

    def write(self) -> None:
        table, row = self.random.choice([0, 0, 1]), self.random.randrange(ROWS)
        (region,) = (r for r in self.live() if r.table == table and r.low <= row < r.high)
        region.seq += self.random.choice([1, 1, 3])
        self.numbers += 1
        region.log.append((Seq(region.seq), row, self.numbers))
        self.history.setdefault((table, row), []).append((region.name, self.numbers))

    def end(self, region: Region) -> None:
        region.ended = True
        self.news.append(lineage.SourceEnded(region.name, region.last))
        self.news.append(lineage.SourceClosed(region.name, Generation(region.generation)))

    def split(self) -> None:
        region = self.random.choice(self.live())
        if region.high - region.low > 1:
            self.end(region)
            middle = self.random.randrange(region.low + 1, region.high)
            self.create(region.low, middle, region.table, (region,))
            self.create(middle, region.high, region.table, (region,))

    def merge(self) -> None:
        live = self.live()
        first = self.random.randrange(len(live))
        run = [r for r in live[first : first + self.random.choice([2, 2, 3])] if r.table == live[first].table]
        if len(run) > 1:
            for region in run:
                self.end(region)
            self.create(run[0].low, run[-1].high, run[0].table, tuple(run))

    def move(self, region: Region | None = None, closed: bool = True) -> None:
        region = region or self.random.choice(self.live())
        if closed:
            self.news.append(lineage.SourceClosed(region.name, Generation(region.generation)))
        region.generation += self.random.choice([1, 5])
        region.node = self.random.choice(self.nodes)
        self.news.append(lineage.Opened(region.name, region.node, Generation(region.generation)))

    def lose_node(self) -> None:
        node = self.random.choice(self.nodes)
        self.nodes.remove(node)
        self.nodes.append(NodeId(f"node-{len(self.lost) + 3}"))
        self.lost.append(node)
        self.news.append(lineage.NodeLost(node))
        for region in self.live():
            if region.node == node:
                self.move(region, closed=False)

    # --- what counts, naively

    def list(self) -> frozenset[SourceId]:
        """All live regions, and some that ended of late: those none of whose daughters would be left out."""
        listed = {r.name for r in self.live() if r.table == 0}
        for region in reversed(self.regions.values()):
            daughters = {r.name for r in self.regions.values() if region in r.parents}
            if region.ended and region.table == 0 and daughters <= listed and self.random.random() < 0.5:
                listed.add(region.name)
        return frozenset(listed)

    def counts(self, region: Region) -> bool:
        if region.name not in self.counted:
            self.counted[region.name] = region.name in self.listed or any(self.counts(p) for p in region.parents)
        return self.counted[region.name]

    # --- the leader

    def run(self, steps: int) -> None:
        actions = [
            (self.write, 8), (self.split, 1), (self.merge, 1), (self.move, 1), (self.lose_node, 0.3), (self.hear, 8),
            (self.repeat, 1), (self.arrive, 6), (self.plan, 3), (self.change_leader, 0.2),
        ]  # fmt: skip
        calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
        self.drain()

    def hear(self) -> None:
        if self.news:
            self.tell(self.news.pop(self.random.randrange(len(self.news))))

    def repeat(self) -> None:
        if self.news:
            self.tell(self.random.choice(self.news))

    def arrive(self, region: Region | None = None) -> None:
        """More of a source becomes durable: of any source, since a daughter's chunk may well be there first."""
        region = region or self.random.choice(list(self.regions.values()))
        region.arrived = self.random.randint(region.arrived, len(region.log))
        if region.arrived:
            self.tell(lineage.Arrived(region.name, region.log[region.arrived - 1][0]))

    def plan(self) -> None:
        bounds = list(self.lineage.bounds().items())
        self.random.shuffle(bounds)
        for source, bound in bounds:
            region = self.regions[source]
            through = bound if self.random.random() < 0.7 else Seq(self.random.randint(START, bound))
            while region.applied < len(region.log) and region.log[region.applied][0] <= through:
                _, row, number = region.log[region.applied]
                self.applied.setdefault((region.table, row), []).append(number)
                region.applied += 1
            self.news.append(lineage.Planned(source, through))
            if self.random.random() < 0.9:  # the leader itself knows its plans; sometimes only the next one hears
                self.tell(self.news.pop())
        self.check()

    def change_leader(self) -> None:
        facts = self.lineage.facts()
        phases = {source: self.lineage.phase(source) for source in self.regions}
        homes = {source: self.lineage.home(source) for source in self.regions}
        self.random.shuffle(facts)
        self.lineage = self.kind()
        for fact in facts:
            self.tell(fact)
        if phases != {source: self.lineage.phase(source) for source in self.regions}:
            raise Wrong("the next leader sees other phases")
        if homes != {source: self.lineage.home(source) for source in self.regions}:
            raise Wrong("the next leader sees other homes")

    def tell(self, event: lineage.Event) -> None:
        for instruction in self.lineage.handle(event):
            match instruction:
                case lineage.AskParents(source):
                    parents = frozenset(parent.name for parent in self.regions[source].parents)
                    self.news.append(lineage.Born(source, parents))
                case lineage.Start(source):
                    self.started.append(source)
                    region = self.regions[source]
                    late = [p.name for p in region.parents if self.holds_up(region, p) and p.applied < len(p.log)]
                    if late or not self.counts(region):
                        raise Wrong(f"{source} starts before {late}")
                case lineage.Finish(source):
                    if not self.regions[source].ended or self.regions[source].applied < len(self.regions[source].log):
                        raise Wrong(f"{source} is said to be exhausted")
                case lineage.Ignore(source):
                    if self.counts(self.regions[source]):
                        raise Wrong(f"{source} is ignored")
                case lineage.LineageContradiction(source, reason):
                    raise Wrong(f"{source}: {reason}")
                case lineage.Orphaned(source, node):
                    if node not in self.lost:
                        raise Wrong(f"{source} is said to be orphaned by {node}")

    def holds_up(self, region: Region, parent: Region) -> bool:
        return parent.name in self.listed if region.name in self.listed else self.counts(parent)

    def check(self) -> None:
        for row, numbers in self.applied.items():
            expected = [number for source, number in self.history[row] if self.counts(self.regions[source])]
            if numbers != expected[: len(numbers)]:
                raise Wrong(f"row {row}: changes {numbers}, its history is {expected}")

    def drain(self) -> None:
        for _ in range(10 * len(self.regions) + 50):
            while self.news:
                self.hear()
            for region in self.regions.values():
                self.arrive(region)
            self.plan()
            if not self.news and all(r.applied == len(r.log) for r in self.regions.values() if self.counts(r)):
                break
        for row, history in self.history.items():
            expected = [number for source, number in history if self.counts(self.regions[source])]
            if self.applied.get(row, []) != expected:
                raise Wrong(f"row {row}: only {len(self.applied.get(row, []))} of {len(expected)} changes at the end")
        if self.lineage.held_up():
            raise Wrong(f"held up at the end: {self.lineage.held_up()}")
        for source, region in self.regions.items():
            phase = self.lineage.phase(source)
            counted = SourcePhase.EXHAUSTED if region.ended else SourcePhase.RUNNING
            if self.counts(region) and phase is not counted:
                raise Wrong(f"{source} is {phase} at the end")
            if not self.counts(region) and phase in (SourcePhase.RUNNING, SourcePhase.WAITING, SourcePhase.EXHAUSTED):
                raise Wrong(f"{source} does not count and is {phase} at the end")
            if not region.ended and self.lineage.home(source) != (lineage.Home.OPEN, region.node):
                raise Wrong(f"{source} is at {region.node}, not {self.lineage.home(source)}")
