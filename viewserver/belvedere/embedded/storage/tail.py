"""Following the files of a writing process: its changelog and its log, record by record, as they grow.

Nothing is locked. A record counts when it is there whole; files that vanish (`Gone`) mean that the writer has
collected them and the follower must start again from the snapshot in force.
"""

from __future__ import annotations

from collections.abc import Iterator

from belvedere.embedded.storage import changelog, log, records
from belvedere.embedded.storage.changelog import Change, Position, read_segment
from belvedere.embedded.storage.files import Files
from belvedere.embedded.storage.records import SegmentRecord

_WINDOW = 1 << 20


class Gone(Exception):
    """What was to be read next is not there any more."""


class ChangelogTail:
    """Complete epochs after a position, each as its records."""

    def __init__(self, files: Files, position: Position):
        self._files = files
        self._segment, self._offset = position.segment, position.offset
        self.epoch = position.epoch

    def take(self) -> Iterator[list[Change]]:
        """What has come since the last time."""
        while True:
            path = f"{changelog.DIRECTORY}/{self._segment:020d}.out"
            parts: list[Change] = []
            try:
                for change in read_segment(self._files, path, self._offset, None, self.epoch, None):
                    parts.append(change)
                    if change.last:
                        self._offset, self.epoch = change.record.end, change.epoch
                        yield parts
                        parts = []
            except FileNotFoundError as error:
                raise Gone(path) from error
            # the writer goes on in a segment that is named after the last epoch of this one
            if self._segment == self.epoch or self._files.size(f"{changelog.DIRECTORY}/{self.epoch:020d}.out") is None:
                return
            self._segment, self._offset = self.epoch, records.HEAD_SIZE


class LogTail:
    """Records of the input log after a sequence number."""

    def __init__(self, files: Files, sequence: int):
        self._files = files
        self.sequence = sequence
        self._first: int | None = None
        self._offset = records.HEAD_SIZE

    def take(self, epoch: int) -> Iterator[SegmentRecord]:
        """What has come since the last time, up to an epoch."""
        while True:
            if self._first is None:
                self._first = self._find(self.sequence + 1)
                self._offset = records.HEAD_SIZE
            path = f"{log.DIRECTORY}/{self._first:020d}.log"
            try:
                content = self._files.read(path, self._offset)
            except FileNotFoundError as error:
                raise Gone(path) from error
            base, at = self._offset, 0
            while (record := records.read_record(content, at, base)) is not None:
                if record.epoch > epoch:
                    return
                at = record.end - base
                self._offset = record.end
                if record.sequence > self.sequence:
                    self.sequence = record.sequence
                    yield record
            if (
                self._files.size(f"{log.DIRECTORY}/{self.sequence + 1:020d}.log") is None
                or self._first == self.sequence + 1
            ):
                return
            self._first = None

    def _find(self, sequence: int) -> int:
        """The segment in which a record is or will be."""
        firsts = [int(n.removesuffix(".log")) for n in self._files.list(log.DIRECTORY) if n.endswith(".log")]
        before = [f for f in firsts if f <= sequence]
        if not before:
            raise Gone(f"record {sequence}")
        return max(before)


def newest_epoch(files: Files) -> int:
    """The epoch of the last whole record in the input log; 0 if there is none."""
    for name in sorted((n for n in files.list(log.DIRECTORY) if n.endswith(".log")), reverse=True):
        path = f"{log.DIRECTORY}/{name}"
        size, epoch, offset = files.size(path) or 0, 0, records.HEAD_SIZE
        while offset < size:
            # heads only: the bodies of large records are stepped over
            content = files.read(path, offset, _WINDOW)
            at = 0
            while (head := records.read_head(content, at, offset)) is not None and head.end <= size:
                epoch, at = head.epoch, head.end - offset
            if at == 0:
                break
            offset += at
        if epoch:
            return epoch
    return 0
