"""Whether a write is in a stored base row, read without the engine: against rows as the engine writes them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from belvedere.engine.delta import CellChange
from belvedere.engine.state.cell_table import new_table
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.vec import Vec
from belvedere.model.cell_times import is_reached
from belvedere.protocol.exactly_once import SourceId
from belvedere.protocol.row_marks import RowMark
from belvedere.types import BIGINT
from tests.engine.state.test_cell_table import TABLE, Change, batch, put, random_change

WRITES = (CellChange.PUT, CellChange.DELETE, CellChange.DELETE_VERSION)


def stored(key: int, history: list[Change], size: int = 3) -> bytes | None:
    table = new_table(TABLE)
    for at in range(0, len(history), size):
        table.apply(batch(history[at : at + size]), range(4))
    found: bytes | None = table.export(hash_rows([Vec.from_arrow(pa.array([key], pa.int64()), BIGINT)], 1))[1][
        0
    ].as_py()
    return found


@pytest.mark.parametrize("seed", range(30))
def test_what_was_written_is_reached_and_nothing_later(seed: int) -> None:
    rng = random.Random(seed)
    history = [random_change(rng, rng.randrange(1, 60), WRITES, keys=3) for _ in range(rng.randrange(1, 40))]
    for key in range(3):
        own = [change for change in history if change.key == key]
        row = stored(key, history)
        assert own or row is None
        for column in (1, 2, 3):
            times = [change.ts for change in own if column in change.columns]
            bit = 1 << (column - 1)
            assert all(is_reached(row, bit, ts) for ts in times), (key, column)
            assert not is_reached(row, bit, max(times, default=0) + 1), (key, column)
        if own:
            newest = max(change.ts for change in own)
            assert is_reached(row, 0, newest) and not is_reached(row, 0, newest + 1)


def test_a_write_is_reached_when_all_of_its_columns_are() -> None:
    row = stored(1, [put(1, 10, 1, 2, 3), put(1, 20, 1)])
    assert is_reached(row, 0b001, 20) and is_reached(row, 0b111, 10)
    assert not is_reached(row, 0b011, 20), "column b has not been written since"
    assert not is_reached(None, 0, 0)


def test_columns_that_a_row_does_not_have_yet_are_not_reached() -> None:
    row = stored(1, [put(1, 10, 1, 2, 3)])
    assert not is_reached(row, 0b1000, 5)


def test_names_of_writes() -> None:
    mark = RowMark("shop/orders 2", (1, 2**64 - 1), 0b101, 2)
    assert RowMark.parse(mark.source) == mark
    assert RowMark.parse(SourceId("orders/1588230740")) is None and RowMark.parse(SourceId("!x")) is None
