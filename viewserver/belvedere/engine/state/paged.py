"""A multiset per group, of which big ones are kept in pages: what min, max and DISTINCT hold of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from belvedere.engine.state import pages
from belvedere.engine.state.pages import PageStore, Paging
from belvedere.engine.state.ragged import Ragged, join, nothing, split, where


class Items(Protocol):
    """Entries of multisets in their canonical order, one group after the other."""

    def hashes(self) -> np.ndarray:
        """A uint64 for each, the same for equal values."""

    def take(self, index: np.ndarray) -> Items: ...

    def pack(self, ends: np.ndarray) -> list[Ragged]:
        """The entries between two ends as one value, in parts."""


class Multiset(Protocol):
    """Entries per group slot."""

    parts: int

    def entries(self, slots: np.ndarray) -> tuple[np.ndarray, Any]:
        """Where those of each group end, and all entries (`Items`)."""

    def import_(self, slots: np.ndarray, parts: Sequence[Ragged]) -> None:
        """Add packed entries; a slot may be named several times."""


def export(own: Multiset, paging: Paging, slots: np.ndarray, store: PageStore | None, kind: int) -> list[Ragged]:
    """The level of each group and the entries of those that are small; pages of the others are saved."""
    ends, items = own.entries(slots)
    change = None if store is None else paging.rewrite(slots, np.diff(ends, prepend=0))
    if change is None:
        return [nothing(len(slots)), *items.pack(ends)]
    assert store is not None
    at = np.repeat(np.arange(len(slots)), np.diff(ends, prepend=0))
    touched = np.flatnonzero(change.groups()[at])
    chosen = items.take(touched)
    place = change.place(at[touched], chosen.hashes())
    inside = np.flatnonzero(place >= 0)
    order = inside[np.argsort(place[inside], kind="stable")]
    counts = np.bincount(place[inside], minlength=len(change.wanted))
    full = counts > 0
    ids = change.ids(store.ids(slots), full)
    if len(ids):
        values = join(chosen.take(order).pack(np.cumsum(counts)[full])).arrow(len(ids) - int(full.sum()))
        store.save_pages(kind, ids, values)
    inline = np.flatnonzero(change.levels[at] == 0)
    ends = np.cumsum(np.bincount(at[inline], minlength=len(slots)))
    return [where(change.levels, change.levels > 0), *items.take(inline).pack(ends)]


def restore(
    own: Multiset, paging: Paging, slots: np.ndarray, parts: Sequence[Ragged], store: PageStore | None, kind: int
) -> None:
    """Put exported groups into slots that hold nothing."""
    own.import_(slots, parts[1:])
    big = parts[0].lengths > 0
    if not big.any():
        paging.clear(slots)
        return
    assert store is not None
    levels = np.zeros(len(slots), np.uint8)
    levels[big] = parts[0].words(np.uint8)
    paging.set(slots, levels)
    ids, at = pages.all_ids(store.ids(slots), levels)
    values = store.load_pages(kind, ids)
    there = np.asarray(values.is_valid())
    rows = split(Ragged.of_arrow(values.drop_null()), own.parts, "pages of an aggregate")
    own.import_(slots[at[there]], rows)


def drop(paging: Paging, slots: np.ndarray, store: PageStore, kind: int) -> None:
    """These groups are empty: so are their pages."""
    levels = paging.levels(slots)
    if levels.any():
        ids, _ = pages.all_ids(store.ids(slots), levels)
        store.save_pages(kind, ids, pa.nulls(len(ids), pa.binary()))
