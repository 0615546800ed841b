"""From a catalog document to what members run: definitions by name, plan nodes, view groups for the shard.

Every process gets the same result from the same document. A view group is planned from its own views and the columns of
what they read, all of them as of the version that made it, and with those of its views that are dropped by now: so its
plan, and with it the layout of its state in the store, never changes while it exists.

Clients and gateways read definitions here, and run nothing: the engine is loaded where a member asks for what it runs.
"""

from __future__ import annotations

import functools
import json
import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from belvedere.cluster.catalog import document as documents
from belvedere.cluster.catalog.document import SPARK, Document, load
from belvedere.cluster.catalog.names import FailedVersion, ReadableView, ServedTable, tables_of
from belvedere.errors import BelvedereError, Incompatible, ViewFailed
from belvedere.model import ddl
from belvedere.model.describe import ViewShape, table_json
from belvedere.model.shapes import shape_of
from belvedere.plan import nodes
from belvedere.plan.planner import plan_views
from belvedere.plan.rewriting import bottom_up
from belvedere.sql import query as q
from belvedere.sql.catalog import Catalog, ViewDef

if TYPE_CHECKING:
    from belvedere.engine.stages import ShardCatalog

_REMEMBERED = 1024


@dataclass(frozen=True)
class ServedView:
    """One version of a view. Its rows are in the store's table `belvedere.engine.shard.view_table(node)`."""

    definition: ViewDef
    node: nodes.ViewNode
    view_group: int

    @functools.cached_property
    def shape(self) -> ViewShape:
        return shape_of(self.node, self.definition)


@dataclass(frozen=True)
class FailedView:
    """A version of a view that is not computed any more."""

    view: ServedView
    failure: documents.ViewFailure

    def error(self) -> ViewFailed:
        return FailedVersion(ReadableView(self.view.shape, self.view.view_group), self.failure).error()


@dataclass(frozen=True)
class ViewGroup:
    """`views`: those that are not dropped and have not failed. `below`: the view groups that they read. `engine`: that
    of the pool when it was made; 0: not known."""

    number: int
    made: int
    views: tuple[ServedView, ...]
    leaves: tuple[nodes.ViewNode, ...]
    below: frozenset[int]
    engine: int
    build: str = documents.EPOCHS
    why: str = ""


@dataclass(frozen=True)
class Compiled:
    """A catalog, ready to run. `catalog` holds the newest definitions, under construction or not, also of views that
    have failed and cannot be read; what failed while it was built is as if it had not been created."""

    version: int
    catalog: Catalog
    tables: Mapping[str, ServedTable]
    """By their names for users."""
    view_groups: tuple[ViewGroup, ...]
    failed: tuple[FailedView, ...] = ()
    """In the order of their view groups."""

    @functools.cached_property
    def shard(self) -> ShardCatalog:
        """What view servers run."""
        from belvedere.engine.stages import ShardCatalog, StagedGroup

        groups = (StagedGroup(c.number, tuple(v.node for v in c.views), c.leaves, c.engine) for c in self.view_groups)
        return ShardCatalog(tuple(table.stored for table in self.tables.values()), tuple(groups))

    @functools.cached_property
    def stages(self) -> int:
        from belvedere.engine.stages import layout

        return layout(self.shard).stages

    @property
    def engines(self) -> tuple[int, ...]:
        """Under which its view groups were made."""
        return tuple(sorted({view_group.engine for view_group in self.view_groups}))

    @property
    def aside(self) -> tuple[int, ...]:
        """Those that came with this version and are built by Spark."""
        return tuple(group.number for group in self.view_groups if group.number in self.made and group.build == SPARK)

    @property
    def made(self) -> tuple[int, ...]:
        """The view groups that came with this version and have to be built."""
        return tuple(view_group.number for view_group in self.view_groups if view_group.made == self.version)


@dataclass(frozen=True)
class PlannedViewGroup:
    """All views of a view group, dropped ones included, and the relations that each of them reads: tables by physical
    name, views of older view groups by (name, view group)."""

    key: str
    views: Mapping[str, ServedView]
    tables: Mapping[str, frozenset[str]]
    older: Mapping[str, frozenset[tuple[str, int]]]
    same: Mapping[str, frozenset[str]]


class _Memory:
    """Plans of view groups, the latest thousand: documents differ in few of them, and planning takes milliseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, PlannedViewGroup] = OrderedDict()

    def get(self, key: str) -> PlannedViewGroup | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._known.move_to_end(key)
            return found

    def put(self, planned: PlannedViewGroup) -> None:
        with self._lock:
            self._known[planned.key] = planned
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


_memory = _Memory()


@functools.lru_cache(maxsize=256)
def compile(document: bytes) -> Compiled:
    """What the document means; the same in every process."""
    content = load(document)
    planned = plan_view_groups(content)
    tables = tables_of(content)
    view_groups = tuple(_live(view_group, planned) for view_group in content.view_groups if view_group.live)
    failed = tuple(
        FailedView(planned[view_group.number].views[view.name], view.failure)
        for view_group in content.view_groups
        for view in view_group.failed
        if view.failure is not None
    )
    versions = [view for view_group in view_groups for view in view_group.views]
    versions += [one.view for one in failed if one.failure.served]
    newest = {view.definition.name: view.definition for view in sorted(versions, key=lambda view: view.view_group)}
    catalog = Catalog({name: table.definition for name, table in tables.items()}, newest)
    return Compiled(content.version, catalog, tables, view_groups, failed)


def _live(view_group: documents.ViewGroupDocument, planned: Mapping[int, PlannedViewGroup]) -> ViewGroup:
    own = planned[view_group.number]
    views = tuple(own.views[view.name] for view in view_group.live)
    read = sorted(
        {leaf for view in view_group.live for leaf in own.older[view.name]}, key=lambda leaf: (leaf[1], leaf[0])
    )
    leaves = tuple(planned[number].views[name].node for name, number in read)
    below = frozenset(number for _, number in read)
    return ViewGroup(
        view_group.number, view_group.made, views, leaves, below, view_group.engine, view_group.build, view_group.why
    )


def plan_view_groups(content: Document) -> dict[int, PlannedViewGroup]:
    """All view groups of the document by number, dropped views included."""
    planned: dict[int, PlannedViewGroup] = {}
    for view_group in content.view_groups:
        scope = _Scope(content, view_group, planned)
        found = _memory.get(scope.key)
        if found is None:
            found = scope.plan()
            _memory.put(found)
        planned[view_group.number] = found
    return planned


def with_shapes(content: Document) -> Document:
    """The document with what readers need to know of its views."""
    planned = plan_view_groups(content)
    return replace(content, view_groups=tuple(described(group, planned) for group in content.view_groups))


def described(
    view_group: documents.ViewGroupDocument, planned: Mapping[int, PlannedViewGroup]
) -> documents.ViewGroupDocument:
    """With what readers need to know of its views."""
    own = planned[view_group.number]
    views = (
        replace(
            view,
            shape=own.views[view.name].shape.to_json(),
            below=tuple(sorted({number for _, number in own.older[view.name]})),
        )
        for view in view_group.views
    )
    return replace(view_group, views=tuple(views))


class _Scope:
    """What a view group could refer to when it was made."""

    def __init__(
        self, content: Document, view_group: documents.ViewGroupDocument, planned: Mapping[int, PlannedViewGroup]
    ):
        self._view_group = view_group
        self._tables = [t for t in content.tables if t.exists_at(view_group.made)]
        self._views: dict[str, ServedView] = {}
        below = []
        for older in content.view_groups:
            if older.number < view_group.number:
                below.append(planned[older.number].key)
                for view in older.views:
                    failure = view.failure
                    if (view.until is None or view.until > view_group.made) and (
                        failure is None or failure.version > view_group.made
                    ):
                        self._views[view.name] = planned[older.number].views[view.name]
        tables = [{**table_json(t.definition), "physical": t.physical} for t in self._tables]
        views = [[view.node.name, view.view_group] for view in self._views.values()]
        described = json.dumps([tables, views, [view.value for view in view_group.views]], sort_keys=True)
        self.key = documents.digest(str(view_group.number), described, *below)

    def plan(self) -> PlannedViewGroup:
        known = Catalog(
            {t.definition.name: t.definition for t in self._tables},
            {name: view.definition for name, view in self._views.items()},
        )
        physical = {t.definition.name: t.physical for t in self._tables}
        bound: list[ViewDef] = []
        for view in self._view_group.views:
            bound.append(_bind(view, known))
            known = known.with_view(bound[-1])
        own = {view.name for view in bound}
        reads = {view.name: view.reads for view in bound}
        outside = frozenset().union(*reads.values()) - own - physical.keys()
        leaves = [self._views[name] for name in sorted(outside)]
        stored = Catalog(
            {t.physical: replace(t.definition, name=t.physical) for t in self._tables},
            {leaf.definition.name: leaf.definition for leaf in leaves},
        )
        wanted = [replace(view, query=_renamed(view.query, physical)) for view in bound]
        found = plan_views(stored, wanted, nodes.Plan(()), [leaf.node for leaf in leaves])
        views = {v.name: ServedView(v, node, self._view_group.number) for v, node in zip(bound, found, strict=True)}
        return PlannedViewGroup(
            self.key,
            views,
            {name: frozenset(physical[r] for r in read if r in physical) for name, read in reads.items()},
            {
                name: frozenset((r, self._views[r].view_group) for r in read if r in outside)
                for name, read in reads.items()
            },
            {name: frozenset(r for r in read if r in own) for name, read in reads.items()},
        )


def _bind(view: documents.ViewDocument, known: Catalog) -> ViewDef:
    """A member that left a view out, as the embedded database does, would let its state fall behind what members of the
    version before go on with. So it takes no part, and they go on."""
    try:
        return ddl.bind_view(view.value, known)
    except BelvedereError as error:
        raise Incompatible(
            f"view {view.name!r} of the catalog is refused by this version ({error}); replace or drop it with the "
            f"version that made it, then start this one. Its query is: {view.value['sql']}"
        ) from error


def _renamed(query: q.Query, physical: Mapping[str, str]) -> q.Query:
    def rename(part: q.Query) -> q.Query:
        return replace(part, name=physical.get(part.name, part.name)) if isinstance(part, q.Scan) else part

    return bottom_up(query, rename)


def serving(document: bytes, building: Collection[int]) -> frozenset[int]:
    """View groups whose views can be read: they are complete, and so is everything below them."""
    ready: set[int] = set()
    for view_group in compile(document).view_groups:
        if view_group.number not in building and view_group.below <= ready:
            ready.add(view_group.number)
    return frozenset(ready)


def names_at(document: bytes, building: Collection[int]) -> Mapping[str, ServedView | ServedTable]:
    """Tables and views that can be read while the view groups `building` are under construction: of each view the
    newest version that is complete, unless a later one failed."""
    return _names_at(document, tuple(sorted(building)))[0]


def failed_at(document: bytes, building: Collection[int]) -> Mapping[str, FailedView]:
    """Views that cannot be read, since they failed and no later version is complete."""
    return _names_at(document, tuple(sorted(building)))[1]


def failed_builds(document: bytes) -> Mapping[str, FailedView]:
    """The newest version of each view, where that one failed before it was complete."""
    compiled = compile(document)
    versions = {v.definition.name: v.view_group for c in compiled.view_groups for v in c.views}
    found = {one.view.definition.name: one for one in compiled.failed if not one.failure.served}
    return {name: one for name, one in found.items() if one.view.view_group > versions.get(name, 0)}


@functools.lru_cache(maxsize=256)
def _names_at(
    document: bytes, building: tuple[int, ...]
) -> tuple[Mapping[str, ServedView | ServedTable], Mapping[str, FailedView]]:
    compiled = compile(document)
    ready = serving(document, building)
    views = {v.definition.name: v for c in compiled.view_groups if c.number in ready for v in c.views}
    failed = {}
    for one in compiled.failed:
        name = one.view.definition.name
        if one.failure.served and (name not in views or views[name].view_group < one.view.view_group):
            failed[name] = one
    return {**compiled.tables, **{name: view for name, view in views.items() if name not in failed}}, failed


def store_tables(document: bytes) -> frozenset[str]:
    """Every versioned table that members of a pool with this catalog write: rows and state."""
    from belvedere.engine import shard
    from belvedere.engine.graph import Arranged

    compiled = compile(document)
    found = {shard.delta_table(table.name) for table in compiled.shard.tables}
    for view_group in compiled.shard.view_groups:
        for view in view_group.views:
            found |= {shard.view_table(view), shard.quarantine_table(view)}
    for one in compiled.failed:
        if one.failure.served:
            found |= {shard.view_table(one.view.node), shard.quarantine_table(one.view.node)}
    for laid in shard.layout(compiled.shard).view_groups:
        found |= {name for step, name in laid.names.items() if isinstance(step, Arranged)}
    return frozenset(found)
