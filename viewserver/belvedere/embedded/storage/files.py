"""The seam between the database and the file system.

Everything durable goes through `Files`, so that a test can put a disk below the database that loses what was not synced
(`belvedere.embedded.storage.faulty`). Paths are relative to the database's directory and use "/". Nothing is buffered
in the process: a write that returned is in the page cache, and a sync that returned is on the disk.

Big writes in whole pages go past the page cache (O_DIRECT) where the file system can do that: the kernel then neither
copies the bytes nor looks for memory to hold them, which halves what a durable write costs.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Protocol

import numpy as np

from belvedere.model.physical import PAGE, PAGED_BYTES, Buffer

_IOV_MAX = 512
_MAX_BYTES = 1 << 30  # Linux moves at most 2 GiB - 4 KiB in one call
_HEAD_BYTES = 16 * PAGE


class Appender(Protocol):
    """A file open for appending."""

    size: int

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Append all buffers in order. After an error the file may hold any prefix of them."""

    def sync(self) -> None:
        """Return when everything written is durable. After an error nothing is known about what was not durable yet."""

    def truncate(self, size: int) -> None:
        """Forget everything from byte `size` on."""

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock held until released or until the process ends."""

    def release(self) -> None: ...


class Files(Protocol):
    """What the database needs of a file system."""

    def append(self, path: str) -> Appender:
        """Open for appending; a missing file is created (durable only once its directory is synced)."""

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        """Bytes from `offset` on (fewer than `length` at the end of the file), in memory of their own."""

    def size(self, path: str) -> int | None:
        """Length in bytes, None if there is no such file."""

    def list(self, directory: str) -> list[str]:
        """Names in the directory, sorted; nothing if there is no such directory."""

    def make_directory(self, path: str) -> None:
        """Create a directory below an existing one; fine if it exists."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` atomically."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory; fine if it is gone."""

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and removals in the directory durable."""

    def lock(self, path: str) -> Lock | None:
        """Take the lock, or None if someone else holds it."""


class OsAppender:
    """An O_APPEND file descriptor; buffers go to `writev` as they are."""

    def __init__(self, path: Path):
        # a file object, not a number: an interrupt leaves none behind
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  closed by `close`
        self._fd = self._file.fileno()
        self._direct = False
        self._can_direct = hasattr(os, "O_DIRECT")
        self._head: mmap.mmap | None = None
        self.size = os.fstat(self._fd).st_size

    def write(self, buffers: Sequence[Buffer]) -> None:
        views = [v for v in (memoryview(b).cast("B") for b in buffers) if v.nbytes]
        if self._can_direct and self.size % PAGE == 0:
            views = self._write_pages(views)
        if views:
            self._go_direct(False)
        at = 0
        while at < len(views):
            chunk: list[memoryview] = []
            total = 0
            for view in views[at : at + _IOV_MAX]:
                if chunk and total + view.nbytes > _MAX_BYTES:
                    break
                chunk.append(view[:_MAX_BYTES])
                total += chunk[-1].nbytes
            written = os.writev(self._fd, chunk)
            self.size += written
            at = _skip(views, at, written)

    def _write_pages(self, views: list[memoryview]) -> list[memoryview]:
        """Write past the page cache if all of it is whole pages, small pieces at the front taken together; returns
        what is left to write."""
        first = next((i for i, v in enumerate(views) if _is_paged(v)), len(views))
        front = sum(v.nbytes for v in views[:first])
        total = sum(v.nbytes for v in views)
        if (
            not PAGED_BYTES <= total <= _MAX_BYTES
            or front % PAGE
            or front > _HEAD_BYTES
            or len(views) - first >= _IOV_MAX
            or not all(_is_paged(v) for v in views[first:])
        ):
            return views
        if self._head is None:
            self._head = mmap.mmap(-1, _HEAD_BYTES)
        self._head[:front] = b"".join(views[:first])
        pages = [memoryview(self._head)[:front], *views[first:]] if front else views
        try:
            self._go_direct(True)
            written = os.writev(self._fd, pages)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._can_direct = False  # a file system, or a disk with larger blocks, that cannot do it
            return views
        self.size += written
        return pages[_skip(pages, 0, written) :]

    def _go_direct(self, on: bool) -> None:
        if on != self._direct:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, os.O_APPEND | (os.O_DIRECT if on else 0))
            self._direct = on

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def close(self) -> None:
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()


def _is_paged(view: memoryview) -> bool:
    """Whether it begins at a page of memory and consists of whole pages."""
    return view.nbytes % PAGE == 0 and np.frombuffer(view, np.uint8).ctypes.data % PAGE == 0


def _skip(views: list[memoryview], at: int, written: int) -> int:
    """The first view from `at` on that is not written yet, cut to what is left of it."""
    while at < len(views) and written >= views[at].nbytes:
        written -= views[at].nbytes
        at += 1
    if written:
        views[at] = views[at][written:]
    return at


class OsLock:
    """`flock` on a file: the kernel releases it when the process dies."""

    def __init__(self, file: FileIO):
        self._file = file

    def release(self) -> None:
        self._file.close()


class OsFiles:
    """The real thing, below one directory."""

    def __init__(self, root: str | os.PathLike[str]):
        self.root = Path(root)

    def append(self, path: str) -> OsAppender:
        return OsAppender(self.root / path)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        # numpy's allocation is aligned and not zeroed first, unlike bytearray's
        with open(self.root / path, "rb", buffering=0) as file:
            wanted = max(0, os.fstat(file.fileno()).st_size - offset)
            if length is not None:
                wanted = min(wanted, length)
            out = np.empty(wanted, np.uint8).data.cast("B")
            file.seek(offset)
            done = 0
            while done < wanted:
                got = file.readinto(out[done : done + _MAX_BYTES])
                if not got:
                    break
                done += got
            return out[:done]

    def size(self, path: str) -> int | None:
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return None

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.root / directory))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        (self.root / path).mkdir(exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        os.replace(self.root / old, self.root / new)

    def remove(self, path: str) -> None:
        target = self.root / path
        try:
            target.rmdir() if target.is_dir() else target.unlink()
        except FileNotFoundError:
            return

    def sync_directory(self, path: str) -> None:
        fd = os.open(self.root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> OsLock | None:
        file = open(self.root / path, "ab", buffering=0)  # noqa: SIM115  closed by `release`
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        return OsLock(file)


def remove_tree(files: Files, directory: str) -> None:
    """Remove a directory of plain files."""
    for name in files.list(directory):
        files.remove(f"{directory}/{name}")
    files.remove(directory)


def replace_file(files: Files, path: str, content: bytes) -> None:
    """Give a small file new content atomically and durably."""
    directory = path.rpartition("/")[0]
    temporary = f"{path}.new"
    files.remove(temporary)
    appender = files.append(temporary)
    try:
        appender.write([content])
        appender.sync()
    finally:
        appender.close()
    files.rename(temporary, path)
    files.sync_directory(directory)
