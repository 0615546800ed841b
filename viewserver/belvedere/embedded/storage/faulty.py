"""Files in memory, and a disk that behaves as badly as POSIX allows.

`MemoryFiles` serves databases without a directory. `FaultyFiles` keeps what was not synced apart: `crash()` gives
the disk as it may look after a power cut, where every write and directory entry that was not synced is there, lost,
or (a write) torn, in any combination, and so in any order. Failures of single operations are scripted with `fail`
and `cut_after`. All choices come from one seed.
"""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Sequence

from belvedere.model.physical import Buffer

_SECTOR = 512


class _Inode:
    """One file: its bytes, what of them is durable, and the writes in between (offset and data; None: a truncation)."""

    __slots__ = ("content", "durable", "pending")

    def __init__(self, content: bytes = b""):
        self.content = bytearray(content)
        self.durable = bytearray(content)
        self.pending: list[tuple[int, bytes | None]] = []


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class MemoryFiles:
    """A file system in a dict."""

    def __init__(self) -> None:
        self._guard = threading.RLock()
        self._entries: dict[str, _Inode] = {}
        self._directories: set[str] = {""}
        self._locks: set[str] = set()

    def append(self, path: str) -> MemoryAppender:
        with self._guard:
            self._before("create")
            inode = self._entries.get(path)
            if inode is None:
                inode = _Inode()
                self._link({path: inode})
            return MemoryAppender(self, inode)

    def read(self, path: str, offset: int = 0, length: int | None = None) -> memoryview:
        with self._guard:
            self._before("read")
            inode = self._entries.get(path)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            stop = len(inode.content) if length is None else offset + length
            return memoryview(bytes(inode.content[offset:stop]))

    def size(self, path: str) -> int | None:
        with self._guard:
            inode = self._entries.get(path)
            return None if inode is None else len(inode.content)

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        with self._guard:
            paths = [*self._entries, *self._directories]
        return sorted({p[len(prefix) :] for p in paths if p.startswith(prefix) and p and "/" not in p[len(prefix) :]})

    def make_directory(self, path: str) -> None:
        with self._guard:
            self._before("create")
            self._directories.add(path)

    def rename(self, old: str, new: str) -> None:
        with self._guard:
            self._before("rename")
            self._link({new: self._entries[old], old: None})

    def remove(self, path: str) -> None:
        with self._guard:
            self._before("remove")
            if path in self._directories:
                self._directories.discard(path)
            elif path in self._entries:
                self._link({path: None})

    def sync_directory(self, path: str) -> None:
        with self._guard:
            self._before("sync")

    def lock(self, path: str) -> MemoryLock | None:
        with self._guard:
            if path in self._locks:
                return None
            self._locks.add(path)
            return MemoryLock(self._locks, path)

    def _link(self, change: dict[str, _Inode | None]) -> None:
        for path, inode in change.items():
            if inode is None:
                self._entries.pop(path, None)
            else:
                self._entries[path] = inode

    def _before(self, operation: str) -> None:
        """Called before each operation; the faulty disk fails here."""

    def _write(self, inode: _Inode, data: bytes) -> None:
        inode.content.extend(data)

    def _truncate(self, inode: _Inode, size: int) -> None:
        del inode.content[size:]

    def _sync(self, inode: _Inode) -> None:
        """Nothing to do: memory is as durable as this gets."""


class MemoryLock:
    """A name in a set."""

    def __init__(self, held: set[str], path: str):
        self._held, self._path = held, path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryAppender:
    """An open file of `MemoryFiles` or `FaultyFiles`."""

    def __init__(self, files: MemoryFiles, inode: _Inode):
        self._files, self._inode = files, inode

    @property
    def size(self) -> int:
        return len(self._inode.content)

    @size.setter
    def size(self, value: int) -> None:
        raise AttributeError("the size of a file follows from its writes")

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._files._write(self._inode, b"".join(bytes(b) for b in buffers))

    def sync(self) -> None:
        self._files._sync(self._inode)

    def truncate(self, size: int) -> None:
        self._files._truncate(self._inode, size)

    def close(self) -> None:
        """Nothing is held."""


class FaultyFiles(MemoryFiles):
    """See the module's text. `operations` counts what changed or synced something, for placing faults."""

    def __init__(self, seed: int = 0):
        super().__init__()
        self.seed = seed
        self.operations = 0
        self._random = random.Random(seed)
        self._durable: dict[str, _Inode] = {}
        self._unlinked: list[dict[str, _Inode | None]] = []
        self._faults: dict[str, list[tuple[int, int, bool]]] = {}
        self._counts: dict[str, int] = {}
        self._cut: int | None = None
        self._dead = False

    def fail(self, operation: str, *, after: int = 0, error: int = errno.EIO, always: bool = False) -> None:
        """Let `operation` ("write", "sync", "rename", "create", "remove", "truncate") fail once, after that many more
        successes of it; `always`: from then on."""
        with self._guard:
            self._faults.setdefault(operation, []).append((self._counts.get(operation, 0) + after, error, always))

    def heal(self) -> None:
        """Forget scripted failures (the disk has room again)."""
        with self._guard:
            self._faults.clear()

    def cut_after(self, operations: int) -> None:
        """Cut the power in the middle of the operation that comes after that many more."""
        with self._guard:
            self._cut = self.operations + operations

    @property
    def dead(self) -> bool:
        """Whether the power is cut: every operation fails until `crash` gives the next disk."""
        return self._dead

    def crash(self) -> FaultyFiles:
        """The disk as the next start finds it. This object stays dead, so threads of the past cannot write to it."""
        with self._guard:
            self._dead = True
            after = FaultyFiles(self._random.randrange(1 << 62))
            entries = dict(self._durable)
            for change in self._unlinked:
                if self._random.random() < 0.5:
                    _relink(entries, change)
            survivors: dict[int, _Inode] = {}
            for path, inode in entries.items():
                if id(inode) not in survivors:
                    survivors[id(inode)] = _Inode(self._survive(inode))
                after._entries[path] = after._durable[path] = survivors[id(inode)]
            after._directories = set(self._directories)
            return after

    def _survive(self, inode: _Inode) -> bytes:
        content = bytearray(inode.durable)
        style = self._random.choice(("all", "none", "prefix", "any"))
        kept = self._random.randint(0, len(inode.pending)) if style == "prefix" else len(inode.pending)
        for at, (offset, data) in enumerate(inode.pending):
            if style == "none" or at >= kept or (style == "any" and self._random.random() < 0.4):
                continue
            if data is not None and style != "all" and self._random.random() < 0.4:
                content_before = bytes(content)
                _apply(content, offset, data[: self._random.randint(0, len(data))])
                if self._random.random() < 0.5:  # sectors reach the disk in any order
                    content = bytearray(content_before)
                    for start in range(0, len(data), _SECTOR):
                        if self._random.random() < 0.5:
                            _apply(content, offset + start, data[start : start + _SECTOR])
                continue
            _apply(content, offset, data)
        return bytes(content)

    def _before(self, operation: str) -> None:
        if self._dead:
            raise OSError(errno.EIO, "the power is cut")
        if operation == "read":
            return
        if self._cut is not None and self.operations >= self._cut:
            self._dead = True
            raise OSError(errno.EIO, "the power is cut")
        self.operations += 1
        count = self._counts.get(operation, 0)
        self._counts[operation] = count + 1
        for at, error, always in self._faults.get(operation, ()):
            if count == at or (always and count >= at):
                raise OSError(error, "scripted failure", operation)

    def _link(self, change: dict[str, _Inode | None]) -> None:
        super()._link(change)
        self._unlinked.append(change)

    def sync_directory(self, path: str) -> None:
        with self._guard:
            self._before("sync")
            kept = []
            for change in self._unlinked:
                if any(name.rpartition("/")[0] == path for name in change):
                    _relink(self._durable, change)
                else:
                    kept.append(change)
            self._unlinked = kept

    def _write(self, inode: _Inode, data: bytes) -> None:
        with self._guard:
            offset = len(inode.content)
            try:
                self._before("write")
            except OSError:
                part = data[: self._random.randint(0, len(data))]
                _apply(inode.content, offset, part)
                inode.pending.append((offset, part))
                raise
            _apply(inode.content, offset, data)
            inode.pending.append((offset, data))

    def _truncate(self, inode: _Inode, size: int) -> None:
        with self._guard:
            self._before("truncate")
            _apply(inode.content, size, None)
            inode.pending.append((size, None))

    def _sync(self, inode: _Inode) -> None:
        with self._guard:
            try:
                self._before("sync")
            except OSError:
                # as Linux does: pages that failed are marked clean, and a later sync would report success
                inode.pending = [p for p in inode.pending if self._random.random() < 0.5]
                raise
            for offset, data in inode.pending:
                _apply(inode.durable, offset, data)
            inode.pending.clear()


def _relink(entries: dict[str, _Inode], change: dict[str, _Inode | None]) -> None:
    for path, inode in change.items():
        if inode is None:
            entries.pop(path, None)
        else:
            entries[path] = inode
