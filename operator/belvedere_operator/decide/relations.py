"""What is to be done about the tables and views of one pool, as one decision.

All that is pending goes to the pool as one change, so that views share state and one epoch. What a resource waits for
is said, and nothing waits for ever:

* a resource that is deleted holds its finalizer until its relation is dropped, or nobody is there who could drop it:
  the pool is gone, keeps the relation on purpose (`Retain`), or has another resource of that name;
* a pool that does not answer is given `GRACE_S`, then the resource goes and the drop is noted in the pool's status, to
  be done when the pool is back;
* a relation that others read stays, with their names, until they are gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from belvedere_operator.api.base_table import RETAIN
from belvedere_operator.api.view_pool import PendingDrop
from belvedere_operator.decide import builds, trials
from belvedere_operator.decide.items import TABLE, VIEW, Item, PoolState, name_holders
from belvedere_operator.decide.ordering import readers_last
from belvedere_operator.gateway import PoolFigures
from belvedere_operator.times import age_s

NAME_TAKEN = "NameTaken"
GRACE_S = 60.0
"""How long the deletion of a view or table waits for a pool that does not answer."""
RETRY_S = 60.0
"""How long after a refusal the same text is tried again: what it lacked may be there by now."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A relation that the pool shall drop; `item`: the resource that goes when that is done."""

    name: str
    kind: str
    item: Item | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The last time that documents were sent: which texts, and when."""

    digests: frozenset[str] = frozenset()
    at: float = float("-inf")


@dataclass(frozen=True, slots=True)
class Plan:
    """To be done, in this order."""

    finalize: tuple[Item, ...] = ()
    drops: tuple[Drop, ...] = ()
    apply: tuple[Item, ...] = ()
    verify: tuple[Item, ...] = ()
    """Views whose trial is built and has to be verified."""
    trying: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """How far trials are: reason and message, by resource."""
    release: tuple[Item, ...] = ()
    waiting: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Why something is not done: reason and message, by resource."""
    pending_drops: tuple[PendingDrop, ...] = ()
    """What remains to be dropped when the pool is back."""

    def documents(self) -> list[dict[str, Any]]:
        return [item.document() for item in self.apply]


def decide(
    items: Sequence[Item],
    pool: PoolState,
    figures: PoolFigures | None,
    *,
    now: float,
    pending: Sequence[PendingDrop] = (),
    last: Attempt | None = None,
    verdicts: Mapping[str, trials.Verdict] | None = None,
    has_spark: bool = True,
    auto_above: str | None = None,
) -> Plan:
    """`figures`: what the pool tells, if it is up. `pending`: drops of resources that are gone. `verdicts`: of trials,
    by their names."""
    decision = _Decision(pool, figures, now, name_holders(items), verdicts or {}, has_spark)
    there = {name.lower() for name in (*figures.tables, *figures.views)} if figures is not None else set()
    for item in items:
        if not item.paused:
            decision.look_at(item, there)
    decision.old_drops(pending, there)
    decision.end_trials()
    decision.order_drops()
    plan = decision.plan(last or Attempt())
    apply = tuple(builds.built_by(item, figures, has_spark, auto_above) for item in plan.apply)
    return replace(plan, apply=apply)


class _Decision:
    def __init__(
        self,
        pool: PoolState,
        figures: PoolFigures | None,
        now: float,
        holders: Mapping[str, Item],
        verdicts: Mapping[str, trials.Verdict],
        has_spark: bool,
    ) -> None:
        self._pool, self._figures, self._now, self._holders = pool, figures, now, holders
        self._verdicts, self._has_spark = verdicts, has_spark
        self._trials: set[str] = set()
        self._verify: list[Item] = []
        self._trying: dict[tuple[str, str], tuple[str, str]] = {}
        self._finalize: list[Item] = []
        self._release: list[Item] = []
        self._apply: list[Item] = []
        self._drops: list[Drop] = []
        self._waiting: dict[tuple[str, str], tuple[str, str]] = {}
        self._pending: list[PendingDrop] = []

    def look_at(self, item: Item, there: set[str]) -> None:
        holder = self._holders[item.sql_name.lower()]
        if item.deleting is not None:
            if item.finalized:
                self._let_go(item, holder, there)
            return
        if holder is not item:
            text = f"{holder.kind} {holder.name!r} is {item.sql_name!r} in SQL already; give this one another spec.name"
            self._waiting[item.key] = (NAME_TAKEN, text)
            return
        if not item.finalized:
            self._finalize.append(item)
        if item.spec is None:
            self._waiting[item.key] = ("InvalidSpec", item.invalid)
        elif item.suspended:
            if item.sql_name.lower() in there:
                self._drops.append(Drop(item.sql_name, item.kind, item))
        elif lacking := builds.lacks_spark(item, self._has_spark):
            self._waiting[item.key] = ("NoSpark", lacking)
        elif self._figures is not None and trials.is_asked_for(item):
            self._try(item, self._figures)
        elif item.sql_name.lower() not in there or item.status.applied != item.digest():
            self._apply.append(item)

    def _try(self, item: Item, figures: PoolFigures) -> None:
        """A change that is to be verified before it is in service."""
        if not trials.has_version_in_service(item, figures):
            self._apply.append(item)
            return
        name = trials.trial_name(item)
        told, verdict = figures.view(name), self._verdicts.get(name)
        match trials.next_step(told, verdict):
            case trials.Step.BUILD:
                self._trials.add(name)
                self._trying[item.key] = ("Building", "the new version is built aside; the version before answers")
                if told is None:
                    self._apply.append(trials.trial_of(item))
            case trials.Step.VERIFY:
                self._trials.add(name)
                self._trying[item.key] = ("Verifying", "the new version is recomputed; the version before answers")
                self._verify.append(item)
            case trials.Step.TAKE:
                self._trials.add(name)
                self._apply.append(item)
            case trials.Step.REFUSE:
                message = verdict.message if verdict is not None else ""
                text = f"the new version was not taken: {message}; the version before answers; change the query"
                self._waiting[item.key] = self._trying[item.key] = (trials.FAILED, text)

    def end_trials(self) -> None:
        """A trial stays until the version that it was for is in service: the two share state."""
        if self._figures is None:
            return
        for item in self._holders.values():
            told = self._figures.view(item.sql_name)
            if item.deleting is None and told is not None and told.progress is not None:
                self._trials.add(trials.trial_name(item))
        gone = trials.abandoned(self._figures, self._holders, self._trials)
        self._drops += [Drop(name, VIEW) for name in gone if name not in {drop.name for drop in self._drops}]

    def _let_go(self, item: Item, holder: Item, there: set[str]) -> None:
        """Of a resource that is being deleted."""
        if (
            self._pool.gone
            or item.reclaim_policy == RETAIN
            or holder is not item
            or (self._figures is not None and item.sql_name.lower() not in there)
        ):
            self._release.append(item)
        elif self._pool.up:
            self._drops.append(Drop(item.sql_name, item.kind, item))
        elif age_s(item.deleting, self._now) >= GRACE_S:
            self._release.append(item)
            self._pending.append(PendingDrop(item.kind, item.sql_name))
            if trials.may_be_there(item):
                self._pending.append(PendingDrop(item.kind, trials.trial_name(item)))
        else:
            text = f"pool {self._pool.name!r} cannot drop it now: {self._pool.reason or self._pool.phase}"
            self._waiting[item.key] = ("PoolNotReady", text)

    def old_drops(self, pending: Sequence[PendingDrop], there: set[str]) -> None:
        """Of resources that are gone. One that came back under the name takes its relation up again."""
        for drop in pending:
            holder = self._holders.get(drop.name.lower())
            if holder is not None and holder.deleting is None:
                continue
            if self._figures is None or not self._pool.up:
                self._pending.append(drop)
            elif drop.name.lower() in there:
                self._drops.append(Drop(drop.name, drop.kind))

    def order_drops(self) -> None:
        """Readers first. A drop that somebody else's view stands against waits, and so does what it reads."""
        if self._figures is None:
            return
        dropped = {drop.name.lower() for drop in self._drops}
        kept: list[Drop] = []
        while True:
            blocked = [
                drop
                for drop in self._drops
                if drop.name.lower() in dropped
                and any(reader.lower() not in dropped for reader in self._figures.dependants(drop.name))
            ]
            if not blocked:
                break
            dropped -= {drop.name.lower() for drop in blocked}
        for drop in self._drops:
            if drop.name.lower() in dropped:
                kept.append(drop)
                continue
            readers = ", ".join(self._figures.dependants(drop.name))
            if drop.item is not None:
                self._waiting[drop.item.key] = (
                    "HasDependants",
                    f"views read it: {readers}; delete or suspend them first",
                )
            else:
                self._pending.append(PendingDrop(drop.kind, drop.name))
        self._drops = sorted(kept, key=lambda drop: (-self._depth(drop.name, frozenset()), drop.name))

    def _depth(self, name: str, trail: frozenset[str]) -> int:
        """How many views lie below a view, one behind the other."""
        assert self._figures is not None
        told = self._figures.view(name)
        if told is None or name.lower() in trail:
            return 0
        return 1 + max((self._depth(read, trail | {name.lower()}) for read in told.reads), default=0)

    def plan(self, last: Attempt) -> Plan:
        apply = readers_last(self._apply) if self._pool.up else []
        digests = frozenset(item.digest() for item in apply)
        if digests == last.digests and self._now - last.at < RETRY_S:
            apply = []  # exactly this was refused a moment ago
        return Plan(
            finalize=tuple(self._finalize),
            drops=tuple(self._drops) if self._pool.up else (),
            apply=tuple(apply),
            verify=tuple(self._verify),
            trying=self._trying,
            release=tuple(self._release),
            waiting=self._waiting,
            pending_drops=tuple(dict.fromkeys(self._pending)),
        )


__all__ = ["GRACE_S", "RETRY_S", "TABLE", "VIEW", "Attempt", "Drop", "Plan", "decide"]
