"""Everything that goes wrong on purpose. Each history draws which kinds of faults it knows and how often they strike.

That a history has few kinds at a time is intended: faults of one kind hide those of another, and a history in which
everything fails gets nowhere.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from belvedere.cluster.roles.work import ServerWork
from belvedere.protocol.messages import PROTOCOL, Role
from tests.simulator.cluster import Cluster
from tests.simulator.process import Process
from tests.simulator.scheduler import MS, Action
from tests.simulator.shape import Shape
from tests.simulator.sources import Sources
from tests.simulator.versions import ONLY_AFTER_NEXT, ONLY_NEXT, RELEASES, UNSAID, Version
from tests.simulator.viewservers import ViewServerProcess


@dataclass(frozen=True)
class Kind:
    name: str
    weight: float
    strike: Callable[[Nemesis], None]


class Nemesis:
    def __init__(self, cluster: Cluster, rng: random.Random, sources: Sources, shape: Shape) -> None:
        self.cluster, self.random, self.sources, self.shape = cluster, rng, sources, shape
        self.around = cluster.around
        self.active = True
        self.clocks_are_off = shape.clocks_are_off
        self.struck: list[str] = []
        self.to_come = 0
        """Silences that the pool cannot help: servers still wait for the store when the faults end."""
        kinds = [kind for kind in KINDS if kind.name in shape.kinds or (not shape.kinds and rng.random() < 0.45)]
        self._kinds = kinds or [rng.choice(KINDS)]
        self._begin()

    def _begin(self) -> None:
        """Faults that are always there, per message or call."""
        shape, around = self.shape, self.around
        weather, zookeeper, store = around.network.weather, around.zookeeper.trouble, around.store.trouble
        weather.delay, weather.lost = shape.delay, shape.lost
        weather.repeated, weather.slow = shape.repeated, shape.slow
        zookeeper.unknown, zookeeper.slow = shape.zookeeper_unknown, shape.zookeeper_slow
        store.delay, store.fails, store.late = shape.store_delay, shape.store_fails, shape.store_late
        store.late_writes, store.unreadable, store.damaged = shape.late_writes, shape.store_unreadable, shape.damaged
        zookeeper.stale = shape.zookeeper_stale
        around.leases = shape.leases
        self.sources.habits.repeats, self.sources.habits.batch = shape.push_repeats, shape.push_batch
        if shape.clocks_are_off:
            self.cluster.skews = (0, -3_000, -400, 700, 4_000)

    def schedule(self, start: int, stop: int, faults: int) -> None:
        weights = [kind.weight for kind in self._kinds]
        for _ in range(faults):
            (kind,) = self.random.choices(self._kinds, weights)
            self.around.scheduler.at(self.random.randint(start, stop), self._striker(kind))

    def _striker(self, kind: Kind) -> Action:
        """Half of them strike in the middle of an epoch, if there is one soon."""
        looks = 120 if self.random.random() < 0.5 else 0

        def strike() -> None:
            if self.active:
                self._struck(kind.name)
                kind.strike(self)

        return lambda: self._in_an_epoch(strike, looks)

    def _in_an_epoch(self, action: Action, looks: int) -> None:
        state = self.around.zookeeper.record.state
        if looks and state is not None and not state.open and self.active:
            self.around.scheduler.after(4 * MS, lambda: self._in_an_epoch(action, looks - 1))
        else:
            action()

    def proposing(self, process: Process) -> bool:
        """A coordinator is about to ask for a change of the record. True: not now, it is paused, and will when it
        wakes."""
        if not self._loses_leader(process):
            return False
        self._struck("leader paused before a commit")
        self.pause(process, self._long())
        return True

    def proposed(self, process: Process) -> None:
        """A coordinator has just asked for a change of the record: the moment to lose it."""
        if not self._loses_leader(process):
            return
        self._struck("leader lost in a commit")
        how = self.random.random()
        if how < 0.4:
            process.crash()
        elif how < 0.8:
            self.pause(process, self._long())
        else:
            self.around.zookeeper.expire(process.name)

    def writing(self, process: Process) -> bool:
        """A view server is about to write to tables. True: it is stopped, and does so when it wakes, before it notices
        that others have gone on without it."""
        running = process.alive and not process.paused
        if not (self.active and running and self.random.random() < self.shape.server_sleeps):
            return False
        self._struck("server stopped before a write")
        self.pause(process, self._long())
        return True

    def forgets(self) -> bool:
        """Whether a view server that opens an epoch has nothing in its cache."""
        return self.active and self.random.random() < self.shape.forgets

    def computing(self, process: Process, last: bool) -> int:
        """A view server is about to compute a stage. For how long it hangs before. Before the last one, after which it
        needs nobody any more to write, more often."""
        running = process.alive and not process.paused
        if not (self.active and running and self.random.random() < self.shape.hangs * (3 if last else 0.5)):
            return 0
        self._struck("server hangs before a stage")
        return int(self.shape.quiet_ms * MS * self.random.choice((0.5, 1.5, 3.0, 6.0)))

    def loading(self) -> int:
        """For how long the store lets someone wait who loads in the middle of a stage; 0: it answers at once."""
        if not (self.active and self.random.random() < self.shape.loads_wait):
            return 0
        return int(self.shape.quiet_ms * MS * self.random.choice((0.01, 0.1, 2.0, 6.0)))

    def spilling(self) -> None:
        """Somebody is about to spill."""
        if self.active and self.random.random() < self.shape.spill_fails:
            self.around.trace.effects["no room to spill"] += 1
            raise OSError(errno.ENOSPC, "simulated: no space left on device")

    def _loses_leader(self, process: Process) -> bool:
        running = process.alive and not process.paused
        return self.active and running and self.random.random() < self.shape.leader_fails / 2

    def stop(self) -> None:
        """From now on everything works."""
        self.active = False
        around = self.around
        around.network.heal()
        self.cluster.skews = (0,)
        weather, zookeeper, store = around.network.weather, around.zookeeper.trouble, around.store.trouble
        weather.delay, weather.lost, weather.repeated, weather.slow = 300, 0.0, 0.0, 0.0
        store.delay = 500
        zookeeper.unknown = zookeeper.slow = zookeeper.stale = 0.0
        store.fails = store.late = store.late_writes = store.unreadable = store.damaged = 0.0
        store.down_until = 0
        self.sources.habits.repeats = 0.0
        for process in list(self.cluster.processes.values()):
            process.skew = 0
            process.resume()
            if isinstance(process, ViewServerProcess):
                process.go_on()
                waits = max(0, process.waits_until - around.scheduler.now)
                self.to_come += -(-waits // (self.shape.quiet_ms * MS))
        self.cluster.end_versions()

    def _struck(self, what: str) -> None:
        self.struck.append(what)
        self._tell(what)

    def _tell(self, what: str) -> None:
        self.around.trace.record(self.around.scheduler.now, "nemesis", what)

    # ------------------------------------------------------------------ the means

    def anyone(self) -> Process | None:
        running = [p for p in self.cluster.processes.values() if p.alive and not p.paused]
        return self.random.choice(running) if running else None

    def pause(self, process: Process, time: int) -> None:
        process.pause()
        notices = self.random.choice((0, 2, 20, 100)) * MS
        self.around.scheduler.after(time, lambda: process.resume(notices))

    def _short(self) -> int:
        """Shorter than a session lives."""
        return int(self.around.zookeeper.timeout * self.random.uniform(0.1, 0.6))

    def _long(self) -> int:
        return int(self.around.zookeeper.timeout * self.random.uniform(1.1, 3.0))

    def _some_time(self) -> int:
        return self._short() if self.random.random() < 0.5 else self._long()

    def crash(self) -> None:
        process = self.anyone()
        if process is not None:
            process.crash()

    def crash_in_the_middle(self) -> None:
        process = self.anyone()
        if process is not None:
            process.set_fuse(self.random.randint(0, 8), process.crash)

    def pause_someone(self) -> None:
        process = self.anyone()
        if process is not None:
            self.pause(process, self._some_time())

    def pause_in_the_middle(self) -> None:
        process = self.anyone()
        if process is not None:
            time = self._some_time()
            process.set_fuse(self.random.randint(0, 8), lambda: self.pause(process, time))

    def suspend(self) -> None:
        process = self.anyone()
        if process is not None:
            self.around.zookeeper.break_connection(process.name, self.around.scheduler.now + self._some_time())

    def exclude(self) -> None:
        """A view server that cannot reach ZooKeeper: the others go on without it, and it can still be asked."""
        servers = [server for server in self.cluster.viewservers if not server.paused]
        if servers:
            until = self.around.scheduler.now + 3 * self.around.zookeeper.timeout
            self.around.zookeeper.break_connection(self.random.choice(servers).name, until)

    def expire(self) -> None:
        process = self.anyone()
        if process is not None:
            self.around.zookeeper.expire(process.name)

    def suspect(self) -> None:
        """The leader takes someone for dead, rightly or not: whoever crashed just now, or anyone."""
        leader = self.cluster.leader()
        suspects = [p for p in self.cluster.processes.values() if p.role in (Role.VIEWSERVER, Role.DISTRIBUTOR)]
        if leader is None or leader.paused or not suspects:
            return
        suspect = self.random.choice(suspects)
        if suspect.alive and not suspect.paused and self.random.random() < 0.5:
            suspect.crash()
        self._tell(f"{leader.name} will take {suspect.name} for dead")
        self.around.scheduler.after(self.random.choice((1, 30)) * MS, lambda: leader.suspect(suspect.name))

    def isolate(self) -> None:
        process = self.anyone()
        if process is not None:
            time = self._some_time()
            self._tell(f"nobody hears {process.name} for {time // MS} ms")
            self.around.network.isolate(process.name, self.around.scheduler.now + time)

    def part(self) -> None:
        one, other = self.anyone(), self.anyone()
        if one is not None and other is not None and one is not other:
            time = self._some_time()
            self._tell(f"nothing comes from {one.name} to {other.name} for {time // MS} ms")
            self.around.network.part(one.name, other.name, self.around.scheduler.now + time)

    def jump_clock(self) -> None:
        """The leader's, half of the time: others' clocks matter little."""
        process: Process | None = self.cluster.leader()
        steps = (-20_000, -3_000, 3_000, 20_000, 20_000, 20_000)
        if process is None or self.random.random() < 0.5:
            process, steps = self.anyone(), (-20_000, -3_000, -50, 50, 3_000, 20_000)
        if process is not None:
            self.clocks_are_off = True
            step = self.random.choice(steps)
            process.skew += step
            self._tell(f"the clock of {process.name} jumps by {step} ms to {process.skew} ms off")

    def store_outage(self) -> None:
        """Nothing that anybody asks of the store is answered for a while; some of it happens."""
        time = self._some_time()
        self._tell(f"the store answers nothing for {time // MS} ms")
        trouble = self.around.store.trouble
        trouble.down_until = max(trouble.down_until, self.around.scheduler.now + time)

    def store_crash(self) -> None:
        """The store's process ends and is started again. It has the base tables as well: their logs are pushed anew."""
        time = self._some_time()
        self._tell(f"the store crashes and is back after {time // MS} ms")
        self.around.store.crash(self.around.scheduler.now + time)
        for region in list(self.sources.regions.values()):
            self.sources.move(region)

    def zookeeper_outage(self) -> None:
        time = self._some_time()
        self._tell(f"ZooKeeper cannot be reached for {time // MS} ms")
        until = self.around.scheduler.now + time
        for process in list(self.cluster.processes.values()):
            self.around.zookeeper.break_connection(process.name, until + self.random.randint(0, 300) * MS)

    def move(self) -> None:
        region = self.random.choice(list(self.sources.regions.values()))
        self.sources.move(region)
        self._tell(f"{region.id} moves to {region.node}")

    def split(self) -> None:
        region = self.random.choice(self.sources.open())
        self.sources.split(region)
        self._tell(f"{region.id} splits after {region.last}")

    def merge(self) -> None:
        neighbours = self.sources.neighbours()
        if neighbours:
            left, right = self.random.choice(neighbours)
            self.sources.merge(left, right)
            self._tell(f"{left.id} and {right.id} merge after {left.last} and {right.last}")

    def scale_up(self) -> None:
        self.cluster.add(self.random.choice(("viewserver", "viewserver", "distributor")))

    def visit(self) -> None:
        """A view server that comes and goes: what it owned meanwhile goes back to those who had it before."""
        host = self.cluster.add("viewserver")
        if host is not None:
            stay = self.random.randint(200, 900) * MS
            self.around.scheduler.after(stay, lambda: self._in_an_epoch(lambda: self.cluster.withdraw(host), 120))

    def evict(self) -> None:
        """A view server forgets some of what it holds between two epochs."""
        for server in self.cluster.viewservers:
            server.forget_some(self.random.choice((0.3, 1.0)))

    def hang(self) -> None:
        """A view server computes nothing for longer than the leader is patient, while its session lives: it is left
        out with work in progress, and goes on with it. What it needs for that it has to load."""
        servers = [server for server in self.cluster.viewservers if not server.paused]
        if len(servers) > 1 and not any(server.hangs for server in servers):
            self.random.choice(servers).hang(int(self.shape.quiet_ms * MS * self.random.choice((0.3, 1.3, 3.0, 6.0))))

    def demote(self) -> None:
        """The leader is not the elected one any more, most often when it has a plan ready; then it is again, after
        others have led."""
        self._demote_when_prepared(60)
        for later in (500, 1_000):
            self.around.scheduler.after(self.random.randint(later // 2, later) * MS, self._demote)

    def _demote_when_prepared(self, looks: int) -> None:
        leader = self.cluster.leader()
        if looks and (leader is None or leader.machine._prepared is None):
            self.around.scheduler.after(5 * MS, lambda: self._demote_when_prepared(looks - 1))
        else:
            self._demote()

    def _demote(self) -> None:
        leader, zookeeper = self.cluster.leader(), self.around.zookeeper
        if leader is not None and self.active:
            self._tell(f"{leader.name} is not elected any more")
            zookeeper.resign(leader.name)
            self.around.scheduler.after(50 * MS, lambda: zookeeper.campaign(leader.name))

    def other_engine(self) -> None:
        """One that has none of the pool's engines, and may not say so."""
        version = self.random.choice((ONLY_NEXT, UNSAID))
        last = self.cluster.release == len(RELEASES) - 1
        self._guest(ONLY_AFTER_NEXT if last and version is ONLY_NEXT else version)

    def other_ring(self) -> None:
        self._guest(Version(ring=True))

    def other_protocol(self) -> None:
        """One that speaks none of the pool's."""
        self._guest(Version(protocols=(PROTOCOL + 3, PROTOCOL + 4)))

    def _guest(self, version: Version) -> None:
        """A member of another version, that somebody takes away again."""
        host = self.cluster.add(self.random.choice(("viewserver", "distributor")), version)
        if host is not None:
            stay = self.random.randint(300, 1_500) * MS
            self.around.scheduler.after(stay, lambda: self.cluster.remove(host))

    def upgrade(self) -> None:
        """From now on processes that start are of the next version: they speak the next protocol and have the next
        engine as well. Somebody is started again. The version after that comes when the pool has this one's engine."""
        state = self.around.zookeeper.record.state
        if state is not None and state.engine == RELEASES[self.cluster.release].engines.newest:
            self.cluster.release = min(self.cluster.release + 1, len(RELEASES) - 1)
        process = self.anyone()
        if process is not None:
            process.crash()

    def scale_down(self) -> None:
        hosts = self.cluster.wanted(self.random.choice(("viewserver", "viewserver", "distributor")))
        self.cluster.withdraw(self.random.choice(hosts))


KINDS = (
    Kind("crash", 2, Nemesis.crash),
    Kind("crash in the middle", 2, Nemesis.crash_in_the_middle),
    Kind("pause", 2, Nemesis.pause_someone),
    Kind("pause in the middle", 2, Nemesis.pause_in_the_middle),
    Kind("suspend", 1, Nemesis.suspend),
    Kind("exclude", 1, Nemesis.exclude),
    Kind("expire", 1, Nemesis.expire),
    Kind("suspect", 1, Nemesis.suspect),
    Kind("isolate", 2, Nemesis.isolate),
    Kind("part", 2, Nemesis.part),
    Kind("clock jumps", 2, Nemesis.jump_clock),
    Kind("store outage", 1, Nemesis.store_outage),
    Kind("store crash", 1, Nemesis.store_crash),
    Kind("ZooKeeper outage", 0.7, Nemesis.zookeeper_outage),
    Kind("move", 1, Nemesis.move),
    Kind("split", 1, Nemesis.split),
    Kind("merge", 1, Nemesis.merge),
    Kind("scale up", 1.5, Nemesis.scale_up),
    Kind("scale down", 1.5, Nemesis.scale_down),
    Kind("visit", 2.5, Nemesis.visit),
    Kind("evict", 2, Nemesis.evict),
    Kind("demote", 1.5, Nemesis.demote),
    Kind("hang", 1.5, Nemesis.hang),
    Kind("other engine", 1.5, Nemesis.other_engine),
    Kind("other ring", 1.5, Nemesis.other_ring),
    Kind("other protocol", 1.5, Nemesis.other_protocol),
    Kind("upgrade", 0.7, Nemesis.upgrade),
)


def spilling(work: ServerWork, spills: Action) -> None:
    """Whenever this view server spills, `spills` is called first, and may raise."""

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            spills()
            return call(*arguments)

        return called

    def make() -> Any:
        shard = made()
        shard._budget.note_spill = before(shard._budget.note_spill)  # type: ignore[method-assign]
        return shard

    made, work._make_shard = work._make_shard, make
    work._shard = make()
    work.batch_buffer._spill._append = before(work.batch_buffer._spill._append)  # type: ignore[method-assign]
