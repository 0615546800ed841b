"""What clients read without the engine is what the engine wrote: rows, tombstones, quarantine, ids of keys."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.engine.delta import Changes
from belvedere.engine.expr.literal import to_pylist, vec_of
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.ragged import fixed, join
from belvedere.engine.vec import Vec
from belvedere.errors import Damaged
from belvedere.model import stored_rows
from belvedere.model.row_ids import row_id
from belvedere.sql.catalog import TableDef
from belvedere.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    Column,
    Kind,
    Type,
    decimal,
)  # fmt: skip

TYPES = (BOOLEAN, INT, BIGINT, DOUBLE, decimal(12, 2), decimal(38, 10), STRING, BINARY, DATE, TIMESTAMP)


def value(type: Type, rng: random.Random) -> Any:
    if rng.random() < 0.15:
        return None
    match type.kind:
        case Kind.BOOLEAN:
            return rng.random() < 0.5
        case Kind.INT:
            return rng.choice([0, -1, 2**31 - 1, -(2**31), rng.randint(-99, 99)])
        case Kind.BIGINT:
            return rng.choice([0, -1, 2**63 - 1, -(2**63), rng.randint(-(10**12), 10**12)])
        case Kind.DOUBLE:
            return rng.choice([0.0, -0.0, math.nan, math.inf, -math.inf, rng.uniform(-1e9, 1e9)])
        case Kind.DECIMAL:
            n = rng.randint(-(10**type.precision) + 1, 10**type.precision - 1)
            return Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -type.scale))
        case Kind.STRING:
            return "".join(rng.choice("ab\0é語") for _ in range(rng.choice([0, 1, 2, 3, 5, 8, 13, 17, 40, 300])))
        case Kind.BINARY:
            return rng.randbytes(rng.choice([0, 1, 3, 4, 7, 8, 9, 16, 17, 33, 70_000]))
        case Kind.DATE:
            return date(1, 1, 1) + timedelta(days=rng.randrange(3_652_058))
    return datetime(1, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.randrange(3_652_058 * 86_400_000_000))


def columns(types: tuple[Type, ...], count: int, rng: random.Random) -> list[Vec]:
    return [vec_of([value(t, rng) for _ in range(count)], t) for t in types]


def as_text(vecs: Any) -> list[list[str]]:
    """NaN and -0.0 as they are."""
    return [[repr(v) for v in to_pylist(vec)] for vec in vecs]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_views_are_read_as_they_were_written(seed: int) -> None:
    rng = random.Random(seed)
    types = tuple(rng.choice(TYPES) for _ in range(rng.randint(0, 7)))
    count = rng.choice([0, 1, 2, 60])
    given = columns(types, count, rng)
    schema = tuple(Column(f"c{i}", t) for i, t in enumerate(types))
    ids = np.arange(2 * count, dtype=np.uint64).reshape(count, 2)
    stored = RowCodec(types).pack(given, count).arrow()
    start = rng.randint(0, count)  # a slice shares the buffers of the whole
    found = stored_rows.view_rows(schema, ids[start:], stored.slice(start))
    assert as_text(found.columns) == [column[start:] for column in as_text(given)]
    assert (found.id == ids[start:]).all() and (found.weight == 1).all()


@pytest.mark.parametrize("seed", range(10))
def test_rows_in_quarantine_are_read_with_what_failed(seed: int) -> None:
    rng = random.Random(seed)
    types, count = tuple(rng.sample(TYPES, 4)), 30
    given = columns(types, count, rng)
    error = np.array([rng.choice([1, 1, 3]) for _ in range(count)], np.uint8)
    column, code = np.arange(-1, count - 1, dtype=np.int32), np.full(count, 4, np.uint8)
    stored = join([RowCodec(types).pack(given, count, error), fixed(column), fixed(code)]).arrow()
    schema = tuple(Column(f"c{i}", t) for i, t in enumerate(types))
    found, where, why = stored_rows.quarantined_rows("v", schema, stored)
    assert as_text(found) == as_text(given)
    assert (where == column).all() and (why == code).all()


def test_base_rows_are_live_ones_with_columns_that_came_later() -> None:
    rng = random.Random(1)
    schema = (Column("id", BIGINT, False), *(Column(f"c{i}", t) for i, t in enumerate(TYPES)))
    table = TableDef("t", schema, ("id",))
    held = DeltaTable(table)
    count = 50
    vecs = (vec_of(list(range(count)), BIGINT), *columns(TYPES, count, rng))
    present: tuple[None, ...] = (None,) * len(vecs)
    held.apply(Changes(vecs, present, None, np.full(count, 5, np.int64)), ())
    gone = tuple(vec.slice(0, 7) for vec in vecs)
    held.apply(Changes(gone, present, np.ones(7, np.bool_), np.full(7, 9, np.int64)), ())
    ids, stored = held.export(hash_rows([vecs[0]], count))
    wider = TableDef("t", (*schema, Column("late", STRING)), ("id",))
    for known in (table, wider):
        expected = DeltaTable(known).unpack(stored)
        found = stored_rows.base_rows(known, ids, stored)
        alive = np.flatnonzero(~expected.dead)
        assert len(found) == count - 7
        assert as_text(found.columns) == as_text([c.take(alive) for c in expected.columns])
        assert (found.id == ids[alive]).all()


def test_a_value_that_was_cut_off_is_damaged() -> None:
    schema = (Column("s", STRING), Column("n", BIGINT))
    whole = RowCodec((STRING, BIGINT)).pack([vec_of(["abc"], STRING), vec_of([1], BIGINT)], 1)
    for cut in (0, 1, 5, 12):
        with pytest.raises(Damaged, match="shorter"):
            stored_rows.view_rows(schema, np.zeros((1, 2), np.uint64), pa.array([whole.arrow()[0].as_py()[:cut]]))
    with pytest.raises(Damaged, match="3 parts"):
        stored_rows.quarantined_rows("v", schema, pa.array([b"\x05abc"]))


@pytest.mark.parametrize("seed", range(300))
def test_the_id_of_a_key_is_that_of_the_engine(seed: int) -> None:
    rng = random.Random(seed)
    types = tuple(rng.choice(TYPES) for _ in range(rng.randint(0, 4)))
    key = columns(types, 1, rng)
    assert row_id(key).tolist() == hash_rows(key, 1).tolist()
