"""Byte strings of many rows in one array: what packed state is made of before it becomes a column of the store.

Parts of a row (its key, its sums, the values of a multiset) are ragged columns of their own; `join` puts them together
row by row and `split` takes them apart, without a loop over rows in Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.state.arena import SLACK
from belvedere.engine.state.jit import plain
from belvedere.engine.state.kernels import rows as k
from belvedere.errors import Damaged

MAX_BYTES = 0x7FFFFFFF
PIECE_BYTES = 1 << 29
"""Of one column that is saved: with ease below that."""


@dataclass(slots=True)
class Ragged:
    """Row i is data[starts[i] : stops[i]]. Positions are int64."""

    starts: np.ndarray
    stops: np.ndarray
    data: np.ndarray

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        return np.asarray(self.stops - self.starts)

    def take(self, index: np.ndarray) -> Ragged:
        return Ragged(self.starts[index], self.stops[index], self.data)

    def compact(self) -> tuple[np.ndarray, np.ndarray]:
        """(offsets int64[n + 1], bytes) with the rows one after the other."""
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(self.lengths, out=offsets[1:])
        total = int(offsets[-1])
        if len(self) and total == int(self.stops[-1]) - int(self.starts[0]) and _adjacent(self):
            return offsets, self.data[int(self.starts[0]) : int(self.stops[-1])]
        out = np.empty(total + SLACK, np.uint8)
        k.gather_bytes(plain(self.starts), plain(self.stops), self.data, offsets[:-1], out)
        return offsets, out[:total]

    def words(self, dtype: type[np.generic]) -> np.ndarray:
        """All rows one after the other as numbers (a copy, aligned)."""
        _, data = self.compact()
        return np.frombuffer(data.tobytes(), dtype).copy()

    def arrow(self, dead: int = 0) -> pa.BinaryArray:
        """As a column, with that many nulls behind the rows."""
        offsets, data = self.compact()
        if offsets[-1] > MAX_BYTES:
            raise OverflowError(
                f"{len(self)} values of together {offsets[-1]} bytes do not fit one write; make epochs smaller"
            )
        count = len(self) + dead
        bounds = np.empty(count + 1, np.int32)
        bounds[: len(offsets)] = offsets
        bitmap = None
        if dead:
            bounds[len(offsets) :] = offsets[-1]
            bitmap = pa.py_buffer(np.packbits(np.arange(count) < len(self), bitorder="little"))
        buffers = [bitmap, pa.py_buffer(bounds), pa.py_buffer(np.ascontiguousarray(data))]
        return pa.Array.from_buffers(pa.binary(), count, buffers, dead)

    def pieces(self) -> Iterator[tuple[int, pa.BinaryArray]]:
        """As columns of at most about `PIECE_BYTES`, each with the number of its first row."""
        at, ends = 0, np.cumsum(self.lengths)
        while at < len(self):
            before = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, before + PIECE_BYTES, "right")))
            yield at, Ragged(self.starts[at:stop], self.stops[at:stop], self.data).arrow()
            at = stop

    @staticmethod
    def of_arrow(values: pa.BinaryArray) -> Ragged:
        """The rows of a column without nulls."""
        count = len(values)
        _, offsets, data = values.buffers()
        if not count or data is None:
            return Ragged(np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(SLACK, np.uint8))
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        return Ragged(bounds[:-1], bounds[1:], plain(np.frombuffer(data, np.uint8)))


def _adjacent(rows: Ragged) -> bool:
    return bool((rows.starts[1:] == rows.stops[:-1]).all())


def fixed(table: np.ndarray) -> Ragged:
    """Every row of a table of numbers (or of a vector) as bytes."""
    table = np.ascontiguousarray(table)
    width = table.itemsize * (table.shape[1] if table.ndim == 2 else 1)
    starts = np.arange(len(table), dtype=np.int64) * width
    return Ragged(
        starts, starts + width, plain(table).view(np.uint8).reshape(-1) if table.size else np.zeros(1, np.uint8)
    )


def where(table: np.ndarray, present: Any) -> Ragged:
    """The same, but nothing for rows that are not present."""
    rows = fixed(table)
    rows.stops = np.where(present, rows.stops, rows.starts)
    return rows


def nothing(count: int) -> Ragged:
    zeros = np.zeros(count, np.int64)
    return Ragged(zeros, zeros, np.zeros(1, np.uint8))


def segments(ends: np.ndarray, values: np.ndarray) -> Ragged:
    """Row j is the items of `values` between ends[j - 1] and ends[j]."""
    values = np.ascontiguousarray(values)
    width = values.itemsize * (values.shape[1] if values.ndim == 2 else 1)
    stops = ends.astype(np.int64) * width
    starts = np.concatenate([[0], stops[:-1]]).astype(np.int64) if len(stops) else stops
    return Ragged(starts, stops, plain(values).view(np.uint8).reshape(-1) if values.size else np.zeros(1, np.uint8))


def _stack(parts: Sequence[Ragged]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parts over one array of bytes: starts and stops by part, then row."""
    shift = np.cumsum([0, *(len(p.data) for p in parts[:-1])])
    starts = np.array([p.starts for p in parts]) + shift[:, None]
    stops = np.array([p.stops for p in parts]) + shift[:, None]
    return starts, stops, np.concatenate([p.data for p in parts])


def _room(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ends = np.cumsum(sizes, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    return ends - sizes, ends, np.empty(total + SLACK, np.uint8)


def join(parts: Sequence[Ragged]) -> Ragged:
    """The parts of each row as one byte string."""
    starts, stops, data = _stack(parts)
    lengths = stops - starts
    sizes = (lengths + np.where(lengths < k.LONG, 1, 5)).sum(axis=0)
    begins, ends, out = _room(sizes)
    k.join_parts(starts, stops, data, begins.copy(), out)
    return Ragged(begins, ends, out)


def split(rows: Ragged, count: int, what: str) -> list[Ragged]:
    """The inverse of `join` for so many parts; `what` names the rows in an error."""
    first, last = np.empty((count, len(rows)), np.int64), np.empty((count, len(rows)), np.int64)
    if not k.split_parts(plain(rows.starts), plain(rows.stops), rows.data, first, last):
        raise Damaged(f"{what}: a stored value does not have its {count} parts")
    return [Ragged(first[i], last[i], rows.data) for i in range(count)]


def join_tagged(parts: Sequence[tuple[int, Ragged]]) -> Ragged:
    """The parts of each row, each found again by its tag; empty ones are left out."""
    starts, stops, data = _stack([p for _, p in parts])
    lengths = stops - starts
    begins, ends, out = _room(np.where(lengths > 0, lengths + 8, 0).sum(axis=0))
    k.join_tagged(starts, stops, data, np.array([t for t, _ in parts], np.int64), begins.copy(), out)
    return Ragged(begins, ends, out)


def find_tagged(rows: Ragged, tags: Sequence[int]) -> list[Ragged]:
    """The parts with these tags, empty where a row has none."""
    first, last = np.empty((len(tags), len(rows)), np.int64), np.empty((len(tags), len(rows)), np.int64)
    k.find_tags(plain(rows.starts), plain(rows.stops), rows.data, np.array(tags, np.int64), first, last)
    return [Ragged(first[i], last[i], rows.data) for i in range(len(tags))]


def tagged_parts(value: bytes | None) -> dict[int, bytes]:
    """The parts of one value by their tags, as far as they are whole: the value may be damaged."""
    found: dict[int, bytes] = {}
    at, value = 0, value or b""
    while at + 8 <= len(value):
        tag, size = int.from_bytes(value[at : at + 4], "little"), int.from_bytes(value[at + 4 : at + 8], "little")
        if at + 8 + size > len(value):
            break
        found[tag] = value[at + 8 : at + 8 + size]
        at += 8 + size
    return found


def joined_parts(value: bytes, count: int) -> list[bytes]:
    """The parts of one value that `join` made, empty ones where it is damaged."""
    found: list[bytes] = []
    at = 0
    while len(found) < count and at < len(value):
        size, at = value[at], at + 1
        if size == k.LONG:
            size, at = int.from_bytes(value[at : at + 4], "little"), at + 4
        found.append(value[at : at + size])
        at += size
    return found if len(found) == count and at == len(value) else [b""] * count
