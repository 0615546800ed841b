"""Rows on their way to the owners of their buckets.

A payload is one batch of rows of one base table or of one edge of a view group, columns as they lie in memory, every
block at a multiple of eight bytes: reading it copies nothing. Rows that go (-1) come before rows that come (+1).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes, Delta, take_ids
from belvedere.engine.state.arena import string_parts
from belvedere.engine.state.hashing import hash_rows
from belvedere.engine.state.jit import plain
from belvedere.engine.vec import Vec, concat
from belvedere.errors import Damaged
from belvedere.sql.catalog import TableDef
from belvedere.types import Schema, Type

BUCKETS = 1 << 14
"""The bucket of an id is `id[0] & (BUCKETS - 1)`."""
MAX_ROWS = 1 << 16
"""Rows of one payload at most."""

_BASE, _EDGE = 1, 2
_HEAD = struct.Struct("<BBHIQQ")  # kind, flags, edge or length of a name, view group, rows, of them -1
_STATUS, _PRESENT = 1, 2
_ERROR, _DELETE, _KIND = 1, 1, 2
_MASK = np.uint64(BUCKETS - 1)


def buckets_of(ids: np.ndarray) -> np.ndarray:
    """Buckets (int64) of ids."""
    return np.asarray((ids[:, 0] & _MASK).astype(np.int64))


class _Writer:
    def __init__(self, head: bytes):
        self._parts: list[Any] = []
        self.add(head)

    def add(self, block: bytes | np.ndarray) -> None:
        size = len(block) if isinstance(block, bytes) else block.nbytes
        self._parts.append(block)
        if size % 8:
            self._parts.append(bytes(8 - size % 8))

    def column(self, vec: Vec) -> None:
        if vec.type.varlen:
            offsets, values = string_parts(vec.data)
            first, last = int(offsets[0]), int(offsets[-1])
            self.add(offsets - np.int32(first))
            self.add(values[first:last])
        else:
            self.add(np.ascontiguousarray(vec.data))
        if vec.status is not None:
            self.add(np.ascontiguousarray(vec.status))

    def result(self) -> bytes:
        return b"".join(self._parts)


class _Reader:
    def __init__(self, payload: bytes):
        data = np.frombuffer(payload, np.uint8)
        if data.ctypes.data % 8:
            data = data.copy()  # kernels want their numbers where the machine likes them
        self._data, self._buffer, self._at = data, pa.py_buffer(data), 0

    def take(self, dtype: type[np.generic] | np.dtype, count: int) -> np.ndarray:
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        if self._at + size > len(self._data):
            raise Damaged(f"a batch of rows ends at byte {len(self._data)}, before its columns do")
        out = plain(np.frombuffer(self._data, dtype, count, self._at))
        self._at += -(-size // 8) * 8
        return out

    def column(self, type: Type, count: int, has_status: bool) -> Vec:
        data: np.ndarray | pa.Array
        if type.varlen:
            offsets = self.take(np.int32, count + 1)
            start = self._at
            self.take(np.uint8, int(offsets[-1]))
            values = self._buffer.slice(start, int(offsets[-1]))
            data = pa.Array.from_buffers(type.arrow, count, [None, pa.py_buffer(offsets), values], 0)
        elif type.wide:
            data = self.take(np.int64, 2 * count).reshape(count, 2)
        else:
            data = self.take(type.dtype, count)
        return Vec(type, data, self.take(np.uint8, count) if has_status else None)


def partition(owner: np.ndarray, ids: np.ndarray, gone: np.ndarray | None) -> Iterator[tuple[int, np.ndarray, int]]:
    """(position of an owner, its rows, how many of them are gone), rows in their order but gone ones first."""
    target = owner[buckets_of(ids)].astype(np.int64)
    key = 2 * target if gone is None else 2 * target + ~gone
    order = np.argsort(key, kind="stable")
    bounds = np.flatnonzero(np.diff(key[order])) + 1
    pieces = {int(key[piece[0]]): piece for piece in np.split(order, bounds) if len(piece)}
    for one in sorted({k >> 1 for k in pieces}):
        parts = [pieces[k] for k in (2 * one, 2 * one + 1) if k in pieces]
        negatives = len(pieces.get(2 * one, ())) if gone is not None else 0
        yield one, parts[0] if len(parts) == 1 else np.concatenate(parts), negatives


def route_changes(table: TableDef, changes: Changes, owner: np.ndarray) -> list[tuple[int, bytes, int]]:
    """Changes of a base table by the position of the server that owns them: (target, payload, rows), rows in their
    order. `owner` (uint16[BUCKETS]) tells the position of the owner of each bucket."""
    ids = hash_rows([changes.columns[i] for i in table.key_positions], len(changes))
    out = []
    for target, rows, _ in partition(owner, ids, None):
        for start in range(0, len(rows), MAX_ROWS):
            piece = rows[start : start + MAX_ROWS]
            whole = len(piece) == len(changes)
            out.append((target, _encode_changes(table.name, changes if whole else changes.take(piece)), len(piece)))
    return out


def _encode_changes(name: str, changes: Changes) -> bytes:
    text = name.encode()
    flags = (_DELETE if changes.delete is not None else 0) | (_KIND if changes.kind is not None else 0)
    writer = _Writer(_HEAD.pack(_BASE, flags, len(text), len(changes.columns), len(changes), 0))
    writer.add(text)
    marks = [
        (_STATUS if c.status is not None else 0) | (_PRESENT if p is not None else 0)
        for c, p in zip(changes.columns, changes.present, strict=True)
    ]
    writer.add(bytes(marks))
    writer.add(np.ascontiguousarray(changes.ts))
    if changes.delete is not None:
        writer.add(np.ascontiguousarray(changes.delete))
    if changes.kind is not None:
        writer.add(np.ascontiguousarray(changes.kind))
    for column, present in zip(changes.columns, changes.present, strict=True):
        writer.column(column)
        if present is not None:
            writer.add(np.ascontiguousarray(present))
    return writer.result()


def address_of(payload: bytes) -> str | tuple[int, int]:
    """What a payload is for: the name of a base table, or view group and edge."""
    kind, _, small, number, _, _ = _HEAD.unpack_from(payload)
    if kind == _EDGE:
        return number, small
    if kind != _BASE:
        raise Damaged(f"a batch of rows begins with {kind}, which is no kind of batch")
    return payload[_HEAD.size : _HEAD.size + small].decode()


def decode_changes(table: TableDef, payload: bytes) -> Changes:
    """A batch of changes of this table."""
    _, flags, small, width, rows, _ = _HEAD.unpack_from(payload)
    if width != len(table.columns):
        raise Damaged(f"table {table.name}: a batch has {width} columns, the table has {len(table.columns)}")
    reader = _Reader(payload)
    reader.take(np.uint8, _HEAD.size)
    reader.take(np.uint8, small)
    marks = reader.take(np.uint8, width).tolist()
    ts = reader.take(np.int64, rows)
    delete = reader.take(np.bool_, rows) if flags & _DELETE else None
    kind = reader.take(np.uint8, rows) if flags & _KIND else None
    columns, present = [], []
    for column, mark in zip(table.columns, marks, strict=True):
        columns.append(reader.column(column.type, rows, bool(mark & _STATUS)))
        present.append(reader.take(np.bool_, rows) if mark & _PRESENT else None)
    return Changes(tuple(columns), tuple(present), delete, ts, kind)


def concat_changes(parts: Sequence[Changes]) -> Changes:
    """Changes of one table, one after the other."""
    if len(parts) == 1:
        return parts[0]
    width = len(parts[0].columns)
    present: list[np.ndarray | None] = []
    for i in range(width):
        if all(p.present[i] is None for p in parts):
            present.append(None)
        else:
            masks = [p.present[i] for p in parts]
            present.append(
                np.concatenate([_all(len(p)) if m is None else m for p, m in zip(parts, masks, strict=True)])
            )
    delete = None
    if any(p.delete is not None for p in parts):
        delete = np.concatenate([np.zeros(len(p), np.bool_) if p.delete is None else p.delete for p in parts])
    kind = None
    if any(p.kind is not None for p in parts):
        kind = np.concatenate([np.zeros(len(p), np.uint8) if p.kind is None else p.kind for p in parts])
    columns = tuple(concat([p.columns[i] for p in parts]) for i in range(width))
    return Changes(columns, tuple(present), delete, np.concatenate([p.ts for p in parts]), kind)


def _all(count: int) -> np.ndarray:
    return np.ones(count, np.bool_)


def route_rows(delta: Delta, ids: np.ndarray, owner: np.ndarray) -> Iterator[tuple[int, Delta, int]]:
    """Rows by the position of the owner of their bucket, with how many of them are gone; these come first."""
    gone = delta.weight < 0
    for target, rows, negatives in partition(owner, ids, gone):
        error = None if delta.error is None else delta.error[rows]
        # An id may leave one server and come to another, so nobody may count on the other half of an update.
        columns = tuple(c.take(rows) for c in delta.columns)
        yield target, Delta(columns, delta.weight[rows], take_ids(delta.id, rows), error), negatives


def encode_rows(view_group: int, edge: int, delta: Delta, negatives: int) -> bytes:
    """A batch of rows of an edge; the first `negatives` of them are gone."""
    flags = _ERROR if delta.error is not None else 0
    writer = _Writer(_HEAD.pack(_EDGE, flags, edge, view_group, len(delta), negatives))
    writer.add(bytes([_STATUS if c.status is not None else 0 for c in delta.columns]))
    writer.add(np.ascontiguousarray(delta.id))
    if delta.error is not None:
        writer.add(np.ascontiguousarray(delta.error))
    for column in delta.columns:
        writer.column(column)
    return writer.result()


def decode_rows(schema: Schema, payload: bytes) -> tuple[Delta, int]:
    """The inverse: the rows, and how many of them (the first ones) are gone."""
    _, flags, _, _, rows, negatives = _HEAD.unpack_from(payload)
    reader = _Reader(payload)
    reader.take(np.uint8, _HEAD.size)
    marks = reader.take(np.uint8, len(schema)).tolist()
    ids = reader.take(np.uint64, 2 * rows).reshape(rows, 2)
    error = reader.take(np.uint8, rows) if flags & _ERROR else None
    columns = tuple(reader.column(c.type, rows, bool(m & _STATUS)) for c, m in zip(schema, marks, strict=True))
    weight = np.ones(rows, np.int8)
    weight[:negatives] = -1
    return Delta(columns, weight, ids, error), negatives
