"""PRE-AGGREGATION: the state behind every aggregate over one key of one input.

Its output is not a delta yet but old and new values of each touched group side by side, so that each Aggregate above
can drop the groups in which nothing of *its* columns changed, without matching rows again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from belvedere.engine.arrangement import Arrangement, Grouping
from belvedere.engine.kernels import Touched
from belvedere.engine.operators.base import State, StateSize
from belvedere.engine.state.accumulators import Accumulators
from belvedere.engine.vec import Vec, concat
from belvedere.plan import nodes

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


class PreAggregation:
    def __init__(self, node: nodes.PreAggregation | nodes.Distinct, arrangement: Arrangement, name: str):
        calls = node.calls if isinstance(node, nodes.PreAggregation) else ()
        self.arrangement = arrangement
        self.accumulators = Accumulators(calls, [c.type for c in node.input.schema])
        self._global = not arrangement.on
        self._touched = Touched()
        self._name = name
        arrangement.facets[name] = self

    def apply(self, grouping: Grouping) -> Paired | None:
        state = self.accumulators
        old: list[tuple[Vec, ...]] = []
        had: list[np.ndarray] = []
        errors: list[np.ndarray | None] = []
        for delta, ids, slots in grouping:
            first = self._touched.add(slots, self.arrangement.index.limit)
            if len(first):
                old.append(state.read(first))
                had.append(state.counts(first) > 0)
                errors.append(state.errors(first))
            state.update(slots, ids, delta.weight, delta.columns, delta.error)
        touched = self._touched.all()
        self._touched.clear()
        if not len(touched):
            return None
        exists = np.ones(len(touched), np.bool_)
        return Paired(
            ids=self.arrangement.index.ids(touched),
            group=self.arrangement.keys.gather(touched),
            old=tuple(concat([part[i] for part in old]) for i in range(len(old[0]))),
            new=state.read(touched),
            had=exists if self._global else np.concatenate(had),
            has=exists if self._global else state.counts(touched) > 0,
            old_error=_joined(errors, [len(p) for p in had]),
            new_error=state.errors(touched),
        )

    def detach(self) -> None:
        """The operator goes, the arrangement may stay for others."""
        del self.arrangement.facets[self._name]

    def export(self, groups: np.ndarray) -> list[bytes]:
        return self.accumulators.export(groups)

    def import_(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        self.accumulators.import_(groups, values)

    def evict(self, groups: np.ndarray) -> None:
        self.accumulators.clear(groups)

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
        return StateSize(len(self.arrangement.index), self.accumulators.nbytes())

    def dump(self) -> State:
        return self.accumulators.dump()

    def load(self, state: State) -> None:
        self.accumulators.load(state)


def _joined(errors: list[np.ndarray | None], lengths: list[int]) -> np.ndarray | None:
    if all(e is None for e in errors):
        return None
    return np.concatenate([np.ones(n, np.uint8) if e is None else e for e, n in zip(errors, lengths, strict=True)])
