"""What a backend is: six small protocols. Nothing above this folder names an implementation.

    Documents     small values by name: plans, catalogs, pins, horizons
    Input         INPUT: chunks of changes, and their index
    StateTables   packed state by (bucket, id) and epoch
    ViewTables    rows of views and base tables by key and epoch, in the order of keys, with the history of each view
    Sources       what delivers changes, and who follows whom
    BaseTables    tables that Belvedere itself owns, if the backend has such

`Store` is a backend's first five, which most of them keep in one place; `opening.py` turns a URL into a `Backend`.
Every implementation passes `tests/backend/conformance`.

Calls block and are thread-safe; what they wrote is durable when they return. A call that raises `StoreUnavailable` may
have happened, wholly, partly or not at all: everything here can be repeated with the same arguments to the same effect.

A versioned table holds, for each 128-bit id, values under versions (epochs). Ids are uint64[n, 2]; the bucket of an id
is `id[0] % 16384`, and ids are ordered by `(id[0], id[1])`. A null value is a tombstone: no row from that version on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from belvedere.engine.delta import Changes
from belvedere.engine.exchange import RowShape, TableWrite
from belvedere.errors import BelowHorizon, Contradiction, DataError
from belvedere.model.ranges import KeyRange
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceEntry, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

__all__ = [
    "Backend",
    "BaseTables",
    "Committed",
    "CommittedAt",
    "Documents",
    "Follower",
    "Input",
    "InputSize",
    "KeptLog",
    "OpenRange",
    "OpenSink",
    "PushEntries",
    "SinkPlace",
    "RowShape",
    "SourceInfo",
    "Sources",
    "StateTables",
    "Store",
    "TableWrite",
    "ViewTables",
    "WritesRows",
]


@dataclass(frozen=True)
class SourceInfo:
    """A source as its system lists it. `last`: its last seq, once it has ended (split, merged)."""

    id: SourceId
    table: str
    parents: frozenset[SourceId]
    last: Seq | None
    node: str
    """Where it is open now (pushes come from there)."""


@dataclass(frozen=True)
class InputSize:
    """What INPUT holds: chunks, their rows, and the bytes of their payloads."""

    chunks: int
    rows: int
    bytes: int


class Documents(Protocol):
    """Small values by name."""

    def put_document(self, name: str, data: bytes) -> None: ...

    def get_document(self, name: str) -> bytes | None: ...

    def list_documents(self, prefix: str) -> list[str]:
        """Names, ascending."""

    def remove_documents(self, names: Sequence[str]) -> None: ...


class Input(Protocol):
    """INPUT: what distributors have taken, until no plan needs it."""

    def put_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        """Chunks with their payloads, each before its entry in the index. Repeating it changes nothing; an id that has
        another content already is a `Contradiction`: names of writers are never used again."""

    def chunks(self, limit: int | None = None) -> list[Chunk]:
        """The index, as it was at one moment: together for each source, in the order of `(first, -last)`, and of each
        source the first `limit` chunks only.

        What plans need to know of such a prefix: no chunk that is left out begins before one that is there, so of the
        chunks that end above a position the one that begins lowest is there if any is, and nothing up to the greatest
        `last` that is there is left out (`exactly_once`, 3). A source that has chunks is never missing. But a copy that
        comes later and begins lower pushes another chunk out: the greatest `last` may be less than it was."""

    def input_size(self) -> InputSize: ...

    def get_chunks(self, ids: Sequence[ChunkId]) -> list[bytes]:
        """Payloads, verified by checksum; `Damaged` names the chunk that is missing or broken."""

    def remove_chunks(self, ids: Sequence[ChunkId]) -> None: ...


class StateTables(Protocol):
    """Versioned tables by id. Those of views are among them (`ViewTables`), and are collected and dropped here, too."""

    # `read`, `read_some`, `scan` and `range` are refused (`BelowHorizon`) where `below` is not above the horizon
    # (`collect`): versions that they would have to see may be gone, and what is left looks like an answer. Those that
    # answer in pieces may notice it when they have given some. Nobody who is in time is refused: whoever computes epoch
    # e asks below e, and e > committed >= horizon; readers ask below e + 1 while e is pinned or retained.

    def read(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        """Of each id the value of its newest version `< below`; null where there is none or a tombstone. All of them in
        one array, which holds 2 GiB."""

    def read_some(self, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
        """The same of the first ids only, at least one: the answer ends at about `READ_BYTES`."""

    def written_at(self, table: str, ids: np.ndarray, below: int) -> np.ndarray:
        """Of each id the epoch (int64) of its newest version `< below`, of a tombstone as well; 0 where there is none.
        Tells who changed a row since it was looked at: the same value may have come back. Bounded by nothing but the
        horizon, as `read` is."""

    def scan(
        self, table: str, first: int, stop: int, below: int, only: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """All rows of buckets `[first, stop)` at versions `< below`, in pieces, without tombstones, ordered by
        (bucket, id). `only` (bool[16384]): of these buckets alone; others are not even read."""

    def write(self, epoch: int, writes: Sequence[TableWrite]) -> None:
        """Replaces what the same epoch wrote to the same id before. Versions need not come in order.

        Writes of epochs up to the bound on tombstones (see `collect`) are ignored without a word: these epochs are
        committed, so all they wrote is here, and a repetition that comes now, however late, could only bring back rows
        whose tombstones are gone."""

    def collect(self, horizon: int, tombstones: int) -> None:
        """Reads below `horizon` will not come any more: of each id, versions older than its newest one `<= horizon`
        may go. That newest one may go as well if it is a tombstone and `<= tombstones`. Every epoch up to `horizon` is
        committed; from now on, after a restart as well, writes of epochs up to the lesser of both bounds are ignored,
        and reads below `horizon + 1` are refused as soon as anything may be missing from their answer.
        Bounds only grow. Entries of `changed` up to `horizon` may go. Physical removal may take its time: `collected`
        says when it is done."""

    def collected(self) -> int:
        """The horizon up to which everything that may go has gone; 0 before the first collection."""

    def drop_tables(self, tables: Sequence[str]) -> None: ...

    def tables(self) -> list[str]:
        """Names of all versioned tables."""

    def usage(self) -> Mapping[str, int]:
        """Versions by table, roughly, for people."""


VIEW_POINTERS = "views/"
"""Documents whose names begin so are for readers of view tables, and stand where these are."""


@runtime_checkable
class OpenTables(Protocol):
    """View tables that others could write to."""

    def foreign_cells(self, table: str, most: int) -> list[str]:
        """What somebody else wrote to a view, in words: at most so many."""


class ViewTables(Protocol):
    """Versioned tables that are read by people: in the order of keys, and epoch by epoch."""

    @property
    def previous_images(self) -> bool:
        """Whether a write of a view has to bring the previous image of each row (`TableWrite.before`). A store that has
        the current rows in one place and history in another, as HBase will, writes both at once and has no time to
        look; a store that keeps versions has them already."""

    def shape(self, table: str) -> RowShape | None:
        """What the rows of a view are made of, as its writes said; None: nothing was written yet, or not a view."""

    def range(self, table: str, wanted: KeyRange, below: int) -> Iterator[tuple[np.ndarray, pa.BinaryArray]]:
        """Rows of a table that was written with keys, at versions `< below`, in pieces, in the order of the range. It
        costs what it returns, whatever the size of the table. Hidden rows are left out. Rows that were written without
        keys are a `DataError`: they are in no order, and nothing found would look like an answer."""

    def changed(self, table: str, after: int, upto: int) -> Iterator[tuple[int, np.ndarray]]:
        """Epochs in `(after, upto]`, ascending, with the ids that logged writes of that epoch touched (ascending)."""


class Sources(Protocol):
    """What delivers changes. It may belong to another backend than the rest of a pool: logs are pushed to distributors
    (`backend.pusher` says how), who write to the INPUT of their own store."""

    def sources(self) -> list[SourceInfo]:
        """Every source of the base tables that this pool follows, ended ones included until they are forgotten."""

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        """These have ended, and nobody needs to hear of them any more. Others, and unknown ones, are left alone."""


class Store(Documents, Input, StateTables, ViewTables, Sources, Protocol):
    """All that a pool keeps, in one place."""

    def identity(self) -> str:
        """A name that this store keeps for ever: two pools of one name on two stores are told apart by it."""

    def close(self) -> None:
        """Give up the connection or the directory. No call may follow."""


@dataclass(frozen=True)
class OpenRange:
    """A key range of a base table, a source of its own: encoded keys from `start` to `stop` (None: all that follow)."""

    source: SourceId
    start: bytes
    stop: bytes | None
    node: str


class BaseTables(Protocol):
    """Tables of which Belvedere is the owner. Definitions are the caller's: it knows the catalog."""

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None: ...

    def add_columns(self, table: str, columns: Sequence[Column]) -> None: ...

    def drop_table(self, table: str) -> None: ...

    def tables(self) -> dict[str, TableDef]: ...

    def put(
        self, table: TableDef, changes: Changes, *, own_clock: bool = True, request: str = ""
    ) -> Mapping[SourceId, Seq]:
        """All of the changes, durable when it returns, or none. `table` has its name in the store. `own_clock`: their
        timestamps come from the backend's clock. Repeating a `request` (`belvedere.model.requests`) within an
        hour changes nothing. Returns the positions."""

    def written(self, name: str) -> Mapping[SourceId, Seq] | None:
        """The positions of a write by the name of its request, if it has happened."""

    def ranges(self, table: str) -> list[OpenRange]:
        """In the order of keys."""

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        """Two ranges of one, at a key or in the middle of its rows."""

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        """One range of two neighbours."""

    def move(self, source: SourceId, node: str) -> None:
        """Another node pushes it."""

    def within(self, timeout: float, stream: float | None = None) -> BaseTables:
        """The same for calls that may take so many seconds."""

    def close(self) -> None: ...


PushEntries = Callable[[Sequence[tuple[SourceId, Sequence[SourceEntry]]]], None]
"""Gives a distributor entries of several sources, each a run of its log. Returns when all of them are durable; raises
when they have to come again."""


@dataclass(frozen=True)
class SinkPlace:
    """Where a process takes what a system pushes: where it listens (port 0 chooses one), and the name of that host for
    those who push."""

    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = "localhost"


class WritesRows(Protocol):
    """Writes of clients to tables that are another system's, in its own way."""

    def write(self, table: TableDef, changes: Changes, own_clock: bool) -> Mapping[SourceId, Seq]:
        """Durable when it returns; each row is whole or not there. `own_clock`: timestamps are the system's. Repeating
        it writes the same again, later. Returns what names the write (`protocol.row_marks`)."""


@dataclass(frozen=True)
class KeptLog:
    """What another system keeps of its log because a pool has not taken it: files, and since when the oldest entry
    waits."""

    files: int
    lag_ms: int


@dataclass(frozen=True)
class CommittedAt:
    """The newest committed epoch that was published, and how far each source is in it."""

    epoch: int
    positions: Mapping[SourceId, Seq]


Committed = Callable[[], CommittedAt]
"""As of now, from the store."""


@dataclass(frozen=True)
class LoadProgress:
    """How far the reading of a table's rows is. `share`: of all of it, by where in the ranges the readers are;
    `remaining_s`: at the speed so far, None before anything can be said."""

    done: int
    ranges: int
    rows: int
    share: float
    remaining_s: float | None


@dataclass(frozen=True)
class ReloadState:
    """A table that is read again on request (`id`). `phase`: what it is at, "done" at the end; `corrected`: rows that
    were not what the other system has and are now; `undecided`: rows that were written all the time, so that nothing
    can be said of them. One that only looks corrects nothing: `counts` are rows that were compared, that are missing,
    extra and different, and that were only late; `examples` are ids of some, hexadecimal, by what is wrong."""

    id: str
    table: str
    phase: str
    corrected: int = 0
    undecided: int = 0
    trouble: str = ""
    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)
    examples: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())


class OpenSink(Protocol):
    """What a distributor holds while a system that pushes by itself, and not through `backend.pusher`, may reach it."""

    @property
    def quota_bytes(self) -> int:
        """With more in INPUT nothing is taken: the other system keeps its log."""

    def input_bytes(self) -> int:
        """What INPUT has, as it was a moment ago."""

    def figures_now(self) -> Mapping[str, int]:
        """Counts since the start, by name."""

    def close(self) -> None: ...


class Follower(Protocol):
    """What a pool does with tables of another system, whose rows are there before it follows their log."""

    def sink(self, push: PushEntries, committed: Committed) -> OpenSink:
        """Where the system's log reaches this process, until it is closed."""

    def announce(self, table: TableDef) -> None:
        """It will be created (`BaseTables.create_table`); raises what is wrong with it. From now on it is `loading`."""

    def recall(self, wanted: Collection[str]) -> None:
        """Forget what was announced of other tables than these: nobody creates them."""

    def loading(self) -> bool:
        """Whether rows that were in a table before may not all be in INPUT and committed."""

    def kept_log(self) -> KeptLog | None:
        """What waits for this pool; None: nothing is followed."""

    def load_progress(self) -> Mapping[str, LoadProgress]:
        """Of each table with rows still to be read."""

    def reload(self, id: str, table: str, start: str, stop: str) -> None:
        """Read the rows of a table again, from `start` to `stop` (empty: all of them), and correct what is not as the
        other system has it. Repeating it with the same id has no effect."""

    def look(self, id: str, table: str) -> None:
        """Compare the rows of a table with those of the other system, and correct nothing. Else as `reload`."""

    def reloads(self) -> list[ReloadState]:
        """Those that were asked for; one that is done stays until there is another of its table."""


@dataclass(frozen=True)
class Backend:
    """A backend that is open. `bounded`: the store for calls that take at most so many seconds, and streams that take
    at most as many as the second number says (None: as many as they may take). `fed_by`: where changes come from, if
    not from the same place; base tables, if any, are there as well."""

    url: str
    store: Store
    base: BaseTables | None = None
    bounded: Callable[[float, float | None], Store] | None = None
    fed_by: Sources | None = None
    follower: Follower | None = None
    """Where base tables are another system's."""
    rows: WritesRows | None = None
    """The same, for those who write rows."""

    @property
    def sources(self) -> Sources:
        return self.store if self.fed_by is None else self.fed_by

    def within(self, timeout: float, stream: float | None = None) -> Store:
        return self.store if self.bounded is None else self.bounded(timeout, stream)

    def close(self) -> None:
        if self.base is not None:
            self.base.close()
        self.store.close()


NO_VALUES: pa.BinaryArray = pa.nulls(0, pa.binary())
READ_BYTES = 64 << 20
_WRITE_ROWS = 1 << 16
"""Rows that one transaction, and one message, holds at most: the pages that it changes are in memory until its end."""
_WRITE_BYTES = 64 << 20


def read_all(store: Store, table: str, ids: np.ndarray, below: int) -> pa.BinaryArray:
    """`Store.read` by `Store.read_some`."""
    found = []
    while len(ids):
        found.append(store.read_some(table, ids, below))
        ids = ids[len(found[-1]) :]
    if not found:
        return NO_VALUES
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def fitting(sizes: Sequence[int]) -> int:
    """How many values of these sizes, at least one if there is one, are an answer of `Store.read_some`."""
    total = 0
    for count, size in enumerate(sizes, 1):
        total += size
        if total >= READ_BYTES:
            return count
    return len(sizes)


def same_chunk(one: Chunk, other: Chunk) -> bool:
    """But for when they were received."""
    return replace(one, at=0) == replace(other, at=0)


def chunk_is_taken(chunk: Chunk) -> Contradiction:
    return Contradiction(
        f"chunk {chunk.id.number} of writer {chunk.id.writer!r} is in INPUT already with another content: two processes"
        " use one name; start one of them again, it will get another"
    )


def check_horizon(table: str, below: int, horizon: int) -> None:
    """Refuse a read that would have to see what may be gone. Asked *after* the rows were read: the horizon is raised
    before anything is removed, so what was read under a horizon that is low enough was complete."""
    if 0 < below <= horizon:  # there are no versions below 0
        raise BelowHorizon(
            f"table {table!r}: versions below epoch {below} were asked for, and those that epochs before {horizon} saw"
            " may be gone; whoever computes an epoch asks for this only when others have committed it long ago"
        )


def without_keys(table: str) -> DataError:
    return DataError(f"table {table!r} was written without keys: it can be scanned, and has no order to be read in")


def other_shape(table: str, known: RowShape, given: RowShape) -> Contradiction:
    names = [", ".join(f"{column.name} {column.type}" for column in shape.schema) for shape in (known, given)]
    return Contradiction(
        f"table {table!r} holds rows of ({names[0]}), key {known.key}, and rows of ({names[1]}), key {given.key}, are "
        "written: a view with other columns or another key has a table of its own"
    )


def check_write(write: TableWrite, previous_images: bool = False) -> None:
    """Refuse a write whose ids and values cannot belong together."""
    ids, values = write.ids, write.values
    if ids.dtype != np.uint64 or ids.ndim != 2 or ids.shape[1] != 2:
        raise DataError(f"table {write.table!r}: ids must be uint64[n, 2], found {ids.dtype}{list(ids.shape)}")
    if len(ids) != len(values):
        raise DataError(f"table {write.table!r}: {len(ids)} ids and {len(values)} values in one write")
    if not pa.types.is_binary(values.type):
        raise DataError(f"table {write.table!r}: values must be binary, found {values.type}")
    if write.keys is not None and (len(write.keys) != len(ids) or write.keys.null_count):
        raise DataError(
            f"table {write.table!r}: {len(ids)} ids and {len(write.keys)} keys in one write, {write.keys.null_count} "
            "of them null; every row has a key, one that is removed as well"
        )
    if write.hidden is not None and (write.keys is None or write.hidden.shape != (len(ids),)):
        raise DataError(
            f"table {write.table!r}: {len(ids)} ids, {'no' if write.keys is None else len(ids)} keys, and a mask of "
            f"{write.hidden.shape} hidden rows in one write; there is one for each row that has a key"
        )
    _check_view(write, previous_images)


def _check_view(write: TableWrite, previous_images: bool) -> None:
    shape, before = write.shape, write.before
    if shape is not None and (write.keys is None or any(not 0 <= at < len(shape.schema) for at in shape.key)):
        raise DataError(
            f"table {write.table!r}: rows of {len(shape.schema)} columns, of which {list(shape.key)} are the key, "
            f"{'without' if write.keys is None else 'with'} keys in one write; a view has its key among its columns"
        )
    if before is not None and len(before) != len(write.ids):
        raise DataError(f"table {write.table!r}: {len(write.ids)} ids and {len(before)} previous images in one write")
    if previous_images and shape is not None and before is None:
        raise DataError(f"table {write.table!r}: a write of a view without previous images, which this store needs")


def write_groups(writes: Sequence[TableWrite]) -> Iterator[list[TableWrite]]:
    """Writes in groups that fit into a transaction and a message; empty ones are left out."""
    group: list[TableWrite] = []
    room = _WRITE_ROWS
    for write in writes:
        rows = max(1, min(_WRITE_ROWS, _WRITE_BYTES * len(write.ids) // (_nbytes(write) + 1)))
        for piece in _write_pieces(write, rows):
            if len(piece.ids) > room and group:
                yield group
                group, room = [], _WRITE_ROWS
            group.append(piece)
            room -= len(piece.ids)
    if group:
        yield group


def _nbytes(write: TableWrite) -> int:
    return sum(int(part.nbytes) for part in (write.values, write.keys, write.before) if part is not None)


def _write_pieces(write: TableWrite, rows: int) -> Iterator[TableWrite]:
    for at in range(0, len(write.ids), rows):
        yield replace(
            write,
            ids=write.ids[at : at + rows],
            values=write.values.slice(at, rows),
            keys=None if write.keys is None else write.keys.slice(at, rows),
            hidden=None if write.hidden is None else write.hidden[at : at + rows],
            before=None if write.before is None else write.before.slice(at, rows),
        )
