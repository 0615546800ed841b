"""The served store: `Store` in one LMDB directory of one process, which `server.py` offers to others.

Documents, INPUT (`input.py`), versioned tables (`tables.py`) and base tables (`base.py`) are databases of
one LMDB environment; how calls become durable is in `environment.py`. Every call is one transaction, so nothing of a
call that failed is visible; only writes of many rows are cut into several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from belvedere.backend.base_layout import Clock, wall_clock
from belvedere.backend.seam import InputSize, RowShape, SourceInfo, TableWrite, read_all
from belvedere.backend.served.backlog import Backlog
from belvedere.backend.served.base import ServedBaseTables
from belvedere.backend.served.compaction import MERGE_ROWS
from belvedere.backend.served.environment import MAX_NAME, Environment, Txn
from belvedere.backend.served.input import ServedInput
from belvedere.backend.served.tables import VersionedTables
from belvedere.engine.viewrows import delta_table
from belvedere.errors import DataError
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId


class LmdbStore:
    """A `Store` in a directory. `map_size` is where the memory map starts; it grows by itself. `nodes`: the names of
    those who push the logs of `base`, the base tables."""

    def __init__(
        self,
        path: str | Path,
        *,
        nodes: Sequence[str] = ("node-0",),
        map_size: int = 1 << 28,
        clock: Clock = wall_clock,
        collect_pause: float = 30.0,
        merge_rows: int = MERGE_ROWS,
        backlog_limit: int | None = None,
    ) -> None:
        """`collect_pause`: seconds between two collections, which looks once at an id that changed often.
        `merge_rows`: recent rows go to their tables when there are so many of them. `backlog_limit`: bytes that may
        wait for the views, see `Backlog`."""
        self.environment = Environment(path, map_size=map_size)
        self._db = self.environment.db
        try:
            self.backlog = Backlog(self.environment, backlog_limit)
            self._input = ServedInput(self.environment, self.backlog)
            self._tables = VersionedTables(self.environment, collect_pause, merge_rows)
            self.base = ServedBaseTables(self.environment, nodes, clock, self._middle, self.backlog)
        except BaseException:
            self.environment.close()
            raise

    def _middle(self, table: str, start: bytes, stop: bytes | None) -> bytes | None:
        return self._tables.middle(delta_table(table), start, stop)

    def identity(self) -> str:
        return self.environment.identity

    # --- documents

    def put_document(self, name: str, data: bytes) -> None:
        key, content = _name("document", name), bytes(data)

        def put(txn: Txn) -> None:
            txn.put(key, content, db=self._db["documents"])

        self.environment.run(put)

    def get_document(self, name: str) -> bytes | None:
        key = _name("document", name)
        with self.environment.reading() as txn:
            found: bytes | None = txn.get(key, db=self._db["documents"])
            return found

    def list_documents(self, prefix: str) -> list[str]:
        wanted = b"n" + prefix.encode()
        with self.environment.reading() as txn:
            cursor = txn.cursor(self._db["documents"])
            found: list[str] = []
            if cursor.set_range(wanted):
                for key in cursor.iternext(keys=True, values=False):
                    if not key.startswith(wanted):
                        break
                    found.append(key[1:].decode())
        return sorted(found)

    def remove_documents(self, names: Sequence[str]) -> None:
        wanted = [_name("document", name) for name in names]

        def remove(txn: Txn) -> None:
            for key in wanted:
                txn.delete(key, db=self._db["documents"])

        if wanted:
            self.environment.run(remove)

    # --- INPUT

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        self._input.put(chunks)

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        return self._input.chunks(limit)

    def input_size(self) -> InputSize:
        return self._input.size()

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        return self._input.payloads(ids)

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        self._input.remove(ids)

    def sources(self) -> list[SourceInfo]:
        return self.base.sources()

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        self.base.forget_sources(sources)

    # --- versioned tables

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return read_all(self, table, ids, below)

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._tables.read_some(table, ids, below)

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        return self._tables.written_at(table, ids, below)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._tables.scan(table, first, stop, below, only)

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        return self._tables.range(table, wanted, below)

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        self._tables.write(epoch, writes)

    @property
    def previous_images(self) -> bool:
        return False

    def shape(self, table: str) -> RowShape | None:
        return self._tables.shape(table)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        return self._tables.changed(table, after, upto)

    def collect(self, horizon: int, tombstones: int) -> None:
        self._tables.collect(horizon, tombstones)

    def collected(self) -> int:
        return self._tables.collected()

    def drop_tables(self, tables: Sequence[str]) -> None:
        self._tables.drop(tables)

    def tables(self) -> list[str]:
        return self._tables.names()

    def usage(self) -> Mapping[str, int]:
        return self._tables.usage()

    # --- figures

    def unmerged_rows(self) -> int:
        """Rows of versioned tables that are durable, and not in the tree yet."""
        return self._tables.unmerged_rows()

    @property
    def held_up_seconds(self) -> float:
        """So long writers have waited for merges, all together."""
        return self._tables.held_up_seconds

    @property
    def scanned_rows(self) -> int:
        """Versions that scans have looked at so far: a table that is read once counts once."""
        return self._tables.scanned_rows

    def close(self) -> None:
        self._tables.close()
        self.environment.close()


def _name(kind: str, name: str) -> bytes:
    """LMDB has no empty keys, hence the prefix."""
    encoded = b"n" + name.encode()
    if len(encoded) > MAX_NAME:
        raise DataError(f"{kind} name {name[:40]!r}… has {len(encoded) - 1} bytes, the store takes {MAX_NAME - 1}")
    return encoded
