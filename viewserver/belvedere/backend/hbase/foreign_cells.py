"""What somebody else wrote to the table of a view.

Reads of a pool take the packed row in `_`, so a cell that another client put beside it changes nothing here, and every
answer of HBase's clients there. Each put of ours writes all columns of a row at once, at its epoch; so what is not as
the packed row says, or is newer than it, is not ours. A later put of ours hides it again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.keyvalues import KeyValues
from belvedere.backend.hbase.layout import CURRENT, ID_BYTES, LIVENESS
from belvedere.backend.hbase.packing import Content, unpack
from belvedere.backend.hbase.view_encodings import encode_bytes
from belvedere.model.stored_rows import view_rows
from belvedere.types import Schema

_PIECE = re.compile(rb"_[0-9]+")
"""Cells in which a big row goes on."""
_Cells = dict[bytes, tuple[int, bytes]]
Rest = Callable[[bytes, int, int], Sequence[bytes]]


def foreign_cells(cells: Cells, place: str, schema: Schema, names: Sequence[bytes], rest: Rest) -> Iterator[str]:
    """In the order of keys. `names`: the qualifiers of the columns; `rest`: the pieces of a big row."""
    for piece in cells.scan(place, b"", None, Columns(CURRENT)):
        rows = _by_row(piece)
        bodies: dict[bytes, bytes] = {}
        for row, held in rows.items():
            if LIVENESS not in held:
                yield _said(row, held)
                continue
            stamp, value = held[LIVENESS]
            kind, body = unpack(row, stamp, value, rest)
            if kind != Content.GONE:
                bodies[row] = body
            elif late := {name: cell for name, cell in held.items() if cell[0] > stamp}:
                yield _said(row, late)
        wanted = _columns(schema, list(bodies.values()))
        for at, row in enumerate(bodies):
            held = rows[row]
            stamp = held[LIVENESS][0]
            ours = {name: (stamp, column[at]) for name, column in zip(names, wanted, strict=True)}
            wrong = {name: cell for name, cell in held.items() if name != LIVENESS and not _PIECE.fullmatch(name)}
            wrong = {name: cell for name, cell in wrong.items() if ours.pop(name, None) != cell}
            if wrong or ours:
                yield _said(row, wrong, ours)


def _by_row(piece: KeyValues) -> dict[bytes, _Cells]:
    rows: dict[bytes, _Cells] = {}
    for row, name, stamp, value in zip(
        piece.row.to_pylist(), piece.qualifier.to_pylist(), piece.timestamp.tolist(), piece.value.to_pylist(),
        strict=True,
    ):  # fmt: skip
        rows.setdefault(row, {})[name] = stamp, value
    return rows


def _columns(schema: Schema, bodies: Sequence[bytes]) -> list[list[bytes]]:
    """What each column's cells should be, from packed rows with what stands before them."""
    skip = 1 + (len(schema) + 7) // 8 + ID_BYTES
    packed = pa.array([body[skip:] for body in bodies], pa.binary())
    rows = view_rows(schema, np.zeros((len(bodies), 2), np.uint64), packed)
    return [encode_bytes(column).to_pylist() for column in rows.columns]


def _said(row: bytes, written: Mapping[bytes, tuple[int, bytes]], gone: Mapping[bytes, object] | None = None) -> str:
    cells = [f"c:{name.decode('utf-8', 'replace')} at timestamp {stamp}" for name, (stamp, _) in written.items()]
    cells += [f"c:{name.decode('utf-8', 'replace')} is gone" for name in gone or {} if name not in written]
    return f"row {row!r}: {', '.join(cells)}"
