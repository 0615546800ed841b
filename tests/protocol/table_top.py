"""A pool on a table: the three role machines, one record, one dict of documents, and no computing.

Whatever waits to happen (a message, an answer, a tick) happens in random order, messages between two members in theirs.
Compute and Persist succeed at once. It shows that the machines fit together; that they compute the right thing is for
the simulator to show.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from belvedere.protocol import driving as d
from belvedere.protocol import wire
from belvedere.protocol.coordinator import Coordinator, Options
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.flow import Distributor
from belvedere.protocol.messages import Batch, Epoch, EpochPlan, Member, PoolState, Role
from belvedere.protocol.ring import MemberId
from belvedere.protocol.viewserver import ViewServer

CLUSTER = "table"


class TableTop:
    def __init__(self, seed: int, options: Options | None = None) -> None:
        self.random = random.Random(seed)
        self.now = 1_000_000
        self.options = options or Options(quiet_ms=2000, collect_ms=500, retention_ms=2000, late_writer_ms=1000)
        self.machines: dict[MemberId, Any] = {}
        self.members: dict[MemberId, Member] = {}
        self.record: tuple[PoolState, int] | None = None
        self.documents: dict[str, bytes] = {}
        self.chunks: list[Chunk] = []
        self.sources: list[d.SourceFact] = []
        self.commits: list[EpochPlan] = []
        self.states: list[PoolState] = []
        self.released: list[MemberId] = []
        self.collected: list[tuple[Epoch, Epoch]] = []
        self.computed: dict[MemberId, list[tuple[Epoch, int]]] = {}
        self._queues: dict[tuple[MemberId, MemberId], list[Any]] = {}
        self._waiting: list[tuple[MemberId, Callable[[], Any]]] = []
        self._number = 0
        self._seqs: dict[str, int] = {}
        self.taken: list[d.CatalogTaken] = []

    # --- what happens to the pool

    def start(self, role: Role, machine_of: Callable[[MemberId], Any] | None = None) -> MemberId:
        self._number += 1
        name = MemberId(f"{role.value}-{self._number}")
        makers: dict[Role, Callable[[MemberId], Any]] = {
            Role.COORDINATOR: lambda me: Coordinator(me, CLUSTER, self.options),
            Role.DISTRIBUTOR: Distributor,
            Role.VIEWSERVER: ViewServer,
        }
        self.machines[name] = (machine_of or makers[role])(name)
        self.members[name] = Member(name, role, cluster=CLUSTER)
        if role is Role.COORDINATOR:
            self._tell(name, d.Tick(self.now))
            if len(self._coordinators()) == 1:
                self._tell(name, d.Elected(True))
        self._members_changed()
        return name

    def kill(self, name: MemberId) -> None:
        del self.machines[name]
        del self.members[name]
        self._waiting = [(who, what) for who, what in self._waiting if who != name]
        self._queues = {pair: queue for pair, queue in self._queues.items() if name not in pair}
        coordinators = self._coordinators()
        if name.startswith("coordinator") and coordinators:
            self._tell(self.random.choice(coordinators), d.Elected(True))
        self._members_changed()

    def leave(self, name: MemberId) -> None:
        self.members[name] = replace(self.members[name], leaving=True)
        self._members_changed()

    def write(self, source: str, entries: int = 1) -> None:
        """INPUT gets a chunk of one source, as a distributor would write it."""
        first = self._seqs.get(source, 0)
        self._seqs[source] = first + entries
        if not any(fact.id == source for fact in self.sources):
            self.sources.append(d.SourceFact(SourceId(source), frozenset(), None))
        self._number += 1
        id = ChunkId(WriterId(f"writer-{self._number}"), 1)
        self.chunks.append(
            Chunk(id, SourceId(source), Seq(first), Seq(first + entries - 1), rows=entries, size=100, at=self.now)
        )

    def _coordinators(self) -> list[MemberId]:
        return [name for name in self.machines if name.startswith("coordinator")]

    def leader(self) -> Any:
        return next((m for n, m in self.machines.items() if n.startswith("coordinator") and m.leadership.leading), None)

    def _members_changed(self) -> None:
        for name in self._coordinators():
            self._tell(name, d.MembersChanged(tuple(self.members.values())))

    # --- time

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()

    def run_until(self, condition: Callable[[], bool], steps: int = 20_000) -> None:
        for _ in range(steps):
            if condition():
                return
            self._step()
        raise AssertionError(f"not reached in {steps} steps; the record is {self.record}")

    def _step(self) -> None:
        queues = [pair for pair, queue in self._queues.items() if queue and pair[1] in self.machines]
        choice = self.random.randrange(len(queues) + len(self._waiting) + 1)
        if choice < len(queues):
            sender, receiver = queues[choice]
            message = self._queues[queues[choice]].pop(0)
            self._tell(receiver, d.Received(sender, message))
            if self.random.random() < 0.05:
                self._tell(receiver, d.Received(sender, message))  # at least once
        elif choice < len(queues) + len(self._waiting):
            name, event = self._waiting.pop(choice - len(queues))
            self._tell(name, event())
        else:
            self.now += 10
            for name in list(self.machines):
                self._tell(name, d.Tick(self.now))

    def _tell(self, name: MemberId, event: Any) -> None:
        if name in self.machines:
            for instruction in self.machines[name].handle(event):
                self._carry_out(name, instruction)
            if getattr(self.machines.get(name), "released", False):
                self.released.append(name)
                self.kill(name)

    def _later(self, name: MemberId, event: Callable[[], Any]) -> None:
        self._waiting.append((name, event))

    # --- instructions

    def _carry_out(self, name: MemberId, instruction: Any) -> None:
        match instruction:
            case d.Send(to, message):
                self._queues.setdefault((name, to), []).append(message)
            case d.ReadRecord(request):
                self._later(name, lambda: self._read(request))
            case d.Create(request, state):
                self._later(name, lambda: self._swap(request, state, -1))
            case d.Swap(request, state, version):
                self._later(name, lambda: self._swap(request, state, version))
            case d.WriteDocument(request, document, data):
                self.documents[document] = data
                self._later(name, lambda: d.DocumentWritten(request))
            case d.ReadDocument(request, document):
                self._later(name, lambda: d.DocumentRead(request, self.documents.get(document)))
            case d.ListDocuments(request, prefixes):
                self._later(name, lambda: d.DocumentsListed(request, self._list(prefixes)))
            case d.AmendCatalogs(request, _, views, catalogs):
                self._later(name, lambda: d.CatalogsAmended(request, tuple(self._amend(views, *c) for c in catalogs)))
            case d.ReadInput(request):
                self._later(name, lambda: d.InputRead(request, tuple(self.chunks), tuple(self.sources)))
            case d.Publish(plan):
                self._later(name, lambda: d.Published(plan.epoch))
            case d.RemoveChunks(chunks):
                self.chunks = [chunk for chunk in self.chunks if chunk.id not in chunks]
            case d.RemoveDocuments(names):
                for document in names:
                    self.documents.pop(document, None)
            case d.Collect(horizon, tombstones):
                self.collected.append((horizon, tombstones))
            case d.Resign():
                others = [other for other in self._coordinators() if other != name]  # it goes to the end of the queue
                self._later(self.random.choice(others or [name]), lambda: d.Elected(True))
            case d.CatalogTaken():
                self.taken.append(instruction)
            case d.Distribute(plan, generation):
                self._later(name, lambda: self._distribute(name, plan, generation))
            case d.Compute(epoch, attempt, stage):
                self.computed.setdefault(name, []).append((epoch, stage))
                self._later(name, lambda: d.Computed(epoch, attempt, stage, {}))
            case d.Persist(epoch, attempt):
                self._later(name, lambda: d.Persisted(epoch, attempt))

    def _list(self, prefixes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(n for n in self.documents if n.startswith(prefixes)))

    def _amend(self, views: tuple[Any, ...], document: str, version: int) -> d.AmendedCatalog:
        """Catalogs are no more than lists of what failed in them."""
        failed = b"".join(f" -{view.name}".encode() for view, _ in views)
        return d.AmendedCatalog(version, self.documents.get(document, b"") + failed, 1, ())

    def _distribute(self, name: MemberId, plan: EpochPlan, generation: Any) -> d.Distributed:
        """One batch to each server, so that the barrier has something to count."""
        for server in generation.servers:
            self._queues.setdefault((name, server), []).append(Batch(plan.epoch, generation.number, 0, name, 0))
        counts = {0: (1,) * len(generation.servers)}
        return d.Distributed(plan.epoch, generation.number, counts, plan.rows)

    def _read(self, request: int) -> d.RecordRead:
        if self.record is None:
            return d.RecordRead(request, None)
        state, version = self.record
        return d.RecordRead(request, state, version, self.now)

    def _swap(self, request: int, state: PoolState, version: int) -> d.Swapped:
        present = -1 if self.record is None else self.record[1]
        if present != version:
            return d.Swapped(request, "conflict")
        self._check(state)
        self.record = (state, version + 1)
        self.states.append(state)
        if self.random.random() < 0.05:
            return d.Swapped(request, "unknown")
        return d.Swapped(request, "done", version + 1, self.now)

    def _check(self, state: PoolState) -> None:
        """Everything the record points to is durable; at most two epochs are open."""
        for pointer in state.open:
            assert wire.digest(self.documents[pointer.document]) == pointer.digest
        assert len(state.open) <= 2
        before = None if self.record is None else self.record[0]
        if before is not None and state.committed > before.committed:
            for pointer in before.open:
                if pointer.epoch <= state.committed:
                    self.commits.append(wire.decode(self.documents[pointer.document]))  # type: ignore[arg-type]
