"""Chunks of changes on their way from a client to the engine: what it sends, log records, pushed requests, chunks of
INPUT.

All are one format, so what the client wrote is passed on as it is: the store puts seq and timestamp into it (`stamped`)
and looks at nothing but the keys. Columns are laid out anew only where rows of a call belong to several key ranges, and
where many small entries become one. A chunk holds entries of one table, each a seq
and its rows; the rows of all entries lie together in columns, so that a thousand small entries cost no more than a big
one, and cutting by seq is slicing. Only what was written is stored; columns carry their names and types, so nobody on
the way needs the catalog, and a table may have got columns since.

    "BVC2" | size of head, entries (uint32) | 4 zeros | xxh3 of head and words, of frame (uint64) | head | words | frame

head: JSON, padded to 8 bytes. `t` table, `n` rows, `e` entries, `c` columns with types, `p` those with a presence
mask, `k` and `x` as in `change_codec`, `o` 1 if the store's own clock gives the timestamps.
words: int64, for all entries the seq, then the row behind its last, then (own clock) the timestamp of its first row,
then 1 if each row is a microsecond after the row before, else 0.
frame: see `change_codec`; cell timestamps unless `o`.
The first checksum is seeded with the size and the entries. "BVC1" is read as well: it has no timestamps in its words,
and one checksum (`magic, size, xxh3`) over all.
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

from belvedere.engine.delta import CellChange, Changes
from belvedere.engine.vec import Vec, concat, nulls
from belvedere.errors import Damaged
from belvedere.model.change_codec import WrittenRow, describe, is_mixed, read
from belvedere.model.describe import type_of
from belvedere.model.physical import pack
from belvedere.protocol.exactly_once import InputPiece, Seq, SourceEntry, SourceId
from belvedere.sql.catalog import TableDef

_MAGIC, _OLD_MAGIC = b"BVC2", b"BVC1"
_HEAD, _OLD_HEAD = struct.Struct("<4sIIIQQ"), struct.Struct("<4sIQ")
_FRAME_DIGEST = struct.Struct("<Q")
_ALIGN = 8
_WORDS = 4
Buffer = bytes | memoryview


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
            _masks([part.changes.kind for part in parts], counts, CellChange.PUT),
        ),
    )


def _masks(masks: Sequence[np.ndarray | None], counts: Sequence[int], missing: bool | CellChange) -> np.ndarray | None:
    there = [mask for mask in masks if mask is not None]
    if not there:
        return None
    dtype = there[0].dtype
    filled = [np.full(n, missing, dtype) if mask is None else mask for mask, n in zip(masks, counts, strict=True)]
    return np.concatenate(filled)


class ChunkContent:
    """A chunk that was received: its checksum holds, its head is read, its columns when somebody asks for them."""

    def __init__(self, payload: bytes | memoryview) -> None:
        self.payload = payload
        form = bytes(payload[:4])
        if len(payload) < _HEAD.size or form not in (_MAGIC, _OLD_MAGIC):
            raise Damaged(f"{len(payload)} bytes that begin with {form!r} are no chunk of changes")
        self.old = form == _OLD_MAGIC
        self.head, self.words, self.frame = _old_parts(payload) if self.old else _parts(payload)
        self._head: dict[str, Any] = json.loads(bytes(self.head))
        self.table: str = self._head["t"]
        self.seqs, self.ends = self.words[0], self.words[1]
        self.stamps = self.words[2:] if self._head.get("o") else None
        """Of the store's own clock: first timestamp and step of each entry. None: timestamps are in the frame."""

    @cached_property
    def written(self) -> WrittenRow:
        names = tuple((name, type_of(text)) for name, text in self._head["c"])
        return read(self._head, names, self.frame, self.stamps, self.ends)

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


def _parts(payload: bytes | memoryview) -> tuple[memoryview, np.ndarray, memoryview]:
    """Head, words and frame; nothing is believed before its checksum."""
    _, size, entries, zeros, digest, of_frame = _HEAD.unpack_from(payload)
    begin, end = _HEAD.size + size, _HEAD.size + size + 8 * _WORDS * entries
    described, frame = memoryview(payload)[_HEAD.size : end], memoryview(payload)[end:]
    if zeros or _digest(described, size, entries) != digest or xxhash.xxh3_64_intdigest(frame) != of_frame:
        raise Damaged(f"the checksums over {len(payload)} bytes of a chunk of changes do not hold")
    words = np.frombuffer(payload, np.int64, _WORDS * entries, begin).reshape(_WORDS, entries)
    return described[:size], words, frame


def _old_parts(payload: bytes | memoryview) -> tuple[memoryview, np.ndarray, memoryview]:
    _, size, digest = _OLD_HEAD.unpack_from(payload)
    rest = memoryview(payload)[_OLD_HEAD.size :]
    if xxhash.xxh3_64_intdigest(rest, size) != digest:
        raise Damaged(f"the checksum over {len(rest)} bytes of a chunk of changes does not hold")
    entries = json.loads(bytes(rest[:size]))["e"]
    words = np.frombuffer(rest, np.int64, 2 * entries, size).reshape(2, entries)
    return rest[:size], words, rest[size + words.nbytes :]


def _packed(head: Buffer, words: np.ndarray, frame: Buffer, of_frame: int | None = None) -> bytes:
    described = b"".join([head, words.tobytes()])
    if of_frame is None:
        of_frame = xxhash.xxh3_64_intdigest(frame)
    size, entries = len(head), words.shape[1]
    opening = _HEAD.pack(_MAGIC, size, entries, 0, _digest(described, size, entries), of_frame)
    return b"".join([opening, described, frame])


def _digest(described: Buffer, size: int, entries: int) -> int:
    return xxhash.xxh3_64_intdigest(described, size << 32 | entries)


@dataclass(frozen=True)
class ChunkRows:
    """The rows of one entry of a chunk, not looked at yet."""

    content: ChunkContent
    entry: int
    count: int

    def __len__(self) -> int:
        return self.count


def build(
    table: str, seqs: Sequence[int], counts: Sequence[int], written: WrittenRow, stamps: np.ndarray | None = None
) -> bytes:
    """A chunk of entries with these seqs and so many rows each. `stamps`: first timestamp and step of each entry; else
    the timestamps are those of the rows."""
    described, rows = describe(written, stamps is not None)
    head = {"t": table, "e": len(seqs), "c": [[name, str(type)] for name, type in written.names], **described}
    if stamps is not None:
        head["o"] = 1
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    words = np.zeros((_WORDS, len(seqs)), np.int64)
    words[0], words[1] = seqs, np.cumsum(counts)
    if stamps is not None:
        words[2:] = stamps
    return _packed(text, words, pack(rows))


def entry(table: TableDef, seq: Seq, changes: Changes, *, own_clock: bool = False) -> bytes:
    """A chunk of one entry. `own_clock`: its timestamps are not looked at, `stamped` gives others: one tick for all
    rows, or one for each where the order of puts and deletes matters."""
    return _entry(table.name, seq, WrittenRow.of(table, changes), own_clock)


def _entry(table: str, seq: Seq, written: WrittenRow, own_clock: bool) -> bytes:
    changes = written.changes
    stamps = np.array([[0], [is_mixed(changes)]]) if own_clock else None
    return build(table, [seq], [len(changes)], written, stamps)


def given(payload: bytes | memoryview, own_clock: bool) -> ChunkContent:
    """The entry that a client wrote, ready to be `stamped`: as it is, unless it is one of the version before."""
    content = ChunkContent(payload)
    if content.old or own_clock != (content.stamps is not None):
        content = ChunkContent(_entry(content.table, Seq(0), content.written, own_clock))
    return content


def stamped(content: ChunkContent, seq: Seq, first: int | None) -> bytes:
    """The chunk of one entry with this seq, and timestamps from `first` on if the own clock gives them."""
    words = content.words.copy()
    words[0, 0] = seq
    if first is not None:
        words[2, 0] = first
    (of_frame,) = _FRAME_DIGEST.unpack_from(content.payload, _HEAD.size - _FRAME_DIGEST.size)
    return _packed(content.head, words, content.frame, of_frame)


def join(payloads: Sequence[bytes]) -> bytes:
    """One chunk of the entries of several, in this order, which is that of their seqs."""
    if len(payloads) == 1:
        return payloads[0]
    parts = [ChunkContent(payload) for payload in payloads]
    seqs = [seq for part in parts for seq in part.seqs.tolist()]
    counts = [count for part in parts for count in np.diff(part.ends, prepend=0).tolist()]
    stamps = _stamps([part.stamps for part in parts])
    return build(parts[0].table, seqs, counts, together([part.written for part in parts]), stamps)


def _stamps(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    found = [part for part in parts if part is not None]
    return np.concatenate(found, axis=1) if len(found) == len(parts) else None


def parse(payload: bytes | memoryview) -> list[SourceEntry]:
    """The entries of a pushed request, as the filter takes them."""
    return ChunkContent(payload).entries()


def encode(source: SourceId, entries: Sequence[SourceEntry]) -> bytes:
    """Entries that `parse` gave, perhaps not all of them, as one chunk for INPUT."""
    runs = list(_runs(entries))
    first = runs[0][0]
    if len(runs) == 1 and len(entries) == len(first.seqs):
        return bytes(first.payload)
    seqs = [entry.seq for entry in entries]
    counts = [len(entry.rows) for entry in entries]
    stamps = _stamps([None if content.stamps is None else content.stamps[:, i:j] for content, i, j in runs])
    return build(first.table, seqs, counts, together([content.rows(i, j) for content, i, j in runs]), stamps)


def _runs(entries: Sequence[SourceEntry]) -> Iterator[tuple[ChunkContent, int, int]]:
    """Neighbours in one chunk: the chunk, the first of them, and the one behind the last."""
    begun: tuple[ChunkContent, int, int] | None = None
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
    content = ChunkContent(payload)
    first, stop = np.searchsorted(content.seqs, [piece.after, piece.last], side="right").tolist()
    if first < stop and content.table in tables:
        written = content.rows(first, stop)
        if len(written.changes):
            yield content.table, written.resolve(tables[content.table])
