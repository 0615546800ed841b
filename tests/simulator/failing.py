"""Views that cannot be computed: which ones a history has, how they fail, and what the pool may say of them.

    always         wherever and whenever it is computed, until somebody creates it again after the faults
    sometimes      every now and then, and after the faults never
    bucket         where one bucket is owned
    turns          two views, one in each other attempt
    new version    every version but the first: while it is built, or later
    full disk      nothing of the view: the disk of whoever computes it has no room, for a while

Drawn from a seed of its own, so that histories without it are what they were.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.work import ServerWork
from belvedere.plan import nodes
from belvedere.protocol.amending import BLAMED_AFTER
from belvedere.protocol.ring import BUCKETS
from tests.simulator.oracle import Truth, Wrong
from tests.simulator.schema import BY_QUERY

THEME = "failing views"
SHARE = 0.08
"""Of histories of other themes that have such a view as well."""
HOW = ("always", "always", "sometimes", "bucket", "turns", "new version", "full disk")
LATER = ("big", "spend", "spend", "levels", "levels", "notes")
ROOT = "ValueError: simulated"
OFTEN = 0.6
"""How often a view that fails sometimes does."""


@dataclass
class Plant:
    """`deep`: what fails may be shared with other views."""

    how: str
    view: str
    bucket: int
    deep: bool
    turn: int


@dataclass
class FailingViews:
    random: random.Random
    plants: list[Plant]
    effects: Counter[str]
    active: bool = True
    """Faults are not over."""
    mended: bool = False
    _failures: dict[tuple[int, str, int], dict[int, set[str]]] = field(default_factory=dict)
    """(epoch, view, view group): who failed in which attempt."""
    _seen: set[tuple[str, int]] = field(default_factory=set)

    # ------------------------------------------------------------------ failing

    def aim(self, views: Sequence[str]) -> None:
        """Mostly at those that there are from the beginning."""
        for plant in self.plants:
            plant.view = self.random.choice((*views, *views, *views, self.random.choice(LATER)))

    def into(self, work: ServerWork) -> None:
        """From now on this view server fails."""

        def make() -> Any:
            shard = made()
            shard._step = self._before(work, shard, shard._step)
            return shard

        made, work._make_shard = work._make_shard, make
        work._shard = make()

    def _before(self, work: ServerWork, shard: Any, step: Callable[..., Any]) -> Callable[..., Any]:
        def called(running: Any, one: Any, run: Any, outputs: Any) -> Any:
            for plant in self.plants:
                if self._strikes(plant, work, shard, one, run, outputs):
                    self._fail(plant, work, running.epoch, one.view_group.number, run)
            return step(running, one, run, outputs)

        return called

    def _strikes(self, plant: Plant, work: ServerWork, shard: Any, one: Any, run: Any, outputs: Any) -> bool:
        if self.mended or plant.view not in run.views or all(outputs[feed] is None for feed in run.feeds):
            return False
        if not plant.deep and not (isinstance(run.step, nodes.ViewNode) and run.step.name == plant.view):
            return False
        assert work._open is not None
        match plant.how:
            case "always":
                return True
            case "bucket":
                return bool(shard._owner[plant.bucket] == shard._me)
            case "turns":
                return work._open.attempt % 2 == plant.turn
            case "new version":
                return bool(one.view_group.number > 1)
            case _:
                return self.active and self.random.random() < OFTEN

    def _fail(self, plant: Plant, work: ServerWork, epoch: int, view_group: int, run: Any) -> None:
        self.effects[f"view fails: {plant.how}"] += 1
        if plant.how == "full disk":
            raise OSError(errno.ENOSPC, "simulated: no space left on device")
        assert work._open is not None
        for view in run.views:
            attempts = self._failures.setdefault((epoch, view, view_group), {})
            attempts.setdefault(work._open.attempt, set()).add(work.me)
        raise ValueError(f"simulated: view {plant.view} cannot be computed")

    # ------------------------------------------------------------------ the judge

    def check(self, truth: Truth) -> None:
        """Whatever has failed at a committed epoch failed often enough in the epoch since which it has, or has to do
        with what did."""
        failed = catalogs.compile(truth.document).failed if truth.document else ()
        names = {one.view.definition.name for one in failed}
        for one in failed:
            name, number, failure = one.view.definition.name, one.view.view_group, one.failure
            if failure.epoch > truth.epoch:
                raise Wrong(f"epoch {truth.epoch} says that view {name} has failed since epoch {failure.epoch}")
            if failure.reason.startswith(ROOT):
                attempts = self._failures.get((failure.epoch, name, number), {})
                if len(attempts) < BLAMED_AFTER:
                    raise Wrong(
                        f"view {name} of view group {number} is set aside since epoch {failure.epoch}, where it failed "
                        f"in {len(attempts)} attempts"
                    )
                if (name, number) not in self._seen:
                    self.effects["view set aside" if failure.served else "new view or version set aside"] += 1
            else:
                spec = BY_QUERY[one.view.definition.sql]
                readers = {other for other in names if name in _reads(failed, other)}
                # Of one that could not be built nothing is there but the reason, which stays when the other is mended.
                known = not failure.served and (name, number) in self._seen
                if not (known or set(spec.reads) & names or (readers and not failure.served)):
                    raise Wrong(f"view {name} is set aside since epoch {failure.epoch}, for another: {failure.reason}")
                if (name, number) not in self._seen:
                    self.effects["view set aside with another"] += 1
            self._seen.add((name, number))

    def unfinished(self, truth: Truth) -> list[str]:
        """Views that somebody has to create again."""
        if not truth.document:
            return []
        return sorted({*catalogs.failed_at(truth.document, truth.building), *catalogs.failed_builds(truth.document)})


def _reads(failed: Any, name: str) -> tuple[str, ...]:
    return next((BY_QUERY[one.view.definition.sql].reads for one in failed if one.view.definition.name == name), ())


def draw(seed: int, theme: str, effects: Counter[str]) -> FailingViews | None:
    rng = random.Random(f"failing {seed}")
    if theme != THEME and rng.random() >= SHARE:
        return None
    plants = []
    for _ in range(rng.choice((1, 1, 2))):
        how, bucket, deep = rng.choice(HOW), rng.randrange(BUCKETS), rng.random() < 0.3
        plants.append(Plant(how, "", bucket, deep, 0))
        if how == "turns":
            plants.append(Plant(how, "", bucket, deep, 1))
    return FailingViews(rng, plants, effects)
