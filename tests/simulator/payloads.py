"""Chunks of INPUT as the simulated sources write them, and back to what the engine takes.

The content is JSON: a list of entries, each a seq and its rows. A real source has a format of its own
(`store.served`, HBase's cells); what matters here is that it is cut by seq, that nothing else is in it, and that it
is quick for few rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec
from belvedere.protocol.exactly_once import InputPiece, SourceEntry, SourceId
from belvedere.sql.catalog import TableDef
from tests.simulator.changes import Change


def encode(source: SourceId, entries: tuple[SourceEntry, ...]) -> bytes:
    plain = []
    for entry in entries:
        rows: Any = entry.rows
        plain.append([int(entry.seq), [[row.key, row.ts, row.values] for row in rows]])
    return json.dumps([source.split("/")[0], plain], separators=(",", ":")).encode()


def decode(payload: bytes, piece: InputPiece, tables: Mapping[str, TableDef]) -> Iterable[tuple[str, Changes]]:
    name, entries = json.loads(payload)
    taken = [row for seq, rows in entries if piece.after < seq <= piece.last for row in rows]
    if taken and name in tables:
        yield name, changes_of(tables[name], [Change(name, *row) for row in taken])


def changes_of(table: TableDef, rows: list[Change]) -> Changes:
    (key,) = table.key_positions
    columns: list[Vec] = []
    present: list[np.ndarray | None] = []
    for i, column in enumerate(table.columns):
        if i == key:
            values: list[Any] = [row.key for row in rows]
            present.append(None)
        else:
            values = [None if row.values is None else row.values.get(column.name) for row in rows]
            written = np.array([row.values is not None and column.name in row.values for row in rows], np.bool_)
            present.append(None if written.all() else written)
        columns.append(Vec.from_arrow(pa.array(values, column.type.arrow), column.type))
    delete = np.array([row.values is None for row in rows], np.bool_)
    ts = np.array([row.ts for row in rows], np.int64)
    return Changes(tuple(columns), tuple(present), delete if delete.any() else None, ts)
