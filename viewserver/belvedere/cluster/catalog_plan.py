"""From a catalog document to what members run: definitions by name, plan nodes, circuits for the shard.

Every process gets the same result from the same document. A circuit is planned from its own views and the columns of
what they read, all of them as of the version that made it, and with those of its views that are dropped by now: so its
plan, and with it the layout of its state in the store, never changes while it exists.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from belvedere.cluster import catalog_document as documents
from belvedere.cluster.catalog_document import Document, load
from belvedere.embedded import ddl
from belvedere.embedded.builds import shape_of
from belvedere.engine import shard
from belvedere.engine.graph import Arranged
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.plan.rewriting import bottom_up
from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog, TableDef, ViewDef
from belvedere.store.embedded.describe import ViewShape, table_json

_REMEMBERED = 1024


@dataclass(frozen=True)
class ServedView:
    """One version of a view. Its rows are in the store's table `belvedere.engine.shard.view_table(node)`."""

    definition: ViewDef
    node: nodes.View
    circuit: int

    @functools.cached_property
    def shape(self) -> ViewShape:
        return shape_of(self.node, self.definition)


@dataclass(frozen=True)
class ServedTable:
    """A base table: as users know it, and (`stored`) under its name in the store, in INPUT and in plans."""

    definition: TableDef
    stored: TableDef


@dataclass(frozen=True)
class Circuit:
    """`views`: those that are not dropped. `below`: the circuits that they read."""

    number: int
    made: int
    views: tuple[ServedView, ...]
    leaves: tuple[nodes.View, ...]
    below: frozenset[int]


@dataclass(frozen=True)
class Compiled:
    """A catalog, ready to run. `catalog` holds the newest definitions, under construction or not."""

    version: int
    catalog: Catalog
    tables: Mapping[str, ServedTable]
    """By their names for users."""
    circuits: tuple[Circuit, ...]
    shard: shard.ShardCatalog
    stages: int

    @property
    def made(self) -> tuple[int, ...]:
        """The circuits that came with this version and have to be built."""
        return tuple(circuit.number for circuit in self.circuits if circuit.made == self.version)


@dataclass(frozen=True)
class _Planned:
    """All views of a circuit, dropped ones included, and the relations that each of them reads: tables by physical
    name, views of older circuits by (name, circuit)."""

    key: str
    views: Mapping[str, ServedView]
    tables: Mapping[str, frozenset[str]]
    older: Mapping[str, frozenset[tuple[str, int]]]
    same: Mapping[str, frozenset[str]]


class _Memory:
    """Plans of circuits, the latest thousand: documents differ in few circuits, and planning takes milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Planned] = OrderedDict()

    def get(self, key: str) -> _Planned | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, planned: _Planned) -> None:
        with self._lock:
            self._known[planned.key] = planned
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


_memory = _Memory()


@functools.lru_cache(maxsize=256)
def compile(document: bytes) -> Compiled:
    """What the document means; the same in every process."""
    content = load(document)
    planned = plan_circuits(content)
    tables = {
        t.definition.name: ServedTable(t.definition, replace(t.definition, name=t.physical))
        for t in content.tables
        if t.until is None
    }
    circuits = tuple(_live(circuit, planned) for circuit in content.circuits if circuit.live)
    newest = {view.definition.name: view.definition for circuit in circuits for view in circuit.views}
    runs = shard.ShardCatalog(
        tuple(table.stored for table in tables.values()),
        tuple(shard.Circuit(c.number, tuple(v.node for v in c.views), c.leaves) for c in circuits),
    )
    catalog = Catalog({name: table.definition for name, table in tables.items()}, newest)
    return Compiled(content.version, catalog, tables, circuits, runs, shard.layout(runs).stages)


def _live(circuit: documents.Circuit, planned: Mapping[int, _Planned]) -> Circuit:
    own = planned[circuit.number]
    views = tuple(own.views[view.name] for view in circuit.live)
    read = sorted({leaf for view in circuit.live for leaf in own.older[view.name]}, key=lambda leaf: (leaf[1], leaf[0]))
    leaves = tuple(planned[number].views[name].node for name, number in read)
    return Circuit(circuit.number, circuit.made, views, leaves, frozenset(number for _, number in read))


def plan_circuits(content: Document) -> dict[int, _Planned]:
    """All circuits of the document by number, dropped views included."""
    planned: dict[int, _Planned] = {}
    for circuit in content.circuits:
        scope = _Scope(content, circuit, planned)
        found = _memory.get(scope.key)
        if found is None:
            found = scope.plan()
            _memory.put(found)
        planned[circuit.number] = found
    return planned


class _Scope:
    """What a circuit could refer to when it was made."""

    def __init__(self, content: Document, circuit: documents.Circuit, planned: Mapping[int, _Planned]):
        self._circuit = circuit
        self._tables = [t for t in content.tables if t.exists_at(circuit.made)]
        self._views: dict[str, ServedView] = {}
        below = []
        for older in content.circuits:
            if older.number < circuit.number:
                below.append(planned[older.number].key)
                for view in older.views:
                    if view.until is None or view.until > circuit.made:
                        self._views[view.name] = planned[older.number].views[view.name]
        tables = [{**table_json(t.definition), "physical": t.physical} for t in self._tables]
        views = [[view.node.name, view.circuit] for view in self._views.values()]
        described = json.dumps([tables, views, [view.value for view in circuit.views]], sort_keys=True)
        self.key = documents.digest(str(circuit.number), described, *below)

    def plan(self) -> _Planned:
        known = Catalog(
            {t.definition.name: t.definition for t in self._tables},
            {name: view.definition for name, view in self._views.items()},
        )
        physical = {t.definition.name: t.physical for t in self._tables}
        bound: list[ViewDef] = []
        for view in self._circuit.views:
            bound.append(ddl.bind_view(view.value, known))
            known = known.with_view(bound[-1])
        own = {view.name for view in bound}
        reads = {view.name: q.relations(view.query) for view in bound}
        outside = frozenset().union(*reads.values()) - own - physical.keys()
        leaves = [self._views[name] for name in sorted(outside)]
        stored = Catalog(
            {t.physical: replace(t.definition, name=t.physical) for t in self._tables},
            {leaf.definition.name: leaf.definition for leaf in leaves},
        )
        wanted = [replace(view, query=_renamed(view.query, physical)) for view in bound]
        found = plan_views(stored, wanted, nodes.Plan(()), [leaf.node for leaf in leaves])
        views = {v.name: ServedView(v, node, self._circuit.number) for v, node in zip(bound, found, strict=True)}
        return _Planned(
            self.key,
            views,
            {name: frozenset(physical[r] for r in read if r in physical) for name, read in reads.items()},
            {
                name: frozenset((r, self._views[r].circuit) for r in read if r in outside)
                for name, read in reads.items()
            },
            {name: frozenset(r for r in read if r in own) for name, read in reads.items()},
        )


def _renamed(query: q.Query, physical: Mapping[str, str]) -> q.Query:
    def rename(part: q.Query) -> q.Query:
        return replace(part, name=physical.get(part.name, part.name)) if isinstance(part, q.Scan) else part

    return bottom_up(query, rename)


def serving(document: bytes, building: Collection[int]) -> frozenset[int]:
    """Circuits whose views can be read: they are complete, and so is everything below them."""
    ready: set[int] = set()
    for circuit in compile(document).circuits:
        if circuit.number not in building and circuit.below <= ready:
            ready.add(circuit.number)
    return frozenset(ready)


def names_at(document: bytes, building: Collection[int]) -> Mapping[str, ServedView | ServedTable]:
    """Tables and views that can be read while the circuits `building` are under construction: of each view the newest
    version that is complete."""
    return _names_at(document, tuple(sorted(building)))


@functools.lru_cache(maxsize=256)
def _names_at(document: bytes, building: tuple[int, ...]) -> Mapping[str, ServedView | ServedTable]:
    compiled = compile(document)
    ready = serving(document, building)
    views = {v.definition.name: v for c in compiled.circuits if c.number in ready for v in c.views}
    return {**compiled.tables, **views}


def store_tables(document: bytes) -> frozenset[str]:
    """Every versioned table that members of a pool with this catalog write: rows and state."""
    compiled = compile(document)
    found = {shard.delta_table(table.name) for table in compiled.shard.tables}
    for circuit in compiled.shard.circuits:
        for view in circuit.views:
            found |= {shard.view_table(view), shard.quarantine_table(view)}
    for laid in shard.layout(compiled.shard).circuits:
        found |= {name for step, name in laid.names.items() if isinstance(step, Arranged)}
    return frozenset(found)
