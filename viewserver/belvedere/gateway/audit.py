"""The audit log: who wrote, who changed definitions, who was refused. A JSON object per line, no values."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from belvedere.errors import DiskError


class AuditLog:
    """Appends to a file; without one it goes to the log of the process. Opened anew when the file was moved away."""

    def __init__(self, path: Path | None, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._path, self._say, self._clock = path, say, clock
        self._lock = threading.Lock()
        self._file: BinaryIO | None = None if path is None else _opened(path)

    def record(self, **fields: Any) -> None:
        """One line; empty fields are left out."""
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        told: Mapping[str, Any] = {"time": when, **{name: value for name, value in fields.items() if value != ""}}
        line = orjson.dumps(told, default=str, option=orjson.OPT_APPEND_NEWLINE)
        if self._path is None:
            self._say(line.decode().rstrip())
            return
        with self._lock:
            try:
                if self._file is None or not _same(self._path, self._file):
                    if self._file is not None:
                        self._file.close()
                    self._file = _opened(self._path)
                self._file.write(line)
                self._file.flush()
            except (OSError, DiskError) as error:
                self._say(f"the audit log {self._path} cannot be written: {error}; {line.decode().rstrip()}")

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("ab")
    except OSError as error:
        raise DiskError(f"the audit log {path} cannot be opened: {error.strerror}") from None


def _same(path: Path, file: BinaryIO) -> bool:
    import os

    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
