"""The planner's entry: from view definitions to the DAG that maintains them.

Query rewrites (`rules`) come first, then all queries of the call are pruned together (`demand`) and lowered to nodes
(`lower`), reusing what is maintained already (`sharing`).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice

from belvedere.errors import CatalogError
from belvedere.plan import nodes as n
from belvedere.plan.canonical import Interner
from belvedere.plan.demand import Demand
from belvedere.plan.lower import Lowering
from belvedere.plan.rules import rewrite
from belvedere.plan.sharing import Shared
from belvedere.sql.catalog import Catalog, ViewDef


def plan_views(
    catalog: Catalog, views: Sequence[ViewDef], existing: n.Plan, leaves: Sequence[n.ViewNode] = ()
) -> tuple[n.ViewNode, ...]:
    """View nodes for the definitions, in their order. Nodes of `existing` are used again where they are equal or hold
    more than what is needed. A view that is read comes from this call, from `existing`, or else from the catalog.

    `leaves` are read as well, but nothing below them is used again: the plan depends on no more than their columns."""
    known = {view.name.lower(): view for view in (*existing.views, *leaves)}
    wanted = _ordered(catalog, views, known)
    interner = Interner()
    queries = [interner.intern(rewrite(view.query, catalog)) for view in wanted]
    for view in wanted:
        catalog = catalog.with_view(view)
    made: dict[str, n.ViewNode] = {}
    shared = _LATEST.shared(existing.views) if not leaves else Shared(n.topological(existing), leaves)
    lowering = Lowering(catalog, Demand(queries), shared, lambda name: made.get(name.lower()) or known[name.lower()])
    for view, query in zip(wanted, queries, strict=True):
        made[view.name.lower()] = lowering.sink(view, query)
    return tuple(made[view.name.lower()] for view in views)


class _Latest:
    """What the plan that was asked about last shares. Views come one by one, and all that are there would be looked
    at for each: of a plan that has more views than the last one, only these are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: tuple[n.ViewNode, ...] = ()
        self._done: dict[n.Node, None] = {}
        self._shared = Shared()

    def shared(self, views: tuple[n.ViewNode, ...]) -> Shared:
        """As `Shared` of the nodes in order would be; the caller's own."""
        with self._lock:
            before = len(self._views)
            if len(views) < before or any(a is not b for a, b in zip(self._views, views, strict=False)):
                before, self._done, self._shared = 0, {}, Shared()
            known = len(self._done)
            n.visit(views[before:], self._done)
            for node in islice(self._done, known, None):
                self._shared.intern(node)
            self._views = views
            return self._shared.copy()


_LATEST = _Latest()


def _ordered(catalog: Catalog, views: Sequence[ViewDef], known: dict[str, n.ViewNode]) -> list[ViewDef]:
    """The views to plan, each after what it reads."""
    given = {view.name.lower(): view for view in views}
    done: dict[str, ViewDef] = {}

    def visit(view: ViewDef, path: tuple[str, ...]) -> None:
        name = view.name.lower()
        if name in path:
            raise CatalogError(f"view {view.name!r} reads itself: {' -> '.join([*path[path.index(name) :], name])}")
        if name in done:
            return
        for below in sorted(view.reads):
            definition = given.get(below.lower())
            if definition is None and below.lower() not in known:
                relation = catalog.relation(below)
                definition = relation if isinstance(relation, ViewDef) else None
            if definition is not None:
                visit(definition, (*path, name))
        done[name] = view

    for view in views:
        visit(view, ())
    return list(done.values())
