"""A pool that stands still: the store keeps so much for it, and leaves room for what makes room again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from belvedere.backend.served import backlog
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.cli import roles
from belvedere.cluster.process.options import ProcessOptions
from belvedere.errors import DataError, StoreUnavailable
from belvedere.protocol.exactly_once import START, Chunk, ChunkId, Seq, SourceId, WriterId
from belvedere.protocol.messages import Role
from tests.backend.conformance.rows import read, write
from tests.backend.served.base_changes import ORDERS, Change, changes_of, rows_of

LIMIT = 1 << 20


def open_store(path: Path, limit: int | None = LIMIT) -> LmdbStore:
    store = LmdbStore(path, backlog_limit=limit)
    store.base.create_table(ORDERS)
    return store


def put(store: LmdbStore, number: int, request: str = "") -> dict[SourceId, Seq]:
    return store.base.put("orders", changes_of([Change(number, {"a": number, "b": "x" * 10_000})]), request=request)


def fill(store: LmdbStore) -> int:
    """Returns how many puts there was room for."""
    for number in range(1000):
        try:
            put(store, number, f"put-{number}")
        except StoreUnavailable as error:
            assert "base table 'orders' takes no rows: 1.0 MiB of changes are not in the views yet, " in str(error)
            assert "1.0 MiB are allowed" in str(error) and "--backlog-limit" in str(error)
            return number
    raise AssertionError("the limit was never reached")


def push(store: LmdbStore) -> list[ChunkId]:
    """As pushers and distributors do: every entry becomes a chunk, and leaves its log."""
    (source,) = store.sources()
    found = []
    for seq, entry in store.base.read_log(source.id, START, 1 << 30, 1 << 30):
        found.append(ChunkId(WriterId("w"), seq))
        store.put_chunks([(Chunk(found[-1], source.id, Seq(seq - 1), seq, 1, len(entry)), entry)])
        store.base.acknowledge({source.id: seq})
    return found


def test_rows_are_refused_at_the_limit_and_taken_when_the_pool_has_caught_up(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    count = fill(store)
    assert 80 < count < 110 and LIMIT <= store.backlog.size() < LIMIT + 40_000
    assert put(store, 7, "put-7"), "a write that has happened is answered"
    assert len(rows_of(store.base)) == count
    # What frees room again goes on, and what was taken in is pushed to its end.
    write(store, 1, dict.fromkeys(range(100), b"x"))
    store.put_document("d", b"x" * 1000)
    pushed = push(store)
    assert len(pushed) == count
    with pytest.raises(StoreUnavailable, match="takes no rows"):
        put(store, count, f"put-{count}")
    store.remove_chunks(pushed)
    assert store.backlog.size() < 20_000
    put(store, count, f"put-{count}")
    assert [row["id"] for row in rows_of(store.base)] == [count] and read(store, [1]) == [b"x"]
    store.close()


def test_the_backlog_is_known_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    found = store.backlog.size()
    store.close()
    again = open_store(tmp_path)
    assert again.backlog.size() == found
    with pytest.raises(StoreUnavailable):
        put(again, 1)
    again.close()
    without = open_store(tmp_path, 0)
    put(without, 1)
    without.close()


def test_input_takes_chunks_beyond_the_limit_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "SLACK", LIMIT // 2)
    store = open_store(tmp_path)

    def chunk(number: int) -> Chunk:
        return Chunk(ChunkId(WriterId("w"), number), SourceId("s"), Seq(number), Seq(number + 1), 1, 10_000)

    taken = 140
    for number in range(taken):
        store.put_chunks([(chunk(number), b"x" * 10_000)])
    assert 1.6 * LIMIT < store.backlog.size() < 1.75 * LIMIT
    store.put_chunks([(Chunk(ChunkId(WriterId("v"), 1), SourceId("t"), Seq(1), Seq(2), 1, 100_000), b"x" * 100_000)])
    taken += 1
    with pytest.raises(StoreUnavailable, match=r"INPUT takes no chunk of source 's': 1\.8 MiB .* 1\.8 MiB are allowed"):
        store.put_chunks([(chunk(500), b"x" * 10_000)])
    store.put_chunks([(chunk(0), b"x" * 10_000)])  # it is there already
    assert store.input_size().chunks == taken
    store.remove_chunks([chunk(number).id for number in range(10)])
    store.put_chunks([(chunk(500), b"x" * 10_000)])
    store.close()


def test_a_refused_write_leaves_no_trace(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store)
    with store.environment.reading() as txn:
        before = txn.id()
    with pytest.raises(StoreUnavailable):
        put(store, 1)
    with store.environment.reading() as txn:
        assert txn.id() == before
    known = store.backlog.last_size()
    store.close()
    assert store.backlog.last_size() == known >= LIMIT


def test_the_limit_follows_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small:
        f_blocks, f_frsize, f_bavail = 1 << 18, 4096, 1 << 10

    store = open_store(tmp_path / "a", None)
    assert 0 < store.backlog.limit <= backlog.MOST
    store.close()
    monkeypatch.setattr(backlog.os, "statvfs", lambda path: Small)
    store = open_store(tmp_path / "b", None)
    assert store.backlog.limit == 1 << 29
    store.close()


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("0", 0), ("1.5GiB", 3 << 29), ("77", 77)])
def test_the_limit_is_an_option(text: str | None, expected: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(roles, "_run", lambda role, **settings: told.append(settings["backlog_limit"]))
    words = [] if text is None else ["--backlog-limit", text]
    result = CliRunner().invoke(roles.store, ["--zookeeper", "localhost:2181", "--directory", "d", *words])
    assert result.exit_code == 0 and told == [expected]


def test_a_limit_that_is_none_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(roles.store, ["--zookeeper", "localhost:2181", "--backlog-limit", "much"])
    assert result.exit_code == 2 and "'much': a number of bytes" in result.output
    with pytest.raises(DataError, match="backlog limit -1"):
        ProcessOptions(Role.STORE, "localhost:2181", directory=tmp_path, backlog_limit=-1)
