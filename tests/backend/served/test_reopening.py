"""LMDB refuses to go on after a write whose outcome is not known: it is opened again, and memory is read anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from belvedere.backend.served import environment
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.errors import StoreUnavailable
from tests.backend.conformance.rows import collect, read, write


class Disk:
    """Of an open store: after `fail`, LMDB wants to be opened again, and that fails as long as `broken` is set."""

    def __init__(self, store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broken, self.tried = False, 0
        self._environment = store.environment
        self._open = store.environment._open
        monkeypatch.setattr(store.environment, "_open", self.open)

    def open(self) -> Any:
        self.tried += 1
        if self.broken:
            raise StoreUnavailable("the disk does not answer")
        return self._open()

    def fail(self) -> None:
        """What was written last is durable, or not: LMDB does not know."""
        self._environment._env = Fatal(self._environment._env)


class Fatal:
    """LMDB with its fatal flag set."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def begin(self, write: bool = False) -> Any:
        if write:
            raise lmdb.PanicError("mdb_txn_begin: MDB_PANIC: Update of meta page failed")
        return self._env.begin()

    def close(self) -> None:
        self._env.close()


def open_store(path: Path, merge_rows: int = 10**9) -> LmdbStore:
    return LmdbStore(path, collect_pause=1000.0, merge_rows=merge_rows)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_disk_that_is_well_again_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_REPAIR_SECONDS", 1000.0)
    store = open_store(tmp_path)
    disk = Disk(store, monkeypatch)
    write(store, 1, {1: b"a"})
    disk.broken = True
    disk.fail()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="the disk does not answer"):
            write(store, 2, {1: b"b"})
        with pytest.raises(StoreUnavailable, match=r"has to be opened again after a failure.* MiB are free"):
            read(store, [1])
    assert disk.tried == 3
    disk.broken = False
    write(store, 2, {1: b"b"})
    assert read(store, [1]) == [b"b"] and read(store, [1], 2) == [b"a"] and disk.tried == 4
    store.close()


def test_it_is_opened_again_though_nobody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_REPAIR_SECONDS", 0.01)
    store = open_store(tmp_path)
    disk = Disk(store, monkeypatch)
    store.put_document("d", b"x")
    for _ in range(2):
        disk.broken = True
        disk.fail()
        with pytest.raises(StoreUnavailable):
            store.put_document("d", b"y")
        disk.tried = 0
        wait_for(lambda: disk.tried > 2)
        disk.broken = False
        wait_for(lambda: not store.environment._broken)
        assert store.get_document("d") == b"x"
        wait_for(lambda: not store.environment._repairing)
    store.close()


def test_a_store_that_cannot_be_opened_again_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    disk = Disk(store, monkeypatch)
    disk.broken = True
    disk.fail()
    with pytest.raises(StoreUnavailable):
        store.put_document("d", b"y")
    store.close()
    open_store(tmp_path).close()


@pytest.mark.parametrize("trouble", [StoreUnavailable("a page cannot be read"), MemoryError("no memory")])
def test_nothing_is_written_until_memory_was_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """Else a row that is in a run, and not in memory, would be passed over by the next merge."""
    monkeypatch.setattr(environment, "_REPAIR_SECONDS", 1000.0)
    store = open_store(tmp_path)
    write(store, 1, {1: b"a"})
    disk = Disk(store, monkeypatch)
    # The commit of this one is durable, and its caller does not learn of it.
    with monkeypatch.context() as patched:
        patched.setattr(store._tables._recent, "put", lambda written: None)
        write(store, 2, {2: b"b"})
    disk.fail()
    runs, failures = store._tables._runs, [trouble, trouble]

    def fail(txn: Any) -> Any:
        if failures:
            raise failures.pop()
        return runs(txn)

    monkeypatch.setattr(store._tables, "_runs", fail)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=str(trouble)):
            write(store, 3, {3: b"c"})
        with pytest.raises(StoreUnavailable):
            read(store, [1])
    write(store, 4, {4: b"d"})
    assert read(store, [1, 2, 3, 4]) == [b"a", b"b", None, b"d"]
    store.close()
    again = open_store(tmp_path)
    assert read(again, [1, 2, 3, 4]) == [b"a", b"b", None, b"d"]
    again.close()


def test_readers_wait_for_nobody_while_memory_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    store.put_document("d", b"x")
    disk, reading, go_on = Disk(store, monkeypatch), threading.Event(), threading.Event()

    def slow() -> None:
        reading.set()
        assert go_on.wait(30)

    store.environment.on_reopen(slow)
    disk.fail()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            store.put_document("d", b"y")
        except StoreUnavailable as error:
            failed.append(error)

    writer = threading.Thread(target=run)
    writer.start()
    assert reading.wait(30)
    with pytest.raises(StoreUnavailable, match="opened again"):
        store.get_document("d")
    go_on.set()
    writer.join(30)
    assert len(failed) == 1 and "MDB_PANIC" in str(failed[0])
    assert store.get_document("d") == b"x"
    store.close()


def test_a_map_that_cannot_grow_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_REPAIR_SECONDS", 1000.0)
    store = LmdbStore(tmp_path, collect_pause=1000.0, map_size=1 << 20)
    store.put_document("small", b"x")

    class Small(Fatal):
        def begin(self, write: bool = False) -> Any:
            return self._env.begin(write=write)

        def set_mapsize(self, size: int) -> None:
            raise lmdb.MemoryError("mmap: Cannot allocate memory")

    store.environment._env = Small(store.environment._env)
    with pytest.raises(StoreUnavailable, match="Cannot allocate memory"):
        store.put_document("big", b"x" * (2 << 20))
    store.put_document("big", b"x" * (2 << 20))
    assert store.get_document("small") == b"x" and len(store.get_document("big") or b"") == 2 << 20
    store.close()


def test_a_row_does_not_outlive_its_tombstone_if_the_store_is_opened_again_in_a_merge(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=10**9)
    write(store, 10, {1: None, 2: b"x"})
    collect(store, 5)
    write(store, 9, {1: b"late"})
    collector, reopened = store._tables._collector, 0
    step = collector._run

    def reopen(operation: Any) -> Any:
        nonlocal reopened
        found = step(operation)
        if not reopened:
            reopened += 1
            store.environment._reopen()
        return found

    collector._run = reopen  # type: ignore[method-assign]
    collect(store, 20, 20)
    assert reopened and read(store, [1, 2]) == [None, b"x"]
    store.close()
    again = LmdbStore(tmp_path)
    assert read(again, [1, 2]) == [None, b"x"]
    again.close()
