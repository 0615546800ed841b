"""Secure assignment: a view server (or distributor) joins between two epochs.

    ANNOUNCED ──others drain──▶ DRAINING ──no open epoch──▶ ACTIVATING ──generation in the record──▶ ACTIVE
        │  its queue exists: others may         │ or the drain takes too long, or a
        │  send to its address                  │ recovery is due anyway
        └────────────── lost: forgotten, at any point ──────────────▶

The marker protocol of dynamic view maintenance in terms of epochs: the queue is created first (the member listens
before it announces itself); the open epochs are the last ones on the old ring; their markers reach everyone (the
barrier), their acknowledgements are collected (the commit), and only then does the ring with the new server take
effect.

Why it is safe: who owns a bucket changes only from one generation to the next. When no epoch is open, every change up
to here is in the store, at a committed version, whoever wrote it; the new owner starts from there with nothing
cached, the old owner evicts. If epochs are open (a drain that takes too long, or a member that was lost meanwhile),
the new generation does them again from their plans: then too, all that counts is the state below the first of them."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from belvedere.protocol.messages import Generation
from belvedere.protocol.ring import MemberId

DRAIN_MS = 2000
"""How long open epochs are given to commit before a ring change interrupts them."""


class Phase(enum.Enum):
    ANNOUNCED = "announced"
    DRAINING = "draining"
    ACTIVATING = "activating"
    ACTIVE = "active"


@dataclass
class Assign:
    """The members that join, and how far each is."""

    phases: dict[MemberId, Phase] = field(default_factory=dict)
    _since: int | None = None

    def observe(self, joining: Iterable[MemberId], open_epochs: int, now: int) -> bool:
        """Who wants to join now. True if the ring may change for them at this moment."""
        wanted = set(joining)
        for gone in [m for m, phase in self.phases.items() if m not in wanted and phase is not Phase.ACTIVE]:
            del self.phases[gone]
        if not wanted:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        drained = open_epochs == 0 or now - self._since >= DRAIN_MS
        for member in wanted:
            self.phases[member] = Phase.ACTIVATING if drained else Phase.DRAINING
        return drained

    @property
    def holds(self) -> bool:
        """Whether planning waits, so that the open epochs are the last ones on this ring."""
        return any(phase in (Phase.DRAINING, Phase.ACTIVATING) for phase in self.phases.values())

    def begun(self, generation: Generation) -> list[MemberId]:
        """The generation is in the record. Those that are active from now on."""
        self._since = None
        present = {*generation.servers, *generation.distributors}
        fresh = sorted(m for m in present if self.phases.get(m) is not Phase.ACTIVE)
        self.phases = dict.fromkeys(present, Phase.ACTIVE) | {m: p for m, p in self.phases.items() if m not in present}
        for gone in [m for m, p in self.phases.items() if p is Phase.ACTIVE and m not in present]:
            del self.phases[gone]
        return fresh
