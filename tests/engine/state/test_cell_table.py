"""DELTA of tables whose deletes take cells, against HBase's rules as `tests.oracle.hbase_rules` has them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import CellChange, Changes
from belvedere.engine.state.cell_table import CellTable, new_table
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Status, Vec
from belvedere.model.stored_rows import base_rows
from belvedere.sql.catalog import Deletes, TableDef
from belvedere.types import BIGINT, INT, STRING, Column, Schema
from tests.oracle.hbase_rules import Cell, HBaseRow, Kind

COLUMNS: Schema = (Column("k", BIGINT, nullable=False), Column("a", STRING), Column("b", INT), Column("c", BIGINT))
TABLE = TableDef("t", COLUMNS, ("k",), deletes=Deletes.CELLS)
PLACES = {1: ("f", "a"), 2: ("f", "b"), 3: ("g", "c")}
"""Columns a and b are of one family, c of another."""
ALL = frozenset(PLACES)
VERSIONS = {"f": 1 << 30, "g": 1 << 30}


@dataclass(frozen=True)
class Change:
    key: int
    ts: int
    kind: CellChange
    columns: frozenset[int]
    value: int = 0

    def cells(self) -> list[Cell]:
        """What HBase is told."""
        if self.kind in (CellChange.PUT, CellChange.SCANNED):
            return [Cell(*PLACES[i], self.ts, Kind.PUT, content(i, self.value)) for i in self.columns]
        column, family = Kind.DELETE_COLUMN, Kind.DELETE_FAMILY
        if self.kind is CellChange.DELETE_VERSION:
            column, family = Kind.DELETE_VERSION, Kind.DELETE_FAMILY_VERSION
        found = []
        rest = set(self.columns)
        if {1, 2} <= rest:
            found.append(Cell("f", "", self.ts, family))
            rest -= {1, 2}
        return found + [Cell(*PLACES[i], self.ts, column) for i in rest]


def content(column: int, value: int) -> object:
    return "x" * (value * 9) if column == 1 else value


def batch(changes: Sequence[Change], columns: Schema = COLUMNS) -> Changes:
    vecs = [Vec.from_arrow(pa.array([c.key for c in changes], pa.int64()), BIGINT)]
    present: list[np.ndarray | None] = [None]
    for i, column in enumerate(columns[1:], 1):
        put = [c.kind in (CellChange.PUT, CellChange.SCANNED) and i in c.columns for c in changes]
        values = [content(i, c.value) if p else None for c, p in zip(changes, put, strict=True)]
        vecs.append(Vec.from_arrow(pa.array(values, column.type.arrow), column.type))
        mask = np.array([i in c.columns for c in changes], np.bool_)
        present.append(None if mask.all() else mask)
    kinds = np.array([c.kind for c in changes], np.uint8)
    ts = np.array([c.ts for c in changes], np.int64)
    return Changes(tuple(vecs), tuple(present), None, ts, kinds if kinds.any() else None)


Shown = dict[int, tuple[tuple[object, ...], bool]]
"""Rows by key: cells, OPEN where that is what they are, and whether the row itself is in doubt."""
OPEN = "open"


def shown(columns: Sequence[Vec], error: np.ndarray | None) -> Shown:
    out: Shown = {}
    cells = []
    for vec in columns[1:]:
        status = np.ones(len(vec), np.uint8) if vec.status is None else vec.status
        values = vec.to_arrow().to_pylist()
        cells.append([OPEN if s == Status.UNCOVERED else v for v, s in zip(values, status.tolist(), strict=True)])
    for at, key in enumerate(columns[0].to_arrow().to_pylist()):
        assert key not in out
        out[key] = (tuple(c[at] for c in cells), error is not None and error[at] == Status.UNCOVERED)
    return out


def contents(table: DeltaTable) -> Shown:
    found: Shown = {}
    start: int | None = 0
    while start is not None:
        delta, start = table.scan(start, 7, range(len(table.table.columns)))
        found |= shown(delta.columns, delta.error)
    return found


def expected(history: Sequence[Change]) -> Shown:
    """By definition: which cells are open follows from the set of what was put and deleted."""
    rows: Shown = {}
    for key in {c.key for c in history}:
        mine = [c for c in history if c.key == key]
        row = HBaseRow(VERSIONS)
        for change in mine:
            row.write(change.cells())
        there = row.read()
        cells: list[object] = []
        for i in ALL:
            puts = {c.ts for c in mine if c.kind in (CellChange.PUT, CellChange.SCANNED) and i in c.columns}
            gone = {c.ts for c in mine if c.kind is CellChange.DELETE_VERSION and i in c.columns}
            mask = max((c.ts for c in mine if c.kind is CellChange.DELETE and i in c.columns), default=-1)
            uncovered = max(puts & gone, default=-1)
            ts, value = there.get(PLACES[i], (-1, None))
            cells.append(OPEN if uncovered > max(ts, mask) else value)
        if any(cell is not None for cell in cells):
            rows[key] = (tuple(cells), all(cell is None or cell == OPEN for cell in cells))
    return rows


def random_change(rng: random.Random, ts: int, modes: Sequence[CellChange], keys: int = 12) -> Change:
    kind = rng.choice(modes)
    columns = frozenset(rng.sample(sorted(ALL), rng.choice([1, 2, 3, 3])))
    # One value for one timestamp: which of two wins is a matter of order, and has a test of its own.
    return Change(rng.randrange(keys), ts, kind, columns, ts % 4)


PUT, DELETE, VERSION, SCANNED, FORGOTTEN = CellChange
MODES = {
    "puts": [PUT],
    "deletes": [PUT, PUT, PUT, DELETE],
    "versions": [PUT, PUT, PUT, DELETE, VERSION],
    "loads": [PUT, SCANNED, DELETE, VERSION],
}


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("mode", MODES)
def test_any_history_ends_as_hbase_has_it(seed: int, mode: str) -> None:
    rng = random.Random(f"{seed} {mode}")
    table = new_table(TABLE)
    history: list[Change] = []
    for _ in range(30):
        before = expected(history)
        fresh = [random_change(rng, rng.randrange(12), MODES[mode]) for _ in range(rng.choice([1, 1, 3, 20]))]
        history += fresh
        change = table.apply(batch(fresh), {0, 1, 2, 3}, 1000)
        now = expected(history)
        assert contents(table) == now
        assert len(table) == len(now)
        for columns in ((0, 1, 2, 3), (0, 2), (0,)):
            check_emitted(change.emit(columns)[0], columns, before, now)
        assert reread(table, fresh) >= {c.key for c in fresh if any(v == OPEN for v in now.get(c.key, ((), 0))[0])}
        if rng.random() < 0.3:
            table = moved(table, rng)
            assert contents(table) == now


def reread(table: DeltaTable, changes: Sequence[Change]) -> set[int]:
    assert isinstance(table, CellTable)
    keys = sorted({c.key for c in changes})
    ids = hash_rows([Vec.from_arrow(pa.array(keys, pa.int64()), BIGINT)], len(keys))
    wanted = {tuple(id) for id in table.to_read_again.tolist()}
    return {key for key, id in zip(keys, ids.tolist(), strict=True) if tuple(id) in wanted}


def check_emitted(delta: object, columns: tuple[int, ...], before: Shown, now: Shown) -> None:
    """The delta has exactly the rows that differ in these columns."""
    weight, error = delta.weight, delta.error  # type: ignore[attr-defined]
    sides: list[Shown] = []
    for sign in (-1, 1):
        at = np.flatnonzero(weight == sign)
        vecs = [c.take(at) for c in delta.columns]  # type: ignore[attr-defined]
        sides.append(shown(vecs, None if error is None else error[at]))
    wanted: list[Shown] = [{}, {}]
    for key in before.keys() | now.keys():
        old, new = (
            None if key not in rows else (tuple(rows[key][0][c - 1] for c in columns[1:]), rows[key][1])
            for rows in (before, now)
        )
        if old != new:
            for side, image in zip(wanted, (old, new), strict=True):
                if image is not None:
                    side[key] = image
    assert sides == wanted


def moved(table: DeltaTable, rng: random.Random) -> DeltaTable:
    """By way of the store, whole or in part; or by a dump."""
    if rng.random() < 0.3:
        loaded = new_table(table.table)
        loaded.load(table.dump())
        return loaded
    slots = table.slots()
    some = slots[np.array([rng.random() < 0.6 for _ in slots], np.bool_)]
    ids = table.ids_at(some)
    _, values = table.export(ids)
    table.evict(some)
    if rng.random() < 0.5:
        other = new_table(table.table)
        rest = table.ids_at(table.slots())
        if len(rest):
            other.import_(table.export(rest)[1], 0)
        table = other
    if len(ids):
        table.import_(values, 0)
    return table


@pytest.mark.parametrize("seed", range(20))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    history = [random_change(rng, rng.randrange(10), MODES["loads"], keys=4) for _ in range(40)]
    states = []
    for size in (1, 4, 40):
        rng.shuffle(history)
        table = new_table(TABLE)
        sent = history + rng.sample(history, 10)
        for start in range(0, len(sent), size):
            table.apply(batch(sent[start : start + size]), ())
        states.append((contents(table), len(table), packed(table)))
    assert states[0][0] == expected(history)
    assert all(state[:2] == states[0][:2] for state in states)


def packed(table: DeltaTable) -> dict[bytes, bytes]:
    ids = table.ids_at(table.slots())
    return dict(zip((id.tobytes() for id in ids), table.export(ids)[1].to_pylist(), strict=True))


def put(key: int, ts: int, *columns: int, value: int = 1) -> Change:
    return Change(key, ts, PUT, frozenset(columns or ALL), value)


def applied(*changes: Change, size: int = 1) -> DeltaTable:
    table = new_table(TABLE)
    for start in range(0, len(changes), size):
        table.apply(batch(changes[start : start + size]), range(4))
    return table


def test_of_puts_with_one_timestamp_the_later_wins_but_a_scanned_one_never_does() -> None:
    for size in (1, 2):
        assert contents(applied(put(1, 5, value=1), put(1, 5, value=2), size=size))[1][0][1] == 2
        scanned = Change(1, 5, SCANNED, ALL, 3)
        assert contents(applied(put(1, 5, value=1), scanned, size=size))[1][0][1] == 1
        assert contents(applied(scanned, put(1, 5, value=1), size=size))[1][0][1] == 1
        assert contents(applied(put(1, 5, 2, value=1), scanned, size=size))[1][0] == ("x" * 27, 1, 3)


def test_a_row_lives_while_one_of_its_cells_does() -> None:
    rest = [put(1, 5), Change(1, 6, DELETE, frozenset({1, 2}))]
    assert contents(applied(*rest)) == {1: ((None, None, 1), False)}
    assert contents(applied(*rest, Change(1, 6, DELETE, frozenset({3})))) == {}


def test_a_masked_put_is_to_be_read_again_but_not_one_that_was_there_before() -> None:
    table = applied(put(1, 5), Change(1, 9, DELETE, ALL))
    table.apply(batch([Change(1, 7, SCANNED, ALL)]), ())
    assert reread(table, [put(1, 7)]) == set()
    table.apply(batch([put(1, 7, 2)]), ())
    assert reread(table, [put(1, 7)]) == {1}
    table.apply(batch([put(1, 10)]), ())
    table.apply(batch([put(1, 7, 2)]), ())
    assert reread(table, [put(1, 7)]) == set()  # whatever it is, 10 is newer


def test_tombstones_are_forgotten_with_the_newest_of_their_row() -> None:
    table = new_table(TABLE, grain_us=1)
    table.apply(batch([put(1, 5), put(2, 5), put(3, 5), put(4, 5)]), (), 1000)
    table.apply(batch([Change(i, 6, DELETE, ALL) for i in (1, 2, 3)]), (), 2000)
    table.apply(batch([put(3, 8, 1), Change(2, 7, VERSION, ALL)]), (), 3000)
    table.apply(batch([Change(4, 5, VERSION, frozenset({2}))]), (), 3000)
    copy = new_table(TABLE, grain_us=1)
    copy.load(table.dump())
    for one in (table, copy):
        assert one.tombstones == 2
        assert one.collect(2000) == 0
        assert one.collect(2001) == 1  # row 1; row 2 was deleted again since, row 3 lives
        late = [put(i, 4, 2, value=2) for i in (1, 2, 3, 4)]
        one.apply(batch(late), (), 3000)
        a = "x" * 9
        assert contents(one) == {
            1: ((None, 2, None), False),
            3: ((a, 2, None), False),
            4: ((a, OPEN, 1), False),
        }
        assert one.collect(10_000) == 1
        one.apply(batch([put(2, 4, 2, value=2)]), (), 3000)
        assert contents(one)[2] == ((None, 2, None), False)
        assert contents(one)[4][0][1] == OPEN  # nothing has decided yet
        one.apply(batch([put(4, 9, 2, value=3)]), (), 3000)
        assert contents(one)[4] == ((a, 3, 1), False)


def test_rows_written_whole_need_no_side_record() -> None:
    table = applied(put(1, 5), put(1, 6), put(2, 5, 1), put(2, 5, 2, 3))
    assert table._counts[4] == 0  # MIXED_ROWS
    wider = applied(put(1, 5), Change(1, 3, DELETE, ALL))
    assert wider._counts[4] == 1


def test_added_columns_have_no_cells_until_they_are_loaded() -> None:
    wider = (*COLUMNS, Column("d", BIGINT))
    definition = TableDef("t", wider, ("k",), deletes=Deletes.CELLS)
    history = [put(1, 5), put(2, 5, 1), Change(2, 6, DELETE, frozenset({1})), Change(3, 5, DELETE, ALL)]
    old = applied(*history)
    values = old.export(old.ids_at(old.slots()))[1]
    old.add_columns(wider[3 + 1 :])
    new = new_table(definition)
    new.import_(values, 0)
    for table in (old, new):
        assert contents(table) == {1: (("x" * 9, 1, 1, None), False)}
        late = [Change(i, 4, SCANNED, frozenset({4}), 2) for i in (1, 2, 3)]
        table.apply(batch(late, wider), ())
        assert contents(table) == {
            1: (("x" * 9, 1, 1, 2), False),
            2: ((None, None, None, 2), False),
            3: ((None, None, None, 2), False),
        }


def forgotten(key: int, digest: int) -> Change:
    return Change(key, digest, FORGOTTEN, frozenset())


def digest(table: DeltaTable, key: int, masks: bool = True) -> int:
    assert isinstance(table, CellTable)
    ids = hash_rows([Vec.from_arrow(pa.array([key], pa.int64()), BIGINT)], 1)
    return int(table.digests(table.slots_of(ids), masks)[0])


IMAGES = {
    "a whole row": [put(1, 5)],
    "some cells": [put(1, 5, 1), put(1, 6, 2)],
    "a mask beside a cell": [put(1, 5), Change(1, 6, DELETE, frozenset({1}))],
    "a tombstone": [put(1, 5), Change(1, 6, DELETE, ALL)],
    "an open cell": [put(1, 5), Change(1, 5, VERSION, frozenset({2}))],
    "a row in doubt": [put(1, 5, 2), Change(1, 5, VERSION, frozenset({2}))],
}


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("stored", [False, True])
def test_a_correction_takes_the_image_that_it_names_and_its_tombstones(image: str, stored: bool) -> None:
    table = applied(*IMAGES[image], put(2, 5))
    named = digest(table, 1)
    if stored:
        table = moved(table, random.Random(1))
        assert digest(table, 1) == named
    before = contents(table)
    change = table.apply(batch([forgotten(1, named)]), {0, 1, 2, 3})
    check_emitted(change.emit((0, 1, 2, 3))[0], (0, 1, 2, 3), before, {2: before[2]})
    assert contents(table) == {2: before[2]} and len(table) == 1
    # Whatever comes now is what the row is: no mask is left.
    table.apply(batch([Change(1, 3, SCANNED, frozenset({2}), 1)]), ())
    assert contents(table)[1] == ((None, 1, None), False)
    assert table.collect(1 << 60) == 0 and contents(table)[1] == ((None, 1, None), False)


def test_a_correction_and_what_the_store_has_in_its_place_are_one_change() -> None:
    table = applied(put(1, 5, value=1))
    before = contents(table)
    news = [Change(1, 3, SCANNED, frozenset({1, 2}), 2), forgotten(1, digest(table, 1)), forgotten(1, digest(table, 1))]
    change = table.apply(batch(news), {0, 1, 2, 3})  # in whatever order they come
    now = {1: (("x" * 18, 2, None), False)}
    assert contents(table) == now
    check_emitted(change.emit((0, 1, 2, 3))[0], (0, 1, 2, 3), before, now)


def test_a_correction_of_a_row_that_is_another_by_now_does_nothing() -> None:
    named = digest(applied(put(1, 5, value=1)), 1)
    for now in ([put(1, 5, value=2)], [put(1, 6, value=1)], [put(1, 5, 1, value=1)], [Change(1, 5, DELETE, ALL)]):
        table = applied(*now)
        before = packed(table)
        table.apply(batch([forgotten(1, named), forgotten(7, named)]), ())
        assert packed(table) == before
    masked = applied(put(1, 5), Change(1, 6, DELETE, ALL))
    named = digest(masked, 1)
    masked.apply(batch([Change(1, 7, DELETE, ALL)]), ())
    assert digest(masked, 1) != named
    other = applied(put(1, 4), Change(1, 6, DELETE, ALL))
    assert digest(masked, 1, masks=False) == digest(other, 1, masks=False)


def test_a_change_of_the_log_that_comes_with_a_correction_is_not_lost() -> None:
    table = applied(put(1, 5, value=1))
    named = digest(table, 1)
    table.apply(batch([put(1, 9, 2, value=3), Change(1, 6, DELETE, frozenset({3})), forgotten(1, named)]), ())
    assert contents(table) == {1: ((None, 3, None), False)}
    table.apply(batch([Change(1, 6, SCANNED, frozenset({3}), 1)]), ())
    assert contents(table) == {1: ((None, 3, None), False)}  # its mask is there as well


@pytest.mark.parametrize("seed", range(10))
def test_random_corrections_keep_the_books(seed: int) -> None:
    """Counts, deltas and stored forms, against rows that begin anew."""
    rng = random.Random(seed)
    table, histories = new_table(TABLE), dict[int, list[Change]]()
    for _ in range(40):
        before = expected([c for mine in histories.values() for c in mine])
        fresh = [random_change(rng, rng.randrange(12), MODES["loads"], keys=6) for _ in range(rng.choice([0, 1, 4]))]
        known = [key for key in histories if len(histories[key]) and rng.random() < 0.4]
        corrections = [forgotten(key, digest(table, key) + rng.choice([0, 0, 1])) for key in known]
        for change in corrections:
            if change.ts == digest(table, change.key):
                histories[change.key] = []
        for change in fresh:
            histories.setdefault(change.key, []).append(change)
        mixed = [*fresh, *corrections]
        rng.shuffle(mixed)
        order = {id(change): at for at, change in enumerate(fresh)}
        mixed.sort(key=lambda change: order.get(id(change), rng.random() * len(fresh)))
        applied_now = table.apply(batch(mixed), {0, 1, 2, 3}, 1000)
        now = expected([c for mine in histories.values() for c in mine])
        assert contents(table) == now and len(table) == len(now)
        check_emitted(applied_now.emit((0, 1, 2, 3))[0], (0, 1, 2, 3), before, now)
        if rng.random() < 0.3:
            table = moved(table, rng)


def test_readers_of_the_store_see_the_rows_that_are_certain() -> None:
    history = [put(1, 5), put(2, 5), Change(2, 6, DELETE, frozenset({1})), Change(3, 5, DELETE, ALL), put(4, 5, 2)]
    table = applied(*history, Change(4, 5, VERSION, frozenset({2})))
    ids = table.ids_at(table.slots())
    rows = base_rows(TABLE, ids, table.export(ids)[1])
    assert shown(rows.columns, None) == {key: row for key, row in contents(table).items() if not row[1]}
    assert contents(table)[4] == ((None, OPEN, None), True)
