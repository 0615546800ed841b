"""Documents that nobody needs any more: plans that are carried out or never got into the record, catalogs of old.

    a plan:     written ──in the record──▶ NAMED ──a later epoch is committed──▶ removed at once, best effort
                   └──leader lost, write came late, removal failed──▶ listed by a round of collection ──▶ removed
    a repair:   written ──offered, in a plan──▶ committed; or never offered ──the horizon passes its epoch──▶ removed
    a catalog:  written ──in a plan──▶ NAMED ──each epoch that can be read names a later one──▶ listed ──▶ removed
                   └──leader lost, and certainly in no plan──▶ listed by a round of collection ──▶ removed

Why it is safe:

1. A leader puts plans of its own term into the record and carries over those that it found there. So a plan of a lower
   term that the record does not name will never be in it. One of this term is wanted while its epoch is not committed
   (it is being written, prepared or open), and the last committed one is named by the record (not as it was before it
   was amended).
2. Versions of the catalog grow with epochs, and the plans that name a version name one document. So nobody who reads
   at the horizon or later needs a lower version than the horizon has, nor another document of that version. What the
   catalog was in epochs before the plan that this leader took over it does not know: until the horizon has reached
   that one nothing of it goes.
3. A catalog of a lower term that is newer than that of the newest plan was offered to a leader who was lost: no plan
   names it, and none will.
4. The document of a repair is wanted while it is offered or in a plan that is not committed. Its author holds a pin on
   the epoch in its name from before it is written until it is in a plan, and the leader reads it before it plans it: so
   one that nobody has offered may go when the horizon has passed its epoch.
5. Once true, all this stays true: what a leader of yesterday removes late is not needed today.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from belvedere.protocol.messages import Epoch, EpochPlan, PoolState

PLANS = "plan/"
CATALOGS = "catalog/"
REPAIRS = "repair/"


def plan_document(epoch: Epoch, term: int, amendments: int = 0) -> str:
    """`amendments`: how many there were in the term; what was planned before them is not planned again as it was."""
    return f"{PLANS}{epoch:020d}-{term}" + (f"-{amendments}" if amendments else "")


def catalog_document(version: int, term: int, ticket: int | str) -> str:
    """Each offer has a name of its own: the write of one that was given up may come at any time after, and must not
    change what a plan names that was made since."""
    return f"{CATALOGS}{version:010d}-{term}-{ticket}"


def repair_document(at: Epoch, number: int, name: str) -> str:
    """Right rows as of an epoch, on which their author holds a pin until they are in a plan. `name` is never used
    again."""
    return f"{REPAIRS}{at:020d}-{number}-{name}"


@dataclass
class DocumentGc:
    """The leader's, from its takeover on."""

    _plans: list[tuple[Epoch, str]] = field(default_factory=list)
    _catalogs: list[tuple[Epoch, int, str]] = field(default_factory=list)
    """From this epoch on, this version, this document."""

    def committed(self, plan: EpochPlan, document: str) -> None:
        self._plans.append((plan.epoch, document))
        if not self._catalogs or self._catalogs[-1][1] != plan.catalog:
            self._catalogs.append((plan.epoch, plan.catalog, plan.catalog_document))

    def superseded(self, committed: Epoch) -> tuple[str, ...]:
        """Plans of epochs before this one, each said once."""
        found = tuple(name for epoch, name in self._plans if epoch < committed)
        self._plans = [(epoch, name) for epoch, name in self._plans if epoch >= committed]
        return found

    def unneeded(
        self,
        documents: Iterable[str],
        state: PoolState,
        newest: int,
        horizon: Epoch,
        repairs: Collection[str] = (),
    ) -> tuple[str, ...]:
        """Of the documents that are there those that may go. `state`: the record; `newest`: the version of the catalog
        in its newest plan; `horizon`: nobody reads below it, with a pin or without; `repairs`: documents of those that
        are offered, or in a plan that is not committed."""
        while len(self._catalogs) > 1 and self._catalogs[1][0] <= horizon:
            del self._catalogs[0]
        known = bool(self._catalogs) and self._catalogs[0][0] <= horizon
        _, lowest, document = self._catalogs[0] if known else (horizon, 0, "")
        named = {pointer.document for pointer in (*state.open, state.committed_plan) if pointer is not None}
        found = []
        for name in documents:
            prefix, number, term = _parse(name)
            if prefix == PLANS and name not in named:
                goes = term < state.term or number <= state.committed
            elif prefix == CATALOGS and name != document:
                goes = (known and number <= lowest) or (term < state.term and number > newest)
            elif prefix == REPAIRS and name not in repairs:
                goes = number < horizon
            else:
                goes = False
            if goes:
                found.append(name)
        return tuple(found)


def _parse(name: str) -> tuple[str, int, int]:
    """(prefix, epoch or version, term); the prefix is empty if it is none of ours."""
    for prefix in (PLANS, CATALOGS, REPAIRS):
        number, _, rest = name.removeprefix(prefix).partition("-")
        term = rest.partition("-")[0]
        if name.startswith(prefix) and number.isdecimal() and term.isdecimal():
            return prefix, int(number), int(term)
    return "", 0, 0
