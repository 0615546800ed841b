"""One history: a cluster is made from a seed, lives through what the seed has in store for it, and is judged.

begin: members start, the catalog is offered  ▶  turmoil: writes, DDL, faults, readers  ▶  calm: all faults end
▶  drained: every entry is committed, INPUT is empty, views are built, members all take part  ▶  judged once more
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from dataclasses import dataclass
from typing import Any
from unittest import mock

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles import failure_detector, input_listing
from belvedere.cluster.roles.work import DistributorWork, ServerWork
from belvedere.cluster.transport import calls
from belvedere.engine.formats import Engines
from belvedere.engine.version import ENGINE_VERSION
from belvedere.protocol import assign, leadership, membership, pins, withdraw
from belvedere.protocol.coordinator import Options
from belvedere.protocol.exactly_once import SourceEntry, SourceId
from belvedere.protocol.gc_documents import CATALOGS, PLANS
from belvedere.protocol.leadership import Leadership
from belvedere.protocol.membership import Membership
from belvedere.protocol.messages import PROTOCOL, Epoch, EpochPlan, PoolState
from belvedere.protocol.ring import MemberId
from tests.simulator import failing, faults, payloads, repairing, schema
from tests.simulator import shape as shapes
from tests.simulator.builders import Builders
from tests.simulator.cluster import Cluster
from tests.simulator.conduct import check_acknowledged
from tests.simulator.coordinators import REFUSED, SILENCE, TICK, CoordinatorProcess
from tests.simulator.distributors import DistributorProcess
from tests.simulator.failing import FailingViews
from tests.simulator.faults import Nemesis
from tests.simulator.network import Network, Weather
from tests.simulator.oracle import Oracle, Truth, Wrong
from tests.simulator.process import CLUSTER, Process, Surroundings
from tests.simulator.readers import LEASE, Reader
from tests.simulator.scheduler import MS, SECOND, Scheduler
from tests.simulator.sources import Answer, Habits, Sources
from tests.simulator.store import LATEST, SimulatedStore
from tests.simulator.store import Trouble as StoreTrouble
from tests.simulator.subscribers import Subscriber
from tests.simulator.trace import RECORD, Trace
from tests.simulator.users import Ddl, Statement, Writer
from tests.simulator.versions import REBUILDING, RELEASES, OtherWork, Version
from tests.simulator.viewservers import ViewServerProcess
from tests.simulator.zookeeper import Trouble, ZooKeeper

SESSION = 800 * MS
LARGEST_STEP_MS = 1_000
"""In place of the one in `protocol.pins`; small jumps of clocks are smaller than this, big ones bigger."""
SCALED: tuple[tuple[Any, str, float], ...] = (
    (pins, "LARGEST_STEP_MS", LARGEST_STEP_MS),
    (leadership, "STAND_BACK_MS", 1_000),
    (assign, "DRAIN_MS", 600),
    (withdraw, "DRAIN_MS", 600),
    (input_listing, "SOURCES_SECONDS", 0.3),
    (failure_detector, "PROBE_SECONDS", 0.1),
)
"""What takes place of times that are as long as a history, or longer: members that are left out come back in it."""
AFTERWARDS = 1_500 * MS
"""Readers go on so long after all faults have ended."""
ENCORE = 0.3
AFTER_REPAIR = 10
LOSES = 0.1
LOST = 4 * SECOND
MOST_SILENCES = 2
SILENCES_PER_STRIKE = 1.0
LONGEST_CALM = 30 * SECOND
CALM = 60 * SECOND
"""How long a cluster may take to drain once all faults have ended, virtual time."""


@dataclass
class Result:
    seed: int
    epochs: int
    steps: int
    virtual: int
    """Microseconds."""
    faults: list[str]
    effects: Counter[str]


class History:
    def __init__(self, seed: int, trace: Trace | None = None, faulty: bool = True, theme: str | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.shape = shapes.draw(self.random, theme)
        self.trace = trace or Trace()
        scheduler = Scheduler()
        network = Network(scheduler, self.random, Weather(), self.trace)
        zookeeper = ZooKeeper(scheduler, self.random, Trouble(), SESSION, self.trace)
        store = SimulatedStore(scheduler, self.random, StoreTrouble(), self.trace)
        self.around = Surroundings(scheduler, network, zookeeper, store, self.trace, lambda process, good: None)
        self.sources = Sources(scheduler, self.random, store.memory, Habits(), self._push, self.trace)
        self.oracle = Oracle(self.sources, store.memory)
        zookeeper.on_record = self._recorded
        self.cluster = Cluster(self.around, self.random, self._make)
        self.writer = Writer(self.around, self.random, self.sources, self.shape.deletes, self.shape.keys)
        self.ddl = Ddl(self.around, self.cluster.leader, self._newest_plan, self.random)
        self.writer.has_column = self.ddl.has_column
        self.builders = Builders(self.around, self.cluster.leader, self.random)
        self.readers: list[Reader] = []
        self.subscribers: list[Subscriber] = []
        self._lost: Epoch | None = None
        """The last epoch that was committed when ZooKeeper lost it."""
        self._lose_leader = False
        """Right after the next commit."""
        self.options = Options(
            epoch_ms=self.shape.epoch_ms,
            collect_ms=300,
            quiet_ms=self.shape.quiet_ms,
            retention_ms=self.shape.retention_ms,
            late_writer_ms=(SESSION + LATEST) // MS,
            max_rows=self.shape.plan_rows,
            memory=self.shape.plan_memory,
        )
        self.nemesis = Nemesis(self.cluster, self.random, self.sources, self.shape) if faulty else None
        self.failing = failing.draw(seed, theme or "", self.trace.effects) if faulty else None
        self.oracle.amended = self._amended
        self.repairs = repairing.draw(
            seed,
            theme or "",
            self.around,
            self.oracle,
            leader=self.cluster.leader,
            uncommitted=self._uncommitted,
            protect=lambda table, key: self.writer.protected.add((table, key)),
            forget=self._forget,
            effects=self.trace.effects,
        )
        self.oracle.damage = self.repairs

    # ------------------------------------------------------------------ the run

    def run(self) -> Result:
        # Time is scaled: sessions live for less than a second, a history for a few.
        with contextlib.ExitStack() as stack:
            for module, name, value in (*SCALED, (membership, "SHUN_MS", self.shape.shun_ms)):
                stack.enter_context(mock.patch.object(module, name, value))
            try:
                return self._run()
            finally:
                self.cluster.close()

    def _run(self) -> Result:
        draw, scheduler = self.random, self.around.scheduler
        for table, keys in schema.KEYS.items():
            keys *= self.shape.keys
            cuts = sorted({0, keys, *(draw.randrange(keys) for _ in range(draw.choice((0, 1, 2))))})
            for low, high in itertools.pairwise(cuts):
                self.sources.create(table, low, high)
        self.cluster.release = self.shape.release
        self.cluster.start("coordinator", self.shape.coordinators)
        self.cluster.start("distributor", self.shape.distributors)
        self.cluster.start("viewserver", self.shape.viewservers)
        self.builders.start()
        self._draw_catalog()
        self._await_catalog()
        start = scheduler.now
        stop = start + self.shape.seconds * SECOND
        self.writer.schedule(start, stop, self.shape.writes)
        if self.nemesis is not None:
            self.nemesis.schedule(start, stop, self.shape.faults)
        self._start_readers(start, stop + AFTERWARDS)
        if self.repairs is not None:
            self.repairs.schedule(start + SECOND, stop)
        scheduler.run_until(stop)
        if self.nemesis is not None:
            self.nemesis.stop()
        if self.failing is not None:
            self.failing.active = False
        self.trace.calm(scheduler.now)
        self.builders.faulty = False
        self.cluster.hasty = True
        calm, silent, epochs = scheduler.now, self.trace.effects[SILENCE], len(self.oracle.committed)
        self._drain(calm + CALM)
        if self.failing is not None:
            self._create_again(self.failing)
        if self.repairs is not None:
            self._write_on()
        if draw.random() < ENCORE:
            self._encore()
        self._check_silences(calm, silent, len(self.oracle.committed) - epochs)
        scheduler.run_until(max(scheduler.now, stop + AFTERWARDS) + LATEST)
        self.oracle.check_retained(self.around.store.memory.collected())
        clocks_are_right = self.nemesis is None or not self.nemesis.clocks_are_off
        if clocks_are_right and self.options.retention_ms + LEASE + LARGEST_STEP_MS < LATEST // MS - 200:
            if self.around.store.memory.list_documents(pins.PINS):
                # One that was written before the end of the faults may have come as late as anything can.
                scheduler.run_until(scheduler.now + (LEASE + LARGEST_STEP_MS) * MS + SECOND)
            self._check_collected()
        if draw.random() < LOSES:
            self._lose_commits()
        state = self.around.zookeeper.record.state
        self.trace.effects["pool that speaks the next protocol"] += state is not None and state.protocol > PROTOCOL
        self.trace.effects["pool with the next engine"] += state is not None and state.engine > ENGINE_VERSION
        self.trace.effects["pool with an engine that rebuilds"] += state is not None and state.engine in REBUILDING
        struck = self.nemesis.struck if self.nemesis is not None else []
        return Result(self.seed, len(self.oracle.committed), scheduler.steps, scheduler.now, struck, self.trace.effects)

    def _create_again(self, failing: FailingViews) -> None:
        """Views that failed are as good as new when somebody creates them again."""
        failing.mended = True
        for _ in range(3):  # one that reads another can be created after that one
            truth = self.oracle.last
            names = [] if truth is None else failing.unfinished(truth)
            if not names:
                return
            self.trace.effects["failed view created again"] += len(names)
            self.ddl.repair(names)
            self._drain(self.around.scheduler.now + CALM)
        raise Wrong(f"views are still set aside after they were created again: {names}")

    def _amended(self, before: EpochPlan, after: EpochPlan) -> None:
        self.trace.effects["plan amended again" if before.amends else "plan amended"] += 1
        memory = self.around.store.memory
        old, new = memory.get_document(before.catalog_document), memory.get_document(after.catalog_document)
        assert old is not None and new is not None
        self.ddl.amended(old, new)
        for one in catalogs.compile(new).failed:
            self.around.store.amended.add((one.failure.epoch, one.view.view_group))
            self.around.store.amended.add((after.epoch, one.view.view_group))

    def _write_on(self) -> None:
        """What was repaired is changed once more: so it shows whether anybody remembers what it was before."""
        for _ in range(AFTER_REPAIR):
            self.writer.write()
        self._drain(self.around.scheduler.now + CALM)

    def _encore(self) -> None:
        """One more write, whose leader is lost as soon as it is committed: only its successor can tell readers."""
        self._lose_leader = True
        self.writer.write()
        self._drain(self.around.scheduler.now + CALM)

    def _lose_commits(self) -> None:
        """ZooKeeper goes back to before the last commit: the pool must say so, and commit nothing any more."""
        committed = self.oracle.last
        if not self.around.zookeeper.lose() or committed is None:
            return
        self.trace.effects["ZooKeeper lost a commit"] += 1
        self._lost = committed.epoch
        self.writer.write()
        self.around.scheduler.run_until(self.around.scheduler.now + LOST)
        if not self.trace.effects[REFUSED]:
            raise Wrong("ZooKeeper lost a commit, and nobody said so")

    def _check_silences(self, calm: int, before: int, epochs: int) -> None:
        """That everything is drained in the end must not hide what costs a silence each time: what was under way when
        the faults ended may do so once or twice, and nothing after it. `epochs`: committed since then. Where there is
        little memory, what has piled up needs many of them, and none begins before its time."""
        silences = self.trace.effects[SILENCE] - before
        strikes = 0 if self.nemesis is None else len(self.nemesis.struck)
        late = self.trace.effects["late call"]  # each may hold a member up for longer than anyone waits
        to_come = 0 if self.nemesis is None else self.nemesis.to_come
        if silences > MOST_SILENCES + to_come or before > SILENCES_PER_STRIKE * (strikes + late + 1):
            told = (
                f"{before} silences while there were faults, which struck {strikes} times, beside {late} late calls, "
                f"and {silences} after"
            )
            raise Wrong(f"the pool stood still too often: {told}")
        if self.around.scheduler.now - calm > LONGEST_CALM + epochs * self.shape.epoch_ms * MS:
            seconds = (self.around.scheduler.now - calm) / SECOND
            raise Wrong(f"the pool took {seconds:.1f} s to come to rest after all faults had ended")

    def _draw_catalog(self) -> None:
        draw = self.random
        pool = [schema.BIG, schema.SPEND, schema.NAMED, schema.OPTIONAL, schema.WORDS, schema.TOTALS]
        draw.shuffle(pool)
        with_readers = self.shape.theme in (failing.THEME, repairing.THEME) and draw.random() < 0.5
        if with_readers:
            pool.sort(key=lambda view: view is not schema.SPEND)
        first = pool[: draw.choice((1, 2))]
        self.ddl.begin(first, RELEASES[self.shape.release].engines.newest)
        if self.failing is not None:
            self.failing.aim([view.name for view in first])
        later: list[list[Statement]] = [[] for _ in range(self.shape.users)]
        names = {view.name for view in first}
        for _ in range(self.shape.ddl):
            candidates: list[Statement] = [*pool[len(first) : len(first) + 1], *first]
            candidates += [schema.LEVELS] if "spend" in names else []
            candidates += [schema.BIGGER] if "big" in names else []
            candidates += [schema.SPEND_ON_A] if "spend" in names else []
            candidates += [f"DROP MATERIALIZED VIEW {view.name}" for view in first]
            candidates += [schema.ADD_NOTE, schema.NOTES, schema.CREATE_EXTRA, schema.DROP_EXTRA]
            draw.choice(later).append(draw.choice(candidates))
        if with_readers:
            later[0].insert(0, schema.LEVELS)

        def begin() -> None:
            self.ddl.begin_changes(later)

        self.around.scheduler.at(draw.randint(1, 4) * SECOND, begin)

    def _await_catalog(self) -> None:
        """Rows of tables that do not exist would go nowhere: writing begins when the tables are in a plan."""
        scheduler = self.around.scheduler
        while not self.ddl.begun:
            if scheduler.now > CALM:
                raise Wrong(f"no catalog after {CALM // SECOND} s")
            scheduler.run_until(scheduler.now + 50 * MS)

    def _start_readers(self, start: int, stop: int) -> None:
        for number in range(self.shape.readers):
            servers = lambda: self.cluster.viewservers  # noqa: E731
            reader = Reader(
                self.around,
                self.random,
                self.oracle,
                servers,
                self.cluster.leader,
                self.writer.tokens,
                number,
                self.shape.pins,
            )
            reader.schedule(start, stop, self.shape.reads)
            self.readers.append(reader)
        for number in range(self.shape.subscribers):
            subscriber = Subscriber(self.around, self.random, self.oracle, self.readers[0].newest, number)
            subscriber.schedule(start, stop, self.shape.reads)
            self.subscribers.append(subscriber)

    def _drain(self, until: int) -> None:
        scheduler = self.around.scheduler
        while not self._is_drained():
            if scheduler.now >= until:
                raise Wrong(f"not drained {CALM // SECOND} s after the last fault: {self._why_not()}")
            scheduler.run_until(scheduler.now + 100 * MS)

    def _is_drained(self) -> bool:
        return not self._why_not()

    def _why_not(self) -> str:
        """What is not at rest yet."""
        state = self.around.zookeeper.record.state
        if state is None:
            return "nobody has ever led"
        if self.sources.unfinished():
            return f"{self.sources.unfinished()[0].id} is not acknowledged to its end"
        for region in self.sources.regions.values():
            if region.log and not self.oracle.covers(region.id, region.last):
                return f"{region.id} is not committed to its end"
        if state.open:
            return f"epoch {state.open[0].epoch} is open"
        if not self.ddl.idle:
            return "a change of the catalog is under way"
        if self.repairs is not None and not self.repairs.idle:
            return "not everything is repaired"
        truth = self.oracle.last
        if truth is None or truth.building:
            return "views are under construction"
        published = calls.read_committed(self.around.store.memory, calls.NEWEST)
        if published is None or published.epoch < state.committed:
            return f"epoch {state.committed} is committed, and readers of the store do not know"
        if self.around.store.memory.chunks():
            return f"INPUT has {len(self.around.store.memory.chunks())} chunks"
        leaving = [p.name for p in self.cluster.processes.values() if p.alive and p.leaving]
        if leaving:
            return f"{leaving[0]} was not released"
        if self.around.network.backlog():
            return f"{self.around.network.backlog()} messages are under way"
        for server in self.cluster.viewservers:
            if server.machine.generation is not None and server.machine.committed < state.committed:
                return f"{server.name} does not know that epoch {state.committed} is committed"
            if server.work.batch_buffer.batches:
                return f"{server.name} keeps {server.work.batch_buffer.batches} batches"
        named = {state.committed_plan.document} if state.committed_plan is not None else set()
        plans = set(self.around.store.memory.list_documents(PLANS)) - named
        if plans:
            return f"plans are left over: {sorted(plans)}"
        missing = self._missing_members(state)
        return f"members have no part in the generation, or too much: {sorted(missing)}" if missing else ""

    def _check_collected(self) -> None:
        """Everything has been at rest for longer than the retention, and than any pin lasts."""
        truth, horizon = self.oracle.last, self.around.store.memory.collected()
        if truth is not None and horizon < truth.epoch:
            raise Wrong(f"versions below epoch {horizon} are collected, {truth.epoch} is long past the retention")
        left = self.around.store.memory.list_documents(CATALOGS)
        if len(left) > 1:
            raise Wrong(f"catalogs are left over, all but one are in no epoch that can be read: {left}")

    def _missing_members(self, state: PoolState) -> set[MemberId]:
        leader = self.cluster.leader()
        generation = None if leader is None else leader.machine.epochs.generation
        present = set() if generation is None else {*generation.servers, *generation.distributors}
        return present ^ self.cluster.members()

    # ------------------------------------------------------------------ between the parts

    def _make(self, role: str, host: str, incarnation: int, version: Version) -> Process:
        around, memory = self.around, self.around.store.memory
        name = MemberId(f"{host}.{incarnation}")
        work: Any
        if role == "coordinator":
            probes = self._is_gone if self.shape.probes else None
            made = CoordinatorProcess(
                around,
                host,
                incarnation,
                self.options,
                self.ddl.taken,
                self._told,
                self._published,
                self.nemesis,
                probes,
            )
            made.on_collect = self._collecting
            if self.repairs is not None:
                made.on_repair_taken = self.repairs.taken
            oldest, newest = version.protocols
            engines, rebuilding = (version.engines.oldest, version.engines.newest), version.engines.rebuilding
            made.machine.membership = Membership(
                CLUSTER, oldest=oldest, newest=newest, engines=engines, rebuilding=rebuilding
            )
            made.machine.leadership = Leadership(name, CLUSTER, oldest=oldest, newest=newest, engines=engines)
            return made
        if role == "distributor":
            work = DistributorWork(name, memory, catalogs.compile, payloads.decode, engines=version.engines)
            return DistributorProcess(around, host, incarnation, self._of(version, work), payloads.encode)
        work = self._of(version, self._make_work(name, version.engines))
        return ViewServerProcess(around, host, incarnation, work, self.shape.compute_time, self.nemesis)

    def _of(self, version: Version, work: Any) -> Any:
        return OtherWork(work, version) if version.ring else work

    def _make_work(self, name: MemberId, engines: Engines) -> ServerWork:
        memory = self.around.store.memory
        work = ServerWork(name, memory, catalogs.compile, memory_limit=self.shape.memory, engines=engines)
        if self.nemesis is not None and self.shape.spill_fails:
            faults.spilling(work, self.nemesis.spilling)
        if self.failing is not None:
            self.failing.into(work)
        return work

    def _uncommitted(self) -> set[tuple[str, int]]:
        """Tables and keys of all changes that no committed epoch has."""
        found = set()
        for region in self.sources.regions.values():
            for entry in region.log:
                if not self.oracle.covers(region.id, entry.seq):
                    found |= {(change.table, change.key) for change in entry.rows}  # type: ignore[attr-defined]
        return found

    def _forget(self) -> None:
        for server in self.cluster.viewservers:
            server.forgets_next = True

    def _is_gone(self, name: MemberId) -> bool:
        """Whether nobody listens any more where this process did."""
        return all(process.name != name or not process.alive for process in self.cluster.processes.values())

    def _push(self, source: SourceId, entries: tuple[SourceEntry, ...], answer: Answer) -> None:
        """A request to a random distributor, that may have gone meanwhile; the answer may get lost."""
        candidates = self.cluster.distributors
        if not candidates:
            return
        network, scheduler = self.around.network, self.around.scheduler
        distributor = self.random.choice(candidates)

        def answered(acknowledged: bool) -> None:
            if self.random.random() >= network.weather.lost:
                scheduler.after(network.delay(), lambda: answer(acknowledged))

        def arrive() -> None:
            if network.blocked_until(distributor.name, distributor.name) <= scheduler.now:
                distributor.pushed(source, entries, answered)

        scheduler.after(network.delay(), arrive)

    def _newest_plan(self) -> EpochPlan | None:
        state = self.around.zookeeper.record.state
        if state is None or not (state.open or state.committed_plan):
            return None
        return self.oracle.plan_of(state.open[-1] if state.open else state.committed_plan)

    def _told(self) -> None:
        """The leader knows of a commit that the store does not know yet."""
        if self.readers and self.random.random() < 0.1:
            self.random.choice(self.readers).ask_both()

    def _collecting(self, horizon: Epoch) -> None:
        if self.nemesis is None or not self.nemesis.clocks_are_off:
            least = self.options.retention_ms - 2 * TICK // MS  # a leader knows the time of its last tick
            self.oracle.check_horizon(horizon, self.around.scheduler.clock(), least)

    def _published(self, plan: EpochPlan) -> None:
        """Readers may know it from now on."""
        calls.publish(self.around.store.memory, plan)

    def _recorded(self, before: PoolState | None, after: PoolState) -> None:
        if self.trace.enabled:
            told = f"committed {after.committed}, open {[p.epoch for p in after.open]}, generation {after.generation}"
            self.trace.record(self.around.scheduler.now, RECORD, f"{after.leader} term {after.term}: {told}")
        if self._lost is not None:
            if after.committed > self._lost:
                raise Wrong(f"ZooKeeper lost epoch {self._lost}, and epoch {after.committed} is committed all the same")
            return  # what a leader writes that does not know yet
        self.oracle.recorded(before, after, self.around.scheduler.clock())
        self.ddl.recorded()
        leader = self.cluster.leader()
        if before is not None and after.committed > before.committed:
            for process in self.cluster.processes.values():
                if isinstance(process, CoordinatorProcess) and process.name == after.leader:
                    check_acknowledged(process.machine, after.committed, before.generation)
        if self._lose_leader and before is not None and after.committed > before.committed and leader is not None:
            self._lose_leader = False
            self.trace.effects["leader lost right after a commit"] += 1
            self.around.scheduler.after(0, leader.crash)
        truth = self.oracle.last
        if truth is not None and truth.epoch == after.committed and truth.document and not truth.building:
            self.ddl.check(truth)
        if truth is not None and truth.epoch == after.committed:
            self._check_failed(truth)

    def _check_failed(self, truth: Truth) -> None:
        if self.failing is not None:
            self.failing.check(truth)
        elif truth.document and catalogs.compile(truth.document).failed:
            raise Wrong(f"epoch {truth.epoch}: views are set aside, and there was nothing wrong with any")


__all__ = ["History", "Result"]
