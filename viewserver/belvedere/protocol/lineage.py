"""Lineage: sources that move, split and merge; whose entries count, and from when on.

A source is a region of a table. It moves from node to node and stays the same source: its seqs go on. When it splits
or merges it ends, at a last seq, and its daughters are new sources with logs of their own. A row's changes go on in a
daughter, so a daughter may be planned only when its parents are exhausted: planned up to their last seq.

    listed at the start:   a ───────────┐last          ┌─▶ a1 ───────┐last
                                        ├──  split  ───┤             ├── merge ─▶ m ───▶
                           (a moves from node to node) └─▶ a2 ───────┘last

What is known arrives as facts, in any order, late, repeated, and from several observers: who was `Listed` at the start,
and of each source who its parents are (`Born`), where it ends (`SourceEnded`), how far it is durable (`Arrived`) and
planned (`Planned`), and where it is open (`Opened`, `SourceClosed`, `NodeLost`).

Why it is safe:

1. Every fact either never changes (listed, parents, last seq, a lost node) or only grows (positions, the generation of
   an opening). What follows from them does so from the facts, not from their order; a new leader that hears
   `facts()`, shuffled, is where the old one was. A fact that contradicts an earlier one is reported, not believed.
2. A source runs only if its birth is known and every parent that counts is exhausted. What is unknown holds a source
   up, and is asked for; it is never taken as "no parents" or "foreign".
3. Exhausted means *planned*, in a durable plan, not merely durable: the daughter's first entry is then in a later epoch
   than its parents' last, epochs commit in order, and so no order within an epoch has to be relied on.
4. Nothing above a last seq is planned, so what a zombie of the parent says later cannot come after a daughter's entry.
5. Where a source is open decides nothing about order: a node that is lost is one that pushes no more, and whoever takes
   over pushes the same entries again, which (source, seq) filters. So places cannot break anything; they say
   whom to blame when a source stands still.

Exhausted sources are remembered: a late repeat must still meet the position that makes it one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NewType, TypeAlias

from belvedere.protocol.exactly_once import START, Seq, SourceId

NodeId = NewType("NodeId", str)
"""A server's incarnation (in HBase with its start code): a node that was lost does not come back under this name."""
Generation = NewType("Generation", int)
"""Grows with every opening of a source (in HBase: the open sequence number)."""


# --- events


@dataclass(frozen=True)
class Listed:
    """All sources that were there when the log was first asked for, one fact. They count, whatever their parents were.

    A listing may hold a source that has just been split together with its daughters; they wait for it as others do.
    """

    sources: frozenset[SourceId]


@dataclass(frozen=True)
class Born:
    """All parents of a source: one after a split, several after a merge, none if it was made empty."""

    source: SourceId
    parents: frozenset[SourceId]


@dataclass(frozen=True)
class SourceEnded:
    """The source was split or merged. `last` is the seq of its last entry, START if it never had one."""

    source: SourceId
    last: Seq


@dataclass(frozen=True)
class Arrived:
    """Durable in INPUT up to here (`exactly_once.positions`)."""

    source: SourceId
    through: Seq


@dataclass(frozen=True)
class Planned:
    """A durable plan ends here."""

    source: SourceId
    through: Seq


@dataclass(frozen=True)
class Opened:
    source: SourceId
    node: NodeId
    generation: Generation


@dataclass(frozen=True)
class SourceClosed:
    source: SourceId
    generation: Generation


@dataclass(frozen=True)
class NodeLost:
    node: NodeId


Event: TypeAlias = Listed | Born | SourceEnded | Arrived | Planned | Opened | SourceClosed | NodeLost


# --- instructions


@dataclass(frozen=True)
class AskParents:
    """Find out who the parents of this source are, and say `Born`."""

    source: SourceId


@dataclass(frozen=True)
class Start:
    """The source may be planned from now on."""

    source: SourceId


@dataclass(frozen=True)
class Ignore:
    """The source descends from none that was listed: acknowledge what it pushes and count it, no more."""

    source: SourceId


@dataclass(frozen=True)
class Finish:
    """All of the source is planned; its daughters are free."""

    source: SourceId


@dataclass(frozen=True)
class Orphaned:
    """The node that pushed the source is lost. Somebody else will push it, from an earlier position."""

    source: SourceId
    node: NodeId


@dataclass(frozen=True)
class LineageContradiction:
    """Two facts that cannot both hold. The first is believed; a person should look."""

    source: SourceId
    reason: str


Instruction: TypeAlias = AskParents | Start | Ignore | Finish | Orphaned | LineageContradiction


class SourcePhase(enum.Enum):
    """Where a source stands. It follows from the facts, so a leader that hears them in another order agrees.

        UNKNOWN ──it counts──▶ WAITING ──parents exhausted──▶ RUNNING ──planned to its last seq──▶ EXHAUSTED
           └──its ancestors are known and none was listed──▶ FOREIGN

    A source counts if it was listed or a parent counts. It waits for the parents that count; one that was listed, for
    those that were listed as well, since what lies before the listing may be long forgotten and nobody can be asked.
    """

    UNKNOWN = "unknown"
    FOREIGN = "foreign"
    WAITING = "waiting"
    RUNNING = "running"
    EXHAUSTED = "exhausted"


class Home(enum.Enum):
    """Whether somebody pushes a source.

    NOWHERE ──Opened──▶ OPEN ──Closed──▶ CLOSED ──Opened, later generation──▶ OPEN
                          └──NodeLost──▶ LOST ──Opened, later generation──▶ OPEN
    """

    NOWHERE = "nowhere"
    OPEN = "open"
    CLOSED = "closed"
    LOST = "lost"


@dataclass
class _Source:
    parents: frozenset[SourceId] | None = None
    last: Seq | None = None
    arrived: Seq = START
    planned: Seq = START
    opened: Opened | None = None
    closed: Generation = Generation(-1)
    phase: SourcePhase = SourcePhase.UNKNOWN
    asked: bool = False
    daughters: set[SourceId] = field(default_factory=set)


class Lineage:
    """All sources of a pool. One per leader; `facts()` is what the next leader starts from."""

    def __init__(self) -> None:
        self._sources: dict[SourceId, _Source] = {}
        self._listed: frozenset[SourceId] | None = None
        self._lost: set[NodeId] = set()

    def handle(self, event: Event) -> list[Instruction]:
        if isinstance(event, NodeLost):
            return self._node_lost(event.node)
        if isinstance(event, Listed):
            return self._list(event.sources)
        source = self._sources.setdefault(event.source, _Source())
        found: list[Instruction] = []
        match event:
            case Born(name, parents):
                found += self._born(name, source, parents)
            case SourceEnded(name, last):
                found += self._ended(name, source, last)
            case Arrived(name, through) if through > source.arrived:
                source.arrived = through
                found += _beyond(name, source)
            case Planned(name, through):
                source.planned = max(source.planned, through)
            case Opened() | SourceClosed():
                found += self._placed(source, event)
        return found + self._settle([event.source])

    def bounds(self) -> dict[SourceId, Seq]:
        """How far a plan may go, for each source that has something to plan."""
        found: dict[SourceId, Seq] = {}
        for name, source in self._sources.items():
            bound = source.arrived if source.last is None else min(source.arrived, source.last)
            if source.phase is SourcePhase.RUNNING and bound > source.planned:
                found[name] = bound
        return found

    def held_up(self) -> dict[SourceId, frozenset[SourceId]]:
        """Sources that have entries and may not be planned, each with the parents it waits for (none: unknown yet)."""
        return {
            name: frozenset(
                parent for parent in source.parents or () if self.phase(parent) is not SourcePhase.EXHAUSTED
            )
            for name, source in self._sources.items()
            if source.phase in (SourcePhase.UNKNOWN, SourcePhase.WAITING) and source.arrived > START
        }

    def phase(self, source: SourceId) -> SourcePhase:
        return self._sources.get(source, _Source()).phase

    def home(self, source: SourceId) -> tuple[Home, NodeId | None]:
        """Whether the source is pushed, and the node that pushes it or did so last."""
        known = self._sources.get(source, _Source())
        if known.opened is None:
            return Home.NOWHERE, None
        node = known.opened.node
        if known.opened.generation <= known.closed:
            return Home.CLOSED, node
        return (Home.LOST if node in self._lost else Home.OPEN), node

    def facts(self) -> list[Event]:
        """Events that bring a new `Lineage` to where this one is, in any order."""
        found: list[Event] = [NodeLost(node) for node in sorted(self._lost)]
        found += [Listed(self._listed)] if self._listed is not None else []
        for name, source in self._sources.items():
            found += [Born(name, source.parents)] if source.parents is not None else []
            found += [SourceEnded(name, source.last)] if source.last is not None else []
            found += [Arrived(name, source.arrived), Planned(name, source.planned)]
            found += [source.opened] if source.opened is not None else []
            found += [SourceClosed(name, source.closed)]
        return found

    def _list(self, sources: frozenset[SourceId]) -> list[Instruction]:
        if self._listed is not None:
            if self._listed == sources:
                return []
            name = min(self._listed ^ sources)
            return [
                LineageContradiction(name, f"in one of two listings, of {len(self._listed)} and {len(sources)} sources")
            ]
        self._listed = sources
        for name in sources:
            self._sources.setdefault(name, _Source())
        return self._settle(sorted(self._sources, reverse=True))

    def _born(self, name: SourceId, source: _Source, parents: frozenset[SourceId]) -> list[Instruction]:
        if source.parents is not None:
            if source.parents == parents:
                return []
            return [LineageContradiction(name, f"parents {_names(parents)} after {_names(source.parents)}")]
        if name in parents or parents & self._descendants(name):
            return [LineageContradiction(name, f"parents {_names(parents)} descend from the source itself")]
        source.parents = parents
        for parent in parents:
            self._sources.setdefault(parent, _Source()).daughters.add(name)
        return []

    def _ended(self, name: SourceId, source: _Source, last: Seq) -> list[Instruction]:
        if source.last is not None and source.last != last:
            return [LineageContradiction(name, f"last seq {last} after {source.last}")]
        source.last = last
        return _beyond(name, source)

    def _placed(self, source: _Source, event: Opened | SourceClosed) -> list[Instruction]:
        if isinstance(event, SourceClosed):
            source.closed = max(source.closed, event.generation)
        elif source.opened is None or event.generation > source.opened.generation:
            source.opened = event
            return self._orphaned(event.source, source)
        return []

    def _node_lost(self, node: NodeId) -> list[Instruction]:
        if node in self._lost:
            return []
        self._lost.add(node)
        return [
            orphaned
            for name, source in sorted(self._sources.items())
            if source.opened is not None and source.opened.node == node
            for orphaned in self._orphaned(name, source)
        ]

    def _orphaned(self, name: SourceId, source: _Source) -> list[Instruction]:
        home, node = self.home(name)
        if home is Home.LOST and node is not None and source.phase is not SourcePhase.EXHAUSTED:
            return [Orphaned(name, node)]
        return []

    def _settle(self, changed: list[SourceId]) -> list[Instruction]:
        """Take these sources, and the daughters of those that change, to the phases that the facts allow."""
        found: list[Instruction] = []
        while changed:
            name = changed.pop()
            source = self._sources[name]
            found += self._ask(name, source)
            phase = self._due(name, source)
            if phase is source.phase:
                continue
            before, source.phase = source.phase, phase
            if before in (SourcePhase.UNKNOWN, SourcePhase.WAITING) and phase in (
                SourcePhase.RUNNING,
                SourcePhase.EXHAUSTED,
            ):
                found.append(Start(name))
            if phase is SourcePhase.EXHAUSTED:
                found.append(Finish(name))
            if phase is SourcePhase.FOREIGN:
                found.append(Ignore(name))
            changed += sorted(source.daughters)
        return found

    def _ask(self, name: SourceId, source: _Source) -> list[Instruction]:
        """Ask, once, for the ancestors that decide on this source: its own birth, or that of parents not heard of."""
        if self._listed is None:
            return []
        unborn = [(name, source)]
        if source.parents is not None and name not in self._listed:
            unborn += [(parent, self._sources[parent]) for parent in sorted(source.parents)]
        found: list[Instruction] = []
        for who, unknown in unborn:
            if unknown.parents is None and not unknown.asked:
                unknown.asked = True
                found.append(AskParents(who))
        return found

    def _due(self, name: SourceId, source: _Source) -> SourcePhase:
        if self._listed is None or source.parents is None:
            return SourcePhase.UNKNOWN
        listed = name in self._listed
        parents = source.parents & self._listed if listed else source.parents
        phases = {self._sources[parent].phase for parent in parents}
        if not listed and phases <= {SourcePhase.FOREIGN}:
            return SourcePhase.FOREIGN
        if SourcePhase.UNKNOWN in phases:
            return SourcePhase.UNKNOWN
        if phases & {SourcePhase.WAITING, SourcePhase.RUNNING}:
            return SourcePhase.WAITING
        if source.last is not None and source.planned >= source.last:
            return SourcePhase.EXHAUSTED
        return SourcePhase.RUNNING

    def _descendants(self, name: SourceId) -> set[SourceId]:
        found: set[SourceId] = set()
        following = [name]
        while following:
            daughters = self._sources[following.pop()].daughters - found
            found |= daughters
            following += daughters
        return found


def _beyond(name: SourceId, source: _Source) -> list[Instruction]:
    if source.last is not None and source.arrived > source.last:
        return [LineageContradiction(name, f"entries up to seq {source.arrived}, but it ended at {source.last}")]
    return []


def _names(sources: frozenset[SourceId]) -> str:
    return f"({', '.join(sorted(sources))})"
