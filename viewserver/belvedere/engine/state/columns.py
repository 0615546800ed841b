"""Typed columns by slot, kept as records: the fixed-width values of a row lie side by side.

State is touched row by row at random places, so a record costs one cache miss where separate arrays would cost one per
column. Strings are references into an arena per column. The status bytes of a column exist only once a row of it was
something else than a value. Columns added later form a record of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from belvedere.engine.state.arena import Arena
from belvedere.engine.state.jit import address, plain
from belvedere.engine.state.kernels import columns as k
from belvedere.engine.state.memory import Buffer
from belvedere.engine.state.pyvalues import converter
from belvedere.engine.vec import Status, Vec
from belvedere.types import Kind, Type

_NO_STATUS = np.empty(0, np.uint8)
_CODES = {1: "?", 4: "i", 8: "q", 16: "qq"}


def _width(type: Type) -> int:
    return 16 if type.wide else 8 if type.varlen else type.dtype.itemsize


class _Record:
    """One buffer of records; `offsets` (bytes) says where in a record each of its columns stands."""

    def __init__(self, types: Sequence[Type], first: int) -> None:
        """`first`: position of the first of these columns among all."""
        self.offsets = [0] * len(types)
        self.fields: list[tuple[int, int]] = []  # column, and its position among the items of `struct`
        at, codes = 0, ""
        for i in sorted(range(len(types)), key=lambda i: -_width(types[i])):
            self.offsets[i] = at
            self.fields.append((first + i, len(codes)))
            at += _width(types[i])
            codes += "d" if types[i].kind is Kind.DOUBLE else _CODES[_width(types[i])]
        self.stride = max(8, -(-at // 8) * 8)
        self.struct = struct.Struct(f"<{codes}{self.stride - at}x")
        self.buffer = Buffer(np.int64, self.stride // 8)


class Columns:
    """Columns of `types` by slot. Rows never written hold zeros, which read as values: owners read only what they
    wrote."""

    def __init__(self, types: Sequence[Type]) -> None:
        self.types: list[Type] = []
        self._records: list[_Record] = []
        self._place: list[tuple[_Record, int]] = []
        self._arenas: list[Arena | None] = []
        self._status: list[Buffer | None] = []
        self._convert: list[Any] = []
        self.limit = 0
        if types:
            self._add(types)

    def add(self, type: Type, *, null: bool = False) -> None:
        """One more column, after the others. `null`: rows that exist hold NULL in it."""
        self._add([type])
        if null:
            flags = self._status[-1] = Buffer(np.uint8, rows=self.limit)
            flags.array[: self.limit] = Status.NULL ^ Status.VALUE

    def _add(self, types: Sequence[Type]) -> None:
        record = _Record(types, len(self.types))
        record.buffer.reserve(self.limit)
        self._records.append(record)
        for type, offset in zip(types, record.offsets, strict=True):
            self.types.append(type)
            self._place.append((record, offset))
            self._arenas.append(Arena() if type.varlen else None)
            self._status.append(None)
            self._convert.append(converter(type))

    def reserve(self, limit: int) -> None:
        """Make room for slots below `limit`."""
        if limit > self.limit:
            self.limit = limit
            for record in self._records:
                record.buffer.reserve(limit)
            for status in self._status:
                if status is not None:
                    status.reserve(limit)

    def words(self, column: int) -> tuple[np.ndarray, int, int]:
        """(flat int64 array, stride, offset) of an eight-byte column, for kernels of this package."""
        record, offset = self._place[column]
        return record.buffer.array.reshape(-1), record.stride // 8, offset // 8

    def arena(self, column: int) -> Arena:
        """The strings of a column, for kernels of this package."""
        arena = self._arenas[column]
        assert arena is not None
        return arena

    # ------------------------------------------------------------------ rows out

    def gather(self, slots: np.ndarray, which: Sequence[int] | None = None) -> tuple[Vec, ...]:
        """Columns (all, or those at the positions `which`) of the rows at `slots`."""
        slots = _slots(slots)
        wanted = range(len(self.types)) if which is None else which
        raw: list[np.ndarray] = []
        groups: dict[int, list[tuple[int, np.ndarray]]] = {}
        for column in wanted:
            type = self.types[column]
            dtype: Any = np.int64 if type.varlen else type.dtype
            raw.append(np.empty((len(slots), 2) if type.wide else len(slots), dtype))
            groups.setdefault(id(self._place[column][0]), []).append((column, raw[-1]))
        if len(slots):
            for parts in groups.values():
                k.gather_rows(*self._ports(parts), slots)
        return tuple(self._vec(column, out, slots) for column, out in zip(wanted, raw, strict=True))

    def _vec(self, column: int, data: np.ndarray, slots: np.ndarray) -> Vec:
        type, arena = self.types[column], self._arenas[column]
        return Vec(type, data if arena is None else arena.read(data, type.arrow), self._gather_status(column, slots))

    def _gather_status(self, column: int, slots: np.ndarray) -> np.ndarray | None:
        flags = self._status[column]
        if flags is None:
            return None
        out = np.empty(len(slots), np.uint8)
        return out if k.gather_status(flags.array, slots, out) else None

    def row(self, slot: int) -> tuple[Any, ...]:
        """One row as Python values; errors read as None."""
        values: list[Any] = [None] * len(self.types)
        for record in self._records:
            fields = record.struct.unpack(record.buffer.array[slot].tobytes())
            for column, field in record.fields:
                flags = self._status[column]
                if flags is not None and flags.array[slot]:
                    continue
                arena = self._arenas[column]
                raw: Any = fields[field : field + 2] if self.types[column].wide else fields[field]
                convert = self._convert[column]
                if arena is not None:
                    raw = arena.read_one(raw)
                values[column] = raw if convert is None else convert(raw)
        return tuple(values)

    # ------------------------------------------------------------------ rows in

    def scatter(self, slots: np.ndarray, columns: Sequence[Vec], which: Sequence[int] | None = None) -> None:
        """Write the columns (all, or those at `which`) of the rows at `slots`. Negative slots are skipped; of equal
        slots the last wins."""
        slots = _slots(slots)
        if not len(slots):
            return
        self.reserve(int(slots.max()) + 1)
        groups: dict[int, list[tuple[int, np.ndarray]]] = {}
        for column, vec in zip(range(len(self.types)) if which is None else which, columns, strict=True):
            status = self._scatter_status(column, slots, vec.status)
            arena = self._arenas[column]
            if arena is None:
                groups.setdefault(id(self._place[column][0]), []).append((column, plain(vec.data)))
            else:
                arena.store(self.words(column), slots, vec.data, status)
                self._tidy(column, arena)
        for parts in groups.values():
            k.scatter_rows(*self._ports(parts), slots)

    def _scatter_status(self, column: int, slots: np.ndarray, status: np.ndarray | None) -> np.ndarray:
        flags = self._status[column]
        if status is not None and not (status != Status.VALUE).any():
            status = None
        if status is None and flags is None:
            return _NO_STATUS
        if flags is None:
            flags = self._status[column] = Buffer(np.uint8, rows=self.limit)
        status = _NO_STATUS if status is None else plain(status.view(np.uint8))
        k.scatter_status(flags.array, slots, status)
        return status

    def _ports(self, parts: list[tuple[int, np.ndarray]]) -> tuple[Any, ...]:
        """Where columns of one record stand inside and outside; a wide decimal is two words."""
        record = self._place[parts[0][0]][0]
        ports = []
        for column, data in parts:
            width, start, offset = _width(self.types[column]), address(data), self._place[column][1]
            for word in range(max(1, width // 8)):
                ports.append((offset + 8 * word, min(8, width), start + 8 * word, width))
        offsets, widths, addresses, steps = np.array(ports, np.int64).T.copy()
        return address(record.buffer.array), record.stride, offsets, widths, addresses, steps

    # ------------------------------------------------------------------ upkeep

    def release(self, slots: np.ndarray, which: Sequence[int] | None = None) -> None:
        """The rows at `slots` are gone: their strings become garbage. Negative slots are skipped."""
        slots = _slots(slots)
        for column in range(len(self.types)) if which is None else which:
            arena = self._arenas[column]
            if arena is not None and len(slots):
                arena.release(self.words(column), slots)
                self._tidy(column, arena)

    def _tidy(self, column: int, arena: Arena) -> None:
        if arena.crowded():
            arena.compact(self.words(column), self.limit)

    def nbytes(self) -> int:
        """Memory in use."""
        total = sum(r.buffer.nbytes(self.limit) for r in self._records)
        total += sum(a.nbytes() for a in self._arenas if a is not None)
        return total + sum(s.nbytes(self.limit) for s in self._status if s is not None)

    def plain_bytes(self, rows: int) -> int:
        """What that many rows would take in plain arrays: widths, and the strings in use."""
        strings = sum(a.text for a in self._arenas if a is not None)
        return rows * sum(_width(t) for t in self.types) + strings

    def dump(self) -> dict[str, np.ndarray]:
        """Arrays from which `load` restores these columns (made with the same types and additions)."""
        arrays = {"limit": np.array([self.limit], np.int64)}
        for i, record in enumerate(self._records):
            arrays[f"record{i}"] = record.buffer.array[: self.limit].copy()
        for i, arena in enumerate(self._arenas):
            if arena is not None:
                arrays[f"arena{i}"] = arena.words.array[: arena.used].copy()
                arrays[f"counts{i}"] = np.array([arena.garbage, arena.text], np.int64)
        for i, flags in enumerate(self._status):
            if flags is not None:
                arrays[f"status{i}"] = flags.array[: self.limit].copy()
        return arrays

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what `dump` gave."""
        limit = int(arrays["limit"][0])
        self.reserve(limit)
        for i, record in enumerate(self._records):
            record.buffer.array[:limit] = arrays[f"record{i}"]
        for i, arena in enumerate(self._arenas):
            if arena is not None:
                arena.used = len(arrays[f"arena{i}"])
                arena.words.reserve(arena.used)
                arena.words.array[: arena.used] = arrays[f"arena{i}"]
                arena.garbage, arena.text = arrays[f"counts{i}"].tolist()
            if f"status{i}" in arrays:
                flags = self._status[i] = Buffer(np.uint8, rows=limit)
                flags.array[:limit] = arrays[f"status{i}"]


def _slots(slots: np.ndarray) -> np.ndarray:
    return plain(slots) if slots.dtype == np.int32 else np.ascontiguousarray(slots, np.int32)
