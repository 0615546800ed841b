"""Who takes part in a pool, and who leads it.

`Membership` decides, from the members that are there, which view servers and distributors the next generation should
have and which protocol they speak. It only wishes: any set is safe, since a generation does all open epochs again.

    a member:   listed ──▶ SETTLING ──nobody new for a while──▶ wanted ──asks to leave, failed──▶ not wanted
                   └──other cluster, other protocol, name used before──▶ refused (said once, with both sides)
                any ──its node is gone──▶ lost, at once and for ever: names are never used again

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
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from belvedere.errors import Contradiction
from belvedere.protocol.driving import (
    Create,
    Elected,
    Note,
    ReadRecord,
    RecordRead,
    Resign,
    SessionChanged,
    Swap,
    Swapped,
    Tick,
)
from belvedere.protocol.messages import CLOCK_OFF_MS, PROTOCOL, Generation, Member, PoolState, Role, Term
from belvedere.protocol.ring import MemberId

OLDEST_PROTOCOL = max(1, PROTOCOL - 1)
RETRY_MS = 200
STAND_BACK_MS = 5000
"""How long one who found itself unfit to lead (a clock, a protocol) waits before it looks again."""
SHUN_MS = 5000
LONGEST_SHUN_MS = 3_600_000
FORGIVEN_AFTER = 4
"""Whoever has had a part for so many times as long as it was left out before is as good as new."""
LONGEST_SETTLE = 5
"""However many members keep coming: one that is there for so many settle times is taken."""
SPENT_NAMES = 10_000


# --- who takes part


@dataclass(frozen=True)
class MemberRefusal:
    member: MemberId
    reason: str


@dataclass(frozen=True)
class Wanted:
    """The generation that there should be, as it differs from the present one."""

    servers: tuple[MemberId, ...]
    distributors: tuple[MemberId, ...]
    protocol: int
    changed: bool
    lost: tuple[MemberId, ...]
    """Members of the present generation whose node is gone. It cannot get anything done any more."""
    joining: tuple[MemberId, ...]
    leaving: tuple[MemberId, ...]
    """Members of the present generation that are there, and should have no part in the next one."""
    refused: tuple[MemberRefusal, ...]
    """Those that are there and cannot take part, whatever happens."""
    notes: tuple[Note, ...]
    """Refusals that were not said before."""
    wake: int | None
    """When to ask again although nothing has happened: a member has settled by then, or is tried again."""


@dataclass(frozen=True)
class _Shunned:
    until: int
    pause: int
    reason: str


class Membership:
    def __init__(
        self, cluster: str, *, settle_ms: int = 0, oldest: int = OLDEST_PROTOCOL, newest: int = PROTOCOL
    ) -> None:
        """`oldest`, `newest`: the protocols that this leader speaks."""
        self.cluster = cluster
        self._settle_ms = settle_ms
        self._oldest, self._newest = oldest, newest
        self._members: dict[MemberId, Member] = {}
        self._arrived: dict[MemberId, int] = {}
        self._spent: OrderedDict[MemberId, None] = OrderedDict()
        self._shunned: dict[MemberId, _Shunned] = {}
        self._noted: set[MemberRefusal] = set()
        self._floor = 0
        self._now = 0
        self._last: tuple[Generation | None, int, Wanted] | None = None
        """What `change` was asked and said last, while that holds."""

    def tick(self, now: int) -> None:
        self._now = max(self._now, now)

    def listed(self, members: Iterable[Member], now: int) -> list[Note]:
        """All members that are there. Returns refusals that were not said before."""
        self.tick(now)
        self._last = None
        present = {member.id: member for member in members}
        for gone in self._members.keys() - present.keys():
            self._spent[gone] = None
            for memory in (self._arrived, self._shunned):
                memory.pop(gone, None)
        while len(self._spent) > SPENT_NAMES:
            self._spent.popitem(last=False)
        self._members = present
        self._noted = {refusal for refusal in self._noted if refusal.member in present}
        for name in present:
            self._arrived.setdefault(name, self._now)
        return self._note(self._refused(self._floor))

    def failed(self, member: MemberId, reason: str, now: int) -> None:
        """Others cannot work with this member although its node lives: leave it out for a while, longer each time."""
        self.tick(now)
        self._last = None
        if member in self._members:
            before = self._shunned.get(member)
            forgiven = before is None or self._now - before.until > FORGIVEN_AFTER * max(before.pause, SHUN_MS)
            pause = SHUN_MS if before is None or forgiven else min(2 * before.pause, LONGEST_SHUN_MS)
            self._shunned[member] = _Shunned(self._now + pause, pause, reason)

    def can_spare(self, members: Iterable[MemberId]) -> bool:
        """Whether somebody is left in each of their roles who did not fail of late as well."""
        spared = set(members)
        roles = {self._members[name].role for name in spared if name in self._members}
        others = [m for name, m in self._members.items() if name not in spared and not m.leaving]
        return roles <= {member.role for member in others if not self._is_shunned(member.id)}

    def onlookers(self, generation: Generation) -> tuple[MemberId, ...]:
        """Members that are there, speak its protocol and have no part in this generation."""
        present = {*generation.servers, *generation.distributors}
        return tuple(
            sorted(
                member.id
                for member in self._members.values()
                if member.role in _TAKING_PART
                and member.id not in present
                and member.cluster == self.cluster
                and member.oldest_protocol <= generation.protocol <= member.newest_protocol
            )
        )

    def change(self, current: Generation | None, protocol: int = 0) -> Wanted:
        """What should become of the present generation (None: there is none yet). `protocol`: what the record says; a
        new leader knows of no generation, and must not go back all the same."""
        if self._last is not None and self._last[:2] == (current, protocol):
            known = self._last[2]
            if known.wake is None or self._now < known.wake:
                return known  # asked at every event, also of a pool with hundreds of members
        wanted = self._change(current, protocol)
        self._last = (current, protocol, replace(wanted, notes=()))
        return wanted

    def _change(self, current: Generation | None, protocol: int) -> Wanted:
        floor = max(self._floor, protocol, 0 if current is None else current.protocol)
        self._floor = floor
        taking_part = set() if current is None else {*current.servers, *current.distributors}
        common = self._common_protocol(floor, taking_part)
        refused = self._refused(floor, common)
        out = {refusal.member for refusal in refused}
        lost = taking_part - {name for name in self._members if name not in self._spent}
        fit = {name: member for name, member in self._members.items() if name not in out and not member.leaving}
        joining = {name for name in fit if name not in taking_part and fit[name].role in _TAKING_PART}
        settled, wake = self._settled(joining, hurry=bool(lost))
        wanted = (fit.keys() & taking_part) | settled
        servers = self._of(Role.VIEWSERVER, wanted)
        distributors = self._of(Role.DISTRIBUTOR, wanted)
        shunned = [shunned.until for shunned in self._shunned.values()]
        before = None if current is None else (set(current.servers), set(current.distributors), current.protocol)
        return Wanted(
            servers=servers,
            distributors=distributors,
            protocol=common,
            changed=before != (set(servers), set(distributors), common),
            lost=tuple(sorted(lost)),
            joining=tuple(sorted({*servers, *distributors} - taking_part)),
            leaving=tuple(sorted(taking_part - lost - {*servers, *distributors})),
            refused=tuple(refused),
            notes=tuple(self._note(refused)),
            wake=min((at for at in (wake, *shunned) if at is not None and at > self._now), default=None),
        )

    def _common_protocol(self, floor: int, taking_part: set[MemberId]) -> int:
        """The highest that all speak. If no protocol is spoken by all, the one that interrupts the fewest: whoever does
        not speak it is refused. Never lower than the present one: what was written with it must stay readable."""
        candidates = range(max(floor, self._oldest), self._newest + 1)
        here = [m for m in self._members.values() if m.cluster == self.cluster and m.id not in self._spent]

        def votes(protocol: int) -> tuple[int, int, int]:
            speaking = [m.id for m in here if m.oldest_protocol <= protocol <= m.newest_protocol]
            return len(taking_part.intersection(speaking)), len(speaking), protocol

        return max(candidates, key=votes, default=floor)

    def _refused(self, floor: int, protocol: int | None = None) -> list[MemberRefusal]:
        """In order of names. Without `protocol`: those that are refused whatever protocol is chosen."""
        found = []
        for member in sorted(self._members.values(), key=lambda member: member.id):
            reason = self._objection(member, floor, protocol)
            if reason:
                found.append(MemberRefusal(member.id, reason))
        return found

    def _objection(self, member: Member, floor: int, protocol: int | None) -> str:
        speaks = f"it speaks protocols {member.oldest_protocol} to {member.newest_protocol}"
        if member.id in self._spent:
            return "its node was gone before, and a name is never used again: start it with a new incarnation"
        if member.cluster != self.cluster:
            return f"it belongs to cluster {member.cluster!r}, this pool to cluster {self.cluster!r}"
        if member.newest_protocol < floor:
            return f"{speaks}, the pool speaks {floor} and does not go back"
        if protocol is not None and not member.oldest_protocol <= protocol <= member.newest_protocol:
            return f"{speaks}, the pool speaks {protocol}"
        if member.newest_protocol < self._oldest or self._newest < member.oldest_protocol:
            return f"{speaks}, the leader {self._oldest} to {self._newest}"
        return ""

    def _note(self, refused: list[MemberRefusal]) -> list[Note]:
        fresh = [refusal for refusal in refused if refusal not in self._noted]
        self._noted.update(fresh)
        return [Note("member refused", {"member": refusal.member, "reason": refusal.reason}) for refusal in fresh]

    def _settled(self, joining: set[MemberId], hurry: bool) -> tuple[set[MemberId], int | None]:
        """Those who may join now, and when to look again. Members that start together make one change of the ring."""
        if hurry or not joining:
            return joining, None
        quiet = max(self._arrived[name] for name in joining) + self._settle_ms
        patience = min(self._arrived[name] for name in joining) + LONGEST_SETTLE * self._settle_ms
        due = min(quiet, patience)
        return (joining, None) if self._now >= due else (set(), due)

    def _of(self, role: Role, wanted: set[MemberId]) -> tuple[MemberId, ...]:
        """Those of the role, without those that failed of late, if that leaves somebody."""
        found = [name for name in wanted if self._members[name].role is role]
        willing = [name for name in found if not self._is_shunned(name)]
        return tuple(sorted(willing or found))

    def _is_shunned(self, name: MemberId) -> bool:
        return name in self._shunned and self._shunned[name].until > self._now


_TAKING_PART = (Role.VIEWSERVER, Role.DISTRIBUTOR)


# --- who leads


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
    def __init__(self, me: MemberId, cluster: str, *, oldest: int = OLDEST_PROTOCOL, newest: int = PROTOCOL) -> None:
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
        "open epochs follow the committed one, in order": [after.committed, *names]
        != sorted({after.committed, *names}),
        "an open epoch stays open until it is committed": any(
            pointer not in after.open for pointer in before.open if pointer.epoch > after.committed
        ),
    }
    for rule, broken in problems.items():
        if broken:
            raise Contradiction(f"{before.leader} proposes {after} after {before}: {rule}")
