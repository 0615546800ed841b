"""Chunks of changes on their way from a base table to the engine: log records, pushed requests, and chunks of INPUT.

All three are one format, so what was written once is passed on as it is. A chunk holds entries of one table, each a seq
and its rows; the rows of all entries lie together in columns, so that a thousand small entries cost no more than a big
one, and cutting by seq is slicing. Only what was written is stored; columns carry their names and types, so nobody on
the way needs the catalog, and a table may have got columns since.

    "BVC1" | size of head (uint32) | xxh3 of what follows, seeded with that size (uint64) | head | seqs | ends | frame

head: JSON, padded to 8 bytes. `t` table, `n` rows, `e` entries, `c` columns with types, `p` those with a presence
mask, `k` "put" | "delete" | "mixed". seqs and ends: int64, the seq of each entry and the row behind its last.
frame: see `model.physical`; columns, presence masks, the mask of deletes if mixed, cell timestamps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec, concat, nulls
from belvedere.errors import Damaged
from belvedere.model.describe import type_of
from belvedere.model.physical import frame, pack, unframe
from belvedere.protocol.exactly_once import InputPiece, Seq, SourceEntry, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Type

_MAGIC = b"BVC1"
_HEAD = struct.Struct("<4sIQ")
_ALIGN = 8
Columns = tuple[tuple[str, Type], ...]


@dataclass(frozen=True, eq=False)
class WrittenRow:
    """Changes with only those columns that some row wrote, by name."""

    names: Columns
    changes: Changes

    @staticmethod
    def of(table: TableDef, changes: Changes) -> WrittenRow:
        names, columns, present = [], [], []
        for column, vec, mask in zip(table.columns, changes.columns, changes.present, strict=True):
            if mask is not None and mask.all():
                mask = None
            if mask is None or mask.any():
                names.append((column.name, column.type))
                columns.append(vec)
                present.append(mask)
        return WrittenRow(tuple(names), Changes(tuple(columns), tuple(present), changes.delete, changes.ts))

    def resolve(self, table: TableDef) -> Changes:
        """With all columns of the table as it is now; those that were not written are absent."""
        written = {name: (type, i) for i, (name, type) in enumerate(self.names)}
        count = len(self.changes)
        columns: list[Vec] = []
        present: list[np.ndarray | None] = []
        for column in table.columns:
            type, at = written.pop(column.name, (column.type, None))
            if type != column.type:
                raise Damaged(f"column {column.name!r} of table {table.name!r} is {column.type}, a chunk has {type}")
            columns.append(nulls(column.type, count) if at is None else self.changes.columns[at])
            present.append(np.zeros(count, np.bool_) if at is None else self.changes.present[at])
        if written:
            raise Damaged(f"a chunk writes columns {', '.join(written)}, which table {table.name!r} does not have")
        return Changes(tuple(columns), tuple(present), self.changes.delete, self.changes.ts)

    def slice(self, start: int, stop: int) -> WrittenRow:
        if start == 0 and stop == len(self.changes):
            return self
        found = self.changes
        return WrittenRow(
            self.names,
            Changes(
                tuple(vec.slice(start, stop) for vec in found.columns),
                tuple(None if mask is None else mask[start:stop] for mask in found.present),
                None if found.delete is None else found.delete[start:stop],
                found.ts[start:stop],
            ),
        )

    def take(self, index: np.ndarray) -> WrittenRow:
        found = self.changes
        return WrittenRow(
            self.names,
            Changes(
                tuple(vec.take(index) for vec in found.columns),
                tuple(None if mask is None else mask[index] for mask in found.present),
                None if found.delete is None else found.delete[index],
                found.ts[index],
            ),
        )


def together(parts: Sequence[WrittenRow]) -> WrittenRow:
    """One after the other; a column that only some of them wrote is absent in the rows of the others."""
    if len(parts) == 1:
        return parts[0]
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    columns: list[list[Vec]] = [[] for _ in names]
    masks: list[list[np.ndarray | None]] = [[] for _ in names]
    for part in parts:
        at = {name: i for i, name in enumerate(part.names)}
        count = len(part.changes)
        for i, name in enumerate(names):
            found = at.get(name)
            columns[i].append(nulls(name[1], count) if found is None else part.changes.columns[found])
            masks[i].append(np.zeros(count, np.bool_) if found is None else part.changes.present[found])
    counts = [len(part.changes) for part in parts]
    return WrittenRow(
        names,
        Changes(
            tuple(concat(vecs) for vecs in columns),
            tuple(_masks(found, counts, True) for found in masks),
            _masks([part.changes.delete for part in parts], counts, False),
            np.concatenate([part.changes.ts for part in parts]),
        ),
    )


def _masks(masks: Sequence[np.ndarray | None], counts: Sequence[int], missing: bool) -> np.ndarray | None:
    if all(mask is None for mask in masks):
        return None
    filled = [np.full(n, missing) if mask is None else mask for mask, n in zip(masks, counts, strict=True)]
    return np.concatenate(filled)


class Content:
    """A chunk that was received: its checksum holds, its head is read, its columns when somebody asks for them."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self.payload = payload
        if len(payload) < _HEAD.size or bytes(payload[:4]) != _MAGIC:
            raise Damaged(f"{len(payload)} bytes that begin with {bytes(payload[:4])!r} are no chunk of changes")
        _, size, digest = _HEAD.unpack_from(payload)
        rest = memoryview(payload)[_HEAD.size :]
        if xxhash.xxh3_64_intdigest(rest, size) != digest:
            raise Damaged(f"the checksum over {len(rest)} bytes of a chunk of changes does not hold")
        self._head: dict[str, Any] = json.loads(bytes(rest[:size]))
        self.table: str = self._head["t"]
        entries = self._head["e"]
        words = np.frombuffer(rest, np.int64, 2 * entries, size)
        self.seqs, self.ends = words[:entries], words[entries:]
        self._frame = rest[size + 16 * entries :]

    @cached_property
    def written(self) -> WrittenRow:
        head = self._head
        names = tuple((name, type_of(text)) for name, text in head["c"])
        mixed = head["k"] == "mixed"
        wanted: list[type] = [np.bool_] * (len(head["p"]) + mixed) + [np.int64]
        columns, plain = unframe(self._frame, [type for _, type in names], wanted)
        masks = dict(zip(head["p"], plain, strict=False))
        present = tuple(masks.get(name) for name, _ in names)
        count: int = head["n"]
        delete = plain[-2] if mixed else np.ones(count, np.bool_) if head["k"] == "delete" else None
        return WrittenRow(names, Changes(tuple(columns), present, delete, plain[-1]))

    def entries(self) -> list[SourceEntry]:
        starts = [0, *self.ends.tolist()]
        return [
            SourceEntry(Seq(seq), ChunkRows(self, i, stop - start))
            for i, (seq, (start, stop)) in enumerate(zip(self.seqs.tolist(), pairwise(starts), strict=True))
        ]

    def rows(self, first: int, stop: int) -> WrittenRow:
        """The rows of entries `[first, stop)`."""
        ends = [0, *self.ends.tolist()]
        return self.written.slice(ends[first], ends[stop])


@dataclass(frozen=True)
class ChunkRows:
    """The rows of one entry of a chunk, not looked at yet."""

    content: Content
    entry: int
    count: int

    def __len__(self) -> int:
        return self.count


def build(table: str, seqs: Sequence[int], counts: Sequence[int], written: WrittenRow) -> bytes:
    """A chunk of entries with these seqs and so many rows each."""
    changes = written.changes
    masks = [(name, mask) for (name, _), mask in zip(written.names, changes.present, strict=True) if mask is not None]
    plain = [mask for _, mask in masks]
    kind = "put"
    if changes.delete is not None and changes.delete.any():
        kind = "delete" if changes.delete.all() else "mixed"
        if kind == "mixed":
            plain.append(changes.delete)
    head = {
        "t": table,
        "n": len(changes),
        "e": len(seqs),
        "c": [[name, str(type)] for name, type in written.names],
        "p": [name for name, _ in masks],
        "k": kind,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    numbers = np.array([seqs, np.cumsum(counts)], np.int64).tobytes()
    rest = b"".join([text, numbers, pack(frame(changes.columns, [*plain, changes.ts]))])
    return _HEAD.pack(_MAGIC, len(text), xxhash.xxh3_64_intdigest(rest, len(text))) + rest


def entry(table: TableDef, seq: Seq, changes: Changes) -> bytes:
    """A chunk of one entry."""
    return build(table.name, [seq], [len(changes)], WrittenRow.of(table, changes))


def join(payloads: Sequence[bytes]) -> bytes:
    """One chunk of the entries of several, in this order, which is that of their seqs."""
    if len(payloads) == 1:
        return payloads[0]
    parts = [Content(payload) for payload in payloads]
    seqs = [seq for part in parts for seq in part.seqs.tolist()]
    counts = [count for part in parts for count in np.diff(part.ends, prepend=0).tolist()]
    return build(parts[0].table, seqs, counts, together([part.written for part in parts]))


def parse(payload: bytes | memoryview) -> list[SourceEntry]:
    """The entries of a pushed request, as the filter takes them."""
    return Content(payload).entries()


def encode(source: SourceId, entries: Sequence[SourceEntry]) -> bytes:
    """Entries that `parse` gave, perhaps not all of them, as one chunk for INPUT."""
    runs = list(_runs(entries))
    first = runs[0][0]
    if len(runs) == 1 and len(entries) == len(first.seqs):
        return bytes(first.payload)
    seqs = [entry.seq for entry in entries]
    counts = [len(entry.rows) for entry in entries]
    return build(first.table, seqs, counts, together([content.rows(i, j) for content, i, j in runs]))


def _runs(entries: Sequence[SourceEntry]) -> Iterator[tuple[Content, int, int]]:
    """Neighbours in one chunk: the chunk, the first of them, and the one behind the last."""
    begun: tuple[Content, int, int] | None = None
    for found in entries:
        rows = found.rows
        assert isinstance(rows, ChunkRows)
        if begun is not None and begun[0] is rows.content and begun[2] == rows.entry:
            begun = (begun[0], begun[1], rows.entry + 1)
            continue
        if begun is not None:
            yield begun
        begun = (rows.content, rows.entry, rows.entry + 1)
    if begun is not None:
        yield begun


def decode(
    payload: bytes | memoryview, piece: InputPiece, tables: Mapping[str, TableDef]
) -> Iterator[tuple[str, Changes]]:
    """What a plan takes of a chunk, for tables as they are now; nothing if the table is gone."""
    content = Content(payload)
    first, stop = np.searchsorted(content.seqs, [piece.after, piece.last], side="right").tolist()
    if first < stop and content.table in tables:
        written = content.rows(first, stop)
        if len(written.changes):
            yield content.table, written.resolve(tables[content.table])
