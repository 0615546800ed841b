"""The state of all aggregate calls over one key: arrays indexed by group slot, updated by batches of weighted rows.

Calls share what they can: everything hangs on a `RowSelection`, the rows that a pair (argument, FILTER) takes into
account. count(*) is the number of rows of the group, which is kept anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.delta import take_ids
from belvedere.engine.kernels import order_by_slot
from belvedere.engine.state.jit import plain
from belvedere.engine.state.pages import PageStore
from belvedere.engine.state.ragged import Ragged, fixed, join, joined_parts, split
from belvedere.engine.state.selection import Arrays, Key, RowSelection, result_name
from belvedere.engine.state.tally import ErrorTally, Tally
from belvedere.engine.vec import Status, Vec
from belvedere.plan.nodes import AggregateTerm
from belvedere.types import BIGINT, Type

SORT_ROWS = 1 << 16
"""Batches from this size on are ordered by group first."""
CHUNK = 1 << 16
"""Rows per kernel call: bounds the room that is kept free for the worst case of a batch."""
KINDS = 4
"""Names of pages that each selection has for itself."""


class Accumulators:
    """All aggregate calls of one PreAggregation; group slots are given out by its owner."""

    def __init__(self, calls: Sequence[AggregateTerm], types: Sequence[Type]) -> None:
        self.calls = tuple(calls)
        self._limit = 0
        self._rows = Tally()
        self._row_errors = ErrorTally()
        self._selections: dict[Key, RowSelection] = {}
        for call in self.calls:
            key = (call.arg, call.filter)
            if key != (None, None):
                self._selections.setdefault(key, RowSelection(key, types)).want(call)

    def update(
        self,
        groups: np.ndarray,
        group_ids: np.ndarray,
        weight: np.ndarray,
        columns: Sequence[Vec],
        error: np.ndarray | None = None,
    ) -> None:
        """Add (+1) or retract (-1) rows. Only the sum of a batch counts: a retraction may come before its insertion.

        `group_ids` (uint64[n, 2]): identities of the groups, needed for DISTINCT. `error`: rows whose membership failed
        (code > VALUE) are rows of their group, but for no call."""
        count = len(groups)
        if count >= SORT_ROWS and self._selections:
            groups, group_ids, weight, columns, error = self._by_group(groups, group_ids, weight, columns, error)
        for start in range(0, count, CHUNK):
            stop = min(start + CHUNK, count)
            self._update(
                np.ascontiguousarray(groups[start:stop], np.int32),
                group_ids[start:stop],
                plain(weight[start:stop].astype(np.int8, copy=False)),
                columns if stop - start == count else [c.slice(start, stop) for c in columns],
                None if error is None else error[start:stop],
            )

    def _by_group(
        self,
        groups: np.ndarray,
        group_ids: np.ndarray,
        weight: np.ndarray,
        columns: Sequence[Vec],
        error: np.ndarray | None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, Sequence[Vec], np.ndarray | None]:
        """The same rows with those of a group side by side, so that what a group holds is brought into the cache once.
        No result depends on the order of rows."""
        limit = int(groups.max()) + 1
        if limit > 2 * len(groups):
            return groups, group_ids, weight, columns, error  # hardly any group occurs twice
        groups = np.ascontiguousarray(groups, np.int32)
        order = np.empty(len(groups), np.int32)
        order_by_slot(groups, np.zeros(limit + 1, np.int32), order)
        used = {column for key in self._selections for column in key if column is not None}
        moved = [c.take(order) if i in used else c for i, c in enumerate(columns)]
        failed = None if error is None else error[order]
        distinct = any(call.distinct for call in self.calls)
        return groups[order], take_ids(group_ids, order) if distinct else group_ids, weight[order], moved, failed

    def _update(
        self,
        groups: np.ndarray,
        group_ids: np.ndarray,
        weight: np.ndarray,
        columns: Sequence[Vec],
        error: np.ndarray | None,
    ) -> None:
        self._reach(groups)
        self._rows.add(groups, weight, self._limit)
        good = None
        if error is not None and (bad := error > Status.VALUE).any():
            self._row_errors.add(groups[bad], error[bad], weight[bad], self._limit)
            good = ~bad
        for selection in self._selections.values():
            selection.update(groups, group_ids, weight, columns, good, self._limit)

    def _reach(self, groups: np.ndarray) -> None:
        """Slots below the limit have their place in every array."""
        if len(groups):
            self._limit = max(self._limit, int(groups.max()) + 1)

    def counts(self, groups: np.ndarray) -> np.ndarray:
        """Rows in each group, failed ones included: 0 means that the group is gone."""
        self._reach(groups)
        counts = self._rows.get(groups, self._limit)
        return np.zeros(len(groups), np.int64) if counts is None else counts

    def errors(self, groups: np.ndarray) -> np.ndarray | None:
        """The smallest code among each group's failed rows, VALUE where none failed; None if no group has any."""
        self._reach(groups)
        codes = self._row_errors.smallest(groups, self._limit)
        if codes is not None:
            codes[codes == 0] = Status.VALUE
        return codes

    def read(self, groups: np.ndarray) -> tuple[Vec, ...]:
        """One column per call: its value for each group as of now. Slots never updated read as empty groups."""
        groups = np.ascontiguousarray(groups, np.int32)
        rows = self.counts(groups)
        results = {key: s.read(groups, rows, self._limit) for key, s in self._selections.items()}
        results[None, None] = {"count": Vec(BIGINT, rows)}
        return tuple(results[call.arg, call.filter][result_name(call)] for call in self.calls)

    def clear(self, groups: np.ndarray) -> None:
        """Forget everything about these slots (each given once), which may then serve other groups."""
        groups = np.ascontiguousarray(groups, np.int32)
        self._reach(groups)
        self._rows.set(groups, 0, self._limit)
        self._row_errors.set(groups, 0, self._limit)
        for selection in self._selections.values():
            selection.clear(groups, self._limit)

    def nbytes(self) -> int:
        """Memory held."""
        return self._rows.nbytes() + self._row_errors.nbytes() + sum(s.nbytes() for s in self._selections.values())

    def dump(self) -> Arrays:
        """Everything, as arrays which are views: valid until the next change."""
        out = {
            "limit": np.array([self._limit]),
            "rows": self._rows.dump(self._limit),
            "row_errors": self._row_errors.dump(self._limit),
        }
        for i, selection in enumerate(self._selections.values()):
            out |= {f"{i}.{key}": array for key, array in selection.dump(self._limit).items()}
        return out

    def load(self, arrays: Arrays) -> None:
        """Become what was dumped; made with the same calls and types."""
        self._limit = int(arrays["limit"][0])
        self._rows.load(arrays["rows"])
        self._row_errors.load(arrays["row_errors"])
        for i, selection in enumerate(self._selections.values()):
            prefix = f"{i}."
            selection.load({k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)})

    def export(self, groups: np.ndarray, store: PageStore | None = None) -> Ragged:
        """The state of each group by itself, independent of slots and of the order of changes; the slots keep theirs
        until cleared. What is big goes to the store in pages, if there is one."""
        groups = np.ascontiguousarray(groups, np.int32)
        parts = [fixed(self.counts(groups)), self._row_errors.export(groups, self._limit)]
        for i, selection in enumerate(self._selections.values()):
            parts += selection.export(groups, self._limit, store, KINDS * i)
        return join(parts)

    def import_(self, groups: np.ndarray, packed: Ragged, store: PageStore | None = None) -> None:
        """Put exported groups into slots that hold nothing."""
        groups = np.ascontiguousarray(groups, np.int32)
        self._reach(groups)
        parts = split(packed, 2 + sum(s.parts for s in self._selections.values()), "groups of an aggregate")
        self._rows.set(groups, parts[0].words(np.int64), self._limit)
        self._row_errors.import_(groups, parts[1], self._limit)
        at = 2
        for i, selection in enumerate(self._selections.values()):
            selection.import_(groups, parts[at : at + selection.parts], self._limit, store, KINDS * i)
            at += selection.parts

    def follow(self, groups: np.ndarray, values: Sequence[bytes]) -> None:
        """Big groups are to have the pages that these exported ones have, empty if unknown."""
        packed = [joined_parts(value, 2 + sum(s.parts for s in self._selections.values())) for value in values]
        at = 2
        for selection in self._selections.values():
            for place, paging in selection.pagings():
                paging.follow(groups, [parts[at + place] for parts in packed])
            at += selection.parts

    def drop(self, groups: np.ndarray, store: PageStore) -> None:
        """These groups are empty: so are their pages."""
        for i, selection in enumerate(self._selections.values()):
            selection.drop(groups, store, KINDS * i)

    def settle(self) -> None:
        """Changes since the last export will not be exported."""
        for selection in self._selections.values():
            selection.settle()
