"""The state of all aggregate calls over one key: arrays indexed by group slot, updated by batches of weighted rows.

Calls share what they can. Everything hangs on a *selection*: the rows that a pair (argument, FILTER) takes into account. Of a
selection we keep the number of rows it skips (so count(x) costs nothing while no NULL appears: it is rows - skipped), its
errors, and on demand one exact sum (sum and avg), one tree (min and max) and one table of distinct values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.state.sums import Arrays, Sum, Values, make_sum
from belvedere.engine.state.tally import ErrorTally, Tally
from belvedere.engine.vec import Status, Vec
from belvedere.plan.nodes import Call
from belvedere.types import BIGINT, Type

CHUNK = 1 << 16
"""Rows per kernel call: bounds the room that must be kept free for the worst case of a batch."""

Key = tuple[int | None, int | None]


class Accumulators:
    """All aggregate calls of one PreAggregation; group slots are given out by its owner."""

    def __init__(self, calls: Sequence[Call], types: Sequence[Type]) -> None:
        self.calls = tuple(calls)
        self._limit = 0
        self._rows = Tally()
        self._row_errors = ErrorTally()
        self._selections: dict[Key, _Selection] = {}
        for call in self.calls:
            key = (call.arg, call.filter)
            if key != (None, None):
                self._selections.setdefault(key, _Selection(key, types)).want(call)

    def update(
        self,
        groups: np.ndarray,
        group_ids: np.ndarray,
        weight: np.ndarray,
        columns: Sequence[Vec],
        error: np.ndarray | None = None,
    ) -> None:
        """Add (+1) or retract (-1) rows. `error`: rows whose membership failed count as rows, and for no call."""
        for start in range(0, len(groups), CHUNK):
            stop = min(start + CHUNK, len(groups))
            whole = stop - start == len(groups)
            self._update(
                np.ascontiguousarray(groups[start:stop], np.int32),
                group_ids[start:stop],
                np.ascontiguousarray(weight[start:stop], np.int8),
                columns if whole else [c.slice(start, stop) for c in columns],
                None if error is None else error[start:stop],
            )

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
        if len(groups):
            self._limit = max(self._limit, int(groups.max()) + 1)

    def counts(self, groups: np.ndarray) -> np.ndarray:
        """Rows in each group, failed ones included: 0 means that the group is gone."""
        self._reach(groups)
        counts = self._rows.get(groups, self._limit)
        return np.zeros(len(groups), np.int64) if counts is None else counts

    def errors(self, groups: np.ndarray) -> np.ndarray | None:
        """The smallest code among each group's failed rows, VALUE elsewhere; None if no group has one."""
        self._reach(groups)
        codes = self._row_errors.smallest(groups, self._limit)
        if codes is not None:
            codes[codes == 0] = Status.VALUE
        return codes

    def read(self, groups: np.ndarray) -> tuple[Vec, ...]:
        """One column per call: its value for each group as of now."""
        groups = np.ascontiguousarray(groups, np.int32)
        rows = self.counts(groups)
        views = {key: s.read(groups, rows, self._limit) for key, s in self._selections.items()}
        return tuple(
            Vec(BIGINT, rows) if call.arg is None and call.filter is None else views[call.arg, call.filter][_name(call)]
            for call in self.calls
        )

    def clear(self, groups: np.ndarray) -> None:
        """Forget everything about these slots, which may then serve other groups."""
        groups = np.ascontiguousarray(groups, np.int32)
        self._reach(groups)
        self._rows.set(groups, 0, self._limit)
        self._row_errors.set(groups, 0, self._limit)
        for selection in self._selections.values():
            selection.clear(groups, self._limit)

    def nbytes(self) -> int:
        return self._rows.nbytes() + self._row_errors.nbytes() + sum(s.nbytes() for s in self._selections.values())


def _name(call: Call) -> str:
    """What a selection calls the result of a call. Of equal values the least is the least, repeated or not."""
    distinct = call.distinct and call.function not in ("min", "max")
    return f"{call.function} distinct" if distinct else call.function


class _Selection:
    """Rows taken into account by one (argument, FILTER), and what is kept about their values."""

    def __init__(self, key: Key, types: Sequence[Type]) -> None:
        self.arg, self.filter = key
        self.type = BIGINT if self.arg is None else types[self.arg]
        self._names: dict[str, Type] = {}
        self._skipped = Tally()
        self._errors = ErrorTally()
        self._sum: Sum | None = None

    def want(self, call: Call) -> None:
        """Keep what this call needs."""
        name = _name(call)
        self._names[name] = call.type
        if name in ("sum", "avg"):
            self._sum = self._sum or make_sum(self.type)

    def _choose(
        self, columns: Sequence[Vec], good: np.ndarray | None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """(rows to take, None = all; error codes, None = no errors)."""
        take = good
        codes = None
        if self.filter is not None:
            condition = columns[self.filter]
            hit = condition.data if condition.status is None else condition.data & (condition.status == Status.VALUE)
            if condition.errors is not None:
                codes = np.where(condition.errors, condition.status, 0)
            take = hit if take is None else take & hit
        status = None if self.arg is None else columns[self.arg].status
        if status is not None:
            valid = status == Status.VALUE
            if not valid.all():
                failed = status > Status.VALUE
                if take is not None:
                    failed &= take
                if failed.any():
                    codes = np.where(failed, status, 0 if codes is None else codes)
                take = valid if take is None else take & valid
        if codes is not None and good is not None:
            codes = np.where(good, codes, 0)
        return take, codes

    def update(
        self,
        groups: np.ndarray,
        group_ids: np.ndarray,
        weight: np.ndarray,
        columns: Sequence[Vec],
        good: np.ndarray | None,
        limit: int,
    ) -> None:
        take, codes = self._choose(columns, good)
        if codes is not None:
            failed = codes > 0
            self._errors.add(groups[failed], codes[failed], weight[failed], limit)
        vec = None if self.arg is None else columns[self.arg]
        if take is not None and not take.all():
            left = ~take
            self._skipped.add(groups[left], weight[left], limit)
            groups, group_ids, weight = groups[take], group_ids[take], weight[take]
            vec = None if vec is None else vec.filter(take)
        if vec is None or not len(groups):
            return
        if self._sum is not None:
            self._sum.ensure(limit)
            self._sum.add(groups, weight, vec.data)

    def read(self, groups: np.ndarray, rows: np.ndarray, limit: int) -> dict[str, Vec]:
        """Every result that is wanted, by name."""
        skipped = self._skipped.get(groups, limit)
        counts = rows if skipped is None else rows - skipped
        codes = self._errors.smallest(groups, limit)
        out: dict[str, Vec] = {}
        self._read_sums(out, "", self._sum, groups, counts, codes, limit)
        if "count" in self._names:
            out["count"] = _result(BIGINT, (counts, None), None, codes)
        return out

    def _read_sums(
        self,
        out: dict[str, Vec],
        suffix: str,
        sums: Sum | None,
        groups: np.ndarray,
        counts: np.ndarray,
        codes: np.ndarray | None,
        limit: int,
    ) -> None:
        if sums is None:
            return
        sums.ensure(limit)
        total, mean = self._names.get("sum" + suffix), self._names.get("avg" + suffix)
        values: dict[str, Values] = {}
        if total is not None and mean is not None:
            values["sum"], values["avg"] = sums.both(groups, counts, total, mean)
        elif total is not None:
            values["sum"] = sums.total(groups, total)
        elif mean is not None:
            values["avg"] = sums.mean(groups, counts, mean)
        for name, result in values.items():
            out[name + suffix] = _result(self._names[name + suffix], result, counts, codes)

    def clear(self, groups: np.ndarray, limit: int) -> None:
        self._skipped.set(groups, 0, limit)
        self._errors.set(groups, 0, limit)
        if self._sum is not None:
            self._sum.ensure(limit)
            self._sum.clear(groups)

    def nbytes(self) -> int:
        return self._skipped.nbytes() + self._errors.nbytes() + (0 if self._sum is None else self._sum.nbytes())


def _result(type: Type, values: Values, counts: np.ndarray | None, codes: np.ndarray | None) -> Vec:
    """A column whose rows are NULL where `counts` is 0, then OVERFLOW where marked, then the group's own error."""
    data, overflow = values
    status = None
    if counts is not None and not counts.all():
        status = (counts != 0).astype(np.uint8)
    if overflow is not None:
        status = np.ones(len(data), np.uint8) if status is None else status
        status[overflow & (status != Status.NULL)] = Status.OVERFLOW
    if codes is not None:
        status = np.ones(len(data), np.uint8) if status is None else status
        status = np.where(codes > 0, codes, status).astype(np.uint8)
    return Vec(type, data, status)


__all__ = ["Accumulators", "Arrays"]
