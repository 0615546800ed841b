"""The coordinator: leads a pool. Puts the smaller machines together and decides what goes into the record next.

    FOLLOWING ──the record is ours (Leadership)──▶ RESTORING ──plans read, digests checked──▶ LEADING
        ▲                                                                                   │
        └───────── another term, a clock that is off, a session that may have ended ────────┘

While LEADING it makes one proposal at a time for the record, each with all that is due:

    commit      epochs that every server has acknowledged                   (`epoch`)
    generation  someone is lost or failed: at once; someone joins or        (`membership`, `assign`, `withdraw`)
                leaves: when no epoch is open
    plan        the next epoch, once its document is durable                (`sources`, `pressure`)

What a proposal says takes effect when it is in the record, never before: then members are told. So whatever a
successor finds in the record is at least what anybody was told, and everything else follows from it.

Nothing but the record and the documents it points to is carried from leader to leader. A new leader begins a new
generation, in which the open epochs are done again, so it need not know how far they were.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from belvedere.errors import Contradiction
from belvedere.protocol import wire
from belvedere.protocol.assign import Assign
from belvedere.protocol.driving import (
    CatalogOffered,
    CatalogTaken,
    Collect,
    CoordinatorEvent,
    CoordinatorInstruction,
    DocumentRead,
    DocumentsListed,
    DocumentWritten,
    Elected,
    Forget,
    ForgetSources,
    InputRead,
    ListDocuments,
    MembersChanged,
    Note,
    Publish,
    ReadDocument,
    ReadInput,
    Received,
    RecordRead,
    RemoveChunks,
    RemoveDocuments,
    Send,
    SessionChanged,
    StoreFailed,
    Swapped,
    Tick,
    Unreachable,
    WriteDocument,
)
from belvedere.protocol.epoch import MAX_OPEN, Epochs, OpenEpoch, name_of
from belvedere.protocol.exactly_once import Chunk, Piece, Seq, SourceId, collectable
from belvedere.protocol.membership import (
    Accepted,
    Leadership,
    LeadershipEvent,
    LeadershipInstruction,
    Leads,
    Membership,
    Stops,
)
from belvedere.protocol.messages import (
    Attempt,
    Begin,
    Committed,
    Done,
    Epoch,
    EpochPlan,
    Failed,
    Generation,
    Idle,
    Member,
    Pointer,
    PoolState,
    Released,
    Sent,
    Slice,
)
from belvedere.protocol.pins import HORIZONS, PINS, Collection
from belvedere.protocol.pressure import Finished, Pressure
from belvedere.protocol.ring import BUCKETS, MemberId
from belvedere.protocol.sources import Sources
from belvedere.protocol.withdraw import Withdraw

Answer: TypeAlias = DocumentWritten | DocumentRead | DocumentsListed | InputRead
Make: TypeAlias = Callable[[int], CoordinatorInstruction]
Then: TypeAlias = Callable[[Answer], list[CoordinatorInstruction]]

RETRY_MS = 200
STALLED_AFTER = 3
FIRST_SLICE = 1024
SMALLEST_SLICE = 32
"""Of a build, in buckets: it comes to an end in a few hundred epochs however slow they are."""
COLLECT_PATIENCE = 25
"""A round of collection that gets no answer for so many retries is begun again."""


@dataclass(frozen=True)
class Options:
    """`epoch_ms`: the shortest time between two plans. `engine`: the version of the engine that plans name."""

    epoch_ms: int = 20
    collect_ms: int = 1000
    quiet_ms: int = 30_000
    """An epoch in which nobody reports anything for so long is begun again in a new generation."""
    target_ms: int = 200
    max_rows: int = 200_000
    max_bytes: int = 64 << 20
    memory: int = 1 << 30
    """Bytes that batches of open epochs may take, all servers together."""
    retention_ms: int = 60_000
    late_writer_ms: int = 30_000
    settle_ms: int = 0
    engine: int = 1


class Phase(enum.Enum):
    FOLLOWING = "following"
    RESTORING = "restoring"
    LEADING = "leading"


@dataclass
class _Catalog:
    """The catalog that the next plan names, and what of it has to be built: circuit -> first bucket not yet taken."""

    version: int = 0
    document: str = ""
    stages: int = 1
    building: dict[int, int] = field(default_factory=dict)


@dataclass
class _Offer:
    """DDL on its way into a plan."""

    offered: CatalogOffered
    document: str
    durable: bool = False

    def taken(self, before: _Catalog) -> _Catalog:
        """The catalog that it makes of the present one."""
        offered = self.offered
        going_on = {circuit: at for circuit, at in before.building.items() if circuit in offered.present}
        building = dict.fromkeys(offered.circuits, 0) | going_on
        return _Catalog(offered.version, self.document, offered.stages, building)


@dataclass(frozen=True)
class _Proposal:
    """What is on its way into the record."""

    state: PoolState
    commit: Epoch | None = None
    generation: Generation | None = None
    plan: EpochPlan | None = None
    pointer: Pointer | None = None


@dataclass
class _Failure:
    """Why the present generation is given up, and since when the same thing goes wrong."""

    reason: str = ""
    times: int = 0
    retry_at: int | None = None


class Coordinator:
    """A candidate; at most one of a pool's coordinators gets anything into the record at a time."""

    def __init__(self, me: MemberId, cluster: str, options: Options | None = None) -> None:
        self.me, self.cluster = me, cluster
        self.options = options or Options()
        self.phase = Phase.FOLLOWING
        self.epochs = Epochs()
        self.membership = Membership(cluster, settle_ms=self.options.settle_ms)
        self.leadership = Leadership(me, cluster)
        self.assign, self.withdraw = Assign(), Withdraw()
        self._now = 0
        self._request = 0
        self._members: dict[MemberId, Member] = {}
        self._reset()

    def _reset(self) -> None:
        """Forget all that belongs to a term."""
        options = self.options
        self.epochs = Epochs()
        self.assign, self.withdraw = Assign(), Withdraw()
        self.sources = Sources()
        self.pressure = Pressure(options.max_rows, options.max_bytes, options.memory, target_ms=options.target_ms)
        self.collection = Collection(options.retention_ms, options.late_writer_ms)
        self._catalog = _Catalog()
        self._offer: _Offer | None = None
        self._planning = False
        self._prepared: tuple[EpochPlan, Pointer] | None = None
        self._proposal: _Proposal | None = None
        self._regenerate = True
        self._failure = _Failure()
        self._plan_at = 0
        self._collect_at = 0
        self._round = 0
        self._progress_at = self._now
        self._slice = FIRST_SLICE
        self._plain_ms = 0
        """How long epochs take that build nothing; 0 if unknown."""
        self._index: tuple[Chunk, ...] = ()
        self._committed_positions: Mapping[SourceId, Seq] = {}
        self._documents: list[tuple[Epoch, str]] = []
        self._restoring: dict[str, EpochPlan] = {}
        self._waiting: dict[int, tuple[Make, Then]] = {}
        self._again: list[tuple[int, Make, Then]] = []

    # ------------------------------------------------------------------ events

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorInstruction]:
        match event:
            case Tick(now):
                self._now = max(self._now, now)
                self.membership.tick(self._now)
                return [*self._lead(event), *self._retry(), *self._advance()]
            case MembersChanged(members):
                self._members = {member.id: member for member in members}
                return [*self.membership.listed(members, self._now), *self._advance()]
            case Unreachable(member, reason):
                return [*self._unreachable(member, reason), *self._advance()]
            case Elected() | SessionChanged() | RecordRead() | Swapped():
                return [*self._lead(event), *self._advance()]
            case Received(_, message):
                return [*self._heard(message), *self._advance()]
            case DocumentWritten(request) | DocumentRead(request) | DocumentsListed(request) | InputRead(request):
                return [*self._answered(request, event), *self._advance()]
            case StoreFailed(request, reason):
                return self._store_failed(request, reason)
            case CatalogOffered():
                return [*self._offered(event), *self._advance()]

    def _ask(self, make: Make, then: Then) -> list[CoordinatorInstruction]:
        """A request to the store; asked again after a while if it fails."""
        self._request += 1
        self._waiting[self._request] = (make, then)
        return [make(self._request)]

    def _answered(self, request: int, event: Answer) -> list[CoordinatorInstruction]:
        waiting = self._waiting.pop(request, None)
        return [] if waiting is None else waiting[1](event)

    def _store_failed(self, request: int, reason: str) -> list[CoordinatorInstruction]:
        waiting = self._waiting.pop(request, None)
        if waiting is None:
            return []
        self._again.append((self._now + RETRY_MS, *waiting))
        return [Note("store does not answer", {"reason": reason})]

    def _retry(self) -> list[CoordinatorInstruction]:
        due = [(make, then) for at, make, then in self._again if at <= self._now]
        self._again = [one for one in self._again if one[0] > self._now]
        return [instruction for make, then in due for instruction in self._ask(make, then)]

    # ------------------------------------------------------------------ taking over

    def _lead(self, event: LeadershipEvent) -> list[CoordinatorInstruction]:
        return self._led(self.leadership.handle(event))

    def _led(self, instructions: Iterable[LeadershipInstruction]) -> list[CoordinatorInstruction]:
        found: list[CoordinatorInstruction] = []
        for instruction in instructions:
            match instruction:
                case Leads(state):
                    found += self._took_over(state)
                case Stops(reason):
                    found += self._lost_lead(reason)
                case Accepted():
                    found += self._accepted()
                case _:
                    found.append(instruction)
        return found

    @property
    def catalog(self) -> tuple[int, str, tuple[int, ...]]:
        """Version and document of the newest catalog that a plan names, and the circuits of it that are being built."""
        return self._catalog.version, self._catalog.document, tuple(self._catalog.building)

    @property
    def _term(self) -> int:
        assert self.leadership.state is not None
        return self.leadership.state.term

    def _took_over(self, state: PoolState) -> list[CoordinatorInstruction]:
        self._reset()
        self.phase = Phase.RESTORING
        pointers = [*state.open] if state.committed_plan is None else [state.committed_plan, *state.open]
        found: list[CoordinatorInstruction] = [Note("leading", {"term": state.term, "committed": state.committed})]
        if not pointers:
            return found + self._restored(state)
        for pointer in pointers:
            found += self._ask(_reading(pointer.document), self._plan_reader(state, pointer, len(pointers)))
        return found

    def _plan_reader(self, state: PoolState, pointer: Pointer, wanted: int) -> Then:
        def read(event: Answer) -> list[CoordinatorInstruction]:
            assert isinstance(event, DocumentRead)
            if event.data is None or wire.digest(event.data) != pointer.digest:
                # Damage, or a successor has removed it rightly since. Whoever leads next reads the record anew.
                what = "is missing" if event.data is None else "has another digest than the record says"
                return self._led(
                    self.leadership.stand_back(f"plan of epoch {pointer.epoch}: document {pointer.document!r} {what}")
                )
            plan = wire.decode(event.data)
            assert isinstance(plan, EpochPlan)
            self._restoring[pointer.document] = plan
            return self._restored(state) if len(self._restoring) == wanted else []

        return read

    def _restored(self, state: PoolState) -> list[CoordinatorInstruction]:
        """All that a predecessor left is known: go on from there."""
        epochs = self.epochs
        epochs.committed = state.committed
        found: list[CoordinatorInstruction] = []
        if state.committed_plan is not None:
            epochs.last_plan = self._restoring[state.committed_plan.document]
            self._documents.append((state.committed, state.committed_plan.document))
            self._committed_positions = epochs.last_plan.positions
            found.append(Publish(epochs.last_plan))  # the predecessor may not have come to it
        for pointer in state.open:
            plan = self._restoring[pointer.document]
            epochs.open.append(OpenEpoch(plan, pointer, self._now))
            epochs.last_plan = plan
        last = epochs.last_plan
        if last is not None:
            building = {s.circuit: s.stop for s in last.slices if s.stop < BUCKETS}
            self._catalog = _Catalog(last.catalog, last.catalog_document, last.stages, building)
        else:
            self._slice = BUCKETS  # nothing was ever planned: there is nothing to scan
        self.sources.restore(epochs.positions)
        self.collection.take_over(epochs.committed, (), self._now)
        self.phase = Phase.LEADING
        return found + self._advance()

    def _lost_lead(self, reason: str) -> list[CoordinatorInstruction]:
        found: list[CoordinatorInstruction] = [Note("not leading any more", {"reason": reason})]
        if self._offer is not None:
            unknown = f"this coordinator does not lead any more ({reason}): look whether the change has happened"
            found.append(CatalogTaken(self._offer.offered.ticket, self.epochs.last, unknown))
        self._reset()
        self.phase = Phase.FOLLOWING
        return found

    # ------------------------------------------------------------------ proposals

    def _advance(self) -> list[CoordinatorInstruction]:
        """Everything that can go on now."""
        if self.phase is not Phase.LEADING:
            return []
        return [*self._propose(), *self._release(), *self._plan(), *self._collect()]

    def _propose(self) -> list[CoordinatorInstruction]:
        """One proposal at a time, with all that is due."""
        old = self.leadership.state
        if self._proposal is not None or old is None or not self.leadership.acting:
            return []
        commits = self.epochs.committable
        commit = commits[-1] if commits else None
        generation = self._next_generation(old, len(self.epochs.open) - len(commits))
        plan, pointer = None, None
        if self._prepared is not None and len(self.epochs.open) - len(commits) < MAX_OPEN:
            plan, pointer = self._prepared
        if commit is None and generation is None and plan is None:
            return []
        remaining = tuple(e.pointer for e in self.epochs.open[len(commits) :])
        state = replace(
            old,
            committed=old.committed if commit is None else commit.plan.epoch,
            committed_plan=old.committed_plan if commit is None else commit.pointer,
            open=remaining if pointer is None else (*remaining, pointer),
            generation=old.generation if generation is None else generation.number,
            protocol=old.protocol if generation is None else generation.protocol,
            stalled=self._stalled(commit is not None),
        )
        epoch = None if commit is None else commit.plan.epoch
        self._proposal = _Proposal(state, epoch, generation, plan, pointer)
        return self._led(self.leadership.propose(state))

    def _stalled(self, commits: bool) -> str:
        return "" if commits or self._failure.times < STALLED_AFTER else self._failure.reason

    def _next_generation(self, old: PoolState, open_epochs: int) -> Generation | None:
        """The members of the next generation, if one is due."""
        current = self.epochs.generation
        wanted = self.membership.change(current, old.protocol)
        present = () if current is None else (*current.servers, *current.distributors)
        if not self._is_active():
            open_epochs = 0  # nobody works on them: there is nothing to wait for
        joins = self.assign.observe(wanted.joining, open_epochs, self._now)
        leaves = self.withdraw.observe(wanted.leaving, present, open_epochs, self._now)
        failed = self._failure.retry_at is not None and self._failure.retry_at <= self._now
        # The last one of a rolling upgrade may be someone without a part in generations: a store, a coordinator.
        speaks = current is not None and wanted.protocol != current.protocol and open_epochs == 0
        if not (self._regenerate or wanted.lost or joins or leaves or failed or speaks or self._is_quiet()):
            return None
        number = Attempt(old.generation + 1)
        return Generation(number, old.term, self.me, number, wanted.servers, wanted.distributors, wanted.protocol)

    def _is_quiet(self) -> bool:
        """Open epochs of which nobody has reported anything for long."""
        flowing = [e for e in self.epochs.open if not e.acknowledged]
        return bool(flowing) and self._is_active() and self._now - self._progress_at > self.options.quiet_ms

    def _is_active(self) -> bool:
        """Whether there are servers and distributors to do anything."""
        generation = self.epochs.generation
        return generation is not None and bool(generation.servers) and bool(generation.distributors)

    def _accepted(self) -> list[CoordinatorInstruction]:
        """The proposal is in the record: act on it."""
        proposal, self._proposal = self._proposal, None
        if proposal is None or self.phase is not Phase.LEADING:
            return []
        found: list[CoordinatorInstruction] = []
        if proposal.commit is not None:
            found += self._committed(proposal.commit)
        if proposal.generation is not None:
            found += self._begin_generation(proposal.generation)
        if proposal.plan is not None and proposal.pointer is not None:
            found += self._planned(proposal.plan, proposal.pointer)
        return found

    def _committed(self, epoch: Epoch) -> list[CoordinatorInstruction]:
        found: list[CoordinatorInstruction] = []
        self._failure = _Failure()
        for done in self.epochs.commit(epoch):
            plan = done.plan
            found.append(Publish(plan))
            found += self._to_all(Committed(plan.epoch, plan.positions))
            took = self._now - done.begun
            found.append(Note("committed", {"epoch": plan.epoch, "rows": plan.rows, "took_ms": took}))
            self.pressure.observe(_finished(done, took))
            self._pace(plan, took)
            self.collection.committed(plan.epoch, self._now)
            self._documents.append((plan.epoch, done.pointer.document))
            self._committed_positions = plan.positions
        found += self._tidy_input()
        old = [name for e, name in self._documents if e < epoch]
        self._documents = [(e, name) for e, name in self._documents if e >= epoch]
        if old:
            found.append(RemoveDocuments(tuple(old)))
        return found

    def _tidy_input(self) -> list[CoordinatorInstruction]:
        """What of INPUT and of its sources is not needed any more. Also after a takeover: the predecessor may not have
        come to it."""
        found: list[CoordinatorInstruction] = []
        chunks = (*collectable(self._committed_positions, self._index), *self.sources.strays())
        if chunks:
            gone = set(chunks)
            self._index = tuple(chunk for chunk in self._index if chunk.id not in gone)
            found.append(RemoveChunks(chunks))
        forgettable = self.sources.forgettable(self._committed_positions)
        if forgettable:
            found.append(ForgetSources(forgettable))
        return found

    def _begin_generation(self, generation: Generation) -> list[CoordinatorInstruction]:
        before = self.epochs.generation
        members = {*generation.servers, *generation.distributors}
        found: list[CoordinatorInstruction] = [
            Forget(member)
            for member in ((*before.servers, *before.distributors) if before is not None else ())
            if member not in members and member not in self._members
        ]
        self._regenerate = False
        self._failure.retry_at = None
        self._progress_at = self._now
        begins = self.epochs.begin_generation(generation)
        self.assign.begun(generation)
        self.withdraw.begun(generation)
        servers = list(generation.servers)
        fields = {"generation": generation.number, "servers": servers, "distributors": list(generation.distributors)}
        found.append(Note("generation", fields))
        if self._is_active():
            for begin in begins:
                found += self._to_all(begin)
        if not begins:
            found += self._to_all(Idle(generation, self.epochs.committed))
        return found

    def _planned(self, plan: EpochPlan, pointer: Pointer) -> list[CoordinatorInstruction]:
        self._prepared = None
        self._progress_at = self._now
        found: list[CoordinatorInstruction] = []
        offer = self._offer
        if offer is not None and plan.catalog == offer.offered.version:
            self._catalog = offer.taken(self._catalog)
            found.append(CatalogTaken(offer.offered.ticket, plan.epoch))
            self._offer = None
        for part in plan.slices:
            self._catalog.building[part.circuit] = part.stop
            if part.stop >= BUCKETS:
                del self._catalog.building[part.circuit]
        found.append(Note("planned", {"epoch": plan.epoch, "rows": plan.rows, "pieces": len(plan.pieces)}))
        self.sources.plan(plan.positions)
        begin = self.epochs.add(plan, pointer, self._now)
        return found + (self._to_all(begin) if self._is_active() else [])

    def _to_all(self, message: Begin | Committed | Idle) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None:
            return []
        return [Send(member, message) for member in (*generation.servers, *generation.distributors)]

    def _release(self) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None or self._proposal is not None:
            return []
        leaving = [member.id for member in self._members.values() if member.leaving]
        return [Send(member, Released(member)) for member in self.withdraw.releasable(leaving, generation)]

    # ------------------------------------------------------------------ planning

    def _plan(self) -> list[CoordinatorInstruction]:
        holding = self.assign.holds or self.withdraw.holds
        busy = self._planning or self._prepared is not None
        open_epochs = len(self.epochs.open) - len(self.epochs.committable)
        if busy or holding or not self._is_active() or open_epochs >= MAX_OPEN or self._now < self._plan_at:
            return []
        if self._offer is not None and not self._offer.durable:
            return []
        if self._failure.times:
            return []  # first get through what there is
        self._planning = True
        return self._ask(ReadInput, self._input_read)

    def _input_read(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, InputRead)
        self._planning = False
        self._plan_at = self._now + self.options.epoch_ms
        self._index = tuple(event.chunks)
        found: list[CoordinatorInstruction] = [
            Note("contradiction", {"source": told.source, "reason": told.reason})
            for told in self.sources.observe(self._index, event.sources)
        ]
        found += self._tidy_input()
        bounds = self.pressure.take(self._index, self.sources.planned, self.sources.bounds())
        pieces = self.sources.choose(bounds)
        offered = self._offer is not None and self._offer.durable
        if not pieces and not self._catalog.building and not offered:
            return found
        plan = self._make(pieces, self.sources.positions_after(bounds))
        data = wire.encode(plan)
        pointer = Pointer(plan.epoch, f"plan/{plan.epoch:020d}-{self._term}", wire.digest(data))

        def written(_: Answer) -> list[CoordinatorInstruction]:
            self._planning = False
            self._prepared = (plan, pointer)
            return []

        self._planning = True
        return found + self._ask(lambda request: WriteDocument(request, pointer.document, data), written)

    def _make(self, pieces: tuple[Piece, ...], positions: dict[SourceId, Seq]) -> EpochPlan:
        catalog = self._catalog if self._offer is None or not self._offer.durable else self._offer.taken(self._catalog)
        used = {piece.chunk for piece in pieces}
        chunks = [chunk for chunk in self._index if chunk.id in used]
        return EpochPlan(
            epoch=name_of(self._now, self.epochs.last),
            pieces=pieces,
            positions=positions,
            catalog=catalog.version,
            catalog_document=catalog.document,
            stages=catalog.stages,
            slices=tuple(Slice(c, at, min(BUCKETS, at + self._slice)) for c, at in sorted(catalog.building.items())),
            engine=self.options.engine,
            oldest=min((chunk.at for chunk in chunks), default=0),
            rows=sum(chunk.rows for chunk in chunks),
            size=sum(chunk.size for chunk in chunks),
        )

    def _offered(self, event: CatalogOffered) -> list[CoordinatorInstruction]:
        refused = ""
        if self.phase is not Phase.LEADING:
            refused = "this coordinator does not lead"
        elif self._offer is not None:
            refused = "another change of the catalog is under way"
        elif event.version != self._catalog.version + 1:
            refused = f"the catalog is at version {self._catalog.version}, this one would be {event.version}"
        if refused:
            return [CatalogTaken(event.ticket, self.epochs.last, refused)]
        offer = self._offer = _Offer(event, f"catalog/{event.version:010d}-{self._term}")

        def written(_: Answer) -> list[CoordinatorInstruction]:
            offer.durable = True
            self._plan_at = self._now
            return []

        return self._ask(lambda request: WriteDocument(request, offer.document, event.document), written)

    def _pace(self, plan: EpochPlan, took: int) -> None:
        """Slices of builds grow while epochs are quick, and shrink when they are slow because of them: smaller ones do
        not help where epochs are slow without any."""
        if not plan.slices:
            self._plain_ms = (3 * self._plain_ms + took) // 4 if self._plain_ms else took
        elif took <= max(self.options.target_ms, 2 * self._plain_ms):
            self._slice = min(BUCKETS, self._slice * 2)
        else:
            self._slice = max(SMALLEST_SLICE, self._slice // 2)

    # ------------------------------------------------------------------ what members say

    def _heard(self, message: object) -> list[CoordinatorInstruction]:
        if self.phase is not Phase.LEADING:
            return []
        match message:
            case Sent(epoch, attempt, member):
                self._progress_at = self._now
                try:
                    return [Send(to, expect) for to, expect in self.epochs.sent(message)]
                except Contradiction as error:
                    return self._failed(Failed(epoch, attempt, member, str(error)))
            case Done(epoch, attempt, member):
                self._progress_at = self._now
                try:
                    self.epochs.done(message)
                except Contradiction as error:
                    return self._failed(Failed(epoch, attempt, member, str(error)))
            case Failed():
                return self._failed(message)
        return []

    def _failed(self, message: Failed) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None or message.attempt != generation.number or self._failure.retry_at is not None:
            return []
        where = f"view {message.view}: " if message.view else ""
        reason = f"{where}{message.reason}"
        failure = self._failure
        failure.times = failure.times + 1 if reason == failure.reason else 1
        failure.reason = reason
        failure.retry_at = self._now + min(5000, 50 * 2 ** min(failure.times, 10))
        fields = {"epoch": message.epoch, "member": message.member, "reason": reason, "times": failure.times}
        return [Note("attempt failed", fields)]

    def _unreachable(self, member: MemberId, reason: str) -> list[CoordinatorInstruction]:
        """Do not wait until its session ends: go on without it at once."""
        generation = self.epochs.generation
        if generation is None or member not in (*generation.servers, *generation.distributors):
            return []
        self.membership.failed(member, reason, self._now)
        self._regenerate = True
        return [Note("member unreachable", {"member": member, "reason": reason})]

    # ------------------------------------------------------------------ collection

    def _collect(self) -> list[CoordinatorInstruction]:
        """A round of collection: list pins, raise the horizon, list pins again, collect (see `pins`)."""
        if self._now < self._collect_at:
            return []
        self._collect_at = self._now + max(self.options.collect_ms, COLLECT_PATIENCE * RETRY_MS)
        self._round += 1
        return self._ask(_listing, self._of_round(self._raise_horizon))

    def _of_round(self, then: Then) -> Then:
        """What comes for a round that was given up is too old: pins were listed before the horizon was raised."""
        round = self._round
        return lambda event: then(event) if round == self._round else []

    def _raise_horizon(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        pins, horizons = _split(event.names)
        self.collection.take_over(self.epochs.committed, horizons, self._now)
        document = self.collection.choose(pins, self._now)
        if document is None:
            return self._horizon_raised()
        raised = self._of_round(lambda _: self._horizon_raised())
        return self._ask(lambda request: WriteDocument(request, document, b""), raised)

    def _horizon_raised(self) -> list[CoordinatorInstruction]:
        self.collection.raised()
        return self._ask(_listing, self._of_round(self._pins_listed))

    def _pins_listed(self, event: Answer) -> list[CoordinatorInstruction]:
        assert isinstance(event, DocumentsListed)
        found = self.collection.collect(*_split(event.names), self._now)
        self._collect_at = self._now + self.options.collect_ms
        instructions: list[CoordinatorInstruction] = [Collect(found.horizon, found.tombstones)]
        if found.documents:
            instructions.append(RemoveDocuments(found.documents))
        return instructions


def _listing(request: int) -> CoordinatorInstruction:
    return ListDocuments(request, (PINS, HORIZONS))


def _split(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Pins and horizons."""
    names = list(names)
    return [n for n in names if n.startswith(PINS)], [n for n in names if n.startswith(HORIZONS)]


def _finished(epoch: OpenEpoch, took: int) -> Finished:
    """What an epoch cost, for back-pressure."""

    def total(figure: str) -> int:
        return int(sum(figures.get(figure, 0) for figures in epoch.figures.values()))

    plan = epoch.plan
    waited = max(0, epoch.begun - plan.oldest) if plan.oldest else 0
    return Finished(
        rows=plan.rows,
        bytes=plan.size,
        moved_rows=epoch.flowed,
        moved_bytes=total("moved_bytes"),
        spilled_bytes=total("spilled_bytes"),
        duration=took,
        waited=waited,
        building=bool(plan.slices),
    )


def _reading(name: str) -> Make:
    return lambda request: ReadDocument(request, name)
