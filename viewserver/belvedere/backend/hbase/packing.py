"""What a cell holds: a byte that says what it is, and the content; and how one of several versions is chosen.

A big content is cut: the rest is in columns `_1`, `_2` and so on of the same row and timestamp. Requests, blocks of
files and the memory of region servers are made for cells up to about a megabyte.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from belvedere.backend.hbase.keyvalues import PUT, KeyValues, cells_of, concat, part_of, same
from belvedere.backend.hbase.layout import LIVENESS, VERSIONS
from belvedere.errors import Damaged

PIECE_BYTES = 1 << 20


class Content(enum.IntFlag):
    """The first byte of a cell `_`. GONE: a tombstone. HIDDEN: not seen by readers in the order of keys. CUT: four
    bytes with the number of pieces follow, then the first piece."""

    GONE = 0
    ROW = 1
    HIDDEN = 2
    CUT = 4


def pack(rows: pa.BinaryArray, family: str, stamp: int, kinds: np.ndarray, bodies: pa.BinaryArray) -> KeyValues:
    """Cells `_` of these rows."""
    name = family.encode()
    sizes = np.asarray(pc.binary_length(bodies)).astype(np.int64)
    big = np.flatnonzero(sizes > PIECE_BYTES)
    if not len(big):
        return cells_of(rows, name, LIVENESS, stamp, PUT, _headed(kinds, bodies))
    small = np.flatnonzero(sizes <= PIECE_BYTES)
    at = pa.array(small)
    parts = [cells_of(rows.take(at), name, LIVENESS, stamp, PUT, _headed(kinds[small], bodies.take(at)))]
    for one in big.tolist():
        values = cut(int(kinds[one]), bodies[one].as_py())
        cells = cells_of(same(rows[one].as_py(), len(values)), name, b"", stamp, PUT, pa.array(values, pa.binary()))
        qualifiers = pa.array([LIVENESS, *(b"_%d" % number for number in range(1, len(values)))], pa.binary())
        parts.append(KeyValues(cells.row, cells.family, qualifiers, cells.timestamp, cells.kind, cells.value))
    return concat([part for part in parts if len(part)])


def _headed(kinds: np.ndarray, bodies: pa.BinaryArray) -> pa.BinaryArray:
    heads = pa.array([b"\0", b"\1", b"\2"], pa.binary()).take(pa.array(kinds))
    return pc.binary_join_element_wise(heads, bodies, b"")


def cut(kind: int, body: bytes) -> list[bytes]:
    """A content as cells `_`, `_1` and so on."""
    if len(body) <= PIECE_BYTES:
        return [bytes([kind]) + body]
    pieces = [body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES)]
    pieces[0] = bytes([kind | Content.CUT]) + len(pieces).to_bytes(4, "big") + pieces[0]
    return pieces


Rest = Callable[[bytes, int, int], Sequence[bytes]]
"""The pieces behind the first: of a row, its timestamp, how many there are in all."""


def unpack(row: bytes, stamp: int, value: bytes, rest: Rest) -> tuple[int, bytes]:
    """What a cell is, and its content."""
    if not value:
        raise Damaged(f"hbase row {row!r} has an empty cell '_'; it was not written by Belvedere")
    kind = value[0]
    if not kind & Content.CUT:
        return kind, value[1:]
    count = int.from_bytes(value[1:5], "big")
    return kind & ~Content.CUT, b"".join([value[5:], *rest(row, stamp, count)])


@dataclass(frozen=True)
class Chosen:
    """Of each row that was asked for: what it was (`Content`, -1: nothing is there), its content, and the timestamp."""

    kind: np.ndarray
    body: pa.BinaryArray
    stamp: np.ndarray
    late: np.ndarray
    """Rows of which this is not known: all versions that are kept are newer."""


def choose(rows: pa.BinaryArray, found: KeyValues, below: int, rest: Rest) -> Chosen:
    """The newest version below of each row, of up to `VERSIONS` that were found. HBase keeps so many at least: if fewer
    are there, none is missing; if one of them is below, nothing between is missing."""
    count = len(rows)
    position = np.asarray(pc.index_in(found.row, value_set=rows)) if len(found) else np.empty(0, np.int64)
    kind, stamp = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    seen = np.bincount(position, minlength=count)
    old = np.flatnonzero(found.timestamp < below)
    where, first = np.unique(position[old], return_index=True)  # newest first, so the first is the newest
    chosen = old[first]
    late = seen >= VERSIONS
    late[where] = False
    values = found.value.take(pa.array(chosen))
    kinds = _kinds(values)
    stamp[where] = found.timestamp[chosen]
    bodies = part_of(values, 1)
    if (kinds & Content.CUT).any():
        whole = bodies.to_pylist()
        for at in np.flatnonzero(kinds & Content.CUT).tolist():
            row, moment = rows[int(where[at])].as_py(), int(stamp[where[at]])
            kinds[at], whole[at] = unpack(row, moment, values[at].as_py(), rest)
        bodies = pa.array(whole, pa.binary())
    kind[where] = kinds
    index = np.full(count, -1, np.int64)
    index[where] = np.arange(len(where))
    return Chosen(kind, bodies.take(pa.array(index, mask=index < 0)), stamp, late)


def _kinds(values: pa.BinaryArray) -> np.ndarray:
    if not len(values):
        return np.empty(0, np.int64)
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if (np.diff(offsets) == 0).any():
        raise Damaged("hbase: a cell '_' is empty; it was not written by Belvedere")
    return np.frombuffer(values.buffers()[2], np.uint8)[offsets[:-1]].astype(np.int64)
