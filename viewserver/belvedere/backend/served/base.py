"""Base tables of the served store: what users write, and the logs that are pushed because of it.

A `put` is one transaction: every range that the call touches gets one entry in its log, all with one seq. Seqs and the
clock that gives cell timestamps live in the same transaction, so both only grow, whatever stops in between. An entry is
kept until it was acknowledged; what the rows are by then is in DELTA, a versioned table that the pool writes. Ranges,
and what becomes of them: `ranges.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from belvedere.backend import base_layout
from belvedere.backend.base_layout import BaseTable, Clock, Middle, Range, RangeLayout, WrittenEntry, wall_clock
from belvedere.backend.seam import OpenRange, SourceInfo
from belvedere.backend.served import ranges, requests
from belvedere.backend.served.backlog import Backlog
from belvedere.backend.served.environment import MAX_NAME, Environment, Txn
from belvedere.backend.served.versions import count_up, next_number
from belvedere.engine.delta import Changes
from belvedere.errors import CatalogError, StoreUnavailable
from belvedere.model.chunks import ChunkContent, entry
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

_WORD = 8


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
        if not 0 < len(table.name.encode()) <= MAX_NAME:
            raise CatalogError(f"the name of base table {table.name[:40]!r}… must have 1 to {MAX_NAME} bytes")

        def create(txn: Txn) -> None:
            layout = self._current(txn)
            if base_layout.is_new(layout, table):
                made = BaseTable(next_number(txn, self._db), table)
                ranges.save_table(txn, self._db, made)
                for range in base_layout.first_ranges(layout, made, splits, self.nodes):
                    ranges.make(txn, self._db, range)

        self._change(create)

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        """More columns, behind the others; those that are there already as they are given change nothing."""

        def add(txn: Txn) -> None:
            wider = base_layout.widened(self._current(txn).table(table), columns)
            if wider is not None:
                ranges.save_table(txn, self._db, wider)

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

    # --- rows

    def put(self, table: str, changes: Changes, *, own_clock: bool = True, request: str = "") -> dict[SourceId, Seq]:
        """Atomic and durable when it returns; says where in which source it is. `own_clock`: cell timestamps are
        given here, later than all before, and those of the changes are not looked at. `request`: a name by which it
        can be repeated within an hour: then nothing is written, and the answer is the same."""
        if not len(changes):
            return {}
        written = entry(self.table(table), Seq(0), changes, own_clock=own_clock)
        return self.put_entry(ChunkContent(written), request=request)

    def put_entry(self, content: ChunkContent, *, request: str = "") -> dict[SourceId, Seq]:
        """`put` of changes that are encoded already."""
        table = content.table
        known = self._layout
        given = base_layout.checked(known.table(table).definition, content)
        if len(known.open[table]) > 1:
            _ = given.keys  # now, and not in the transaction, for which others wait

        def write(txn: Txn) -> _Put:
            known = requests.find(txn, self._db, request)
            if known is not None:
                return _Put(known)
            refused = self._backlog.refuse_rows(txn)
            if refused:
                return _Put({}, refused)
            found = self._put(txn, given)
            requests.remember(txn, self._db, request, found, self._clock())
            return _Put(found)

        put = self._environment.run(write, len(given))
        if put.refused:
            raise StoreUnavailable(f"base table {table!r} takes no rows: {put.refused}")
        self._tell()
        return put.found

    def written(self, name: str) -> dict[SourceId, Seq] | None:
        """What was answered to the request of that name, if it has happened."""
        with self._environment.reading() as txn:
            return requests.find(txn, self._db, name)

    def _put(self, txn: Txn, given: WrittenEntry) -> dict[SourceId, Seq]:
        layout = self._current(txn)
        definition = layout.table(given.definition.name).definition
        if definition != given.definition:  # it has got columns, or is another table of that name
            given = base_layout.checked(definition, given.content)
        first = None
        if given.content.stamps is not None:
            last = int.from_bytes(txn.get(b"clock", db=self._db["meta"], default=b""), "big")
            first = max(self._clock(), last + 1)
            txn.put(b"clock", (first + given.ticks() - 1).to_bytes(_WORD, "big"), db=self._db["meta"])
        seq = Seq(count_up(txn, self._db, b"seq"))
        found: dict[SourceId, Seq] = {}
        for range, payload in base_layout.entries(layout, given, seq, first):
            txn.put(ranges.log_key(range, seq), payload, db=self._db["base_log"])
            found[range.id] = seq
        return found

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

    def open_ranges(self, table: str) -> list[OpenRange]:
        """The open ranges of a table, in the order of their keys."""
        layout = self._known()
        layout.table(table)
        return [range.listed() for range in layout.open[table]]

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        """End the source; two daughters take over at the key (encoded), or in the middle of its rows."""

        def split(txn: Txn) -> tuple[SourceId, SourceId]:
            parent, lower, upper = base_layout.daughters(self._current(txn), source, at)
            ranges.end(txn, self._db, parent)
            return ranges.make(txn, self._db, lower).id, ranges.make(txn, self._db, upper).id

        at = key
        if at is None:
            whole = self._known().range(source)
            at = self._middle(whole.table, whole.start, whole.stop)  # not in the transaction: writers would wait for it
        return self._change(split)

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        """End two neighbours; one daughter takes over."""

        def merge(txn: Txn) -> SourceId:
            *parents, daughter = base_layout.united(self._current(txn), a, b)
            for parent in parents:
                ranges.end(txn, self._db, parent)
            return ranges.make(txn, self._db, daughter).id

        return self._change(merge)

    def move(self, source: SourceId, node: str) -> None:
        """Another node pushes the source from now on; a request of the former one may still be on its way."""

        def move(txn: Txn) -> None:
            ranges.save(txn, self._db, base_layout.moved(self._current(txn), source, node, self.nodes))

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
        lost = base_layout.rehomed(self._layout, self.nodes)

        def move(txn: Txn) -> None:
            for range in lost:
                ranges.save(txn, self._db, range)

        if lost:
            self._change(move)
