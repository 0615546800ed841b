"""A store in two places: views where people read them, everything else where it is fast.

`hbase://…?state=served`: documents, INPUT, state and base rows are with the pool's member of role store, the rows of
views in HBase. The place of a table follows from its name. A write to both is no transaction, and needs none: an epoch
counts when it is committed, and whoever repeats it writes the same.

Bounds of collection are raised in both; whoever reads asks only one. The store of the state is the pool's identity;
that the views belong to it is written down beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend.seam import VIEW_POINTERS, InputSize, OpenTables, RowShape, SourceInfo, Store, TableWrite
from belvedere.errors import CatalogError
from belvedere.model.ranges import KeyRange
from belvedere.plan.table_names import is_view_table
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId

_OWNER = "state is in"


class SplitStore:
    """A `Store`. `holds_views`: whether a table is one of those in `views`."""

    def __init__(self, state: Store, views: Store, holds_views: Callable[[str], bool] = is_view_table) -> None:
        self._state, self._views, self._holds_views = state, views, holds_views

    def check_owner(self) -> None:
        """The views are those of this state; whoever comes first says so."""
        ours = self._state.identity().encode()
        if self._views.get_document(_OWNER) is None:
            self._views.put_document(_OWNER, ours)
        found = self._views.get_document(_OWNER) or b""
        if found != ours:
            raise CatalogError(
                f"the views of {self._views.identity()} belong to a pool whose state is in {found.decode()!r}, and here"
                f" it is in {ours.decode()!r}; give the pool another namespace"
            )

    def _of(self, table: str) -> Store:
        return self._views if self._holds_views(table) else self._state

    def identity(self) -> str:
        return self._state.identity()

    def close(self) -> None:
        try:
            self._views.close()
        finally:
            self._state.close()

    # --- documents, INPUT, sources

    def _holder(self, document: str) -> Store:
        return self._views if document.startswith(VIEW_POINTERS) else self._state

    def put_document(self, name: str, data: bytes) -> None:
        self._holder(name).put_document(name, data)

    def get_document(self, name: str) -> bytes | None:
        return self._holder(name).get_document(name)

    def list_documents(self, prefix: str) -> list[str]:
        if VIEW_POINTERS.startswith(prefix):
            return sorted({*self._state.list_documents(prefix), *self._views.list_documents(VIEW_POINTERS)})
        return self._holder(prefix).list_documents(prefix)

    def remove_documents(self, names: Sequence[str]) -> None:
        for store in (self._state, self._views):
            part = [name for name in names if self._holder(name) is store]
            if part:
                store.remove_documents(part)

    def foreign_cells(self, table: str, most: int) -> list[str]:
        holder = self._of(table)
        return holder.foreign_cells(table, most) if isinstance(holder, OpenTables) else []

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        self._state.put_chunks(chunks)

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        return self._state.chunks(limit)

    def input_size(self) -> InputSize:
        return self._state.input_size()

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return self._state.get_chunks(ids)

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        self._state.remove_chunks(ids)

    def sources(self) -> list[SourceInfo]:
        return self._state.sources()

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        self._state.forget_sources(sources)

    # --- tables

    @property
    def previous_images(self) -> bool:
        return self._views.previous_images or self._state.previous_images

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        for store, own in ((self._state, False), (self._views, True)):
            part = [write for write in writes if self._holds_views(write.table) is own]
            if part:
                store.write(epoch, part)

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._of(table).read(table, ids, below)

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._of(table).read_some(table, ids, below)

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        return self._of(table).written_at(table, ids, below)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._of(table).scan(table, first, stop, below, only)

    def shape(self, table: str) -> RowShape | None:
        return self._of(table).shape(table)

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._of(table).range(table, wanted, below)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        return self._of(table).changed(table, after, upto)

    def collect(self, horizon: int, tombstones: int) -> None:
        """The views first: were they to fail, the state says that there is still something to do."""
        self._views.collect(horizon, tombstones)
        self._state.collect(horizon, tombstones)

    def collected(self) -> int:
        return min(self._state.collected(), self._views.collected())

    def drop_tables(self, tables: Sequence[str]) -> None:
        for store, own in ((self._state, False), (self._views, True)):
            part = [table for table in tables if self._holds_views(table) is own]
            if part:
                store.drop_tables(part)

    def tables(self) -> list[str]:
        return sorted({*self._state.tables(), *self._views.tables()})

    def usage(self) -> Mapping[str, int]:
        return {**self._state.usage(), **self._views.usage()}
