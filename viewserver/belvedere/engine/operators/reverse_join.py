"""REVERSE-JOIN: the rows of one input under one join key, shared by every join that reads them under it.

Within an epoch each row is unchanged, FRESH (added) or GONE (removed). Gone rows stay in their group, marked, until the
epoch ends: joins need old and new membership at once, and several joins may read the same state, so nobody may consume
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from belvedere.engine.arrangement import Arrangement, Grouping, part
from belvedere.engine.buffer import CHUNK_ROWS
from belvedere.engine.delta import Delta
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state import pages
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.jit import plain
from belvedere.engine.state.members import Members
from belvedere.engine.state.pages import Paging, Rewrite
from belvedere.engine.state.ragged import Ragged, find_tagged, join_tagged, segments, tagged_parts, where
from belvedere.engine.vec import Status
from belvedere.plan import nodes
from belvedere.plan.explain import StateSize

UNCHANGED, FRESH, GONE = 0, 1, 2
_NO_IDS = np.empty((0, 2), np.uint64)
_LEVEL, _IDS, _SIZES, _ROWS = 1, 2, 3, 4
"""Tags in the stored value of a group or page; joins have greater ones."""


class Rider(Protocol):
    """What a join keeps for every stored row of a side; it moves with the row."""

    values: np.ndarray
    tag: int
    """Finds its values again in a stored group."""

    def reset(self, slots: np.ndarray, limit: int) -> None:
        """Make room for slots below the limit and clear these."""


@dataclass(slots=True)
class Sided:
    """The input's delta with, per chunk, key ids and row slots."""

    grouping: Grouping
    slots: list[np.ndarray]
    groups: np.ndarray  # distinct groups that the epoch touched

    def __iter__(self) -> Iterator[tuple[Delta, np.ndarray, np.ndarray]]:
        for (delta, ids, _), slots in zip(self.grouping, self.slots, strict=True):
            yield delta, ids, slots


class ReverseJoinOperator:
    def __init__(self, node: nodes.ReverseJoinNode, arrangement: Arrangement, name: str):
        self.node, self.arrangement, self._name = node, arrangement, name
        arrangement.facets[name] = self
        self.riders: list[Rider] = []
        self._types = [c.type for c in node.schema]
        self.index = HashIndex()
        self.columns = Columns(self._types)
        self.members = Members()
        self.mark = np.zeros(64, np.uint8)
        self.error: np.ndarray | None = None
        self._group_of = np.zeros(64, np.int32)
        self._fresh_in = np.zeros(64, np.int32)
        self._gone_in = np.zeros(64, np.int32)
        self._touched = Touched()
        self._marked: list[np.ndarray] = []
        self._gone: list[tuple[np.ndarray, np.ndarray]] = []
        self._codec = RowCodec(self._types)
        self._paging = Paging(pages.ROWS)

    def apply(self, grouping: Grouping) -> Sided:
        limit = self.arrangement.index.limit
        self._fresh_in = grown(self._fresh_in, limit)
        self._gone_in = grown(self._gone_in, limit)
        slots = [np.empty(len(ids), np.int32) for ids, _ in grouping.keys]
        # Removals of all chunks come first: the two halves of an update may arrive in any order.
        for (delta, _, groups), out in zip(grouping, slots, strict=True):
            self._remove(delta, groups, out)
            self._touched.add(groups, limit)
        for (delta, _, groups), out in zip(grouping, slots, strict=True):
            self._insert(delta, groups, out, FRESH)
        touched = self._touched.all()
        self._touched.clear()
        return Sided(grouping, slots, touched)

    def _remove(self, delta: Delta, groups: np.ndarray, out: np.ndarray) -> None:
        rows = np.flatnonzero(delta.weight < 0)
        if not len(rows):
            return
        slots = self.index.remove(delta.id[rows])
        if (slots < 0).any():
            raise AssertionError("a join input retracted a row that it never delivered")
        out[rows] = slots
        self.mark[slots] = GONE
        self._marked.append(slots)
        self._gone.append((groups[rows], slots))
        add_at(self._gone_in, groups[rows], np.ones(len(rows), np.int8))

    def _insert(self, delta: Delta, groups: np.ndarray, out: np.ndarray, mark: int) -> None:
        rows = np.flatnonzero(delta.weight > 0)
        if not len(rows):
            return
        every = len(rows) == len(delta)
        slots, _ = self.index.insert(delta.id if every else delta.id[rows])
        out[rows] = slots
        self.columns.scatter(slots, delta.columns if every else [c.take(rows) for c in delta.columns])
        self.mark = grown(self.mark, self.index.limit)
        self._group_of = grown(self._group_of, self.index.limit)
        self.mark[slots] = mark
        chosen = groups if every else groups[rows]
        self._group_of[slots] = chosen
        self.members.add(chosen, slots)
        if mark == FRESH:
            self._marked.append(slots)
            add_at(self._fresh_in, chosen, np.ones(len(rows), np.int8))
        if delta.error is not None and self.error is None:
            self.error = np.ones(self.index.limit, np.uint8)
        if self.error is not None:
            if len(self.error) < self.index.limit:
                more = np.ones(max(self.index.limit, 2 * len(self.error)), np.uint8)
                more[: len(self.error)] = self.error
                self.error = more
            self.error[slots] = Status.VALUE if delta.error is None else delta.error[rows]

    def old_sizes(self, groups: np.ndarray) -> np.ndarray:
        """Members of each group (-1: none) before this epoch."""
        return self._sizes(groups, self._fresh_in)

    def new_sizes(self, groups: np.ndarray) -> np.ndarray:
        """Members of each group (-1: none) now."""
        return self._sizes(groups, self._gone_in)

    def _sizes(self, groups: np.ndarray, less: np.ndarray) -> np.ndarray:
        known = np.where(groups < 0, 0, groups)
        inside = known < len(less)
        missing = np.where(inside, less[np.where(inside, known, 0)], 0)
        return np.where(groups < 0, 0, self.members.sizes(known) - missing)

    def probe(self, groups: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (position in `groups`, member's row slot), gone and fresh members included, in bounded pieces."""
        cursor = None
        while True:
            rows, slots, cursor = self.members.probe(groups, None, 0, CHUNK_ROWS, cursor)
            if len(rows):
                yield rows, slots
            if cursor is None:
                return

    def groups_of(self, slots: np.ndarray) -> np.ndarray:
        """Group slots of stored rows."""
        groups: np.ndarray = self._group_of[slots]
        return groups

    def errors_at(self, slots: np.ndarray) -> np.ndarray | None:
        """Row errors of stored rows."""
        if self.error is None:
            return None
        codes: np.ndarray = self.error[slots]
        return codes if (codes > Status.VALUE).any() else None

    def read(self, slots: np.ndarray, weight: np.ndarray, with_ids: bool = True) -> Delta:
        """Stored rows as a delta (without ids where nobody will look at them)."""
        ids = self.index.ids(slots) if with_ids else _NO_IDS
        return Delta(self.columns.gather(slots), weight, ids, self.errors_at(slots))

    def current(self) -> Iterator[Delta]:
        slots = self.index.slots()
        for start in range(0, len(slots), CHUNK_ROWS):
            chosen = slots[start : start + CHUNK_ROWS]
            yield self.read(chosen, np.ones(len(chosen), np.int8))

    def end_epoch(self) -> None:
        if self._paging.used:
            for slots in self._marked:
                self._note(self._group_of[slots], slots)
        for groups, slots in self._gone:
            self.members.remove(groups, slots)
            self.columns.release(slots)
            self._gone_in[groups] = 0
        for slots in self._marked:
            self.mark[slots] = UNCHANGED
            self._fresh_in[self._group_of[slots]] = 0
        self._gone, self._marked = [], []
        self.index.end_epoch()

    def changed(self, slots: np.ndarray) -> None:
        """What joins keep for these rows changed, so their groups must be saved although no row did."""
        groups = self._group_of[slots]
        self.arrangement.touch(groups)
        self._note(groups, slots)

    def _note(self, groups: np.ndarray, slots: np.ndarray) -> None:
        """Rows of groups that are kept in pages: their pages must be written."""
        big = self._paging.pick(groups)
        if big is not None:
            self._paging.note(groups[big], self.index.ids(slots[big])[:, 1])

    def detach(self) -> None:
        """The operator goes, the arrangement may stay for others."""
        del self.arrangement.facets[self._name]

    # ------------------------------------------------------------------ groups in a store

    def export(self, groups: np.ndarray) -> Ragged:
        """The rows of each group in the order of their ids, with what joins count for them. Of a big group only its
        level: its rows are in pages of their own, of which those are written that changed."""
        change = self._paging.rewrite(groups, self.members.sizes(groups))
        inline, levels = groups, np.zeros(len(groups), np.uint8)
        if change is not None:
            self._save_pages(groups, change)
            levels = change.levels
            inline = np.where(levels > 0, np.int32(-1), groups)
        at, slots = self._members_of(inline)
        parts = self._pack(np.cumsum(np.bincount(at, minlength=len(groups))), *self._sorted(at, slots))
        return join_tagged([(_LEVEL, where(levels, levels > 0)), *parts])

    def _members_of(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = list(self.probe(groups))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def memberships(self) -> np.ndarray:
        """By row slot the group among whose members it is; -1: of none."""
        groups = self.arrangement.index.slots()
        out = np.full(self.index.limit, -1, np.int32)
        for at, slots in self.probe(groups):
            out[slots] = groups[at]
        return out

    def _sorted(self, at: np.ndarray, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row slots and ids, ordered by where they belong and then by id."""
        ids = self.index.ids(slots)
        order = np.lexsort((ids[:, 1], ids[:, 0], at))
        return slots[order], ids[order]

    def _pack(self, ends: np.ndarray, slots: np.ndarray, ids: np.ndarray) -> list[tuple[int, Ragged]]:
        """Parts of values that each hold the rows between two ends."""
        rows = self._codec.pack(self.columns.gather(slots), len(slots), self.errors_at(slots))
        bounds = np.concatenate([rows.starts[:1], rows.stops]) if len(slots) else np.zeros(1, np.int64)
        at = bounds[np.concatenate([[0], ends])]
        parts = [
            (_IDS, segments(ends, ids)),
            (_SIZES, segments(ends, rows.lengths.astype(np.uint32))),
            (_ROWS, Ragged(at[:-1], at[1:], rows.data)),
        ]
        for rider in self.riders:
            parts.append((rider.tag, segments(ends, rider.values[slots])))
        return parts

    def _save_pages(self, groups: np.ndarray, change: Rewrite) -> None:
        """Write the pages of big groups that changed; where the number of pages did, all of them."""
        store = self.arrangement.store
        assert store is not None
        at, slots = self._members_of(np.where(change.groups(), groups, np.int32(-1)))
        place = change.place(at, self.index.ids(slots)[:, 1])
        inside = place >= 0
        counts = np.bincount(place[inside], minlength=len(change.wanted))
        full = counts > 0
        ids = change.ids(self.arrangement.index.ids(groups), full)
        if len(ids):
            parts = self._pack(np.cumsum(counts)[full], *self._sorted(place[inside], slots[inside]))
            for start, values in join_tagged(parts).pieces():
                store.save(self._pages_table, ids[start : start + len(values)], values)
            gone = ids[int(full.sum()) :]
            if len(gone):
                store.save(self._pages_table, gone, pa.nulls(len(gone), pa.binary()))

    @property
    def _pages_table(self) -> str:
        return f"{self.arrangement.name} pages {self._name}"

    def drop(self, groups: np.ndarray) -> None:
        levels = self._paging.levels(groups)
        if levels.any():
            store = self.arrangement.store
            assert store is not None
            ids, _ = pages.all_ids(self.arrangement.index.ids(groups), levels)
            store.save(self._pages_table, ids, pa.nulls(len(ids), pa.binary()))

    def import_(self, groups: np.ndarray, values: Ragged) -> None:
        level, *parts = find_tagged(values, [_LEVEL, *self._tags])
        self._adopt(groups, parts)
        big = level.lengths > 0
        levels = np.zeros(len(groups), np.uint8)
        if big.any():
            levels[big] = level.words(np.uint8)
            self._load_pages(groups, levels)
        self._paging.set(groups, levels)

    def _load_pages(self, groups: np.ndarray, levels: np.ndarray) -> None:
        store = self.arrangement.store
        assert store is not None
        ids, at = pages.all_ids(self.arrangement.index.ids(groups), levels)
        while len(ids):
            values = store.load_some(self._pages_table, ids)
            there = np.flatnonzero(np.asarray(values.is_valid()))
            self._adopt(groups[at[there]], find_tagged(Ragged.of_arrow(values.drop_null()), self._tags))
            ids, at = ids[len(values) :], at[len(values) :]

    @property
    def _tags(self) -> list[int]:
        return [_IDS, _SIZES, _ROWS, *(rider.tag for rider in self.riders)]

    def _adopt(self, groups: np.ndarray, parts: Sequence[Ragged]) -> None:
        """Rows that come from a store; values may be of groups or of pages."""
        counts = parts[0].lengths // 16
        if not counts.any():
            return
        ids, sizes = parts[0].words(np.uint64).reshape(-1, 2), parts[1].words(np.uint32).astype(np.int64)
        stops = np.cumsum(sizes)
        columns, error = self._codec.unpack(Ragged(stops - sizes, stops, plain(parts[2].compact()[1])))
        slots = np.empty(len(ids), np.int32)
        delta = Delta(columns, np.ones(len(ids), np.int8), ids, error)
        self._insert(delta, np.repeat(groups, counts), slots, UNCHANGED)
        for rider, counted in zip(self.riders, parts[3:], strict=True):
            rider.reset(slots, self.index.limit)
            rider.values[slots] = counted.words(np.int64)

    def follow(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        self._paging.follow(groups, [tagged_parts(value).get(_LEVEL, b"") for value in values])

    def evict(self, groups: np.ndarray) -> None:
        rows, slots = self._members_of(groups)
        if len(slots):
            self.index.remove(self.index.ids(slots))
            self.members.remove(groups[rows], slots)
            self.columns.release(slots)
        self.index.end_epoch()
        self._paging.clear(groups)

    def settle(self) -> None:
        self.end_epoch()
        self._paging.settle()

    def size(self) -> StateSize:
        own = self.index.nbytes() + self.columns.nbytes() + self.members.nbytes() + 5 * self.index.limit
        return StateSize(len(self.index), own, self.columns.plain_bytes(len(self.index)))

    def dump(self) -> State:
        out = {f"index.{k}": v for k, v in self.index.dump().items()}
        out |= {f"columns.{k}": v for k, v in self.columns.dump().items()}
        out |= {f"members.{k}": v for k, v in self.members.dump().items()}
        out["group_of"] = self._group_of[: self.index.limit]
        if self.error is not None:
            out["error"] = self.error[: self.index.limit]
        return out

    def load(self, state: State) -> None:
        self.index = HashIndex.load(part(state, "index."))
        self.columns = Columns(self._types)
        self.columns.load(part(state, "columns."))
        self.members = Members.load(part(state, "members."))
        self._group_of = grown(np.array(state["group_of"]), 64)
        self.mark = np.zeros(max(64, self.index.limit), np.uint8)
        self.error = np.array(state["error"]) if "error" in state else None
