"""Base tables in memory: the logs of their key ranges, for trying out and for tests. See `backend.base_layout` for what
a change of them means, and `backend.pusher` for who asks for their logs."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

from belvedere.backend import base_layout
from belvedere.backend.base_layout import BaseTable, Clock, Middle, Range, RangeLayout, wall_clock
from belvedere.backend.seam import OpenRange, SourceInfo
from belvedere.engine.delta import Changes
from belvedere.model.chunks import ChunkContent, entry
from belvedere.model.requests import check_same, parted
from belvedere.protocol.exactly_once import START, Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column


class MemoryBaseTables:
    """`BaseTables` that live as long as the process, and their logs (`PushedLog`). `nodes`: who pushes."""

    def __init__(
        self,
        nodes: Sequence[str] = ("node-0",),
        clock: Clock = wall_clock,
        middle: Middle = lambda table, start, stop: None,
    ) -> None:
        """`middle`: of the rows that a pool has of a table."""
        self.nodes, self._clock, self._middle = tuple(nodes), clock, middle
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._count = self._numbers = self._seq = self._last = 0
        self._tables: dict[str, BaseTable] = {}
        self._ranges: dict[SourceId, Range] = {}
        self._logs: dict[SourceId, list[tuple[Seq, bytes]]] = {}
        self._acknowledged: dict[SourceId, Seq] = {}
        self._requests: dict[str, tuple[str, Mapping[SourceId, Seq]]] = {}

    def _layout(self) -> RangeLayout:
        open = {
            name: tuple(
                sorted(
                    (range for range in self._ranges.values() if range.table == name and range.last is None),
                    key=lambda range: range.start,
                )
            )
            for name in self._tables
        }
        return RangeLayout(0, self._tables, self._ranges, open)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _make(self, range: Range) -> SourceId:
        made = replace(range, number=self._number())
        self._ranges[made.id], self._logs[made.id] = made, []
        return made.id

    def _end(self, range: Range) -> None:
        log = self._logs[range.id]
        last = log[-1][0] if log else self._acknowledged.get(range.id, START)
        self._ranges[range.id] = replace(range, last=last)

    # --- definitions

    def create_table(self, table: TableDef, splits: Sequence[bytes] = ()) -> None:
        with self._lock:
            layout = self._layout()
            if base_layout.is_new(layout, table):
                made = self._tables[table.name] = BaseTable(self._number(), table)
                for range in base_layout.first_ranges(layout, made, splits, self.nodes):
                    self._make(range)
                self.wake()

    def add_columns(self, table: str, columns: Sequence[Column]) -> None:
        with self._lock:
            wider = base_layout.widened(self._layout().table(table), columns)
            if wider is not None:
                self._tables[table] = wider

    def drop_table(self, table: str) -> None:
        with self._lock:
            for range in self._layout().open.get(table, ()):
                self._end(range)
            self._tables.pop(table, None)
            self.wake()

    def tables(self) -> dict[str, TableDef]:
        with self._lock:
            return {name: base.definition for name, base in self._tables.items()}

    # --- rows

    def put(
        self, table: TableDef, changes: Changes, *, own_clock: bool = True, request: str = ""
    ) -> Mapping[SourceId, Seq]:
        if not len(changes):
            return {}
        base_layout.check_request(request)
        with self._lock:
            name, digest = parted(request)
            if name in self._requests:
                known, written = self._requests[name]
                check_same(name, digest, known)
                return written
            layout = self._layout()
            definition = layout.table(table.name).definition
            content = ChunkContent(entry(table, Seq(0), changes, own_clock=own_clock))
            given, first, last = base_layout.checked(definition, content), None, self._last
            if own_clock:
                first = max(self._clock(), last + 1)
                last = first + given.ticks() - 1
            seq = Seq(self._seq + 1)
            entries = list(base_layout.entries(layout, given, seq, first))
            self._seq, self._last = seq, last
            for range, payload in entries:
                self._logs[range.id].append((seq, payload))
            found = {range.id: seq for range, _ in entries}
            if name:
                self._requests[name] = digest, found
            self.wake()
            return found

    def written(self, name: str) -> Mapping[SourceId, Seq] | None:
        with self._lock:
            found = self._requests.get(name)
            return None if found is None else found[1]

    # --- key ranges

    def ranges(self, table: str) -> list[OpenRange]:
        with self._lock:
            layout = self._layout()
            layout.table(table)
            return [range.listed() for range in layout.open[table]]

    def split(self, source: SourceId, key: bytes | None = None) -> tuple[SourceId, SourceId]:
        with self._lock:
            layout = self._layout()
            if key is None:
                whole = layout.range(source)
                key = self._middle(whole.table, whole.start, whole.stop)
            parent, lower, upper = base_layout.daughters(layout, source, key)
            self._end(parent)
            self.wake()
            return self._make(lower), self._make(upper)

    def merge(self, a: SourceId, b: SourceId) -> SourceId:
        with self._lock:
            *parents, daughter = base_layout.united(self._layout(), a, b)
            for parent in parents:
                self._end(parent)
            self.wake()
            return self._make(daughter)

    def move(self, source: SourceId, node: str) -> None:
        with self._lock:
            self._ranges[source] = base_layout.moved(self._layout(), source, node, self.nodes)
            self.wake()

    # --- sources

    def sources(self) -> list[SourceInfo]:
        with self._lock:
            return [range.info() for range in self._ranges.values()]

    def forget_sources(self, sources: Sequence[SourceId]) -> None:
        with self._lock:
            for source in sources:
                known = self._ranges.get(source)
                if known is not None and known.last is not None:
                    del self._ranges[source], self._logs[source]
                    self._acknowledged.pop(source, None)

    def assigned(self, node: str) -> list[Range]:
        with self._lock:
            return [range for range in self._ranges.values() if range.node == node]

    def acknowledged(self, source: SourceId) -> Seq:
        with self._lock:
            return self._acknowledged.get(source, START)

    def read_log(self, source: SourceId, after: Seq, size: int, count: int) -> list[tuple[Seq, bytes]]:
        """Entries behind `after`, in order: one, and more while they have no more than so many bytes and entries."""
        found: list[tuple[Seq, bytes]] = []
        with self._lock:
            log = self._logs.get(source, [])
            for seq, entry in log[bisect_right(log, after, key=lambda one: one[0]) :]:
                size -= len(entry)
                if found and (size < 0 or len(found) == count):
                    break
                found.append((seq, entry))
        return found

    def acknowledge(self, positions: Mapping[SourceId, Seq]) -> None:
        with self._lock:
            for source, seq in positions.items():
                if source in self._ranges:
                    self._acknowledged[source] = max(seq, self._acknowledged.get(source, START))
                    self._logs[source] = [one for one in self._logs[source] if one[0] > seq]

    def news(self) -> int:
        return self._count

    def wait_for_news(self, seen: int, timeout: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._count != seen, timeout)

    def wake(self) -> None:
        with self._news:
            self._count += 1
            self._news.notify_all()

    # --- as a client has it

    def within(self, timeout: float, stream: float | None = None) -> MemoryBaseTables:
        return self

    def close(self) -> None:
        """Nothing to give up."""
