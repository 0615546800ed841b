"""The members of a modelled pool: the real machines, and what carrying out their instructions costs.

Each member has two threads: one that handles messages (`loop`: sending and receiving are counted there, on either
side), and one that computes. Threads of one member do not slow each other down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from belvedere.protocol import driving
from belvedere.protocol.coordinator import Coordinator, Options
from belvedere.protocol.driving import (
    Adopt,
    Compute,
    Computed,
    Distribute,
    Distributed,
    Persist,
    Persisted,
    Received,
    Send,
    SourceFact,
    Tick,
)
from belvedere.protocol.exactly_once import Chunk, ChunkId
from belvedere.protocol.flow import Distributor
from belvedere.protocol.messages import (
    Attempt,
    Batch,
    Counts,
    Epoch,
    EpochPlan,
    Generation,
    Member,
    Message,
    PoolState,
    Role,
)
from belvedere.protocol.ring import MemberId, Ring
from belvedere.protocol.viewserver import ViewServer
from tests.simulator.scheduler import MS, Action, Scheduler

CLUSTER = "modelled"
STAGES = 2
"""Base rows by their key, then groups by theirs: one redistribution, as in a view with GROUP BY."""
TICK = 20 * MS


@dataclass(frozen=True)
class Costs:
    """Microseconds; of CPU unless said otherwise."""

    message: float = 60.0
    """Sending or receiving one message, on either side, that goes alone."""
    queued: float = 6.0
    """The same, of one that goes together with others to the same receiver."""
    count: float = 0.15
    """What the leader pays beyond that for each receiver that a report of batches names."""
    row_moved: float = 0.05
    """Sending or receiving one row, on either side."""
    distribute_row: float = 0.5
    epoch: float = 6_000.0
    """A view server, for each epoch, however few rows it gets."""
    row: float = 4.0
    """A view server, for each base row, all stages together."""
    load_row: float = 4.0
    """A view server, beyond that, for a row whose state has to be loaded first."""
    adopt: float = 0.0
    """Everyone, for a new ring, for each server in it."""
    write_row: float = 5.0
    """Time of the store for the rows that one base row makes it write."""
    write: float = 5_000.0
    """Time until a write of no rows is durable."""
    call: float = 2_000.0
    """Time of a call of the store or of ZooKeeper, there and back."""
    latency: float = 200.0
    """Time of a message on its way."""


@dataclass(frozen=True)
class Workload:
    """`rate`: base rows per second. `fan_out`: rows that one base row makes go to the next stage (an insert is one, an
    update that changes the group two)."""

    rate: float
    fan_out: float = 1.15
    zipf: float = 0.0
    """Exponent of Zipf's law over keys; 0: all keys are alike."""
    keys: int = 1_000_000


"""How many went to whom, for which stage."""


class World(Protocol):
    """What members have in common (`capacity.Pool`)."""

    scheduler: Scheduler
    costs: Costs
    load: Workload
    chunks: dict[ChunkId, Chunk]
    facts: Sequence[SourceFact]

    @property
    def begun(self) -> bool:
        """Whether anything was committed."""

    def send(self, sender: Node, to: MemberId, message: Message) -> None: ...

    def spread(
        self, sender: Node, generation: Generation, epoch: Epoch, stage: int, rows: int, pieces: int
    ) -> Counts: ...

    def ring(self, generation: Generation) -> Ring: ...

    def rows_of(self, chunk: ChunkId) -> int: ...

    def leave(self, node: Node) -> None: ...

    def published(self, plan: EpochPlan) -> None: ...


class Thread:
    """Does one thing after the other; each takes its time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._free = 0.0
        self.busy = 0.0

    def do(self, cost: float, action: Action | None = None) -> float:
        """When it is done, in virtual time."""
        self._free = max(self._free, float(self._scheduler.now)) + cost
        self.busy += cost
        if action is not None:
            self._scheduler.at(round(self._free), action)
        return self._free


class Node:
    """One member: threads, a machine, and how its instructions are carried out."""

    def __init__(self, pool: World, name: MemberId, role: Role) -> None:
        self.pool, self.name = pool, name
        self.member = Member(name, role, cluster=CLUSTER)
        self.loop, self.compute = Thread(pool.scheduler), Thread(pool.scheduler)

    machine: Any

    def tell(self, event: Any) -> None:
        for instruction in self.machine.handle(event):
            if isinstance(instruction, Send):
                self.pool.send(self, instruction.to, instruction.message)
            else:
                self.carry_out(instruction)

    def carry_out(self, instruction: Any) -> None:
        raise NotImplementedError

    def receive(self, sender: MemberId, message: Message) -> None:
        self.tell(Received(sender, message))


class Server(Node):
    def __init__(self, pool: World, name: MemberId) -> None:
        super().__init__(pool, name, Role.VIEWSERVER)
        self.machine = ViewServer(name)
        self.store = Thread(pool.scheduler)
        self.rows = 0
        """Base rows that it got so far."""
        self._kept: dict[tuple[Epoch, Attempt, int], int] = {}
        self._wrote: dict[Epoch, int] = {}
        self._generation: Generation | None = None
        self._mine: np.ndarray | None = None
        self._cold = 0.0

    def receive(self, sender: MemberId, message: Message) -> None:
        if isinstance(message, Batch):
            key = (message.epoch, message.attempt, message.stage)
            self._kept[key] = self._kept.get(key, 0) + message.rows
        super().receive(sender, message)
        if self.machine.released:
            self.pool.leave(self)

    def carry_out(self, instruction: Any) -> None:
        match instruction:
            case Adopt(generation):
                self._adopt(generation)
            case Compute(epoch, attempt, stage):
                rows = self._kept.pop((epoch, attempt, stage), 0)
                if stage == 0:
                    self._wrote[epoch] = rows
                    self.rows += rows
                self.compute.do(self._cost(stage, rows), lambda: self._computed(instruction, rows))
            case Persist(epoch, attempt):
                rows = self._wrote.pop(epoch, 0)
                ready = self.compute.do(0.0)
                self.pool.scheduler.at(round(ready), lambda: self._persist(epoch, attempt, rows))

    def _adopt(self, generation: Generation) -> None:
        """Rows of buckets that it had not before have to be loaded: to be safe, all of them, until the end."""
        costs, owned = self.pool.costs, self.pool.ring(generation).owned(self.name)
        if self._mine is not None and len(owned):
            self._cold = len(np.setdiff1d(owned, self._mine)) / len(owned)
        elif self.pool.begun:
            self._cold = 1.0
        self._mine, self._generation = owned, generation
        self.compute.do(costs.adopt * len(generation.servers))

    def _cost(self, stage: int, rows: int) -> float:
        costs = self.pool.costs
        base = rows if stage == 0 or not rows else rows / self.pool.load.fan_out
        return costs.epoch / STAGES + base * (costs.row + self._cold * costs.load_row) / STAGES

    def _computed(self, compute: Compute, rows: int) -> None:
        batches: Counts = {}
        if compute.stage == 0 and self._generation is not None:
            made = round(rows * self.pool.load.fan_out)
            batches = self.pool.spread(self, self._generation, compute.epoch, 1, made, 1)
        self.tell(Computed(compute.epoch, compute.attempt, compute.stage, batches, rows))

    def _persist(self, epoch: Epoch, attempt: Attempt, rows: int) -> None:
        costs = self.pool.costs
        done = self.store.do(rows * costs.write_row) + costs.write
        self.pool.scheduler.at(round(done), lambda: self.tell(Persisted(epoch, attempt)))


class DistributorNode(Node):
    def __init__(self, pool: World, name: MemberId) -> None:
        super().__init__(pool, name, Role.DISTRIBUTOR)
        self.machine = Distributor(name)

    def carry_out(self, instruction: Any) -> None:
        if not isinstance(instruction, Distribute):
            return
        rows = [self.pool.rows_of(piece.chunk) for _, piece in instruction.pieces]
        cost = sum(rows) * self.pool.costs.distribute_row
        self.compute.do(cost, lambda: self._distributed(instruction, rows))

    def _distributed(self, distribute: Distribute, rows: Sequence[int]) -> None:
        epoch, generation = distribute.plan.epoch, distribute.generation
        counts = self.pool.spread(self, generation, epoch, 0, sum(rows), len(rows))
        self.tell(Distributed(epoch, generation.number, counts, sum(rows)))


class Leader(Node):
    """The coordinator, and what ZooKeeper and the store answer it."""

    def __init__(self, pool: World, name: MemberId, options: Options) -> None:
        super().__init__(pool, name, Role.COORDINATOR)
        self.machine = Coordinator(name, CLUSTER, options)
        self._version = -1
        self._state: PoolState | None = None
        self._documents: dict[str, bytes] = {}

    def tick(self) -> None:
        self.tell(Tick(self.pool.scheduler.clock()))
        self.pool.scheduler.after(TICK, self.tick)

    def carry_out(self, instruction: Any) -> None:
        d, clock = driving, self.pool.scheduler.clock
        match instruction:
            case d.ReadRecord(request):
                self._later(lambda: d.RecordRead(request, self._state, self._version, clock()))
            case d.Create(request, state) | d.Swap(request, state):
                self._version, self._state = self._version + 1, state
                version = self._version
                self._later(lambda: d.Swapped(request, "done", version, clock()))
            case d.WriteDocument(request, name, data):
                self._documents[name] = data
                self._later(lambda: d.DocumentWritten(request))
            case d.ReadDocument(request, name):
                self._later(lambda: d.DocumentRead(request, self._documents.get(name)))
            case d.ReadInput(request):
                self._later(lambda: d.InputRead(request, tuple(self.pool.chunks.values()), self.pool.facts))
            case d.ListDocuments(request):
                self._later(lambda: d.DocumentsListed(request, ()))
            case d.Publish(plan):
                self.pool.published(plan)
                self._later(lambda: d.Published(plan.epoch))
            case d.RemoveChunks(chunks):
                for chunk in chunks:
                    self.pool.chunks.pop(chunk, None)
            case d.RemoveDocuments(names):
                for name in names:
                    self._documents.pop(name, None)

    def _later(self, event: Callable[[], Any]) -> None:
        self.pool.scheduler.after(round(self.pool.costs.call), lambda: self.tell(event()))
