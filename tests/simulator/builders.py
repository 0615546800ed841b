"""Builders that compute view groups aside, as Spark does: they look for what the leader awaits, compute it from the
store as of its epoch, write it piece by piece, and say that it is done. They die in the middle, do it twice, and come
back to life when everything is over."""

from __future__ import annotations

import random
from collections.abc import Callable

from belvedere import errors
from belvedere.backend.seam import TableWrite
from belvedere.cluster.catalog.aside import AsideBuild
from belvedere.cluster.process.next_engine import REBUILDS, engines_of
from belvedere.cluster.roles.recomputing import recompute
from belvedere.engine.version import ENGINE_VERSION
from tests.simulator.coordinators import CoordinatorProcess
from tests.simulator.process import Surroundings
from tests.simulator.scheduler import MS

ENGINES = engines_of(ENGINE_VERSION, REBUILDS)
LOOK = 70 * MS


class Builders:
    def __init__(
        self, around: Surroundings, leader: Callable[[], CoordinatorProcess | None], rng: random.Random
    ) -> None:
        self._around, self._leader, self._random = around, leader, rng
        self._busy: set[AsideBuild] = set()
        self.faulty = True

    def start(self) -> None:
        self._around.scheduler.after(LOOK, self._look)

    def _look(self) -> None:
        self._around.scheduler.after(LOOK, self._look)
        leader = self._leader()
        plan = None if leader is None else leader.committed
        if leader is None or plan is None:
            return
        for number, since in leader.machine.awaited.items():
            build = AsideBuild(number, since)
            if since and since <= plan.epoch and build not in self._busy:
                self._begin(build, leader.machine.catalog[1], leader.machine.engine)

    def _begin(self, build: AsideBuild, document: str, engine: int) -> None:
        memory = self._around.store.memory
        data, slices = memory.get_document(document), self._random.choice((1, 2, 5))
        if data is None:
            return
        try:
            wanted = recompute(
                memory,
                data,
                engine,
                {build.view_group},
                build.since,
                parts=slices,
                below=False,
                as_stored=False,
                previous_images=memory.previous_images,
                engines=ENGINES,
            )
            writes = list(wanted)
        except errors.BelowHorizon:
            # A leader that was replaced meanwhile awaits what is over. If nobody keeps it, views never come to service.
            self._effect("builder that came too late")
            return
        self._busy.add(build)
        at = 0
        dies = self.faulty and self._random.random() < 0.3
        for write in writes[: self._random.randrange(len(writes) + 1) if dies else None]:
            at += self._random.choice((0, 1, 20, 150)) * MS
            self._after(at, lambda write=write: self._write(build, write))
            if self.faulty and self._random.random() < 0.1:
                late = at + self._random.choice((50, 500, 2_000)) * MS
                self._after(late, lambda write=write: self._write(build, write))
        self._after(at + 1, lambda: self._died(build) if dies else self._done(build))

    def _after(self, delay: int, action: Callable[[], None]) -> None:
        self._around.scheduler.after(delay, action)

    def _write(self, build: AsideBuild, write: TableWrite) -> None:
        self._around.store.memory.write(build.since + 1, [write])

    def _died(self, build: AsideBuild) -> None:
        self._effect("builder died")
        self._busy.discard(build)

    def _done(self, build: AsideBuild) -> None:
        self._effect("view group computed aside")
        self._around.store.memory.put_document(build.done, b"")
        if self.faulty and self._random.random() < 0.2:
            self._busy.discard(build)  # another one comes and does it again

    def _effect(self, what: str) -> None:
        self._around.trace.effect(self._around.scheduler.now, "builder", what)
