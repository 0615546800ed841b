"""PRE-AGGREGATION: the state behind every aggregate over one key of one input.

Its output is not a delta yet but old and new values of each touched group side by side, so that each Aggregate above
can drop the groups in which nothing of *its* columns changed, without matching rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from belvedere.engine.arrangement import Arrangement, Grouping
from belvedere.engine.kernels import Touched
from belvedere.engine.operators.base import State, grown
from belvedere.engine.state.accumulators import Accumulators
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.ragged import Ragged
from belvedere.engine.vec import Status, Vec
from belvedere.plan import nodes
from belvedere.plan.explain import StateSize

READ_ROWS = 1 << 16


@dataclass(slots=True)
class Paired:
    """Touched groups: `had` / `has` tell whether the group existed before and exists now."""

    ids: np.ndarray
    group: tuple[Vec, ...]
    old: tuple[Vec, ...]
    new: tuple[Vec, ...]
    had: np.ndarray
    has: np.ndarray
    old_error: np.ndarray | None
    new_error: np.ndarray | None


class PreAggregationOperator:
    def __init__(self, node: nodes.PreAggregationNode | nodes.DistinctNode, arrangement: Arrangement, name: str):
        calls = node.calls if isinstance(node, nodes.PreAggregationNode) else ()
        self.arrangement = arrangement
        self.accumulators = Accumulators(calls, [c.type for c in node.input.schema])
        self._global = not arrangement.on
        # What was handed upward last: the old side of the next pair, without computing it again.
        self._last = Columns([c.type for c in calls])
        self._had = np.zeros(64, np.bool_)
        self._last_error: np.ndarray | None = None
        self._touched = Touched()
        if self._global:
            self._remember(arrangement.index.slots())  # its row exists before anything was added
        self._name = name
        arrangement.facets[name] = self

    def apply(self, grouping: Grouping) -> Paired | None:
        state = self.accumulators
        if grouping.born is not None:
            self._touched.add(grouping.born, self.arrangement.index.limit)
        for delta, ids, slots in grouping:
            self._touched.add(slots, self.arrangement.index.limit)
            state.update(slots, ids, delta.weight, delta.columns, delta.error)
        touched = self._touched.all()
        self._touched.clear()
        if not len(touched):
            return None
        self._reach()
        old = self._last.gather(touched)
        had = self._had[touched]
        old_error = None if self._last_error is None else self._last_error[touched]
        new, has, new_error = self._remember(touched)
        return Paired(
            ids=self.arrangement.index.ids(touched),
            group=self.arrangement.keys.gather(touched),
            old=old,
            new=new,
            had=had,
            has=has,
            old_error=old_error,
            new_error=new_error,
        )

    def _reach(self) -> None:
        """Room for every group slot."""
        limit = self.arrangement.index.limit
        self._last.reserve(limit)
        self._had = grown(self._had, limit)
        if self._last_error is not None and len(self._last_error) < limit:
            errors = np.ones(max(limit, 2 * len(self._last_error)), np.uint8)
            errors[: len(self._last_error)] = self._last_error
            self._last_error = errors

    def _remember(self, groups: np.ndarray) -> tuple[tuple[Vec, ...], np.ndarray, np.ndarray | None]:
        """Present values of groups, which existence and errors they have; kept as what was handed upward last."""
        self._reach()
        new, error = self.accumulators.read(groups), self.accumulators.errors(groups)
        has = np.ones(len(groups), np.bool_) if self._global else self.accumulators.counts(groups) > 0
        self._last.scatter(groups, new)
        self._had[groups] = has
        if error is not None and self._last_error is None:
            self._last_error = np.ones(len(self._had), np.uint8)
        if self._last_error is not None:
            self._last_error[groups] = Status.VALUE if error is None else error
        return new, has, error

    def handed(self, groups: np.ndarray) -> tuple[tuple[Vec, ...], np.ndarray, np.ndarray | None]:
        """What was handed upward last of these groups: values, whether they existed, errors."""
        self._reach()
        error = None if self._last_error is None else self._last_error[groups]
        return self._last.gather(groups), self._had[groups], error

    def detach(self) -> None:
        """The operator goes, the arrangement may stay for others."""
        del self.arrangement.facets[self._name]

    def export(self, groups: np.ndarray) -> Ragged:
        return self.accumulators.export(groups, self)

    def import_(self, groups: np.ndarray, values: Ragged) -> None:
        self.accumulators.import_(groups, values, self)
        self._remember(groups)

    def follow(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        self.accumulators.follow(groups, values)

    def ids(self, groups: np.ndarray) -> np.ndarray:
        return self.arrangement.index.ids(groups)

    def save_pages(self, kind: int, ids: np.ndarray, values: pa.BinaryArray) -> None:
        assert self.arrangement.store is not None
        self.arrangement.store.save(f"{self.arrangement.name} pages {self._name} {kind}", ids, values)

    def load_pages(self, kind: int, ids: np.ndarray) -> pa.BinaryArray:
        assert self.arrangement.store is not None
        return self.arrangement.store.load(f"{self.arrangement.name} pages {self._name} {kind}", ids)

    def evict(self, groups: np.ndarray) -> None:
        self.accumulators.clear(groups)
        self._reach()
        self._last.release(groups)
        self._had[groups] = False
        if self._last_error is not None:
            self._last_error[groups] = Status.VALUE

    def drop(self, groups: np.ndarray) -> None:
        self.accumulators.drop(groups, self)

    def settle(self) -> None:
        self.accumulators.settle()

    def current(self) -> Iterator[Paired]:
        """Every group as if it had just appeared."""
        slots = self.arrangement.index.slots()
        for start in range(0, len(slots), READ_ROWS):
            part = slots[start : start + READ_ROWS]
            values = self.accumulators.read(part)
            alive = np.ones(len(part), np.bool_)
            yield Paired(
                ids=self.arrangement.index.ids(part),
                group=self.arrangement.keys.gather(part),
                old=values,
                new=values,
                had=~alive,
                has=alive,
                old_error=None,
                new_error=self.accumulators.errors(part),
            )

    def end_epoch(self) -> None:
        pass

    def size(self) -> StateSize:
        groups = len(self.arrangement.index)
        rows = int(self.arrangement.rows[self.arrangement.index.slots()].sum())
        # Minimum, maximum and distinct values survive deletes only if the values of all rows are kept.
        kept = {c.arg for c in self.accumulators.calls if c.distinct or c.function in ("min", "max")}
        plain = self.arrangement.keys.plain_bytes(groups) + self._last.plain_bytes(groups) + 8 * rows * len(kept)
        return StateSize(groups, self.accumulators.nbytes() + self._last.nbytes(), plain)

    def dump(self) -> State:
        return self.accumulators.dump()

    def load(self, state: State) -> None:
        self.accumulators.load(state)
        self._remember(self.arrangement.index.slots())
