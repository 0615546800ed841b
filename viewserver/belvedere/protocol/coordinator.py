"""The coordinator: leads a pool. Puts the smaller machines together and decides what goes into the record next.

    FOLLOWING ──the record is ours (Leadership)──▶ RESTORING ──plans read, digests checked──▶ LEADING
        ▲                                                                                   │
        └───────── another term, a clock that is off, a session that may have ended ────────┘

While LEADING it makes one proposal at a time for the record, each with all that is due:

    commit      epochs that every server has acknowledged                   (`epoch`)
    generation  someone is lost or failed: at once; someone joins or        (`membership`, `assign`, `withdraw`)
                leaves: when no epoch is open
    amendment   plans without views that cannot be computed                 (`amending`)
    plan        the next epoch, once its document is durable                (`sources`, `pressure`)

Why it is safe:

1. What a proposal says takes effect when it is in the record, never before: then members are told. So whatever a
   successor finds in the record is at least what anybody was told, and everything else follows from it.
2. Nothing but the record and the documents it points to is carried from leader to leader, and they are durable before
   the record names them. A new leader begins a new generation, in which the open epochs are done again, so it need not
   know how far they were.
3. A proposal replaces the version of the record that this leader knows (`Leadership`): of two who believe to lead, one
   gets nothing in, and what it sends carries a generation that members have left behind.
4. An epoch is committed when all of its generation have acknowledged it in that generation, and epochs are committed in
   their order, so a committed epoch has all of those before it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import replace

from belvedere.errors import Contradiction, Damaged
from belvedere.protocol import wire
from belvedere.protocol.amending import Amendments
from belvedere.protocol.assign import Assign
from belvedere.protocol.catalog import CatalogBook, Offer
from belvedere.protocol.driving import (
    CatalogOffered,
    CatalogsAmended,
    CatalogTaken,
    CoordinatorEvent,
    CoordinatorInstruction,
    DocumentRead,
    DocumentsListed,
    DocumentWritten,
    Elected,
    Forget,
    ForgetSources,
    InputRead,
    MembersChanged,
    Note,
    Publish,
    Published,
    ReadInput,
    Received,
    RecordRead,
    RemoveChunks,
    RemoveDocuments,
    RepairOffered,
    RepairTaken,
    Send,
    SessionChanged,
    StoreFailed,
    Swapped,
    Tick,
    Unreachable,
    WriteDocument,
)
from belvedere.protocol.epoch import MAX_OPEN, Amendment, EpochBook, OpenEpoch, Proposal, messages_of, name_of
from belvedere.protocol.exactly_once import Chunk, Seq, SourceId, collectable
from belvedere.protocol.failure_detector import FailureDetector, shortened
from belvedere.protocol.gc import Rounds
from belvedere.protocol.gc_documents import DocumentGc, catalog_document, plan_document
from belvedere.protocol.leadership import (
    Accepted,
    Leadership,
    LeadershipEvent,
    LeadershipInstruction,
    Leads,
    Stops,
)
from belvedere.protocol.membership import Membership
from belvedere.protocol.messages import (
    AMENDING,
    CLOCK_OFF_MS,
    REPAIRING,
    Attempt,
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
)
from belvedere.protocol.naming import Naming
from belvedere.protocol.options import Options as Options
from belvedere.protocol.pins import Collection
from belvedere.protocol.pressure import Pressure
from belvedere.protocol.repairing import RepairBook
from belvedere.protocol.restoring import Plans, read_plans
from belvedere.protocol.ring import MemberId
from belvedere.protocol.sources import SourceBook
from belvedere.protocol.store_requests import Answer, Asking
from belvedere.protocol.withdraw import Withdraw

STALLED = "nothing can be changed while the pool is stalled"


class CoordinatorPhase(enum.Enum):
    FOLLOWING = "following"
    RESTORING = "restoring"
    LEADING = "leading"


class Coordinator:
    """A candidate; at most one of a pool's coordinators gets anything into the record at a time."""

    def __init__(self, me: MemberId, cluster: str, options: Options | None = None) -> None:
        self.me, self.cluster = me, cluster
        self.options = options or Options()
        self.phase = CoordinatorPhase.FOLLOWING
        self.epochs = EpochBook()
        self.membership = Membership(cluster, settle_ms=self.options.settle_ms)
        self.leadership = Leadership(me, cluster)
        self.assign, self.withdraw = Assign(), Withdraw()
        self._now = 0
        self._asking = Asking()
        self._members: dict[MemberId, Member] = {}
        self._leaving: tuple[MemberId, ...] = ()
        self._reset()

    def _reset(self) -> None:
        """Forget all that belongs to a term."""
        options = self.options
        self.epochs = EpochBook()
        self.assign, self.withdraw = Assign(), Withdraw()
        self.sources = SourceBook()
        self.pressure = Pressure(options.max_rows, options.max_bytes, options.memory, target_ms=options.target_ms)
        self.collection = Collection(options.retention_ms, options.late_writer_ms)
        self._document_gc = DocumentGc()
        self._rounds = Rounds(self.collection, self._asking, options.collect_ms, self._unneeded)
        self._catalog = CatalogBook(options.target_ms)
        self._naming = Naming()
        self._asking.forget()
        self._planning = False
        self._prepared: tuple[EpochPlan, Pointer] | None = None
        self._amendments = Amendments(self._asking)
        self._repairs = RepairBook(self._asking)
        self._proposal: Proposal | None = None
        self._regenerate = True
        self._nobody = ""  # why nobody can work, though members are there
        self._next_engine = 0  # that the pool goes on to as soon as no epoch is open; 0: it has it
        self._plan_at = 0
        self.failure_detector = FailureDetector(options.quiet_ms, self._now)
        self._notes: list[Note] = []
        self._index: tuple[Chunk, ...] = ()
        self._committed_positions: Mapping[SourceId, Seq] = {}

    # ------------------------------------------------------------------ events

    def handle(self, event: CoordinatorEvent) -> list[CoordinatorInstruction]:
        match event:
            case Tick(now):
                jump, self._now = now - self._now, max(self._now, now)
                self.membership.tick(self._now)
                found = self._lead(event)
                if self.phase is CoordinatorPhase.LEADING and jump > CLOCK_OFF_MS:
                    # Set, or asleep: what an epoch is called cannot be taken back, so ask ZooKeeper's clock first.
                    reason = f"time went on by {jump} ms at once: the clock is compared before anything is planned"
                    found += self._led(self.leadership.stand_back(reason))
                return [*found, *self._asking.retry(self._now), *self._advance()]
            case MembersChanged(members):
                self._members = {member.id: member for member in members}
                self._leaving = tuple(member.id for member in members if member.leaving)
                return [*self.membership.listed(members, self._now), *self._advance()]
            case Unreachable(member, reason):
                return [*self._unreachable(member, reason), *self._advance()]
            case Elected() | SessionChanged() | RecordRead() | Swapped():
                return [*self._lead(event), *self._advance()]
            case Received(_, message):
                return [*self._heard(message), *self._advance()]
            case DocumentWritten() | DocumentRead() | DocumentsListed() | InputRead() | CatalogsAmended():
                return [*self._asking.answered(event), *self._advance()]
            case StoreFailed(request, reason):
                return self._asking.failed(request, reason, self._now)
            case Published(epoch):
                self._naming.published(epoch)
                return self._advance()
            case CatalogOffered():
                return [*self._offered(event), *self._advance()]
            case RepairOffered():
                return [*self._repair_offered(event), *self._advance()]

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
        """Version and document of the newest catalog that a plan names, and its view groups that are being built."""
        current = self._catalog.current
        return current.version, current.document, tuple(current.building)

    @property
    def built(self) -> dict[int, int]:
        """How many buckets are built, of each view group that is not complete."""
        return dict(self._catalog.current.building)

    @property
    def repairs_waiting(self) -> frozenset[str]:
        """Documents of repairs that are in no plan yet."""
        return self._repairs.documents

    @property
    def awaited(self) -> dict[int, Epoch]:
        """View groups whose state somebody else computes, with the epoch of their leaves (NEVER: not yet)."""
        return self._catalog.current.awaited

    @property
    def _held(self) -> Epoch | None:
        """Until this epoch and all before it can be given up, builds read as of it. An open epoch may be done again."""
        open_slices = (part.since for opened in self.epochs.open for part in opened.plan.slices)
        known = [epoch for epoch in (self._catalog.current.held, *open_slices) if epoch]
        return min(known, default=None)

    @property
    def engine(self) -> int:
        """That of the pool; 0: it never had members that compute."""
        return 0 if self.leadership.state is None else self.leadership.state.engine

    @property
    def _made(self) -> frozenset[int]:
        """The engines under which view groups were made that are in the newest plan, or in one that may be repeated."""
        return frozenset(self._catalog.current.made).union(*(opened.plan.made for opened in self.epochs.open))

    def waits_for(self, longer_than: int) -> tuple[MemberId, ...]:
        """Whom the oldest open epoch waits for, if it has done so for that many milliseconds."""
        silence = self.failure_detector.silence(self._now)
        waiting = self.epochs.waiting_for() if self.phase is CoordinatorPhase.LEADING else None
        return () if waiting is None or silence < longer_than else waiting.members

    @property
    def _term(self) -> int:
        assert self.leadership.state is not None
        return self.leadership.state.term

    def _took_over(self, state: PoolState) -> list[CoordinatorInstruction]:
        self._reset()
        self._amendments = Amendments(self._asking, state.term)
        self.phase = CoordinatorPhase.RESTORING
        pointers = [*state.open] if state.committed_plan is None else [state.committed_plan, *state.open]
        leading = Note("leading", {"term": state.term, "committed": state.committed})
        read = read_plans(
            self._asking,
            pointers,
            lambda plans: self._restored(state, plans),
            lambda reason: self._led(self.leadership.stand_back(reason)),
        )
        return [leading, *read]

    def _restored(self, state: PoolState, plans: Plans) -> list[CoordinatorInstruction]:
        """All that a predecessor left is known: go on from there."""
        epochs = self.epochs
        epochs.committed = state.committed
        found: list[CoordinatorInstruction] = []
        if state.committed_plan is not None:
            epochs.last_plan = plans[state.committed_plan.document]
            self._document_gc.committed(epochs.last_plan, state.committed_plan.document)
            self._committed_positions = epochs.last_plan.positions
            self._naming.restore(epochs.last_plan)
            found.append(Publish(epochs.last_plan))  # the predecessor may not have come to it
        for pointer in state.open:
            plan = plans[pointer.document]
            epochs.open.append(OpenEpoch(plan, pointer, self._now))
            epochs.last_plan = plan
        self._catalog.restore(epochs.last_plan)
        self.sources.restore(epochs.positions)
        self.collection.take_over(epochs.committed, (), self._now)
        self.phase = CoordinatorPhase.LEADING
        return found + self._advance()

    def _lost_lead(self, reason: str) -> list[CoordinatorInstruction]:
        found: list[CoordinatorInstruction] = [Note("not leading any more", {"reason": reason})]
        if self._catalog.offer is not None:
            unknown = f"this coordinator does not lead any more ({reason}): look whether the change has happened"
            found.append(CatalogTaken(self._catalog.offer.offered.ticket, self.epochs.last, unknown))
        found += self._repairs.lost_lead(self.epochs.last, reason)
        self._reset()
        self.phase = CoordinatorPhase.FOLLOWING
        return found

    # ------------------------------------------------------------------ proposals

    def _advance(self) -> list[CoordinatorInstruction]:
        """Everything that can go on now."""
        if self.phase is not CoordinatorPhase.LEADING:
            return []
        self.collection.held = self._held
        collect = self._rounds.advance(self.epochs.committed, self._term, self._now)
        found = [*self._amend(), *self._propose(), *self._release(), *self._plan(), *collect]
        notes, self._notes = self._notes, []
        return [*notes, *found]

    def _propose(self) -> list[CoordinatorInstruction]:
        """One proposal at a time, with all that is due."""
        old = self.leadership.state
        if self._proposal is not None or old is None or not self.leadership.acting:
            return []
        commits = self._naming.may_commit(self.epochs.committable)
        commit = commits[-1] if commits else None
        amendment = self._amendments.ready
        if commit is not None and amendment is not None and amendment.epoch <= commit.plan.epoch:
            amendment = None  # it got through after all
        generation = self._next_generation(old, len(self.epochs.open) - len(commits), amendment)
        plan, pointer = None, None
        amending = self._amendments.current is not None
        if self._prepared is not None and not amending and len(self.epochs.open) - len(commits) < MAX_OPEN:
            plan, pointer = self._prepared
        says = self._nobody not in ("", old.stalled)
        if commit is None and generation is None and plan is None and not says:
            return []
        open_epochs = self.epochs.open[len(commits) :]
        remaining = tuple(e.pointer if amendment is None else amendment.pointer(e) for e in open_epochs)
        state = replace(
            old,
            committed=old.committed if commit is None else commit.plan.epoch,
            committed_plan=old.committed_plan if commit is None else commit.pointer,
            open=remaining if pointer is None else (*remaining, pointer),
            generation=old.generation if generation is None else generation.number,
            protocol=old.protocol if generation is None else generation.protocol,
            engine=old.engine if generation is None else generation.engine,
            stalled="" if commit is not None or amending else self.failure_detector.stalled or self._nobody,
        )
        epoch = None if commit is None else commit.plan.epoch
        self._proposal = Proposal(state, epoch, generation, plan, pointer, amendment)
        return self._led(self.leadership.propose(state))

    def _next_generation(self, old: PoolState, open_epochs: int, amendment: Amendment | None) -> Generation | None:
        """The members of the next generation, if one is due."""
        current = self.epochs.generation
        quiet = self.failure_detector.leave_out_silent(self.epochs, self.membership, self._now)
        present_engine = old.engine or (self.epochs.last_plan.engine if self.epochs.last_plan is not None else 0)
        wanted = self.membership.change(current, old.protocol, present_engine, self._made)
        self._notes += wanted.notes
        self._nobody = self.membership.nobody_has(present_engine) if not wanted.servers else ""
        # Plans name the engine that they are for: it changes when there is none, open or about to be.
        self._next_engine = wanted.engine if present_engine not in (0, wanted.engine) else 0
        planned = self._planning or self._prepared is not None or self._amendments.current is not None
        engine = wanted.engine if open_epochs == 0 and not planned else present_engine or wanted.engine
        if not self.epochs.staffed:
            open_epochs = 0  # nobody works on them: there is nothing to wait for
        joins = self.assign.observe(wanted.joining, open_epochs, self._now, patient=self.failure_detector.silences > 0)
        present = (*current.servers, *current.distributors) if wanted.leaving and current is not None else ()
        leaves = self.withdraw.observe(wanted.leaving, present, open_epochs, self._now)
        # While plans are amended nothing is tried again: it would fail again.
        failed = self.failure_detector.retry_is_due(self._now) and self._amendments.current is None
        # The last one of a rolling upgrade may be someone without a part in generations: a store, a coordinator.
        speaks = current is not None and wanted.protocol != current.protocol and open_epochs == 0
        regenerates = self._regenerate or wanted.lost or joins or leaves or failed or quiet or amendment
        if not (regenerates or speaks or (current is not None and engine != current.engine)):
            return None
        number = Attempt(old.generation + 1)
        members = wanted.servers, wanted.distributors
        return Generation(number, old.term, self.me, number, *members, wanted.protocol, engine)

    def _accepted(self) -> list[CoordinatorInstruction]:
        """The proposal is in the record: act on it."""
        proposal, self._proposal = self._proposal, None
        if proposal is None or self.phase is not CoordinatorPhase.LEADING:
            return []
        found: list[CoordinatorInstruction] = []
        if proposal.commit is not None:
            found += self._committed(proposal.commit)
        if proposal.amendment is not None:
            found += self._amended(proposal.amendment)
        if proposal.generation is not None:
            found += self._begin_generation(proposal.generation)
        if proposal.plan is not None and proposal.pointer is not None:
            found += self._planned(proposal.plan, proposal.pointer)
        return found

    def _committed(self, epoch: Epoch) -> list[CoordinatorInstruction]:
        found: list[CoordinatorInstruction] = []
        self.failure_detector.committed()
        self._amendments.committed(epoch)
        for done in self.epochs.commit(epoch):
            plan = done.plan
            found.append(Publish(plan))
            found += self._to_all(Committed(plan.epoch))
            took = self._now - done.begun
            found.append(Note("committed", {"epoch": plan.epoch, "rows": plan.rows, "took_ms": took}))
            if plan.repair is not None:
                found.append(Note("repaired", {"epoch": plan.epoch, **done.repaired()}))
            self.pressure.observe(done.finished(took))
            self._catalog.observe(plan, took)
            self.collection.committed(plan.epoch, self._now)
            self._document_gc.committed(plan, done.pointer.document)
            self._naming.committed(plan)
            self._committed_positions = plan.positions
        found += self._collect_input()
        old = self._document_gc.superseded(epoch)
        return [*found, RemoveDocuments(old)] if old else found

    def _amended(self, amendment: Amendment) -> list[CoordinatorInstruction]:
        """The record points to plans without the views that failed; what was to follow the old ones is given up."""
        self._amendments.accepted()
        for plan, pointer in amendment.plans:
            self.epochs.amend(plan, pointer)
        self._catalog.restore(self.epochs.last_plan)
        self._prepared = None
        self.failure_detector.amended()
        found: list[CoordinatorInstruction] = [
            Note("view failed", {"view": view.name, "epoch": amendment.epoch, "reason": reason})
            for view, reason in amendment.views
        ]
        if self._catalog.offer is not None:
            ticket, self._catalog.offer = self._catalog.offer.offered.ticket, None
            found.append(
                CatalogTaken(ticket, self.epochs.last, "views have failed meanwhile, which changes the catalog")
            )
        return found

    def _unneeded(self, documents: Iterable[str], horizon: Epoch) -> tuple[str, ...]:
        assert self.leadership.state is not None
        self._repairs.collected(horizon)
        repairs = {opened.plan.repair.document for opened in self.epochs.open if opened.plan.repair is not None}
        wanted = repairs | self._repairs.documents
        newest = self._catalog.current.version
        return self._document_gc.unneeded(documents, self.leadership.state, newest, horizon, wanted)

    def _collect_input(self) -> list[CoordinatorInstruction]:
        """What of INPUT and of its sources is not needed any more. Also after a takeover: the predecessor may not have
        come to it."""
        chunks = (*collectable(self._committed_positions, self._index), *self.sources.strays())
        gone = set(chunks)
        self._index = tuple(chunk for chunk in self._index if chunk.id not in gone)
        sources = self.sources.forgettable(self._committed_positions)
        return [*([RemoveChunks(chunks)] if chunks else []), *([ForgetSources(sources)] if sources else [])]

    def _begin_generation(self, generation: Generation) -> list[CoordinatorInstruction]:
        before = self.epochs.generation
        members = {*generation.servers, *generation.distributors}
        found: list[CoordinatorInstruction] = [
            Forget(member)
            for member in ((*before.servers, *before.distributors) if before is not None else ())
            if member not in members and member not in self._members
        ]
        self._regenerate = False
        self.failure_detector.begun(self._now)
        begins = self.epochs.begin_generation(generation)
        self.assign.begun(generation)
        self.withdraw.begun(generation)
        self.pressure.spread_over(len(generation.servers))
        servers = list(generation.servers)
        fields = {"generation": generation.number, "servers": servers, "distributors": list(generation.distributors)}
        found.append(Note("generation", fields))
        if self.epochs.staffed:
            for begin in begins:
                found += messages_of(begin)
        if not begins:
            found += self._to_all(Idle(generation, self.epochs.committed))
        # Those that are there and have no part in it may still be at work in an older one.
        left_out = self.membership.onlookers(generation)
        return found + [Send(member, Idle(generation, self.epochs.committed)) for member in left_out]

    def _planned(self, plan: EpochPlan, pointer: Pointer) -> list[CoordinatorInstruction]:
        self._prepared = None
        self.failure_detector.heard(self._now)
        found: list[CoordinatorInstruction] = []
        taken = self._catalog.planned(plan)
        if taken is not None:
            found.append(CatalogTaken(taken.offered.ticket, plan.epoch))
        found += self._repairs.planned(plan)
        found.append(Note("planned", {"epoch": plan.epoch, "rows": plan.rows, "pieces": len(plan.pieces)}))
        self.sources.plan(plan.positions)
        begin = self.epochs.add(plan, pointer, self._now)
        return found + (messages_of(begin) if self.epochs.staffed else [])

    def _to_all(self, message: Committed | Idle) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None:
            return []
        return [Send(member, message) for member in (*generation.servers, *generation.distributors)]

    def _release(self) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None or self._proposal is not None:
            return []
        return [Send(member, Released(member)) for member in self.withdraw.releasable(self._leaving, generation)]

    # ------------------------------------------------------------------ planning

    def _plan(self) -> list[CoordinatorInstruction]:
        holding = self.assign.holds or self.withdraw.holds or self._next_engine
        busy = self._planning or self._prepared is not None
        open_epochs = len(self.epochs.open) - len(self._naming.may_commit(self.epochs.committable))
        if busy or holding or not self.epochs.staffed or open_epochs >= MAX_OPEN or self._now < self._plan_at:
            return []
        amending = self._amendments.current is not None
        if self._catalog.waits or self.failure_detector.failures or amending:  # first get through what there is
            return []
        self._planning = True
        before = self._amendments.count
        return self._asking.ask(ReadInput, lambda event: self._input_read(event, before))

    def _input_read(self, event: Answer, amendments: int) -> list[CoordinatorInstruction]:
        """`amendments`: how many there were when INPUT was asked for; a plan that would follow others is none."""
        assert isinstance(event, InputRead)
        if amendments != self._amendments.count:
            self._planning = False
            return []
        self._planning = False
        self._plan_at = self._now + self.options.epoch_ms
        self._index = tuple(event.chunks)
        found: list[CoordinatorInstruction] = [
            Note("contradiction", {"source": told.source, "reason": told.reason})
            for told in self.sources.observe(
                self._index, event.sources, {fact.id for fact in event.sources if fact.durable_end}
            )
        ]
        self._catalog.heard(event.loading)
        self._catalog.computed(event.computed)
        found += self._collect_input()
        try:
            bounds = self.pressure.take(self._index, self.sources.planned, self.sources.bounds())
            pieces = self.sources.choose(bounds)
        except Damaged as error:
            # Or a successor, of whom this one has not heard yet, has committed and removed what was there before.
            return found + self._led(self.leadership.stand_back(str(error)))
        generation = self.epochs.generation
        assert generation is not None  # none is taken away in a term
        current = self._catalog.current
        found += self._repairs.refuse_outdated(current.version, generation.engine, self.epochs.last)
        if not pieces and not self._catalog.is_due and not self._repairs.is_due(current.building):
            return found
        positions, epoch = self.sources.positions_after(bounds), name_of(self._now, self.epochs.last)
        plan = self._catalog.plan(epoch, pieces, positions, self._index, generation.engine)
        offered = self._repairs.next(plan, current.building) if generation.protocol >= REPAIRING else None
        if offered is not None:
            plan = replace(plan, repair=offered.repair)
        data = wire.encode(plan)
        pointer = Pointer(plan.epoch, plan_document(plan.epoch, self._term, amendments), wire.digest(data))

        def written(_: Answer) -> list[CoordinatorInstruction]:
            self._planning = False
            if amendments == self._amendments.count:
                self._prepared = (plan, pointer)
            return []

        self._planning = True
        return found + self._asking.ask(lambda request: WriteDocument(request, pointer.document, data), written)

    def _offered(self, event: CatalogOffered) -> list[CoordinatorInstruction]:
        if self.phase is not CoordinatorPhase.LEADING:
            refused = "this coordinator does not lead"
        elif self._amendments.current is not None:
            refused = "views have failed, and plans are made without them"
        elif self.failure_detector.stalled:
            refused = f"{STALLED}: {self.failure_detector.stalled}"
        else:
            refused = self._catalog.refusal(event)
        if refused:
            return [CatalogTaken(event.ticket, self.epochs.last, refused)]
        offer = self._catalog.offer = Offer(event, catalog_document(event.version, self._term, event.ticket))
        if event.loads:
            self._catalog.hold()

        def written(_: Answer) -> list[CoordinatorInstruction]:
            offer.durable = True
            self._plan_at = self._now
            return []

        return self._asking.ask(lambda request: WriteDocument(request, offer.document, event.document), written)

    def _repair_offered(self, event: RepairOffered) -> list[CoordinatorInstruction]:
        generation, last = self.epochs.generation, self.epochs.last
        if self.phase is not CoordinatorPhase.LEADING:
            return [RepairTaken(event.ticket, last, "this coordinator does not lead", again=True)]
        if self.failure_detector.stalled:
            refused = f"{STALLED}: {self.failure_detector.stalled}"
        elif generation is not None and generation.protocol < REPAIRING:
            refused = f"the pool speaks protocol {generation.protocol}: upgrade all its members first"
        else:
            return self._repairs.offer(event, last, self.epochs.open)
        return [RepairTaken(event.ticket, last, refused)]

    # ------------------------------------------------------------------ what members say

    def _heard(self, message: object) -> list[CoordinatorInstruction]:
        if self.phase is not CoordinatorPhase.LEADING:
            return []
        match message:
            case Sent(epoch, attempt, member):
                self.failure_detector.heard(self._now)
                self.membership.worked(member)
                try:
                    return [Send(to, expect) for to, expect in self.epochs.sent(message)]
                except Contradiction as error:
                    return self._failed(Failed(epoch, attempt, member, str(error)))
            case Done(epoch, attempt, member):
                self.failure_detector.heard(self._now)
                self.membership.worked(member)
                try:
                    self.epochs.done(message)
                except Contradiction as error:
                    return self._failed(Failed(epoch, attempt, member, str(error)))
            case Failed():
                return self._failed(message)
        return []

    def _failed(self, message: Failed) -> list[CoordinatorInstruction]:
        generation = self.epochs.generation
        if generation is None or message.attempt != generation.number or self.epochs.find(message.epoch) is None:
            return []
        reason = shortened(message.reason)
        if self._amendments.failed(message, reason) and self.membership.can_spare((message.member,)):
            self.membership.failed(message.member, reason, self._now)  # it may be the member, and not the view
        reason = f"view {message.view}: {reason}" if message.view else reason
        if not self.failure_detector.failed(reason, self._now):
            return []
        times = self.failure_detector.failures
        fields = {"epoch": message.epoch, "member": message.member, "reason": reason, "times": times}
        return [Note("attempt failed", fields), *self._amend(), *self._give_up_offer()]

    def _amend(self) -> list[CoordinatorInstruction]:
        """Begin to make plans without views that are to blame. Not while a proposal is on its way: it may commit an
        epoch, or add one."""
        generation = self.epochs.generation
        if generation is None or generation.protocol < AMENDING or self._proposal is not None:
            return []
        return self._amendments.begin(self.epochs, self._catalog.current.version)

    def _give_up_offer(self) -> list[CoordinatorInstruction]:
        """Whoever changes the catalog of a pool that is stalled learns why, and need not wait for it."""
        offer = self._catalog.offer
        busy = self._planning or self._prepared is not None or self._amendments.current is not None
        if offer is None or not self.failure_detector.stalled or busy:
            return []
        self._catalog.offer = None
        return [CatalogTaken(offer.offered.ticket, self.epochs.last, f"{STALLED}: {self.failure_detector.stalled}")]

    def _unreachable(self, member: MemberId, reason: str) -> list[CoordinatorInstruction]:
        """Do not wait until its session ends: go on without it at once."""
        generation = self.epochs.generation
        if generation is None or member not in (*generation.servers, *generation.distributors):
            return []
        self.membership.failed(member, reason, self._now)
        self._regenerate = True
        return [Note("member unreachable", {"member": member, "reason": reason})]
