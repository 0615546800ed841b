"""What has to be held and does not fit into memory: items up to a budget as they are, others in a temporary file.

    hold ──fits under the budget──▶ in memory ─┬─ fetch, as often as wanted ── release ──▶ the budget gets it back
      └──does not──encoded──▶ in the file ─────┘                               └──▶ the last one in the file: disk freed

The file has no name, so nothing is left behind after a crash. An `OSError` of it passes: whoever holds knows what it
means that there is no room.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Generic, TypeVar

T = TypeVar("T")


class Budget:
    """Bytes that may be held in memory together, by any number of spills."""

    def __init__(self, limit: int, directory: Path | None):
        self.limit, self.directory = limit, directory
        self.used = 0
        self.spills = 0
        self.spilled_bytes = 0
        """Items and bytes that went to a file so far."""
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """True if the bytes fit and are now accounted for."""
        with self._lock:
            if self.used + size > self.limit:
                return False
            self.used += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self.used -= size

    def note_spill(self, size: int) -> None:
        with self._lock:
            self.spills += 1
            self.spilled_bytes += size


@dataclass(frozen=True, slots=True, eq=False)
class HeldItem(Generic[T]):
    """An item, or where in the file it is."""

    item: T | None
    size: int
    offset: int = -1


class Spill(Generic[T]):
    """Items under one budget with one file. Thread-safe."""

    def __init__(self, budget: Budget, encode: Callable[[T], bytes], decode: Callable[[bytes], T]) -> None:
        self._budget, self._encode, self._decode = budget, encode, decode
        self._lock = threading.Lock()
        self._file: IO[bytes] | None = None
        self._in_memory = self._in_file = 0
        """Bytes; items."""

    def hold(self, item: T, size: int) -> HeldItem[T]:
        if self._budget.take(size):
            with self._lock:
                self._in_memory += size
            return HeldItem(item, size)
        payload = self._encode(item)
        with self._lock:
            held: HeldItem[T] = HeldItem(None, len(payload), self._append(payload))
        self._budget.note_spill(held.size)
        return held

    def fetch(self, held: HeldItem[T]) -> T:
        if held.item is not None:
            return held.item
        with self._lock:
            assert self._file is not None
            self._file.seek(held.offset)
            payload = self._file.read(held.size)
        return self._decode(payload)

    def release(self, held: HeldItem[T]) -> None:
        """It will not be fetched again."""
        with self._lock:
            if held.item is None:
                self._in_file -= 1
                if self._in_file == 0:
                    self._close_file()
                return
            self._in_memory -= held.size
        self._budget.give_back(held.size)

    @property
    def spilled(self) -> bool:
        """Whether something is in the file."""
        return self._file is not None

    def close(self) -> None:
        """Forget everything; it can be used again."""
        with self._lock:
            size, self._in_memory, self._in_file = self._in_memory, 0, 0
            self._close_file()
        self._budget.give_back(size)

    def __del__(self) -> None:
        self.close()

    def _append(self, payload: bytes) -> int:
        if self._file is None:
            directory = self._budget.directory
            if directory is not None:
                directory.mkdir(parents=True, exist_ok=True)
            # Without a buffer: whether there is room is to be known now, and not when the file is closed.
            self._file = tempfile.TemporaryFile(buffering=0, prefix="spill-", dir=directory)  # noqa: SIM115  lives long
        offset, rest = self._file.seek(0, 2), memoryview(payload)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._in_file += 1
        return offset

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def as_it_is(payload: bytes) -> bytes:
    """For what is bytes already."""
    return payload
