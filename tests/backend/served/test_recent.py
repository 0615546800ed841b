"""Recent rows and the tree behind them: reads see one table, wherever a version is at the moment."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from belvedere.backend.seam import TableWrite
from belvedere.backend.served import compaction as served_collector
from belvedere.backend.served import memtable
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.memtable import NONE, Memtable, RecentVersions
from belvedere.errors import StoreUnavailable
from tests.backend.conformance.rows import BUCKETS, by_id, collect, id_of, ids, read, scan, write


def entries(store: LmdbStore, *names: str) -> list[int]:
    with store.environment.reading() as txn:
        return [txn.stat(store.environment.db[name])["entries"] for name in names]


def quiet(path: Path) -> LmdbStore:
    """Nothing is merged unless somebody asks for a collection."""
    return LmdbStore(path, collect_pause=0.0, merge_rows=10**9)


def still(path: Path) -> LmdbStore:
    """Nothing is merged at all."""
    return LmdbStore(path, collect_pause=1000.0, merge_rows=10**9)


def test_rows_leave_memory_and_runs_when_they_are_in_the_tree(tmp_path: Path) -> None:
    store = quiet(tmp_path)
    for epoch in range(1, 6):
        write(store, epoch, dict.fromkeys(range(50), b"%d" % epoch))
    assert entries(store, "versions", "runs") == [0, 5] and store.usage() == {"t": 250}
    collect(store, 3)
    assert entries(store, "versions", "runs") == [150, 0] and store.usage() == {"t": 150}
    assert read(store, [7], 4) == [b"3"] and read(store, [7]) == [b"5"]
    store.close()


def test_what_is_only_in_runs_survives_a_restart(tmp_path: Path) -> None:
    store = still(tmp_path)
    write(store, 1, {1: b"a", 2: b"b"})
    write(store, 2, {1: None})
    store.drop_tables(["t"])
    write(store, 3, {1: b"c", 3: None})
    write(store, 3, {1: b"d"})
    store.close()
    again = still(tmp_path)
    assert entries(again, "versions", "runs") == [0, 4]
    assert scan(again) == by_id([(1, b"d")]) and read(again, [1, 2], 3) == [None, None]
    again.close()
    again = quiet(tmp_path)
    collect(again, 4)
    assert scan(again) == by_id([(1, b"d")]) and entries(again, "runs") == [0]
    again.close()


def test_late_versions_in_memory_do_not_hide_newer_ones_in_the_tree(tmp_path: Path) -> None:
    store = quiet(tmp_path)
    write(store, 20, {1: b"20", 2: None, 3: b"20", 4: b"20"})
    write(store, 30, {4: b"30"})
    collect(store, 5)
    write(store, 10, {1: b"10", 2: b"10", 5: b"10"})
    write(store, 20, {3: b"again"})
    assert read(store, [1, 2, 3, 4, 5]) == [b"20", None, b"again", b"30", b"10"]
    assert read(store, [1, 2, 3, 4, 5], 20) == [b"10", b"10", None, None, b"10"]
    assert scan(store) == by_id([(1, b"20"), (3, b"again"), (4, b"30"), (5, b"10")])
    assert scan(store, below=20) == by_id([(1, b"10"), (2, b"10"), (5, b"10")])
    store.close()


def test_a_scan_takes_both_in_order_over_many_pieces(tmp_path: Path) -> None:
    store = quiet(tmp_path)
    old = dict.fromkeys(range(0, 30000, 3), b"old")
    new = {number: None if number % 7 == 0 else b"new" for number in range(0, 30_000, 5)}
    write(store, 1, old)
    collect(store, 1)
    write(store, 2, new)
    expected = [(n, new.get(n, old.get(n))) for n in sorted(old.keys() | new.keys())]
    assert scan(store) == by_id((n, value) for n, value in expected if value is not None)
    assert scan(store, 100, 5000) == by_id((n, v) for n, v in expected if v is not None and 100 <= n % BUCKETS < 5000)
    assert scan(store, below=2) == by_id(old.items())
    store.close()


def test_reads_see_every_row_while_rows_go_to_the_tree(tmp_path: Path) -> None:
    """A row that was there is there, at every moment of a merge and a collection."""
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=200, map_size=1 << 20)
    numbers = range(300)
    write(store, 1, dict.fromkeys(numbers, b"1"))
    stop, failures = threading.Event(), []
    done = 1

    def look(kind: Callable[[], list[bytes | None]]) -> None:
        try:
            while not stop.is_set():
                least = done
                found = kind()
                assert len(found) == len(numbers)
                assert all(value is not None and int(value) >= least for value in found)
        except BaseException as error:
            failures.append(error)

    readers = [
        threading.Thread(target=look, args=(lambda: read(store, numbers),)),
        threading.Thread(target=look, args=(lambda: list(scan(store).values()),)),
    ]
    for thread in readers:
        thread.start()
    for epoch in range(2, 60):
        write(store, epoch, dict.fromkeys(numbers, b"%d" % epoch))
        done = epoch
        store.collect(epoch - 1, epoch - 1)
    stop.set()
    for thread in readers:
        thread.join()
    assert not failures, failures[0]
    store.close()


def for_ever(store: LmdbStore) -> None:
    for epoch in range(30, 60):
        write(store, epoch, dict.fromkeys(range(90), b"x"))


def test_writers_wait_for_a_merge_that_lags_and_are_told_if_it_cannot(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, collect_pause=1000.0, merge_rows=100)
    for epoch in range(1, 30):
        write(store, epoch, dict.fromkeys(range(90), b"x"))
    assert sum(store._tables._recent.versions().values()) <= 100 + 2 * 100 + 2 * 90 + 90
    trouble = StoreUnavailable("no room in the tree")

    def fail(*_: object) -> None:
        raise trouble

    store._tables._collector._merge = fail  # type: ignore[method-assign]
    with pytest.raises(StoreUnavailable, match="no room in the tree"):
        for_ever(store)
    del store._tables._collector._merge
    for epoch in range(60, 70):
        write(store, epoch, dict.fromkeys(range(90), b"y"))
    assert set(read(store, range(90))) == {b"y"}
    store.close()


def test_writers_that_wait_for_a_merge_do_not_wake_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_collector, "_PACE_SECONDS", 0.0)
    store = LmdbStore(tmp_path, collect_pause=1000.0, merge_rows=80)
    collector = store._tables._collector
    merge, goes_on, looks = collector._merge, threading.Event(), 0

    def slow() -> None:
        goes_on.wait(20.0)
        merge()

    enough = collector._enough

    def count(times: int = 1) -> bool:
        nonlocal looks
        looks += 1
        return enough(times)

    collector._merge = slow  # type: ignore[method-assign]
    rows = dict.fromkeys(range(90), b"x")
    for epoch in range(1, 4):
        write(store, epoch, rows)
    threads = [threading.Thread(target=write, args=(store, epoch, rows)) for epoch in range(4, 9)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    waiting = [thread for thread in threads if thread.is_alive()]
    collector._enough = count  # type: ignore[method-assign]
    time.sleep(0.3)
    seen = looks
    goes_on.set()
    for thread in threads:
        thread.join(20.0)
    assert len(waiting) == len(threads) and seen <= 4 * len(waiting)
    assert not any(thread.is_alive() for thread in threads) and set(read(store, range(90))) == {b"x"}
    store.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_memtable_equals_a_dict(seed: int) -> None:
    rng = random.Random(seed)
    table, model = Memtable(), {}
    for step in range(60):
        epoch = step // 3 + 1 - rng.choice((0, 0, 0, 2, 5))
        chosen = rng.sample(range(20), rng.randrange(10))
        if epoch < 1 or not chosen:
            continue
        cells = [b"" if rng.random() < 0.2 else b"\1%d" % step for _ in chosen]
        table.put(ids(*chosen), epoch, cells)
        for number, cell in zip(chosen, cells, strict=True):
            model[number, epoch] = cell
        below = rng.randrange(1, 25)
        found = table.find(ids(*range(20)), below)
        for number in range(20):
            known = [e for n, e in model if n == number and e < below]
            expected = model[number, max(known)] if known else None
            assert (None if found[number] == NONE else table.cells(found[number : number + 1])[0]) == expected
    horizon = rng.randrange(20)
    kept = table.all(horizon)
    expected = []
    for number in range(20):
        epochs = sorted((e for n, e in model if n == number), reverse=True)
        needed = [e for i, e in enumerate(epochs) if i == 0 or epochs[i - 1] > horizon]
        expected += [((number % BUCKETS, *id_of(number)), -e, model[number, e]) for e in needed]
    found_rows = [
        ((int(a) % BUCKETS, int(a), int(b)), -int(e), cell)
        for (a, b), e, cell in zip(kept.ids(), kept.epochs, kept.cells, strict=True)
    ]
    assert found_rows == sorted(expected)


def test_the_id_of_zeros_is_an_id() -> None:
    held = RecentVersions()
    zero = np.zeros((1, 2), np.uint64)
    held.put(memtable.Stored(1, 1, 5, zero, [b"\1x"]))
    cells, epochs = held.read(1, zero, 9)
    assert cells == [b"\1x"] and epochs.tolist() == [5]
    assert held.visible(1, 0, BUCKETS, 9).ids().tolist() == [[0, 0]]
    held.switch()
    rows, last = held.merging(0)
    assert rows[1].ids().tolist() == [[0, 0]] and last == 1


def test_a_merge_that_was_interrupted_is_taken_up_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=100)
    collector, failures = store._tables._collector, iter([StoreUnavailable("no room"), ZeroDivisionError("oops")])
    put = collector._put

    def fail(*arguments: Any) -> None:
        for failure in failures:
            raise failure
        put(*arguments)

    collector._put = fail  # type: ignore[method-assign]
    write(store, 1, dict.fromkeys(range(150), b"x"))
    deadline = time.monotonic() + 30
    while entries(store, "versions", "runs") != [150, 0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "ZeroDivisionError: oops" in caplog.text and "no room" not in caplog.text
    assert len(scan(store)) == 150
    store.close()


def test_late_writes_are_ignored_after_a_restart_too(tmp_path: Path) -> None:
    store = quiet(tmp_path)
    write(store, 10, {1: b"row", 2: b"row"})
    write(store, 20, {1: None})
    collect(store, 40, 30)
    assert scan(store) == by_id([(2, b"row")])
    store.close()
    again = quiet(tmp_path)
    write(again, 10, {1: b"row"})
    assert scan(again) == by_id([(2, b"row")])
    again.close()


def test_reads_see_all_recent_rows_while_they_are_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB is opened again when a commit failed, and goes on being read."""
    store = still(tmp_path)
    for epoch in (1, 2, 3):
        write(store, epoch, dict.fromkeys(range(epoch, epoch + 10), b"%d" % epoch))
    expected, seen = scan(store), []
    unpack = memtable.unpack_run

    def look(run: int, content: bytes) -> memtable.Stored:
        seen.append(scan(store))
        return unpack(run, content)

    monkeypatch.setattr(memtable, "unpack_run", look)
    store.environment._reopen()
    assert len(seen) == 3 and all(found == expected for found in seen) and scan(store) == expected
    store.close()


def test_a_tombstone_stays_until_what_it_hides_is_merged(tmp_path: Path) -> None:
    """Also if the merge of the tombstone was interrupted, and what it hides came meanwhile."""
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=20)
    collector, failing = store._tables._collector, True
    put = collector._put

    def fail(*arguments: Any) -> None:
        if failing:
            raise StoreUnavailable("no room")
        put(*arguments)

    collector._put = fail  # type: ignore[method-assign]
    write(store, 10, {1: None, **dict.fromkeys(range(2, 25), b"x")})
    deadline = time.monotonic() + 30
    while not collector._failures:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    write(store, 5, {1: b"late"})
    store.collect(20, 20)
    failing = False
    collect(store, 20, 20)
    assert read(store, [1]) == [None] and entries(store, "runs") == [0]
    store.close()


@pytest.mark.parametrize("merged", [True, False])
def test_servers_that_scan_their_buckets_look_at_each_row_once(tmp_path: Path, merged: bool) -> None:
    """In the tree and in memory: buckets of a server are strewn, and what lies between them is others' business."""
    store = quiet(tmp_path)
    rng = np.random.default_rng(0)
    rows = 5000
    keys = rng.integers(0, 2**63, (rows, 2)).astype(np.uint64)
    store.write(1, [TableWrite("t", keys, pa.array([b"x"] * rows, pa.binary()))])
    if merged:
        collect(store, 1)
    assert store.unmerged_rows() == (0 if merged else rows)
    owner, before = rng.integers(0, 4, 16_384), store.scanned_rows
    seen = 0
    for first in range(0, 16_384, 1024):
        for server in range(4):
            seen += sum(len(ids) for ids, _ in store.scan("t", first, first + 1024, 2, owner == server))
    assert seen == rows == store.scanned_rows - before
    store.close()
