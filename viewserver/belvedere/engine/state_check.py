"""State of operators against that of others which were made anew from the same base rows.

What a group holds is compared in one form that does not depend on slots, on the order of changes or on who shares the
group: its key and number of rows; of aggregates what a store would hold of them, and what they handed upward last; of
sides of joins the rows by id, with their partners' counts. Doubles have one zero and one NaN in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.engine.arrangement import SAVE_ROWS, Arrangement
from belvedere.engine.engine import Engine
from belvedere.engine.graph import Arranged, Grouped, Task, digest
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.reverse_join import ReverseJoinOperator
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.ragged import Ragged, join
from belvedere.engine.vec import Vec, canonical
from belvedere.plan import nodes
from belvedere.types import BIGINT, BOOLEAN

_NO_IDS = np.empty((0, 2), np.uint64)
_Values = Callable[[np.ndarray], Ragged]


@dataclass(frozen=True, slots=True)
class TableCheck:
    """What became of one table of state: `rows` were compared; ids are uint64[n, 2]."""

    table: str
    rows: int
    missing: np.ndarray
    extra: np.ndarray
    different: np.ndarray
    part: str = ""
    """The digest of the part of the plan that it belongs to."""

    @property
    def wrong(self) -> int:
        return len(self.missing) + len(self.extra) + len(self.different)


def check_state(live: Engine, fresh: Engine) -> Iterator[TableCheck]:
    """Each table of `fresh` against the one of `live` that belongs to the same part of the plan."""
    names: dict[Task, str] = {}
    labels = {digest(task, names): _label(task, names) for task in fresh.running}
    for task, groups in fresh.running.items():
        if isinstance(task, Arranged):
            yield from _check_groups(live.running.get(task), groups, digest(task, names), labels)


def _label(task: Task, names: dict[Task, str]) -> str:
    kind = {Arranged: "Groups", Grouped: "Distinct"}.get(type(task)) or nodes.kind_of(type(task))
    return f"{kind} {digest(task, names)[:8]}"


def _check_groups(
    live: Arrangement | None, fresh: Arrangement, part: str, labels: dict[str, str]
) -> Iterator[TableCheck]:
    label = labels[part]
    right = fresh.index.slots()
    ids = fresh.index.ids(right)
    if live is None:
        yield TableCheck(label, len(ids), ids, _NO_IDS, _NO_IDS, part)
        return
    held = live.index.slots()
    known = live.index.ids(held)
    at = live.index.find(ids)
    there = at >= 0
    extra = known[fresh.index.find(known) < 0]
    common, mine, theirs = ids[there], at[there], right[there]
    wrong = _different(common, mine, theirs, lambda slots: _keys(live, slots), lambda slots: _keys(fresh, slots))
    yield TableCheck(label, len(ids), ids[~there], extra, wrong, part)
    for name, made in fresh.facets.items():
        beside = live.facets.get(name)
        table = labels.get(name, name)
        if isinstance(made, PreAggregationOperator) and isinstance(beside, PreAggregationOperator):
            wrong = _different(common, mine, theirs, _aggregates(beside), _aggregates(made))
            yield TableCheck(table, len(common), _NO_IDS, _NO_IDS, wrong, name)
        elif isinstance(made, ReverseJoinOperator) and isinstance(beside, ReverseJoinOperator):
            yield _check_side(beside, made, table, name)
        else:
            yield TableCheck(table, len(common), common, _NO_IDS, _NO_IDS, name)


def _different(ids: np.ndarray, mine: np.ndarray, theirs: np.ndarray, live: _Values, fresh: _Values) -> np.ndarray:
    """The ids whose values differ; slots of both sides belong to the ids."""
    found = []
    for start in range(0, len(ids), SAVE_ROWS):
        piece = slice(start, start + SAVE_ROWS)
        left, right = live(mine[piece]), fresh(theirs[piece])
        unequal = left.lengths != right.lengths
        same = np.flatnonzero(~unequal)
        if len(same):
            unequal[same] = pc.not_equal(_binary(left.take(same)), _binary(right.take(same))).to_numpy(
                zero_copy_only=False
            )
        found.append(ids[piece][unequal])
    return np.concatenate(found) if found else _NO_IDS


def _binary(values: Ragged) -> pa.LargeBinaryArray:
    """Values as a column that may be of any size."""
    offsets, data = values.compact()
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    )


def _one_form(columns: tuple[Vec, ...]) -> list[Vec]:
    return [canonical(column) for column in columns]


def _keys(groups: Arrangement, slots: np.ndarray) -> Ragged:
    columns = [*_one_form(groups.keys.gather(slots)), Vec(BIGINT, groups.rows[slots])]
    return RowCodec([c.type for c in columns]).pack(columns, len(slots))


def _aggregates(operator: PreAggregationOperator) -> _Values:
    """What a store would hold of groups, and what was handed upward last of them."""

    def values(slots: np.ndarray) -> Ragged:
        last, had, error = operator.handed(slots)
        columns = [*_one_form(last), Vec(BOOLEAN, had)]
        handed = RowCodec([c.type for c in columns]).pack(columns, len(slots), error)
        return join([operator.accumulators.export(slots), handed])

    return values


def _check_side(live: ReverseJoinOperator, fresh: ReverseJoinOperator, table: str, part: str) -> TableCheck:
    """Rows by id: their columns, the group that they lie in and are found by, what joins count for them."""
    right = fresh.index.slots()
    ids = fresh.index.ids(right)
    known = live.index.ids(live.index.slots())
    at = live.index.find(ids)
    there = at >= 0
    tags = sorted(rider.tag for rider in fresh.riders)
    wrong = _different(ids[there], at[there], right[there], _side(live, tags), _side(fresh, tags))
    return TableCheck(table, len(ids), ids[~there], known[fresh.index.find(known) < 0], wrong, part)


def _side(operator: ReverseJoinOperator, tags: list[int]) -> _Values:
    members = operator.memberships()
    riders = {rider.tag: rider for rider in operator.riders}

    def values(slots: np.ndarray) -> Ragged:
        groups = operator.arrangement.index.ids(operator.groups_of(slots)).view(np.int64)
        found = members[slots]
        # A row must be among the members of the group that it names, once.
        listed = np.where(found == operator.groups_of(slots), 1, 0)
        columns = [*_one_form(operator.columns.gather(slots)), Vec(BIGINT, groups[:, 0]), Vec(BIGINT, groups[:, 1])]
        columns.append(Vec(BIGINT, listed))
        for tag in tags:
            held = riders.get(tag)
            columns.append(Vec(BIGINT, np.full(len(slots), -1) if held is None else held.values[slots]))
        return RowCodec([c.type for c in columns]).pack(columns, len(slots), operator.errors_at(slots))

    return values
