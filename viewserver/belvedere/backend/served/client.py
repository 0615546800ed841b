"""The served store as others see it: `Store` over the wire.

Everything is tried once. A server that cannot be reached, or an answer that does not come, is
`StoreUnavailable` with the address and the reason; whoever called decides whether to repeat.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa

from belvedere.backend.row_shapes import unpack_shape
from belvedere.backend.seam import (
    NO_VALUES,
    InputSize,
    RowShape,
    SourceInfo,
    TableWrite,
    check_write,
    read_all,
    write_groups,
)
from belvedere.backend.served import wire
from belvedere.backend.served.service import PREFIX, chunk_from, chunk_to, source_from
from belvedere.errors import StoreUnavailable
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId
from belvedere.rpc.addresses import Certificates
from belvedere.rpc.client import RpcClient

_TIMEOUT = 60.0
"""Seconds that a call may take."""
_READ_IDS = 1 << 16
"""Ids of one call."""
_STREAM_TIMEOUT = 3600.0
"""Seconds that a scan may take, all in all. A server that is gone is noticed by keepalive."""


class StoreCaller:
    """Asks services of a store, each thing once. Thread-safe."""

    prefix: str

    def __init__(self, address: str, *, timeout: float = _TIMEOUT, tls: Certificates | None = None) -> None:
        self.address = address
        self._timeout, self._stream_timeout = timeout, max(timeout, _STREAM_TIMEOUT)
        self._rpc = RpcClient(tls=tls, peer="the store", unavailable=StoreUnavailable)

    def within(self, timeout: float, stream: float | None = None) -> Self:
        """The same connection for calls that may take so many seconds, and streams that may take others in all."""
        made = copy.copy(self)
        made._timeout = timeout
        if stream is not None:
            made._stream_timeout = stream
        return made

    def close(self) -> None:
        self._rpc.close()

    # --- calls

    def _call(self, name: str, head: dict[str, Any] | None = None, parts: Sequence[Any] = ()) -> wire.Message:
        return wire.unpack(self._answer(name, head or {}, parts))

    def _answer(self, name: str, head: dict[str, Any], parts: Sequence[Any] = ()) -> pa.Buffer:
        return self._rpc.answer(self.address, self.prefix + name, wire.pack(head, parts), self._timeout)

    def _stream(self, name: str, head: dict[str, Any], parts: Sequence[Any] = ()) -> Iterator[pa.Buffer]:
        return self._rpc.stream(self.address, self.prefix + name, wire.pack(head, parts), self._stream_timeout)


class FlightStore(StoreCaller):
    """A `Store` behind an address."""

    prefix = PREFIX

    def identity(self) -> str:
        found: str = self._call("identity").head["identity"]
        return found

    # --- documents

    def put_document(self, name: str, data: bytes) -> None:
        self._call("put_document", {"name": name}, [data])

    def get_document(self, name: str) -> bytes | None:
        parts = self._call("get_document", {"name": name}).parts
        return parts[0].to_pybytes() if parts else None

    def list_documents(self, prefix: str) -> list[str]:
        found: list[str] = self._call("list_documents", {"prefix": prefix}).head["names"]
        return found

    def remove_documents(self, names: Sequence[str]) -> None:
        if names:
            self._call("remove_documents", {"names": list(names)})

    # --- INPUT

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        if chunks:
            head = {"chunks": [chunk_to(chunk) for chunk, _ in chunks]}
            self._call("put_chunks", head, [payload for _, payload in chunks])

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        return [chunk_from(found) for found in self._call("chunks", {"limit": limit}).head["chunks"]]

    def input_size(self) -> InputSize:
        return InputSize(*self._call("input_size").head["size"])

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        if not ids:
            return []
        found = self._stream("get_chunks", {"ids": _chunk_ids(ids)})
        return [wire.unpack(answer).parts[0].to_pybytes() for answer in found]

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        if ids:
            self._call("remove_chunks", {"ids": _chunk_ids(ids)})

    def sources(self) -> list[SourceInfo]:
        return [source_from(found) for found in self._call("sources").head["sources"]]

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        if sources:
            self._call("forget_sources", {"sources": list(sources)})

    # --- versioned tables

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return read_all(self, table, ids, below)

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        if not len(ids):
            return NO_VALUES
        head = {"table": table, "below": below}
        return wire.unpack_values(self._answer("read_some", head, [wire.pack_ids(ids[:_READ_IDS])]))

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        found = [np.empty(0, np.int64)]
        for at in range(0, len(ids), _READ_IDS):
            head = {"table": table, "below": below}
            answer = wire.unpack(self._answer("written_at", head, [wire.pack_ids(ids[at : at + _READ_IDS])]))
            found.append(np.frombuffer(answer.parts[0], np.int64))
        return np.concatenate(found)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        head = {"table": table, "first": first, "stop": stop, "below": below}
        for answer in self._stream("scan", head, [] if only is None else [wire.pack_mask(only)]):
            yield wire.unpack_pairs(answer)

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        head = {"table": table, "below": below, "limit": wanted.limit, "reverse": wanted.reverse}
        for answer in self._stream("range", head, [wanted.low] if wanted.high is None else [wanted.low, wanted.high]):
            yield wire.unpack_pairs(answer)

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        for write in writes:
            check_write(write)
        for group in write_groups(writes):
            heads, parts = zip(*[wire.pack_write(write) for write in group], strict=True)
            self._call("write", {"epoch": epoch, "tables": heads}, parts)

    @property
    def previous_images(self) -> bool:
        return False

    def shape(self, table: str) -> RowShape | None:
        found: str | None = self._call("shape", {"table": table}).head["shape"]
        return None if found is None else unpack_shape(found)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        for answer in self._stream("changed", {"table": table, "after": after, "upto": upto}):
            message = wire.unpack(answer)
            yield message.head["epoch"], wire.unpack_ids(message.parts[0])

    def collect(self, horizon: int, tombstones: int) -> None:
        self._call("collect", {"horizon": horizon, "tombstones": tombstones})

    def collected(self) -> int:
        found: int = self._call("collected").head["horizon"]
        return found

    def drop_tables(self, tables: Sequence[str]) -> None:
        if tables:
            self._call("drop_tables", {"tables": list(tables)})

    def tables(self) -> list[str]:
        found: list[str] = self._call("tables").head["tables"]
        return found

    def usage(self) -> Mapping[str, int]:
        found: Mapping[str, int] = self._call("usage").head["usage"]
        return found


def _chunk_ids(ids: Sequence[ChunkId]) -> list[list[Any]]:
    return [[id.writer, id.number] for id in ids]
