"""Secure assignment: a view server (or distributor) joins between two epochs.

    announces itself ──▶ DRAINING ──no open epoch──▶ ACTIVATING ──generation in the record──▶ has a part: forgotten here
       its queue exists:     │ or the drain takes too long, or a     │
       others may send to    │ recovery is due anyway                │
       its address           └────────── lost: forgotten ────────────┘

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
from collections.abc import Sequence
from dataclasses import dataclass, field

from belvedere.protocol.messages import Generation
from belvedere.protocol.ring import MemberId

DRAIN_MS = 2000
"""How long open epochs are given to commit before a ring change interrupts them."""


class AssignPhase(enum.Enum):
    DRAINING = "draining"
    ACTIVATING = "activating"


@dataclass
class Assign:
    """The members that join, and how far each is."""

    phases: dict[MemberId, AssignPhase] = field(default_factory=dict)
    _since: int | None = None

    def observe(self, joining: Sequence[MemberId], open_epochs: int, now: int, patient: bool = False) -> bool:
        """Who wants to join now. True if the ring may change for them at this moment. `patient`: the open epochs take
        long anyway, and whoever joins may be one that they waited for in vain: they are not interrupted for it."""
        if not joining:
            self.phases, self._since = {}, None
            return False
        self._since = now if self._since is None else self._since
        drained = open_epochs == 0 or (not patient and now - self._since >= DRAIN_MS)
        self.phases = dict.fromkeys(joining, AssignPhase.ACTIVATING if drained else AssignPhase.DRAINING)
        return drained

    @property
    def holds(self) -> bool:
        """Whether planning waits, so that the open epochs are the last ones on this ring."""
        return bool(self.phases)

    def begun(self, generation: Generation) -> list[MemberId]:
        """The generation is in the record. Those that joined with it."""
        self._since = None
        present = {*generation.servers, *generation.distributors}
        joined = sorted(present & self.phases.keys())
        self.phases = {member: phase for member, phase in self.phases.items() if member not in present}
        return joined
