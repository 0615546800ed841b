"""DELTA against a naive model that keeps every change and evaluates cells by definition."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes
from belvedere.engine.state.delta_table import BaseChange, DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.sql.catalog import TableDef, Ties
from belvedere.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, INT, STRING, Column, Schema, Type, decimal

COLUMNS: Schema = (
    Column("a", STRING),
    Column("k", BIGINT, nullable=False),
    Column("b", DOUBLE),
    Column("s", STRING, nullable=False),
    Column("c", decimal(30, 1)),
    Column("d", INT),
)
TABLE = TableDef("t", COLUMNS, ("k", "s"))
CELLS = (0, 2, 4, 5)
Key = tuple[int, str]
Row = tuple[object, ...]


@dataclass
class Change:
    key: Key
    ts: int
    cells: dict[int, object] | None  # None: delete


@dataclass
class Model:
    """Every change ever, evaluated on demand."""

    ties: Ties = Ties.LINEAGE
    changes: dict[Key, list[Change]] = field(default_factory=dict)

    def add(self, change: Change) -> None:
        self.changes.setdefault(change.key, []).append(change)

    def row(self, key: Key) -> Row | None:
        history = self.changes.get(key, [])
        masked = max((c.ts for c in history if c.cells is None), default=-(10**9))
        puts = [c for c in history if c.cells is not None and c.ts > masked]
        if not puts:
            return None
        row: list[object] = [None] * len(COLUMNS)
        row[1], row[3] = key
        for column in CELLS:
            written = [(p.ts, p.cells[column]) for p in puts if p.cells is not None and column in p.cells]
            newest = [value for ts, value in written if ts == max(ts for ts, _ in written)]
            if newest and self.ties is Ties.VALUE:
                row[column] = max(newest, key=_rank)
            elif newest:
                row[column] = newest[-1]
        return tuple(row)

    def rows(self) -> dict[Key, Row]:
        found = {key: self.row(key) for key in self.changes}
        return {key: row for key, row in found.items() if row is not None}


def _rank(value: Any) -> Any:
    """NULL first; bits where SQL sees no difference."""
    if isinstance(value, float):
        return (1, math.isnan(value), 0 if math.isnan(value) else value, math.copysign(1, value))
    return (0,) if value is None else (1, value)


def batch(changes: list[Change], columns: Schema = COLUMNS) -> Changes:
    vecs: list[Vec] = []
    present: list[np.ndarray | None] = []
    for i, column in enumerate(columns):
        if column.name in TABLE.key:
            values: list[object] = [c.key[TABLE.key.index(column.name)] for c in changes]
            present.append(None)
        else:
            values = [None if c.cells is None else c.cells.get(i) for c in changes]
            mask = np.array([c.cells is not None and i in c.cells for c in changes], np.bool_)
            whole = all(c.cells is None or i in c.cells for c in changes)
            present.append(None if whole else mask)
        vecs.append(Vec.from_arrow(pa.array(values, column.type.arrow), column.type))
    deletes = np.array([c.cells is None for c in changes], np.bool_)
    ts = np.array([c.ts for c in changes], np.int64)
    return Changes(tuple(vecs), tuple(present), deletes if deletes.any() else None, ts)


def random_cells(rng: random.Random, mode: str) -> dict[int, object] | None:
    if rng.random() < 0.2:
        return None

    def value(column: int) -> object:
        if rng.random() < 0.15:
            return None
        small = rng.randrange(4)
        return {0: "x" * (small * 11), 2: small / 2, 4: small, 5: small}[column]

    if mode == "whole":
        return {c: value(c) for c in CELLS}
    count = rng.choice([0, 1, 2, 4, 4])
    return {c: value(c) for c in rng.sample(CELLS, count)}


Rows = dict[Key, Row]

_WIDE = [Decimal(n) for n in (-(10**29), -(2**64) - 1, -(2**64), -1, 0, 1, 2**63, 2**64, 2**64 + 2**63, 10**29)]
TIED: list[tuple[Type, list[object]]] = [
    (BIGINT, [None, -(2**63), -1, 0, 1, 2**63 - 1]),
    (BOOLEAN, [None, False, True]),
    (DOUBLE, [None, -math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.5, math.inf, math.nan]),
    (STRING, [None, "", "Z", "a", "aa", "z", "é", "\U0001f600"]),
    (BINARY, [None, b"", b"\0", b"\0\0", b"a", b"\xff", b"\xff\0"]),
    (decimal(30, 0), [None, *_WIDE]),
    (decimal(10, 2), [None, Decimal("-1.5"), Decimal("0"), Decimal("0.01")]),
    (DATE, [None, date(1900, 1, 1), date(2000, 1, 1)]),
]


def check_emitted(table: DeltaTable, change: BaseChange, columns: tuple[int, ...], old: Rows, new: Rows) -> None:
    delta, slots = change.emit(columns)
    rows = list(zip(*(c.to_arrow().to_pylist() for c in delta.columns), strict=True))
    seen: dict[tuple[int, Key], Row] = {}
    at = {c: i for i, c in enumerate(columns)}
    for weight, row in zip(delta.weight.tolist(), rows, strict=True):
        key = (row[at[1]], row[at[3]])
        assert (weight, key) not in seen
        seen[weight, key] = row
    expected: dict[tuple[int, Key], Row] = {}
    for key in old.keys() | new.keys():
        was = tuple(old[key][c] for c in columns) if key in old else None
        now = tuple(new[key][c] for c in columns) if key in new else None
        if was != now:
            if was is not None:
                expected[-1, key] = was
            if now is not None:
                expected[1, key] = now
    assert seen == expected
    assert len(slots) == len(delta)
    keys = [delta.columns[at[1]], delta.columns[at[3]]]
    assert delta.id.tolist() == hash_rows(keys, len(delta)).tolist()
    assert table._index.find(delta.id).tolist() == slots.tolist()


def contents(table: DeltaTable, step: int = 1000) -> dict[Key, Row]:
    rows: list[Row] = []
    start: int | None = 0
    while start is not None:
        delta, start = table.scan(start, step, range(len(table.table.columns)))
        rows += zip(*(c.to_arrow().to_pylist() for c in delta.columns), strict=True)
    return {(row[1], row[3]): row for row in rows}  # type: ignore[misc]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["whole", "part", "ordered"])
@pytest.mark.parametrize("ties", Ties)
def test_against_the_model(seed: int, mode: str, ties: Ties) -> None:
    rng = random.Random(f"{seed} {mode}")
    definition = replace(TABLE, ties=ties)
    table, model, clock = DeltaTable(definition), Model(ties), 0
    for _ in range(25):
        old = model.rows()
        changes = []
        for _ in range(rng.choice([0, 1, 5, 40])):
            number = rng.randrange(25)
            clock += 1
            ts = clock if mode == "ordered" else rng.randrange(60 if ties is Ties.LINEAGE else 8)
            changes.append(Change((number, f"key {number}"), ts, random_cells(rng, mode)))
            model.add(changes[-1])
        change = table.apply(batch(changes), {0, 1, 2, 3, 4, 5})
        new = model.rows()
        for columns in ((0, 1, 2, 3, 4, 5), (3, 1), (1, 5, 3), (3, 1, 0)):
            check_emitted(table, change, columns, old, new)
        assert contents(table, 7) == new
        assert len(table) == len(new)
        assert table.tombstones == len(model.changes) - len(new)
        if rng.random() < 0.2:
            loaded = DeltaTable(definition)
            loaded.load(table.dump())
            assert loaded.dump().sort_by("k").equals(table.dump().sort_by("k"))
            table = loaded
    vec = Vec.from_arrow(pa.array(range(26)), BIGINT)
    text = Vec.from_arrow(pa.array([f"key {i}" for i in range(26)]), STRING)
    for i, id in enumerate(hash_rows([vec, text], 26)):
        assert table.get(id) == model.row((i, f"key {i}"))


@pytest.mark.parametrize("seed", range(10))
def test_order_does_not_matter_for_distinct_timestamps(seed: int) -> None:
    rng = random.Random(seed)
    changes = [Change((rng.randrange(4), "k"), ts, random_cells(rng, "part")) for ts in range(40)]
    states = []
    for _ in range(5):
        rng.shuffle(changes)
        table = DeltaTable(TABLE)
        for start in range(0, 40, 8):
            table.apply(batch(changes[start : start + 8]), ())
        states.append(contents(table))
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize(("type", "values"), TIED)
def test_of_puts_with_one_timestamp_the_greatest_value_wins_in_any_order(type: Type, values: list[object]) -> None:
    """`values` ascend; the bits of the last one are kept, whichever comes first, in one batch or in several."""
    rng = random.Random(str(type))
    schema = (Column("k", BIGINT, nullable=False), Column("v", type))
    key = Vec(BIGINT, np.zeros(1, np.int64))
    for count in range(2, len(values) + 1):
        greatest = Vec.from_arrow(pa.array(values[count - 1 : count], type.arrow), type)
        for _ in range(6):
            order = [*range(count), rng.randrange(count)]
            rng.shuffle(order)
            column = Vec.from_arrow(pa.array([values[i] for i in order], type.arrow), type)
            for size in (1, 2, len(order)):
                table = DeltaTable(TableDef("t", schema, ("k",), Ties.VALUE))
                for start in range(0, len(order), size):
                    part = column.take(np.arange(start, min(start + size, len(order))))
                    keys = Vec(BIGINT, np.zeros(len(part), np.int64))
                    table.apply(Changes((keys, part), (None, None), None, np.full(len(part), 7)), ())
                (found,) = table.gather(table.slots_of(hash_rows([key], 1)), [1])
                assert found.valid.all() == greatest.valid.all(), (order, size)
                same = found.data == greatest.data if type.varlen else found.data.tobytes() == greatest.data.tobytes()
                assert same or not found.valid.all(), (order, size)


def test_a_delete_beats_a_put_of_equal_time_in_either_order() -> None:
    put, delete = Change((1, "k"), 5, dict.fromkeys(CELLS)), Change((1, "k"), 5, None)
    for order in ([put, delete], [delete, put]):
        table = DeltaTable(TABLE)
        for change in order:
            table.apply(batch([change]), ())
        assert len(table) == 0
        assert table.tombstones == 1


def test_rows_return_to_one_timestamp() -> None:
    table = DeltaTable(TABLE)
    table.apply(batch([Change((1, "k"), 5, {0: "x"})]), ())
    assert table.dump()["#cells"].null_count == 0
    table.apply(batch([Change((1, "k"), 6, dict.fromkeys(CELLS))]), ())
    assert table.dump()["#cells"].null_count == 1


def test_collected_tombstones_free_their_slots_and_no_longer_mask() -> None:
    """The retention counts from when a delete came, not from its timestamp: late deletes mask late puts as long."""
    table = DeltaTable(TABLE, grain_us=1)
    whole: dict[int, object] = {0: "text", 2: 1.0, 4: None, 5: 3}
    keys = [(i, f"key {i}") for i in range(100)]
    table.apply(batch([Change(k, 10, whole) for k in keys]), (), 1000)
    table.apply(batch([Change(k, 20, None) for k in keys[:50]]), (), 2000)
    table.apply(batch([Change(k, 20, None) for k in keys[50:]]), (), 3000)
    table.apply(batch([Change(keys[3], 15, whole)]), (), 3000)
    assert len(table) == 0
    assert table.collect(2000) == 0
    restored = DeltaTable(TABLE, grain_us=1)
    restored.load(table.dump())
    for one in (restored, table):
        assert one.collect(2001) == 50
        assert one.tombstones == 50
        assert one.collect(2001) == 0
    change = table.apply(batch([Change(keys[3], 15, whole), Change(keys[60], 15, whole)]), range(6), 4000)
    assert len(change.emit((1, 3))[0]) == 1
    assert contents(table).keys() == {keys[3]}
    table.apply(batch([Change((1000 + i, "new"), 15, whole) for i in range(49)]), (), 4000)
    assert table.limit == 100
    again = [Change(keys[3], 200, None), Change(keys[3], 201, whole), Change(keys[3], 202, None)]
    table.apply(batch(again), (), 5000)
    table.apply(batch([Change(keys[3], 203, whole)]), (), 6000)
    table.apply(batch([Change(keys[3], 204, None)]), (), 7000)
    assert table.collect(5001) == 50
    assert table.tombstones == 1
    assert table.collect(7001) == 1
    assert len(contents(table)) == len(table) == 49


def test_added_columns_are_null_as_of_the_row() -> None:
    table = DeltaTable(TABLE)
    whole: dict[int, object] = {0: "text", 2: 1.0, 4: None, 5: 3}
    table.apply(batch([Change((1, "k"), 10, whole), Change((2, "k"), 10, whole), Change((2, "k"), 12, {0: "y"})]), ())
    wider = (*COLUMNS, Column("e", STRING), Column("f", BIGINT))
    table.add_columns(wider[6:])
    late = [Change((1, "k"), 9, {6: "late"}), Change((2, "k"), 11, {6: "late"}), Change((1, "k"), 13, {7: 5})]
    table.apply(batch(late, wider), ())
    assert contents(table)[1, "k"][6:] == (None, 5)
    assert contents(table)[2, "k"] == ("y", 2, 1.0, "k", None, 3, None, None)
    loaded = DeltaTable(TableDef("t", wider, TABLE.key))
    loaded.load(table.dump())
    assert contents(loaded) == contents(table)


def test_nan_and_equal_values_emit_nothing() -> None:
    table = DeltaTable(TABLE)
    cells: dict[int, object] = {0: "text", 2: float("nan"), 4: None, 5: 3}
    table.apply(batch([Change((1, "k"), 10, cells)]), range(6))
    change = table.apply(batch([Change((1, "k"), 11, cells)]), range(6))
    assert len(change.emit((0, 1, 2, 3, 4, 5))[0]) == 0


def test_keys_alone() -> None:
    table = DeltaTable(TableDef("t", (Column("k", BIGINT),), ("k",)))
    vec = Vec.from_arrow(pa.array([1, 2, 1]), BIGINT)
    delete = np.array([False, False, True])
    change = table.apply(Changes((vec,), (None,), delete, np.array([1, 2, 3])), {0})
    delta, _ = change.emit((0,))
    assert delta.columns[0].data.tolist() == [2]
    assert delta.weight.tolist() == [1]
