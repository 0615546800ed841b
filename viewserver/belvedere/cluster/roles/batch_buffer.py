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
from pathlib import Path
from typing import NamedTuple

from belvedere.errors import DiskError
from belvedere.protocol.messages import Attempt, Batch, Epoch, Stage
from belvedere.protocol.ring import MemberId
from belvedere.spill import Budget, HeldItem, Spill, as_it_is

Key = tuple[MemberId, int]
"""Sender and number: what tells the batches of a stage apart."""


class BufferedBatch(NamedTuple):
    rows: int
    batches: int


_Stages = dict[tuple[Epoch, Attempt, Stage], dict[Key, tuple[Batch, HeldItem[bytes]]]]


class BatchBuffer:
    def __init__(self, memory_limit: int, directory: Path | None = None) -> None:
        self.budget = Budget(memory_limit, directory)
        self._spill: Spill[bytes] = Spill(self.budget, as_it_is, as_it_is)
        self._waiting: dict[Stage, BufferedBatch] = {}
        self._lock = threading.Lock()
        self._stages: _Stages = {}
        self._incomplete: dict[tuple[Epoch, Attempt, Stage], DiskError] = {}

    def put(self, batch: Batch, payload: bytes) -> None:
        """Hold it. The same batch once more changes nothing. `DiskError`: there is no room for it."""
        with self._lock:
            place = (batch.epoch, batch.attempt, batch.stage)
            stage = self._stages.setdefault(place, {})
            key = (batch.sender, batch.number)
            if key in stage:
                return
            try:
                stage[key] = (batch, self._hold(payload))
            except DiskError as error:
                self._incomplete[place] = error
                raise
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
                yield batch, self._spill.fetch(payload)
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
        return self.budget.used

    def close(self) -> None:
        with self._lock:
            self._stages.clear()
            self._incomplete.clear()
            self._waiting.clear()
            self._spill.close()

    def _hold(self, payload: bytes) -> HeldItem[bytes]:
        try:
            return self._spill.hold(payload, len(payload))
        except OSError as error:
            where = self.budget.directory or tempfile.gettempdir()
            raise DiskError(f"no room to spill batches in {where}: {error.strerror}; give it room") from error

    def _release(self, batch: Batch, held: HeldItem[bytes]) -> None:
        self._count(batch, -1)
        self._spill.release(held)

    def _count(self, batch: Batch, sign: int) -> None:
        rows, batches = self._waiting.get(batch.stage, (0, 0))
        self._waiting[batch.stage] = BufferedBatch(rows + sign * batch.rows, batches + sign)
