"""Who takes part in a pool.

`Membership` decides, from the members that are there, which view servers and distributors the next generation should
have and which protocol they speak. It only wishes: any set is safe, since a generation does all open epochs again.

    a member:   listed ──▶ SETTLING ──nobody new for a while──▶ wanted ──asks to leave, failed──▶ not wanted
                   └──other cluster, protocol or engine, name used before──▶ refused (said once, with both sides)
                any ──its node is gone──▶ lost, at once and for ever: names are never used again
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from belvedere.protocol.driving import Note
from belvedere.protocol.engines import engine_objection, oldest_state
from belvedere.protocol.messages import PROTOCOL, UNTOLD_ENGINE, Generation, Member, Role
from belvedere.protocol.ring import MemberId

OLDEST_PROTOCOL = max(1, PROTOCOL - 1)
SHUN_MS = 5000
LONGEST_SHUN_MS = 3_600_000
FORGIVEN_AFTER = 4
"""Whoever works, and did so for this many times as long as it was left out before, is as good as new."""
LONGEST_SETTLE = 5
"""However many members keep coming: one that is there for so many settle times is taken."""
SPENT_NAMES = 10_000


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
    engine: int
    """The newest that all have who can take part now; that of the record while epochs are open, or while state is in
    the form of an older one."""
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
    works: bool = False
    """Whether it has got something done since then. One that hangs does not, however long it has a part."""


class Membership:
    def __init__(
        self,
        cluster: str,
        *,
        settle_ms: int = 0,
        oldest: int = OLDEST_PROTOCOL,
        newest: int = PROTOCOL,
        engines: tuple[int, int] = (UNTOLD_ENGINE, UNTOLD_ENGINE),
        rebuilding: Collection[int] = (),
    ) -> None:
        """`oldest`, `newest`: the protocols that this leader speaks; `engines`: the oldest and newest that it knows;
        `rebuilding`: those of them that cannot read state of the one before."""
        self.cluster = cluster
        self._engines, self._rebuilding = engines, frozenset(rebuilding)
        self.oldest_state = 0
        """The oldest engine in whose form state of the pool is; less than the pool's while views are rebuilt."""
        self._least_engine = self._engine = 0
        """What the record has; the same, or what it would be in a pool that has none yet."""
        self._settle_ms = settle_ms
        self._oldest, self._newest = oldest, newest
        self._members: dict[MemberId, Member] = {}
        self._arrived: dict[MemberId, int] = {}
        self._spent: OrderedDict[MemberId, None] = OrderedDict()
        self._shunned: dict[MemberId, _Shunned] = {}
        self._noted: set[MemberRefusal] = set()
        self._floor = 0
        self._now = 0
        self._last: tuple[Generation | None, int, int, frozenset[int], Wanted] | None = None
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
            good_for = FORGIVEN_AFTER * max(before.pause, SHUN_MS) if before is not None else 0
            forgiven = before is None or (before.works and self._now - before.until > good_for)
            pause = SHUN_MS if before is None or forgiven else min(2 * before.pause, LONGEST_SHUN_MS)
            self._shunned[member] = _Shunned(self._now + pause, pause, reason)

    def worked(self, member: MemberId) -> None:
        """It has done its part of a stage, or of an epoch."""
        before = self._shunned.get(member)
        if before is not None and before.until <= self._now:
            self._shunned[member] = replace(before, works=True)

    def can_spare(self, members: Iterable[MemberId]) -> bool:
        """Whether somebody is left in each of their roles who did not fail of late as well."""
        spared = set(members)
        roles = {self._members[name].role for name in spared if name in self._members}
        others = [m for name, m in self._members.items() if name not in spared and not m.leaving]
        return roles <= {member.role for member in others if not self._is_shunned(member.id)}

    def nobody_has(self, engine: int) -> str:
        """What to do if view servers are there and none of them has the pool's engine; empty if that is not so."""
        servers = [member for member in self._computing() if member.role is Role.VIEWSERVER]
        needed = self.oldest_state or engine
        if not engine or not servers or any(m.oldest_engine <= needed and engine <= m.newest_engine for m in servers):
            return ""
        names = ", ".join(sorted(member.id for member in servers)[:3])
        if needed < engine:
            return (
                f"no view server has engines {needed} and {engine}, which the pool needs until its views are rebuilt "
                f"({names}): start one of a version that has both"
            )
        return f"no view server has engine {engine}, which the pool has ({names}): start one of a version that has it"

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

    def change(
        self, current: Generation | None, protocol: int = 0, engine: int = 0, made: frozenset[int] = frozenset()
    ) -> Wanted:
        """What should become of the present generation (None: there is none yet). `protocol`, `engine`: what the record
        says; a new leader knows of no generation, and must not go back all the same. `made`: the engines under which
        view groups of its plans were made."""
        if self._last is not None and self._last[:4] == (current, protocol, engine, made):
            known = self._last[4]
            if known.wake is None or self._now < known.wake:
                return known  # asked at every event, also of a pool with hundreds of members
        self.oldest_state = oldest_state(made, engine, self._rebuilding)
        wanted = self._change(current, protocol, engine)
        self._last = (current, protocol, engine, made, replace(wanted, notes=()))
        return wanted

    def _change(self, current: Generation | None, protocol: int, engine: int) -> Wanted:
        self._least_engine = max(self._least_engine, engine)
        self._engine = self._least_engine or self._first_engine()
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
            engine=self._common_engine(out),
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

    def _computing(self) -> list[Member]:
        here = (m for m in self._members.values() if m.cluster == self.cluster and m.id not in self._spent)
        return [member for member in here if member.role in _TAKING_PART]

    def _first_engine(self) -> int:
        """Of a pool that has none: the one that most members have, the newest of these; 0 if there is nobody."""
        oldest, newest = self._engines
        votes = {
            engine: sum(m.oldest_engine <= engine <= m.newest_engine for m in self._computing())
            for engine in range(oldest, newest + 1)
        }
        return max(votes, key=lambda engine: (votes[engine], engine)) if any(votes.values()) else 0

    def _common_engine(self, out: set[MemberId]) -> int:
        """The newest that all have who have the pool's, and that this leader knows. The next change of the engine waits
        until nothing is in an older form than the pool's: releases have two engines, not three."""
        if self.oldest_state < self._engine:
            return self._engine
        ends = [member.newest_engine for member in self._computing() if member.id not in out]
        return max(self._engine, min([self._engines[1], *ends])) if ends else self._engine

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
        if self._engine and member.role in _TAKING_PART:
            return engine_objection(self._engine, member.oldest_engine, member.newest_engine, self.oldest_state)
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
