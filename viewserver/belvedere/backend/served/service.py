"""What the served store answers: a table of actions, each a function from a message to a stream of messages.

It knows no network: `server.py` offers it on a Flight port of its own, and any other Flight server can do the same with
`StoreService.names` and `StoreService.answer`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa

from belvedere.backend.seam import SourceInfo, Store
from belvedere.backend.served import wire
from belvedere.backend.served.wire import Message
from belvedere.errors import DataError
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId

Answer: TypeAlias = Iterator[pa.Buffer]
PREFIX = "store."


class Service:
    """Actions, each a method `_do_<name>`. Whoever has a port dispatches to them by name."""

    prefix: str

    def __init__(self) -> None:
        self._actions: dict[str, Callable[[Message], Answer]] = {
            self.prefix + name.removeprefix("_do_"): getattr(self, name)
            for name in dir(self)
            if name.startswith("_do_")
        }

    def names(self) -> list[str]:
        return sorted(self._actions)

    def answer(self, action: str, body: pa.Buffer) -> Answer:
        """Raises what the store raises, here or while the answer is read."""
        found = self._actions.get(action)
        if found is None:
            raise DataError(f"there is no action {action!r}; there are {', '.join(self.names())}")
        return found(wire.unpack(body))


class StoreService(Service):
    """The actions of one store."""

    prefix = PREFIX

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def _do_identity(self, message: Message) -> Answer:
        yield wire.pack({"identity": self._store.identity()})

    def _do_put_document(self, message: Message) -> Answer:
        self._store.put_document(message.head["name"], message.parts[0].to_pybytes())
        yield wire.pack({})

    def _do_get_document(self, message: Message) -> Answer:
        found = self._store.get_document(message.head["name"])
        yield wire.pack({}, [] if found is None else [found])

    def _do_list_documents(self, message: Message) -> Answer:
        yield wire.pack({"names": self._store.list_documents(message.head["prefix"])})

    def _do_remove_documents(self, message: Message) -> Answer:
        self._store.remove_documents(message.head["names"])
        yield wire.pack({})

    def _do_put_chunks(self, message: Message) -> Answer:
        payloads = [part.to_pybytes() for part in message.parts]
        self._store.put_chunks(list(zip(map(chunk_from, message.head["chunks"]), payloads, strict=True)))
        yield wire.pack({})

    def _do_chunks(self, message: Message) -> Answer:
        found = self._store.chunks(message.head.get("limit"))
        yield wire.pack({"chunks": [chunk_to(chunk) for chunk in found]})

    def _do_input_size(self, message: Message) -> Answer:
        found = self._store.input_size()
        yield wire.pack({"size": [found.chunks, found.rows, found.bytes]})

    def _do_get_chunks(self, message: Message) -> Answer:
        """One answer for each chunk: together they may be more than one message can hold."""
        for id in _chunk_ids(message):
            yield wire.pack({}, self._store.get_chunks([id]))

    def _do_remove_chunks(self, message: Message) -> Answer:
        self._store.remove_chunks(_chunk_ids(message))
        yield wire.pack({})

    def _do_sources(self, message: Message) -> Answer:
        yield wire.pack({"sources": [source_to(source) for source in self._store.sources()]})

    def _do_forget_sources(self, message: Message) -> Answer:
        self._store.forget_sources([SourceId(source) for source in message.head["sources"]])
        yield wire.pack({})

    def _do_read_some(self, message: Message) -> Answer:
        head = message.head
        yield wire.pack_values(self._store.read_some(head["table"], wire.unpack_ids(message.parts[0]), head["below"]))

    def _do_scan(self, message: Message) -> Answer:
        head = message.head
        only = wire.unpack_mask(message.parts[0]) if message.parts else None
        for ids, values in self._store.scan(head["table"], head["first"], head["stop"], head["below"], only):
            yield wire.pack_pairs(ids, values)

    def _do_range(self, message: Message) -> Answer:
        head = message.head
        low, *high = (part.to_pybytes() for part in message.parts)
        wanted = KeyRange(low, high[0] if high else None, head["limit"], head["reverse"])
        for ids, values in self._store.range(head["table"], wanted, head["below"]):
            yield wire.pack_pairs(ids, values)

    def _do_write(self, message: Message) -> Answer:
        given = zip(message.head["tables"], message.parts, strict=True)
        self._store.write(message.head["epoch"], [wire.unpack_write(head, part) for head, part in given])
        yield wire.pack({})

    def _do_shape(self, message: Message) -> Answer:
        found = self._store.shape(message.head["table"])
        yield wire.pack({"shape": None if found is None else wire.pack_shape(found)})

    def _do_changed(self, message: Message) -> Answer:
        head = message.head
        for epoch, ids in self._store.changed(head["table"], head["after"], head["upto"]):
            yield wire.pack({"epoch": epoch}, [wire.pack_ids(ids)])

    def _do_collect(self, message: Message) -> Answer:
        self._store.collect(message.head["horizon"], message.head["tombstones"])
        yield wire.pack({})

    def _do_collected(self, message: Message) -> Answer:
        yield wire.pack({"horizon": self._store.collected()})

    def _do_drop_tables(self, message: Message) -> Answer:
        self._store.drop_tables(message.head["tables"])
        yield wire.pack({})

    def _do_tables(self, message: Message) -> Answer:
        yield wire.pack({"tables": self._store.tables()})

    def _do_usage(self, message: Message) -> Answer:
        yield wire.pack({"usage": dict(self._store.usage())})


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
