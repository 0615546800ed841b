"""What must be there at an epoch: the writes of the journal up to the epoch's positions, and every view computed anew.

Base rows are merged by the plain model of `tests.oracle`, views by DuckDB. Samples are judged in the order of their
epochs, so each applies only what came since the one before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from belvedere.protocol.exactly_once import Seq, SourceId
from tests.oracle.duck import arrow_of
from tests.oracle.model import Table, parse_table
from tests.torture.lineage import Ranges
from tests.torture.workload import ACCOUNTS, BALANCE, TABLES, WRITE_SECONDS, Journal, Write

_OWN_CLOCK = 10**16
"""The store's own timestamps in the model: later than all explicit ones."""
_ROWS = 10_000
"""More rows than a write has."""
_SHOWN = 5


@dataclass(frozen=True)
class Sample:
    """What was read at an epoch. `writes`: how many had begun when its positions were known."""

    epoch: int
    positions: Mapping[SourceId, Seq]
    tables: Mapping[str, pa.Table]
    views: Mapping[str, pa.Table]
    queries: Mapping[str, str]
    writes: int


class History:
    """Positions of all committed epochs that somebody saw. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._first: dict[SourceId, int] = {}
        self._newest: dict[SourceId, tuple[int, Seq]] = {}

    def saw(self, epoch: int, positions: Mapping[SourceId, Seq]) -> None:
        with self._lock:
            for source, seq in positions.items():
                self._first[source] = min(epoch, self._first.get(source, epoch))
                before = self._newest.get(source)
                if before is None or before[0] < epoch:
                    assert before is None or before[1] <= seq, f"{source} went back: {before}, then {epoch}, {seq}"
                    self._newest[source] = (epoch, seq)

    def was_planned(self, source: SourceId, epoch: int) -> bool:
        """Whether an epoch up to this one had a position of the source."""
        with self._lock:
            return self._first.get(source, epoch + 1) <= epoch


class Checker:
    def __init__(self, journal: Journal, ranges: Ranges, history: History) -> None:
        self._journal, self._ranges, self._history = journal, ranges, history
        self._tables: dict[str, Table] = {name: parse_table(sql) for name, sql in TABLES.items()}
        self._taken = 0
        self._waiting: list[tuple[Write, dict[SourceId, list[int]]]] = []
        """Writes that are not applied yet, or not with all of their rows: positions of rows by source."""
        self._explicit = 0
        self._duck = duckdb.connect(":memory:")
        self._duck.execute("SET threads = 1")

    def check(self, sample: Sample) -> None:
        """Raises AssertionError with what differs."""
        self._take(sample.writes)
        self._apply(sample)
        problems = []
        for name, table in self._tables.items():
            expected = arrow_of(table)
            self._duck.register(name, expected)
            if name in sample.tables:
                problems += _difference(f"table {name}", expected, sample.tables[name])
        for name, sql in sample.queries.items():
            self._duck.execute(f'CREATE OR REPLACE TEMP VIEW "{name}" AS {sql}')
        for name in sample.views:
            problems += _difference(
                f"view {name}", self._duck.sql(f'FROM "{name}"').to_arrow_table(), sample.views[name]
            )
        if "bank" in sample.views:
            bank = sample.views["bank"].to_pylist()
            if bank != [{"n": ACCOUNTS, "total": ACCOUNTS * BALANCE}]:
                problems.append(f"money was made or lost: {bank}")
        assert not problems, f"epoch {sample.epoch} at {dict(sample.positions)}:\n  " + "\n  ".join(problems)

    def check_nothing_waits(self) -> None:
        left = [f"{write.number} {write.table} {write.token}" for write, _ in self._waiting]
        assert not left, f"acknowledged writes that no epoch has: {left[:_SHOWN]} ({len(left)})"

    # ------------------------------------------------------------------ the journal

    def _take(self, stop: int) -> None:
        if stop <= self._taken:
            return
        for write in self._journal.resolved(self._taken, stop, WRITE_SECONDS):
            self._waiting.append((write, self._by_source(write)))
        self._taken = stop
        self._waiting.sort(key=lambda item: _seq(item[0]))

    def _by_source(self, write: Write) -> dict[SourceId, list[int]]:
        assert write.token is not None
        sources = [source for source, _ in write.token.positions]
        if len(sources) == 1:
            return {sources[0]: list(range(len(write.rows)))}
        found: dict[SourceId, list[int]] = {source: [] for source in sources}
        keys = {source: self._ranges.keys(source) for source in sources}
        for at, row in enumerate(write.rows):
            (owner,) = (s for s in sources if keys[s].first <= row["id"] < keys[s].stop)
            found[owner].append(at)
        assert all(found.values()), f"write {write.number}: {write.token}, but the rows are in {found}"
        return found

    def _apply(self, sample: Sample) -> None:
        left = []
        for write, parts in self._waiting:
            for source in list(parts):
                if self._includes(sample, source, _seq(write)):
                    self._apply_rows(write, parts.pop(source))
            if parts:
                left.append((write, parts))
            else:
                write.rows, write.deleted = (), ()  # not needed any more
        self._waiting = left

    def _includes(self, sample: Sample, source: SourceId, seq: int) -> bool:
        reached = sample.positions.get(source)
        if reached is not None:
            return reached >= seq
        # Not planned yet; or ended, planned to its end and forgotten: then it had a position before, or those who
        # came after it have one.
        return self._history.was_planned(source, sample.epoch) or self._is_behind(sample, source)

    def _is_behind(self, sample: Sample, source: SourceId) -> bool:
        return any(c in sample.positions or self._is_behind(sample, c) for c in self._ranges.children(source))

    def _apply_rows(self, write: Write, at: list[int]) -> None:
        table = self._tables[write.table]
        for i in at:
            ts = _OWN_CLOCK + _seq(write) * _ROWS + i if write.ts is None else write.ts
            (table.delete if write.deleted[i] else table.put)(write.rows[i], ts)


def _seq(write: Write) -> int:
    assert write.token is not None
    seqs = {seq for _, seq in write.token.positions}
    assert len(seqs) == 1, f"write {write.number} has one seq: {write.token}"
    return next(iter(seqs))


def _difference(name: str, expected: pa.Table, found: pa.Table) -> list[str]:
    if list(found.column_names) != list(expected.column_names):
        return [f"{name} has columns {found.column_names}, not {expected.column_names}"]
    wanted, there = bag(expected), bag(found)
    if wanted == there:
        return []
    missing, extra = list((wanted - there).elements()), list((there - wanted).elements())
    return [
        f"{name}: {len(missing)} rows are missing, such as {missing[:_SHOWN]}; "
        f"{len(extra)} are too many, such as {extra[:_SHOWN]} ({expected.num_rows} rows expected)"
    ]


def bag(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows, with how often each is there."""
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
