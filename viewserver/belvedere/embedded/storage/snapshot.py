"""Snapshots: what recovery starts from, so that the log need not be replayed from its beginning.

A snapshot is a directory `snapshots/<epoch>-<n>`: base rows of each table as Arrow (they depend on no plan), state of
the engine and rows of views as raw arrays (usable only by the plan and engine version that the manifest names, else
rebuilt), and `manifest.json`, written last, with the size and checksum of every file. The file CURRENT names the
one that counts and is replaced by rename. A crash at any moment leaves either the old or the new one in force.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from belvedere.embedded.storage import arrays
from belvedere.embedded.storage.files import Appender, Files, remove_tree, replace_file
from belvedere.embedded.storage.records import FORMAT_VERSION
from belvedere.errors import Damaged, FormatError

DIRECTORY = "snapshots"
CURRENT = "CURRENT"
MANIFEST = "manifest.json"


class _Sink:
    """A file for Arrow to write to, with a running checksum."""

    closed = False

    def __init__(self, appender: Appender):
        self._appender = appender
        self._digest = xxhash.xxh3_64()
        self.size = 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._appender.write([view])
        self._digest.update(view)
        self.size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is buffered."""

    def close(self) -> None:
        """The appender is closed by whoever opened it."""

    def entry(self) -> dict[str, int]:
        return {"size": self.size, "xxh3": self._digest.intdigest()}


class SnapshotWriter:
    """Writes the files of one snapshot (in the engine's thread, between epochs), then `publish`es it (in any
    thread)."""

    def __init__(self, files: Files, epoch: int):
        self._files = files
        # never a name that was used before: CURRENT may point to it, even if making that durable failed
        used = set(files.list(DIRECTORY))
        self.name = next(n for i in itertools.count() if (n := f"{epoch:020d}-{i}") not in used)
        self._directory = f"{DIRECTORY}/{self.name}"
        self._entries: dict[str, dict[str, int]] = {}
        files.make_directory(DIRECTORY)
        files.sync_directory("")
        files.make_directory(self._directory)

    @property
    def size(self) -> int:
        return sum(e["size"] for e in self._entries.values())

    def add_table(self, table: pa.Table) -> str:
        """Rows as an Arrow IPC file; returns its name."""
        name = f"{len(self._entries):04d}.arrow"
        appender = self._files.append(f"{self._directory}/{name}")
        try:
            appender.truncate(0)
            sink = _Sink(appender)
            with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), table.schema) as writer:
                writer.write_table(table, max_chunksize=1 << 18)
            self._entries[name] = sink.entry()
        finally:
            appender.close()
        return name

    def add_arrays(self, values: Mapping[str, np.ndarray]) -> str:
        """Raw arrays; returns the file's name."""
        name = f"{len(self._entries):04d}.bin"
        self._entries[name] = arrays.write_file(self._files, f"{self._directory}/{name}", arrays.pack(values))
        return name

    def publish(self, manifest: Mapping[str, Any]) -> None:
        """Make everything durable, then make it count, then remove the older ones."""
        for name in self._entries:
            arrays.sync_file(self._files, f"{self._directory}/{name}")
        body = json.dumps({"format": FORMAT_VERSION, **manifest, "files": self._entries}).encode()
        content = body + b"\n" + b"%016x\n" % xxhash.xxh3_64_intdigest(body)
        arrays.write_file(self._files, f"{self._directory}/{MANIFEST}", [content])
        arrays.sync_file(self._files, f"{self._directory}/{MANIFEST}")
        self._files.sync_directory(self._directory)
        self._files.sync_directory(DIRECTORY)
        replace_file(self._files, CURRENT, f"{self.name}\n".encode())
        collect(self._files, self.name)


def collect(files: Files, current: str | None) -> None:
    """Remove every snapshot but the current one."""
    for name in files.list(DIRECTORY):
        if name != current:
            remove_tree(files, f"{DIRECTORY}/{name}")


class StoredSnapshot:
    """The snapshot in force, opened for reading."""

    def __init__(self, files: Files, name: str):
        self._files, self.name = files, name
        self._directory = f"{DIRECTORY}/{name}"
        path = f"{self._directory}/{MANIFEST}"
        try:
            content = bytes(files.read(path))
        except FileNotFoundError as error:
            raise Damaged(f"{CURRENT} names snapshot {name!r}, but {path!r} is missing") from error
        body, _, check = content.removesuffix(b"\n").rpartition(b"\n")
        if check != b"%016x" % xxhash.xxh3_64_intdigest(body):
            raise Damaged(f"file {path!r}: the checksum over bytes 0 to {len(body)} does not hold")
        self.manifest: dict[str, Any] = json.loads(body)
        if self.manifest["format"] > FORMAT_VERSION:
            raise FormatError(
                f"snapshot {path!r} has format version {self.manifest['format']}, this program reads up to "
                f"{FORMAT_VERSION}; use a newer program"
            )

    @staticmethod
    def current(files: Files) -> StoredSnapshot | None:
        """The one that CURRENT names, None in a fresh database."""
        if files.size(CURRENT) is None:
            return None
        name = bytes(files.read(CURRENT)).decode().strip()
        return StoredSnapshot(files, name)

    @property
    def size(self) -> int:
        return sum(e["size"] for e in self.manifest["files"].values())

    def table(self, name: str) -> pa.Table:
        content = arrays.read_file(self._files, f"{self._directory}/{name}", self.manifest["files"][name])
        return pa.ipc.open_file(pa.py_buffer(content)).read_all()

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        return arrays.unpack(arrays.read_file(self._files, f"{self._directory}/{name}", self.manifest["files"][name]))
