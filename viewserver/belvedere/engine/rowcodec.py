"""Rows as byte strings, one per row: how rows rest in the store, decodable with nothing but their types.

    flags (1) | fixed part | status of every column, if one is not a value | row error, if any | bytes of strings

A fixed column stands with its width, a string with its length (4 bytes). What a column holds where it has no value is
written as zeros, so equal rows have equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from belvedere.engine.state.arena import SLACK, string_parts
from belvedere.engine.state.jit import address, plain
from belvedere.engine.state.kernels import rows as k
from belvedere.engine.state.ragged import MAX_BYTES, Ragged
from belvedere.engine.vec import Status, Vec, empty
from belvedere.types import Type

_VALUE = np.uint8(Status.VALUE)


class RowCodec:
    """Packs rows of these types."""

    def __init__(self, types: Sequence[Type]):
        self.types = tuple(types)
        self._texts = [i for i, t in enumerate(self.types) if t.varlen]
        ports = []  # offset, width, column, word
        offset = 1
        for i, type in enumerate(self.types):
            width = 4 if type.varlen else type.dtype.itemsize * (2 if type.wide else 1)
            ports += [(offset + 8 * word, min(width, 8), i, word, width) for word in range(max(1, width // 8))]
            offset += width
        self._fixed = offset
        self._ports = ports
        table = np.array(ports, np.int64).reshape(-1, 5).T
        self._offsets, self._widths, self._columns, _, self._steps = (np.ascontiguousarray(row) for row in table)

    def pack(self, columns: Sequence[Vec], count: int, error: np.ndarray | None = None) -> Ragged:
        """One byte string per row. `error`: as in `Delta`."""
        status = self._status(columns, count)
        odd = (status != _VALUE).any(axis=0) if status.shape[1] else np.zeros(count, np.bool_)
        failed = np.zeros(count, np.bool_) if error is None else error > _VALUE
        sizes = np.full(count, self._fixed, np.int64) + len(self.types) * odd + failed
        texts, data = self._sources(columns, status)
        for _, lengths, _ in texts:
            sizes += lengths
        ends = np.cumsum(sizes, dtype=np.int64)
        starts = ends - sizes
        out = np.empty((int(ends[-1]) if count else 0) + SLACK, np.uint8)
        if count:
            addresses = np.array([address(data[i]) + 8 * word for _, _, i, word, _ in self._ports], np.int64)
            k.pack_fixed(
                address(out), starts, self._offsets, self._widths, addresses, self._steps, self._columns, status
            )
            at = starts.copy()
            k.pack_tail(out, at, self._fixed, odd, status, failed, _codes(error, count))
            for begins, lengths, values in texts:
                k.pack_text(out, at, begins, lengths, values)
        return Ragged(starts, ends, out)

    def _status(self, columns: Sequence[Vec], count: int) -> np.ndarray:
        """Status by column and row; without rows if all are values."""
        if all(c.status is None for c in columns):
            return np.empty((len(columns), 0), np.uint8)
        out = np.ones((len(columns), count), np.uint8)
        for i, column in enumerate(columns):
            if column.status is not None:
                out[i] = column.status
        return out

    def _sources(
        self, columns: Sequence[Vec], status: np.ndarray
    ) -> tuple[list[tuple[np.ndarray, np.ndarray, np.ndarray]], list[np.ndarray]]:
        """Of each string column starts, lengths and bytes; and of each column what its fixed part is read from."""
        texts, data = [], []
        for i, column in enumerate(columns):
            if not self.types[i].varlen:
                data.append(plain(column.data))
                continue
            offsets, values = string_parts(column.data)
            lengths = np.diff(offsets)
            if status.shape[1]:
                lengths = np.where(status[i] == _VALUE, lengths, np.int32(0))
            lengths = np.ascontiguousarray(lengths, np.int32)
            texts.append((offsets[:-1], lengths, values))
            data.append(lengths)
        return texts, data

    def unpack(self, rows: Ragged) -> tuple[tuple[Vec, ...], np.ndarray | None]:
        """Columns, and row errors if there are any."""
        count = len(rows)
        if not count:
            return tuple(empty(t) for t in self.types), None
        raw = [
            np.empty(count, np.int32)
            if t.varlen
            else np.empty((count, 2) if t.wide else count, np.dtype(np.uint8) if t.dtype == np.bool_ else t.dtype)
            for t in self.types
        ]
        addresses = np.array([address(raw[i]) + 8 * word for _, _, i, word, _ in self._ports], np.int64)
        starts = plain(rows.starts)
        k.unpack_fixed(address(rows.data), starts, self._offsets, self._widths, addresses, self._steps)
        status = np.empty((len(self.types), count), np.uint8)
        error = np.empty(count, np.uint8)
        at = starts.copy()
        odd, failed = k.unpack_tail(rows.data, at, self._fixed, status, error)
        columns = []
        for i, type in enumerate(self.types):
            code = status[i] if odd and (status[i] != _VALUE).any() else None
            columns.append(Vec(type, self._column(type, raw[i], rows.data, at), code))
        return tuple(columns), error if failed else None

    @staticmethod
    def _column(type: Type, raw: np.ndarray, data: np.ndarray, at: np.ndarray) -> np.ndarray | pa.Array:
        if not type.varlen:
            return raw.view(np.bool_) if type.dtype == np.bool_ else raw
        offsets = np.zeros(len(raw) + 1, np.int64)
        np.cumsum(raw, out=offsets[1:])
        if offsets[-1] > MAX_BYTES:
            raise OverflowError(
                f"{len(raw)} strings of together {offsets[-1]} bytes do not fit; read fewer rows at once"
            )
        bounds = offsets.astype(np.int32)
        out = np.empty(int(offsets[-1]) + SLACK, np.uint8)
        k.unpack_text(data, at, bounds, out)
        return pa.Array.from_buffers(type.arrow, len(raw), [None, pa.py_buffer(bounds), pa.py_buffer(out)], 0)


def _codes(error: np.ndarray | None, count: int) -> np.ndarray:
    return np.ones(count, np.uint8) if error is None else plain(error)
