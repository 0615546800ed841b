"""Who leads a pool, and how its leader changes the record.

`Leadership` decides whether this process leads, and puts one proposal after the other into the pool's record.

    FOLLOWING ──elected──▶ READING ──▶ CLAIMING ──term + 1 is in the record──▶ LEADING ◀────────────────────┐
       ▲                      ▲            │                                      │ suspended, or the answer  │
       │                      └────────────┘ conflict, unknown                    │ to a proposal is unknown  │
       │                                                                          ▼                           │
       └── not elected any more, clock off, another one in the record ──────── CHECKING ──record read─────────┘
                                                                     it is as we left it, or as proposed

Why it is safe:

1. Whoever leads has written its term with a compare-and-set, and every later write names the version of its own last
   one. So from the moment that a successor's claim is in the record, nothing that a predecessor writes gets there.
2. At most one proposal is on its way. If its fate is unknown the record is read: as proposed, it happened (term and
   leader are in it, and nobody else writes those); at the version before, it did not happen *yet*, and is proposed
   again with the same version, so that it can only happen once; anything else: another one leads. A conflict means
   that another one leads only if no earlier try of the proposal may have arrived; otherwise the record is read again.
3. While the session may have ended (suspended) it does not act, and goes on only when it has read the record.
4. The clock that names epochs is compared with ZooKeeper's at the claim and at each write: the time of a write lies
   between asking and answer, so a clock that is certainly more than `CLOCK_OFF_MS` off is noticed, and this one stops
   leading. A claim must be certain of the contrary.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TypeAlias

from belvedere.errors import Contradiction
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
from belvedere.protocol.membership import OLDEST_PROTOCOL
from belvedere.protocol.messages import PROTOCOL, UNTOLD_ENGINE, Pointer, PoolState, Term
from belvedere.protocol.ring import MemberId

CLOCK_OFF_MS = 5000
RETRY_MS = 200
STAND_BACK_MS = 5000
"""How long one who found itself unfit to lead (a clock, a protocol) waits before it looks again."""


class MemberPhase(enum.Enum):
    """See the drawing above. LEADING is the only phase in which a leader acts."""

    FOLLOWING = "following"
    READING = "reading"
    CLAIMING = "claiming"
    LEADING = "leading"
    CHECKING = "checking"


@dataclass(frozen=True)
class Leads:
    """The record is ours: lead on from this state."""

    state: PoolState


@dataclass(frozen=True)
class Accepted:
    """What was proposed is in the record."""

    state: PoolState


@dataclass(frozen=True)
class Stops:
    """This one does not lead any more: forget all that belongs to the term."""

    reason: str


LeadershipEvent: TypeAlias = Tick | Elected | SessionChanged | RecordRead | Swapped
LeadershipInstruction: TypeAlias = ReadRecord | Create | Swap | Resign | Leads | Accepted | Stops


@dataclass
class _Proposal:
    state: PoolState
    asked: int
    """When it was first tried."""
    doubtful: bool = False
    """An earlier try may have arrived, or may arrive yet."""


class Leadership:
    def __init__(
        self,
        me: MemberId,
        cluster: str,
        *,
        oldest: int = OLDEST_PROTOCOL,
        newest: int = PROTOCOL,
        engines: tuple[int, int] = (UNTOLD_ENGINE, UNTOLD_ENGINE),
    ) -> None:
        self._engines = engines
        self.phase = MemberPhase.FOLLOWING
        self.state: PoolState | None = None
        """The record as this leader last knew it; None while it does not lead."""
        self.reason = ""
        """Why it does not lead, if there is more to say than that it was not elected."""
        self._me, self._cluster = me, cluster
        self._oldest, self._newest = oldest, newest
        self._now = 0  # no time was heard yet: nothing to compare clocks with
        self._elected = False
        self._connected = True
        self._not_before = 0
        self._read_at: int | None = None
        self._request = 0
        self._version = -1
        self._claim: _Proposal | None = None
        self._proposal: _Proposal | None = None
        self._waiting: PoolState | None = None

    @property
    def leading(self) -> bool:
        """Whether the term is this one's, as far as it knows; it acts only while `acting`."""
        return self.phase in (MemberPhase.LEADING, MemberPhase.CHECKING)

    @property
    def acting(self) -> bool:
        return self.phase is MemberPhase.LEADING

    @property
    def busy(self) -> bool:
        """Whether a proposal is on its way (a further one would wait)."""
        return self._proposal is not None

    def handle(self, event: LeadershipEvent) -> list[LeadershipInstruction]:
        match event:
            case Tick(now):
                self._now = now
            case Elected(turn):
                self._elected = turn
                if not turn and self.phase is not MemberPhase.FOLLOWING:
                    return self._stop("not elected any more")
            case SessionChanged(connected):
                self._session(connected)
            case RecordRead(request) if request == self._request:
                return self._read(event)
            case Swapped(request) if request == self._request:
                return self._swapped(event)
        return self._proceed()

    def propose(self, state: PoolState) -> list[LeadershipInstruction]:
        """Put this into the record; `Accepted` follows, or `Stops`. While another proposal is on its way it waits; a
        later one takes the place of one that waits, so each must contain what the one before it said."""
        latest = self._waiting or (self._proposal.state if self._proposal else self.state)
        if latest is None:
            raise Contradiction(f"{self._me} proposes a state of the pool, but does not lead it")
        _check_step(latest, state)
        self._waiting = state
        return self._proceed()

    # --- what is due

    def _proceed(self) -> list[LeadershipInstruction]:
        if not self._connected:
            return []
        if self.phase is MemberPhase.FOLLOWING and self._elected and self._now >= self._not_before and self._now > 0:
            self.phase, self._read_at = MemberPhase.READING, self._now
        if self._read_at is not None and self._now >= self._read_at:
            self._read_at = None
            return [ReadRecord(self._next_request())]
        if self.phase is MemberPhase.LEADING and self._proposal is None and self._waiting is not None:
            self._proposal, self._waiting = _Proposal(self._waiting, self._now), None
            return self._try()
        return []

    def _try(self) -> list[LeadershipInstruction]:
        assert self._proposal is not None
        return [Swap(self._next_request(), self._proposal.state, self._version)]

    def _next_request(self) -> int:
        """Answers to earlier requests are not heard any more."""
        self._request += 1
        return self._request

    def _session(self, connected: bool) -> None:
        self._connected = connected
        if self.phase is MemberPhase.FOLLOWING:
            return
        self._next_request()
        self.phase = MemberPhase.CHECKING if self.leading else MemberPhase.READING
        if self._proposal is not None:
            self._proposal.doubtful = True
        self._read_at = self._now

    # --- answers

    def _read(self, record: RecordRead) -> list[LeadershipInstruction]:
        if record.failed:
            self._read_at = self._now + RETRY_MS
            return []
        if self.phase is MemberPhase.CHECKING:
            return self._checked(record)
        objection = self._objection(record)
        if objection:
            return self._stand_back(objection)
        self.phase = MemberPhase.CLAIMING
        if record.state is None:
            fresh = PoolState(self._cluster, Term(1), self._me, protocol=self._oldest)
            self._claim = _Proposal(fresh, self._now)
            return [Create(self._next_request(), fresh)]
        claimed = replace(record.state, term=Term(record.state.term + 1), leader=self._me)
        self._claim = _Proposal(claimed, self._now)
        return [Swap(self._next_request(), claimed, record.version)]

    def _objection(self, record: RecordRead) -> str:
        """Why this one must not lead, as far as the record tells."""
        state = record.state
        if state is None:
            return ""
        if state.cluster != self._cluster:
            return f"the record is of cluster {state.cluster!r}, this coordinator of cluster {self._cluster!r}"
        if state.protocol > self._newest:
            return f"the pool speaks protocol {state.protocol}, this coordinator {self._oldest} to {self._newest}"
        if state.engine > self._engines[1]:
            return f"the pool has engine {state.engine}, this coordinator knows {self._engines[1]} at most"
        if record.clock - self._now > CLOCK_OFF_MS:
            return self._clock_is_off(self._now - record.clock)
        return ""

    def _checked(self, record: RecordRead) -> list[LeadershipInstruction]:
        proposal = self._proposal
        if record.state is not None and proposal is not None and record.version > self._version:
            if record.state == proposal.state:
                return self._accepted(record.version, record.clock)
        elif record.state is not None and record.version == self._version:
            self.phase = MemberPhase.LEADING
            return self._proceed() if proposal is None else self._try()
        return self._lose(record)

    def _lose(self, record: RecordRead | None = None) -> list[LeadershipInstruction]:
        if record is None:
            return self._stop("another one has changed the record")
        if record.state is None:
            return self._stop("the record is gone")
        return self._stop(f"{record.state.leader} leads since term {record.state.term}")

    def _swapped(self, answer: Swapped) -> list[LeadershipInstruction]:
        if self.phase is MemberPhase.CLAIMING:
            return self._claimed(answer)
        if self.phase is not MemberPhase.LEADING or self._proposal is None:
            return []
        if answer.outcome == "done":
            return self._accepted(answer.version, answer.clock)
        if answer.outcome == "conflict" and not self._proposal.doubtful:
            return self._lose()
        pause = RETRY_MS if answer.outcome == "unknown" else 0
        self._proposal.doubtful = True
        self.phase, self._read_at = MemberPhase.CHECKING, self._now + pause
        return self._proceed()

    def _claimed(self, answer: Swapped) -> list[LeadershipInstruction]:
        assert self._claim is not None
        if answer.outcome != "done":
            pause = RETRY_MS if answer.outcome == "unknown" else 0
            self.phase, self._read_at = MemberPhase.READING, self._now + pause
            return self._proceed()
        claim, self._claim = self._claim, None
        for own in (claim.asked, self._now):
            if abs(own - answer.clock) > CLOCK_OFF_MS:
                return self._stand_back(self._clock_is_off(own - answer.clock))
        self.phase, self.reason = MemberPhase.LEADING, ""
        self.state, self._version = claim.state, answer.version
        return [Leads(claim.state)]

    def _accepted(self, version: int, clock: int) -> list[LeadershipInstruction]:
        assert self._proposal is not None
        proposal, self._proposal = self._proposal, None
        self.phase = MemberPhase.LEADING
        self.state, self._version = proposal.state, version
        found: list[LeadershipInstruction] = [Accepted(proposal.state)]
        if proposal.asked - clock > CLOCK_OFF_MS:
            return found + self._stand_back(self._clock_is_off(proposal.asked - clock))
        if clock - self._now > CLOCK_OFF_MS:
            return found + self._stand_back(self._clock_is_off(self._now - clock))
        return found + self._proceed()

    # --- the end

    def _clock_is_off(self, by: int) -> str:
        return (
            f"the clock of {self._me} is {abs(by)} ms {'ahead of' if by > 0 else 'behind'} ZooKeeper's,"
            f" a leader's may be {CLOCK_OFF_MS} ms off: set it right"
        )

    @property
    def stands_back(self) -> str:
        """Why this one could not lead a moment ago, and does not try just now; empty if nothing is against it."""
        return self.reason if self.phase is MemberPhase.FOLLOWING and self._now < self._not_before else ""

    def stand_back(self, reason: str) -> list[LeadershipInstruction]:
        """This one cannot lead now, for a reason of its own: stop, and look again after a while."""
        return self._stand_back(reason)

    def _stand_back(self, reason: str) -> list[LeadershipInstruction]:
        self._not_before = self._now + STAND_BACK_MS
        return self._stop(reason)

    def _stop(self, reason: str) -> list[LeadershipInstruction]:
        """Give up, and stand for election again from the end of the queue."""
        found: list[LeadershipInstruction] = [Stops(reason)] if self.leading else []
        if self._elected:
            found.append(Resign(reason))
        self._elected = False
        self.phase, self.reason = MemberPhase.FOLLOWING, reason
        self.state = self._claim = self._proposal = self._waiting = None
        self._read_at = None
        self._next_request()
        return found


def _check_step(before: PoolState, after: PoolState) -> None:
    """No step of a leader takes anything back."""
    names = [pointer.epoch for pointer in after.open]
    problems = {
        "cluster, term and leader stay": (before.cluster, before.term, before.leader)
        != (after.cluster, after.term, after.leader),
        "generations grow": after.generation < before.generation,
        "committed epochs grow": after.committed < before.committed,
        "protocols grow": after.protocol < before.protocol,
        "engines grow, while no epoch is open": after.engine < before.engine
        or (before.engine != 0 and after.engine != before.engine and bool(after.open)),
        "open epochs follow the committed one, in order": [after.committed, *names]
        != sorted({after.committed, *names}),
        "an open epoch stays open until it is committed": any(
            pointer.epoch not in names for pointer in before.open if pointer.epoch > after.committed
        ),
        "a plan is amended once at a time, with a new generation": any(
            new.epoch == old.epoch and new != old and not _amends(new, old, after.generation > before.generation)
            for old in before.open
            for new in after.open
        ),
    }
    for rule, broken in problems.items():
        if broken:
            raise Contradiction(f"{before.leader} proposes {after} after {before}: {rule}")


def _amends(new: Pointer, old: Pointer, new_generation: bool) -> bool:
    """Members know an attempt by its generation: what it means must not change while they are at it."""
    return new_generation and new.amendment == old.amendment + 1 and new.document != old.document
