"""Rows that were there before the log was followed: raw scans, as sources of their own.

    hbase/loads/NAME/RANGE     where it begins and stops, the family, which rows have been read, whether all have been

(RANGE is a digest; before it stands the id of a reload, if it belongs to one, or the columns that were added.)

A range is the part of one column family that a region had when the table was followed; where the rows are later does
not matter. Each attempt at a range is a source with a name that is never used again, NAME/load-…; its seqs count its
batches. A batch is durable in INPUT before the row behind which the next attempt begins is written down, so what a
crash repeats is repeated with the same timestamps, and DELTA merges it to the same rows: cells of a scan lose ties
against those of the log, and whatever was deleted since is masked.

The scan is raw, so deletes that still stand come too, and mask what the log may bring later. Of what is masked inside a
row by such a delete of one version nothing is sent: DELTA would take it for a version that it had seen, and the older
one, which is there, for one that it does not know.

Whoever loads a range holds its node in ZooKeeper, for as long as his session lives. Two at once would only do the work
twice.
"""

from __future__ import annotations

import json
import logging
import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import xxhash

from belvedere.backend.hbase.cells import Columns
from belvedere.backend.hbase.followed import FollowedBook, FollowedRegion, FollowedTable
from belvedere.backend.hbase.keyvalues import DELETE, DELETE_FAMILY_VERSION, PUT, KeyValues, encode
from belvedere.backend.hbase.pacing import LoadPace
from belvedere.backend.hbase.regions import Regions
from belvedere.backend.hbase.rpc_cells import RpcCells
from belvedere.backend.hbase.unreadable import UnreadableKeys
from belvedere.backend.hbase.wal import CellDecoder
from belvedere.backend.seam import Committed, Documents, LoadProgress, PushEntries
from belvedere.engine.delta import CellChange
from belvedere.errors import BelvedereError
from belvedere.model import chunks
from belvedere.model.change_codec import WrittenRow
from belvedere.retry import Backoff, Retry, Superseded

log = logging.getLogger(__name__)

_LOADS = "hbase/loads/"
_ATTEMPT = "load-"
_VERSIONS = 2**31 - 1


def is_attempt(region: str) -> bool:
    """Whether a source of that name is no region but an attempt to load rows."""
    return region.startswith(_ATTEMPT)


def new_attempt(table: str) -> FollowedRegion:
    """A source for what is read, with a name that is never used again."""
    return FollowedRegion(table, f"{_ATTEMPT}{secrets.token_hex(8)}", frozenset(), 0)


@dataclass(frozen=True)
class LoadRange:
    """Rows from `start` to `stop` (empty: all that follow) of one family. `after`: the last row that is durable.
    `attempt`: the source of the newest attempt. `rows`: changes that were read. `began`: when (seconds since 1970).
    `name`: a digest of what it is, after that which it belongs to, if it is not of the first load."""

    table: str
    name: str
    family: str
    start: str
    stop: str
    after: str = ""
    attempt: str = ""
    done: bool = False
    rows: int = 0
    began: float = 0.0

    @property
    def document(self) -> str:
        return f"{_LOADS}{self.table}/{self.name}"

    @property
    def claim(self) -> str:
        """Its name in ZooKeeper."""
        return f"{self.table}-{self.name}"

    @property
    def share(self) -> float:
        """How much of it has been read, if rows are spread evenly over the keys between its ends."""
        if self.done or not self.after:
            return float(self.done)
        start, after, stop = (bytes.fromhex(key) for key in (self.start, self.after, self.stop))
        end = stop or b"\xff" * (len(start) + 8)
        common = len(posixpath.commonprefix([start, end]))
        low, at, high = (int.from_bytes(key[common : common + 8].ljust(8, b"\0"), "big") for key in (start, after, end))
        return min(1.0, max(0.0, (at - low) / (high - low))) if high > low else 0.0


def progress_of(ranges: Sequence[LoadRange], now: float) -> LoadProgress:
    """Of the ranges of one table."""
    share = sum(range.share for range in ranges) / len(ranges)
    began = min((range.began for range in ranges if range.began), default=now)
    remaining = (now - began) * (1.0 - share) / share if share > 0.0 else None
    done = sum(range.done for range in ranges)
    return LoadProgress(done, len(ranges), sum(range.rows for range in ranges), share, remaining)


class LoadBook:
    """The documents. Bytes of row keys are hexadecimal in them. What is done stays so: it is read once. Thread-safe."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._lock = threading.Lock()
        self._done: dict[str, LoadRange] = {}

    def plan(self, table: FollowedTable, regions: Regions, families: Sequence[str], prefix: str = "") -> None:
        """The ranges of a table, before it is followed, or of columns that it got. Repeated after a crash it makes
        those of the regions that there are now: some rows may be read twice, none is left out."""
        listed = [(region.start.hex(), region.stop.hex()) for region in regions.listed(str(table.origin))]
        self.add(table.name, prefix, families, listed)

    def add(self, table: str, prefix: str, families: Sequence[str], pieces: Sequence[tuple[str, str]]) -> None:
        """Each family of each piece, named by what it is. Those that are there are left as they are."""
        for start, stop in pieces:
            for family in families:
                name = f"{prefix}{xxhash.xxh3_64_hexdigest(f'{start}-{stop}-{family}'.encode())}"
                range = LoadRange(table, name, family, start, stop)
                if self.read(range.document) is None:
                    self.put(range)

    def put(self, range: LoadRange) -> None:
        value = {k: v for k, v in vars(range).items() if k not in ("table", "name")}
        self._documents.put_document(range.document, json.dumps(value).encode())

    def ranges(self, table: str | None = None, prefix: str = "") -> list[LoadRange]:
        names = self._documents.list_documents(_LOADS if table is None else f"{_LOADS}{table}/{prefix}")
        return [range for range in map(self.read, names) if range is not None]

    def unfinished(self) -> Iterator[LoadRange]:
        """Each as it is when it is asked for: there may be thousands."""
        for name in self._documents.list_documents(_LOADS):
            range = self.read(name)
            if range is not None and not range.done:
                yield range

    def read(self, document: str) -> LoadRange | None:
        with self._lock:
            known = self._done.get(document)
        if known is not None:
            return known
        data = self._documents.get_document(document)
        if data is None:
            return None  # the table was dropped since
        owner, name = document.removeprefix(_LOADS).rsplit("/", 1)
        range = LoadRange(owner, name, **json.loads(data))
        if range.done:
            with self._lock:
                self._done[document] = range
        return range

    def remove(self, table: str, prefix: str = "") -> None:
        names = self._documents.list_documents(f"{_LOADS}{table}/{prefix}")
        self._documents.remove_documents(names)
        with self._lock:
            for name in names:
                self._done.pop(name, None)


class Loader:
    """Reads ranges, each in the thread that asks. `wait`: seconds to sleep; true ends it."""

    def __init__(
        self,
        book: FollowedBook,
        loads: LoadBook,
        cells: RpcCells,
        push: PushEntries,
        committed: Committed,
        wait: Callable[[float], bool],
        unreadable: UnreadableKeys,
    ) -> None:
        self._book, self._loads, self._cells, self._push = book, loads, cells, push
        self._committed, self._wait, self._unreadable = committed, wait, unreadable
        self._lock = threading.Lock()
        self.rows = 0

    def load(self, table: FollowedTable, range: LoadRange) -> None:
        """From where the last attempt was durable to the end."""
        attempt = new_attempt(table.name)
        if range.attempt:  # whoever made it is gone, and what it may still bring is brought again
            self._book.end(table.name, [range.attempt])
        self._book.put_region(attempt)
        range = replace(range, attempt=attempt.encoded, began=range.began or time.time())
        self._loads.put(range)
        decoder, seq = CellDecoder(table.definition, partial(self._unreadable.meet, table)), 0
        pace = LoadPace(attempt.source, self._committed, self._wait)
        start = bytes.fromhex(range.after) + b"\0" if range.after else bytes.fromhex(range.start)
        for cells in self.scan(table, range.family, start, bytes.fromhex(range.stop)):
            rows = self.changes(decoder, cells)
            range = replace(range, after=cells.row[len(cells) - 1].as_py().hex(), rows=range.rows + len(rows.changes))
            if len(rows.changes):
                self.push(attempt, seq, rows)
            self._loads.put(range)
            if len(rows.changes):
                pace.pushed(seq)
                seq += 1
        self._loads.put(replace(range, done=True))
        self._book.end(table.name, [attempt.encoded])

    def push(self, attempt: FollowedRegion, seq: int, rows: WrittenRow) -> None:
        """Durable when it returns."""
        entries = chunks.parse(chunks.build(attempt.table, [seq], [len(rows.changes)], rows))
        retry = Retry(on=(BelvedereError,), backoff=Backoff(0.05, 1.0), sleep=self._sleep)
        retry.run(lambda: self._push([(attempt.source, entries)]))
        with self._lock:
            self.rows += len(rows.changes)

    def _sleep(self, seconds: float) -> None:
        if self._wait(seconds):
            raise Superseded

    def scan(self, table: FollowedTable, family: str, start: bytes, stop: bytes) -> Iterator[KeyValues]:
        """Everything that is stored, with the markers that delete it."""
        columns = Columns(family, versions=_VERSIONS)
        yield from self._cells.scan(str(table.origin), start, stop or None, columns, raw=True)

    @staticmethod
    def changes(decoder: CellDecoder, cells: KeyValues) -> WrittenRow:
        cells = _without_masked_versions(cells)
        block = np.frombuffer(encode(cells), np.uint8).copy()
        one = np.ones(1, np.int64)
        rows, _, unreadable = decoder.decode(block, 0 * one, len(block) * one, len(cells) * one)
        if unreadable:
            log.warning("%d row keys cannot be read, such as %r", len(unreadable), unreadable[0])
        changes = rows.changes
        count = len(changes)
        kind = np.zeros(count, np.uint8) if changes.kind is None else changes.kind
        scanned = np.where(kind == CellChange.PUT, np.uint8(CellChange.SCANNED), kind)
        return WrittenRow(rows.names, replace(changes, kind=scanned))


def _without_masked_versions(cells: KeyValues) -> KeyValues:
    """Without puts that a delete of their version in the same row masks. Few rows have such deletes."""
    deletes = (cells.kind == DELETE) | (cells.kind == DELETE_FAMILY_VERSION)
    if not deletes.any():
        return cells
    gone = set(_places(cells, np.flatnonzero(deletes)))
    puts = np.flatnonzero((cells.kind == PUT) & np.isin(cells.timestamp, cells.timestamp[deletes]))
    masked = [at for at, (row, column, ts) in zip(puts.tolist(), _places(cells, puts), strict=True)
              if (row, column, ts) in gone or (row, None, ts) in gone]  # fmt: skip
    return cells.take(np.setdiff1d(np.arange(len(cells)), masked))


def _places(cells: KeyValues, at: np.ndarray) -> Iterator[tuple[bytes, bytes | None, int]]:
    """Row, qualifier (None: of the whole family) and timestamp of cells of one family."""
    part = cells.take(at)
    for row, qualifier, kind, ts in zip(
        part.row.to_pylist(), part.qualifier.to_pylist(), part.kind.tolist(), part.timestamp.tolist(), strict=True
    ):
        yield row, None if kind == DELETE_FAMILY_VERSION else qualifier, ts
