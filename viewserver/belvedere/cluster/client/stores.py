"""The store as a client uses it: found through the topology, asked again until a call's time is up.

Everything that a client asks of the store can be repeated (see `belvedere.backend.seam`), base writes by the name of
their request. A store that does not answer may have moved: before it is asked again the topology is looked at.

One try may take all the time that is left: a store that is gone without a word is noticed by the connection itself.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from belvedere import errors
from belvedere.backend.opening import leaves_state
from belvedere.backend.scanning import Piece, resumed_scan
from belvedere.backend.seam import Backend, BaseTables, OpenTables, SourceInfo, Store, TableWrite
from belvedere.cluster.client.pool import LOOK_SECONDS, Pool, pauses, repeat
from belvedere.engine.delta import Changes
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.retry import Deadline, Retry
from belvedere.sql.catalog import TableDef

T = TypeVar("T")

LONGEST_SECONDS = 3600.0
LEAST_SECONDS = 0.1
"""What one try has, also if the time was spent waiting for a write to come into sight."""


Open = Callable[[str, str], Backend]
"""From the URL of the backend and the address of the member with role store, either of which may be empty."""


def seconds_for(deadline: Deadline) -> float:
    """How long one try may take."""
    return max(deadline.left(LONGEST_SECONDS), LEAST_SECONDS)


def _bounded(backend: Backend, deadline: Deadline) -> Store:
    """The store for one try."""
    left = seconds_for(deadline)
    return backend.within(left, None if deadline.renewable else left)


def _base(backend: Backend) -> BaseTables:
    if backend.base is None:
        raise errors.CatalogError(f"the backend {backend.url} has no base tables of its own to write to")
    return backend.base


class Stores:
    """The one connection that is in use, and whoever asks with a deadline."""

    def __init__(self, pool: Pool, open: Open, url: str = "") -> None:
        """`url`: where it is, if that is not what the pool says."""
        self._pool, self._open, self._url = pool, open, url
        self._lock = threading.Lock()
        self._connection: tuple[tuple[str, str], Backend] | None = None
        """With its URL and address."""
        self._closed = False

    def __call__(self, deadline: Deadline) -> PatientStore:
        return PatientStore(self, deadline)

    def connection(self, deadline: Deadline) -> Backend:
        url = self._url or self._pool.store_url(deadline)
        place = url, self._pool.store_address(deadline) if not url or leaves_state(url) else ""
        with self._lock:
            if self._closed:
                raise errors.Closed("the connection is closed")
            if self._connection is None or self._connection[0] != place:
                self._give_up()
                self._connection = place, self._open(*place)
            return self._connection[1]

    def failed(self, deadline: Deadline) -> None:
        """It did not answer: perhaps another one is there by now."""
        with contextlib.suppress(errors.Unavailable):  # then the address is tried again as it was known
            self._pool.refresh(deadline.left(LOOK_SECONDS))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._give_up()

    def _give_up(self) -> None:
        if self._connection is not None:
            self._connection[1].close()
            self._connection = None


class PatientStore:
    """The store until a deadline: what clients need of `Store`, and base writes."""

    def __init__(self, stores: Stores, deadline: Deadline) -> None:
        self._stores, self._deadline = stores, deadline

    def _try(self, what: str, call: Callable[[Store], T]) -> T:
        return self._connected(what, lambda to: call(_bounded(to, self._deadline)))

    def _connected(self, what: str, call: Callable[[Backend], T]) -> T:
        def attempt(_: float) -> T:
            connection = self._stores.connection(self._deadline)
            try:
                return call(connection)
            except errors.Unavailable:
                self._stores.failed(self._deadline)
                raise

        return repeat(what, self._deadline, attempt)

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        """Versioned rows, as members of the pool write them: for builders whose rows depend on the epoch alone."""
        self._try("writing rows", lambda store: store.write(epoch, writes))

    @property
    def previous_images(self) -> bool:
        return self._try("asking for its ways", lambda store: store.previous_images)

    # --- documents

    def put_document(self, name: str, data: bytes) -> None:
        self._try(f"writing {name}", lambda store: store.put_document(name, data))

    def get_document(self, name: str) -> bytes | None:
        return self._try(f"reading {name}", lambda store: store.get_document(name))

    def list_documents(self, prefix: str) -> list[str]:
        return self._try(f"listing {prefix}", lambda store: store.list_documents(prefix))

    def remove_documents(self, names: Sequence[str]) -> None:
        self._try("removing documents", lambda store: store.remove_documents(names))

    # --- sources and base tables

    def sources(self) -> list[SourceInfo]:
        return self._connected("listing sources", lambda to: (to.fed_by or _bounded(to, self._deadline)).sources())

    def write_base(self, table: TableDef, changes: Changes, own_clock: bool, request: str) -> Mapping[SourceId, Seq]:
        def write(to: Backend) -> Mapping[SourceId, Seq]:
            if to.rows is not None:
                return to.rows.write(table, changes, own_clock)
            base = _base(to).within(seconds_for(self._deadline))
            return base.put(table, changes, own_clock=own_clock, request=request)

        return self._connected(f"writing to table {table.name!r}", write)

    def written(self, name: str) -> Mapping[SourceId, Seq] | None:
        def ask(to: Backend) -> Mapping[SourceId, Seq] | None:
            if to.rows is not None:
                return None  # the other system knows no names of writes
            return _base(to).within(seconds_for(self._deadline)).written(name)

        return self._connected("asking for a write", ask)

    def base_table(self, name: str) -> TableDef | None:
        return self._connected(
            f"asking for table {name!r}",
            lambda to: _base(to).within(seconds_for(self._deadline)).tables().get(name),
        )

    # --- versioned tables

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._try(f"reading {table!r}", lambda store: store.read(table, ids, below))

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        return self._try(f"reading table {table!r}", lambda store: store.read_some(table, ids, below))

    def changed(self, table: str, after: int, upto: int) -> list[tuple[int, np.ndarray]]:
        return self._try(f"reading the history of {table!r}", lambda store: list(store.changed(table, after, upto)))

    def range(self, table: str, wanted: KeyRange, below: int) -> list[tuple[np.ndarray, pa.BinaryArray]]:
        """All of it at once: who wants much asks for it in parts."""
        return self._try(f"reading {table!r}", lambda store: list(store.range(table, wanted, below)))

    def scan(self, table: str, first: int, stop: int, below: int) -> Iterator[Piece]:
        def begin(bucket: int) -> Iterator[Piece]:
            try:
                store = _bounded(self._stores.connection(self._deadline), self._deadline)
                yield from store.scan(table, bucket, stop, below)
            except errors.Unavailable:
                self._stores.failed(self._deadline)
                raise

        return resumed_scan(begin, first, Retry(f"scanning {table!r}", deadline=self._deadline, backoff=pauses()))

    def foreign_cells(self, table: str, most: int) -> list[str]:
        """What somebody else wrote to a view, where others can."""

        def ask(store: Store) -> list[str]:
            return store.foreign_cells(table, most) if isinstance(store, OpenTables) else []

        return self._try(f"looking through {table!r}", ask)

    def usage(self) -> Mapping[str, int]:
        return self._try("asking for sizes", lambda store: store.usage())
