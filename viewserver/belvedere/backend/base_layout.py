"""Base tables and their key ranges, whatever keeps them: what a change makes of their layout, and which entries of
which logs a write becomes. Nothing is stored here; the backends that own base tables (in memory, served) share it.

    made empty ──▶ OPEN ──split, merged, dropped──▶ ENDED (last seq fixed, pushed to its end) ──forgotten──▶ gone
                    └──move: another node, the next generation

Ranges of a table that are open cover all keys and do not overlap.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from belvedere.backend.seam import OpenRange, SourceInfo
from belvedere.engine.vec import Vec
from belvedere.errors import CatalogError, DataError
from belvedere.model.base_keys import check_keys, encode_keys
from belvedere.model.change_codec import is_mixed
from belvedere.model.chunks import ChunkContent, build, stamped
from belvedere.protocol.exactly_once import Seq, SourceId
from belvedere.sql.catalog import TableDef
from belvedere.types import Column

MAX_ENTRY = 256 << 20
"""Bytes of one entry of a log: it is pushed in one request."""

MAX_REQUEST = 64
"""Bytes of the name of a request."""
Clock = Callable[[], int]
Middle = Callable[[str, bytes, bytes | None], bytes | None]
"""About the key in the middle of those that a table has between two bounds; None if it has none there."""


def wall_clock() -> int:
    """Microseconds."""
    return time.time_ns() // 1000


@dataclass(frozen=True)
class BaseTable:
    number: int
    definition: TableDef


@dataclass(frozen=True)
class Range:
    """A source. `stop` None: to the end of the table."""

    number: int
    table: str
    of: int
    """The number of its table: another one may have the same name later."""
    start: bytes
    stop: bytes | None
    node: str
    generation: int = 0
    parents: tuple[SourceId, ...] = ()
    last: Seq | None = None

    @property
    def id(self) -> SourceId:
        return SourceId(f"{self.table}/{self.number}")

    def listed(self) -> OpenRange:
        return OpenRange(self.id, self.start, self.stop, self.node)

    def info(self) -> SourceInfo:
        return SourceInfo(self.id, self.table, frozenset(self.parents), self.last, self.node)


@dataclass(frozen=True)
class RangeLayout:
    """All tables and ranges, as of one version."""

    version: int
    tables: dict[str, BaseTable]
    ranges: dict[SourceId, Range]
    open: dict[str, tuple[Range, ...]]
    """By table, ordered by start."""

    def table(self, name: str) -> BaseTable:
        found = self.tables.get(name)
        if found is None:
            known = ", ".join(sorted(self.tables)) or "nothing yet"
            raise CatalogError(f"the store has no base table {name!r}; there is {known}")
        return found

    def range(self, source: SourceId) -> Range:
        """A range that is open."""
        found = self.ranges.get(source)
        if found is None or found.last is not None:
            state = "is not there" if found is None else f"has ended at seq {found.last}"
            known = ", ".join(sorted(range.id for ranges in self.open.values() for range in ranges)) or "nothing"
            raise CatalogError(f"source {source!r} {state}; open are {known}")
        return found

    def where(self, table: str, keys: Sequence[bytes]) -> list[int]:
        """For each key the position of its range in `open[table]`."""
        starts = [range.start for range in self.open[table]]
        return [bisect_right(starts, key) - 1 for key in keys]


# --- changes of the layout


def is_new(layout: RangeLayout, table: TableDef) -> bool:
    """Whether the table has to be made: it may be there already as it is, and no other of its name."""
    if not table.key:
        raise CatalogError(f"base table {table.name!r} needs a primary key")
    known = layout.tables.get(table.name)
    if known is not None and known.definition != table:
        raise CatalogError(f"base table {table.name!r} exists already, with other columns or another key")
    return known is None


def first_ranges(
    layout: RangeLayout, table: BaseTable, splits: Sequence[bytes], nodes: Sequence[str]
) -> Iterator[Range]:
    """One for each part of the keys between two splits (encoded keys), at the nodes that have least to do."""
    name, homes = table.definition.name, _loads(layout, nodes)
    for start, stop in pairwise([b"", *sorted({bytes(split) for split in splits if split}), None]):
        assert start is not None
        yield Range(0, name, table.number, start, stop, _take_home(homes))


def widened(base: BaseTable, columns: Sequence[Column]) -> BaseTable | None:
    """More columns, behind the others; None if all are there already as they are given."""
    name, known = base.definition.name, {column.name.lower(): column for column in base.definition.columns}
    fresh = []
    for column in columns:
        found = known.get(column.name.lower())
        if found is None:
            fresh.append(column)
        elif found != column:
            raise CatalogError(f"base table {name!r} has a column {found.name!r} of type {found.type} already")
    if not fresh:
        return None
    return replace(base, definition=replace(base.definition, columns=(*base.definition.columns, *fresh)))


def daughters(layout: RangeLayout, source: SourceId, at: bytes | None) -> tuple[Range, Range, Range]:
    """A range that is to end, and the two that take over at the key."""
    parent = layout.range(source)
    if at is None:
        raise CatalogError(
            f"source {source!r} cannot be split there: the pool has none of its rows yet, so they have no middle; name "
            "the key at which the upper daughter begins"
        )
    if at <= parent.start or (parent.stop is not None and at >= parent.stop):
        raise CatalogError(f"source {source!r} cannot be split there: both daughters need a part of its keys")
    born = Range(0, parent.table, parent.of, parent.start, at, parent.node, parents=(parent.id,))
    return parent, born, replace(born, start=at, stop=parent.stop)


def united(layout: RangeLayout, a: SourceId, b: SourceId) -> tuple[Range, Range, Range]:
    """Two neighbours that are to end, and the one that takes over."""
    lower, upper = sorted((layout.range(a), layout.range(b)), key=lambda range: range.start)
    if lower.table != upper.table or lower.stop != upper.start or lower is upper:
        raise CatalogError(f"sources {a!r} and {b!r} cannot be merged: they are no neighbours in one table")
    parents = (lower.id, upper.id)
    return lower, upper, Range(0, lower.table, lower.of, lower.start, upper.stop, lower.node, parents=parents)


def moved(layout: RangeLayout, source: SourceId, node: str, nodes: Sequence[str]) -> Range:
    """A request of the former node may still be on its way."""
    if node not in nodes:
        raise CatalogError(f"there is no node {node!r}; there are {', '.join(nodes)}")
    return _at(layout.range(source), node)


def rehomed(layout: RangeLayout, nodes: Sequence[str]) -> list[Range]:
    """Sources of nodes that there are no more, at others."""
    lost = [range for range in layout.ranges.values() if range.node not in nodes]
    homes = _loads(layout, nodes)
    return [_at(range, _take_home(homes)) for range in sorted(lost, key=lambda range: range.number)]


def _at(range: Range, node: str) -> Range:
    return replace(range, node=node, generation=range.generation + 1)


def _loads(layout: RangeLayout, nodes: Sequence[str]) -> dict[str, int]:
    """How many open sources each node has."""
    found = dict.fromkeys(nodes, 0)
    for range in layout.ranges.values():
        if range.last is None and range.node in found:
            found[range.node] += 1
    return found


def _take_home(homes: dict[str, int]) -> str:
    node = min(homes, key=lambda name: (homes[name], name))
    homes[node] += 1
    return node


# --- writes


def check_request(name: str) -> None:
    if len(name.encode()) > MAX_REQUEST:
        raise DataError(f"the name of request {name[:20]!r}… has more than {MAX_REQUEST} bytes")


@dataclass(frozen=True)
class WrittenEntry:
    """What one call writes to a table, as the client encoded it."""

    definition: TableDef
    content: ChunkContent

    def __len__(self) -> int:
        return len(self.content.written.changes)

    def ticks(self) -> int:
        """How many timestamps of the own clock it takes."""
        return len(self) if is_mixed(self.content.written.changes) else 1

    def key_columns(self) -> list[Vec]:
        columns = dict(zip(dict(self.content.written.names), self.content.written.changes.columns, strict=True))
        return [columns[name] for name in self.definition.key]

    @cached_property
    def keys(self) -> list[bytes]:
        """The encoded key of each row: what a table of several ranges takes to find theirs, and most of the work."""
        return encode_keys(self.key_columns(), f"base table {self.definition.name!r}")


def checked(table: TableDef, content: ChunkContent) -> WrittenEntry:
    """Of its columns only the keys are looked at."""
    owner = f"base table {table.name!r}"
    known = {column.name: column.type for column in table.columns}
    written = dict(content.written.names)
    if unknown := [name for name in written if name not in known]:
        raise DataError(f"{owner} has no column {', '.join(unknown)}")
    for name, type in written.items():
        if type != known[name]:
            raise DataError(f"column {name!r} of {owner} is {known[name]}, values are {type}")
    if missing := [name for name in table.key if name not in written]:
        raise DataError(f"{owner}: the rows have no {', '.join(missing)}, which is of its key")
    entry = WrittenEntry(table, content)
    check_keys(entry.key_columns(), owner)
    return entry


def entries(layout: RangeLayout, entry: WrittenEntry, seq: Seq, first: int | None) -> Iterator[tuple[Range, bytes]]:
    """The entry of each range that the rows belong to: as it was written if that is one, else each with its rows.
    `first`: the timestamp from which the own clock counts; None: the rows have theirs."""
    table = entry.definition.name
    for range, index in _by_range(layout, entry):
        payload = stamped(entry.content, seq, first) if index is None else _part(entry, index, seq, first)
        if len(payload) > MAX_ENTRY:
            raise DataError(
                f"base table {table!r}: one call writes {len(payload) >> 20} MiB to one range, {MAX_ENTRY >> 20} "
                "MiB are possible; write it in several calls"
            )
        yield range, payload


def _part(entry: WrittenEntry, index: np.ndarray, seq: Seq, first: int | None) -> bytes:
    """Rows of one range. Ticks that they took among others are no count any more."""
    part, step = entry.content.written.take(index), entry.ticks() > 1
    if first is not None and step:
        part = replace(part, changes=replace(part.changes, ts=first + index))
    stamps = None if first is None or step else np.array([[first], [0]])
    return build(entry.definition.name, [seq], [len(index)], part, stamps)


def _by_range(layout: RangeLayout, entry: WrittenEntry) -> Iterator[tuple[Range, np.ndarray | None]]:
    """The ranges that rows belong to, with the positions of the rows; None: all of them."""
    table = entry.definition.name
    open = layout.open[table]
    where = np.array(layout.where(table, entry.keys)) if len(open) > 1 else np.zeros(1, np.int64)
    touched = np.unique(where).tolist()
    for at in touched:
        yield open[at], np.flatnonzero(where == at) if len(touched) > 1 else None
