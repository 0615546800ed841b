"""Base tables of the served store: what users write, and the logs that are pushed because of it.

A `put` is one transaction: every range that the call touches gets one entry in its log, all with one seq. Seqs and the
clock that gives cell timestamps live in the same transaction, so both only grow, whatever stops in between. An entry is
kept until it was acknowledged; what the rows are by then is in DELTA, a versioned table that the pool writes. Ranges,
and what becomes of them: `ranges.py`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from belvedere.backend.seam import SourceInfo
from belvedere.backend.served import ranges, requests
from belvedere.backend.served.backlog import Backlog
from belvedere.backend.served.environment import MAX_NAME, Environment, Txn
from belvedere.backend.served.ranges import BaseTable, Range, RangeLayout
from belvedere.backend.served.versions import count_up, next_number
from belvedere.engine.delta import Changes
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError, StoreUnavailable
from belvedere.model.base_keys import encode_keys
from belvedere.model.change_codec import timestamps, widen
from belvedere.model.chunks import WrittenRow, build
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

MAX_ENTRY = 256 << 20
"""Bytes of one entry of a log: it is pushed in one request."""
_WORD = 8
Clock = Callable[[], int]
Middle = Callable[[str, bytes, bytes | None], bytes | None]
"""About the key in the middle of those that a table has between two bounds; None if it has none there."""


def wall_clock() -> int:
    """Microseconds."""
    return time.time_ns() // 1000


@dataclass(frozen=True, eq=False)
class _Put:
    found: dict[SourceId, Seq]
    refused: str = ""


class ServedBaseTables:
    """The base tables in one environment. `nodes`: who pushes; every range is open at one of them."""

    def __init__(
        self,
        environment: Environment,
        nodes: Sequence[str] = ("node-0",),
        clock: Clock = wall_clock,
        middle: Middle = lambda table, start, stop: None,
        backlog: Backlog | None = None,
    ) -> None:
        """`middle`: of the rows that a pool has of a table. `backlog` says when no more is to be written."""
        self._environment, self._db = environment, environment.db
        self._backlog = Backlog(environment) if backlog is None else backlog
        self._middle = middle
        self.nodes = tuple(nodes)
        self._clock = clock
        self._news = threading.Condition()
        self._count = 0
        self._reloading = threading.Lock()
        with environment.reading() as txn:
            self._layout = ranges.load(txn, self._db)
        self._rehome()

    # --- definitions

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None:
        """A table with a range for each part of its keys between two splits (encoded keys, see `encode_key`).
        Creating it again as it is changes nothing."""
        if not table.key:
            raise CatalogError(f"base table {table.name!r} needs a primary key")
        if not 0 < len(table.name.encode()) <= MAX_NAME:
            raise CatalogError(f"the name of base table {table.name[:40]!r}… must have 1 to {MAX_NAME} bytes")

        def create(txn: Txn) -> None:
            layout = self._current(txn)
            known = layout.tables.get(table.name)
            if known is not None:
                if known.definition != table:
                    raise CatalogError(f"base table {table.name!r} exists already, with other columns or another key")
                return
            number = next_number(txn, self._db)
            ranges.save_table(txn, self._db, BaseTable(number, table))
            bounds = [b"", *sorted({bytes(split) for split in splits if split}), None]
            homes = _loads(layout, self.nodes)
            for start, stop in pairwise(bounds):
                assert start is not None
                node = min(homes, key=lambda name: (homes[name], name))
                homes[node] += 1
                ranges.make(txn, self._db, Range(0, table.name, number, start, stop, node))

        self._change(create)

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        """More columns, behind the others; those that are there already as they are given change nothing."""

        def add(txn: Txn) -> None:
            base = self._current(txn).table(table)
            known = {column.name.lower(): column for column in base.definition.columns}
            fresh = []
            for column in columns:
                found = known.get(column.name.lower())
                if found is None:
                    fresh.append(column)
                elif found != column:
                    raise CatalogError(f"base table {table!r} has a column {found.name!r} of type {found.type} already")
            if fresh:
                wider = replace(base.definition, columns=(*base.definition.columns, *fresh))
                ranges.save_table(txn, self._db, replace(base, definition=wider))

        self._change(add)

    def drop_table(self, table: str) -> None:
        """Its sources end, are pushed to their ends, and stay listed until they are forgotten."""

        def drop(txn: Txn) -> None:
            layout = self._current(txn)
            base = layout.tables.get(table)
            if base is None:
                return
            for range in layout.open[table]:
                ranges.end(txn, self._db, range)
            txn.delete(table.encode(), db=self._db["base_tables"])
            ranges.touch(txn, self._db)

        self._change(drop)

    def tables(self) -> dict[str, TableDef]:
        return {name: base.definition for name, base in self._known().tables.items()}

    def table(self, name: str) -> TableDef:
        """Raises, with what there is, if there is no such table."""
        return self._known().table(name).definition

    def encode_key(self, table: str, columns: Sequence[Vec]) -> bytes:
        """The key of one row, or the first columns of one, as `splits` and `split` take it."""
        return encode_keys(columns, f"base table {table!r}")[0]

    # --- rows

    def put(self, table: str, changes: Changes, *, own_clock: bool = True, request: str = "") -> dict[SourceId, Seq]:
        """Atomic and durable when it returns; says where in which source it is. `own_clock`: cell timestamps are
        given here, later than all before, and those of the changes are not looked at. `request`: a name by which it
        can be repeated within an hour: then nothing is written, and the answer is the same."""
        if not len(changes):
            return {}
        definition = self._layout.table(table).definition
        owner = f"base table {table!r}"
        changes = _fitting(definition, changes, owner)
        encoded = encode_keys([changes.columns[i] for i in definition.key_positions], owner)

        def write(txn: Txn) -> _Put:
            known = requests.find(txn, self._db, request)
            if known is not None:
                return _Put(known)
            refused = self._backlog.refuse_rows(txn)
            if refused:
                return _Put({}, refused)
            found = self._put(txn, table, changes, encoded, own_clock)
            requests.remember(txn, self._db, request, found, self._clock())
            return _Put(found)

        put = self._environment.run(write, len(changes))
        if put.refused:
            raise StoreUnavailable(f"base table {table!r} takes no rows: {put.refused}")
        self._tell()
        return put.found

    def _put(
        self, txn: Txn, table: str, changes: Changes, encoded: list[bytes], own_clock: bool
    ) -> dict[SourceId, Seq]:
        layout = self._current(txn)
        base = layout.table(table)
        changes = widen(base.definition, changes)
        if own_clock:
            changes = replace(changes, ts=self._stamp(txn, changes))
        seq = Seq(count_up(txn, self._db, b"seq"))
        written = WrittenRow.of(base.definition, changes)
        found: dict[SourceId, Seq] = {}
        for range, index in _by_range(layout, table, encoded):
            part = written if index is None else written.take(index)
            entry = build(table, [seq], [len(part.changes)], part)
            if len(entry) > MAX_ENTRY:
                raise DataError(
                    f"base table {table!r}: one call writes {len(entry) >> 20} MiB to one range, {MAX_ENTRY >> 20} MiB "
                    "are possible; write it in several calls"
                )
            txn.put(ranges.log_key(range, seq), entry, db=self._db["base_log"])
            found[range.id] = seq
        return found

    def _stamp(self, txn: Txn, changes: Changes) -> np.ndarray:
        """One tick for all rows, or one for each where the order of puts and deletes matters."""
        count = len(changes)
        mixed = changes.delete is not None and bool(changes.delete.any()) and not bool(changes.delete.all())
        ticks = count if mixed else 1
        last = int.from_bytes(txn.get(b"clock", db=self._db["meta"], default=b""), "big")
        first = max(self._clock(), last + 1)
        txn.put(b"clock", (first + ticks - 1).to_bytes(_WORD, "big"), db=self._db["meta"])
        return timestamps(first, 1 if mixed else 0, count)

    # --- sources

    def sources(self) -> list[SourceInfo]:
        return [range.info() for range in self._known().ranges.values()]

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        def forget(txn: Txn) -> None:
            layout = self._current(txn)
            for source in sources:
                range = layout.ranges.get(source)
                if range is not None and range.last is not None:
                    ranges.forget(txn, self._db, range)

        if sources:
            self._change(forget)

    def open_ranges(self, table: str) -> list[Range]:
        """The open ranges of a table, in the order of their keys."""
        layout = self._known()
        layout.table(table)
        return list(layout.open[table])

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        """End the source; two daughters take over at the key (encoded), or in the middle of its rows."""

        def split(txn: Txn) -> tuple[SourceId, SourceId]:
            layout = self._current(txn)
            parent = layout.range(source)
            if at is None:
                raise CatalogError(
                    f"source {source!r} cannot be split there: the pool has none of its rows yet, so they have no "
                    "middle; name the key at which the upper daughter begins"
                )
            if at <= parent.start or (parent.stop is not None and at >= parent.stop):
                raise CatalogError(f"source {source!r} cannot be split there: both daughters need a part of its keys")
            ranges.end(txn, self._db, parent)
            born = Range(0, parent.table, parent.of, parent.start, at, parent.node, parents=(parent.id,))
            lower = ranges.make(txn, self._db, born)
            upper = ranges.make(txn, self._db, replace(born, start=at, stop=parent.stop))
            return lower.id, upper.id

        at = key
        if at is None:
            whole = self._known().range(source)
            at = self._middle(whole.table, whole.start, whole.stop)  # not in the transaction: writers would wait for it
        return self._change(split)

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        """End two neighbours; one daughter takes over."""

        def merge(txn: Txn) -> SourceId:
            layout = self._current(txn)
            lower, upper = sorted((layout.range(a), layout.range(b)), key=lambda range: range.start)
            if lower.table != upper.table or lower.stop != upper.start or lower is upper:
                raise CatalogError(f"sources {a!r} and {b!r} cannot be merged: they are no neighbours in one table")
            for parent in (lower, upper):
                ranges.end(txn, self._db, parent)
            parents = (lower.id, upper.id)
            born = Range(0, lower.table, lower.of, lower.start, upper.stop, lower.node, parents=parents)
            return ranges.make(txn, self._db, born).id

        return self._change(merge)

    def move(self, source: SourceId, node: str) -> None:
        """Another node pushes the source from now on; a request of the former one may still be on its way."""
        if node not in self.nodes:
            raise CatalogError(f"there is no node {node!r}; there are {', '.join(self.nodes)}")

        def move(txn: Txn) -> None:
            range = self._current(txn).range(source)
            ranges.save(txn, self._db, replace(range, node=node, generation=range.generation + 1))

        self._change(move)

    # --- what pushers need

    def assigned(self, node: str) -> list[Range]:
        """The sources that this node pushes, ended ones included."""
        return [range for range in self._known().ranges.values() if range.node == node]

    def acknowledged(self, source: SourceId) -> Seq:
        """The position that is durable; more may have been acknowledged."""
        range = self._known().ranges.get(source)
        if range is None:
            return START
        with self._environment.reading() as txn:
            return ranges.acknowledged(txn, self._db, range)

    def read_log(self, source: SourceId, after: Seq, size: int, count: int) -> list[tuple[Seq, bytes]]:
        """Entries behind `after`, in order: one, and more while they have no more than so many bytes and entries."""
        range = self._layout.ranges.get(source)
        found: list[tuple[Seq, bytes]] = []
        if range is None:
            return found
        with self._environment.reading() as txn:
            for seq, entry in ranges.entries(txn, self._db, range, after):
                size -= len(entry)
                if found and (size < 0 or len(found) == count):
                    break
                found.append((seq, entry))
        return found

    def acknowledge(self, positions: Mapping[SourceId, Seq]) -> None:
        """Entries up to these positions will not be asked for again."""

        def trim(txn: Txn) -> None:
            layout = self._current(txn)
            for source, seq in positions.items():
                range = layout.ranges.get(source)
                if range is not None:
                    ranges.acknowledge(txn, self._db, range, seq)
                    ranges.trim_log(txn, self._db, range, seq)

        if positions:
            self._environment.run(trim, 1000)

    def news(self) -> int:
        """Grows with everything that pushers might care for."""
        return self._count

    def wait_for_news(self, seen: int, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._count != seen, timeout)

    def wake(self) -> None:
        """Let everyone who waits for news look again."""
        self._tell()

    def _tell(self) -> None:
        with self._news:
            self._count += 1
            self._news.notify_all()

    # --- layout

    def _current(self, txn: Txn) -> RangeLayout:
        """The layout as this transaction sees it; usually the one in memory."""
        layout = self._layout
        if ranges.version(txn, self._db) != layout.version:
            layout = ranges.load(txn, self._db)
        return layout

    def _change(self, operation: Callable[[Txn], ranges.T]) -> ranges.T:
        found = self._environment.run(operation)
        self._known()
        self._tell()
        return found

    def _known(self) -> RangeLayout:
        """The layout as of now. A change whose outcome its caller did not learn is in it as well."""
        with self._reloading, self._environment.reading() as txn:
            if ranges.version(txn, self._db) != self._layout.version:
                self._layout = ranges.load(txn, self._db)
            return self._layout

    def _rehome(self) -> None:
        """Sources of nodes that there are no more go to others."""
        lost = [range for range in self._layout.ranges.values() if range.node not in self.nodes]
        if not lost:
            return

        def move(txn: Txn) -> None:
            homes = _loads(self._layout, self.nodes)
            for range in sorted(lost, key=lambda range: range.number):
                node = min(homes, key=lambda name: (homes[name], name))
                homes[node] += 1
                ranges.save(txn, self._db, replace(range, node=node, generation=range.generation + 1))

        self._change(move)


def _loads(layout: RangeLayout, nodes: Sequence[str]) -> dict[str, int]:
    """How many open sources each node has."""
    found = dict.fromkeys(nodes, 0)
    for range in layout.ranges.values():
        if range.last is None and range.node in found:
            found[range.node] += 1
    return found


def _fitting(table: TableDef, changes: Changes, owner: str) -> Changes:
    """Changes with all columns that the table has, or had when they were made."""
    if len(changes.columns) > len(table.columns):
        raise DataError(f"{owner} has {len(table.columns)} columns, {len(changes.columns)} were written")
    for column, vec in zip(table.columns, changes.columns, strict=False):
        if vec.type != column.type:
            raise DataError(f"column {column.name!r} of {owner} is {column.type}, values are {vec.type}")
    return widen(table, changes)


def _by_range(layout: RangeLayout, table: str, encoded: list[bytes]) -> Iterator[tuple[Range, np.ndarray | None]]:
    """The ranges that rows belong to, with the positions of the rows; None: all of them."""
    open = layout.open[table]
    if len(open) == 1:
        yield open[0], None
        return
    where = np.array(layout.where(table, encoded))
    for at in np.unique(where).tolist():
        yield open[at], np.flatnonzero(where == at)
