"""INPUT: what was put is there, repeats change nothing, the index is of one moment."""

from __future__ import annotations

import threading

import pytest

from belvedere.backend.seam import InputSize, Store
from belvedere.errors import Contradiction, Damaged
from belvedere.protocol.exactly_once import Chunk, ChunkId, Seq, SourceId, WriterId


def chunk(number: int, writer: str = "w", source: str = "s", first: int = 0, last: int = 0) -> Chunk:
    return Chunk(ChunkId(WriterId(writer), number), SourceId(source), Seq(first), Seq(last), rows=3, size=7, at=11)


def test_chunks_come_back_as_they_were_put(store: Store) -> None:
    assert store.chunks() == [] and store.get_chunks([]) == []
    first, second = chunk(1, first=0, last=7), chunk(2, source="ß/2", first=8, last=2**62)
    store.put_chunks([(first, b"one")])
    store.put_chunks([(second, b"")])
    store.put_chunks([(first, b"one")])
    assert sorted(store.chunks(), key=lambda c: c.id) == [first, second]
    assert store.get_chunks([second.id, first.id, second.id]) == [b"", b"one", b""]


def test_a_repeated_chunk_changes_nothing(store: Store) -> None:
    store.put_chunks([(chunk(1, last=3), b"one")])
    store.put_chunks([(chunk(1, last=3), b"one")])
    assert store.chunks() == [chunk(1, last=3)]
    assert store.get_chunks([chunk(1).id]) == [b"one"]


@pytest.mark.parametrize(("last", "payload"), [(9, b"one"), (3, b"two"), (9, b"two")])
def test_an_id_with_another_content_is_refused(store: Store, last: int, payload: bytes) -> None:
    """Two writers of one name: whichever is second is told, and nothing of it is taken for durable."""
    store.put_chunks([(chunk(1, last=3), b"one")])
    with pytest.raises(Contradiction, match="chunk 1 of writer 'w' is in INPUT already with another content"):
        store.put_chunks([(chunk(1, last=last), payload)])
    assert store.chunks() == [chunk(1, last=3)]
    assert store.get_chunks([chunk(1).id]) == [b"one"]


def test_removed_chunks_are_gone_and_may_be_removed_again(store: Store) -> None:
    for number in range(5):
        store.put_chunks([(chunk(number), bytes(number))])
    store.remove_chunks([chunk(1).id, chunk(3).id, chunk(99).id])
    store.remove_chunks([chunk(1).id])
    store.remove_chunks([])
    assert sorted(c.id.number for c in store.chunks()) == [0, 2, 4]
    with pytest.raises(Damaged, match="chunk 3 of writer 'w'"):
        store.get_chunks([chunk(2).id, chunk(3).id])


def test_writers_are_told_apart(store: Store) -> None:
    for writer in ("d-1", "d-10", "d-1/2"):
        store.put_chunks([(chunk(7, writer=writer), writer.encode())])
    for writer in ("d-1", "d-10", "d-1/2"):
        assert store.get_chunks([chunk(7, writer=writer).id]) == [writer.encode()]


def test_a_big_chunk(store: Store) -> None:
    payload = bytes(range(256)) * 40_000
    store.put_chunks([(chunk(1), payload)])
    assert store.get_chunks([chunk(1).id]) == [payload]


def test_the_index_is_of_one_moment(store: Store) -> None:
    """Each writer writes its chunks one after the other: whoever sees a chunk sees all earlier ones of its writer."""
    writers, each = 4, 40

    def put(writer: int) -> None:
        for number in range(each):
            store.put_chunks([(chunk(number, writer=f"w{writer}", first=number, last=number), b"x" * 100)])

    threads = [threading.Thread(target=put, args=(writer,)) for writer in range(writers)]
    for thread in threads:
        thread.start()
    looks = 0
    while any(thread.is_alive() for thread in threads) or looks == 0:
        found: dict[str, list[int]] = {}
        for seen in store.chunks():
            found.setdefault(seen.id.writer, []).append(seen.id.number)
        for numbers in found.values():
            assert sorted(numbers) == list(range(len(numbers)))
        looks += 1
    for thread in threads:
        thread.join()
    assert len(store.chunks()) == writers * each


def test_the_first_chunks_of_each_source(store: Store) -> None:
    """In the order of first seqs, of equal ones the longest first; a source that has any is never left out."""
    wanted = {source: [(first, first + 5) for first in range(0, 100, 5)] for source in ("s", "s/1", "ß")}
    wanted["ß"][3:3] = [(15, 90), (15, 21)]
    wanted["one"] = [(2**62, 2**62 + 1)]
    number = 0
    for source, runs in wanted.items():
        for first, last in reversed(runs):
            number += 1
            store.put_chunks([(chunk(number, f"w{number % 3}", source, first, last), b"x")])
    wanted["ß"].sort(key=lambda run: (run[0], -run[1]))
    for limit in (1, 2, 5, 1000, None):
        found: dict[str, list[tuple[int, int]]] = {}
        listed = store.chunks(limit)
        for one in listed:
            found.setdefault(one.source, []).append((one.first, one.last))
        assert found == {source: runs[:limit] for source, runs in wanted.items()}
        assert len({one.source for a, one in enumerate(listed) if a == 0 or listed[a - 1].source != one.source}) == 4


def test_the_size_of_input(store: Store) -> None:
    assert store.input_size() == InputSize(0, 0, 0)
    for number in (1, 2, 3, 3, 2):
        store.put_chunks([(chunk(number), b"x")])
    assert store.input_size() == InputSize(3, 9, 21)
    store.remove_chunks([chunk(1).id, chunk(1).id, chunk(7).id])
    store.remove_chunks([chunk(1).id])
    assert store.input_size() == InputSize(2, 6, 14)
