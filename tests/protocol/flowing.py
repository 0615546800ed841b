"""One attempt of one epoch between a leader, distributors and servers that send each other batches at random.

Queues keep the order of each pair of members and deliver some messages twice; reports and batches of an older attempt
are mixed in. A ledger knows what was really sent: a server that computes a stage must hold all of it, and everybody who
could send more must be past that point.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from belvedere.protocol.barrier import BEFORE_STAGES, Barrier, CountingInbox
from belvedere.protocol.messages import Attempt, Batch, Done, Epoch, Expect, Sent
from belvedere.protocol.ring import MemberId

EPOCH, ATTEMPT, FORMER = Epoch(100), Attempt(7), Attempt(6)
LEADER = MemberId("leader")


class Wrong(AssertionError):
    """A stage was computed without all of it, or nothing moves any more."""


@dataclass
class Server:
    inbox: CountingInbox
    stage: int = 0
    held: list[Batch] = field(default_factory=list)


class World:
    def __init__(
        self, seed: int, barrier: Callable[..., Barrier] = Barrier, inbox: Callable[..., CountingInbox] = CountingInbox
    ) -> None:
        self.random = random.Random(seed)
        self.stages = self.random.randint(1, 4)
        self.servers = {MemberId(f"s{i}"): Server(inbox(EPOCH, ATTEMPT)) for i in range(self.random.randint(1, 5))}
        self.distributors = [MemberId(f"d{i}") for i in range(self.random.randint(0, 3))]
        self.barrier = barrier(EPOCH, ATTEMPT, list(self.servers), self.distributors, self.stages)
        self.queues: dict[tuple[MemberId, MemberId], deque[object]] = {}
        self.numbers: dict[tuple[MemberId, MemberId], int] = {}
        self.sent: dict[tuple[MemberId, int], set[tuple[MemberId, int]]] = {}
        self.past = dict.fromkeys(self.servers, BEFORE_STAGES) | dict.fromkeys(self.distributors, BEFORE_STAGES - 1)
        self.told = 0

    def run(self) -> None:
        self.tell(self.barrier.start())
        for member in self.past:
            if self.random.random() < 0.3:
                stage = BEFORE_STAGES if member in self.distributors else 0
                self.send(member, LEADER, Sent(EPOCH, FORMER, member, stage, {}))
        waiting = list(self.distributors)
        while waiting or any(self.queues.values()):
            if waiting and self.random.random() < 0.2:
                self.feed(waiting.pop(), BEFORE_STAGES)
            queues = [pair for pair, queue in self.queues.items() if queue]
            if queues:
                self.deliver(self.random.choice(queues))
        if not self.barrier.complete or self.barrier.waiting_for() is not None:
            raise Wrong(f"never complete: {self.barrier.waiting_for()}")
        if self.told != self.stages * len(self.servers):
            raise Wrong(f"{self.told} expectations for {len(self.servers)} servers and {self.stages} stages")

    def send(self, sender: MemberId, receiver: MemberId, message: object) -> None:
        queue = self.queues.setdefault((sender, receiver), deque())
        queue.append(message)
        if self.random.random() < 0.2:
            queue.append(message)
        if isinstance(message, Batch) and self.random.random() < 0.1:
            queue.append(replace(message, attempt=FORMER, number=message.number + 1))

    def feed(self, sender: MemberId, stage: int) -> None:
        """Send some batches to later stages, then report them."""
        counts: dict[int, list[int]] = {}
        for position, receiver in enumerate(self.servers):
            for later in range(stage + 1, self.stages):
                for _ in range(self.random.choice([0, 0, 1, 2])):
                    pair = (sender, receiver)
                    number = self.numbers[pair] = self.numbers.get(pair, -1) + 1
                    self.send(sender, receiver, Batch(EPOCH, ATTEMPT, later, sender, number))
                    self.sent.setdefault((receiver, later), set()).add((sender, number))
                    counts.setdefault(later, [0] * len(self.servers))[position] += 1
        self.past[sender] = stage
        self.send(sender, LEADER, Sent(EPOCH, ATTEMPT, sender, stage, {s: tuple(n) for s, n in counts.items()}))

    def deliver(self, pair: tuple[MemberId, MemberId]) -> None:
        receiver, message = pair[1], self.queues[pair].popleft()
        if receiver == LEADER:
            if isinstance(message, Sent):
                self.tell(self.barrier.sent(message))
            elif isinstance(message, Done):
                self.barrier.done(message)
            return
        server = self.servers[receiver]
        match message:
            case Batch(attempt=attempt, stage=stage, sender=sender, number=number) if attempt == ATTEMPT:
                if server.inbox.batch(sender, stage, number):
                    server.held.append(message)
            case Expect(stage=stage, batches=batches):
                server.inbox.expect(stage, batches)
        while server.stage < self.stages and server.inbox.ready(server.stage):
            self.compute(receiver, server)

    def compute(self, name: MemberId, server: Server) -> None:
        stage = server.stage
        held = [(batch.sender, batch.number) for batch in server.held if batch.stage == stage]
        behind = [m for m, past in self.past.items() if past < (BEFORE_STAGES if m in self.distributors else stage - 1)]
        if behind or sorted(held) != sorted(self.sent.get((name, stage), ())):
            raise Wrong(f"{name} computes stage {stage} with {len(held)} batches while {behind} are behind")
        server.stage += 1
        self.feed(name, stage)
        if server.stage == self.stages:
            self.send(name, LEADER, Done(EPOCH, ATTEMPT, name))

    def tell(self, expectations: list[tuple[MemberId, Expect]]) -> None:
        for server, expect in expectations:
            self.told += 1
            self.send(LEADER, server, expect)
