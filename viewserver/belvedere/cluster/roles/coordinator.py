"""The coordinator: `Coordinator` between ZooKeeper and the store, and what clients ask the leader.

    loop ──ReadRecord, Create, Swap──▶ zookeeper      (one after the other: the machine has one on its way)
         ──documents, pins───────────▶ store
         ──INPUT─────────────────────▶ input          (again and again: less often while nothing comes)
         ──Publish───────────────────▶ publisher      (a later epoch covers an earlier one: `publishing`)
         ──Remove…, Collect──────────▶ chores         (best effort: what fails is repeated by what follows)

Calls of clients come in threads of the transport; whatever they need of the machine is asked in the loop.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from belvedere import errors
from belvedere.backend.opening import TIMEOUT
from belvedere.backend.seam import LoadProgress
from belvedere.cluster.catalog import aside, catalogs
from belvedere.cluster.catalog.ddl import CatalogService, amended_catalogs
from belvedere.cluster.coordination.seam import SessionState
from belvedere.cluster.process.loop import Worker
from belvedere.cluster.process.next_engine import engines_of
from belvedere.cluster.process.process import Incarnation, ProcessEnd, Surroundings
from belvedere.cluster.roles import quarantine_counts, reloads, store_owner
from belvedere.cluster.roles.failure_detector import GoneProcesses
from belvedere.cluster.roles.gc_input import InputGc
from belvedere.cluster.roles.gc_tables import TableGc
from belvedere.cluster.roles.input_listing import Listing, WaitingInput
from belvedere.cluster.roles.overview import MEMBER, Overview
from belvedere.cluster.roles.publishing import Unpublished
from belvedere.cluster.roles.repair_offers import RepairOffers
from belvedere.cluster.roles.view_pointers import ViewPointers
from belvedere.cluster.roles.void_rows import VoidRows
from belvedere.cluster.transport import calls
from belvedere.cluster.transport.seam import Handler, Payload
from belvedere.protocol import coordinator as machines
from belvedere.protocol import wire
from belvedere.protocol.driving import (
    AmendCatalogs,
    CatalogTaken,
    Collect,
    CoordinatorEvent,
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
    RepairTaken,
    Resign,
    Send,
    SessionChanged,
    SourceFact,
    StoreFailed,
    Swap,
    Swapped,
    Tick,
    Unreachable,
    WriteDocument,
)
from belvedere.protocol.exactly_once import Chunk, SourceId
from belvedere.protocol.leadership import Leadership
from belvedere.protocol.membership import Membership
from belvedere.protocol.messages import NEVER, Epoch, EpochPlan, Member, Message, PoolState, Role
from belvedere.protocol.ring import MemberId
from belvedere.retry import Backoff, Retry, Superseded

CAMPAIGN_PAUSE = 0.2
PUBLISH_PAUSE = 0.2
WAITING_MS = 300
"""An epoch that waits for somebody so long makes one look whether it is still there."""
TABLE_GC_SECONDS = 5.0
QUARANTINE_SECONDS = 5.0
"""How often rows in quarantine are counted."""
COMPUTED_SECONDS = 0.25
"""How long an answer to which view groups were computed aside is good for."""
LOADING_SECONDS = 0.25
"""How long an answer to whether rows are being loaded is good for."""
QUIET_SECONDS, QUIET_PAUSE = 2.0, 0.04
"""When nothing has come for a while INPUT is read less often: the first change after it waits a little longer."""


class CoordinatorMember(Incarnation):
    role = Role.COORDINATOR
    tick_seconds = 0.02

    def __init__(self, around: Surroundings) -> None:
        super().__init__(around)
        options = self.options
        self.machine = machines.Coordinator(
            self.me,
            around.cluster,
            machines.Options(
                epoch_ms=options.epoch_ms,
                retention_ms=int(options.retention * 1000),
                late_writer_ms=int((options.session_timeout + TIMEOUT) * 1000),
            ),
        )
        oldest, newest = options.protocols
        spoken: dict[str, Any] = {"oldest": oldest, "newest": newest, "engines": options.engines}
        rebuilding = engines_of(*options.engines).rebuilding
        self.machine.membership = Membership(around.cluster, **spoken, rebuilding=rebuilding)
        self.machine.leadership = Leadership(self.me, around.cluster, **spoken)
        self.store_worker, self.input_worker = self.worker("store"), self.worker("input")
        self.publisher = self.worker("publisher")
        self.chores = self.worker("chores")
        self.listing = Listing(around.store, around.sources)
        self._loading, self._loading_at = around.follower is not None, 0.0
        self._computed: tuple[tuple[int, Epoch], ...] = ()
        self._computed_at = 0.0
        around.metrics.send_backlog(around.transport.backlog, around.transport.troubles)
        self.committed = CommittedBoard()
        self.ddl = CatalogService(self)
        self.repairs = RepairOffers(self)
        self.overview = Overview(self)
        gone = "nobody listens at its address"
        self.deaths = GoneProcesses(self.worker("deaths"), lambda member: self._report(Unreachable(member, gone)))
        self.table_gc = TableGc(around.store)
        self.void_rows = VoidRows(around.store)
        self.removals = InputGc(around.store)
        self._table_gc_at = self._count_at = 0.0
        self.pointers = ViewPointers(around.store)
        self._loads_told: set[str] = set()
        self._quarantined: set[str] = set()
        """Views whose quarantine was counted."""
        self._looked_after: tuple[object, int] | None = None
        """The state of the catalog, and the engine, for which views to drop or to rebuild were last looked for."""
        self._repaired = 0
        """The last term in which base tables were looked after."""
        self._claimed = False
        """Whether the store is known to be this pool's."""
        self._recorded = NEVER
        """The newest epoch that this one has put into the record as committed."""
        self._reading = 0.0
        """Since when INPUT is read for the next plan."""
        self._worked = 0.0
        self._unpublished = Unpublished()

    @property
    def released(self) -> bool:
        return True  # a successor finds everything in the record

    @property
    def not_ready(self) -> str:
        return self.machine.leadership.stands_back

    def handlers(self) -> dict[str, Handler]:
        return {
            calls.TOPOLOGY: lambda _: calls.encode(self.overview.topology()),
            MEMBER: lambda _: calls.status_json(self._status()),
            calls.COMMITTED: self._ask_committed,
            calls.DDL: lambda request: calls.encode(self.ddl.change(calls.decode(request, calls.DdlCall))),
            calls.STATUS: lambda _: calls.status_json(self.overview.status()),
            calls.RELOAD: self._reload,
            calls.REPAIR: lambda request: calls.encode(self.repairs.offer(calls.decode(request, calls.RepairCall))),
            calls.LOOK: self._look,
        }

    def _reload(self, request: bytes) -> bytes:
        asked = calls.decode(request, calls.ReloadCall)
        return calls.encode(reloads.reload(self.around.follower, self.ddl.newest, asked))

    def _look(self, request: bytes) -> bytes:
        asked = calls.decode(request, calls.LookCall)
        return calls.encode(reloads.look(self.around.follower, self.ddl.newest, asked))

    def began(self) -> None:
        self.zookeeper.do(self._campaign)

    def members_changed(self, members: list[Member]) -> None:
        self.tell(MembersChanged(tuple(members)))

    def session_changed(self, session: SessionState) -> None:
        self.tell(SessionChanged(session is SessionState.CONNECTED))

    def received(self, sender: MemberId, message: Message, payload: Payload | None) -> None:
        self.tell(Received(sender, message))

    def ticked(self) -> None:
        now = self.clock.now()
        if self.clock.lost:
            self.log.warning("the clock was set back")
            self.end(ProcessEnd.LOST)
            return
        self.tell(Tick(now))
        self.deaths.look(self.around.transport.troubles(), self._waited_for())
        if self.removals.due:
            self._chore(functools.partial(self.removals.remove, *self.removals.take()))
        state = self.machine.leadership.state
        if (
            self.machine.phase is machines.CoordinatorPhase.LEADING
            and state is not None
            and state.term != self._repaired
        ):
            self._repaired = state.term
            self.chores.do(self._repair)

    def _waited_for(self) -> list[Member]:
        """Whom the oldest epoch waits for, if it does for longer than usual."""
        waiting = self.machine.waits_for(WAITING_MS)
        return [member for member in self.peers.members() if member.id in waiting] if waiting else []

    def closed(self) -> None:
        self.committed.close()
        self.ddl.close()
        self.repairs.close()
        self.overview.close()

    def _repair(self) -> None:
        def wanted() -> bool:
            return not self.loop.stopped and self.machine.phase is machines.CoordinatorPhase.LEADING

        def repair() -> None:
            try:
                self.ddl.repair()
            except errors.BelvedereError as error:
                self.log.info("base tables are looked after later", reason=error)
                raise

        with contextlib.suppress(Superseded):
            Retry(on=(errors.BelvedereError,), wanted=wanted).run(repair)

    def figures(self) -> None:
        before, self._worked = self._worked, self.loop.busy_seconds
        self.metrics.worked(self._worked - before)
        if self.machine.phase is not machines.CoordinatorPhase.LEADING:
            self.metrics.oldest_change(None)
            self.metrics.input_bytes(0)
            for view in self._quarantined:
                self.metrics.forget_view(view)  # the leader tells of them
            self._quarantined = set()
            self._tell_loads({})
            return
        waiting = self.waiting()
        self.metrics.oldest_change(waiting.oldest / 1000 or None)
        self.metrics.input_bytes(waiting.bytes)
        building, state = self.machine.catalog[2], (self.machine.catalog, self.machine.engine)
        if state != self._looked_after and not building and self.machine.engine:
            self._looked_after = state
            self.chores.do(self._look_after_views)
        if time.monotonic() >= self._count_at and self.chores.waiting() == 0:
            self._count_at = time.monotonic() + QUARANTINE_SECONDS
            self._chore(self._count_quarantines)
            self.pointers.look_again()
            if self.around.follower is not None:
                self._chore(self._look_at_log)
                follower = self.around.follower
                self._chore(lambda: self._tell_loads(follower.load_progress()))
        if self.chores.waiting() == 0 and (write := self.pointers.due(self.committed.after(-1, 0.0))) is not None:
            self._chore(write)

    def _look_at_log(self) -> None:
        kept = self.overview.followed()
        self.metrics.followed_log(kept.get("log_files", 0), kept.get("lag_ms", 0) / 1000)

    def _tell_loads(self, progress: Mapping[str, LoadProgress]) -> None:
        for table in self._loads_told - progress.keys():
            self.metrics.loaded(table)
        self._loads_told = set(progress)
        for table, at in progress.items():
            self.metrics.load(table, at.share, at.remaining_s)

    def _count_quarantines(self) -> None:
        newest = self.committed.after(-1, 0.0)
        document = self.around.store.get_document(newest.catalog_document) if newest.catalog else None
        if document is None:
            return
        found = quarantine_counts.count(self.around.store, document, newest.epoch)
        for view in self._quarantined - set(found):
            self.metrics.forget_view(view)
        self._quarantined = set(found)
        for view, rows in found.items():
            self.metrics.quarantined(view, rows)

    def waiting(self) -> WaitingInput:
        """What is not committed yet."""
        return self.listing.waiting(self.committed.after(-1, 0.0).positions)

    def _look_after_views(self) -> None:
        try:
            self.ddl.look_after()
        except errors.Unavailable as error:
            self._looked_after = None
            self.log.info("views are dropped or rebuilt later", reason=error)
        except errors.BelvedereError as error:
            self.log.warning("views cannot be dropped or rebuilt", reason=error)

    # ------------------------------------------------------------------ the machine

    def tell(self, event: CoordinatorEvent) -> None:
        if self.clock.overdue():
            self.tell(Tick(self.clock.now()))
        for instruction in self.machine.handle(event):
            self._carry_out(instruction)

    def _report(self, event: CoordinatorEvent) -> None:
        """From workers."""
        self.loop.post(functools.partial(self.tell, event))

    def _carry_out(self, instruction: object) -> None:
        store = self.around.store
        match instruction:
            case Send(to, message):
                self.peers.send(to, message)
            case Note(event):
                if event == "leading":
                    # what was read in an earlier term may be old by now
                    self.listing = Listing(store, self.around.sources)
                if event == "planned":
                    self.metrics.epoch_step("plan", time.monotonic() - self._reading)
                self.overview.noted(instruction)
                self.repairs.noted(instruction)
                self.note(instruction)
            case ReadRecord(request):
                self.zookeeper.do(functools.partial(self._read_record, request))
            case Create(request, state):
                self.zookeeper.do(functools.partial(self._swap, request, state, None))
            case Swap(request, state, version):
                self.zookeeper.do(functools.partial(self._swap, request, state, version))
            case WriteDocument(request, name, data):
                self._ask(request, lambda: store.put_document(name, data), lambda _: DocumentWritten(request))
            case ReadDocument(request, name):
                self._ask(request, lambda: store.get_document(name), lambda data: DocumentRead(request, data))
            case AmendCatalogs(request):
                self._ask(request, lambda: amended_catalogs(store, instruction), lambda amended: amended)
            case ReadInput(request):
                self._reading = time.monotonic()
                # what is awaited is known in the loop, and asked for by whoever reads
                read = functools.partial(self._read_input, dict(self.machine.awaited))
                self._ask(request, read, lambda found: InputRead(request, *found), self.input_worker)
            case ListDocuments(request, prefixes):
                self._ask(request, lambda: self._names(prefixes), lambda names: DocumentsListed(request, names))
            case Publish(plan):
                self._publish(plan)
            case RemoveChunks(chunks):
                self.removals.add(chunks=chunks)
            case RemoveDocuments(names):
                self.removals.add(documents=names)
            case Collect(horizon, tombstones):
                self._chore(functools.partial(self._collect, horizon, tombstones))
                self._drop_tables(horizon)
            case ForgetSources(sources):
                self.publisher.do(functools.partial(self._forget_sources, sources))
            case Forget(member):
                self.peers.forget(member)
            case Resign(reason):
                self.log.warning("resigns", reason=reason)
                self.zookeeper.do(self._campaign_again)
            case RepairTaken():
                self.repairs.taken(instruction)
            case CatalogTaken():
                self.ddl.taken(instruction)
            case _:
                raise AssertionError(f"a coordinator cannot {instruction}")

    # ------------------------------------------------------------------ ZooKeeper

    def _campaign(self) -> None:
        elected: Callable[[bool], None] = lambda turn: self._report(Elected(turn))  # noqa: E731
        backoff = Backoff(CAMPAIGN_PAUSE, CAMPAIGN_PAUSE)
        retry = Retry(wanted=lambda: not self.loop.stopped, outage=self.around.trouble.zookeeper, backoff=backoff)
        with contextlib.suppress(Superseded):
            retry.run(lambda: self.around.coordination.campaign(self.me, elected))

    def _campaign_again(self) -> None:
        self.around.coordination.resign()
        time.sleep(CAMPAIGN_PAUSE)
        self._campaign()

    def _read_record(self, request: int) -> None:
        taking_over = self.machine.phase is machines.CoordinatorPhase.FOLLOWING
        try:
            # Before the record: a leader that lives may publish meanwhile what it commits.
            published = calls.read_committed(self.around.store, calls.NEWEST) if taking_over else None
        except errors.BelvedereError as error:
            self.around.trouble.store.set(str(error))
            self._report(RecordRead(request, None, failed=True))
            return
        try:
            found = self.around.coordination.read()
        except errors.Unavailable as error:
            self.around.trouble.zookeeper.set(str(error))
            self._report(RecordRead(request, None, failed=True))
            return
        self.around.trouble.zookeeper.clear()
        try:
            if not self._claimed or found is None:
                store_owner.claim(self.around.store, self.options.pool, recorded=found is not None)
                self._claimed = True
        except errors.Incompatible:
            raise
        except errors.BelvedereError as error:
            self.around.trouble.store.set(str(error))
            self._report(RecordRead(request, None, failed=True))
            return
        if found is None:
            self._report(RecordRead(request, None))
            return
        state = wire.decode(found.data)
        assert isinstance(state, PoolState)
        if published is not None:
            store_owner.check_committed(self.options.pool, Epoch(published.epoch), state.committed)
        self._report(RecordRead(request, state, found.version, found.clock))

    def _swap(self, request: int, state: PoolState, version: int | None) -> None:
        coordination, data = self.around.coordination, wire.encode(state)
        begin = time.monotonic()
        try:
            found = coordination.create(data) if version is None else coordination.swap(data, version)
        except errors.Unavailable as error:
            self.around.trouble.zookeeper.set(str(error))
            self._report(Swapped(request, "unknown"))
            return
        self.around.trouble.zookeeper.clear()
        if found is None:
            self._report(Swapped(request, "conflict"))
        else:
            if state.committed > self._recorded:
                self._recorded = state.committed
                self.metrics.epoch_step("commit", time.monotonic() - begin)
            self._report(Swapped(request, "done", found.version, found.clock))

    # ------------------------------------------------------------------ store

    def _ask(
        self,
        request: int,
        call: Callable[[], Any],
        event: Callable[[Any], CoordinatorEvent],
        worker: Worker | None = None,
    ) -> None:
        def work() -> None:
            try:
                found = call()
            except errors.BelvedereError as error:
                self.around.trouble.store.set(str(error))
                self._report(StoreFailed(request, str(error)))
                return
            self.around.trouble.store.clear()
            self._report(event(found))

        (worker or self.store_worker).do(work)

    def _read_input(
        self, awaited: Mapping[int, Epoch]
    ) -> tuple[Sequence[Chunk], Sequence[SourceFact], bool, tuple[tuple[int, Epoch], ...]]:
        if self.listing.quiet > QUIET_SECONDS:
            time.sleep(QUIET_PAUSE)
        loading = self._is_loading()  # before INPUT: what was loaded by then is in it
        return (*self.listing.read(), loading, self._look_for_computed(awaited))

    def _look_for_computed(self, awaited: Mapping[int, Epoch]) -> tuple[tuple[int, Epoch], ...]:
        """Which of the view groups that somebody else computes are in the store."""
        if not any(awaited.values()):
            return ()
        if time.monotonic() >= self._computed_at:
            self._computed_at = time.monotonic() + COMPUTED_SECONDS
            wanted = [aside.AsideBuild(number, since) for number, since in awaited.items() if since]
            found = (one for one in wanted if one.done in self.around.store.list_documents(one.done))
            self._computed = tuple((one.view_group, one.since) for one in found)
        return self._computed

    def _is_loading(self) -> bool:
        follower = self.around.follower
        if follower is not None and time.monotonic() >= self._loading_at:
            self._loading_at, self._loading = time.monotonic() + LOADING_SECONDS, follower.loading()
        return self._loading

    def loads_more(self) -> None:
        """A table was announced: whoever reads INPUT from now on asks anew."""
        self._loading_at = 0.0

    def _names(self, prefixes: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for prefix in prefixes for name in self.around.store.list_documents(prefix))

    def _chore(self, call: Callable[[], None]) -> None:
        def work() -> None:
            try:
                if self.may_act():
                    call()
            except errors.BelvedereError as error:
                self.log.info("left for later", reason=error)

        self.chores.do(work)

    def _collect(self, horizon: Epoch, tombstones: Epoch) -> None:
        """What the last good rows of failed views hide behind goes first: if it cannot, nothing is collected."""
        newest = self.committed.after(-1, 0.0)
        document = self.around.store.get_document(newest.catalog_document) if newest.catalog else None
        if newest.epoch >= horizon and (document is not None or not newest.catalog):
            if document is not None and (rows := self.void_rows.take_back(document, horizon)):
                self.log.info("void rows of failed views taken back", rows=rows)
            self.around.store.collect(horizon, tombstones)

    def _drop_tables(self, horizon: Epoch) -> None:
        if time.monotonic() < self._table_gc_at:
            return
        self._table_gc_at = time.monotonic() + TABLE_GC_SECONDS
        newest = self.committed.after(-1, 0.0)

        def drop() -> None:
            document = self.around.store.get_document(newest.catalog_document) if newest.catalog else None
            dropped = [] if document is None else self.table_gc.drop(document, newest.epoch, horizon)
            if dropped:
                self.log.info("tables are dropped", tables=dropped)
            if document is not None:
                names = self.around.store.list_documents(aside.BUILDS)
                if over := aside.left_over(names, catalogs.greatest_group(document), newest.building):
                    self.around.store.remove_documents(over)

        self._chore(drop)

    def _publish(self, plan: EpochPlan) -> None:
        self.committed.show(calls.committed_of(plan))
        self.overview.committed(plan)
        if self._unpublished.add(plan):
            self.publisher.do(self._publish_next)

    def _publish_next(self) -> None:
        plan = self._unpublished.next()
        if plan is None:
            return
        try:
            calls.publish(self.around.store, plan)
        except errors.BelvedereError as error:
            self.log.info("readers of the store do not know yet", epoch=plan.epoch, reason=error)
            self._unpublished.failed()
            time.sleep(PUBLISH_PAUSE)
        else:
            self._report(Published(plan.epoch))
        self.publisher.do(self._publish_next)

    def _forget_sources(self, sources: Sequence[SourceId]) -> None:
        """Only when all that was committed before is published: see `ForgetSources`. It will be said again."""
        if not self._unpublished.waiting:
            self._chore(lambda: self.around.sources.forget_sources(sources))

    # ------------------------------------------------------------------ clients

    def in_loop(self, call: Callable[[], Any], timeout: float = 10.0) -> Any:
        """Ask the machine something from another thread."""
        done = threading.Event()
        found: list[Any] = []

        def work() -> None:
            try:
                found.append(call())
            except Exception as error:
                found.append(error)
            done.set()

        self.loop.post(work)
        if not done.wait(timeout) or (self.loop.stopped and not found):
            raise errors.PeerUnavailable(f"coordinator {self.me} does not answer")
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    def require_lead(self) -> None:
        if self.machine.phase is not machines.CoordinatorPhase.LEADING:
            raise errors.PeerUnavailable(f"coordinator {self.me} does not lead: ask another one")

    def _status(self) -> dict[str, Any]:
        return {**self.about(), "phase": self.machine.phase.value}

    def _ask_committed(self, request: bytes) -> bytes:
        ask = calls.decode(request, calls.StatusCall)
        self.require_lead()
        self.committed.after(ask.after, min(ask.wait_ms, calls.LONGEST_WAIT_MS) / 1000)
        found, generation, stalled = self.in_loop(self._newest_committed)
        return calls.encode(calls.Seen(found, generation, stalled))

    def _newest_committed(self) -> tuple[calls.CommittedRow, int, str]:
        """In the loop, so after what the machine has said was carried out, and as a leader that certainly is one: one
        that slept may tell of an epoch whose rows were collected since."""
        self.require_lead()
        if not self.may_act():
            raise errors.PeerUnavailable(f"coordinator {self.me} may have lost its session: ask another one")
        return (self.committed.after(-1, 0.0), *self.overview.generation_and_trouble())


class CommittedBoard:
    """The newest committed epoch, and those who wait for the next one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest = calls.CommittedRow()
        self._closed = False

    def show(self, committed: calls.CommittedRow) -> None:
        with self._changed:
            if committed.epoch > self._newest.epoch:
                self._newest = committed
                self._changed.notify_all()

    def after(self, epoch: int, timeout: float) -> calls.CommittedRow:
        """The newest one, as soon as it is later than `epoch` or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._newest.epoch > epoch or self._closed, timeout)
            return self._newest

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
