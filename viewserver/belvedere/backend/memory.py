"""The store in memory: for tests, and for the simulator, which runs thousands of histories on it.

It keeps dicts under one lock, nothing else: a call on a few rows costs microseconds. `collect` removes at once whatever
the seam allows it to remove.

Faults: `faults(call, moment)` is asked before a call does anything, when about half of its effect is there, and after
all of it; whatever it raises leaves the call at exactly that point.
"""

from __future__ import annotations

import enum
import itertools
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from belvedere.backend.memory_base import MemoryBaseTables
from belvedere.backend.seam import (
    InputSize,
    RowShape,
    SourceInfo,
    TableWrite,
    check_horizon,
    check_write,
    chunk_is_taken,
    fitting,
    other_shape,
    same_chunk,
    without_keys,
)
from belvedere.engine.viewrows import delta_table
from belvedere.errors import Contradiction, Damaged
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, SourceId

ID_BYTES = 16
_BUCKETS = 16_384
_SCAN_ROWS = 4096


class Moment(enum.Enum):
    """Where in a call a fault strikes. Calls that change one thing, and those that only read, have no middle."""

    BEFORE = "before"
    HALFWAY = "halfway"
    AFTER = "after"


Faults = Callable[[str, Moment], None]


class Hidden(bytes):
    """A value that is left out where rows are read in order."""


class _Versions:
    """The versions of one id, ascending, and their values (None: a tombstone)."""

    __slots__ = ("epochs", "values")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.values: list[bytes | None] = []

    def put(self, epoch: int, value: bytes | None) -> None:
        if not self.epochs or self.epochs[-1] < epoch:
            self.epochs.append(epoch)
            self.values.append(value)
            return
        at = bisect_left(self.epochs, epoch)
        if self.epochs[at] == epoch:
            self.values[at] = value
        else:
            self.epochs.insert(at, epoch)
            self.values.insert(at, value)

    def at(self, below: int) -> bytes | None:
        found = bisect_left(self.epochs, below)
        return self.values[found - 1] if found else None

    def epoch(self, below: int) -> int:
        found = bisect_left(self.epochs, below)
        return self.epochs[found - 1] if found else 0

    def collect(self, horizon: int, tombstones: int) -> bool:
        """Drop what nobody can see any more; true if nothing is left."""
        needed = bisect_left(self.epochs, horizon + 1) - 1
        if needed < 0:
            return False
        if self.values[needed] is None and self.epochs[needed] <= tombstones:
            needed += 1
        del self.epochs[:needed], self.values[:needed]
        return not self.epochs


class MemoryStore:
    """A `Store` that lives as long as the process. `faults` may be set and cleared at any time.

    `base`: its base tables, whose key ranges are sources; `nodes`: who pushes them. `previous_images`: ask for them,
    and refuse those that are not what is here, as a check of whoever writes."""

    def __init__(
        self,
        identity: str = "memory",
        faults: Faults | None = None,
        *,
        previous_images: bool = False,
        nodes: Sequence[str] = ("node-0",),
    ) -> None:
        self.faults, self._previous_images = faults, previous_images
        self._identity = identity
        self._lock = threading.RLock()
        self.base = MemoryBaseTables(nodes, middle=self._middle)
        self._documents: dict[str, bytes] = {}
        self._payloads: dict[ChunkId, bytes] = {}
        self._index: dict[ChunkId, Chunk] = {}
        self._sources: dict[SourceId, SourceInfo] = {}
        self._tables: dict[str, dict[bytes, _Versions]] = {}
        self._changed: dict[str, dict[int, set[bytes]]] = {}
        self._keys: dict[str, dict[bytes, bytes]] = {}
        """Of tables that are read in order: the key of each id."""
        self._shapes: dict[str, RowShape] = {}
        self._collected = 0
        self._horizon = 0
        """Versions that only epochs before this one see may be gone."""
        self._fence = 0
        """Epochs up to here are committed, and tombstones of theirs are gone."""

    def _strike(self, call: str, moment: Moment) -> None:
        if self.faults is not None:
            self.faults(call, moment)

    def identity(self) -> str:
        self._strike("identity", Moment.BEFORE)
        return self._identity

    # --- documents

    def put_document(self, name: str, data: bytes) -> None:
        self._strike("put_document", Moment.BEFORE)
        with self._lock:
            self._documents[name] = bytes(data)
        self._strike("put_document", Moment.AFTER)

    def get_document(self, name: str) -> bytes | None:
        self._strike("get_document", Moment.BEFORE)
        return self._documents.get(name)

    def list_documents(self, prefix: str) -> list[str]:
        self._strike("list_documents", Moment.BEFORE)
        with self._lock:
            return sorted(name for name in self._documents if name.startswith(prefix))

    def remove_documents(self, names: Sequence[str]) -> None:
        self._strike("remove_documents", Moment.BEFORE)
        with self._lock:
            for number, name in enumerate(names):
                if number == len(names) // 2:
                    self._strike("remove_documents", Moment.HALFWAY)
                self._documents.pop(name, None)
        self._strike("remove_documents", Moment.AFTER)

    # --- INPUT

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        self._strike("put_chunks", Moment.BEFORE)
        with self._lock:
            for number, (chunk, payload) in enumerate(chunks):
                held, content = self._index.get(chunk.id), self._payloads.get(chunk.id)
                if (held is not None and not same_chunk(held, chunk)) or content not in (None, bytes(payload)):
                    raise chunk_is_taken(chunk)
                self._payloads.setdefault(chunk.id, bytes(payload))
                if number == len(chunks) // 2:
                    self._strike("put_chunks", Moment.HALFWAY)
                self._index.setdefault(chunk.id, chunk)
        self._strike("put_chunks", Moment.AFTER)

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        self._strike("chunks", Moment.BEFORE)
        with self._lock:
            index = sorted(self._index.values(), key=lambda chunk: (chunk.source, chunk.first, -chunk.last, chunk.id))
        groups = itertools.groupby(index, lambda chunk: chunk.source)
        return [chunk for _, chunks in groups for chunk in itertools.islice(chunks, limit)]

    def input_size(self) -> InputSize:
        self._strike("input_size", Moment.BEFORE)
        with self._lock:
            found = self._index.values()
            return InputSize(len(found), sum(chunk.rows for chunk in found), sum(chunk.size for chunk in found))

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        self._strike("get_chunks", Moment.BEFORE)
        with self._lock:
            missing = [id for id in ids if id not in self._payloads]
            if missing:
                raise Damaged(f"chunk {missing[0].number} of writer {missing[0].writer!r} is not in INPUT")
            return [self._payloads[id] for id in ids]

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None:
        self._strike("remove_chunks", Moment.BEFORE)
        with self._lock:
            for number, id in enumerate(ids):
                if number == len(ids) // 2:
                    self._strike("remove_chunks", Moment.HALFWAY)
                self._index.pop(id, None)
                self._payloads.pop(id, None)
        self._strike("remove_chunks", Moment.AFTER)

    def sources(self) -> list[SourceInfo]:
        self._strike("sources", Moment.BEFORE)
        with self._lock:
            return [*self._sources.values(), *self.base.sources()]

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        self._strike("forget_sources", Moment.BEFORE)
        with self._lock:
            for source in sources:
                known = self._sources.get(source)
                if known is not None and known.last is not None:
                    del self._sources[source]
            self.base.forget_sources(sources)
        self._strike("forget_sources", Moment.AFTER)

    def list_source(self, info: SourceInfo) -> None:
        """What base tables of another kind would do: from now on `sources` tells this of the source."""
        with self._lock:
            self._sources[info.id] = info

    def _middle(self, table: str, start: bytes, stop: bytes | None) -> bytes | None:
        wanted = KeyRange(start, stop)
        with self._lock:
            found = sorted(key for key in self._keys.get(delta_table(table), {}).values() if key in wanted)
        return found[len(found) // 2] if found else None

    # --- versioned tables

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        self._strike("read", Moment.BEFORE)
        keys = ids.tobytes()
        with self._lock:
            self._check_horizon(table, below)
            rows = self._tables.get(table, {})
            found = [rows.get(keys[at : at + ID_BYTES]) for at in range(0, len(keys), ID_BYTES)]
            return pa.array([None if versions is None else versions.at(below) for versions in found], pa.binary())

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        values = self.read(table, ids, below)
        return values.slice(0, fitting([len(value or b"") for value in values.to_pylist()]))

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        self._strike("written_at", Moment.BEFORE)
        keys = ids.tobytes()
        with self._lock:
            self._check_horizon(table, below)
            rows = self._tables.get(table, {})
            found = [rows.get(keys[at : at + ID_BYTES]) for at in range(0, len(keys), ID_BYTES)]
            return np.array([0 if versions is None else versions.epoch(below) for versions in found], np.int64)

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        self._strike("scan", Moment.BEFORE)
        with self._lock:
            self._check_horizon(table, below)
            rows = self._tables.get(table, {})
            visible = [(key, value) for key, row in rows.items() if (value := row.at(below)) is not None]
        ids = np.frombuffer(b"".join(key for key, _ in visible), np.uint64).reshape(-1, 2)
        buckets = ids[:, 0] % _BUCKETS
        order = np.lexsort((ids[:, 1], ids[:, 0], buckets))
        order = order[(buckets[order] >= first) & (buckets[order] < stop)]
        if only is not None:
            order = order[only[buckets[order]]]
        for at in range(0, len(order), _SCAN_ROWS):
            part = order[at : at + _SCAN_ROWS]
            yield ids[part], pa.array([visible[i][1] for i in part.tolist()], pa.binary())

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        self._strike("range", Moment.BEFORE)
        with self._lock:
            self._check_horizon(table, below)
            rows, keys = self._tables.get(table, {}), self._keys.get(table, {})
            if rows and not keys:
                raise without_keys(table)
            inside = sorted(((key, id) for id, key in keys.items() if key in wanted), reverse=wanted.reverse)
            visible = ((id, rows[id].at(below)) for _, id in inside)
            rows_found = ((id, value) for id, value in visible if value is not None and type(value) is not Hidden)
            found = list(itertools.islice(rows_found, wanted.limit))
        for at in range(0, len(found), _SCAN_ROWS):
            part = found[at : at + _SCAN_ROWS]
            ids = np.frombuffer(b"".join(id for id, _ in part), np.uint64).reshape(-1, 2)
            yield ids, pa.array([value for _, value in part], pa.binary())

    def _check_horizon(self, table: str, below: int) -> None:
        check_horizon(table, below, self._horizon)

    @property
    def previous_images(self) -> bool:
        return self._previous_images

    def shape(self, table: str) -> RowShape | None:
        self._strike("shape", Moment.BEFORE)
        return self._shapes.get(table)

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        for write in writes:
            check_write(write, self._previous_images)
        self._strike("write", Moment.BEFORE)
        half = sum(len(write.ids) for write in writes) // 2
        with self._lock:
            for write in writes:
                self._check_rows(epoch, write)
            for write in writes if not self._is_late(epoch) else ():
                half = self._write(epoch, write, half)
        self._strike("write", Moment.AFTER)

    def _check_rows(self, epoch: int, write: TableWrite) -> None:
        known = self._shapes.get(write.table)
        if known is not None and write.shape not in (None, known):
            raise other_shape(write.table, known, write.shape)
        if not self._previous_images or write.before is None or epoch <= self._horizon:
            return  # below the horizon what was before may be gone
        rows, ids = self._tables.get(write.table, {}), write.ids.tobytes()
        for number, before in enumerate(write.before.to_pylist()):
            versions = rows.get(ids[number * ID_BYTES : (number + 1) * ID_BYTES])
            here = None if versions is None else versions.at(epoch)
            if here != before:
                raise Contradiction(
                    f"table {write.table!r}, epoch {epoch}: a row is written that was {before!r} before, here it was "
                    f"{here!r}"
                )

    def _is_late(self, epoch: int) -> bool:
        """Whether a write of this epoch is ignored."""
        return epoch <= self._fence

    def _write(self, epoch: int, write: TableWrite, half: int) -> int:
        """Write one table; `half` rows from here a call is halfway. Returns how far that is from the next table."""
        rows = self._tables.setdefault(write.table, {})
        if write.shape is not None:
            self._shapes[write.table] = write.shape
        logged = self._changed.setdefault(write.table, {}).setdefault(epoch, set()) if write.logged else None
        keys = write.ids.tobytes()
        order = None if write.keys is None else write.keys.to_pylist()
        values: list[bytes | None] = write.values.to_pylist()
        for at in () if write.hidden is None else np.flatnonzero(write.hidden).tolist():
            values[at] = None if (hidden := values[at]) is None else Hidden(hidden)
        for number, value in enumerate(values):
            if number == half:
                self._strike("write", Moment.HALFWAY)
            key = keys[number * ID_BYTES : (number + 1) * ID_BYTES]
            if order is not None:
                self._keys.setdefault(write.table, {})[key] = order[number]
            versions = rows.get(key)
            if versions is None:
                versions = rows[key] = _Versions()
            versions.put(epoch, value)
            if logged is not None:
                logged.add(key)
        return half - len(write.ids)

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        self._strike("changed", Moment.BEFORE)
        with self._lock:
            logs = self._changed.get(table, {})
            found = [(epoch, b"".join(logs[epoch])) for epoch in sorted(logs) if after < epoch <= upto and logs[epoch]]
        for epoch, keys in found:
            ids = np.frombuffer(keys, np.uint64).reshape(-1, 2)
            yield epoch, ids[np.lexsort((ids[:, 1], ids[:, 0]))]

    def collect(self, horizon: int, tombstones: int) -> None:
        self._strike("collect", Moment.BEFORE)
        with self._lock:
            self._fence = max(self._fence, min(horizon, tombstones))
            self._horizon = max(self._horizon, horizon)
            for number, (name, rows) in enumerate(self._tables.items()):
                if number == len(self._tables) // 2:
                    self._strike("collect", Moment.HALFWAY)
                for key in [key for key, versions in rows.items() if versions.collect(horizon, tombstones)]:
                    del rows[key]
                    self._keys.get(name, {}).pop(key, None)
            for logs in self._changed.values():
                for epoch in [epoch for epoch in logs if epoch <= horizon]:
                    del logs[epoch]
            self._collected = max(self._collected, horizon)
        self._strike("collect", Moment.AFTER)

    def collected(self) -> int:
        return self._collected

    def drop_tables(self, tables: Sequence[str]) -> None:
        self._strike("drop_tables", Moment.BEFORE)
        with self._lock:
            for number, table in enumerate(tables):
                if number == len(tables) // 2:
                    self._strike("drop_tables", Moment.HALFWAY)
                self._tables.pop(table, None)
                self._changed.pop(table, None)
                self._keys.pop(table, None)
                self._shapes.pop(table, None)
        self._strike("drop_tables", Moment.AFTER)

    def tables(self) -> list[str]:
        self._strike("tables", Moment.BEFORE)
        with self._lock:
            return list(self._tables)

    def usage(self) -> Mapping[str, int]:
        self._strike("usage", Moment.BEFORE)
        with self._lock:
            return {name: sum(len(row.epochs) for row in rows.values()) for name, rows in self._tables.items()}

    def close(self) -> None:
        """Nothing to give up."""


__all__ = ["Faults", "MemoryStore", "Moment"]
