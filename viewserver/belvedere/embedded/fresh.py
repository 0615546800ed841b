"""Views made anew from the base rows, as of the epoch that is committed; in the engine's thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from belvedere.embedded.storage.views import ViewTable
from belvedere.engine.engine import Engine
from belvedere.engine.graph import ordered
from belvedere.plan.nodes import ViewNode

if TYPE_CHECKING:
    from belvedere.embedded.runtime import Runtime


def compute(runtime: Runtime, engine: Engine, nodes: Sequence[ViewNode]) -> dict[ViewNode, ViewTable]:
    """Put these views into service in an engine that has none, and give their rows. Of views below them the rows as
    well."""
    views = [task for task in ordered(nodes) if isinstance(task, ViewNode)]
    made: dict[ViewNode, ViewTable] = {}
    for node in views:
        old = runtime.tables[node.name]
        made[node] = ViewTable(old.shape, lambda: runtime.committed, old.since)
    if nodes:
        build = engine.build(nodes, lambda node: made[node].chunks())
        while (deltas := build.advance(runtime.options.build_rows)) is not None:
            for node, delta in deltas.items():
                made[node].apply_now(delta.chunks, delta.quarantine)
                delta.chunks.close()
        engine.activate(build)
    return made
