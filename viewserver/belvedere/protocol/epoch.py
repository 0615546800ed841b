"""The leader's book of epochs: what is planned, what flows, what may be committed, what a recovery does again.

    PREPARING ──document durable──▶ PREPARED ──swap: in the record──▶ FLOWING ──all acknowledged──▶ ACKNOWLEDGED
    (reads INPUT,                                                     ▲   │                              │ swap:
     writes the plan)                                                 │   └─ member lost, failure,       ▼ in order
                                                                      │      new leader              COMMITTED
                                                                      └── generation k+1 ◀┘

At most one epoch is prepared at a time, and at most two are in the record without being committed (`MAX_OPEN`).

Why it is safe:

1. Work begins only on a plan that the record points to, and the record points only to documents that are durable:
   whoever takes over finds the same plan, so an epoch that anybody has begun to write is always finished as it was
   begun.
2. A plan starts where the last plan in the record ended (`positions`), and plans are put there one after the other,
   by compare-and-set. Two leaders cannot both follow the same plan: one of their swaps fails.
3. An epoch is committed when every server of the present generation has acknowledged it in that generation. A
   recovery forgets all acknowledgements: the new generation does every open epoch again, on state below the first of
   them.
4. Epochs commit in order: a later one is acknowledged on top of an earlier one and waits for it.
5. Names only grow: `e = max(now, last + 1)`, where last is the newest epoch in the record, open ones included. A plan
   that was written but never got into the record is nobody's; its document is named after its term as well, so it
   hides nothing.

What a crash leaves, step by step, is the table in docs/explanation/recovery.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from belvedere.protocol.barrier import Barrier, WaitingFor
from belvedere.protocol.driving import Send
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.protocol.messages import (
    NEVER,
    Begin,
    Done,
    Epoch,
    EpochPlan,
    Expect,
    Generation,
    Pointer,
    PoolState,
    Sent,
    ViewVersion,
)
from belvedere.protocol.pressure import Finished
from belvedere.protocol.ring import MemberId

MAX_OPEN = 2


def name_of(now: int, last: Epoch) -> Epoch:
    """The name of the next epoch: the time if it grows, else the next number."""
    return Epoch(max(now, last + 1))


def messages_of(begin: Begin) -> list[Send]:
    """To everyone what it needs: sources and pieces may be many, and view servers many as well."""
    for_distributors = replace(begin, plan=replace(begin.plan, positions={}))
    for_servers = replace(begin, plan=replace(begin.plan, positions={}, pieces=()))
    found = [Send(member, for_distributors) for member in begin.generation.distributors]
    return found + [Send(member, for_servers) for member in begin.generation.servers]


@dataclass
class OpenEpoch:
    """An epoch that the record knows and that is not committed."""

    plan: EpochPlan
    pointer: Pointer
    begun: int
    """When it got into the record (milliseconds)."""
    barrier: Barrier | None = None
    figures: dict[MemberId, Mapping[str, float]] = field(default_factory=dict)
    flowed: int = 0
    """Rows that went from member to member, for the measured fan-out."""

    @property
    def acknowledged(self) -> bool:
        return self.barrier is not None and self.barrier.complete

    def _total(self, figure: str) -> int:
        return int(sum(figures.get(figure, 0) for figures in self.figures.values()))

    def repaired(self) -> dict[str, int]:
        """What became of its repair: rows that were replaced, and those that were left since they had changed."""
        return {"rows": self._total("rows_replaced"), "changed_since": self._total("rows_changed_since")}

    def finished(self, took: int) -> Finished:
        """What it cost, for back-pressure."""
        total, plan = self._total, self.plan
        return Finished(
            rows=plan.rows,
            bytes=plan.size,
            moved_rows=self.flowed,
            moved_bytes=total("moved_bytes"),
            spilled_bytes=total("spilled_bytes"),
            duration=took,
            waited=max(0, self.begun - plan.oldest) if plan.oldest else 0,
            building=bool(plan.slices),
        )


@dataclass
class EpochBook:
    """What the record says, with the plans it points to, and how far the present generation is."""

    committed: Epoch = NEVER
    last_plan: EpochPlan | None = None
    """The newest plan in the record, committed or open: the next one follows it."""
    open: list[OpenEpoch] = field(default_factory=list)
    generation: Generation | None = None

    @property
    def last(self) -> Epoch:
        return NEVER if self.last_plan is None else self.last_plan.epoch

    @property
    def positions(self) -> Mapping[SourceId, Seq]:
        """Where the next plan begins."""
        return {} if self.last_plan is None else self.last_plan.positions

    @property
    def staffed(self) -> bool:
        """Whether there are servers and distributors to do anything."""
        generation = self.generation
        return generation is not None and bool(generation.servers) and bool(generation.distributors)

    def waiting_for(self) -> WaitingFor | None:
        """What the oldest epoch that flows waits for."""
        barrier = next((epoch.barrier for epoch in self.open if not epoch.acknowledged), None)
        return None if barrier is None else barrier.waiting_for()

    def begin_generation(self, generation: Generation) -> list[Begin]:
        """Every open epoch again, in order, with the members of this generation."""
        self.generation = generation
        return [self._begin(epoch) for epoch in self.open]

    def add(self, plan: EpochPlan, pointer: Pointer, now: int) -> Begin:
        """The plan is in the record: its flow begins in the present generation."""
        opened = OpenEpoch(plan, pointer, now)
        self.open.append(opened)
        self.last_plan = plan
        return self._begin(opened)

    def _begin(self, epoch: OpenEpoch) -> Begin:
        assert self.generation is not None
        generation = self.generation
        epoch.barrier = Barrier(
            epoch.plan.epoch,
            generation.number,
            generation.servers,
            generation.distributors,
            epoch.plan.stages,
        )
        epoch.figures, epoch.flowed = {}, 0
        return Begin(generation, epoch.plan, self.committed)

    def amend(self, plan: EpochPlan, pointer: Pointer) -> None:
        """The record points to another plan for an open epoch: the generation that begins now carries it out."""
        opened = self.find(plan.epoch)
        assert opened is not None
        opened.plan, opened.pointer = plan, pointer
        if self.last == plan.epoch:
            self.last_plan = plan

    def find(self, epoch: Epoch) -> OpenEpoch | None:
        return next((found for found in self.open if found.plan.epoch == epoch), None)

    def sent(self, message: Sent) -> list[tuple[MemberId, Expect]]:
        epoch = self.find(message.epoch)
        if epoch is None or epoch.barrier is None or self.generation is None:
            return []
        if message.attempt == self.generation.number:
            epoch.flowed += message.rows
        return epoch.barrier.sent(message)

    def done(self, message: Done) -> None:
        epoch = self.find(message.epoch)
        if epoch is not None and epoch.barrier is not None:
            epoch.barrier.done(message)
            if self.generation is not None and message.attempt == self.generation.number:
                epoch.figures[message.member] = message.figures

    @property
    def committable(self) -> list[OpenEpoch]:
        """The epochs that may be committed now: acknowledged, and so is everything before them."""
        found = []
        for epoch in self.open:
            if not epoch.acknowledged:
                break
            found.append(epoch)
        return found

    def commit(self, epoch: Epoch) -> list[OpenEpoch]:
        """The record says so. The epochs that are committed by it."""
        gone = [found for found in self.open if found.plan.epoch <= epoch]
        self.open = [found for found in self.open if found.plan.epoch > epoch]
        self.committed = max(self.committed, epoch)
        return gone


@dataclass(frozen=True)
class Proposal:
    """What is on its way into the record."""

    state: PoolState
    commit: Epoch | None = None
    generation: Generation | None = None
    plan: EpochPlan | None = None
    pointer: Pointer | None = None
    amendment: Amendment | None = None


@dataclass
class Amendment:
    """Views that are to blame for the failures of an epoch, and the plans without them that take the place of its own
    and of those after it."""

    epoch: Epoch
    views: tuple[tuple[ViewVersion, str], ...]
    """And why they failed."""
    plans: tuple[tuple[EpochPlan, Pointer], ...] = ()
    durable: bool = False

    def pointer(self, opened: OpenEpoch) -> Pointer:
        """What the record says of an open epoch once it is amended."""
        return next((new for _, new in self.plans if new.epoch == opened.plan.epoch), opened.pointer)
