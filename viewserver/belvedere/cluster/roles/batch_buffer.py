"""Payloads of batches that have come and are not computed yet: in memory up to a limit, beyond it in a file.

A receiver always drains its queue, so what waits here is limited by planning alone, and may exceed memory when one key
fans out to a million rows. Transport threads put while the computing thread takes, hence the lock.

A batch for which there is no room makes its stage *incomplete*: whoever takes it is told. That it could not be kept is
reported at once as well, but nobody may be listening: a batch may come before the generation that it belongs to, and it
is counted all the same.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from belvedere.errors import DiskError
from belvedere.protocol.messages import Attempt, Batch, Epoch, Stage
from belvedere.protocol.ring import MemberId

Key = tuple[MemberId, int]
"""Sender and number: what tells the batches of a stage apart."""


@dataclass(frozen=True)
class _Spilled:
    offset: int
    size: int


class BufferedBatch(NamedTuple):
    rows: int
    batches: int


_Stages = dict[tuple[Epoch, Attempt, Stage], dict[Key, tuple[Batch, bytes | _Spilled]]]


class BatchBuffer:
    def __init__(self, memory_limit: int, directory: Path | None = None) -> None:
        self.spills = 0
        self.spilled_bytes = 0
        """Batches and bytes that went to the file so far."""
        self._limit = memory_limit
        self._directory = directory
        self._waiting: dict[Stage, BufferedBatch] = {}
        self._lock = threading.Lock()
        self._stages: _Stages = {}
        self._incomplete: dict[tuple[Epoch, Attempt, Stage], DiskError] = {}
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._in_file = 0

    def put(self, batch: Batch, payload: bytes) -> None:
        """Hold it. The same batch once more changes nothing. `DiskError`: there is no room for it."""
        with self._lock:
            place = (batch.epoch, batch.attempt, batch.stage)
            stage = self._stages.setdefault(place, {})
            key = (batch.sender, batch.number)
            if key in stage:
                return
            if self._bytes + len(payload) > self._limit:
                try:
                    stage[key] = (batch, self._spill(payload))
                except DiskError as error:
                    self._incomplete[place] = error
                    raise
            else:
                stage[key] = (batch, payload)
                self._bytes += len(payload)
            self._count(batch, 1)

    def take(self, epoch: Epoch, attempt: Attempt, stage: Stage) -> Iterator[tuple[Batch, bytes]]:
        """The batches of a stage by sender and number, each forgotten when the next one is asked for. Raises if one of
        them could not be held."""
        with self._lock:
            held = self._stages.pop((epoch, attempt, stage), {})
            missing = self._incomplete.pop((epoch, attempt, stage), None)
        try:
            if missing is not None:
                raise missing
            for key in sorted(held):
                batch, payload = held[key]
                yield batch, self._fetch(payload)
                with self._lock:
                    self._release(*held.pop(key))
        finally:  # whoever gives up before the end needs none of the rest
            with self._lock:
                for batch, payload in held.values():
                    self._release(batch, payload)

    def forget(self, gone: Callable[[Epoch, Attempt], bool]) -> None:
        """Drop what nobody will compute."""
        with self._lock:
            for key in [key for key in self._incomplete if gone(key[0], key[1])]:
                del self._incomplete[key]
            for key in [key for key in self._stages if gone(key[0], key[1])]:
                for batch, payload in self._stages.pop(key).values():
                    self._release(batch, payload)

    def waiting(self) -> dict[Stage, BufferedBatch]:
        """By stage, of all stages for which something ever came."""
        with self._lock:
            return dict(self._waiting)

    @property
    def batches(self) -> int:
        return sum(each.batches for each in self.waiting().values())

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self._bytes

    def close(self) -> None:
        with self._lock:
            self._stages.clear()
            self._incomplete.clear()
            self._waiting.clear()
            self._bytes = self._in_file = 0
            if self._file is not None:
                self._file.close()
                self._file = None

    def _spill(self, payload: bytes) -> _Spilled:
        where = self._directory or tempfile.gettempdir()
        try:
            return self._append(payload)
        except OSError as error:
            raise DiskError(f"no room to spill batches in {where}: {error.strerror}; give it room") from error

    def _append(self, payload: bytes) -> _Spilled:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="belvedere-kept-", dir=self._directory)  # noqa: SIM115 lives long
            self._end = 0
        self._file.seek(self._end)
        self._file.write(payload)
        self._file.flush()
        spilled = _Spilled(self._end, len(payload))
        self._end += len(payload)
        self._in_file += 1
        self.spills += 1
        self.spilled_bytes += len(payload)
        return spilled

    def _fetch(self, payload: bytes | _Spilled) -> bytes:
        if isinstance(payload, bytes):
            return payload
        with self._lock:
            assert self._file is not None
            self._file.seek(payload.offset)
            return self._file.read(payload.size)

    def _release(self, batch: Batch, payload: bytes | _Spilled) -> None:
        self._count(batch, -1)
        if isinstance(payload, bytes):
            self._bytes -= len(payload)
            return
        self._in_file -= 1
        if self._in_file == 0 and self._file is not None:
            # Nothing in it is needed any more: the disk gets its room back.
            self._file.close()
            self._file = None

    def _count(self, batch: Batch, sign: int) -> None:
        rows, batches = self._waiting.get(batch.stage, (0, 0))
        self._waiting[batch.stage] = BufferedBatch(rows + sign * batch.rows, batches + sign)
