"""Candidates around one record, and everything that ZooKeeper can do to them.

Answers are late or lost; a write whose answer was lost happens at once, later or never; sessions are suspended and come
back; the election tells several that it is their turn. A candidate that leads proposes one state after the other. The
history of the record decides what was true. `BUGS` are broken machines that this world must notice.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from belvedere.protocol.driving import (
    Create,
    Elected,
    ReadRecord,
    RecordRead,
    Resign,
    SessionChanged,
    Swap,
    Swapped,
    Tick,
)
from belvedere.protocol.leadership import Accepted, Leadership, LeadershipInstruction, Leads, MemberPhase, Stops
from belvedere.protocol.messages import Attempt, Epoch, PoolState
from belvedere.protocol.ring import MemberId

CLUSTER = "c1"


class Wrong(AssertionError):
    """A proposal got lost, happened twice, or was believed without being there; or somebody gave up without need."""


@dataclass
class Candidate:
    name: MemberId
    machine: Leadership
    connected: bool = True
    turn: bool = False
    requests: list[ReadRecord | Create | Swap] = field(default_factory=list)
    answers: list[RecordRead | Swapped] = field(default_factory=list)
    proposed: list[PoolState] = field(default_factory=list)
    accepted: int = 0


class World:
    def __init__(self, seed: int, kind: type[Leadership] = Leadership) -> None:
        self.random = random.Random(seed)
        names = [MemberId(f"c{i}") for i in range(self.random.randint(1, 3))]
        self.candidates = [Candidate(name, kind(name, CLUSTER)) for name in names]
        self.history: list[PoolState] = []
        self.late: list[Create | Swap] = []
        self.now = 1_000_000
        self.numbers = 0

    def run(self, steps: int) -> None:
        actions = [
            (self.tick, 8), (self.carry_out, 10), (self.answer, 10), (self.propose, 6), (self.elect, 1),
            (self.dismiss, 0.3), (self.suspend, 0.7), (self.resume, 1.5), (self.land, 1), (self.lose_answer, 1),
        ]  # fmt: skip
        calls, weights = [action for action, _ in actions], [weight for _, weight in actions]
        for _ in range(steps):
            self.random.choices(calls, weights)[0]()
        self.drain()

    def one(self) -> Candidate:
        return self.random.choice(self.candidates)

    # --- what can happen

    def tick(self) -> None:
        self.now += self.random.choice([10, 50, 300])
        for candidate in self.candidates:
            self.do(candidate, candidate.machine.handle(Tick(self.now)))

    def elect(self, candidate: Candidate | None = None) -> None:
        candidate = candidate or self.one()
        candidate.turn = True
        self.do(candidate, candidate.machine.handle(Elected(True)))

    def dismiss(self) -> None:
        candidate = self.one()
        candidate.turn = False
        self.do(candidate, candidate.machine.handle(Elected(False)))

    def suspend(self) -> None:
        candidate = self.one()
        if candidate.connected:
            candidate.connected = False
            self.do(candidate, candidate.machine.handle(SessionChanged(False)))
            if candidate.machine.acting:
                raise Wrong(f"{candidate.name} acts while its session may have ended")

    def resume(self, candidate: Candidate | None = None) -> None:
        candidate = candidate or self.one()
        if not candidate.connected:
            candidate.connected = True
            self.do(candidate, candidate.machine.handle(SessionChanged(True)))
            if candidate.machine.acting:
                raise Wrong(f"{candidate.name} acts before it has read the record")

    def propose(self, candidate: Candidate | None = None) -> None:
        candidate = candidate or self.one()
        machine = candidate.machine
        if machine.acting and machine.state is not None:
            latest = candidate.proposed[-1] if candidate.proposed else machine.state
            self.numbers += 1
            state = replace(latest, generation=Attempt(latest.generation + 1), committed=Epoch(self.numbers))
            candidate.proposed.append(state)
            self.do(candidate, machine.propose(state))

    # --- ZooKeeper

    def carry_out(self, candidate: Candidate | None = None) -> None:
        candidate = candidate or self.one()
        if not candidate.requests:
            return
        request = candidate.requests.pop(0)
        if isinstance(request, ReadRecord):
            self.read(candidate, request)
        elif candidate.connected and self.random.random() < 0.8:
            candidate.answers.append(self.write(request))
        else:
            fate = self.random.random()
            if fate < 0.4:
                self.write(request)
            elif fate < 0.7:
                self.late.append(request)
            candidate.answers.append(Swapped(request.request, "unknown"))

    def read(self, candidate: Candidate, request: ReadRecord) -> None:
        if not candidate.connected:
            candidate.answers.append(RecordRead(request.request, None, failed=True))
        elif not self.history:
            candidate.answers.append(RecordRead(request.request, None))
        else:
            state, version = self.history[-1], len(self.history) - 1
            candidate.answers.append(RecordRead(request.request, state, version, self.now))

    def write(self, request: Create | Swap) -> Swapped:
        expected = request.version if isinstance(request, Swap) else -1
        if expected != len(self.history) - 1:
            return Swapped(request.request, "conflict")
        if request.state in self.history:
            raise Wrong(f"{request.state} is put into the record twice")
        self.history.append(request.state)
        return Swapped(request.request, "done", len(self.history) - 1, self.now)

    def land(self) -> None:
        if self.late:
            self.write(self.late.pop(self.random.randrange(len(self.late))))

    def lose_answer(self) -> None:
        """Whatever the answer was: it is not known."""
        candidate = self.one()
        if candidate.answers:
            lost = candidate.answers.pop(0)
            failed = RecordRead(lost.request, None, failed=True)
            candidate.answers.insert(0, failed if isinstance(lost, RecordRead) else Swapped(lost.request, "unknown"))

    def answer(self, candidate: Candidate | None = None) -> None:
        candidate = candidate or self.one()
        if candidate.answers:
            self.do(candidate, candidate.machine.handle(candidate.answers.pop(0)))

    # --- what a candidate says

    def do(self, candidate: Candidate, instructions: list[LeadershipInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case ReadRecord() | Create() | Swap():
                    if not candidate.connected:
                        raise Wrong(f"{candidate.name} asks for {instruction} while it is suspended")
                    candidate.requests.append(instruction)
                case Leads(state):
                    self.in_record(candidate, state)
                    candidate.proposed = []
                case Accepted(state):
                    self.in_record(candidate, state)
                    while candidate.proposed.pop(0) != state:
                        pass  # a proposal that waited was replaced by a later one
                    candidate.accepted += 1
                case Stops(reason):
                    self.stopped(candidate, reason)
                case Resign():
                    candidate.turn = False

    def in_record(self, candidate: Candidate, state: PoolState) -> None:
        if state not in self.history or state.leader != candidate.name:
            raise Wrong(f"{candidate.name} believes {state} to be in the record")

    def stopped(self, candidate: Candidate, reason: str) -> None:
        """Only another's claim takes the lead away."""
        last = max(i for i, state in enumerate(self.history) if state.leader == candidate.name)
        if candidate.turn and all(state.leader == candidate.name for state in self.history[last:]):
            raise Wrong(f"{candidate.name} gives up, and nobody else had claimed the record: {reason}")
        candidate.proposed = []

    def drain(self) -> None:
        """No more faults: one is elected, leads, and gets everything through."""
        while self.late:
            self.land()
        for candidate in self.candidates:
            self.resume(candidate)
        chosen = self.one()
        for candidate in self.candidates:
            if candidate is not chosen:
                candidate.turn = False
                self.do(candidate, candidate.machine.handle(Elected(False)))
        for _ in range(300):
            if not chosen.turn:
                self.elect(chosen)
            self.tick()
            for candidate in self.candidates:
                while candidate.requests:
                    request = candidate.requests.pop(0)
                    if isinstance(request, ReadRecord):
                        self.read(candidate, request)
                    else:
                        candidate.answers.append(self.write(request))
                while candidate.answers:
                    self.answer(candidate)
            if chosen.machine.acting and not chosen.proposed:
                if self.history[-1].leader == chosen.name:
                    break
                self.propose(chosen)  # it will find out
        else:
            raise Wrong(f"{chosen.name} is {chosen.machine.phase} at the end, {chosen.machine.reason}")
        before = chosen.accepted
        self.propose(chosen)
        self.carry_out_safely(chosen)
        if chosen.accepted != before + 1:
            raise Wrong("a proposal without any fault is not accepted")
        for state, following in zip(self.history, self.history[1:], strict=False):
            if following.leader != state.leader and following.term <= state.term:
                raise Wrong(f"{following.leader} leads in term {following.term}, after {state.term}")
            if following.committed < state.committed or following.generation < state.generation:
                raise Wrong(f"{following} takes back what {state} said")

    def carry_out_safely(self, candidate: Candidate) -> None:
        while candidate.requests:
            request = candidate.requests.pop(0)
            assert isinstance(request, Swap)
            self.do(candidate, candidate.machine.handle(self.write(request)))


class BelievesUnknown(Leadership):
    """No answer is taken for a success."""

    def _swapped(self, answer: Swapped) -> list[LeadershipInstruction]:
        if answer.outcome == "unknown":
            answer = replace(answer, outcome="done", version=self._version + 1, clock=self._now)
        return super()._swapped(answer)


class RepeatsBlindly(Leadership):
    """After an unknown answer the proposal is written over whatever is there."""

    def _checked(self, record: RecordRead) -> list[LeadershipInstruction]:
        if self._proposal is not None:
            self._version, self.phase = record.version, MemberPhase.LEADING
            return self._try()
        return super()._checked(record)


class GivesUpAtOnce(Leadership):
    """A conflict always means that another one leads."""

    def _swapped(self, answer: Swapped) -> list[LeadershipInstruction]:
        if answer.outcome == "conflict" and self.phase is MemberPhase.LEADING:
            return self._lose()
        return super()._swapped(answer)


class ActsWhileSuspended(Leadership):
    """The session is not looked at."""

    def _session(self, connected: bool) -> None:
        pass


class ContinuesUnread(Leadership):
    """Connected again is enough to go on."""

    def _session(self, connected: bool) -> None:
        leading = self.leading
        super()._session(connected)
        if leading and connected:
            self.phase, self._read_at = MemberPhase.LEADING, None


class HearsOldAnswers(Leadership):
    """Answers to earlier requests count."""

    def handle(self, event: object) -> list[LeadershipInstruction]:
        if isinstance(event, RecordRead | Swapped):
            event = replace(event, request=self._request)
        return super().handle(event)  # type: ignore[arg-type]


BUGS = [BelievesUnknown, RepeatsBlindly, GivesUpAtOnce, ActsWhileSuspended, ContinuesUnread, HearsOldAnswers]
