"""Damage that tests plant into a database that runs, in the engine's thread between two epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from belvedere.embedded.database import Database
from belvedere.engine.arrangement import Arrangement
from belvedere.engine.delta import Delta
from belvedere.engine.graph import Arranged
from belvedere.engine.operators.pre_aggregation import PreAggregationOperator
from belvedere.engine.operators.reverse_join import ReverseJoinOperator
from belvedere.engine.state.table import Table
from belvedere.engine.vec import Vec
from belvedere.types import Kind

Plant = Callable[[Database, str], bool]
"""Damages a view or what is behind it; false if there is nothing of that kind."""


def between_epochs(db: Database, action: Callable[[], Any]) -> Any:
    return db._runtime.call(action)


def other_values(vec: Vec) -> Vec:
    """Values of the same type, all of them others."""
    if vec.type.kind is Kind.BOOLEAN:
        return Vec(vec.type, ~np.asarray(vec.data), None)
    if isinstance(vec.data, np.ndarray):
        data = np.array(vec.data)
        data[...] = np.where(np.isnan(data), 0, data + 1) if data.dtype == np.float64 else data ^ 1
        if data.dtype == np.float64:
            data = np.where(data == vec.data, data * 2 + 1, data)
        return Vec(vec.type, data, None)
    texts = [(b"" if one is None else bytes(memoryview(one.as_buffer()))) + b"x" for one in vec.data]
    import pyarrow as pa

    return Vec(vec.type, pa.array(texts, pa.binary()).cast(vec.type.arrow), None)


def _apply(table: Table, delta: Delta) -> None:
    table.apply(delta)
    table.end_epoch()


def corrupt_row(db: Database, view: str) -> bool:
    """Another value in the last column of a row that the view shows and its key does not need."""

    def plant() -> bool:
        held = db._runtime.tables[view]
        slots = held.table.slots()
        free = [i for i in range(held.shape.visible) if i not in held.shape.key]
        if not len(slots) or not free:
            return False
        row = held.table.rows(slots[:1])
        columns = list(row.columns)
        columns[free[-1]] = other_values(columns[free[-1]])
        with held.lock:
            _apply(held.table, Delta(tuple(columns), row.weight, row.id))
        return True

    return bool(between_epochs(db, plant))


def delete_row(db: Database, view: str) -> bool:
    def plant() -> bool:
        held = db._runtime.tables[view]
        slots = held.table.slots()
        if not len(slots):
            return False
        row = held.table.rows(slots[-1:])
        with held.lock:
            _apply(held.table, Delta(row.columns, np.array([-1], np.int8), row.id))
        return True

    return bool(between_epochs(db, plant))


def add_row(db: Database, view: str) -> bool:
    """A copy of a row under an id of its own."""

    def plant() -> bool:
        held = db._runtime.tables[view]
        slots = held.table.slots()
        if not len(slots):
            return False
        row = held.table.rows(slots[:1])
        with held.lock:
            _apply(held.table, Delta(row.columns, row.weight, row.id ^ np.uint64(5)))
        return True

    return bool(between_epochs(db, plant))


def operators(db: Database, kind: type) -> Iterator[Any]:
    engine = db._runtime.engine
    for task, groups in engine.running.items():
        if isinstance(task, Arranged) and len(groups.index):
            if kind is Arrangement:
                yield groups
            yield from (facet for facet in groups.facets.values() if isinstance(facet, kind))


def count_group(db: Database, view: str) -> bool:
    """A group that counts one row too many."""

    def plant() -> bool:
        for groups in operators(db, Arrangement):
            groups.rows[groups.index.slots()[-1]] += 1
            return True
        return False

    return bool(between_epochs(db, plant))


def add_to_aggregate(db: Database, view: str) -> bool:
    """An aggregate that counts a row that is in no group."""

    def plant() -> bool:
        for operator in operators(db, PreAggregationOperator):
            slot = operator.arrangement.index.slots()[:1]
            state = operator.accumulators
            state._rows.add(slot, np.ones(1, np.int8), state._limit)
            return True
        return False

    return bool(between_epochs(db, plant))


def corrupt_side(db: Database, view: str) -> bool:
    """A row of a join side whose first column has another value."""

    def plant() -> bool:
        for operator in operators(db, ReverseJoinOperator):
            slots = operator.index.slots()
            if not len(slots):
                continue
            columns = list(operator.columns.gather(slots[:1]))
            columns[0] = other_values(columns[0])
            operator.columns.scatter(slots[:1], columns)
            return True
        return False

    return bool(between_epochs(db, plant))


def lose_side(db: Database, view: str) -> bool:
    """A row of a join side that is gone from its group."""

    def plant() -> bool:
        for operator in operators(db, ReverseJoinOperator):
            slots = operator.index.slots()
            if not len(slots):
                continue
            operator.members.remove(operator.groups_of(slots[:1]), slots[:1])
            operator.index.remove(operator.index.ids(slots[:1]))
            operator.columns.release(slots[:1])
            operator.index.end_epoch()
            return True
        return False

    return bool(between_epochs(db, plant))


def corrupt_handed(db: Database, view: str) -> bool:
    """What an aggregate handed upward last is not what it handed."""

    def plant() -> bool:
        for operator in operators(db, PreAggregationOperator):
            slot = operator.arrangement.index.slots()[:1]
            values = operator.handed(slot)[0]
            if values:  # of DISTINCT there are none
                operator._last.scatter(slot, [other_values(values[0]), *values[1:]])
                return True
        return False

    return bool(between_epochs(db, plant))


def unlist_side(db: Database, view: str) -> bool:
    """A row of a join side that is there and that its group does not list."""

    def plant() -> bool:
        for operator in operators(db, ReverseJoinOperator):
            slots = operator.index.slots()
            if len(slots):
                operator.members.remove(operator.groups_of(slots[:1]), slots[:1])
                return True
        return False

    return bool(between_epochs(db, plant))


def miscount_partners(db: Database, view: str) -> bool:
    """A row of a join side that a join counts one partner too many for."""

    def plant() -> bool:
        for operator in operators(db, ReverseJoinOperator):
            slots = operator.index.slots()
            if len(slots) and operator.riders:
                operator.riders[0].values[slots[0]] += 1
                return True
        return False

    return bool(between_epochs(db, plant))


ROWS: tuple[Plant, ...] = (corrupt_row, delete_row, add_row)
STATE: tuple[Plant, ...] = (
    count_group, add_to_aggregate, corrupt_handed, corrupt_side, lose_side, unlist_side, miscount_partners,
)  # fmt: skip
