"""View groups whose state is computed aside, by Spark: which way is chosen, and the documents of such builds.

    builds/G-E/shape            into how many slices the builder of view group G cuts the buckets; E: of the leaves
    builds/G-E/task/P-S-N       slice S of N of part P is in the store
    builds/G-E/progress         how far it is, for people (JSON)
    builds/G-E/pace             milliseconds that each task rests between two writes
    builds/G-E/done             all of it is in the store
    runners/NAME-UNTIL          a builder that takes what comes, until then (milliseconds since 1970)

They are hints for builders, but for `done`. Builders are not elected: what they write depends on nothing but the view
group and the epoch, so two of them, or a task that comes back to life, write the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from belvedere.backend.seam import Store
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.catalog.document import AUTO, EPOCHS, SPARK, load
from belvedere.engine.shard import delta_table, layout, view_table
from belvedere.errors import CatalogError
from belvedere.plan import nodes
from belvedere.protocol.messages import Epoch

BUILDS, RUNNERS = "builds/", "runners/"
LARGE_ROWS = 2_000_000
"""Rows from which on Spark is worth its start."""


@dataclass(frozen=True)
class AsideBuild:
    """Of a view group, from its leaves as they are after an epoch."""

    view_group: int
    since: Epoch

    @property
    def prefix(self) -> str:
        return f"{BUILDS}{self.view_group:010d}-{self.since:020d}/"

    @property
    def shape(self) -> str:
        return self.prefix + "shape"

    @property
    def progress(self) -> str:
        return self.prefix + "progress"

    @property
    def pace(self) -> str:
        return self.prefix + "pace"

    @property
    def done(self) -> str:
        return self.prefix + "done"

    @property
    def tasks(self) -> str:
        return self.prefix + "task/"

    def task(self, part: int, number: int, slices: int) -> str:
        return f"{self.tasks}{part}-{number}-{slices}"


def build_of(document: str) -> AsideBuild | None:
    """The build that a document is of."""
    number, _, epoch = document.removeprefix(BUILDS).partition("/")[0].partition("-")
    if not document.startswith(BUILDS) or not number.isdecimal() or not epoch.isdecimal():
        return None
    return AsideBuild(int(number), Epoch(int(epoch)))


def computed(documents: Iterable[str]) -> tuple[tuple[int, Epoch], ...]:
    """What is in the store, by the names of documents."""
    found = (build_of(name) for name in documents if name.endswith("/done"))
    return tuple((one.view_group, one.since) for one in found if one is not None)


def left_over(documents: Iterable[str], known: int, building: Collection[int]) -> list[str]:
    """Documents of builds that are over. `known`: the greatest view group that there was."""
    found = ((name, build_of(name)) for name in documents)
    return [n for n, one in found if one and one.view_group <= known and one.view_group not in building]


def runner_document(name: str, until_ms: int) -> str:
    return f"{RUNNERS}{name}-{until_ms}"


def runners(documents: Iterable[str], now_ms: int) -> dict[str, str]:
    """Builders that take what comes, by name, with their documents."""
    found = {}
    for document in documents:
        name, _, until = document.removeprefix(RUNNERS).rpartition("-")
        if until.isdecimal() and int(until) > now_ms:
            found[name] = document
    return found


def progress_of(store: Store, one: AsideBuild) -> dict[str, Any]:
    data = store.get_document(one.progress)
    found: dict[str, Any] = {} if data is None else json.loads(data)
    return found


# ---------------------------------------------------------------------- how a view group is built


def leaf_tables(document: bytes, number: int) -> list[str]:
    """The store's tables that a view group reads: DELTA, and views of older groups."""
    compiled = catalogs.compile(document)
    (one,) = [found for found in layout(compiled.shard).view_groups if found.view_group.number == number]
    tables = {delta_table(step.table) for step in one.stage if isinstance(step, nodes.DeltaNode)}
    return sorted(tables | {view_table(leaf) for leaf in one.view_group.leaves})


def decide(
    document: bytes, store: Store, now_ms: int, able: bool, refused: str = "this pool has members that cannot take it"
) -> bytes:
    """The catalog with a decision for each view group that has none. `able`: whether members can take over what was
    computed aside."""
    for group in load(document).view_groups:
        if group.build == SPARK and group.made == catalogs.version(document) and not able:
            raise CatalogError(f"view {group.views[0].name!r} cannot be built by Spark: {refused}; use build: epochs")
        if group.build == AUTO:
            document = catalogs.decided(document, group.number, *_chosen(document, group.number, store, now_ms, able))
    return document


def _chosen(document: bytes, number: int, store: Store, now_ms: int, able: bool) -> tuple[str, str]:
    """The way, and why. Nothing is said where everything is small."""
    usage: Mapping[str, int] = store.usage()
    rows = sum(usage.get(table, 0) for table in leaf_tables(document, number))
    if rows < LARGE_ROWS:
        return EPOCHS, ""
    large = f"it reads about {rows} rows, which is {LARGE_ROWS} or more"
    attached = runners(store.list_documents(RUNNERS), now_ms)
    if not attached:
        return EPOCHS, f"{large}, but no Spark is attached to the pool"
    if not able:
        return EPOCHS, f"{large}, but not all members can take over what Spark computes"
    return SPARK, f"{large}, and {', '.join(sorted(attached))} is attached to the pool"
