"""INPUT in LMDB: chunks by id, and their index in the order in which plans take them.

    payloads  writer, number -> digest and payload
    index     writer, number -> the entry of the index
    order     digest of the source, first seq, last seq (descending), digest of the id -> id and entry

A pool without view servers gathers millions of chunks, and its leader reads the index for every plan: `order` gives it
the first ones of each source without a look at the others, and what there is in all is counted with every change.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import xxhash

from belvedere.backend.seam import InputSize, chunk_is_taken
from belvedere.backend.served.backlog import Backlog
from belvedere.backend.served.environment import MAX_NAME, Environment, Txn
from belvedere.errors import Damaged, DataError, StoreUnavailable
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId

_DIGEST = 8
_SOURCE = 16
_LAST = 2**64 - 1
_POSITION = struct.Struct(">QQ")
_LENGTH = struct.Struct(">H")
_SIZE = struct.Struct("<qqq")
_TAKEN = "taken"


class ServedInput:
    """Thread-safe."""

    def __init__(self, environment: Environment, backlog: Backlog) -> None:
        self._environment, self._db = environment, environment.db
        self._backlog = backlog
        with environment.reading() as txn:
            complete = txn.stat(self._db["order"])["entries"] == txn.stat(self._db["index"])["entries"]
        if not complete:
            environment.run(self._order_all)  # it was written before there was an order

    def put(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        given = []
        for chunk, payload in chunks:
            entry = json.dumps([chunk.source, chunk.first, chunk.last, chunk.rows, chunk.size, chunk.at]).encode()
            given.append((chunk, _key(chunk.id), entry, xxhash.xxh3_64_digest(payload) + bytes(payload)))

        def put(txn: Txn) -> tuple[Chunk, str] | None:
            for chunk, key, entry, content in given:
                refused = self._put(txn, chunk, key, entry, content)
                if refused:  # a result, no error: others share the transaction
                    return chunk, refused
            return None

        trouble = self._environment.run(put) if given else None
        if trouble is None:
            return
        chunk, refused = trouble
        if refused == _TAKEN:
            raise chunk_is_taken(chunk)
        raise StoreUnavailable(f"INPUT takes no chunk of source {chunk.source!r}: {refused}")

    def _put(self, txn: Txn, chunk: Chunk, key: bytes, entry: bytes, content: bytes) -> str:
        """Why it is not taken; empty if it is there."""
        held = txn.get(key, db=self._db["index"])
        if held is not None:
            same = json.loads(held)[:-1] == json.loads(entry)[:-1]  # but for when it was received
            return "" if same and txn.get(key, db=self._db["payloads"]) == content else _TAKEN
        refused = self._backlog.refuse_chunk(txn)
        if not refused:
            txn.put(key, entry, db=self._db["index"])
            txn.put(key, content, db=self._db["payloads"])
            txn.put(_place(key, chunk), _LENGTH.pack(len(key)) + key + entry, db=self._db["order"])
            self._count(txn, [chunk], 1)
        return refused

    def chunks(self, limit: int | None) -> list[Chunk]:
        found: list[Chunk] = []
        with self._environment.reading() as txn:
            cursor = txn.cursor(self._db["order"])
            more = cursor.first()
            while more:
                source, taken = cursor.key()[:_SOURCE], 0
                while more and taken != limit and cursor.key().startswith(source):
                    found.append(_ordered(cursor.value()))
                    taken, more = taken + 1, cursor.next()
                if more and cursor.key().startswith(source):
                    more = cursor.set_range(_behind(source))
        return found

    def size(self) -> InputSize:
        with self._environment.reading() as txn:
            return self._counted(txn)

    def payloads(self, ids: Sequence[ChunkId]) -> list[bytes]:
        with self._environment.reading() as txn:
            found = [txn.get(_key(id), db=self._db["payloads"]) for id in ids]
        return [_verified(id, content) for id, content in zip(ids, found, strict=True)]

    def remove(self, ids: Sequence[ChunkId]) -> None:
        wanted = dict.fromkeys(_key(id) for id in ids)

        def remove(txn: Txn) -> None:
            gone = []
            for key in wanted:
                entry = txn.get(key, db=self._db["index"])
                if entry is None:
                    continue
                gone.append(_chunk(key, entry))
                txn.delete(_place(key, gone[-1]), db=self._db["order"])
                txn.delete(key, db=self._db["index"])
                txn.delete(key, db=self._db["payloads"])
            self._count(txn, gone, -1)

        if wanted:
            self._environment.run(remove, len(wanted))

    def _counted(self, txn: Txn) -> InputSize:
        found = txn.get(b"input", db=self._db["meta"])
        return InputSize(*_SIZE.unpack(found)) if found is not None else InputSize(0, 0, 0)

    def _count(self, txn: Txn, chunks: Sequence[Chunk], sign: int) -> None:
        before = self._counted(txn)
        rows, size = sum(chunk.rows for chunk in chunks), sum(chunk.size for chunk in chunks)
        after = (before.chunks + sign * len(chunks), before.rows + sign * rows, before.bytes + sign * size)
        txn.put(b"input", _SIZE.pack(*after), db=self._db["meta"])

    def _order_all(self, txn: Txn) -> None:
        txn.drop(self._db["order"], delete=False)
        txn.delete(b"input", db=self._db["meta"])
        chunks = []
        for key, entry in txn.cursor(self._db["index"]):
            chunks.append(_chunk(key, entry))
            txn.put(_place(key, chunks[-1]), _LENGTH.pack(len(key)) + key + entry, db=self._db["order"])
        self._count(txn, chunks, 1)


def _key(id: ChunkId) -> bytes:
    """LMDB has no empty keys, hence the prefix."""
    encoded = b"n" + id.writer.encode()
    if len(encoded) > MAX_NAME:
        raise DataError(f"writer name {id.writer[:40]!r}… has {len(encoded) - 1} bytes, the store takes {MAX_NAME - 1}")
    return encoded + id.number.to_bytes(8, "big")


def _place(key: bytes, chunk: Chunk) -> bytes:
    source = xxhash.xxh3_128_digest(chunk.source.encode())
    return source + _POSITION.pack(chunk.first, _LAST - chunk.last) + xxhash.xxh3_64_digest(key)


def _behind(source: bytes) -> bytes:
    """Behind every key of this source: no seq is as large."""
    return source + b"\xff" * _POSITION.size


def _ordered(value: bytes) -> Chunk:
    (length,) = _LENGTH.unpack_from(value)
    stop = _LENGTH.size + length
    return _chunk(value[_LENGTH.size : stop], value[stop:])


def _chunk(key: bytes, entry: bytes) -> Chunk:
    source, first, last, rows, size, at = json.loads(entry)
    id = ChunkId(WriterId(key[1:-8].decode()), int.from_bytes(key[-8:], "big"))
    return Chunk(id, SourceId(source), Seq(first), Seq(last), rows, size, at)


def _verified(id: ChunkId, content: bytes | None) -> bytes:
    if content is None:
        raise Damaged(f"chunk {id.number} of writer {id.writer!r} is not in INPUT")
    if xxhash.xxh3_64_digest(content[_DIGEST:]) != content[:_DIGEST]:
        size = len(content) - _DIGEST
        raise Damaged(f"chunk {id.number} of writer {id.writer!r}: the checksum over its {size} bytes does not hold")
    return content[_DIGEST:]
