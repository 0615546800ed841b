"""The output changelog: what each epoch did to each view, in order. It is the history of views.

Subscriptions, reads of older epochs and reading processes live on it. It is written after an epoch is processed and
not synced: its input is durable, so whatever a crash takes is made again by replay. One stream for all views keeps
epochs whole: a reading process has an epoch when it has the epoch's last record. Segments are `changelog/<epoch>.out`:
all of their records are of later epochs than the one in the name.

    description of a record: {"v": [[view, version, rows, bytes], …], "q": the same for rows that entered (+1) or left
    (-1) quarantine, "starts": [shape, …], "drops": [view, …], "catalog": the definitions after DDL}
"""

from __future__ import annotations

import json
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from belvedere.embedded.storage import records
from belvedere.embedded.storage.files import Appender, Files
from belvedere.embedded.storage.records import MORE, SegmentRecord
from belvedere.engine.delta import Delta
from belvedere.engine.operators.view import Quarantined
from belvedere.engine.state.hashing import hash_rows
from belvedere.errors import Damaged, EpochExpired
from belvedere.model.describe import ViewShape
from belvedere.model.physical import PhysicalFrame, frame, unframe

MAGIC = b"belvout\0"
DIRECTORY = "changelog"
SEGMENT_BYTES = 64 << 20
_STRIDE = 64 << 10
_WINDOW = 1 << 20


@dataclass(frozen=True, slots=True)
class Position:
    """Where the history stood when a snapshot was made."""

    segment: int
    offset: int
    epoch: int

    def to_json(self) -> list[int]:
        return [self.segment, self.offset, self.epoch]


@dataclass(slots=True)
class ChangelogSegment:
    """A file of the changelog. `epochs[i]` is the epoch before the record at `offsets[i]`: a sparse index."""

    after: int
    size: int = records.HEAD_SIZE
    durable: bool = False
    epochs: array[int] = field(default_factory=lambda: array("Q"))
    offsets: array[int] = field(default_factory=lambda: array("Q"))

    @property
    def path(self) -> str:
        return f"{DIRECTORY}/{self.after:020d}.out"

    def note(self, previous_epoch: int, offset: int) -> None:
        # an epoch may have several records: only its first is a place to start
        if not self.offsets or (offset - self.offsets[-1] >= _STRIDE and previous_epoch > self.epochs[-1]):
            self.epochs.append(previous_epoch)
            self.offsets.append(offset)

    def start_for(self, epoch: int) -> int:
        """An offset at or before the first record later than `epoch`."""
        found = bisect_right(self.epochs, epoch) - 1
        return self.offsets[found] if found >= 0 else records.HEAD_SIZE


@dataclass(frozen=True, slots=True)
class Change:
    """What one record says."""

    epoch: int
    last: bool
    meta: Mapping[str, Any]
    record: SegmentRecord

    def deltas(
        self, shapes: Mapping[tuple[str, int], ViewShape], view: str | None = None
    ) -> Iterator[tuple[str, Delta]]:
        """The deltas of one view or all. `shapes` by view and version."""
        entries = self.meta.get("v", ())
        for entry, buffer in zip(entries, self.record.buffers([e[3] for e in entries]), strict=True):
            if view is None or entry[0] == view:
                yield entry[0], decode_delta(shapes[entry[0], entry[1]], buffer)

    def quarantines(self, shapes: Mapping[tuple[str, int], ViewShape]) -> Iterator[tuple[str, Quarantined]]:
        """Changes of quarantine."""
        entries = [*self.meta.get("v", ()), *self.meta.get("q", ())]
        skip = len(entries) - len(self.meta.get("q", ()))
        for entry, buffer in list(zip(entries, self.record.buffers([e[3] for e in entries]), strict=True))[skip:]:
            yield entry[0], decode_quarantine(shapes[entry[0], entry[1]], buffer)


def encode_delta(delta: Delta) -> PhysicalFrame:
    """Columns and weights; ids follow from the key columns."""
    return frame(delta.columns, [delta.weight])


def decode_delta(shape: ViewShape, buffer: memoryview) -> Delta:
    """The reverse of `encode_delta`."""
    columns, (weight,) = unframe(buffer, [c.type for c in shape.schema], [np.int8])
    return Delta(tuple(columns), weight, hash_rows([columns[i] for i in shape.key], len(weight)))


def encode_quarantine(part: Quarantined) -> PhysicalFrame:
    """As a delta, with ids (a failed key column has none to offer), and the column and code of the failure."""
    ids = part.delta.id
    return frame(
        part.delta.columns,
        [part.delta.weight, ids[:, 0], ids[:, 1], part.column.astype(np.int32), part.code.astype(np.uint8)],
    )


def decode_quarantine(shape: ViewShape, buffer: memoryview) -> Quarantined:
    """The reverse of `encode_quarantine`; cells that failed are NULL."""
    plain = [np.int8, np.uint64, np.uint64, np.int32, np.uint8]
    columns, (weight, low, high, column, code) = unframe(buffer, [c.type for c in shape.schema], plain)
    return Quarantined(Delta(tuple(columns), weight, np.stack([low, high], axis=1)), column, code)


class Changelog:
    """The writer's side, also read by the threads of its process."""

    def __init__(self, files: Files, *, segment_bytes: int = SEGMENT_BYTES):
        self._files, self._segment_bytes = files, segment_bytes
        self._lock = threading.Lock()
        self._appender: Appender | None = None
        self._segments: list[ChangelogSegment] = []
        self._sequence = 0
        self._within = False
        self.epoch = 0
        """The last epoch that is completely there."""

    # ------------------------------------------------------------------ opening

    def open(self, position: Position | None, epoch: int) -> None:
        """Find what survived: everything up to `position` was synced with the snapshot of `epoch`, later records
        are taken while they hold. A history that does not reach the snapshot is of no use and removed."""
        self._files.make_directory(DIRECTORY)
        self._files.sync_directory("")
        self._segments = [
            ChangelogSegment(after, self._files.size(_path(after)) or 0) for after in list_segments(self._files)
        ]
        self.epoch = epoch
        start = position or Position(epoch, records.HEAD_SIZE, epoch)
        held = next((s for s in self._segments if s.after == start.segment), None)
        if held is None or held.size < start.offset or start.epoch != epoch:
            self.reset(epoch)
            return
        first = self._segments.index(held)
        for at in range(first, len(self._segments)):
            whole = self._recover(self._segments[at], start.offset if at == first else records.HEAD_SIZE)
            if not whole or (at + 1 < len(self._segments) and self._segments[at + 1].after != self.epoch):
                self._forget_from(at + 1)
                break
        if not self._segments:
            self._open_segment()
            return
        self._appender = self._files.append(self._segments[-1].path)
        if self._appender.size != self._segments[-1].size:
            self._appender.truncate(self._segments[-1].size)
        if self._segments[-1].size < records.HEAD_SIZE:
            self._forget_from(len(self._segments) - 1)
            self._open_segment()

    def _recover(self, segment: ChangelogSegment, offset: int) -> bool:
        """Take complete epochs from `offset` on; false if something behind them does not hold."""
        content = self._files.read(segment.path)
        if records.check_segment(content, MAGIC, segment.path) is None:
            segment.size = 0
            return False
        complete = offset
        while offset < len(content):
            record = records.read_record(content, offset)
            if record is None or record.epoch <= self.epoch:
                break
            offset = record.end
            self._sequence = record.sequence
            if not record.flags & MORE:
                self.epoch, complete = record.epoch, offset
        segment.size = complete
        return complete == len(content)

    def _forget_from(self, at: int) -> None:
        if self._appender is not None:
            self._appender.close()
            self._appender = None
        for segment in reversed(self._segments[at:]):
            self._remove(segment)
        del self._segments[at:]

    def _remove(self, segment: ChangelogSegment) -> None:
        # one by one and for good: what is left after a power cut must be without gaps
        self._files.remove(segment.path)
        self._files.sync_directory(DIRECTORY)

    def reset(self, epoch: int) -> None:
        """Begin a new history after `epoch`."""
        with self._lock:
            self._forget_from(0)
            self.epoch = epoch
            self._open_segment()

    def _open_segment(self) -> None:
        segment = ChangelogSegment(self.epoch)
        appender = self._files.append(segment.path)
        try:
            appender.truncate(0)
            appender.write([records.segment_header(MAGIC, self.epoch)])
        except OSError:
            appender.close()
            self._remove(segment)
            raise
        if self._appender is not None:
            self._appender.close()
        self._appender = appender
        self._segments.append(segment)

    # ------------------------------------------------------------------ writing

    def append(
        self,
        epoch: int,
        parts: Sequence[tuple[ViewShape, Delta]],
        extra: Mapping[str, Any] | None = None,
        *,
        quarantine: Sequence[tuple[ViewShape, Quarantined]] = (),
        more: bool = False,
    ) -> None:
        """One record; `more`: another one of this epoch follows. After an OSError nothing of the record is there."""
        frames = [encode_delta(delta) for _, delta in parts]
        meta: dict[str, Any] = dict(extra or {})
        if parts:
            meta["v"] = [[s.name, s.version, len(d), f.nbytes] for (s, d), f in zip(parts, frames, strict=True)]
        if quarantine:
            reasons = [encode_quarantine(part) for _, part in quarantine]
            meta["q"] = [
                [s.name, s.version, len(p.delta), f.nbytes] for (s, p), f in zip(quarantine, reasons, strict=True)
            ]
            frames += reasons
        body = json.dumps(meta, separators=(",", ":")).encode()
        buffers = [f.pieces for f in frames]
        encoded, size = records.encode(epoch, self._sequence + 1, 0, body, buffers, MORE if more else 0)
        with self._lock:
            if self._segments[-1].size >= self._segment_bytes and not self._within:
                self._open_segment()
            assert self._appender is not None
            segment = self._segments[-1]
            try:
                self._appender.write(encoded)
            except OSError:
                self._appender.truncate(segment.size)
                raise
            segment.note(self.epoch, segment.size)
            segment.size += size
            self._sequence += 1
            self._within = more
            if not more:
                self.epoch = epoch

    def position(self) -> Position:
        """Where it ends now, between epochs."""
        with self._lock:
            return Position(self._segments[-1].after, self._segments[-1].size, self.epoch)

    def sync(self) -> None:
        """Make all that was written durable."""
        with self._lock:
            segments = list(self._segments)
        for segment in segments:
            if segment.durable:
                continue
            appender = self._files.append(segment.path)
            try:
                appender.sync()
            finally:
                appender.close()
            segment.durable = segment is not segments[-1]
        self._files.sync_directory(DIRECTORY)

    # ------------------------------------------------------------------ reading

    @property
    def floor(self) -> int:
        """Changes after this epoch are there."""
        with self._lock:
            return self._segments[0].after if self._segments else self.epoch

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(s.size for s in self._segments)

    def read(self, after: int, upto: int) -> Iterator[Change]:
        """Records of the epochs after `after` up to `upto`, which is committed."""
        if after >= upto:
            return
        with self._lock:
            if self._segments[0].after > after:
                raise EpochExpired(
                    f"epoch {after} is older than the history, which begins at {self._segments[0].after}"
                )
            parts = [(s, s.size) for s in self._segments]
        for at, (segment, size) in enumerate(parts):
            following = parts[at + 1][0].after if at + 1 < len(parts) else None
            if following is not None and following <= after:
                continue
            try:
                yield from read_segment(self._files, segment.path, segment.start_for(after), size, after, upto)
            except FileNotFoundError as error:
                raise EpochExpired(f"epoch {after} is older than the history, which was just collected") from error

    # ------------------------------------------------------------------ collecting

    def collect(self, keep_after: int, limit_bytes: int | None, never_after: int) -> None:
        """Remove segments of epochs up to `keep_after`, and more if there are over `limit_bytes`; never what is later
        than `never_after` (a snapshot's epoch, or a pin)."""
        with self._lock:
            total = sum(s.size for s in self._segments)
            while len(self._segments) > 1:
                last = self._segments[1].after
                over = limit_bytes is not None and total > limit_bytes
                if last > never_after or (last > keep_after and not over):
                    return
                total -= self._segments[0].size
                self._remove(self._segments[0])
                self._segments.pop(0)

    def close(self) -> None:
        with self._lock:
            if self._appender is not None:
                self._appender.close()
                self._appender = None


def _path(after: int) -> str:
    return f"{DIRECTORY}/{after:020d}.out"


def list_segments(files: Files) -> list[int]:
    """The segments that there are, by the epochs in their names."""
    return [int(n.removesuffix(".out")) for n in files.list(DIRECTORY) if n.endswith(".out")]


def read_segment(
    files: Files, path: str, offset: int, size: int | None, after: int, upto: int | None
) -> Iterator[Change]:
    """Records of one segment from `offset` on; ends at `size`, or at the first that is not (completely) there yet."""
    base, window = offset, files.read(path, offset, _WINDOW)
    while size is None or offset < size:
        head = records.read_head(window, offset - base, base)
        if head is None or head.end - base > len(window):
            wanted = _WINDOW if head is None else max(_WINDOW, head.end - offset)
            if base == offset and (head is None or head.end - base > len(window)) and len(window) >= wanted:
                return
            fresh = files.read(path, offset, wanted)
            if base == offset and len(fresh) <= len(window):
                return
            base, window = offset, fresh
            continue
        if upto is not None and head.epoch > upto:
            return
        if head.epoch > after:
            record = records.read_record(window, offset - base, base)
            if record is None and size is not None:
                raise Damaged(f"file {path!r}: the record at byte {offset} does not hold")
            if record is None:
                return
            yield Change(record.epoch, not record.flags & MORE, record.meta, record)
        offset = head.end
