"""The input log: every change and every DDL statement, in the order in which it became durable. It is the truth.

Segments are files `log/<number of the first record>.log` of `records`. Each record is one group commit: one epoch,
one sync. A write that fails is taken back by truncation, so the log stays whole and the database can go on when the
disk has room again. A sync that fails leaves it unknown what is durable: the log refuses everything from then on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from belvedere.embedded.storage import records
from belvedere.embedded.storage.files import Appender, Files
from belvedere.embedded.storage.records import SegmentRecord
from belvedere.errors import Closed, Damaged, DiskError
from belvedere.model.physical import Buffer

MAGIC = b"belvlog\0"
DIRECTORY = "log"
SEGMENT_BYTES = 128 << 20


@dataclass(slots=True)
class LogSegment:
    """A file of the log, and the numbers of its records."""

    path: str
    first: int
    last: int
    size: int


class InputLog:
    """Open, `replay` to the end (which cuts a torn tail), then `append`."""

    def __init__(self, files: Files, *, sync: bool = True, segment_bytes: int = SEGMENT_BYTES):
        self._files, self._sync, self._segment_bytes = files, sync, segment_bytes
        self._appender: Appender | None = None
        self._failed: str | None = None
        self._synced = 0
        self._rotate = False
        self.segments: list[LogSegment] = []
        self.sequence = 0
        self.epoch = 0
        self.torn_bytes = 0
        """What the last replay cut off: an unacknowledged tail."""

    def replay(self, sequence: int = 0, epoch: int = 0) -> Iterator[SegmentRecord]:
        """Records after `sequence` (whose epoch was `epoch`), each checked. Afterwards the log takes new records."""
        self.sequence, self.epoch = sequence, epoch
        self._files.make_directory(DIRECTORY)
        self._files.sync_directory("")
        names = [n for n in self._files.list(DIRECTORY) if n.endswith(".log")]
        firsts = [int(n.removesuffix(".log")) for n in names]
        for position, name in enumerate(names):
            last = position == len(names) - 1
            if not last and firsts[position + 1] <= sequence + 1:
                # all of it is in the snapshot: kept only until the next collection
                path = f"{DIRECTORY}/{name}"
                size = self._files.size(path) or 0
                self.segments.append(LogSegment(path, firsts[position], firsts[position + 1] - 1, size))
                continue
            yield from self._replay_segment(f"{DIRECTORY}/{name}", firsts[position], sequence, last)
        self._ready()

    def _replay_segment(self, path: str, first: int, after: int, last: bool) -> Iterator[SegmentRecord]:
        content = self._files.read(path)
        expected = first
        if first > self.sequence + 1:
            raise Damaged(
                f"file {path!r} begins with record {first}, but records from {self.sequence + 1} on are missing"
            )
        offset = records.HEAD_SIZE
        found = records.check_segment(content, MAGIC, path)
        if found is None:
            if not last or records.durable_after(content, 0, first) is not None:
                raise Damaged(f"file {path!r}: the segment header at byte 0 does not hold")
            self.torn_bytes += len(content)
            self._remove(path)
            return
        if found != first:
            raise Damaged(f"file {path!r}: the header at byte 0 says that it begins with record {found}")
        while offset < len(content):
            record = records.read_record(content, offset)
            if record is None or record.sequence != expected:
                proof = records.durable_after(content, offset, expected)
                if not last or proof is not None or record is not None:
                    where = f"; record behind it at byte {proof}" if proof is not None else ""
                    raise Damaged(f"file {path!r}: record {expected} at byte {offset} does not hold{where}")
                self._cut(path, offset, len(content))
                break
            if record.sequence > after:
                if record.epoch <= self.epoch:
                    raise Damaged(f"file {path!r}: epoch {record.epoch} at byte {offset} follows epoch {self.epoch}")
                self.sequence, self.epoch = record.sequence, record.epoch
                yield record
            expected += 1
            offset = record.end
        self.segments.append(LogSegment(path, first, expected - 1, offset))

    def _cut(self, path: str, offset: int, size: int) -> None:
        self.torn_bytes += size - offset
        appender = self._files.append(path)
        try:
            appender.truncate(offset)
            appender.sync()
        finally:
            appender.close()

    def _ready(self) -> None:
        self._synced = self.sequence
        if self.segments and self.segments[-1].last == self.sequence:
            self._appender = self._files.append(self.segments[-1].path)
            # what was read may still be only in the page cache: from here on it counts as durable
            self._appender.sync()
        else:
            self._open_segment()

    def _open_segment(self) -> None:
        path = f"{DIRECTORY}/{self.sequence + 1:020d}.log"
        appender = self._files.append(path)
        try:
            appender.truncate(0)
            appender.write([records.segment_header(MAGIC, self.sequence + 1)])
        except OSError as error:
            appender.close()
            try:
                self._remove(path)
            except OSError:
                raise self._stop(path, error) from error
            raise
        try:
            appender.sync()
            self._files.sync_directory(DIRECTORY)
        except OSError as error:
            raise self._stop(path, error) from error
        if self._appender is not None:
            self._appender.close()
        self._appender = appender
        self.segments.append(LogSegment(path, self.sequence + 1, self.sequence, records.HEAD_SIZE))

    def _remove(self, path: str) -> None:
        """For good: a half-made segment that came back after a power cut would stand between whole ones."""
        self._files.remove(path)
        self._files.sync_directory(DIRECTORY)

    def append(self, epoch: int, meta: bytes, buffers: Sequence[Buffer]) -> int:
        """Make one record durable; returns its size."""
        if self._failed is not None:
            raise Closed(f"the input log stopped: {self._failed}")
        if self._appender is None:
            raise Closed("the input log is not open")
        self._maybe_rotate()
        segment = self.segments[-1]
        # without a sync, a write past the page cache would wait for the disk where nobody asked for it
        offset = segment.size if self._sync else None
        pieces = [(b,) for b in buffers]
        parts, size = records.encode(epoch, self.sequence + 1, self._synced, meta, pieces, offset=offset)
        try:
            self._appender.write(parts)
        except OSError as error:
            self._take_back(segment, error)
            raise DiskError(
                f"the input log {segment.path!r} could not be extended by {size} bytes: {error}; nothing was written"
            ) from error
        if self._sync:
            try:
                self._appender.sync()
            except OSError as error:
                raise self._stop(segment.path, error) from error
            self._synced = self.sequence + 1
        segment.size += size
        segment.last = self.sequence = self.sequence + 1
        self.epoch = epoch
        return size

    def _take_back(self, segment: LogSegment, error: OSError) -> None:
        assert self._appender is not None
        try:
            self._appender.truncate(segment.size)
        except OSError as second:
            raise self._stop(segment.path, second) from error

    def _stop(self, path: str, error: OSError) -> Closed:
        self._failed = f"{path!r}: {error}; open the database again to find out what is durable"
        return Closed(f"the input log stopped: {self._failed}")

    def rotate(self) -> None:
        """Let the next record begin a new segment, so that the older ones can go after a snapshot."""
        self._rotate = True

    def _maybe_rotate(self) -> None:
        segment = self.segments[-1]
        if segment.last < segment.first or not (self._rotate or segment.size >= self._segment_bytes):
            return
        assert self._appender is not None
        if not self._sync:
            # only the last segment may have a torn tail
            try:
                self._appender.sync()
            except OSError as error:
                raise self._stop(segment.path, error) from error
            self._synced = self.sequence
        try:
            self._open_segment()
        except OSError as error:
            raise DiskError(f"no new segment of the input log could be made: {error}; nothing was written") from error
        self._rotate = False

    def bytes_after(self, sequence: int) -> int:
        """Size of the segments that hold records after `sequence`."""
        return sum(s.size for s in self.segments if s.last > sequence)

    def collect(self, sequence: int) -> None:
        """Remove segments whose records are all at or before `sequence`; never the one being written."""
        while len(self.segments) > 1 and self.segments[0].last <= sequence:
            self._files.remove(self.segments[0].path)
            self.segments.pop(0)

    def close(self) -> None:
        appender, self._appender = self._appender, None
        if appender is None:
            return
        try:
            if not self._sync and self._failed is None:
                appender.sync()
        except OSError as error:
            raise self._stop(self.segments[-1].path, error) from error
        finally:
            appender.close()
