"""`belvedere.open`: from what a user gives to options."""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from belvedere.embedded.database import Database
from belvedere.embedded.options import DatabaseOptions
from belvedere.embedded.reader import Reader
from belvedere.embedded.storage.files import Files, OsFiles
from belvedere.engine.warm import compile_kernels
from belvedere.errors import StorageError

_KNOWN = {f.name for f in fields(DatabaseOptions)}


def open_database(path: str | os.PathLike[str] | None, read_only: bool, given: dict[str, Any]) -> Database | Reader:
    """See `belvedere.open`."""
    files: Files | None = given.pop("files", None)
    options = make_options(given)
    if not read_only:
        compile_kernels()
        return Database(path, options, files)
    if files is None:
        if path is None or not Path(path).is_dir():
            raise StorageError(f"no database at {str(path)!r}; open it for writing to make one")
        files = OsFiles(path)
    return Reader(files, options)


def make_options(given: dict[str, Any]) -> DatabaseOptions:
    """Checked options."""
    given = dict(given)
    retention = given.pop("retention", None)
    if retention is not None:
        seconds = retention.total_seconds() if isinstance(retention, timedelta) else float(retention)
        given["retention_ms"] = int(seconds * 1000)
    unknown = sorted(set(given) - _KNOWN)
    if unknown:
        raise TypeError(f"open() has no option {unknown[0]!r}; options are {', '.join(sorted(_KNOWN | {'retention'}))}")
    return DatabaseOptions(**given)
