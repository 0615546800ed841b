"""A distributor's part in epochs: send the pieces of INPUT that are its own, then say how many batches went where.

    no generation ──Begin (k)──▶ in generation k
    each epoch:   DISTRIBUTING ──Distributed──▶ SENT ──Committed──▶ forgotten
                       └── WorkFailed ──▶ FAILED   (the leader begins k+1)

Which distributor sends which piece is a function of plan and generation (`pieces_of`): the one that wrote the chunk
if it is still there, since it has the bytes in memory, else each takes its turn. A distributor holds chunks in memory
up to a limit and reads others from INPUT again, so a backlog of any length needs bounded memory. Receivers always
drain, whatever they compute, so nothing in here waits for one; a driver may, until what it has queued for them is sent,
and gives up when the attempt does. What limits the amount of work under way is planning alone (`pressure`).

Why it is safe: every piece of the plan is in the share of exactly one distributor of the generation. A lower attempt is
ignored here and dropped by receivers, so two distributors may send the same piece only in different attempts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from belvedere.protocol.barrier import BEFORE_STAGES
from belvedere.protocol.driving import (
    Commit,
    Distribute,
    Distributed,
    DistributorEvent,
    DistributorInstruction,
    Note,
    Received,
    Send,
    Tick,
    WorkFailed,
)
from belvedere.protocol.exactly_once import InputPiece
from belvedere.protocol.messages import (
    NEVER,
    NO_ATTEMPT,
    Attempt,
    Begin,
    Committed,
    Epoch,
    EpochPlan,
    Failed,
    Generation,
    Idle,
    Released,
    Sent,
)
from belvedere.protocol.ring import MemberId


def pieces_of(plan: EpochPlan, generation: Generation, member: MemberId) -> tuple[tuple[int, InputPiece], ...]:
    """The pieces that this distributor sends, with their index in the plan."""
    order = sorted(generation.distributors)
    present = set(order)
    found = []
    for i, piece in enumerate(plan.pieces):
        writer = MemberId(piece.chunk.writer)
        if (writer if writer in present else order[i % len(order)]) == member:
            found.append((i, piece))
    return tuple(found)


@dataclass
class Distributor:
    """`released` is true once the leader has let this distributor go."""

    me: MemberId
    generation: Generation | None = None
    committed: Epoch = NEVER
    released: bool = False
    _heard: Attempt = NO_ATTEMPT
    """The newest generation that this distributor has heard of, with or without it."""
    _begun: set[Epoch] = field(default_factory=set)

    @property
    def attempt(self) -> Attempt:
        return NO_ATTEMPT if self.generation is None else self.generation.number

    def handle(self, event: DistributorEvent) -> list[DistributorInstruction]:
        match event:
            case Received(_, Begin(generation, plan, committed)):
                self._adopt(generation, committed)
                return self._begin(generation, plan)
            case Received(_, Idle(generation, committed)):
                self._adopt(generation, committed)
            case Received(_, Committed(epoch)) if epoch > self.committed:
                self.committed = epoch
                self._begun = {e for e in self._begun if e > epoch}
                return [Commit(epoch)]
            case Received(_, Released(member)):
                self.released |= member == self.me
            case Distributed(epoch, attempt, batches, rows, ring) if self._is_current(epoch, attempt):
                return [self._tell(Sent(epoch, attempt, self.me, BEFORE_STAGES, batches, rows, ring))]
            case WorkFailed(epoch, attempt, reason, view) if self._is_current(epoch, attempt):
                note = Note("failed", {"epoch": epoch, "reason": reason})
                return [note, self._tell(Failed(epoch, attempt, self.me, reason, view))]
            case Tick() | _:
                pass
        return []

    def _is_current(self, epoch: Epoch, attempt: Attempt) -> bool:
        return attempt == self.attempt and epoch in self._begun

    def _adopt(self, generation: Generation, committed: Epoch) -> None:
        """Or give up what is under way, if the pool goes on without this distributor."""
        if generation.number > self._heard:
            self._heard = generation.number
            self.generation = generation if self.me in generation.distributors else None
            self.committed = max(self.committed, committed)
            self._begun = set()

    def _begin(self, generation: Generation, plan: EpochPlan) -> list[DistributorInstruction]:
        if generation.number != self.attempt or plan.epoch <= self.committed or plan.epoch in self._begun:
            return []
        self._begun.add(plan.epoch)
        return [Distribute(plan, generation, pieces_of(plan, generation, self.me))]

    def _tell(self, message: Sent | Failed) -> Send:
        assert self.generation is not None
        return Send(self.generation.leader, message)
