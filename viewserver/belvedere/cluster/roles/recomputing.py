"""What a pool's store should hold of view groups at an epoch, computed anew from DELTA: exact bytes, in the form of the
engine whose form the store has. Builds write it, verification compares it, repair takes the right values from it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import Store, TableWrite
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.roles.work import encode_keys
from belvedere.engine.arrangement import tag_of
from belvedere.engine.formats import THIS_VERSION, Engines, view_group_of
from belvedere.engine.graph import Arranged, Grouped
from belvedere.engine.recomputation import Means, Recipe, Recomputation
from belvedere.engine.shard import ShardCatalog, layout, quarantine_table, view_table
from belvedere.engine.state.ragged import tagged_parts
from belvedere.errors import Incompatible
from belvedere.plan import nodes
from belvedere.protocol.engines import state_engine


class StateForms:
    """In which form state of each view group of a pool is."""

    def __init__(self, catalog: ShardCatalog, engine: int, engines: Engines = THIS_VERSION) -> None:
        self._engines = engines
        self._forms = {one.number: state_engine(one.made, engine, engines.rebuilding) for one in catalog.view_groups}
        for number, form in self._forms.items():
            if form not in engines:
                raise Incompatible(
                    f"state of view group {number} is in the form of engine {form} (the pool has engine {engine}), "
                    f"this process has {engines}: use the version of Belvedere that the pool has"
                )

    def pack(self, write: TableWrite) -> TableWrite:
        """A write as the store gets it."""
        number = view_group_of(write.table)
        return write if number is None else replace(write, values=self._engines.pack(self._forms[number], write.values))

    def unpack(self, table: str, values: pa.BinaryArray) -> pa.BinaryArray:
        number = view_group_of(table)
        return values if number is None else self._engines.unpack(self._forms[number], values)


class StoredState:
    """The versioned tables of a store, as a shard reads them."""

    def __init__(self, store: Store, forms: StateForms) -> None:
        self._store, self._forms = store, forms

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._forms.unpack(table, self._store.read_some(table, ids, below))

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._store.scan(table, first, stop, below)  # the only buckets are those of the slice


def recompute(
    store: Store,
    document: bytes,
    engine: int,
    groups: Collection[int],
    epoch: int,
    *,
    parts: int = 1,
    buckets: np.ndarray | None = None,
    below: bool = True,
    as_stored: bool = True,
    previous_images: bool = False,
    engines: Engines = THIS_VERSION,
    memory_limit: int = 1 << 30,
    spill_directory: Path | None = None,
) -> Iterator[TableWrite]:
    """Every row of every table of these view groups at an epoch, which the caller holds: each row once, a table in
    several pieces. `document`: the catalog, `engine`: that of the pool. `parts`: slices of buckets that are computed
    one after the other, so that memory is bounded. `buckets` (bool[16384]): only rows of these are given. `below`:
    views of older view groups that are read are computed as well, else what is stored of them is taken as right.
    `as_stored`: big groups have as many pages as in the store, where their sizes allow it. `previous_images`: views
    come with images of what was before, which is nothing."""
    catalog = catalogs.compile(document).shard
    recipe = Recipe(catalog, frozenset(groups), epoch, parts, below)
    forms = StateForms(recipe.needed, engine, engines)
    state = StoredState(store, forms)
    means = Means(
        state,
        encode_keys,
        model=state if as_stored else None,
        previous_images=previous_images,
        memory_limit=memory_limit,
        spill_directory=spill_directory,
    )
    return map(forms.pack, Recomputation(recipe, means).run(buckets))


def group_tables(document: bytes, group: int, known: Collection[str]) -> set[str]:
    """The tables of a view group, of these in a store (pages of big groups have names that come from it)."""
    catalog = catalogs.compile(document).shard
    (one,) = [found for found in layout(catalog).view_groups if found.view_group.number == group]
    rows = {table for _, view in one.views for table in (view_table(view), quarantine_table(view))}
    names = {name for step, name in one.names.items() if isinstance(step, Arranged)}
    return rows | names | {table for table in known if table.partition(" pages ")[0] in names}


def live_tags(document: bytes, group: int) -> dict[str, frozenset[int]]:
    """Of each state table the tags that parts of its values may have. Parts with others are of views that were dropped
    and stay until the value is written again; they mean nothing."""
    catalog = catalogs.compile(document).shard
    (one,) = [found for found in layout(catalog).view_groups if found.view_group.number == group]
    found: dict[str, set[int]] = {name: {1} for step, name in one.names.items() if isinstance(step, Arranged)}
    for step, below in one.feeds.items():
        if isinstance(step, (nodes.PreAggregationNode, Grouped, nodes.ReverseJoinNode)):
            found[one.names[below[0]]].add(tag_of(one.names[step]))
    return {name: frozenset(tags) for name, tags in found.items()}


def same_value(found: bytes, wanted: bytes, tags: frozenset[int]) -> bool:
    """Whether a group's stored value is what it should be, but for what views that are gone have left in it: parts of
    their aggregates and sides, and within sides the partners that their joins counted."""
    if found == wanted:
        return True
    parts, right = _whole(found), _whole(wanted)
    if parts is None or right is None or {tag for tag in parts if tag in tags} != right.keys():
        return False
    return all(parts[tag] == part or _same_side(parts[tag], part) for tag, part in right.items())


def _same_side(found: bytes, wanted: bytes) -> bool:
    parts, right = _whole(found), _whole(wanted)
    return parts is not None and right is not None and {t: p for t, p in parts.items() if t in right} == right


def _whole(value: bytes) -> dict[int, bytes] | None:
    """The parts of a value that is nothing else."""
    parts = tagged_parts(value)
    return parts if sum(8 + len(part) for part in parts.values()) == len(value) else None
