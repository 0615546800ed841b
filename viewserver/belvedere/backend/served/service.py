"""What the served store answers: calls, each a function from a message to a message, and streams of messages.

It knows no network: `server.py` offers it on a port, and whoever has a port can do the same with `calls` and `streams`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from belvedere.backend.row_shapes import pack_shape
from belvedere.backend.seam import SourceInfo, Store
from belvedere.backend.served import wire
from belvedere.backend.served.wire import Message
from belvedere.errors import Closed, StoreUnavailable
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId

Answers: TypeAlias = Iterator[pa.Buffer]
PREFIX = "store."


class Service:
    """Calls, each a method `_do_<name>`, and streams, each a method `_stream_<name>`. Both raise what the store raises,
    streams also while their answers are read."""

    prefix: str

    def __init__(self) -> None:
        self.calls = {name: _told(call) for name, call in self._named("_do_")}
        self.streams = {name: _told_all(stream) for name, stream in self._named("_stream_")}

    def _named(self, kind: str) -> Iterator[tuple[str, Callable[[Message], Any]]]:
        for name in dir(self):
            if name.startswith(kind):
                yield self.prefix + name.removeprefix(kind), getattr(self, name)


def _told(call: Callable[[Message], pa.Buffer]) -> Callable[[pa.Buffer], pa.Buffer]:
    def answer(request: pa.Buffer) -> pa.Buffer:
        with _going_down():
            return call(wire.unpack(request))

    return answer


def _told_all(stream: Callable[[Message], Answers]) -> Callable[[pa.Buffer], Answers]:
    def answers(request: pa.Buffer) -> Answers:
        with _going_down():
            yield from stream(wire.unpack(request))

    return answers


@contextmanager
def _going_down() -> Iterator[None]:
    """A store that is closed is, for those who ask, a server that goes down."""
    try:
        yield
    except Closed as error:
        raise StoreUnavailable(str(error)) from error


class StoreService(Service):
    """The calls and streams of one store."""

    prefix = PREFIX

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def _do_identity(self, message: Message) -> pa.Buffer:
        return wire.pack({"identity": self._store.identity()})

    def _do_put_document(self, message: Message) -> pa.Buffer:
        self._store.put_document(message.head["name"], message.parts[0].to_pybytes())
        return wire.pack({})

    def _do_get_document(self, message: Message) -> pa.Buffer:
        found = self._store.get_document(message.head["name"])
        return wire.pack({}, [] if found is None else [found])

    def _do_list_documents(self, message: Message) -> pa.Buffer:
        return wire.pack({"names": self._store.list_documents(message.head["prefix"])})

    def _do_remove_documents(self, message: Message) -> pa.Buffer:
        self._store.remove_documents(message.head["names"])
        return wire.pack({})

    def _do_put_chunks(self, message: Message) -> pa.Buffer:
        payloads = [part.to_pybytes() for part in message.parts]
        self._store.put_chunks(list(zip(map(chunk_from, message.head["chunks"]), payloads, strict=True)))
        return wire.pack({})

    def _do_chunks(self, message: Message) -> pa.Buffer:
        found = self._store.chunks(message.head.get("limit"))
        return wire.pack({"chunks": [chunk_to(chunk) for chunk in found]})

    def _do_input_size(self, message: Message) -> pa.Buffer:
        found = self._store.input_size()
        return wire.pack({"size": [found.chunks, found.rows, found.bytes]})

    def _stream_get_chunks(self, message: Message) -> Answers:
        """One answer for each chunk: together they may be more than one message can hold."""
        for id in _chunk_ids(message):
            yield wire.pack({}, self._store.get_chunks([id]))

    def _do_remove_chunks(self, message: Message) -> pa.Buffer:
        self._store.remove_chunks(_chunk_ids(message))
        return wire.pack({})

    def _do_sources(self, message: Message) -> pa.Buffer:
        return wire.pack({"sources": [source_to(source) for source in self._store.sources()]})

    def _do_forget_sources(self, message: Message) -> pa.Buffer:
        self._store.forget_sources([SourceId(source) for source in message.head["sources"]])
        return wire.pack({})

    def _do_read_some(self, message: Message) -> pa.Buffer:
        head = message.head
        return wire.pack_values(self._store.read_some(head["table"], wire.unpack_ids(message.parts[0]), head["below"]))

    def _do_written_at(self, message: Message) -> pa.Buffer:
        head = message.head
        found = self._store.written_at(head["table"], wire.unpack_ids(message.parts[0]), head["below"])
        return wire.pack({}, [np.ascontiguousarray(found, np.int64).tobytes()])

    def _stream_scan(self, message: Message) -> Answers:
        head = message.head
        only = wire.unpack_mask(message.parts[0]) if message.parts else None
        for ids, values in self._store.scan(head["table"], head["first"], head["stop"], head["below"], only):
            yield wire.pack_pairs(ids, values)

    def _stream_range(self, message: Message) -> Answers:
        head = message.head
        low, *high = (part.to_pybytes() for part in message.parts)
        wanted = KeyRange(low, high[0] if high else None, head["limit"], head["reverse"])
        for ids, values in self._store.range(head["table"], wanted, head["below"]):
            yield wire.pack_pairs(ids, values)

    def _do_write(self, message: Message) -> pa.Buffer:
        given = zip(message.head["tables"], message.parts, strict=True)
        self._store.write(message.head["epoch"], [wire.unpack_write(head, part) for head, part in given])
        return wire.pack({})

    def _do_shape(self, message: Message) -> pa.Buffer:
        found = self._store.shape(message.head["table"])
        return wire.pack({"shape": None if found is None else pack_shape(found)})

    def _stream_changed(self, message: Message) -> Answers:
        head = message.head
        for epoch, ids in self._store.changed(head["table"], head["after"], head["upto"]):
            yield wire.pack({"epoch": epoch}, [wire.pack_ids(ids)])

    def _do_collect(self, message: Message) -> pa.Buffer:
        self._store.collect(message.head["horizon"], message.head["tombstones"])
        return wire.pack({})

    def _do_collected(self, message: Message) -> pa.Buffer:
        return wire.pack({"horizon": self._store.collected()})

    def _do_drop_tables(self, message: Message) -> pa.Buffer:
        self._store.drop_tables(message.head["tables"])
        return wire.pack({})

    def _do_tables(self, message: Message) -> pa.Buffer:
        return wire.pack({"tables": self._store.tables()})

    def _do_usage(self, message: Message) -> pa.Buffer:
        return wire.pack({"usage": dict(self._store.usage())})


def chunk_to(chunk: Chunk) -> list[Any]:
    id = chunk.id
    return [id.writer, id.number, chunk.source, chunk.first, chunk.last, chunk.rows, chunk.size, chunk.at]


def chunk_from(found: list[Any]) -> Chunk:
    writer, number, source, first, last, rows, size, at = found
    return Chunk(ChunkId(WriterId(writer), number), SourceId(source), Seq(first), Seq(last), rows, size, at)


def source_to(source: SourceInfo) -> list[Any]:
    return [source.id, source.table, sorted(source.parents), source.last, source.node]


def source_from(found: list[Any]) -> SourceInfo:
    id, table, parents, last, node = found
    last = None if last is None else Seq(last)
    return SourceInfo(SourceId(id), table, frozenset(map(SourceId, parents)), last, node)


def _chunk_ids(message: Message) -> list[ChunkId]:
    return [ChunkId(WriterId(writer), number) for writer, number in message.head["ids"]]
