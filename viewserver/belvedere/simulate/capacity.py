"""The capacity model: how a pool of many view servers behaves, with costs instead of an engine.

The machines are the real ones (`Coordinator`, `ViewServer`, `Distributor`), time is virtual, and nothing fails. What a
member does costs what was measured on real machines (`Costs`); rows are numbers, spread over servers by the real ring.

    INPUT ──chunks as they are pushed──▶ Coordinator ──Begin──▶ Distributors ──batches──▶ ViewServers ⇄ each other
                                                                                               └──▶ store

Each member has two threads: one that handles messages (`loop`: sending and receiving are counted there, on either
side), and one that computes. Threads of one member do not slow each other down. Every view server has a share of the
store of its own, as where tables are spread over as many region servers as the load needs; it writes there one epoch
after the other. What is not in the model: several pools, reads by users, and anything that goes wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

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
from belvedere.protocol.exactly_once import START, Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.flow import Distributor
from belvedere.protocol.messages import (
    Attempt,
    Batch,
    Begin,
    Committed,
    Done,
    Epoch,
    EpochPlan,
    Expect,
    Generation,
    Member,
    Message,
    PoolState,
    Role,
    Sent,
)
from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion
from belvedere.protocol.viewserver import ViewServer
from belvedere.simulate.scheduler import MS, SECOND, Action, Scheduler

STAGES = 2
"""Base rows by their key, then groups by theirs: one redistribution, as in a view with GROUP BY."""
CHUNK_EVERY = 50 * MS
"""How often a source gets a request through."""
TICK = 20 * MS
BYTES_PER_ROW = 100


@dataclass(frozen=True)
class Costs:
    """Microseconds; of CPU unless said otherwise."""

    message: float = 60.0
    """Sending or receiving one message, on either side."""
    count: float = 1.0
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


@dataclass
class Outcome:
    """What was seen between two moments."""

    servers: int
    seconds: float
    epochs: int
    rows: int
    lags: np.ndarray
    """Seconds from INPUT to the commit, for each chunk, with its rows as `weights`."""
    weights: np.ndarray
    control: dict[Epoch, int]
    """Messages that are not batches, by the epoch that they are about; epochs that began and ended meanwhile."""
    batches: int
    loads: np.ndarray
    """Base rows that each server got."""
    gap: float
    """The longest time between two commits, seconds."""
    leader_busy: float
    """Share of time in which the leader's loop had something to do."""

    @property
    def throughput(self) -> float:
        return self.rows / self.seconds

    @property
    def control_per_epoch(self) -> float:
        return sum(self.control.values()) / len(self.control)

    @property
    def busiest(self) -> float:
        """The busiest server against the mean."""
        return float(self.loads.max() / self.loads.mean())

    def lag(self, share: float) -> float:
        """The lag that this share of all rows does not exceed."""
        order = np.argsort(self.lags)
        total = np.cumsum(self.weights[order])
        return float(self.lags[order][np.searchsorted(total, share * total[-1])]) if len(order) else 0.0


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


class _Node:
    """One member: threads, a machine, and how its instructions are carried out."""

    def __init__(self, pool: Pool, name: MemberId, role: Role) -> None:
        self.pool, self.name = pool, name
        self.member = Member(name, role, cluster=pool.CLUSTER)
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


class _Server(_Node):
    def __init__(self, pool: Pool, name: MemberId) -> None:
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
        elif self.pool.committed:
            self._cold = 1.0
        self._mine, self._generation = owned, generation
        self.compute.do(costs.adopt * len(generation.servers))

    def _cost(self, stage: int, rows: int) -> float:
        costs = self.pool.costs
        base = rows if stage == 0 or not rows else rows / self.pool.load.fan_out
        return costs.epoch / STAGES + base * (costs.row + self._cold * costs.load_row) / STAGES

    def _computed(self, compute: Compute, rows: int) -> None:
        batches: dict[MemberId, dict[int, int]] = {}
        if compute.stage == 0 and self._generation is not None:
            made = round(rows * self.pool.load.fan_out)
            batches = self.pool.spread(self, self._generation, compute.epoch, 1, made)
        self.tell(Computed(compute.epoch, compute.attempt, compute.stage, batches, rows))

    def _persist(self, epoch: Epoch, attempt: Attempt, rows: int) -> None:
        costs = self.pool.costs
        done = self.store.do(rows * costs.write_row) + costs.write
        self.pool.scheduler.at(round(done), lambda: self.tell(Persisted(epoch, attempt)))


class _Distributor(_Node):
    def __init__(self, pool: Pool, name: MemberId) -> None:
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
        counts: dict[MemberId, dict[int, int]] = {}
        for count in rows:
            for to, by_stage in self.pool.spread(self, generation, epoch, 0, count).items():
                mine = counts.setdefault(to, {0: 0})
                mine[0] += by_stage[0]
        self.tell(Distributed(epoch, generation.number, counts, sum(rows)))


class _Leader(_Node):
    """The coordinator, and what ZooKeeper and the store answer it."""

    def __init__(self, pool: Pool, name: MemberId, options: Options) -> None:
        super().__init__(pool, name, Role.COORDINATOR)
        self.machine = Coordinator(name, pool.CLUSTER, options)
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
            case d.RemoveChunks(chunks):
                for chunk in chunks:
                    self.pool.chunks.pop(chunk, None)
            case d.RemoveDocuments(names):
                for name in names:
                    self._documents.pop(name, None)

    def _later(self, event: Callable[[], Any]) -> None:
        self.pool.scheduler.after(round(self.pool.costs.call), lambda: self.tell(event()))


@dataclass
class _Seen:
    """Commits and messages since the last time somebody looked."""

    since: int = 0
    commits: list[int] = field(default_factory=list)
    rows: int = 0
    lags: list[float] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    control: dict[Epoch, int] = field(default_factory=dict)
    plans: list[Epoch] = field(default_factory=list)
    batches: int = 0
    loads: dict[MemberId, int] = field(default_factory=dict)
    leader_busy: float = 0.0


class Pool:
    """A pool in virtual time."""

    CLUSTER = "modelled"

    def __init__(
        self,
        servers: int,
        costs: Costs,
        load: Workload,
        *,
        distributors: int | None = None,
        options: Options | None = None,
        seed: int = 0,
    ) -> None:
        """Distributors: one for eight servers, if not said. Options: what one server is given, times the servers."""
        self.scheduler = Scheduler()
        self.costs, self.load = costs, load
        self.committed: list[EpochPlan] = []
        self.chunks: dict[ChunkId, Chunk] = {}
        self._rows: dict[ChunkId, int] = {}
        self._random = np.random.default_rng(seed)
        self._weights = _bucket_weights(load, self._random)
        self._rings: dict[tuple[MemberId, ...], Ring] = {}
        self._shares: dict[tuple[MemberId, ...], np.ndarray] = {}
        self._nodes: dict[MemberId, _Node] = {}
        self._numbers: dict[tuple[MemberId, MemberId, Epoch, Attempt], int] = {}
        self._seen = _Seen()
        count = distributors or -(-servers // 8)
        for number in range(count):
            self._add(_Distributor(self, MemberId(f"distributor-{number:03d}")))
        for number in range(servers):
            self._add(_Server(self, MemberId(f"viewserver-{number:03d}")))
        self._next = servers
        self.sources = [SourceId(f"r/{number}") for number in range(count)]
        self.facts = tuple(SourceFact(source, frozenset(), None, "") for source in self.sources)
        self._seqs = dict.fromkeys(self.sources, 0)
        self._leader = _Leader(self, MemberId("coordinator"), options or sized(servers))
        self._add(self._leader)
        self._members_changed()
        self._leader.tell(driving.SessionChanged(True))
        self._leader.tell(driving.Elected(True))
        self._leader.tick()
        for position, source in enumerate(self.sources):
            self.scheduler.after(round(CHUNK_EVERY * position / count), functools.partial(self._push, source))
        self._offer_catalog()

    # ------------------------------------------------------------------ what one does with it

    def run(self, seconds: float) -> Outcome:
        """Let time pass; what was seen in it."""
        self._begin_to_look()
        self.scheduler.run_until(self.scheduler.now + round(seconds * SECOND))
        return self._looked()

    def grow(self) -> None:
        """One more view server joins."""
        self._add(_Server(self, MemberId(f"viewserver-{self._next:03d}")))
        self._next += 1
        self._members_changed()

    def shrink(self) -> None:
        """The last view server asks to leave."""
        last = max(name for name, node in self._nodes.items() if isinstance(node, _Server))
        node = self._nodes[last]
        node.member = replace(node.member, leaving=True)
        self._members_changed()

    @property
    def servers(self) -> list[MemberId]:
        """Those that the present generation has."""
        generation = self._leader.machine.epochs.generation
        return [] if generation is None else list(generation.servers)

    # ------------------------------------------------------------------ members and messages

    def _add(self, node: _Node) -> None:
        self._nodes[node.name] = node

    def leave(self, node: _Node) -> None:
        if self._nodes.pop(node.name, None) is not None:
            self._members_changed()

    def _members_changed(self) -> None:
        members = tuple(node.member for _, node in sorted(self._nodes.items()))
        self.scheduler.after(round(self.costs.call), lambda: self._leader.tell(driving.MembersChanged(members)))

    def send(self, sender: _Node, to: MemberId, message: Message) -> None:
        """A message that is no batch: paid for on both sides."""
        epoch = _epoch_of(message)
        if epoch is not None:
            self._seen.control[epoch] = self._seen.control.get(epoch, 0) + 1
        counted = self.costs.count * len(message.batches) if isinstance(message, Sent) else 0.0
        arrival = sender.loop.do(self.costs.message) + self.costs.latency
        self.scheduler.at(round(arrival), lambda: self._arrive(sender.name, to, message, self.costs.message + counted))

    def spread(
        self,
        sender: _Node,
        generation: Generation,
        epoch: Epoch,
        stage: int,
        rows: int,
    ) -> dict[MemberId, dict[int, int]]:
        """Send rows to their owners, a batch for each; says how many batches went where."""
        costs = self.costs
        found: dict[MemberId, dict[int, int]] = {}
        parts = self._random.multinomial(rows, self._share(generation)) if rows else np.zeros(0, np.int64)
        for position in np.flatnonzero(parts).tolist():
            to, count = generation.servers[position], int(parts[position])
            key = (sender.name, to, epoch, generation.number)
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
            batch = Batch(epoch, generation.number, stage, sender.name, number, 0, count)
            found[to] = {stage: 1}
            self._seen.batches += 1
            cost = costs.message + count * costs.row_moved if to != sender.name else 0.0
            arrival = sender.loop.do(cost) + costs.latency
            self.scheduler.at(round(arrival), _arriving(self, sender.name, to, batch, cost))
        return found

    def _arrive(self, sender: MemberId, to: MemberId, message: Message, cost: float) -> None:
        node = self._nodes.get(to)
        if node is not None:
            node.loop.do(cost, lambda: node.receive(sender, message))

    # ------------------------------------------------------------------ rows

    def ring(self, generation: Generation) -> Ring:
        ring = self._rings.get(generation.servers)
        if ring is None:
            ring = self._rings[generation.servers] = Ring.of(RingVersion(generation.ring), generation.servers)
        return ring

    def _share(self, generation: Generation) -> np.ndarray:
        """What part of all rows each server gets."""
        found = self._shares.get(generation.servers)
        if found is None:
            table = self.ring(generation).table
            found = np.bincount(table, self._weights, len(generation.servers))
            self._shares[generation.servers] = found = found / found.sum()
        return found

    def rows_of(self, chunk: ChunkId) -> int:
        return self._rows[chunk]

    def _push(self, source: SourceId) -> None:
        """A chunk of INPUT."""
        rows = int(self._random.poisson(self.load.rate * CHUNK_EVERY / SECOND / len(self.sources)))
        if rows:
            seq = self._seqs[source]
            self._seqs[source] = seq + 1
            writer = f"distributor-{self._random.integers(len(self.sources)):03d}"
            id = ChunkId(WriterId(writer), len(self._rows))
            self.chunks[id] = Chunk(id, source, Seq(seq), Seq(seq), rows, rows * BYTES_PER_ROW, self.scheduler.clock())
            self._rows[id] = rows
        self.scheduler.after(CHUNK_EVERY, lambda: self._push(source))

    def _offer_catalog(self) -> None:
        """Until somebody leads."""
        self._leader.tell(driving.CatalogOffered(1, 1, b"{}", STAGES))
        if self._leader.machine.catalog[0] == 0:
            self.scheduler.after(10 * MS, self._offer_catalog)

    # ------------------------------------------------------------------ what is seen

    def published(self, plan: EpochPlan) -> None:
        if self.committed and plan.epoch <= self.committed[-1].epoch:
            return
        self.committed.append(plan)
        seen, now = self._seen, self.scheduler.clock()
        seen.commits.append(self.scheduler.now)
        seen.plans.append(plan.epoch)
        seen.rows += plan.rows
        for piece in plan.pieces:
            chunk = self.chunks.get(piece.chunk)
            if chunk is not None and piece.after >= START:
                seen.lags.append((now - chunk.at) / 1000)
                seen.weights.append(chunk.rows)
        self._numbers = {key: number for key, number in self._numbers.items() if key[2] > plan.epoch}

    def _begin_to_look(self) -> None:
        loads = {name: node.rows for name, node in self._nodes.items() if isinstance(node, _Server)}
        self._seen = _Seen(self.scheduler.now, loads=loads, leader_busy=self._leader.loop.busy)

    def _looked(self) -> Outcome:
        seen, now = self._seen, self.scheduler.now
        marks = [seen.since, *seen.commits, now]
        loads = [node.rows - seen.loads.get(name, 0) for name, node in self._nodes.items() if isinstance(node, _Server)]
        return Outcome(
            servers=len(self.servers),
            seconds=(now - seen.since) / SECOND,
            epochs=len(seen.commits),
            rows=seen.rows,
            lags=np.array(seen.lags),
            weights=np.array(seen.weights),
            control={epoch: seen.control[epoch] for epoch in seen.plans[2:-1]},
            batches=seen.batches,
            loads=np.array(loads),
            gap=max(b - a for a, b in pairwise(marks)) / SECOND,
            leader_busy=(self._leader.loop.busy - seen.leader_busy) / max(1, now - seen.since),
        )


def _epoch_of(message: Message) -> Epoch | None:
    match message:
        case Begin(_, plan):
            return plan.epoch
        case Sent(epoch) | Expect(epoch) | Done(epoch) | Committed(epoch):
            return epoch
        case _:
            return None


def _arriving(pool: Pool, sender: MemberId, to: MemberId, batch: Batch, cost: float) -> Action:
    return lambda: pool._arrive(sender, to, batch, cost)


def sized(servers: int) -> Options:
    """The coordinator's limits for a pool of this size: what is right for one server, for each of them."""
    usual = Options()
    return Options(
        max_rows=usual.max_rows * servers, max_bytes=usual.max_bytes * servers, memory=usual.memory * servers
    )


def _bucket_weights(load: Workload, random: np.random.Generator) -> np.ndarray:
    """What part of all rows falls into each bucket."""
    if not load.zipf:
        return np.full(BUCKETS, 1.0 / BUCKETS)
    weights = 1.0 / np.arange(1, load.keys + 1) ** load.zipf
    return np.bincount(random.integers(0, BUCKETS, load.keys), weights / weights.sum(), BUCKETS)


def step_up(pool: Pool, seconds: float) -> tuple[float, Outcome]:
    """One more server: seconds until it had its part in a committed epoch, and what was seen meanwhile and after it."""
    before, begin = len(pool.servers), pool.scheduler.now
    pool._begin_to_look()
    pool.grow()
    begun: list[int] = []
    """Commits that there were when the generation with the new server began."""
    joined: list[int] = []

    def look() -> bool:
        commits = pool._seen.commits
        if not begun and len(pool.servers) > before:
            begun.append(len(commits))
        elif begun and not joined and len(commits) > begun[0]:
            joined.append(pool.scheduler.now)
        return False

    pool.scheduler.run_until(begin + round(seconds * SECOND), look)
    return ((joined[0] if joined else pool.scheduler.now) - begin) / SECOND, pool._looked()
