"""INPUT in HBase: a payload is a row, and the index of a source is one row, which is read as a whole or not at all.

    payload   "p" writer number      p:e  the entry, with a digest    p:_, p:_1, ...  the digest, then the payload
    index     "i" source             i:first last (descending) number writer -> rows, size, received at

So the columns of an index row stand in the order in which plans take chunks, and the first ones of each source are read
without the others. All of it has one timestamp: what is removed stays removed when a writer repeats it late.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import xxhash

from belvedere.backend.hbase.cells import Cells, Columns
from belvedere.backend.hbase.keyvalues import PUT, KeyValues
from belvedere.backend.hbase.layout import INDEX_FAMILY, LIVENESS, PAYLOAD_FAMILY
from belvedere.backend.hbase.packing import Content, cut, unpack
from belvedere.backend.seam import InputSize, chunk_is_taken, same_chunk
from belvedere.errors import Damaged
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId

_ENTRY = b"e"
_STAMP = 1
_DIGEST = 8
_LAST = 2**64 - 1
_POSITION = struct.Struct(">QQQ")
_GET_BYTES = 64 << 20
_MARKERS = 20_000
"""Chunks that are removed between two compactions: each leaves a marker that readers of the index have to step over."""


class HBaseInput:
    """Thread-safe. `compact` has HBase rewrite the table without what was removed."""

    def __init__(self, cells: Cells, table: str, compact: Callable[[], None] = lambda: None) -> None:
        self._cells, self._table, self._compact = cells, table, compact
        self._removed = 0

    def put(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        """Payloads, then the index: a writer that crashed in between repeats it."""
        if not chunks:
            return
        digests = [xxhash.xxh3_64_digest(payload) for _, payload in chunks]
        held = self._entries([chunk.id for chunk, _ in chunks])
        payloads = []
        for (chunk, payload), digest in zip(chunks, digests, strict=True):
            known = held.get(chunk.id)
            if known is None:
                held[chunk.id] = chunk, digest
                payloads += [(_payload_row(chunk.id), *cell) for cell in _payload_cells(chunk, payload, digest)]
            elif not same_chunk(known[0], chunk) or known[1] != digest:
                raise chunk_is_taken(chunk)
        self._put(PAYLOAD_FAMILY, payloads)
        index = {_index_cell(chunk): chunk for chunk, _ in held.values()}
        self._put(INDEX_FAMILY, [(*cell, _figures(chunk)) for cell, chunk in sorted(index.items())])

    def _put(self, family: str, cells: Sequence[tuple[bytes, bytes, bytes]]) -> None:
        if not cells:
            return
        rows, qualifiers, values = (pa.array(column, pa.binary()) for column in zip(*cells, strict=True))
        count = len(cells)
        names = pa.array([family.encode()] * count, pa.binary())
        stamps, kinds = np.full(count, _STAMP, np.int64), np.full(count, PUT, np.uint8)
        self._cells.put(self._table, KeyValues(rows, names, qualifiers, stamps, kinds, values))

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        if limit == 0:
            return []
        found = []
        for piece in self._cells.scan(self._table, b"i", b"j", Columns(INDEX_FAMILY, first=limit)):
            cells = zip(piece.row.to_pylist(), piece.qualifier.to_pylist(), piece.value.to_pylist(), strict=True)
            found += [_chunk(row, qualifier, value) for row, qualifier, value in cells]
        return found

    def size(self) -> InputSize:
        every = self.chunks()
        return InputSize(len(every), sum(chunk.rows for chunk in every), sum(chunk.size for chunk in every))

    def get(self, ids: Sequence[ChunkId]) -> list[bytes]:
        wanted = {_payload_row(id): id for id in ids}
        payloads: dict[bytes, bytes] = {}
        sizes = {_payload_row(id): chunk.size for id, (chunk, _) in self._entries(list(wanted.values())).items()}
        for rows in _batches(wanted, sizes):
            found = self._cells.get(self._table, pa.array(rows, pa.binary()), Columns(PAYLOAD_FAMILY))
            payloads |= _payloads(found, wanted)
        missing = [id for row, id in wanted.items() if row not in payloads]
        if missing:
            raise Damaged(f"chunk {missing[0].number} of writer {missing[0].writer!r} is not in INPUT")
        return [payloads[_payload_row(id)] for id in ids]

    def remove(self, ids: Sequence[ChunkId]) -> None:
        """The index first: what is in it is there."""
        held = self._entries(ids)
        if not held:
            return
        index = sorted(_index_cell(chunk) for chunk, _ in held.values())
        rows = pa.array([row for row, _ in index], pa.binary())
        self._cells.delete(self._table, rows, INDEX_FAMILY, [one for _, one in index], [_STAMP] * len(index))
        rows = pa.array(sorted(map(_payload_row, held)), pa.binary())
        self._cells.delete(self._table, rows, PAYLOAD_FAMILY, None, [_STAMP] * len(held))
        self._removed += len(held)
        if self._removed >= _MARKERS:
            self._removed = 0
            self._compact()

    def _entries(self, ids: Iterable[ChunkId]) -> dict[ChunkId, tuple[Chunk, bytes]]:
        """What is held under these ids: the entry, and the digest of the payload."""
        wanted = {_payload_row(id): id for id in ids}
        if not wanted:
            return {}
        found = self._cells.get(self._table, pa.array(list(wanted), pa.binary()), Columns(PAYLOAD_FAMILY, (_ENTRY,)))
        held = {}
        for row, value in zip(found.row.to_pylist(), found.value.to_pylist(), strict=True):
            source, first, last, rows, size, at = json.loads(value[_DIGEST:])
            chunk = Chunk(wanted[row], SourceId(source), Seq(first), Seq(last), rows, size, at)
            held[chunk.id] = (chunk, value[:_DIGEST])
        return held


def _payload_row(id: ChunkId) -> bytes:
    return b"p" + id.writer.encode() + b"\0" + id.number.to_bytes(8, "big")


def _payload_cells(chunk: Chunk, payload: bytes, digest: bytes) -> list[tuple[bytes, bytes]]:
    entry = json.dumps([chunk.source, chunk.first, chunk.last, chunk.rows, chunk.size, chunk.at]).encode()
    pieces = cut(Content.ROW, digest + bytes(payload))
    names = [LIVENESS, *(b"_%d" % number for number in range(1, len(pieces)))]
    return [*zip(names, pieces, strict=True), (_ENTRY, digest + entry)]


def _payloads(found: KeyValues, wanted: dict[bytes, ChunkId]) -> dict[bytes, bytes]:
    rows: dict[bytes, dict[bytes, bytes]] = {}
    columns = (found.row.to_pylist(), found.qualifier.to_pylist(), found.value.to_pylist())
    for row, qualifier, value in zip(*columns, strict=True):
        rows.setdefault(row, {})[qualifier] = value
    payloads = {}
    for row, held in rows.items():
        try:
            content = unpack(row, _STAMP, held[LIVENESS], partial(_rest, held))[1]
        except KeyError:
            continue  # it is being removed
        if xxhash.xxh3_64_digest(content[_DIGEST:]) != content[:_DIGEST]:
            id = wanted[row]
            raise Damaged(f"chunk {id.number} of writer {id.writer!r}: the checksum over its payload does not hold")
        payloads[row] = content[_DIGEST:]
    return payloads


def _rest(held: dict[bytes, bytes], _row: bytes, _stamp: int, count: int) -> list[bytes]:
    return [held[b"_%d" % number] for number in range(1, count)]


def _index_cell(chunk: Chunk) -> tuple[bytes, bytes]:
    """Row and qualifier. Seqs begin at -1."""
    position = _POSITION.pack(chunk.first + 1, _LAST - (chunk.last + 1), chunk.id.number)
    return b"i" + chunk.source.encode(), position + chunk.id.writer.encode()


def _figures(chunk: Chunk) -> bytes:
    return json.dumps([chunk.rows, chunk.size, chunk.at]).encode()


def _chunk(row: bytes, qualifier: bytes, value: bytes) -> Chunk:
    first, last, number = _POSITION.unpack_from(qualifier)
    id = ChunkId(WriterId(qualifier[_POSITION.size :].decode()), number)
    source, figures = SourceId(row[1:].decode()), json.loads(value)
    return Chunk(id, source, Seq(first - 1), Seq(_LAST - last - 1), *figures)


def _batches(rows: Iterable[bytes], sizes: dict[bytes, int]) -> Iterable[list[bytes]]:
    """Rows whose payloads fit into an answer."""
    batch: list[bytes] = []
    total = 0
    for row in rows:
        size = sizes.get(row, 0)
        if batch and total + size > _GET_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(row)
        total += size
    if batch:
        yield batch
