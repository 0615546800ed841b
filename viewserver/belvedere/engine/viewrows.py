"""Rows of views, rows that a view cannot show, and rows of base tables, as the store keeps them: decodable with nothing
but the view or the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from belvedere.engine.buffer import DeltaBuffer
from belvedere.engine.delta import Delta, concat_deltas
from belvedere.engine.ledger import IdSet, Saved
from belvedere.engine.operators.view import Quarantined
from belvedere.engine.residency import distinct_ids
from belvedere.engine.rowcodec import RowCodec
from belvedere.engine.state.delta_table import DeltaTable
from belvedere.engine.state.ragged import Ragged, fixed, join, split
from belvedere.engine.vec import Vec
from belvedere.plan import nodes
from belvedere.plan.table_names import delta_table, quarantine_table, view_table
from belvedere.types import Schema, Type

__all__ = [
    "KeyEncoder",
    "decode_quarantine_rows",
    "decode_view_rows",
    "delta_table",
    "export_quarantine",
    "export_view",
    "quarantine_table",
    "view_table",
]


@lru_cache(maxsize=1024)
def _codec(types: tuple[Type, ...]) -> RowCodec:
    return RowCodec(types)


def _codec_of(schema: nodes.ViewNode | Schema) -> RowCodec:
    columns = schema.schema if isinstance(schema, nodes.ViewNode) else schema
    return _codec(tuple(c.type for c in columns))


def decode_view_rows(schema: nodes.ViewNode | Schema, ids: np.ndarray, values: pa.BinaryArray) -> Delta:
    """Rows of a view (weight +1) as the store keeps them; every value is a row, none is null."""
    columns, _ = _codec_of(schema).unpack(Ragged.of_arrow(values))
    return Delta(columns, np.ones(len(ids), np.int8), ids)


def decode_quarantine_rows(view: nodes.ViewNode, ids: np.ndarray, values: pa.BinaryArray) -> Quarantined:
    """Rows in quarantine; every value is a row, none is null."""
    rows, column, code = split(Ragged.of_arrow(values), 3, f"quarantine of view {view.name}")
    columns, error = _codec_of(view).unpack(rows)
    delta = Delta(columns, np.ones(len(ids), np.int8), ids, error)
    return Quarantined(delta, column.words(np.int32), code.words(np.uint8))


KeyEncoder: TypeAlias = Callable[[Schema, Sequence[Vec], int], pa.BinaryArray]
"""Keys of rows, of which these are the key columns, as bytes in their order."""


def export_view(
    view: nodes.ViewNode, chunks: DeltaBuffer, encode: KeyEncoder | None = None, images: bool = False
) -> Iterator[Saved]:
    """What an epoch leaves of a view, in pieces: ids with their rows, null for those that are gone, and the keys of
    both; with `images` also what the rows were before."""
    codec = _codec_of(view)
    schema = tuple(view.schema[i] for i in view.key)
    old = _Images(codec, chunks) if images else None

    def keys(rows: Delta) -> pa.BinaryArray | None:
        return None if encode is None else encode(schema, [rows.columns[i] for i in view.key], len(rows))

    def before(rows: Delta) -> pa.BinaryArray | None:
        return None if old is None else old.of(rows.id)

    come, gone = [], []
    for delta in chunks:
        fresh = delta.weight > 0
        rows = delta if fresh.all() else delta.filter(fresh)
        come.append(rows.id)
        yield rows.id, codec.pack(rows.columns, len(rows)).arrow(), keys(rows), None, before(rows)
        if rows is not delta:
            gone.append(delta.filter(~fresh))
    if gone:
        there = IdSet(np.concatenate(come))
        for part in gone:
            lost = part.filter(there.find(part.id) < 0)  # a row that goes and comes is there
            yield lost.id, pa.nulls(len(lost), pa.binary()), keys(lost), None, before(lost)


class _Images:
    """Rows that an epoch takes away, as they were stored, by id."""

    def __init__(self, codec: RowCodec, chunks: DeltaBuffer) -> None:
        gone = [rows for rows in (delta.filter(delta.weight < 0) for delta in chunks) if len(rows)]
        self._ids = IdSet(np.concatenate([rows.id for rows in gone]) if gone else np.empty((0, 2), np.uint64))
        values = [codec.pack(rows.columns, len(rows)).arrow().cast(pa.large_binary()) for rows in gone]
        self._values = pa.concat_arrays(values) if values else pa.nulls(0, pa.large_binary())

    def of(self, ids: np.ndarray) -> pa.BinaryArray:
        at = self._ids.find(ids)
        return self._values.take(pa.array(at, mask=at < 0)).cast(pa.binary())


def export_table(table: DeltaTable, rows: Delta, encode: KeyEncoder | None = None) -> Saved:
    """What an epoch leaves of rows of a base table, given as ids with the columns of their keys. Tombstones are values
    that are no rows to a reader."""
    ids, values = table.export(rows.id)
    if encode is None:
        return ids, values, None, None, None
    definition = table.table
    keys = encode(tuple(definition.columns[i] for i in definition.key_positions), rows.columns, len(rows))
    return ids, values, keys, table.dead(ids), None


def export_quarantine(view: nodes.ViewNode, parts: Sequence[Quarantined]) -> tuple[np.ndarray, pa.BinaryArray]:
    """The same for rows that failed."""
    rows = concat_deltas([p.delta for p in parts])
    fresh = np.flatnonzero(rows.weight > 0)
    column, code = np.concatenate([p.column for p in parts])[fresh], np.concatenate([p.code for p in parts])[fresh]
    kept = rows.take(fresh)
    packed = join(
        [
            _codec_of(view).pack(kept.columns, len(kept), kept.error),
            fixed(column.astype(np.int32)),
            fixed(code.astype(np.uint8)),
        ]
    )
    return _together(kept.id, packed.arrow(), rows.id[rows.weight < 0])


def _together(ids: np.ndarray, values: pa.BinaryArray, gone: np.ndarray) -> tuple[np.ndarray, pa.BinaryArray]:
    """A row that goes and comes is there. Where two rows that failed have one id, the lesser one stands for both."""
    there = IdSet(ids)
    if len(there.index) < len(ids):
        order = np.array(sorted(range(len(ids)), key=lambda i: (ids[i].tobytes(), values[i].as_py())), np.int64)
        first = np.ones(len(ids), np.bool_)
        first[1:] = (ids[order][1:] != ids[order][:-1]).any(axis=1)
        chosen = order[first]
        ids, values = ids[chosen], values.take(pa.array(chosen))
        there = IdSet(ids)
    if len(gone):
        lost = distinct_ids(gone[there.find(gone) < 0])
        ids = np.concatenate([ids, lost])
        values = pa.concat_arrays([values, pa.nulls(len(lost), pa.binary())])
    return ids, values
