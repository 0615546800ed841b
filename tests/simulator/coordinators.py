"""The simulated coordinator process: `Coordinator` between the simulated ZooKeeper and the simulated store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from belvedere.backend.memory import MemoryStore
from belvedere.backend.seam import Store
from belvedere.cluster.catalog import aside
from belvedere.cluster.catalog.ddl import amended_catalogs
from belvedere.cluster.coordination.clock import Clock
from belvedere.cluster.roles import store_owner
from belvedere.cluster.roles.coordinator import WAITING_MS
from belvedere.cluster.roles.failure_detector import GoneProcesses
from belvedere.cluster.roles.gc_input import InputGc
from belvedere.cluster.roles.gc_tables import TableGc
from belvedere.cluster.roles.input_listing import Listing
from belvedere.cluster.roles.publishing import Unpublished
from belvedere.cluster.transport import calls
from belvedere.errors import BelvedereError, Incompatible
from belvedere.protocol.coordinator import Coordinator, CoordinatorPhase, Options
from belvedere.protocol.driving import (
    AmendCatalogs,
    CatalogOffered,
    CatalogTaken,
    Collect,
    Create,
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
    Published,
    ReadDocument,
    ReadInput,
    ReadRecord,
    Received,
    RecordRead,
    RemoveChunks,
    RemoveDocuments,
    RepairOffered,
    RepairTaken,
    Resign,
    SessionChanged,
    StoreFailed,
    Swap,
    Swapped,
    Tick,
    Unreachable,
    WriteDocument,
)
from belvedere.protocol.messages import Epoch, EpochPlan, Member, PoolState, Role
from belvedere.protocol.ring import MemberId
from tests.simulator.conduct import check_failure_detector, check_releases
from tests.simulator.process import ADDRESS, CLUSTER, Process, Surroundings
from tests.simulator.scheduler import MS, SECOND, Action
from tests.simulator.zookeeper import Record

TICK = 50 * MS
REFUSED = "refused to lead: ZooKeeper has lost what it acknowledged"
SILENCE = "nothing was heard for so long that another generation began"
PUBLISH_PAUSE = 100 * MS
LISTED_CHUNKS = 6
"""Of each source, that a plan looks at: so few that there are often more."""
TABLE_GC = 500 * MS
"""The shortest time between two looks at tables that nobody needs."""

OnTaken = Callable[[CatalogTaken], None]
OnPublished = Callable[[EpochPlan], None]


class Nemesis(Protocol):
    """Who waits for the moment of a proposal."""

    def proposing(self, process: Process) -> bool: ...

    def proposed(self, process: Process) -> None: ...


class CoordinatorProcess(Process):
    role = Role.COORDINATOR

    def __init__(
        self,
        around: Surroundings,
        host: str,
        incarnation: int,
        options: Options,
        on_taken: OnTaken,
        on_committed: Action,
        on_published: OnPublished,
        nemesis: Nemesis | None,
        probes: Callable[[MemberId], bool] | None = None,
    ) -> None:
        """`probes`: whether the process of that name is gone, for who looks (`GoneProcesses`); None: nobody looks."""
        super().__init__(around, host, incarnation)
        self.machine = Coordinator(self.name, CLUSTER, options)
        self._unpublished = Unpublished()
        self.committed: EpochPlan | None = None
        """The newest epoch that it knows to be committed."""
        self._table_gc = TableGc(cast(Store, _Tables(self)))
        self._table_gc_at = 0
        scheduler, memory = around.scheduler, around.store.memory
        seconds = self._seconds = lambda: scheduler.now / SECOND
        self._listing = Listing(memory, memory, LISTED_CHUNKS, seconds)
        self._removals = InputGc(memory, seconds)
        self._deaths = GoneProcesses(_Soon(self), lambda member: self.suspect(member), self._is_refused, seconds)
        self._probes = probes
        self.on_collect: Callable[[Epoch], None] = lambda horizon: None
        self.on_repair_taken: Callable[[RepairTaken], None] = lambda taken: None
        self._silences = 0
        self._clock = Clock(
            lambda: (scheduler.clock() + self.skew) / 1_000, lambda: scheduler.now / SECOND, 1.5 * TICK / SECOND
        )
        self._on_taken, self._on_committed, self._on_published = on_taken, on_committed, on_published
        self._nemesis = nemesis

    def start(self) -> None:
        super().start()
        self.around.zookeeper.campaign(self.name)
        self._tick()

    def tell(self, machine: Any, event: Any) -> None:
        if self._clock.overdue():
            self.tell(machine, Tick(self._clock.now()))
        super().tell(machine, event)

    def offer(self, offered: CatalogOffered) -> None:
        self.call(lambda: self.tell(self.machine, offered))

    def offer_repair(self, offered: RepairOffered) -> None:
        self.call(lambda: self.tell(self.machine, offered))

    def suspect(self, member: MemberId) -> None:
        """Somebody's connection was refused, or so it seemed."""
        self.call(lambda: self.tell(self.machine, Unreachable(member, "it does not answer")))

    def _tick(self) -> None:
        if not self.alive:
            return
        if not self.paused:
            now = self._clock.now()
            if self._clock.lost:  # it was set back too far: begin anew
                self._effect("began anew since its clock was set back")
                self.end_session()
                return
            self.tell(self.machine, Tick(now))
            check_failure_detector(self.machine, self.machine.options.quiet_ms)
            self._look_around()
            before, self._silences = self._silences, self.machine.failure_detector.silences
            if self._silences > before:
                self._effect(SILENCE)
        self.around.scheduler.after(TICK, self._tick)

    def _look_around(self) -> None:
        """What the real driver does at each tick."""
        if self._removals.due and self.may_act():
            chunks, documents = self._removals.take()
            self.attempt(lambda: self._removals.remove(chunks, documents))
        if self._probes is not None:
            waiting = self.machine.waits_for(WAITING_MS)
            waited_for = [member for member in self.peers.members() if member.id in waiting] if waiting else []
            self._deaths.look({}, waited_for)

    def _is_refused(self, address: str) -> bool:
        assert self._probes is not None
        refused = self._probes(MemberId(address.removeprefix(ADDRESS)))
        if refused:
            self._effect("found a process gone before its session")
        return refused

    def received(self, event: Received, payload: bytes | None) -> None:
        self.tell(self.machine, event)

    def members_changed(self, members: tuple[Member, ...]) -> None:
        self.tell(self.machine, MembersChanged(members))

    def turn_changed(self, turn: bool) -> None:
        self.tell(self.machine, Elected(turn))

    def connection_changed(self, connected: bool) -> None:
        self.tell(self.machine, SessionChanged(connected))

    # ------------------------------------------------------------------ instructions

    def decided(self, machine: Any, instructions: Sequence[Any]) -> None:
        check_releases(self.machine, instructions)

    def noted(self, note: Note) -> None:
        if note.event == "attempt failed" and " by ring " in str(note.fields["reason"]):
            self._effect("found two rings in one generation")
        if note.event == "member refused" and " speaks protocols " in f" {note.fields['reason']}":
            self._effect("refused a member of another protocol")
        if note.event == "member refused" and ", the pool has engine " in str(note.fields["reason"]):
            self._effect("refused a member of another engine")
        if note.event == "member refused" and " views whose state is in the form of " in str(note.fields["reason"]):
            self._effect("refused a member that cannot read what is still to be rebuilt")
        if note.event == "leading":  # what was read in an earlier term may be old by now
            self._listing = Listing(self.around.store.memory, self.around.store.memory, LISTED_CHUNKS, self._seconds)

    def carry_out(self, instruction: Any) -> None:
        zookeeper, memory = self.around.zookeeper, self.around.store.memory
        match instruction:
            case ReadRecord(request):
                self._read_record(request)
            case Create() | Swap() if self._nemesis is not None and self._nemesis.proposing(self):
                self._todo.appendleft(instruction)
            case Create(request, state):
                self._swap(request, state, -1)
            case Swap(request, state, version):
                self._swap(request, state, version)
            case WriteDocument(request, name, data):
                self._ask(request, lambda: memory.put_document(name, data), lambda _: DocumentWritten(request))
            case ReadDocument(request, name):
                self._ask(request, lambda: self._read(name), lambda data: DocumentRead(request, data))
            case AmendCatalogs(request):
                self._ask(request, lambda: amended_catalogs(memory, instruction), lambda amended: amended)
            case ReadInput(request):
                self._ask(
                    request,
                    lambda: (*self._listing.read(), False, aside.computed(memory.list_documents(aside.BUILDS))),
                    lambda found: InputRead(request, *found),
                )
            case ListDocuments(request, prefixes):
                self._ask(request, lambda: _names(memory, prefixes), lambda names: DocumentsListed(request, names))
            case Publish(plan):
                self.committed = plan
                self._on_committed()
                if self._unpublished.add(plan):
                    self._publish_next()
            case RemoveChunks(chunks):
                self._removals.add(chunks=chunks)
            case ForgetSources(sources):
                # Whoever does not find a source takes it for committed: readers must know of that first.
                if not self._unpublished.waiting:
                    self.attempt(lambda: memory.forget_sources(sources))
            case RemoveDocuments(names):
                self._removals.add(documents=names)
            case Collect(horizon, tombstones):
                self.on_collect(horizon)
                self.attempt(lambda: memory.collect(horizon, tombstones))
                self._drop_tables(horizon)
            case Forget(member):
                self.peers.forget(member)
            case Resign(reason):
                if reason.startswith(("the clock of", "time went on by")):
                    self._effect("stood back since its clock is off")
                zookeeper.resign(self.name)
                self.around.scheduler.after(200 * MS, lambda: self.call(lambda: zookeeper.campaign(self.name)))
            case CatalogTaken():
                self._on_taken(instruction)
            case RepairTaken():
                self.on_repair_taken(instruction)
            case _:
                raise AssertionError(f"a coordinator cannot {instruction}")

    def _read_record(self, request: int) -> None:
        """As the real driver does: a candidate first looks what the store has published."""
        taking_over = self.machine.phase is CoordinatorPhase.FOLLOWING
        try:
            with self.around.store.reading():
                published = calls.read_committed(self.around.store.memory, calls.NEWEST) if taking_over else None
        except BelvedereError:
            event = RecordRead(request, None, failed=True)
            self.around.scheduler.after(1 * MS, lambda: self.call(lambda: self.tell(self.machine, event)))
            return

        def read(found: Record | None) -> None:
            if published is not None and found is not None and found.state is not None:
                try:
                    store_owner.check_committed(CLUSTER, published.epoch, found.state.committed)
                except Incompatible:
                    self._effect(REFUSED)
                    self.around.gone(self, True)
                    self._end("gives up for good")
                    self.around.zookeeper.leave(self.name)
                    return
            self._record_read(request, found)

        self.around.zookeeper.read(self.name, lambda found: self.call(lambda: read(found)), synced=taking_over)

    def _record_read(self, request: int, found: Record | None) -> None:
        if found is None:
            event = RecordRead(request, None, failed=True)
        else:
            event = RecordRead(request, found.state, found.version, found.clock)
        self.call(lambda: self.tell(self.machine, event))

    def _swap(self, request: int, state: PoolState, version: int) -> None:
        def answer(outcome: str, found: Record) -> None:
            done = found if outcome == "done" else Record()
            event = Swapped(request, outcome, done.version, done.clock)
            self.call(lambda: self.tell(self.machine, event))

        self.around.zookeeper.swap(self.name, state, version, answer)
        if self._nemesis is not None:
            self._nemesis.proposed(self)

    def _ask(self, request: int, call: Callable[[], Any], event: Callable[[Any], Any]) -> None:
        def answer(found: Any) -> None:
            self.call(lambda: self.tell(self.machine, event(found)))

        def failed(reason: str) -> None:
            self.call(lambda: self.tell(self.machine, StoreFailed(request, reason)))

        self.around.store.ask(call, answer, failed)

    def _read(self, name: str) -> bytes | None:
        data = self.around.store.memory.get_document(name)
        return None if data is None else self.around.store.damage(data)

    def _publish_next(self) -> None:
        """One after the other, as long as there is something."""
        plan = self._unpublished.next()
        if plan is None:
            return

        def published() -> None:
            self.tell(self.machine, Published(plan.epoch))
            self._publish_next()

        def failed(_: str) -> None:
            self._unpublished.failed()
            self.around.scheduler.after(PUBLISH_PAUSE, lambda: self.call(self._publish_next))

        self.around.store.ask(
            lambda: self._on_published(plan),
            lambda _: self.call(published),
            lambda reason: self.call(lambda: failed(reason)),
        )

    def _drop_tables(self, horizon: Epoch) -> None:
        """What nobody needs, now and then. Until the tables are dropped much may happen."""
        plan, now = self.committed, self.around.scheduler.now
        if plan is None or not plan.catalog or now < self._table_gc_at:
            return
        self._table_gc_at = now + TABLE_GC
        document = self.around.store.memory.get_document(plan.catalog_document)
        if document is not None:
            self._table_gc.drop(document, plan.epoch, horizon)

    def attempt(self, call: Callable[[], None]) -> None:
        """Best effort."""
        self.around.store.ask(call, lambda _: None, lambda _: None)


class _Soon:
    """A worker whose calls take no time of the loop."""

    def __init__(self, process: CoordinatorProcess) -> None:
        self._process, self._waiting = process, 0

    def do(self, call: Action) -> None:
        def done() -> None:
            self._waiting -= 1
            self._process.call(call)

        self._waiting += 1
        around = self._process.around
        around.scheduler.after(around.network.delay(), done)

    def waiting(self) -> int:
        return self._waiting


class _Tables:
    """The store, as far as its gc knows it."""

    def __init__(self, process: CoordinatorProcess) -> None:
        self._process = process

    def tables(self) -> list[str]:
        return self._process.around.store.memory.tables()

    def drop_tables(self, tables: Sequence[str]) -> None:
        around = self._process.around
        around.trace.effect(around.scheduler.now, self._process.name, "tables dropped")
        self._process.attempt(lambda: around.store.memory.drop_tables(tables))


def _names(memory: MemoryStore, prefixes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for prefix in prefixes for name in memory.list_documents(prefix))
