"""Compile every kernel on tiny inputs, so that the first real batch does not wait for it.

Compiled code is cached on disk: after the first start of a version this only loads it. Packages with kernels of their
own append a function to `EXERCISES`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes, Delta
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.columns import Columns
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.hashing import combine, hash_rows
from belvedere.engine.state.index import HashIndex
from belvedere.engine.state.members import Members
from belvedere.engine.state.ordered import KeyOrder, SortedSlots
from belvedere.engine.state.ragged import Ragged, find_tagged, fixed, join, join_tagged, split
from belvedere.engine.state.table import Table
from belvedere.engine.vec import Vec
from belvedere.sql.catalog import TableDef
from belvedere.types import BIGINT, BOOLEAN, INT, STRING, Column, decimal


def _columns() -> tuple[Vec, ...]:
    status = np.array([1, 0, 1, 1], np.uint8)
    return (
        Vec(BIGINT, np.arange(4)),
        Vec(STRING, pa.array(["a", "", "c", "longer than sixteen bytes"]), status),
        Vec(INT, np.arange(4, dtype=np.int32), status),
        Vec(BOOLEAN, np.array([True, False, True, True])),
        Vec(decimal(38, 0), np.zeros((4, 2), np.int64)),
    )


def _tables() -> None:
    columns = _columns()
    ids = hash_rows(columns, 4)
    combine(ids, ids)
    table = Table([c.type for c in columns])
    weight = np.ones(4, np.int8)
    table.apply(Delta(columns, weight, ids, weight.view(np.uint8)))
    table.apply(Delta(columns, -weight, ids))
    table.end_epoch()
    table.rows()
    table.get(ids[0])
    index = HashIndex()
    index.insert(ids)
    HashIndex.load(index.dump())
    index.remove(ids)
    index.find(ids)
    texts = Columns([STRING])
    for _ in range(3):
        texts.scatter(np.zeros(1, np.int32), [Vec(STRING, pa.array(["x" * (1 << 17)]))])
    texts.scatter(np.zeros(1, np.int32), [Vec(STRING, pa.array(["x" * (1 << 23)]))])
    texts.gather(np.zeros(1, np.int32))


def _members() -> None:
    members = Members()
    group = np.zeros(3, np.int32)
    members.add(group, np.arange(3, dtype=np.int32))
    members.sizes(group)
    members.probe(group, None, 0, 10, None)
    members.remove(group, np.arange(3, dtype=np.int32))


def _delta_tables() -> None:
    columns = _columns()
    schema = tuple(Column(f"c{i}", c.type) for i, c in enumerate(columns))
    table = DeltaTable(TableDef("warm", schema, ("c0",)))
    ts = np.array([1, 2, 3, 4])
    for delete in (None, np.array([True, False, False, False])):
        change = table.apply(Changes(columns, (None,) * 5, delete, ts), range(5))
        change.emit((0, 1, 2, 3, 4))
        ts = ts + 4
    twice = tuple(c.take(np.array([0, 1, 1, 2])) for c in columns)
    table.apply(Changes(twice, (None,) * 5, None, ts), range(5)).emit((0, 1, 2, 3, 4))
    table.collect(100)


def _packing() -> None:
    columns = _columns()
    codec = RowCodec([c.type for c in columns])
    rows = codec.pack(columns, 4, np.array([1, 2, 1, 1], np.uint8))
    both = [rows, fixed(np.arange(4))]
    codec.unpack(split(Ragged.of_arrow(join(both).arrow(1).slice(0, 4)), 2, "warm")[0])
    find_tagged(join_tagged([(1, rows), (2, both[1])]), [1])
    rows.take(np.array([2, 0])).compact()


def _ordered() -> None:
    slots, keys = np.arange(4, dtype=np.int32), pa.array([b"a", b"", b"c", b"longer than sixteen bytes"], pa.binary())
    order = KeyOrder()
    order.install(SortedSlots.of([slots[:2]], [keys.slice(0, 2)]), [slots[:2]], 4)
    order.written(slots, 4)
    order.removed(slots[:1], 4)
    settled = order.settle(lambda s: np.ones(len(s), np.bool_), lambda s: keys.take(pa.array(s)))
    assert settled is not None
    settled.select(b"a", None, None, False)


EXERCISES: list[Callable[[], None]] = [_tables, _members, _delta_tables, _packing, _ordered]


def warm() -> None:
    """Run every exercise once."""
    for exercise in EXERCISES:
        exercise()
