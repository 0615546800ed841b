"""The counting barrier: when has a server everything of a stage? In O(servers) messages for each stage.

A stage may get batches from every distributor and from every server's earlier stages. Were each sender to mark the end
of each queue, a stage of n servers would cost n * n markers. Instead everyone tells the leader how many batches it sent
to whom (`Sent`), and the leader tells each server one number (`Expect`):

    distributors ──Sent(-1)──▶ ┌─────────┐ ──Expect(0, n)──▶ every server ──computes stage 0──▶ Sent(0) ─┐
                               │ Barrier │ ◀────────────────────────────────────────────────────────────┘
    servers     ──Sent(s)────▶ │ (leader)│ ──Expect(s + 1, n)──▶ every server ──▶ … ──▶ Done
                               └─────────┘

    a stage, to the leader:    COUNTING ──all who feed it have reported──▶ TOLD
    a stage, to a server:      FILLING ──Expect and as many batches, earlier stages too──▶ READY

Why it is safe:

1. `Expect(s)` leaves the leader once, when every distributor and, for each stage before s, every server has reported. A
   report follows the sending of all that it counts, and nobody reports a stage twice, so the number is final.
2. A server is ready for s when it holds exactly that many *different* batches of it: batches are numbered by their
   sender, and a number that was seen is a repeat. Fewer: something is on its way. More: someone sent what it did not
   report; that is an error, not a reason to go on.
3. Reports and batches carry the epoch and the attempt. Those of another attempt are of another barrier.
4. Everyone sent by the same ring: reports that name two are an error, since rows would be with servers that do not
   own them.
5. The epoch is complete when every server has said `Done`, which it can only after it was told of the last stage. A
   report that counts other servers than those of the generation is an error: nobody would wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from belvedere.errors import Contradiction
from belvedere.protocol.messages import Attempt, Done, Epoch, Expect, Sent, Stage
from belvedere.protocol.ring import MemberId

BEFORE_STAGES = -1
"""The stage that distributors report: they feed stage 0 and computed nothing before it."""


@dataclass(frozen=True)
class WaitingFor:
    """What an epoch waits for, for people. `stage`: -1 the changes of base tables, else the stage that is computed, or
    `stages` when all is computed and has to become durable."""

    stage: Stage
    members: tuple[MemberId, ...]
    stages: int

    def __str__(self) -> str:
        if self.stage == BEFORE_STAGES:
            what = "to distribute the changes"
        elif self.stage < self.stages:
            what = f"to compute stage {self.stage} of {self.stages}"
        else:
            what = "to make the epoch durable"
        return f"waiting for {', '.join(self.members)} {what}"


class Barrier:
    """The leader's side, for one epoch in one attempt."""

    def __init__(
        self,
        epoch: Epoch,
        attempt: Attempt,
        servers: Iterable[MemberId],
        distributors: Iterable[MemberId],
        stages: int,
    ) -> None:
        self.epoch, self.attempt, self.stages = epoch, attempt, stages
        self._servers = dict.fromkeys(servers)  # in their order
        self._missing: dict[Stage, set[MemberId]] = {BEFORE_STAGES: set(distributors)}
        """Who has not reported yet, by the stage they report."""
        for stage in range(stages):
            self._missing[stage] = set(self._servers)
        self._not_done = set(self._servers)
        self._counts = np.zeros((stages, len(self._servers)), np.int64)
        self._told = 0
        self._ring: tuple[str, MemberId] | None = None

    def start(self) -> list[tuple[MemberId, Expect]]:
        """What can be said before anybody reports: without distributors, that stage 0 gets nothing."""
        return self._tell()

    def sent(self, report: Sent) -> list[tuple[MemberId, Expect]]:
        """A report; the `Expect`s that it makes due. Repeats and strangers are ignored."""
        missing = self._missing.get(report.stage, set())
        if not self._is_mine(report.epoch, report.attempt) or report.sender not in missing:
            return []
        self._compare(report)
        self._count(report)
        missing.remove(report.sender)
        return self._tell()

    def done(self, report: Done) -> bool:
        """A server has finished. True if that is news."""
        if not self._is_mine(report.epoch, report.attempt) or report.member not in self._not_done:
            return False
        if self._told < self.stages:
            raise Contradiction(
                f"{self}: {report.member} is done, but was not told yet what to expect in stage {self._told}"
            )
        self._not_done.remove(report.member)
        return True

    @property
    def complete(self) -> bool:
        return not self._not_done and self._told == self.stages

    def waiting_for(self) -> WaitingFor | None:
        """The first thing that holds the epoch up; None if it is complete."""
        for stage in range(BEFORE_STAGES, self.stages - 1):  # nobody waits for reports after the last stage
            if self._missing[stage]:
                return WaitingFor(stage, tuple(sorted(self._missing[stage])), self.stages)
        if self._not_done:
            last = self.stages - 1
            computing = self._missing[last] & self._not_done if self.stages else set()
            stage, members = (last, computing) if computing else (self.stages, self._not_done)
            return WaitingFor(stage, tuple(sorted(members)), self.stages)
        return None

    def __str__(self) -> str:
        return f"epoch {self.epoch}, attempt {self.attempt}"

    def _compare(self, report: Sent) -> None:
        if not report.ring:
            return
        ring, whose = self._ring = self._ring or (report.ring, report.sender)
        if ring != report.ring:
            raise Contradiction(
                f"{self}: {report.sender} sends by ring {report.ring}, {whose} by ring {ring}, of the same members:"
                " they run different versions, replace one of them"
            )

    def _count(self, report: Sent) -> None:
        """A report that is refused half-way leaves the barrier closed for good: its sender stays missing."""
        for stage, batches in report.batches.items():
            found = np.array(batches, np.int64)
            if not report.stage < stage < self.stages or len(found) != len(self._servers) or (found < 0).any():
                raise Contradiction(
                    f"{self}: {report.sender} sent batches {batches} for stage {stage} after stage {report.stage};"
                    f" they can go to later stages below {self.stages}, to {len(self._servers)} servers"
                )
            self._counts[stage] += found

    def _is_mine(self, epoch: Epoch, attempt: Attempt) -> bool:
        return (epoch, attempt) == (self.epoch, self.attempt)

    def _tell(self) -> list[tuple[MemberId, Expect]]:
        """Stages whose feeders have all reported, in order: each is told once."""
        found: list[tuple[MemberId, Expect]] = []
        while self._told < self.stages and not self._missing[self._told - 1]:
            counts = self._counts[self._told].tolist()
            found += [
                (server, Expect(self.epoch, self.attempt, self._told, count))
                for server, count in zip(self._servers, counts, strict=True)
            ]
            self._told += 1
        return found


@dataclass
class _Seen:
    """The numbers that came from one sender: all below `next`, and some above it."""

    next: int = 0
    ahead: set[int] | None = None

    def add(self, number: int) -> bool:
        if number < self.next or (self.ahead is not None and number in self.ahead):
            return False
        if number > self.next:
            self.ahead = self.ahead or set()
            self.ahead.add(number)
            return True
        self.next += 1
        while self.ahead and self.next in self.ahead:
            self.ahead.remove(self.next)
            self.next += 1
        return True


class CountingInbox:
    """A server's side, for one epoch in one attempt: what came, and whether it is all."""

    def __init__(self, epoch: Epoch, attempt: Attempt) -> None:
        self.epoch, self.attempt = epoch, attempt
        self._seen: dict[MemberId, _Seen] = {}
        self._came: dict[Stage, int] = {}
        self._expected: dict[Stage, int] = {}

    def batch(self, sender: MemberId, stage: Stage, number: int) -> bool:
        """A batch has come. False: it had come before."""
        if not self._seen.setdefault(sender, _Seen()).add(number):
            return False
        self._came[stage] = self._came.get(stage, 0) + 1
        self._check(stage)
        return True

    def expect(self, stage: Stage, batches: int) -> None:
        """The leader's word on how many there are. Saying it again changes nothing."""
        known = self._expected.setdefault(stage, batches)
        if known != batches:
            raise Contradiction(f"{self}, stage {stage}: {batches} batches to expect, after {known}")
        self._check(stage)

    def ready(self, stage: Stage) -> bool:
        """Whether everything of the stage, and of all before it, is here."""
        return all(self._expected.get(s) == self._came.get(s, 0) for s in range(stage + 1))

    def came(self, stage: Stage) -> int:
        return self._came.get(stage, 0)

    def missing(self, stage: Stage) -> int | None:
        """How many batches are still on their way; None: not known yet."""
        expected = self._expected.get(stage)
        return None if expected is None else expected - self._came.get(stage, 0)

    def __str__(self) -> str:
        return f"epoch {self.epoch}, attempt {self.attempt}"

    def _check(self, stage: Stage) -> None:
        came, expected = self._came.get(stage, 0), self._expected.get(stage)
        if expected is not None and came > expected:
            raise Contradiction(f"{self}, stage {stage}: {came} batches came, {expected} were reported")
