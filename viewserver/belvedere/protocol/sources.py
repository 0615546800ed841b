"""What may be planned now: the sources that count, how far each may go, and when one can be forgotten.

Joins what three modules know. `Lineage` says which sources run and which wait for their parents; the INPUT index says
how far each is durable; `exactly_once.choose` cuts the chunks into pieces.

    listing of the store ─┐                       ┌─▶ bounds ──(pressure lowers them)──▶ pieces of the plan
    INPUT index ──────────┼─▶ Sources ── Lineage ─┤
    last plan's positions ┘                       └─▶ positions of the plan, without sources that were forgotten

    a source:  listed, no position ──planned──▶ has a position ──planned to its last seq──▶ exhausted
               ──committed, nothing of it in INPUT──▶ forgettable ──the store forgets it──▶ not listed
               ──next plan──▶ no position: gone

Why it is safe:

1. A leader starts from durable facts only: the positions of the last plan in the record, and what the store lists. It
   believes nothing that its predecessor believed.
2. The store lists every source of the tables that are followed, from before its first push until it is told to forget
   it. So a source that is listed and has no position was never planned; one that has a position and is not listed was
   exhausted and committed (only such are forgotten) and holds nobody up, unless INPUT has more of it; one with neither
   is none of ours, or long gone.
3. In that order, forget in the store and only then leave it out of a plan, a forgotten source can never look like a
   new one: whoever reads the listing after that plan does not find it there.
4. Late copies of a forgotten source's entries find it in neither place; they are not planned. They are `strays` when
   even a listing that was read later does not know them: a new source may be pushed before its listing was read.
5. Daughters wait until parents that are listed or have a position are exhausted; see `lineage` for why it is planned,
   not durable, that counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from belvedere.protocol.exactly_once import (
    START,
    Chunk,
    ChunkId,
    InputPiece,
    Seq,
    SourceId,
    choose,
    positions,
)
from belvedere.protocol.lineage import (
    Arrived,
    Born,
    Generation,
    Home,
    Lineage,
    LineageContradiction,
    Listed,
    NodeId,
    Opened,
    Planned,
    SourceClosed,
    SourceEnded,
    SourcePhase,
)


class Fact(Protocol):
    """What the store says of a source (`driving.SourceFact`, `store.seam.SourceInfo`)."""

    @property
    def id(self) -> SourceId: ...
    @property
    def parents(self) -> frozenset[SourceId]: ...
    @property
    def last(self) -> Seq | None: ...
    @property
    def node(self) -> str: ...


@dataclass(frozen=True)
class EndedFact:
    """A fact whose last seq followed from what is durable."""

    id: SourceId
    parents: frozenset[SourceId]
    last: Seq
    node: str


class SourceBook:
    """All sources of a pool, for one leader."""

    def __init__(self) -> None:
        self.restore({})

    def restore(self, planned: Mapping[SourceId, Seq]) -> None:
        """A new leader: the positions of the newest plan in the record. Everything else is forgotten."""
        self._planned: dict[SourceId, Seq] = dict(planned)
        self._facts: dict[SourceId, Fact] = {}
        self._index: Sequence[Chunk] = ()
        self._arrived: dict[SourceId, Seq] = {}
        self._strays: tuple[ChunkId, ...] = ()
        self._lineage = Lineage()
        self._heard = False
        self._reported: set[LineageContradiction] = set()
        self._places: dict[SourceId, tuple[str, int]] = {}
        """Where each source is open, or was last, and how often it has moved since this leader leads."""

    @property
    def planned(self) -> Mapping[SourceId, Seq]:
        """Where the next plan begins."""
        return self._planned

    def observe(
        self, index: Sequence[Chunk], listing: Iterable[Fact], durable_ends: Collection[SourceId] = ()
    ) -> list[LineageContradiction]:
        """The listing, read after all that was told here before, and the INPUT index as of one moment, read not before
        the listing. So what the *last* index held is known to this listing, if to any.

        `durable_ends`: sources that have ended, whose `last` is the greatest seq that INPUT has of them; what is
        committed may have left INPUT, so they end there or where they are planned.

        Returns contradictions that were not reported before; the first fact is believed."""
        facts, found = self._believe(self._with_ends(listing, durable_ends))
        self._strays = tuple(c.id for c in self._index if c.source not in facts and c.source not in self._planned)
        changed = not self._heard or facts != self._facts
        self._index, self._arrived = index, positions(index)
        self._facts, self._heard = facts, True
        found += self._rebuild() if changed or self._has_more_than_it_ended_with() else self._advance()
        return self._news(found)

    def bounds(self) -> dict[SourceId, Seq]:
        """How far the next plan may go, for each source that has something to plan."""
        return self._lineage.bounds()

    def choose(self, bounds: Mapping[SourceId, Seq]) -> tuple[InputPiece, ...]:
        """What a plan takes to bring the sources to these bounds (as `bounds` gave them, or lower)."""
        return choose(self._planned, bounds, self._index)

    def positions_after(self, bounds: Mapping[SourceId, Seq]) -> dict[SourceId, Seq]:
        """The positions of a plan with these bounds, without sources that the store has forgotten."""
        kept = {source: seq for source, seq in self._planned.items() if not self._is_gone(source)}
        return kept | dict(bounds)

    def plan(self, after: Mapping[SourceId, Seq]) -> list[LineageContradiction]:
        """A plan with these positions is in the record."""
        before, self._planned = self._planned, dict(after)
        if before.keys() - after.keys():
            return self._news(self._rebuild())
        moved = [Planned(source, seq) for source, seq in after.items() if seq != before.get(source)]
        return self._news(self._tell(*moved))

    def forgettable(self, committed: Mapping[SourceId, Seq]) -> tuple[SourceId, ...]:
        """Sources that the store may forget: they ended, and their last entry is committed and has left INPUT."""
        return tuple(
            source
            for source, fact in sorted(self._facts.items())
            if fact.last is not None
            and source not in self._arrived
            and self._lineage.phase(source) is SourcePhase.EXHAUSTED
            and committed.get(source, START) >= fact.last
        )

    def strays(self) -> tuple[ChunkId, ...]:
        """Chunks of sources that are none of ours, or late copies of what is long committed: they may go."""
        return self._strays

    def held_up(self) -> dict[SourceId, frozenset[SourceId]]:
        """Sources that have entries and may not be planned, each with the parents it waits for (none: not listed)."""
        unknown = self._arrived.keys() - self._facts.keys() - self._planned.keys()
        return self._lineage.held_up() | {source: frozenset[SourceId]() for source in unknown}

    def phase(self, source: SourceId) -> SourcePhase:
        return self._lineage.phase(source)

    def home(self, source: SourceId) -> tuple[Home, NodeId | None]:
        """Whether somebody pushes the source, and who does or did so last."""
        return self._lineage.home(source)

    # --- facts

    def _with_ends(self, listing: Iterable[Fact], durable_ends: Collection[SourceId]) -> Iterable[Fact]:
        for fact in listing:
            if fact.id in durable_ends and fact.last is not None:
                yield EndedFact(fact.id, fact.parents, max(fact.last, self._planned.get(fact.id, START)), fact.node)
            else:
                yield fact

    def _believe(self, listing: Iterable[Fact]) -> tuple[dict[SourceId, Fact], list[LineageContradiction]]:
        facts: dict[SourceId, Fact] = {}
        found: list[LineageContradiction] = []
        for fact in listing:
            before = self._facts.get(fact.id)
            problem = "" if before is None else _difference(before, fact)
            if problem:
                found.append(LineageContradiction(fact.id, problem))
            facts[fact.id] = before if before is not None and problem else fact
        return facts, found

    def _is_gone(self, source: SourceId) -> bool:
        return self._heard and source not in self._facts and source not in self._arrived

    def _has_more_than_it_ended_with(self) -> bool:
        """Whether INPUT has got more of a source that is not listed, and was taken to end where it was planned."""
        return any(self._arrived.get(source, START) > self._planned[source] for source in self._unlisted())

    def _advance(self) -> list[LineageContradiction]:
        return self._tell(*(Arrived(source, seq) for source, seq in self._arrived.items() if source in self._facts))

    def _unlisted(self) -> dict[SourceId, Seq]:
        """Sources with a position that the store does not list, and where they end: there, or where INPUT does."""
        return {
            source: max(seq, self._arrived.get(source, START))
            for source, seq in self._planned.items()
            if source not in self._facts
        }

    def _rebuild(self) -> list[LineageContradiction]:
        self._lineage, ends = Lineage(), self._unlisted()
        found = self._tell(Listed(frozenset(self._facts.keys() | ends.keys())))
        for source, last in ends.items():
            found += self._tell(Planned(source, self._planned[source]), Arrived(source, last))
            found += self._tell(SourceEnded(source, last), Born(source, frozenset()))
        for source, fact in self._facts.items():
            found += self._tell(Planned(source, self._planned.get(source, START)))
            found += self._tell(Arrived(source, self._arrived.get(source, START)))
            if fact.last is not None:
                found += self._tell(SourceEnded(source, fact.last))
            found += self._tell(Born(source, fact.parents))
            found += self._tell(*self._moves(source, fact.node))
        self._places = {source: place for source, place in self._places.items() if source in self._facts}
        return found

    def _moves(self, source: SourceId, node: str) -> list[Opened | SourceClosed]:
        """A listing says where a source is, lineage wants to hear what happened: it was closed there and opened here.
        One that is nowhere is closed."""
        before, moved = self._places.get(source, ("", 0))
        if node and node != before:
            before, moved = node, moved + 1
        self._places[source] = (before, moved)
        opened = [Opened(source, NodeId(before), Generation(moved))] if before else []
        return [SourceClosed(source, Generation(moved - 1 if node else moved)), *opened]

    def _tell(
        self, *events: Arrived | Born | SourceClosed | SourceEnded | Listed | Opened | Planned
    ) -> list[LineageContradiction]:
        """What lineage asks for comes with a listing, what it starts shows in its bounds; contradictions are left."""
        said = [instruction for event in events for instruction in self._lineage.handle(event)]
        return [instruction for instruction in said if isinstance(instruction, LineageContradiction)]

    def _news(self, found: Iterable[LineageContradiction]) -> list[LineageContradiction]:
        known = {contradiction for contradiction in self._reported if contradiction.source in self._facts}
        fresh = [contradiction for contradiction in dict.fromkeys(found) if contradiction not in known]
        self._reported = known.union(fresh)
        return fresh


def _difference(before: Fact, after: Fact) -> str:
    if before.parents != after.parents:
        return f"parents ({', '.join(sorted(after.parents))}) after ({', '.join(sorted(before.parents))})"
    if before.last is not None and before.last != after.last:
        return f"last seq {after.last} after {before.last}"
    return ""
