"""The rows that one pair (argument, FILTER) of an aggregate takes into account, and what is kept about their values.

count(x) costs nothing while no NULL appears: a selection counts the rows it skips, not those it takes. On demand it
holds one exact sum (for sum and avg), one multiset (for min and max), the distinct values, and the exact sum of those.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from belvedere.engine.state import paged
from belvedere.engine.state.distinct import DistinctCounts
from belvedere.engine.state.minmax import MinMax, MinMaxWords, Texts, make_minmax
from belvedere.engine.state.pages import PageStore, Paging
from belvedere.engine.state.ragged import Ragged
from belvedere.engine.state.sums import DoubleSum, IntegerSum, Sum, Values, make_sum
from belvedere.engine.state.tally import ErrorTally, Tally
from belvedere.engine.vec import Data, Status, Vec
from belvedere.plan.nodes import AggregateTerm
from belvedere.types import BIGINT, Type

Arrays = dict[str, np.ndarray]
Key = tuple[int | None, int | None]


def result_name(call: AggregateTerm) -> str:
    """What a selection calls the result of a call. The least of distinct values is the least of all."""
    distinct = call.distinct and call.function not in ("min", "max")
    return f"{call.function} distinct" if distinct else call.function


class RowSelection:
    """State of one (argument, FILTER) for every group slot."""

    def __init__(self, key: Key, types: Sequence[Type]) -> None:
        self.arg, self.filter = key
        self.type = BIGINT if self.arg is None else types[self.arg]
        self._results: dict[str, Type] = {}
        self._skipped = Tally()
        self._errors = ErrorTally()
        self._sum: Sum | None = None
        self._extremes: MinMax | None = None
        self._distinct: DistinctCounts | None = None
        self._distinct_sum: Sum | None = None

    def want(self, call: AggregateTerm) -> None:
        """Keep what this call needs."""
        name = result_name(call)
        self._results[name] = call.type
        if name in ("sum", "avg"):
            self._sum = self._sum or make_sum(self.type)
        elif name in ("min", "max"):
            self._extremes = self._extremes or make_minmax(self.type)
        elif name != "count":
            self._distinct = self._distinct or DistinctCounts()
            if name != "count distinct":
                self._distinct_sum = self._distinct_sum or make_sum(self.type)

    def _parts(self, limit: int) -> dict[str, Sum | MinMax | DistinctCounts]:
        """What exists, with room for every slot."""
        parts: dict[str, Sum | MinMax | DistinctCounts | None] = {
            "sum": self._sum,
            "extremes": self._extremes,
            "distinct": self._distinct,
            "distinct_sum": self._distinct_sum,
        }
        found = {name: part for name, part in parts.items() if part is not None}
        for part in found.values():
            part.ensure(limit)
        return found

    def _choose(self, columns: Sequence[Vec], good: np.ndarray | None) -> tuple[np.ndarray | None, np.ndarray | None]:
        """(mask of rows to take, None = all; error code or 0 of every row, None = no errors)."""
        take = good
        codes = None
        if self.filter is not None:
            condition = columns[self.filter]
            hit = condition.data if condition.status is None else condition.data & (condition.status == Status.VALUE)
            if condition.status is not None and condition.errors is not None:
                codes = np.where(condition.errors, condition.status, 0)
            take = hit if take is None else take & hit
        status = None if self.arg is None else columns[self.arg].status
        if status is not None and not (valid := status == Status.VALUE).all():
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
        """Rows come or go. `good`: rows whose membership did not fail (None: all)."""
        take, codes = self._choose(columns, good)
        if codes is not None and (failed := codes > 0).any():
            self._errors.add(groups[failed], codes[failed], weight[failed], limit)
        vec = None if self.arg is None else columns[self.arg]
        if take is not None and not take.all():
            left = ~take
            self._skipped.add(groups[left], weight[left], limit)
            groups, group_ids, weight = groups[take], group_ids[take], weight[take]
            vec = None if vec is None else vec.filter(take)
        if vec is None or not len(groups):
            return
        self._parts(limit)
        if self._sum is not None:
            self._sum.add(groups, weight, _numbers(vec))
        if self._extremes is not None:
            self._extremes.add(groups, weight, vec.data)
        if self._distinct is not None:
            rows, change = self._distinct.update(groups, group_ids, weight, vec)
            if self._distinct_sum is not None and len(rows):
                self._distinct_sum.add(groups[rows], change, _numbers(vec)[rows])

    def read(self, groups: np.ndarray, rows: np.ndarray, limit: int) -> dict[str, Vec]:
        """Every wanted result, by name."""
        self._parts(limit)
        skipped = self._skipped.get(groups, limit)
        counts = rows if skipped is None else rows - skipped
        codes = self._errors.smallest(groups, limit)
        out: dict[str, Vec] = {}
        if "count" in self._results:
            out["count"] = _result(BIGINT, (counts, None), None, codes)
        if self._sum is not None:
            self._read_sums(out, "", self._sum, groups, counts, codes)
        if self._extremes is not None:
            ends = self._extremes.read(groups, "min" in self._results, "max" in self._results)
            for name, data in zip(("min", "max"), ends, strict=True):
                if data is not None:
                    out[name] = _result(self._results[name], (data, None), counts, codes)
        if self._distinct is not None:
            different = self._distinct.counts(groups)
            if "count distinct" in self._results:
                out["count distinct"] = _result(BIGINT, (different, None), None, codes)
            if self._distinct_sum is not None:
                self._read_sums(out, " distinct", self._distinct_sum, groups, different, codes)
        return out

    def _read_sums(
        self,
        out: dict[str, Vec],
        suffix: str,
        sums: Sum,
        groups: np.ndarray,
        counts: np.ndarray,
        codes: np.ndarray | None,
    ) -> None:
        total, mean = self._results.get("sum" + suffix), self._results.get("avg" + suffix)
        values: dict[str, Values] = {}
        if total is not None and mean is not None:
            values["sum"], values["avg"] = sums.both(groups, counts, total, mean)
        elif total is not None:
            values["sum"] = sums.total(groups, total)
        elif mean is not None:
            values["avg"] = sums.mean(groups, counts, mean)
        for name, result in values.items():
            out[name + suffix] = _result(self._results[name + suffix], result, counts, codes)

    def clear(self, groups: np.ndarray, limit: int) -> None:
        self._skipped.set(groups, 0, limit)
        self._errors.set(groups, 0, limit)
        for part in self._parts(limit).values():
            part.clear(groups)

    def nbytes(self) -> int:
        return self._skipped.nbytes() + self._errors.nbytes() + sum(p.nbytes() for p in self._parts(0).values())

    def dump(self, limit: int) -> Arrays:
        out = {"skipped": self._skipped.dump(limit), "errors": self._errors.dump(limit)}
        for name, part in self._parts(limit).items():
            out |= {f"{name}.{key}": array for key, array in part.dump(limit).items()}
        return out

    def load(self, arrays: Arrays) -> None:
        self._skipped.load(arrays["skipped"])
        self._errors.load(arrays["errors"])
        for name, part in self._parts(0).items():
            part.load(_below(arrays, name))

    @property
    def parts(self) -> int:
        """How many parts `export` has."""
        return 2 + sum(_width(part) for part in self._parts(0).values())

    def export(self, groups: np.ndarray, limit: int, store: PageStore | None, kind: int) -> list[Ragged]:
        """The state of each group by itself: skipped rows, errors, then what the calls need. `kind`, and the three
        numbers after it: names of pages."""
        out = [self._skipped.export(groups, limit), self._errors.export(groups, limit)]
        for i, part in enumerate(self._parts(limit).values()):
            if isinstance(part, (DoubleSum, IntegerSum)):
                out += part.export(groups)
            else:
                multiset = _multiset(part)
                out += paged.export(multiset, multiset.paging, groups, store, kind + i)
        return out

    def import_(
        self, groups: np.ndarray, parts: Sequence[Ragged], limit: int, store: PageStore | None, kind: int
    ) -> None:
        """Groups that come from elsewhere, into slots that hold nothing."""
        self._skipped.import_(groups, parts[0], limit)
        self._errors.import_(groups, parts[1], limit)
        at = 2
        for i, part in enumerate(self._parts(limit).values()):
            mine = parts[at : at + _width(part)]
            at += _width(part)
            if isinstance(part, (DoubleSum, IntegerSum)):
                part.import_(groups, mine)
            else:
                multiset = _multiset(part)
                paged.restore(multiset, multiset.paging, groups, mine, store, kind + i)

    def pagings(self) -> list[tuple[int, Paging]]:
        """Of each multiset the number of the part of an export that has its level."""
        found, at = [], 2
        for part in self._parts(0).values():
            if not isinstance(part, (DoubleSum, IntegerSum)):
                found.append((at, _multiset(part).paging))
            at += _width(part)
        return found

    def drop(self, groups: np.ndarray, store: PageStore, kind: int) -> None:
        """These groups are empty: so are their pages."""
        for i, part in enumerate(self._parts(0).values()):
            if not isinstance(part, (DoubleSum, IntegerSum)):
                paged.drop(_multiset(part).paging, groups, store, kind + i)

    def settle(self) -> None:
        """Changes since the last export will not be exported."""
        for part in self._parts(0).values():
            if not isinstance(part, (DoubleSum, IntegerSum)):
                _multiset(part).paging.settle()


def _width(part: Sum | MinMax | DistinctCounts) -> int:
    """Parts of an export: a multiset has its level before its entries."""
    return part.parts if isinstance(part, (DoubleSum, IntegerSum)) else 1 + part.parts


def _multiset(part: Sum | MinMax | DistinctCounts) -> MinMax | DistinctCounts:
    assert isinstance(part, (MinMaxWords, Texts, DistinctCounts))
    return part


def _below(arrays: Arrays, name: str) -> Arrays:
    prefix = name + "."
    return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}


def _numbers(vec: Vec) -> np.ndarray:
    assert isinstance(vec.data, np.ndarray), f"sum over {vec.type}"
    return vec.data


def _result(
    type: Type, values: tuple[Data, np.ndarray | None], counts: np.ndarray | None, codes: np.ndarray | None
) -> Vec:
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
        status = np.where(codes > 0, codes, status)
    return Vec(type, data, status)
