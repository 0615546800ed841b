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

from belvedere.engine.arrangement import Arrangement, Grouping, part
from belvedere.engine.buffer import CHUNK_ROWS, decode, encode
from belvedere.engine.delta import Delta
from belvedere.engine.kernels import Touched, add_at
from belvedere.engine.operators.base import State, grown
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.members import Members
from belvedere.engine.state.packing import pack, unpack
from belvedere.engine.vec import Status
from belvedere.plan import nodes
from belvedere.plan.explain import StateSize

UNCHANGED, FRESH, GONE = 0, 1, 2
_NO_IDS = np.empty((0, 2), np.uint64)


class Rider(Protocol):
    """What a join keeps for every stored row of a side; it moves with the row."""

    values: np.ndarray

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


class ReverseJoin:
    def __init__(self, node: nodes.ReverseJoin, arrangement: Arrangement, name: str):
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
        self.arrangement.touch(self._group_of[slots])

    def detach(self) -> None:
        """The operator goes, the arrangement may stay for others."""
        del self.arrangement.facets[self._name]

    def export(self, groups: np.ndarray) -> list[bytes]:
        """Each group's rows, with what joins count for them."""
        out = []
        for group in groups:
            slots = np.concatenate([np.empty(0, np.int32), *(s for _, s in self.probe(np.array([group], np.int32)))])
            rows = encode(self.read(slots, np.ones(len(slots), np.int8)))
            counts = {str(i): rider.values[slots] for i, rider in enumerate(self.riders)}
            out.append(pack({"rows": np.frombuffer(rows, np.uint8), **counts}))
        return out

    def import_(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        for group, value in zip(groups, values, strict=True):
            parts = unpack(value)
            delta = decode(parts["rows"].tobytes(), self.node.schema)
            slots = np.empty(len(delta), np.int32)
            self._insert(delta, np.full(len(delta), group, np.int32), slots, UNCHANGED)
            for i, rider in enumerate(self.riders):
                rider.reset(slots, self.index.limit)
                if str(i) in parts:
                    rider.values[slots] = parts[str(i)]

    def evict(self, groups: np.ndarray) -> None:
        for rows, slots in self.probe(groups):
            self.index.remove(self.index.ids(slots))
            self.members.remove(groups[rows], slots)
            self.columns.release(slots)
        self.index.end_epoch()

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
