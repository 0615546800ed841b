"""Batches that wait for their stage: in memory as far as the budget goes, else in a temporary file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO

from belvedere.engine.buffer import Budget


class StageInbox:
    """Payloads by stage."""

    def __init__(self, budget: Budget):
        self._budget = budget
        self._waiting: dict[int, list[tuple[tuple[int, int], bytes | tuple[int, int]]]] = {}
        self._file: IO[bytes] | None = None

    def put(self, stage: int, order: tuple[int, int], payload: bytes) -> None:
        place: bytes | tuple[int, int] = payload
        if not self._budget.take(len(payload)):
            place = self._spill(payload)
        self._waiting.setdefault(stage, []).append((order, place))

    def _spill(self, payload: bytes) -> tuple[int, int]:
        if self._file is None:
            directory = self._budget.directory
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            # It has no name, so nothing is left behind after a crash; `clear` closes it.
            self._file = tempfile.TemporaryFile(dir=directory, prefix="inbox-")  # noqa: SIM115
        offset = self._file.seek(0, 2)
        self._file.write(payload)
        self._budget.note_spill(len(payload))
        return offset, len(payload)

    def take(self, stage: int) -> Iterator[tuple[tuple[int, int], bytes]]:
        """The payloads of a stage, which are no longer waiting then, in their order."""
        for order, place in sorted(self._waiting.pop(stage, ()), key=lambda item: item[0]):
            if isinstance(place, bytes):
                self._budget.give_back(len(place))
                yield order, place
            else:
                assert self._file is not None
                self._file.seek(place[0])
                yield order, self._file.read(place[1])

    def clear(self) -> None:
        """Forget everything."""
        for waiting in self._waiting.values():
            for _, place in waiting:
                if isinstance(place, bytes):
                    self._budget.give_back(len(place))
        self._waiting = {}
        if self._file is not None:
            self._file.close()
            self._file = None

    def __del__(self) -> None:
        if self._file is not None:  # a shard that is thrown away in the middle of an epoch
            self._file.close()
