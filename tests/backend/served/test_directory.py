"""The directory of a served store: one owner, one identity, one format; what is there after a kill or a full disk."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import lmdb
import pytest

from belvedere.backend.seam import InputSize
from belvedere.backend.served.environment import Environment
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.errors import BelowHorizon, Closed, Damaged, DataError, DiskError, FormatError, Locked
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId
from tests.backend.conformance.rows import changed, collect, read, scan, write
from tests.backend.conformance.test_input import chunk
from tests.backend.served.writing_child import ROWS, THREADS, value

ROOT = Path(__file__).parents[3]


def open_store(path: Path, **options: Any) -> LmdbStore:
    return LmdbStore(path, **{"collect_pause": 0.0, "merge_rows": 500, **options})


def child(module: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT / "viewserver"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.backend.served.{module}", *arguments],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    first = open_store(tmp_path)
    write(first, 10, {1: b"a", 2: None}, logged=True)
    first.put_document("d", b"x")
    first.put_chunks([(chunk(1), b"payload")])
    identity = first.identity()
    first.close()
    second = open_store(tmp_path)
    assert second.identity() == identity
    assert read(second, [1, 2]) == [b"a", None] and len(changed(second, 0, 10)[10]) == 2
    assert second.get_document("d") == b"x" and second.get_chunks([chunk(1).id]) == [b"payload"]
    second.close()


def test_bounds_and_what_is_to_be_collected_survive(tmp_path: Path) -> None:
    first = open_store(tmp_path)
    for epoch in range(1, 6):
        write(first, epoch, dict.fromkeys(range(300), b"x"), logged=True)
    first.collect(4, 0)
    first.close()
    second = open_store(tmp_path)
    collect(second, 4)
    assert second.usage()["t"] == 600 and list(changed(second, 0, 9)) == [5]
    second.drop_tables(["t"])
    second.close()
    third = open_store(tmp_path)
    collect(third, 5)
    with third.environment.reading() as txn:
        assert txn.stat(third.environment.db["versions"])["entries"] == 0
    third.close()


@pytest.mark.parametrize("merge_rows", [1, 500], ids=["collected from the tree", "never put into the tree"])
def test_reads_below_the_horizon_stay_refused_after_a_restart(tmp_path: Path, merge_rows: int) -> None:
    """What they would have to see is gone: a store that forgot its horizon would answer as if it had never been."""
    first = open_store(tmp_path, merge_rows=merge_rows)
    for epoch in (10, 20, 30):
        write(first, epoch, {1: b"%d" % epoch}, logged=True)
    collect(first, 30)
    first.close()
    second = open_store(tmp_path)
    for below in (1, 20, 30):
        with pytest.raises(BelowHorizon, match=f"below epoch {below} .* before 30"):
            read(second, [1], below)
        with pytest.raises(BelowHorizon):
            scan(second, below=below)
    assert read(second, [1], 31) == [b"30"]
    second.close()


def test_two_stores_have_two_identities(tmp_path: Path) -> None:
    one, two = open_store(tmp_path / "one"), open_store(tmp_path / "two")
    assert one.identity() != two.identity()
    one.close()
    two.close()


def test_a_directory_has_one_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(Locked, match=str(tmp_path)):
        open_store(tmp_path)
    store.close()
    store.close()
    open_store(tmp_path).close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    with pytest.raises(Closed, match="closed"):
        read(store, [1])
    with pytest.raises(Closed, match="closed"):
        write(store, 1, {1: b"a"})


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    env = lmdb.open(str(tmp_path), max_dbs=20)
    meta = env.open_db(b"meta")
    with env.begin(write=True) as txn:
        txn.put(b"format", b"4", db=meta)
    env.close()
    with pytest.raises(FormatError, match="has format 4, this version of belvedere reads up to 3"):
        open_store(tmp_path)


@pytest.mark.parametrize(("format", "lacks"), [(1, "views have no order"), (2, "base tables have no order")])
def test_a_directory_of_a_former_format_is_refused_and_says_what_to_do(tmp_path: Path, format: int, lacks: str) -> None:
    """`format-1.tar.xz` and `format-2.tar.xz` were written by the last versions of these formats."""
    with tarfile.open(Path(__file__).with_name(f"format-{format}.tar.xz")) as archive:
        archive.extractall(tmp_path, filter="data")
    message = rf"has format {format}, in which {lacks}; .* reads format 3.*load them into a new directory"
    with pytest.raises(FormatError, match=message):
        open_store(tmp_path / f"format-{format}")


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(DiskError, match="cannot be used"):
        open_store(tmp_path / "file")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(Damaged, match="is damaged"):
        open_store(tmp_path)


def test_names_that_are_too_long_are_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(DataError, match=r"document name 'nnn.* has 600 bytes, the store takes 479"):
        store.put_document("n" * 600, b"")
    with pytest.raises(DataError, match="table name"):
        write(store, 1, {1: b"a"}, table="t" * 600)
    assert store.usage() == {}
    store.close()


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put_chunks([(chunk(1), b"a" * 5000)])
    store.put_chunks([(chunk(2), b"b" * 5000)])
    store.close()
    data = tmp_path / "data.mdb"
    content = bytearray(data.read_bytes())
    at = content.find(b"b" * 5000)
    content[at + 2500] ^= 1
    data.write_bytes(content)
    store = open_store(tmp_path)
    assert store.get_chunks([chunk(1).id]) == [b"a" * 5000]
    with pytest.raises(Damaged, match="chunk 2 of writer 'w': the checksum over its 5000 bytes does not hold"):
        store.get_chunks([chunk(1).id, chunk(2).id])
    store.close()


def test_concurrent_calls_share_a_commit(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    begun, go = threading.Event(), threading.Event()

    def slow(txn) -> None:
        begun.set()
        assert go.wait(30)

    leader = threading.Thread(target=environment.run, args=(slow,))
    leader.start()
    assert begun.wait(30)
    followers = [
        threading.Thread(
            target=environment.run, args=(lambda txn, n=n: txn.put(b"k%d" % n, b"", db=environment.db["documents"]),)
        )
        for n in range(10)
    ]
    for thread in followers:
        thread.start()
    while len(environment._queue) < 10:
        threading.Event().wait(0.001)
    with environment.reading() as txn:
        before = txn.id()
    go.set()
    for thread in (leader, *followers):
        thread.join()
    with environment.reading() as txn:
        # The leader changed nothing, so the ten that waited for it are the only transaction that left a trace.
        assert txn.id() - before == 1
        assert txn.stat(environment.db["documents"])["entries"] == 10
    environment.close()


def test_steps_of_other_work_take_turns_with_calls_and_have_a_commit_of_their_own(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    begun, go = threading.Event(), threading.Event()
    transactions: list[tuple[str, int]] = []

    def slow(txn) -> None:
        begun.set()
        assert go.wait(30)

    def call(name: str, later: bool) -> None:
        def operation(txn) -> None:
            transactions.append((name, txn.id()))
            txn.put(name.encode(), b"", db=environment.db["documents"])

        environment.run(operation, later=later)

    threads = [threading.Thread(target=environment.run, args=(slow,))]
    threads[0].start()
    assert begun.wait(30)
    for number in range(3):
        threads.append(threading.Thread(target=call, args=(f"call {number}", False)))
        threads.append(threading.Thread(target=call, args=(f"step {number}", True)))
    for thread in threads[1:]:
        thread.start()
    while len(environment._queue) + len(environment._steps) < 6:
        threading.Event().wait(0.001)
    go.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    by_commit: dict[int, list[str]] = {}
    for name, id in transactions:
        by_commit.setdefault(id, []).append(name.split()[0])
    # A step is first, since a call was before; then all calls at once; then the other steps, one by one.
    assert list(by_commit.values()) == [["step"], ["call"] * 3, ["step"], ["step"]]
    environment.close()


def test_one_that_fails_does_not_take_others_with_it(tmp_path: Path) -> None:
    environment = Environment(tmp_path)
    begun, go = threading.Event(), threading.Event()
    outcomes: dict[int, str] = {}

    def slow(txn) -> None:
        begun.set()
        assert go.wait(30)

    def call(number: int) -> None:
        def operation(txn) -> None:
            txn.put(b"k%d" % number, b"", db=environment.db["documents"])
            if number % 3 == 0:
                raise DataError(f"number {number}")

        try:
            environment.run(operation)
            outcomes[number] = "done"
        except DataError as error:
            outcomes[number] = str(error)

    threads = [threading.Thread(target=environment.run, args=(slow,))]
    threads[0].start()
    assert begun.wait(30)
    threads += [threading.Thread(target=call, args=(number,)) for number in range(9)]
    for thread in threads[1:]:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()
    assert outcomes == {n: f"number {n}" if n % 3 == 0 else "done" for n in range(9)}
    with environment.reading() as txn:
        assert txn.stat(environment.db["documents"])["entries"] == 6
    environment.close()


def test_the_map_grows_while_others_read(tmp_path: Path) -> None:
    store = open_store(tmp_path, map_size=1 << 20)
    stop = threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not stop.is_set():
                for _ in store.scan("t", 0, 16_384, 2**40):
                    pass
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=look) for _ in range(3)]
    for thread in readers:
        thread.start()
    for epoch in range(1, 30):
        write(store, epoch, {number + epoch * 100: b"x" * 3000 for number in range(100)})
    stop.set()
    for thread in readers:
        thread.join()
    assert not failures
    assert len(scan(store)) == 2900
    store.close()


@pytest.mark.parametrize("life", range(3))
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, life: int) -> None:
    acknowledged = dict.fromkeys(range(THREADS), 0)
    process = child("writing_child", str(tmp_path), "1")
    assert process.stdout is not None
    lines = 0
    for line in process.stdout:
        thread, epoch = json.loads(line)
        acknowledged[thread] = epoch
        lines += 1
        if lines == 17 + 61 * life:
            process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert lines >= 17 + 61 * life
    store = open_store(tmp_path)
    horizon = acknowledged[0] // 5 * 5 - 3  # of the last collection that the child may have asked for
    for thread, last in acknowledged.items():
        found = int(store.get_document(f"d{thread}") or 0)
        assert last <= found <= last + 1
        newest = [value(thread, found, row) if found else None for row in range(ROWS)]
        assert read(store, range(ROWS), found + 1, f"t{thread}") == newest
        for epoch in range(max(1, last - 2, horizon + 1), last + 1):
            expected = [value(thread, epoch, row) for row in range(ROWS)]
            assert read(store, range(ROWS), epoch + 1, f"t{thread}") == expected
            assert len(changed(store, epoch - 1, epoch, f"t{thread}")[epoch]) == ROWS
        chunks = [ChunkId(WriterId(f"w{thread}"), epoch) for epoch in range(1, last + 1)]
        assert store.get_chunks(chunks) == [b"%d" % id.number * 100 for id in chunks]
    store.close()


def test_a_full_disk_is_said_and_survived(tmp_path: Path) -> None:
    process = child("full_disk_child", str(tmp_path))
    output, _ = process.communicate(timeout=120)
    assert (process.returncode, output) == (0, "fine\n")


def test_an_index_without_an_order_gets_one(tmp_path: Path) -> None:
    """Directories of earlier versions have none."""
    store = LmdbStore(tmp_path)
    for number in range(5):
        store.put_chunks(
            [(Chunk(ChunkId(WriterId("w"), number), SourceId("s"), Seq(9 - number), Seq(9), rows=2), b"x")]
        )
    store.environment.run(lambda txn: txn.drop(store.environment.db["order"], delete=False))
    assert store.chunks() == []
    store.close()
    again = LmdbStore(tmp_path)
    assert [chunk.first for chunk in again.chunks(3)] == [5, 6, 7] and again.input_size() == InputSize(5, 10, 0)
    again.close()
