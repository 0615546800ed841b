"""The store of a process whose work cannot go on without it: a call that got no answer is made again, until it is
answered or nobody wants the result any more.

What the trouble is stays visible meanwhile (`trouble`): status, /readyz and the log show it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.backend.scanning import resumed_scan
from belvedere.backend.seam import InputSize, RowShape, SourceInfo, Store, TableWrite, write_groups
from belvedere.cluster.process.logs import Log
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId
from belvedere.retry import Retry

T = TypeVar("T")
TROUBLES = (errors.Unavailable, errors.DiskError)


class Trouble:
    """Why something does not go on, for people; empty if it does."""

    def __init__(self, log: Log) -> None:
        self.reason = ""
        self._log = log

    def set(self, reason: str) -> None:
        if reason != self.reason:
            self._log.warning("waits", reason=reason)
        self.reason = reason

    def clear(self) -> None:
        if self.reason:
            self._log.info("goes on", reason=self.reason)
        self.reason = ""


class Troubles:
    """Why a process does not go on, by what it waits for."""

    def __init__(self, log: Log) -> None:
        self.store, self.zookeeper = Trouble(log), Trouble(log)

    @property
    def reason(self) -> str:
        """Empty if nothing is wrong."""
        return "; ".join(trouble.reason for trouble in (self.zookeeper, self.store) if trouble.reason)


class Retrying:
    """A `Store` whose calls return, or raise `Superseded` once `wanted` says no. Errors that are no outage pass."""

    def __init__(self, store: Store, wanted: Callable[[], bool], trouble: Trouble) -> None:
        self._store, self._wanted, self.trouble = store, wanted, trouble

    def insist(self, call: Callable[[], T]) -> T:
        return self._retry().run(call)

    def _retry(self) -> Retry:
        return Retry(on=TROUBLES, wanted=self._wanted, outage=self.trouble)

    def identity(self) -> str:
        return self.insist(self._store.identity)

    def put_document(self, name: str, data: bytes) -> None:
        self.insist(lambda: self._store.put_document(name, data))

    def get_document(self, name: str) -> bytes | None:
        return self.insist(lambda: self._store.get_document(name))

    def list_documents(self, prefix: str) -> list[str]:
        return self.insist(lambda: self._store.list_documents(prefix))

    def remove_documents(self, names: Sequence[str]) -> None:
        self.insist(lambda: self._store.remove_documents(names))

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        self.insist(lambda: self._store.put_chunks(chunks))

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        return self.insist(lambda: self._store.chunks(limit))

    def input_size(self) -> InputSize:
        return self.insist(self._store.input_size)

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return self.insist(lambda: self._store.get_chunks(ids))

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        self.insist(lambda: self._store.remove_chunks(ids))

    def sources(self) -> list[SourceInfo]:
        return self.insist(self._store.sources)

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        self.insist(lambda: self._store.forget_sources(sources))

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self.insist(lambda: self._store.read(table, ids, below))

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self.insist(lambda: self._store.read_some(table, ids, below))

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        return self.insist(lambda: self._store.written_at(table, ids, below))

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return resumed_scan(lambda bucket: self._store.scan(table, bucket, stop, below, only), first, self._retry())

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """All of it before the first piece is given: one that breaks off would have to be asked for from a key on."""
        return iter(self.insist(lambda: list(self._store.range(table, wanted, below))))

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        """Group by group, as the store would cut it: whether the result is wanted is asked before each."""
        for group in write_groups(writes):
            self.insist(functools.partial(self._store.write, epoch, group))

    @property
    def previous_images(self) -> bool:
        return self._store.previous_images

    def shape(self, table: str) -> RowShape | None:
        return self.insist(lambda: self._store.shape(table))

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        return iter(self.insist(lambda: list(self._store.changed(table, after, upto))))

    def collect(self, horizon: int, tombstones: int) -> None:
        self.insist(lambda: self._store.collect(horizon, tombstones))

    def collected(self) -> int:
        return self.insist(self._store.collected)

    def drop_tables(self, tables: Sequence[str]) -> None:
        self.insist(lambda: self._store.drop_tables(tables))

    def tables(self) -> list[str]:
        return self.insist(self._store.tables)

    def usage(self) -> Mapping[str, int]:
        return self.insist(self._store.usage)

    def close(self) -> None:
        """The store belongs to the process, not to who insists on it."""
