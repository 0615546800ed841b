"""The leader's book of repairs: right rows for wrong ones, on their way into a plan.

    OFFERED ──document read, digest right──▶ READY ──a plan that names it is in the record──▶ TAKEN
       │                                       │
       └──document missing or damaged──────────┴──catalog or engine changed, leader lost──▶ refused

One at a time goes into a plan, in the order of their offers. What owners do with it is in `cluster.roles.work`: before
the changes of the epoch they put each row in its place, if nobody has written it since the repair was computed.

Why it is safe:

1. The document is durable, and its digest is in the plan: whoever does the epoch again replaces the same rows by the
   same bytes. Whether a row has changed since is asked of versions below the epoch: they are the same in every attempt.
2. A repair that gets into two plans (its client did not hear of the first) does nothing the second time: the first
   epoch is one that has written the row since.
3. Rows were computed for one catalog and one engine. With another one a table may be dropped, or its bytes have another
   form: such a repair is refused, and computed again.
4. A plan that repairs changes no catalog, and names no slice of a build that reads what is repaired (`waits_for`): a
   build that has taken some wrong rows, and would take right ones from now on, is finished first, and is looked at
   like any other view then.
5. A document is wanted from its offer until its epoch is committed (`documents`). Before the offer its author holds a
   pin on the epoch in its name, and after that it is nobody's: a round of collection takes it when what is kept begins
   after that epoch (`gc_documents`). What is kept only begins later and later, so an offer for an epoch that the last
   round of this leader has kept is one whose document no leader before has removed, or is about to.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from belvedere.protocol import wire
from belvedere.protocol.driving import (
    CoordinatorInstruction,
    DocumentRead,
    ReadDocument,
    RepairOffered,
    RepairTaken,
)
from belvedere.protocol.epoch import OpenEpoch
from belvedere.protocol.messages import Epoch, EpochPlan
from belvedere.protocol.store_requests import Answer, Asking

MOST_WAITING = 64


@dataclass(eq=False)
class _Offer:
    """`tickets`: of all who have offered it, since one who hears nothing offers it again."""

    offered: RepairOffered
    tickets: list[int]
    ready: bool = False

    def taken(self, epoch: Epoch, refused: str = "", again: bool = False) -> list[CoordinatorInstruction]:
        return [RepairTaken(ticket, epoch, refused, again) for ticket in self.tickets]


class RepairBook:
    """Of one term."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._queue: list[_Offer] = []
        self._kept_from: Epoch | None = None
        """What the last round of collection kept: documents of repairs for epochs below it may be on their way out."""

    def collected(self, horizon: Epoch) -> None:
        self._kept_from = horizon

    def offer(
        self, event: RepairOffered, last: Epoch, open_epochs: Collection[OpenEpoch]
    ) -> list[CoordinatorInstruction]:
        """Read the document: a plan that names one which is not there would never be carried out."""
        name = event.repair.document
        for opened in open_epochs:
            if opened.plan.repair is not None and opened.plan.repair.document == name:
                return [RepairTaken(event.ticket, opened.plan.epoch)]  # it was offered before
        known = next((offer for offer in self._queue if offer.offered.repair == event.repair), None)
        if known is not None:
            known.tickets.append(event.ticket)
            return []
        if len(self._queue) >= MOST_WAITING:
            return [RepairTaken(event.ticket, last, f"{MOST_WAITING} repairs wait already", again=True)]
        if self._kept_from is None:
            return [RepairTaken(event.ticket, last, "this leader does not know yet what is kept", again=True)]
        if event.repair.at < self._kept_from:
            return [RepairTaken(event.ticket, last, f"it was computed for epoch {event.repair.at}, which is not kept")]
        offer = _Offer(event, [event.ticket])
        self._queue.append(offer)

        def read(answer: Answer) -> list[CoordinatorInstruction]:
            assert isinstance(answer, DocumentRead)
            if offer not in self._queue:
                return []
            if answer.data is None or wire.digest(answer.data) != event.repair.digest:
                self._queue.remove(offer)
                what = "is missing" if answer.data is None else "is damaged"
                return offer.taken(last, f"document {name!r} of the repair {what}")
            offer.ready = True
            return []

        return self._asking.ask(lambda request: ReadDocument(request, name), read)

    @property
    def documents(self) -> frozenset[str]:
        """Those that are wanted, and in no plan yet."""
        return frozenset(offer.offered.repair.document for offer in self._queue)

    def is_due(self, building: Collection[int]) -> bool:
        """Whether a plan is wanted that has nothing else."""
        return bool(self._queue) and self._queue[0].ready and not self._waits(building)

    def _waits(self, building: Collection[int]) -> bool:
        return bool(set(self._queue[0].offered.waits_for) & set(building))

    def refuse_outdated(self, catalog: int, engine: int, last: Epoch) -> list[CoordinatorInstruction]:
        """What was computed for another catalog or engine than the next plan has. Asked before each plan is made."""
        gone = [o for o in self._queue if (o.offered.catalog, o.offered.engine) != (catalog, engine)]
        self._queue = [offer for offer in self._queue if offer not in gone]
        why = "the catalog or the engine of the pool has changed since it was computed"
        return [told for offer in gone for told in offer.taken(last, why)]

    def next(self, plan: EpochPlan, building: Collection[int]) -> RepairOffered | None:
        """What this plan should repair, if anything: it must not change the catalog. `building`: what it builds."""
        if not self.is_due({*building, *(part.view_group for part in plan.slices)}):
            return None
        offered = self._queue[0].offered
        return offered if plan.catalog == offered.catalog else None

    def planned(self, plan: EpochPlan) -> list[CoordinatorInstruction]:
        """The plan is in the record."""
        if plan.repair is None:
            return []
        taken = [offer for offer in self._queue if offer.offered.repair == plan.repair]
        self._queue = [offer for offer in self._queue if offer not in taken]
        return [told for offer in taken for told in offer.taken(plan.epoch)]

    def lost_lead(self, last: Epoch, reason: str) -> list[CoordinatorInstruction]:
        queue, self._queue = self._queue, []
        unknown = f"this coordinator does not lead any more ({reason}): offer it again"
        return [told for offer in queue for told in offer.taken(last, unknown, again=True)]
