"""View groups computed from nothing but the rows of their leaves: every byte of their state and views at an epoch.

A fresh shard takes all rows of base tables (and of views of other groups) at once, and writes what shards write that
have taken every change since the beginning: state has one form, whatever its history (but for the number of pages of
big groups, see `state.pages`). It is cut into parts (`engine.parts`) and slices of buckets. `compute` is one slice of
one part, wherever it runs; `Recomputation.run` does them one after the other, with the rows between them in files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from belvedere.engine.exchange import Outgoing, TableWrite
from belvedere.engine.formats import view_group_of
from belvedere.engine.parts import EdgeId, Part, parts_of
from belvedere.engine.residency import StateStore
from belvedere.engine.routing import BUCKETS, address_of, buckets_of
from belvedere.engine.shard import Shard
from belvedere.engine.stages import ShardCatalog, StagedGroup, layout
from belvedere.engine.viewrows import KeyEncoder, quarantine_table, view_table
from belvedere.plan import nodes
from belvedere.spill import Budget, HeldItem, Spill, as_it_is


@dataclass(frozen=True)
class Recipe:
    """What is computed: these view groups of a catalog, at an epoch, in so many slices of buckets. `below`: also what
    they read of older view groups, whose stored rows are taken as they are otherwise."""

    catalog: ShardCatalog
    groups: frozenset[int]
    epoch: int
    slices: int = 1
    below: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.slices <= BUCKETS:
            raise ValueError(f"{self.slices} slices: there are {BUCKETS} buckets")

    @property
    def computed(self) -> frozenset[int]:
        """The view groups that are computed, given away or not."""
        return _with_below(self.catalog, self.groups) if self.below else self.groups

    @property
    def needed(self) -> ShardCatalog:
        """Of the catalog what is of any use."""
        numbers = _with_below(self.catalog, self.groups)
        return replace(
            self.catalog, view_groups=tuple(group for group in self.catalog.view_groups if group.number in numbers)
        )

    def parts(self) -> list[Part]:
        return parts_of(layout(self.needed), self.computed)

    def span(self, number: int) -> tuple[int, int]:
        """The buckets of a slice."""
        return number * BUCKETS // self.slices, (number + 1) * BUCKETS // self.slices

    def owner(self) -> np.ndarray:
        """Which slice each bucket is in."""
        owner = np.empty(BUCKETS, np.uint16)
        for number in range(self.slices):
            owner[slice(*self.span(number))] = number
        return owner

    def views(self) -> dict[str, StagedGroup]:
        """Of each view table that is computed the view group."""
        return {
            view_table(view): group
            for group in self.needed.view_groups
            if group.number in self.computed
            for view in group.views
        }


def _with_below(catalog: ShardCatalog, groups: Collection[int]) -> frozenset[int]:
    """These view groups and all that they read."""
    by_number = {group.number: group for group in catalog.view_groups}
    made_by: dict[nodes.ViewNode, int] = {view: group.number for group in catalog.view_groups for view in group.views}
    found: set[int] = set()
    waiting = list(groups)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += [made_by[leaf] for leaf in by_number[number].leaves]
    return frozenset(found)


class _Fresh:
    """A store in which there is nothing yet of what is computed."""

    def __init__(self, store: StateStore, recipe: Recipe) -> None:
        self._store, self._computed, self._views = store, recipe.computed, recipe.views()

    def _is_computed(self, table: str) -> bool:
        return table in self._views or view_group_of(table) in self._computed

    def load(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return pa.nulls(len(ids), pa.binary()) if self._is_computed(table) else self._store.load(table, ids, below)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return iter(()) if self._is_computed(table) else self._store.scan(table, first, stop, below, only)


@dataclass(frozen=True)
class Means:
    """With what it is computed. `store`: base tables, and views that are not computed, at versions up to the epoch.
    `model`: see `Shard`; None where nothing is to be compared."""

    store: StateStore
    encode_keys: KeyEncoder
    model: StateStore | None = None
    previous_images: bool = False
    memory_limit: int = 1 << 30
    spill_directory: Path | None = None


def compute(
    recipe: Recipe, part: Part, number: int, arrived: Iterator[bytes], means: Means, send: Callable[[Outgoing], None]
) -> list[TableWrite]:
    """One slice of one part: everything that it writes. `arrived`: rows for this slice that earlier parts sent, in any
    order; `send` takes rows for later ones. Repeating it gives the same."""
    shard = Shard(
        _Fresh(means.store, recipe),
        memory_limit=means.memory_limit,
        spill_directory=means.spill_directory,
        encode_keys=means.encode_keys,
        previous_images=means.previous_images,
        model=means.model,
    )
    shard.configure(recipe.needed)
    shard.own(recipe.owner(), number)
    span = recipe.span(number)
    # everything is read at versions below this one
    shard.begin(recipe.epoch + 1, dict.fromkeys(recipe.computed, span), part)
    stages = _arrivals(recipe.needed)
    for payload in arrived:
        edge = address_of(payload)
        assert not isinstance(edge, str), "rows of base tables are read, not sent"
        if edge in part.takes:
            shard.receive(stages[edge], (0, 0), payload)
    for stage in range(shard.stages):
        for out in shard.run(stage):
            send(out)
    return [write for write in map(_present, shard.finish()) if part.writes(write.table) and len(write.ids)]


def _arrivals(catalog: ShardCatalog) -> dict[EdgeId, int]:
    """In which stage rows of each edge are wanted."""
    return {
        (one.view_group.number, edge): one.stage[moved]
        for one in layout(catalog).view_groups
        for edge, moved in enumerate(one.edges)
    }


def _present(write: TableWrite) -> TableWrite:
    """Without rows that are not there: nothing was there before."""
    if not write.values.null_count:
        return write
    there = np.asarray(write.values.is_valid())
    return chosen(write, there)


def chosen(write: TableWrite, mask: np.ndarray) -> TableWrite:
    """Some rows of a write."""
    arrow = pa.array(mask)
    return replace(
        write,
        ids=write.ids[mask],
        values=write.values.filter(arrow),
        keys=None if write.keys is None else write.keys.filter(arrow),
        hidden=None if write.hidden is None else write.hidden[mask],
        before=None if write.before is None else write.before.filter(arrow),
    )


class Recomputation:
    """All slices of all parts in this process, one after the other."""

    def __init__(self, recipe: Recipe, means: Means) -> None:
        self._recipe, self._means = recipe, means
        self._spill: Spill[bytes] = Spill(Budget(means.memory_limit // 4, means.spill_directory), as_it_is, as_it_is)
        self._sent: dict[tuple[int, int], list[HeldItem[bytes]]] = {}
        """Rows by stage and slice."""

    def run(self, buckets: np.ndarray | None = None) -> Iterator[TableWrite]:
        """What the asked view groups have in the store: every row once, a table in several pieces. `buckets`: only rows
        of these are given."""
        parts = self._recipe.parts()
        try:
            for at, part in enumerate(parts):
                for number in range(self._recipe.slices):
                    arrived = self._arrived(part.stage, number)
                    for write in compute(self._recipe, part, number, arrived, self._means, self._hold):
                        yield from self._given(write, buckets)
                self._forget(parts[at + 1 :])
        finally:
            self._spill.close()

    def _hold(self, out: Outgoing) -> None:
        held = self._spill.hold(out.payload, len(out.payload))
        self._sent.setdefault((out.stage, out.target), []).append(held)

    def _arrived(self, stage: int, number: int) -> Iterator[bytes]:
        """Rows that were sent to a slice, of all stages so far."""
        for one in range(stage + 1):
            for held in self._sent.get((one, number), ()):
                yield self._spill.fetch(held)

    def _forget(self, later: Sequence[Part]) -> None:
        if not later:
            self._sent = {}

    def _given(self, write: TableWrite, buckets: np.ndarray | None) -> Iterator[TableWrite]:
        group = view_group_of(write.table)
        if group is None:
            group = _group_of_rows(self._recipe, write.table)
        if group not in self._recipe.groups:
            return
        if buckets is not None:
            write = chosen(write, buckets[buckets_of(write.ids)])
        if len(write.ids):
            yield write


def _group_of_rows(recipe: Recipe, table: str) -> int:
    for group in recipe.needed.view_groups:
        if any(table in (view_table(view), quarantine_table(view)) for view in group.views):
            return group.number
    raise AssertionError(f"table {table!r} is none of a view that is computed")
