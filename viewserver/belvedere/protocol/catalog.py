"""The leader's book of the catalog: which one the next plan names, DDL on its way into a plan, builds by slices.

    OFFERED ──document durable──▶ DURABLE ──a plan that names it is in the record──▶ TAKEN
       └──not the next version, or another one under way──▶ refused

    a view group:  NEW ──plan with [0, n)──▶ BUILDING ──plan with [n, m)──▶ … ──plan with the last bucket──▶ IN SERVICE

NEW lasts while rows of base tables that were there before are loaded: plans name empty slices then.

    computed aside:  NEW ──plan that names itself as `since`──▶ AWAITED ──it is in the store──▶ BUILDING, by differences

AWAITED, nobody but its builder touches the state of the view group, in the store or in memory, and those that read it
are NEW. The builder takes its leaves as they are after the epoch `since`, which is the same for every builder that ever
tries, and writes at the version behind it: so one that is tried again, or two at once, write the same. Then slices take
what the leaves differ from that in, like all rows else. The plan is what keeps `since` readable: no pin can be lost.

Why it is safe: a catalog counts when a plan that names it is in the record, and with it its document and how far each
build is (`slices`). A successor reads both from that plan; what was only offered is forgotten, and whoever offered it
is told to look. Versions grow by one, so two changes cannot both be made to the same catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from belvedere.protocol.driving import CatalogOffered
from belvedere.protocol.exactly_once import Chunk, InputPiece, Seq, SourceId
from belvedere.protocol.messages import NEVER, Epoch, EpochPlan, Slice
from belvedere.protocol.ring import BUCKETS

FIRST_SLICE = 1024
HOLD_READS = 4
"""The first answer may have been on its way when the table came."""
SMALLEST_SLICE = 32
"""Of a build, in buckets: it comes to an end in a few hundred epochs however slow they are."""


@dataclass(frozen=True)
class Aside:
    """`since`: of which epoch; NEVER: that is not decided. `computed`: it is in the store."""

    since: Epoch = NEVER
    computed: bool = False


@dataclass
class CatalogSchedule:
    """`building`: what has to be built of it, view group -> first bucket not yet taken."""

    version: int = 0
    document: str = ""
    stages: int = 1
    made: tuple[int, ...] = ()
    """The engines under which its view groups were made."""
    building: dict[int, int] = field(default_factory=dict)
    aside: dict[int, Aside] = field(default_factory=dict)
    """Those of them whose state is computed aside."""
    over: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The view groups that each of them reads."""

    def forget(self, view_group: int) -> None:
        for known in (self.building, self.aside, self.over):
            known.pop(view_group, None)

    @property
    def awaited(self) -> dict[int, Epoch]:
        """View groups that somebody computes, or is to compute, with the epoch of their leaves."""
        return {number: one.since for number, one in self.aside.items() if not one.computed}

    @property
    def held(self) -> Epoch | None:
        """What is needed of earlier epochs."""
        return min((one.since for one in self.aside.values() if one.since != NEVER), default=None)


@dataclass
class Offer:
    """DDL on its way into a plan."""

    offered: CatalogOffered
    document: str
    durable: bool = False

    def taken(self, before: CatalogSchedule) -> CatalogSchedule:
        """The catalog that it makes of the present one."""
        offered = self.offered
        going_on = {view_group: at for view_group, at in before.building.items() if view_group in offered.present}
        building = dict.fromkeys(offered.view_groups, 0) | going_on
        aside = dict.fromkeys(offered.aside, Aside()) | {n: one for n, one in before.aside.items() if n in going_on}
        over = dict(offered.over) | {n: below for n, below in before.over.items() if n in going_on}
        return CatalogSchedule(offered.version, self.document, offered.stages, offered.made, building, aside, over)


class CatalogBook:
    def __init__(self, target_ms: int) -> None:
        self.current = CatalogSchedule()
        """What the newest plan in the record names."""
        self.offer: Offer | None = None
        self._target = target_ms
        self._computed: dict[int, Epoch] = {}
        self._slice = FIRST_SLICE
        self._timed = False
        """Whether an epoch that builds was seen."""
        self._plain_ms = 0
        """How long epochs take that build nothing; 0 if unknown."""
        self._holds = 0
        """How many times INPUT has to be read, with nothing loading, before builds go on."""

    def restore(self, last: EpochPlan | None) -> None:
        """As the newest plan in the record has it."""
        if last is None:
            self._slice = BUCKETS  # nothing was ever planned: there is nothing to scan
            return
        parts = [part for part in last.slices if part.stop < BUCKETS]
        self.current = CatalogSchedule(
            last.catalog,
            last.catalog_document,
            last.stages,
            last.made,
            {part.view_group: part.stop for part in parts},
            {part.view_group: Aside(part.since, not part.awaits) for part in parts if part.awaits or part.since},
            {part.view_group: part.over for part in parts if part.over},
        )

    # ------------------------------------------------------------------ DDL

    def refusal(self, event: CatalogOffered) -> str:
        """Why it cannot be the next one; empty if it can."""
        if self.offer is not None:
            return "another change of the catalog is under way"
        if event.version != self.current.version + 1:
            return f"the catalog is at version {self.current.version}, this one would be {event.version}"
        return ""

    @property
    def waits(self) -> bool:
        """Whether the next plan has to wait for a document."""
        return self.offer is not None and not self.offer.durable

    @property
    def is_due(self) -> bool:
        """Whether a plan is wanted that has no changes of tables."""
        if self.offer is not None and self.offer.durable:
            return True
        return not self._holds and any(self._has_work(self.current, number) for number in self.current.building)

    def _has_work(self, catalog: CatalogSchedule, number: int) -> bool:
        """Whether a plan could bring the build of a view group on."""
        if self._waits_below(catalog, number):
            return False
        one = catalog.aside.get(number)
        return one is None or one.since == NEVER or self._is_computed(number, one)

    def _waits_below(self, catalog: CatalogSchedule, number: int) -> bool:
        """Whether it reads what somebody is computing: there are rows in the store that are not all."""
        below = ((other, catalog.aside.get(other)) for other in catalog.over.get(number, ()))
        return any(one is not None and not self._is_computed(other, one) for other, one in below)

    def _is_computed(self, number: int, one: Aside) -> bool:
        return one.computed or (one.since != NEVER and self._computed.get(number) == one.since)

    def computed(self, found: Iterable[tuple[int, Epoch]]) -> None:
        """These are in the store."""
        self._computed = dict(found)

    def heard(self, loading: bool) -> None:
        """INPUT was read: whether rows that were there before are still being loaded. Views wait for them: they would
        be in service with a part of their rows."""
        self._holds = HOLD_READS if loading else max(0, self._holds - 1)

    def hold(self) -> None:
        """A table comes whose rows are to be loaded; what is being read now may not know it yet."""
        self._holds = HOLD_READS

    # ------------------------------------------------------------------ plans

    def next(self, epoch: Epoch) -> tuple[CatalogSchedule, tuple[Slice, ...]]:
        """What the next plan, that of this epoch, names, and what it builds."""
        catalog = self.current if self.offer is None or not self.offer.durable else self.offer.taken(self.current)
        found = []
        for view_group, at in sorted(catalog.building.items()):
            waits = bool(self._holds) or self._waits_below(catalog, view_group)
            size = 0 if waits else self._slice  # an empty slice tells a successor what is being built
            one, over = catalog.aside.get(view_group), catalog.over.get(view_group, ())
            if one is None or self._is_computed(view_group, one):
                since = NEVER if one is None else one.since
                found.append(Slice(view_group, at, min(BUCKETS, at + size), since, over=over))
            else:
                since = epoch if one.since == NEVER and not waits else one.since
                found.append(Slice(view_group, at, at, since, awaits=True, over=over))
        return catalog, tuple(found)

    def plan(
        self,
        epoch: Epoch,
        pieces: tuple[InputPiece, ...],
        positions: Mapping[SourceId, Seq],
        index: Iterable[Chunk],
        engine: int,
    ) -> EpochPlan:
        """The next plan: of these pieces of INPUT, whose chunks are in the index."""
        catalog, slices = self.next(epoch)
        used = {piece.chunk for piece in pieces}
        chunks = [chunk for chunk in index if chunk.id in used]
        return EpochPlan(
            epoch=epoch,
            pieces=pieces,
            positions=positions,
            catalog=catalog.version,
            catalog_document=catalog.document,
            stages=catalog.stages,
            slices=slices,
            engine=engine,
            made=catalog.made,
            oldest=min((chunk.at for chunk in chunks), default=0),
            rows=sum(chunk.rows for chunk in chunks),
            size=sum(chunk.size for chunk in chunks),
        )

    def planned(self, plan: EpochPlan) -> Offer | None:
        """The plan is in the record; the offer that is taken with it."""
        if plan.pieces and not self._timed:
            self._slice = min(self._slice, FIRST_SLICE)  # there are rows now
        offer = self.offer
        taken = offer if offer is not None and plan.catalog == offer.offered.version else None
        if taken is not None:
            self.current, self.offer = taken.taken(self.current), None
        for part in plan.slices:
            self.current.building[part.view_group] = part.stop
            if part.awaits or part.since:
                self.current.aside[part.view_group] = Aside(part.since, not part.awaits)
            if part.stop >= BUCKETS:
                self.current.forget(part.view_group)
        return taken

    def observe(self, plan: EpochPlan, took: int) -> None:
        """Slices of builds grow while epochs are quick, and shrink when they are slow because of them: smaller ones do
        not help where epochs are slow without any."""
        if all(part.first == part.stop for part in plan.slices):
            self._plain_ms = (3 * self._plain_ms + took) // 4 if self._plain_ms else took
            return
        self._timed = True
        if took <= max(self._target, 2 * self._plain_ms):
            self._slice = min(BUCKETS, self._slice * 2)
        else:
            self._slice = max(SMALLEST_SLICE, self._slice // 2)
