"""Readers that pin epochs, leaders that collect, and former leaders that do not know it yet, over one store.

Every step of everyone is apart from the next, and others come between; clocks of readers differ, a leader's is set now
and then. The world has the true time: a reader that relies on a pin must find everything there, what was committed
within the retention must be there, and no tombstone may go while a writer of its epoch or an older one can be late.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from belvedere.errors import EpochExpired
from belvedere.protocol.messages import NEVER, Epoch
from belvedere.protocol.pins import HORIZONS, PINS, Collection, PinDocument, check, horizon_of

RETENTION, LATE, LEASE = 4_000, 6_000, 9_000
Steps = Generator[None, None, None]


class Wrong(AssertionError):
    """Something was collected that somebody may need."""


@dataclass
class Reader:
    name: str
    offset: int
    held: PinDocument | None = None
    written: int = 0
    steps: Steps | None = None


@dataclass
class Leader:
    machine: Collection
    offset: int
    steps: Steps | None = None
    deposed: bool = False


@dataclass
class World:
    seed: int
    kind: Callable[[int, int], Collection] = Collection
    unchecked: bool = False
    """Readers do not look at the horizon."""
    documents: set[str] = field(default_factory=set)
    collected: Epoch = NEVER
    purged: Epoch = NEVER
    now: int = 1_000_000
    rounds: int = 0
    pinned: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.commits: list[tuple[int, Epoch]] = [(self.now, Epoch(self.now))]
        self.readers = [Reader(f"r{i}", self.random.randint(-(10**6), 10**6)) for i in range(3)]
        self.leaders: list[Leader] = []
        self.lead()

    def run(self, steps: int) -> None:
        actions = [
            (self.tick, 10), (self.commit, 4), (self.step_leader, 12), (self.step_reader, 12), (self.crash, 0.2),
            (self.change_leader, 0.2), (self.set_clock, 0.2),
        ]  # fmt: skip
        calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
            self.check()

    @property
    def committed(self) -> Epoch:
        return self.commits[-1][1]

    # --- what can happen

    def tick(self) -> None:
        self.now += self.random.choice([20, 100, 400])

    def commit(self) -> None:
        self.commits.append((self.now, Epoch(max(self.now, self.committed + 1))))
        leader = self.leaders[-1]
        leader.machine.committed(self.committed, self.now + leader.offset)

    def lead(self) -> None:
        made = Leader(self.kind(RETENTION, LATE), 0)
        made.machine.take_over(self.committed, self.list(HORIZONS), self.now)
        self.leaders.append(made)

    def change_leader(self) -> None:
        self.leaders[-1].deposed = True
        self.lead()
        del self.leaders[:-3]

    def set_clock(self) -> None:
        self.leaders[-1].offset += self.random.choice([-(10**6), 7_000, 10**6])

    def step_leader(self) -> None:
        leader = self.random.choice([*self.leaders, self.leaders[-1]])
        if leader.steps is None and not leader.deposed:
            leader.steps = self.collect(leader)
        leader.steps = self.advance(leader.steps)

    def step_reader(self) -> None:
        reader = self.random.choice(self.readers)
        if reader.steps is None:
            reader.steps = self.pin(reader)
        reader.steps = self.advance(reader.steps)

    def crash(self) -> None:
        reader = self.random.choice(self.readers)
        reader.held = None  # it crashed: the document stays
        reader.steps = None

    def advance(self, steps: Steps | None) -> Steps | None:
        if steps is None:
            return None
        try:
            next(steps)
        except StopIteration:
            return None
        return steps

    # --- the steps of each

    def collect(self, leader: Leader) -> Steps:
        machine = leader.machine
        pins = self.list(PINS)
        yield
        document = machine.choose(pins, self.now + leader.offset)
        yield
        if document is not None:
            self.documents.add(document)
            yield
        machine.raised()
        pins, horizons = self.list(PINS), self.list(HORIZONS)
        yield
        found = machine.collect(pins, horizons, self.now + leader.offset)
        yield
        self.rounds += 1
        self.collected = max(self.collected, found.horizon)
        if found.tombstones > self.purged:
            self.purged = found.tombstones
            self.check_tombstones()
        yield
        self.documents.difference_update(found.documents)

    def pin(self, reader: Reader) -> Steps:
        """Pin some epoch, or renew; the holder relies on it from the check on."""
        before = reader.held
        if before is None or not before.outlives(reader.written, self.now + reader.offset):
            kept = [e for _, e in self.commits if e >= horizon_of(self.list(HORIZONS))]
            epoch = self.random.choice([*kept[:3], kept[-1]])  # mostly what will go next
            fresh = PinDocument(f"{reader.name}-{self.random.randrange(10**9)}", epoch, LEASE)
        else:
            fresh = before.renewed()
        written = self.now + reader.offset
        yield
        self.documents.add(fresh.document)
        yield
        renewed = fresh.beat > 0 and before is not None and before.outlives(reader.written, self.now + reader.offset)
        if not renewed and not self.unchecked:
            horizons = self.list(HORIZONS)
            yield
            try:
                check(fresh, horizons)
            except EpochExpired:
                self.documents.discard(fresh.document)
                return
        if fresh.outlives(written, self.now + reader.offset):
            reader.held, reader.written = fresh, written
            self.pinned += 1
            yield
            if before is not None:
                self.documents.discard(before.document)
            if self.random.random() < 0.5:
                yield
                reader.held = None
                self.documents.discard(fresh.document)

    def list(self, prefix: str) -> list[str]:
        return sorted(name for name in self.documents if name.startswith(prefix))

    # --- what must hold

    def check(self) -> None:
        for reader in self.readers:
            if reader.held is None or not reader.held.outlives(reader.written, self.now + reader.offset):
                continue
            if reader.held.epoch < self.collected:
                raise Wrong(f"{reader.held} is held, {self.collected} is collected")
        within = max((e for at, e in self.commits if at <= self.now - RETENTION), default=NEVER)
        if self.collected > within:
            raise Wrong(f"{self.collected} is collected, {within} is within the retention")

    def check_tombstones(self) -> None:
        certain = max((e for at, e in self.commits if at <= self.now - LATE), default=NEVER)
        if self.purged > certain:
            raise Wrong(f"tombstones of {self.purged} are gone, {certain} may have late writers")
