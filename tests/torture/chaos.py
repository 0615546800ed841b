"""Faults on real processes, chosen by a seeded die: kill -9, SIGSTOP, scaling, ZooKeeper, the catalog, the sources.

Two threads: one does what is done to processes, every second or two; the other what an administrator does (views that
come and go, sources that split, merge and move), which may have to wait for a pool that is just being tortured.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from belvedere import errors
from belvedere.backend.seam import SourceInfo
from belvedere.backend.served.base_service import BaseClient
from belvedere.cluster.catalog.catalogs import ServedTable
from belvedere.cluster.client.database import ClusterDatabase
from belvedere.cluster.client.inquiry import status_of
from belvedere.cluster.process.local import LocalCluster, RoleProcess
from belvedere.engine.vec import Vec
from belvedere.model.base_keys import encode_keys
from belvedere.protocol.messages import Role
from belvedere.retry import Deadline
from belvedere.types import BIGINT
from tests.torture.lineage import Ranges, number
from tests.torture.watching import Watcher
from tests.torture.workload import CUSTOMERS, ORDERS, TEMPORARY

LEAVE_SECONDS = 10.0
GROWN_SECONDS = 5.0
PATIENCE_SECONDS = 15.0
RECOVERY_SECONDS = 120.0
TICK = 0.1
SERVERS = (2, 4)
DISTRIBUTORS = (2, 3)
STORE_NODES = 4
SPLIT = {"orders": ORDERS, "customers": CUSTOMERS}
"""Tables whose sources are split, with the number of their keys. The accounts stay in one source: so all of a transfer
is in one entry, and money is never on its way."""
MOST_SOURCES = 5


@dataclass(frozen=True)
class Fault:
    kind: str
    target: str
    at: float
    """Monotonic."""
    lasts: float = 0.0


@dataclass(frozen=True)
class Leaving:
    child: RoleProcess
    at: float


class Chaos(Watcher):
    """Torments the processes of a cluster until it is stopped; then everything runs again."""

    WEIGHTS = {
        "kill viewserver": 6,
        "kill distributor": 4,
        "kill leader": 3,
        "kill coordinator": 1,
        "kill store": 2,
        "pause viewserver": 4,
        "pause distributor": 2,
        "pause leader": 2,
        "pause store": 1,
        "add viewserver": 4,
        "retire viewserver": 4,
        "add distributor": 1,
        "retire distributor": 1,
        "restart zookeeper": 0.5,
        "kill zookeeper": 0.5,
        "kill everything": 0.4,
    }

    def __init__(
        self, cluster: LocalCluster, seed: int, say: Callable[[str], None], idle: Callable[[], float] = lambda: 0.0
    ) -> None:
        """`idle`: seconds since the last commit."""
        super().__init__("chaos")
        self._cluster, self._rng, self._say = cluster, random.Random(seed * 7 + 1), say
        self._idle = idle
        self.breaths: list[float] = []
        """How long it was held back, each time that nothing had been committed for long."""
        self.faults: list[Fault] = []
        self.left: list[tuple[str, float, int]] = []
        """Who was asked to leave, how long it took, and its exit code."""
        self._leaving: list[Leaving] = []
        self._paused: list[tuple[float, RoleProcess]] = []
        self._bag: list[str] = []

    # ------------------------------------------------------------------ the thread

    def work(self) -> None:
        following = time.monotonic() + 1.0
        try:
            while not self.stopping.wait(TICK):
                self.look_after()
                if time.monotonic() >= following:
                    if self._idle() > PATIENCE_SECONDS:
                        self._hold_breath()
                    self.inflict(self._draw())
                    following = time.monotonic() + self._rng.uniform(1.0, 2.0)
        finally:
            self.settle()

    def _hold_breath(self) -> None:
        """Where something is always dead nothing is committed, and nothing is tested: let it get up again. It must."""
        begin = time.monotonic()
        while self._idle() > PATIENCE_SECONDS and not self.stopping.wait(TICK):
            self.look_after()
            waited = time.monotonic() - begin
            assert waited < RECOVERY_SECONDS, f"left alone for {waited:.0f} s, the pool commits nothing"
        self.breaths.append(time.monotonic() - begin)
        self._say(f"commits again, left alone for {self.breaths[-1]:.1f} s")

    def _draw(self) -> str:
        """Every kind comes once before the rest is left to chance."""
        if not self.faults:
            self._bag = list(self.WEIGHTS)
            self._rng.shuffle(self._bag)
        if self._bag:
            return self._bag.pop()
        return self._rng.choices(list(self.WEIGHTS), list(self.WEIGHTS.values()))[0]

    def look_after(self) -> None:
        """Wake who slept long enough; see who has left."""
        now = time.monotonic()
        for wake, child in list(self._paused):
            if now >= wake:
                self._paused.remove((wake, child))
                self._signal(child, signal.SIGCONT)
        for leaving in list(self._leaving):
            process = leaving.child.process
            assert process is not None
            if process.poll() is not None:
                self._leaving.remove(leaving)
                self.left.append((leaving.child.name, now - leaving.at, process.returncode))
                if process.returncode:
                    self._say(
                        f"{leaving.child.name} left with code {process.returncode} after {now - leaving.at:.1f} s"
                    )
            else:
                taken = now - leaving.at
                assert taken < LEAVE_SECONDS + 5.0, f"{leaving.child.name} does not leave: {taken:.1f} s"

    def settle(self) -> None:
        """Nobody sleeps, nobody is about to leave."""
        for _, child in self._paused:
            self._signal(child, signal.SIGCONT)
        self._paused.clear()
        while self._leaving:
            self.look_after()
            time.sleep(TICK)

    def wait_until_left(self) -> None:
        while self._leaving:
            self.look_after()
            time.sleep(0.01)

    # ------------------------------------------------------------------ faults

    def inflict(self, kind: str, lasts: float | None = None) -> Fault | None:
        """None if there is nobody whom it could happen to just now."""
        verb, _, role = kind.partition(" ")
        if role == "zookeeper":
            return self._zookeeper(verb)
        if role == "everything":
            return self._blackout()
        if verb == "add":
            return self._add(Role(role))
        target = self._choose(verb, role)
        if target is None:
            return None
        if verb == "retire":
            fault = self._note(kind, target.name)
            self._cluster.retire(target.name)
            self._leaving.append(Leaving(target, fault.at))
            return fault
        if verb == "kill":
            fault = self._note(kind, target.name)
            self._kill(target)
            return fault
        seconds = self._rng.choice([0.5, 1.0, 2.0, 3.5, 6.0, 8.0]) if lasts is None else lasts
        fault = self._note(kind, target.name, seconds)
        self._signal(target, signal.SIGSTOP)
        self._paused.append((fault.at + seconds, target))
        return fault

    def _choose(self, verb: str, role: str) -> RoleProcess | None:
        asleep = [child for _, child in self._paused]
        leaving = [one.child for one in self._leaving]
        able = [c for c in list(self._cluster.children.values()) if c.running and c.wanted and c not in leaving]
        if self._rng.random() < 0.9:  # seldom one that is just starting: nobody would notice
            able = [child for child in able if _age(child) > GROWN_SECONDS]
        if verb != "kill":
            able = [child for child in able if child not in asleep]
        if role == "leader":
            leader = self.leader()
            able = [child for child in able if child.name == leader]
        else:
            able = [child for child in able if child.role.value == role]
        if verb == "retire":
            least = SERVERS[0] if role == "viewserver" else DISTRIBUTORS[0]
            present = self.members()
            if len(able) <= least:
                return None
            # one that is just starting does not listen to signals yet
            able = [child for child in able if child.name in present and _age(child) > GROWN_SECONDS]
        return self._rng.choice(able) if able else None

    def _add(self, role: Role) -> Fault | None:
        most = SERVERS[1] if role is Role.VIEWSERVER else DISTRIBUTORS[1]
        if sum(1 for c in list(self._cluster.children.values()) if c.role is role and c.wanted) >= most:
            return None
        child = self._cluster.add(role)
        return self._note(f"add {role.value}", child.name)

    def _kill(self, child: RoleProcess) -> None:
        child.pauses.reset()  # what is tested is not the patience of the one who starts it again
        self._signal(child, signal.SIGKILL)
        self._paused = [(wake, asleep) for wake, asleep in self._paused if asleep is not child]

    def _blackout(self) -> Fault:
        fault = self._note("kill everything", "all roles")
        for child in list(self._cluster.children.values()):
            if child.wanted:
                self._kill(child)
        return fault

    def _zookeeper(self, verb: str) -> Fault:
        fault = self._note(f"{verb} zookeeper", "zookeeper")
        self._cluster.zookeeper.stop(kill=verb == "kill")
        time.sleep(self._rng.choice([0.0, 0.5, 2.0]))
        self._cluster.zookeeper.start()
        self._say(f"zookeeper is back after {time.monotonic() - fault.at:.1f} s")
        return fault

    def _note(self, kind: str, target: str, lasts: float = 0.0) -> Fault:
        fault = Fault(kind, target, time.monotonic(), lasts)
        self.faults.append(fault)
        self._say(f"{kind}: {target}" + (f" for {lasts:g} s" if lasts else ""))
        return fault

    @staticmethod
    def _signal(child: RoleProcess, what: signal.Signals) -> None:
        if child.process is not None:
            child.process.send_signal(what)

    # ------------------------------------------------------------------ who is there

    def leader(self) -> str:
        """Its name; empty if nobody knows just now."""
        found = status_of(self._cluster.coordinators, 1.0)
        return str(found.get("leader", "")).rpartition("-")[0]

    def members(self) -> dict[str, list[str]]:
        """Ids of members by the name of their process; there are several while an earlier one is not yet known to be
        dead."""
        found: dict[str, list[str]] = {}
        for member in status_of(self._cluster.coordinators, 2.0).get("members", []):
            found.setdefault(str(member["id"]).rpartition("-")[0], []).append(str(member["id"]))
        return found


class Administrator(Watcher):
    """Changes of the catalog and of the sources, one at a time."""

    def __init__(
        self,
        connect: Callable[[], ClusterDatabase],
        ranges: Ranges,
        seed: int,
        pause: float,
        say: Callable[[str], None],
    ) -> None:
        super().__init__("administrator")
        self._connect, self._ranges, self._rng, self._say = connect, ranges, random.Random(seed * 7 + 2), say
        self._pause = pause
        self.done: dict[str, int] = {}

    def work(self) -> None:
        with self._connect() as db:
            while not self.stopping.wait(self._rng.uniform(0.5, 1.5) * self._pause):
                chosen = self._rng.choice([self._catalog, self._split, self._split, self._merge, self._move])
                begin = time.monotonic()
                try:
                    chosen(db)
                    self._say(f"administrator: done in {time.monotonic() - begin:.1f} s")
                except (errors.Unavailable, errors.CatalogError) as error:
                    self._say(f"administrator: {type(error).__name__}: {str(error)[:200]}")
                    self._count("failed")
                observe(db, self._ranges)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # ------------------------------------------------------------------ the catalog

    def _catalog(self, db: ClusterDatabase) -> None:
        name = f"temporary_{self._rng.randrange(2)}"
        if self._rng.random() < 0.3:
            self._say(f"drop view {name}")
            db.execute(f"DROP MATERIALIZED VIEW IF EXISTS {name}")
            self._count("drop view")
        else:
            self._say(f"create view {name}")
            query = self._rng.choice(TEMPORARY)
            db.execute(f"CREATE OR REPLACE MATERIALIZED VIEW {name} AS {query}", wait=self._rng.random() < 0.5)
            self._count("create view")

    # ------------------------------------------------------------------ sources

    def _split(self, db: ClusterDatabase) -> None:
        table = self._rng.choice(list(SPLIT))
        open = self._open(db, table)
        source = self._rng.choice(open).id
        keys = self._ranges.keys(source)
        first, stop = max(keys.first, -1), min(keys.stop, SPLIT[table])
        if len(open) >= MOST_SOURCES or stop - first < 2:
            return
        cut = self._rng.randrange(first + 1, stop)
        self._ranges.will_split(source, cut)
        self._say(f"split {source} at {cut}")
        self._with_base(db, lambda base: base.split(source, _encoded(cut)))
        self._count("split")

    def _merge(self, db: ClusterDatabase) -> None:
        table = self._rng.choice(list(SPLIT))
        open = sorted(self._open(db, table), key=lambda info: self._ranges.keys(info.id).first)
        if len(open) < 2:
            return
        at = self._rng.randrange(len(open) - 1)
        self._say(f"merge {open[at].id} and {open[at + 1].id}")
        self._with_base(db, lambda base: base.merge(open[at].id, open[at + 1].id))
        self._count("merge")

    def _move(self, db: ClusterDatabase) -> None:
        source = self._rng.choice(self._open(db, self._rng.choice(list(SPLIT)))).id
        node = f"node-{self._rng.randrange(STORE_NODES)}"
        self._say(f"move {source} to {node}")
        self._with_base(db, lambda base: base.move(source, node))
        self._count("move")

    def _open(self, db: ClusterDatabase, table: str) -> list[SourceInfo]:
        listing = db.stores(Deadline(60.0)).sources()
        self._ranges.observe(listing)
        stored = stored_name(db, table)
        return sorted((s for s in listing if s.table == stored and s.last is None), key=lambda s: number(s.id))

    @staticmethod
    def _with_base(db: ClusterDatabase, call: Callable[[BaseClient], object]) -> None:
        with contextlib.closing(BaseClient(db.pool.store_address(Deadline(60.0)), timeout=5.0)) as base:
            call(base)


def _age(child: RoleProcess) -> float:
    try:
        return time.time() - os.stat(f"/proc/{child.pid}").st_ctime
    except OSError:
        return 0.0


def observe(db: ClusterDatabase, ranges: Ranges) -> None:
    """The sources as they are now."""
    while True:
        with contextlib.suppress(errors.Unavailable):
            ranges.observe(db.stores(Deadline(60.0)).sources())
            return


def stored_name(db: ClusterDatabase, table: str) -> str:
    known = db.epochs.newest(Deadline(60.0))
    served = db.epochs.names(known.committed, Deadline(60.0))[table]
    assert isinstance(served, ServedTable)
    return served.stored.name


def _encoded(key: int) -> bytes:
    return encode_keys([Vec.from_arrow(pa.array([key], pa.int64()), BIGINT)], "a split")[0]
