"""Collections that take long: writers go on meanwhile, and nothing that has to go is forgotten."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from belvedere.backend.served import compaction
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.errors import StoreUnavailable
from tests.backend.conformance.rows import collect, read, write
from tests.backend.served.test_recent import entries


def test_writers_go_on_during_a_long_collection(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=100)
    written, begun = threading.Event(), threading.Event()

    def unending() -> bool:
        begun.set()
        return not written.is_set()

    store._tables._collector._some_dropped = unending  # type: ignore[method-assign]
    store.collect(1, 1)
    assert begun.wait(20)

    def go_on() -> None:
        for epoch in range(2, 22):
            write(store, epoch, dict.fromkeys(range(90), b"%d" % epoch))
        written.set()

    writer = threading.Thread(target=go_on, daemon=True)
    writer.start()
    writer.join(20)
    stuck = not written.is_set()
    written.set()
    assert not stuck, "writers wait for the end of the collection"
    assert set(read(store, range(90))) == {b"21"} and set(read(store, range(90), 11)) == {b"10"}
    collect(store, 21)
    assert store.usage() == {"t": 90}
    store.close()


def test_what_a_merge_notes_again_during_a_collection_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that is repeated is noted under the same name as the first time."""
    monkeypatch.setattr(compaction, "_STEPS_PER_MERGE", 0)
    store = LmdbStore(tmp_path, collect_pause=0.0, merge_rows=50)
    for horizon, epoch in enumerate((15, 16, 17), 1):
        write(store, epoch, dict.fromkeys(range(50), b"%d" % epoch))
        collect(store, horizon)
    assert store.usage() == {"t": 150} and entries(store, "runs") == [0]
    working, repeated = store._tables._collector, []
    step = working._run

    def repeat(operation: Any) -> Any:
        found = step(operation)
        if getattr(getattr(operation, "func", None), "__name__", "") == "_collect_ids" and not repeated:
            repeated.append(16)
            write(store, 16, dict.fromkeys(range(50), b"16"))
        return found

    working._run = repeat  # type: ignore[method-assign]
    collect(store, 20)
    assert repeated and entries(store, "versions", "runs", "notes") == [50, 0, 0]
    assert set(read(store, range(50))) == {b"17"}
    store.close()


def test_writers_give_up_if_no_room_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(compaction, "_RETRY_SECONDS", 0.02)
    monkeypatch.setattr(compaction, "_PACE_SECONDS", 0.0)
    store = LmdbStore(tmp_path, collect_pause=1000.0, merge_rows=80)
    go_on, merge = threading.Event(), store._tables._collector._merge

    def slow() -> None:
        assert go_on.wait(30)
        merge()

    store._tables._collector._merge = slow  # type: ignore[method-assign]
    for epoch in range(1, 4):
        write(store, epoch, dict.fromkeys(range(90), b"x"))
    with pytest.raises(StoreUnavailable, match=r"has 270 rows in memory .* 0.05 s were not enough"):
        write(store, 4, dict.fromkeys(range(90), b"y"))
    go_on.set()
    monkeypatch.setattr(compaction, "_PATIENCE_SECONDS", 30.0)
    write(store, 4, dict.fromkeys(range(90), b"y"))
    assert set(read(store, range(90))) == {b"y"}
    store.close()


def test_a_write_waits_for_a_merge_that_lags_only_as_long_as_its_own_rows_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of ten rows: a write of twenty waits for four of them, not for the whole merge."""
    monkeypatch.setattr(compaction, "_STEP_ROWS", 10)
    monkeypatch.setattr(compaction, "_PACE_SECONDS", 30.0)
    store = LmdbStore(tmp_path, collect_pause=1000.0, merge_rows=100)
    working = store._tables._collector
    step, begun, steps = working._run, threading.Event(), threading.Semaphore(0)

    def one_by_one(operation: Any) -> Any:
        if getattr(getattr(operation, "func", None), "__name__", "") == "_put":
            begun.set()
            assert steps.acquire(timeout=30)
        return step(operation)

    working._run = one_by_one  # type: ignore[method-assign]
    write(store, 1, dict.fromkeys(range(300), b"a"))
    assert begun.wait(20)
    write(store, 2, dict.fromkeys(range(150), b"b"))  # from now on the merge lags
    written = threading.Event()

    def go_on() -> None:
        write(store, 3, dict.fromkeys(range(20), b"c"))
        written.set()

    threading.Thread(target=go_on, daemon=True).start()
    deadline = time.monotonic() + 20
    while not working._owed:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    steps.release(3)
    assert not written.wait(0.3)
    steps.release(1)
    assert written.wait(20)
    assert working._put_rows == 40 and store._tables._recent.interrupted
    assert store.unmerged_rows() == 300 + 150 + 20 and store.held_up_seconds >= 0.3
    steps.release(1000)
    assert set(read(store, range(20))) == {b"c"}
    store.close()


def test_a_collection_goes_on_although_there_is_always_enough_to_merge(tmp_path: Path) -> None:
    """Some of its steps come before each merge: with one step for a merge it would never catch up."""
    store = LmdbStore(tmp_path, collect_pause=0.0)
    working, done = store._tables._collector, []

    def unending() -> bool:
        done.append("step")
        return len(done) < 30

    merge = working._merge_generation

    def noted() -> None:
        done.append("merge")
        merge()

    working._some_dropped, working._merge_generation = unending, noted  # type: ignore[method-assign]
    working._ripe = lambda: True  # type: ignore[method-assign]
    collect(store, 1)
    text = "".join("m" if one == "merge" else "s" for one in done)
    assert text.count("m" + "s" * compaction._STEPS_PER_MERGE + "m") >= 1, text
    store.close()
