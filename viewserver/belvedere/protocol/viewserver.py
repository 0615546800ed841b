"""A view server's part in epochs: what to keep, what to compute, when to acknowledge.

    nobody ──Begin / Idle (k)──▶ in generation k ──Begin / Idle (k' > k)──▶ in generation k'   (Adopt: undo, own)
       ▲                               └──Idle (k' > k) without this server──┐                 (GiveUp)
       └─────────────────────────────────────────────────────────────────────┘

    an epoch:   WAITING ──its turn──▶ OPEN ──stage 0 complete──▶ COMPUTING 0 ──▶ … ──▶ COMPUTING last ──▶ WRITING
                   │                    ▲                             │                                   │ Persisted
                   │                    └── Computed, next stage ─────┘                              ▼
                   └──────────── Committed ◀──── leader ◀── Done ────────────────────────────────── ACKNOWLEDGED

Epochs are computed one after the other, in order; the next one may be opened while the last one is still WRITING.
Batches are kept from the moment they come, also those of an epoch or a generation that this server has not heard of
yet: a peer may have heard `Begin` earlier.

Why it is safe:

1. A batch counts once (sender and number) and only in its own attempt; a stage is computed when exactly as many
   batches as all senders together reported have come, so nothing of the epoch is missing and nothing of another
   attempt is in it.
2. `Adopt` undoes everything after the committed epoch that the leader names. What the leader names is in the record,
   so no server keeps the effects of an attempt that the new generation does again. An epoch that this server thinks
   finished, and that is not committed, is done again with everyone else.
3. `Done` is said after everything is durable, for this attempt only. A server of a lower generation may still write;
   it writes the bytes that the epoch has in any generation, since plan, order and state below the epoch are the same.
4. State below the epoch is the same only while the epoch is not committed: afterwards versions that it needs may be
   collected, and a server that was left out while its session lives does not notice. So the store refuses loads below
   its horizon, and between the last load and the first write the record is asked (`overtaken`). As long as it says that
   the epoch is not committed, all loads before were complete, on any store; how late the write is does not matter then.
5. Nothing here is remembered over a restart: a new incarnation has another name, and is a member of no generation
   before the leader has begun one with it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from belvedere.errors import Contradiction
from belvedere.protocol.barrier import CountingInbox
from belvedere.protocol.driving import (
    Adopt,
    Commit,
    Compute,
    Computed,
    GiveUp,
    Keep,
    Note,
    Open,
    Persist,
    Persisted,
    Received,
    Send,
    ServerEvent,
    ServerInstruction,
    Tick,
    WorkFailed,
)
from belvedere.protocol.messages import (
    NEVER,
    NO_ATTEMPT,
    Attempt,
    Batch,
    Begin,
    Committed,
    Done,
    Epoch,
    EpochPlan,
    Expect,
    Failed,
    Generation,
    Idle,
    PoolState,
    Released,
    Sent,
    Stage,
)
from belvedere.protocol.ring import MemberId


def overtaken(state: PoolState | None, epoch: Epoch, attempt: Attempt) -> str:
    """Why nothing of this attempt may be written any more; empty if it may. `state`: the record, read after the last
    load of the attempt and before its first write, and not older than that (`Coordination.read`)."""
    if state is None:
        return f"epoch {epoch}, attempt {attempt}: the pool has no record any more"
    if state.committed >= epoch:
        return f"epoch {epoch}, attempt {attempt}: epoch {state.committed} is committed, others have done it"
    if state.generation != attempt:
        return f"epoch {epoch}, attempt {attempt}: the pool is in generation {state.generation}"
    return ""


class ViewServerPhase(enum.Enum):
    WAITING = "waiting"
    OPEN = "open"
    COMPUTING = "computing"
    WRITING = "writing"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


@dataclass
class _Work:
    """One epoch in the present generation. Batches may come before its plan."""

    inbox: CountingInbox
    plan: EpochPlan | None = None
    phase: ViewServerPhase = ViewServerPhase.WAITING
    stage: Stage = 0


@dataclass
class ViewServer:
    """`released` is true once the leader has let this server go."""

    me: MemberId
    generation: Generation | None = None
    committed: Epoch = NEVER
    released: bool = False
    _heard: Attempt = NO_ATTEMPT
    """The newest generation that this server has heard of, with or without it."""
    _works: dict[Epoch, _Work] = field(default_factory=dict)
    _early: list[Batch] = field(default_factory=list)

    def handle(self, event: ServerEvent) -> list[ServerInstruction]:
        match event:
            case Received(_, message):
                try:
                    return self._received(message)
                except Contradiction as error:
                    return self._contradicted(message, str(error))
            case Computed():
                return self._computed(event)
            case Persisted():
                return self._persisted(event)
            case WorkFailed():
                return self._failed(event)
            case Tick():
                return []

    @property
    def attempt(self) -> Attempt:
        return NO_ATTEMPT if self.generation is None else self.generation.number

    def phases(self) -> dict[Epoch, tuple[ViewServerPhase, Stage]]:
        """For status and tests."""
        return {epoch: (work.phase, work.stage) for epoch, work in self._works.items()}

    # ------------------------------------------------------------------ messages

    def _received(self, message: object) -> list[ServerInstruction]:
        match message:
            case Begin(generation, plan, committed):
                return self._adopt(generation, committed) + self._begin(generation, plan)
            case Idle(generation, committed):
                return self._adopt(generation, committed)
            case Batch():
                return self._batch(message)
            case Expect(epoch, attempt, stage, batches):
                if attempt != self.attempt or epoch <= self.committed:
                    return []
                self._work(epoch).inbox.expect(stage, batches)
                return self._proceed()
            case Committed(epoch):
                return self._settled(epoch)
            case Released(member):
                self.released |= member == self.me
        return []

    def _adopt(self, generation: Generation, committed: Epoch) -> list[ServerInstruction]:
        if generation.number <= self._heard:
            return []
        self._heard = generation.number
        if self.me not in generation.servers:
            return self._left_out(generation)
        self.generation = generation
        self.committed = max(self.committed, committed)
        self._works = {}
        found: list[ServerInstruction] = [Adopt(generation, self.committed)]
        early, self._early = self._early, []
        for batch in early:
            found += self._batch(batch)
        return found

    def _left_out(self, generation: Generation) -> list[ServerInstruction]:
        """Others do what this server was doing."""
        before, self.generation, self._works = self.generation, None, {}
        self._early = [batch for batch in self._early if batch.attempt > generation.number]
        if before is None:
            return []
        note = Note("left out", {"generation": generation.number, "was_in": before.number})
        return [GiveUp(generation.number), note]

    def _begin(self, generation: Generation, plan: EpochPlan) -> list[ServerInstruction]:
        if generation.number != self.attempt or plan.epoch <= self.committed:
            return []
        work = self._work(plan.epoch)
        if work.plan is None:
            work.plan = plan
        return self._proceed()

    def _batch(self, batch: Batch) -> list[ServerInstruction]:
        if batch.attempt > self._heard:
            self._early.append(batch)
            return [Keep(batch)]
        if batch.attempt != self.attempt or batch.epoch <= self.committed:
            return []
        if not self._work(batch.epoch).inbox.batch(batch.sender, batch.stage, batch.number):
            return []
        return [Keep(batch), *self._proceed()]

    def _settled(self, epoch: Epoch) -> list[ServerInstruction]:
        if epoch <= self.committed:
            return []
        self.committed = epoch
        for done in [e for e in self._works if e <= epoch]:
            del self._works[done]
        return [Commit(epoch), *self._proceed()]

    # ------------------------------------------------------------------ work

    def _work(self, epoch: Epoch) -> _Work:
        work = self._works.get(epoch)
        if work is None:
            work = self._works[epoch] = _Work(CountingInbox(epoch, self.attempt))
        return work

    def _proceed(self) -> list[ServerInstruction]:
        """Open the next epoch if nothing is being computed; compute the next stage of the open one if it is
        complete."""
        for epoch in sorted(self._works):
            work = self._works[epoch]
            if work.phase in (ViewServerPhase.WRITING, ViewServerPhase.ACKNOWLEDGED):
                continue
            if work.plan is None or work.phase in (ViewServerPhase.COMPUTING, ViewServerPhase.FAILED):
                return []
            found: list[ServerInstruction] = []
            if work.phase is ViewServerPhase.WAITING:
                work.phase = ViewServerPhase.OPEN
                found.append(Open(work.plan, self.attempt))
            if work.inbox.ready(work.stage):
                work.phase = ViewServerPhase.COMPUTING
                found.append(Compute(epoch, self.attempt, work.stage, work.inbox.came(work.stage)))
            return found
        return []

    def _current(self, epoch: Epoch, attempt: Attempt) -> _Work | None:
        return self._works.get(epoch) if attempt == self.attempt else None

    def _computed(self, event: Computed) -> list[ServerInstruction]:
        work = self._current(event.epoch, event.attempt)
        if (
            work is None
            or work.plan is None
            or work.phase is not ViewServerPhase.COMPUTING
            or work.stage != event.stage
        ):
            return []
        sent = Sent(event.epoch, event.attempt, self.me, event.stage, event.batches, event.rows, event.ring)
        found: list[ServerInstruction] = [self._tell(sent)]
        work.stage += 1
        if work.stage < work.plan.stages:
            work.phase = ViewServerPhase.OPEN
        else:
            work.phase = ViewServerPhase.WRITING
            found.append(Persist(event.epoch, event.attempt))
        return found + self._proceed()

    def _persisted(self, event: Persisted) -> list[ServerInstruction]:
        work = self._current(event.epoch, event.attempt)
        if work is None or work.phase is not ViewServerPhase.WRITING:
            return []
        work.phase = ViewServerPhase.ACKNOWLEDGED
        return [self._tell(Done(event.epoch, event.attempt, self.me, event.figures))]

    def _failed(self, event: WorkFailed) -> list[ServerInstruction]:
        work = self._current(event.epoch, event.attempt)
        if work is None:
            return []
        work.phase = ViewServerPhase.FAILED
        failed = Failed(event.epoch, event.attempt, self.me, event.reason, event.view, event.views)
        note = Note("failed", {"epoch": event.epoch, "view": event.view, "reason": event.reason})
        return [note, self._tell(failed)]

    def _contradicted(self, message: object, reason: str) -> list[ServerInstruction]:
        """Counts that cannot be right: the attempt is given up, never finished with what is here."""
        assert isinstance(message, (Batch, Expect))
        return self._failed(WorkFailed(message.epoch, message.attempt, reason))

    def _tell(self, message: Sent | Done | Failed) -> Send:
        assert self.generation is not None
        return Send(self.generation.leader, message)
