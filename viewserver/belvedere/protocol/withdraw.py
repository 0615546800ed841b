"""Secure withdraw: a view server (or distributor) leaves between two epochs. SIGTERM asks for exactly this.

    ACTIVE ──asks to leave──▶ DRAINING ──no open epoch──▶ LEAVING ──generation without it in the record──▶ RELEASED
                                 │ (or the drain takes too long)            │
                                 └──────────── lost: a recovery ────────────┘

Planning stops, so that the server is fed nothing new; the open epochs commit, with the server as a full member, and
so everything it computed is durable; the ring of the next generation is without it; then it is told that it may go.

Why it is safe: the server is needed for open epochs only. It is released after the record names a generation in which
it has no part, so no epoch, open or future, waits for it, and nobody sends to it any more. Released too often or too
late is harmless; a server that is lost before is an ordinary loss."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from belvedere.protocol.assign import DRAIN_MS
from belvedere.protocol.messages import Generation
from belvedere.protocol.ring import MemberId


class WithdrawPhase(enum.Enum):
    DRAINING = "draining"
    LEAVING = "leaving"
    RELEASED = "released"


@dataclass
class Withdraw:
    """The members that leave, and how far each is."""

    phases: dict[MemberId, WithdrawPhase] = field(default_factory=dict)
    _since: int | None = None

    def observe(self, leaving: Sequence[MemberId], members: Iterable[MemberId], open_epochs: int, now: int) -> bool:
        """Who asks to leave, and who has a part in the present generation. True if the ring may change for them."""
        if not leaving and not self.phases:  # asked at every event, also of a pool with hundreds of members
            self._since = None
            return False
        asking, present = set(leaving), set(members)
        self.phases = {m: p for m, p in self.phases.items() if m in asking or p is WithdrawPhase.RELEASED}
        needed = asking & present
        if not needed:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        drained = open_epochs == 0 or now - self._since >= DRAIN_MS
        for member in needed:
            self.phases[member] = WithdrawPhase.LEAVING if drained else WithdrawPhase.DRAINING
        return drained

    @property
    def holds(self) -> bool:
        """Whether planning waits."""
        return any(phase in (WithdrawPhase.DRAINING, WithdrawPhase.LEAVING) for phase in self.phases.values())

    def begun(self, generation: Generation) -> None:
        """The generation is in the record."""
        self._since = None

    def releasable(self, leaving: Sequence[MemberId], generation: Generation) -> list[MemberId]:
        """Those who ask to leave and have no part in the generation of the record: they may go. Each is told once."""
        if not leaving and not self.phases:
            return []
        present, asking = {*generation.servers, *generation.distributors}, set(leaving)
        self.phases = {m: p for m, p in self.phases.items() if m in asking or p is not WithdrawPhase.RELEASED}
        found = [m for m in sorted(asking) if m not in present and self.phases.get(m) is not WithdrawPhase.RELEASED]
        for member in found:
            self.phases[member] = WithdrawPhase.RELEASED
        return found
