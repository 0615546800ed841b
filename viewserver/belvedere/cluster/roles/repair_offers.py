"""What a leader does when somebody offers right rows for wrong ones: gives them to the machine, and waits for the plan.

Offers come in threads of the transport, several at once; the machine puts them into plans one after the other.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from belvedere import errors
from belvedere.cluster.transport import calls
from belvedere.protocol.driving import Note, RepairOffered, RepairTaken
from belvedere.protocol.messages import Repair

if TYPE_CHECKING:
    from belvedere.cluster.roles.coordinator import CoordinatorMember

TAKEN_SECONDS = 30.0


class RepairOffers:
    def __init__(self, member: CoordinatorMember) -> None:
        self._member = member
        self._tickets = itertools.count(1)
        self._answered = threading.Condition()
        self._answers: dict[int, RepairTaken] = {}
        self._waiting: set[int] = set()
        self._closed = False
        self._repaired = {"epoch": 0, "rows": 0, "changed_since": 0}
        """Of this leader's time: the last epoch that repaired, rows that were replaced, and rows that were left, since
        they had changed."""

    def offer(self, request: calls.RepairCall) -> calls.RepairSeen:
        """Returns when the repair is in a plan."""
        self._member.in_loop(self._member.require_lead)
        ticket = next(self._tickets)
        repair = Repair(request.document, request.digest, request.at)
        offered = RepairOffered(ticket, repair, request.catalog, request.engine, request.groups)
        with self._answered:
            self._waiting.add(ticket)
        self._member.loop.post(lambda: self._member.tell(offered))
        with self._answered:
            self._answered.wait_for(lambda: ticket in self._answers or self._closed, TAKEN_SECONDS)
            self._waiting.discard(ticket)
            taken = self._answers.pop(ticket, None)
        if taken is None:
            raise errors.PeerUnavailable(
                f"the repair is in no plan after {TAKEN_SECONDS:g} s; it may still come: offer it again"
            )
        return calls.RepairSeen(taken.epoch, taken.refused, taken.again)

    def status(self) -> dict[str, Any]:
        """In the loop."""
        return {"waiting": len(self._member.machine.repairs_waiting), **self._repaired}

    # ------------------------------------------------------------------ the loop

    def taken(self, taken: RepairTaken) -> None:
        with self._answered:
            if taken.ticket in self._waiting:
                self._answers[taken.ticket] = taken
                self._answered.notify_all()

    def noted(self, note: Note) -> None:
        if note.event == "repaired":
            self._repaired["epoch"] = note.fields["epoch"]
            self._repaired["rows"] += note.fields["rows"]
            self._repaired["changed_since"] += note.fields["changed_since"]

    def close(self) -> None:
        with self._answered:
            self._closed = True
            self._answered.notify_all()
