"""The capacity model: how a pool of many view servers behaves, with costs instead of an engine.

The machines are the real ones (`Coordinator`, `ViewServer`, `Distributor`), time is virtual, and nothing fails. What a
member does costs what was measured on real machines (`Costs`); rows are numbers, spread over servers by the real ring.

    INPUT ──chunks as they are pushed──▶ Coordinator ──Begin──▶ Distributors ──batches──▶ ViewServers ⇄ each other
                                                                                               └──▶ store

What members do and what it costs is in `capacity_members`. Every view server has a share of the store of its own, as
where tables are spread over as many region servers as the load needs; it writes there one epoch after the other. What
is not in the model: several pools, reads by users, and anything that goes wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from belvedere.protocol import driving
from belvedere.protocol.coordinator import Options
from belvedere.protocol.driving import SourceFact
from belvedere.protocol.exactly_once import START, Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.messages import (
    Attempt,
    Batch,
    Begin,
    Committed,
    Counts,
    Done,
    Epoch,
    EpochPlan,
    Expect,
    Generation,
    Message,
    Sent,
)
from belvedere.protocol.ring import BUCKETS, MemberId, Ring, RingVersion
from bench.capacity_members import STAGES, Costs, DistributorNode, Leader, Node, Server, Workload
from tests.simulator.scheduler import MS, SECOND, Action, Scheduler

__all__ = ["Costs", "Outcome", "Pool", "Workload", "step_up"]

CHUNK_EVERY = 50 * MS
"""How often a source gets a request through."""
BYTES_PER_ROW = 100


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
        """Distributors: one for eight servers, if not said."""
        self.scheduler = Scheduler()
        self.costs, self.load = costs, load
        self.committed: list[EpochPlan] = []
        self.chunks: dict[ChunkId, Chunk] = {}
        self._rows: dict[ChunkId, int] = {}
        self._random = np.random.default_rng(seed)
        self._weights = _bucket_weights(load, self._random)
        self._rings: dict[tuple[MemberId, ...], Ring] = {}
        self._shares: dict[tuple[MemberId, ...], np.ndarray] = {}
        self._nodes: dict[MemberId, Node] = {}
        self._numbers: dict[tuple[MemberId, MemberId, Epoch, Attempt], int] = {}
        self._seen = _Seen()
        count = distributors or -(-servers // 8)
        for number in range(count):
            self._add(DistributorNode(self, MemberId(f"distributor-{number:03d}")))
        for number in range(servers):
            self._add(Server(self, MemberId(f"viewserver-{number:03d}")))
        self._next = servers
        self.sources = [SourceId(f"r/{number}") for number in range(count)]
        self.facts: Sequence[SourceFact] = tuple(SourceFact(source, frozenset(), None, "") for source in self.sources)
        self._seqs = dict.fromkeys(self.sources, 0)
        self._leader = Leader(self, MemberId("coordinator"), options or Options())
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
        self._add(Server(self, MemberId(f"viewserver-{self._next:03d}")))
        self._next += 1
        self._members_changed()

    def shrink(self) -> None:
        """The last view server asks to leave."""
        last = max(name for name, node in self._nodes.items() if isinstance(node, Server))
        node = self._nodes[last]
        node.member = replace(node.member, leaving=True)
        self._members_changed()

    @property
    def begun(self) -> bool:
        return bool(self.committed)

    @property
    def servers(self) -> list[MemberId]:
        """Those that the present generation has."""
        generation = self._leader.machine.epochs.generation
        return [] if generation is None else list(generation.servers)

    # ------------------------------------------------------------------ members and messages

    def _add(self, node: Node) -> None:
        self._nodes[node.name] = node

    def leave(self, node: Node) -> None:
        if self._nodes.pop(node.name, None) is not None:
            self._members_changed()

    def _members_changed(self) -> None:
        members = tuple(node.member for _, node in sorted(self._nodes.items()))
        self.scheduler.after(round(self.costs.call), lambda: self._leader.tell(driving.MembersChanged(members)))

    def send(self, sender: Node, to: MemberId, message: Message) -> None:
        """A message that is no batch: paid for on both sides."""
        epoch = _epoch_of(message)
        if epoch is not None:
            self._seen.control[epoch] = self._seen.control.get(epoch, 0) + 1
        counted = 0.0
        if isinstance(message, Sent):
            counted = self.costs.count * sum(map(len, message.batches.values()))
        arrival = sender.loop.do(self.costs.message) + self.costs.latency
        self.scheduler.at(round(arrival), lambda: self._arrive(sender.name, to, message, self.costs.message + counted))

    def spread(
        self,
        sender: Node,
        generation: Generation,
        epoch: Epoch,
        stage: int,
        rows: int,
        pieces: int,
    ) -> Counts:
        """Send rows to their owners; says how many batches went where. Each owner gets so many pieces of them, which
        are queued together; the model makes one batch of them, and counts what all of them cost."""
        costs = self.costs
        parts = self._random.multinomial(rows, self._share(generation)) if rows else np.zeros(0, np.int64)
        for position in np.flatnonzero(parts).tolist():
            to, count = generation.servers[position], int(parts[position])
            key = (sender.name, to, epoch, generation.number)
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
            batch = Batch(epoch, generation.number, stage, sender.name, number, 0, count)
            self._seen.batches += pieces
            away = costs.message + (pieces - 1) * costs.queued + count * costs.row_moved
            cost = away if to != sender.name else 0.0
            arrival = sender.loop.do(cost) + costs.latency
            self.scheduler.at(round(arrival), _arriving(self, sender.name, to, batch, cost))
        return {stage: tuple((parts > 0).astype(int).tolist())} if rows else {}

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
        """A chunk of INPUT, once there is a catalog to plan it with."""
        rows = int(self._random.poisson(self.load.rate * CHUNK_EVERY / SECOND / len(self.sources)))
        if rows and self._leader.machine.catalog[0]:
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
        loads = {name: node.rows for name, node in self._nodes.items() if isinstance(node, Server)}
        self._seen = _Seen(self.scheduler.now, loads=loads, leader_busy=self._leader.loop.busy)

    def _looked(self) -> Outcome:
        seen, now = self._seen, self.scheduler.now
        marks = [seen.since, *seen.commits, now]
        loads = [node.rows - seen.loads.get(name, 0) for name, node in self._nodes.items() if isinstance(node, Server)]
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
